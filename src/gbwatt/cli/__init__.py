"""The command line: one file for each subcommand, which parses, calls and prints."""

from gbwatt.cli.app import main

__all__ = ["main"]
