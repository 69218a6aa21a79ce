"""The namespace of functions for networks."""

from __future__ import annotations

import pytest

import weft
import weft.functional as F


@pytest.mark.parametrize("name", F.__all__)
def test_function_is_a_name_of_weft_and_shows_an_example(name: str) -> None:
    function = getattr(F, name)
    assert (function is getattr(weft, name)) == (name != "pad")  # whose meaning is PyTorch's here
    assert ">>> " in function.__doc__
