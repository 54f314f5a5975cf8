"""``python -m gbwatt``: the command line."""

from gbwatt.cli import main

if __name__ == "__main__":
    main()
