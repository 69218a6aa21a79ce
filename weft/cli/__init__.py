"""The command ``weft``: one module for each of its commands, and here what they share in how they end."""

from weft.cli.command import main

__all__ = ["main"]
