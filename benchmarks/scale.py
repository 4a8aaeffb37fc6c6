"""Measure what grows with the size of a collection or with the number of machines.

    python benchmarks/scale.py embed --photos data/flickr8k/images --count 240
    python benchmarks/scale.py sizes --into runs/scale --json runs/scale/sizes.json --plot docs/images/scale.png
    python benchmarks/scale.py storage
    python benchmarks/scale.py crossmodal
    python benchmarks/scale.py transfer --rows 1000000 --dimensions 128 --steps start "import shards" "export shards"

The parts are described in their files under ``scale_parts/``, and in ``transfer.py``.
"""

from __future__ import annotations

import argparse
from importlib import import_module
from types import ModuleType

PARTS = {
    "embed": "equal shards and throughput of one process, four divisions of the work, and two Ray workers",
    "sizes": "disk, build time, memory, recall and latency of one collection, from 10^5 to 10^7 embeddings",
    "crossmodal": "recall of approximate searches with captions among images, and images among captions",
    "transfer": "import and export of embeddings: rows per second and peak memory",
    "storage": "how much float16 and int8 change the results of exact searches over real embeddings",
}


def module_of(part: str) -> ModuleType:
    return import_module(part if part == "transfer" else f"scale_parts.{part}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="part", required=True, metavar="PART")
    for name, summary in PARTS.items():
        module_of(name).add_arguments(commands.add_parser(name, help=summary))
    options = parser.parse_args()
    module_of(options.part).run(options)


if __name__ == "__main__":
    main()
