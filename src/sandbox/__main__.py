"""`python -m sandbox` is the `sandbox` command."""

import sys

from sandbox.cli.main import main

sys.exit(main())
