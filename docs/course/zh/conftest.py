"""The code of these pages is that of ``docs/course/en``, which is run; ``tests/course`` checks that it is the same."""

collect_ignore_glob = ["*.md"]
