#!/usr/bin/env python3
"""Times Kachel beside the libraries that people use instead. docs/performance.md says how."""
import os
import sys

sys.path[0] = os.path.dirname(os.path.abspath(__file__))  # where the package of the same name is

from compare.main import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main())
