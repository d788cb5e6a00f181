"""`python -m penstock.cli`, for where the script is not on the path."""

import sys

from penstock.cli.entry import main

sys.exit(main())
