"""Imports weft before pytest imports one of its modules by path, and makes random tests repeatable.

By path, pytest would put the package ``weft.tensor`` in the place of the function ``weft.tensor``.
"""

from hypothesis import settings

import weft  # noqa: F401 - for its effect

# The examples are the same in each run, so that a failure can be repeated and a change is not blamed for
# what it did not do. `pytest --hypothesis-profile=explore` looks for new ones.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("explore", deadline=None)
settings.load_profile("repeatable")
