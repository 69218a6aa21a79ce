"""Graphs in files that change their arguments: they do so after loading, as the function did."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import weft
from weft.errors import GradientError, ShapeError


def add_one(x: Any, y: Any) -> Any:
    x += 1.0
    return (x * y).sum()


def through_a_view(x: Any, y: Any) -> Any:
    row = x[0]
    row *= 2.0
    y.add_(x.sum())
    return y * 2.0


WAYS: dict[str, Callable[..., Any]] = {
    "compile": lambda f, *args: weft.compile(f).save(*args),
    "script": lambda f, *args: weft.jit.script(f).save(*args),
    "trace": lambda f, path, *args: weft.jit.trace(f, *args).save(path),
}


@pytest.mark.parametrize("backend", ["interpret", "llvm"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("function", [add_one, through_a_view])
def test_loaded_graph_changes_its_arguments(
    function: Callable[..., Any], way: str, backend: str, tmp_path: Path
) -> None:
    path = tmp_path / "f.weft"
    WAYS[way](function, path, weft.ones(2, 3), weft.ones(3))
    loaded = weft.load_graph(path, backend=backend)
    for _ in range(2):
        ours, theirs = ([weft.full((2, 3), 3.0), weft.arange(3.0)] for _ in range(2))
        shown = ours[0].view(-1)
        assert loaded(*ours).tolist() == function(*theirs).tolist()
        assert [x.tolist() for x in ours] == [x.tolist() for x in theirs]
        assert shown.tolist() == theirs[0].view(-1).tolist()


def test_saved_again_it_still_does(tmp_path: Path) -> None:
    weft.compile(add_one).save(tmp_path / "a.weft", weft.ones(2), weft.ones(2))
    weft.load_graph(tmp_path / "a.weft").save(tmp_path / "b.weft")
    x = weft.ones(2)
    weft.load_graph(tmp_path / "b.weft")(x, weft.ones(2))
    assert x.tolist() == [2.0, 2.0]


def test_arguments_that_must_not_be_changed_are_errors(tmp_path: Path) -> None:
    weft.compile(add_one).save(tmp_path / "a.weft", weft.ones(2), weft.ones(2))
    loaded = weft.load_graph(tmp_path / "a.weft")
    leaf = weft.ones(2, requires_grad=True)
    with pytest.raises(GradientError, match="a leaf that requires grad must not be changed in place"):
        loaded(leaf, weft.ones(2))
    assert leaf.requires_grad
    assert leaf.tolist() == [1.0, 1.0]
    with pytest.raises(ShapeError, match="elements that are repeated must not be changed in place"):
        loaded(weft.ones(1).expand(2), weft.ones(2))
    with weft.no_grad():
        loaded(leaf, weft.ones(2))
    assert leaf.tolist() == [2.0, 2.0]
    y = weft.ones(2, requires_grad=True)  # which is not changed
    loaded(weft.ones(2), y).backward()
    assert y.grad.tolist() == [2.0, 2.0]
