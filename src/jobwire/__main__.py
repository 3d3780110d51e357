"""`python -m jobwire` is `jobwire`."""

import sys

from jobwire.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
