"""The command line interface: one module for each subcommand."""

from gbwatt.cli.app import main

__all__ = ["main"]
