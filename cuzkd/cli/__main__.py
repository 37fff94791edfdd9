"""`python -m cuzkd.cli`, where no script is installed."""

import sys

from cuzkd.cli import main

sys.exit(main())
