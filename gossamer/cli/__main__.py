"""Run as `python -m gossamer.cli`."""

import sys

from gossamer.cli import main

sys.exit(main())
