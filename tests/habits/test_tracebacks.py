"""Tracebacks of mistakes show lines of the user alone, whichever object of weft was called."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import weft
from weft import nn, optim
from weft.errors import WeftError

PACKAGE = str(Path(weft.__file__).parent)
MISTAKES: dict[str, Callable[[], Any]] = {
    "module": lambda: nn.Linear(3, 2)(weft.ones(4)),
    "modules": lambda: nn.Sequential(nn.Linear(3, 2))(weft.ones(4)),
    "vmap": lambda: weft.vmap(lambda x: x @ weft.ones(5))(weft.ones(2, 3)),
    "grad": lambda: weft.grad(lambda x: x @ weft.ones(5))(weft.ones(3)),
    "optimizer": lambda: optim.SGD([nn.Parameter(weft.ones(2))], lr=-1),
    "keyword": lambda: optim.Adam([nn.Parameter(weft.ones(2))], momentum=0.9),  # type: ignore[call-arg]
    "method": lambda: weft.ones(2, 3).max(5),
    "in place": lambda: weft.ones(2).scatter_(3, weft.tensor([0]), 1.0),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_no_line_of_weft_is_shown(name: str) -> None:
    with pytest.raises(WeftError) as caught:
        MISTAKES[name]()
    files = [frame.filename for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert [f for f in files if f.startswith(PACKAGE)] == []


def test_wrong_keyword_of_an_optimizer_names_the_class_and_what_it_takes() -> None:
    with pytest.raises(WeftError) as caught:
        MISTAKES["keyword"]()
    assert str(caught.value).startswith("Adam: unknown keyword 'momentum'")
    assert "it takes params, lr, betas" in str(caught.value)
