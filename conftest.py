"""Imports weft before pytest imports one of its modules by path.

By path, pytest would put the package ``weft.tensor`` in the place of the function ``weft.tensor``.
"""

import weft  # noqa: F401 - for its effect
