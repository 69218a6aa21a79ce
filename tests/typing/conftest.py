"""The programs here are for type checkers to read, and are never imported."""

collect_ignore = ["user_code.py", "wrong_code.py"]
