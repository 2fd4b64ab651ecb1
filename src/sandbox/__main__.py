"""`python -m sandbox` is the `sandbox` command."""

import sys

from sandbox.cli.quick_imports import install

install()

from sandbox.cli.main import main  # noqa: E402

sys.exit(main())
