"""The command line of rowpost, with its scripts adapted to Babelfish: python -m tests.support.babelfish apply."""

from rowpost.cli import main
from tests.support.babelfish import install

if __name__ == "__main__":
    install()
    main()
