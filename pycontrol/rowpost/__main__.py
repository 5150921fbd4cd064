"""`python -m rowpost` is the command `rowpost`."""

from rowpost.cli import main

if __name__ == "__main__":
    main()
