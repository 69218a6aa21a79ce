"""One capture, from its root to a program."""
