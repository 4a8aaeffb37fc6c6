"""``python -m vse`` is the command ``vse``."""

import sys

from vse.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
