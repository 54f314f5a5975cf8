"""Run the command line by ``python -m gbwatt``."""

from gbwatt.cli import main

if __name__ == "__main__":
    main()
