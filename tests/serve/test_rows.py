"""Which models have rows, and whether these depend on each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import weft
from weft.io.interface import Interface
from weft.serve.model import fitting_sizes, row_size, rows_are_independent

ROWS = weft.TensorType(("batch", 3), weft.float32)
TABLE = weft.arange(4.0)


def interface_of(folder: Path, function: Any, *kinds: Any) -> Interface:
    weft.compile(function).save(folder / "m.weft", *kinds)
    return Interface(weft.load_graph(folder / "m.weft"))


@pytest.mark.rotating(3)
@pytest.mark.parametrize(
    ("function", "kinds", "name"),
    [
        (lambda x: x * 2, (ROWS,), "batch"),
        (lambda x: x * 2, (weft.TensorType(("batch_size", 3), weft.float32),), "batch_size"),
        (lambda x: x * 2, (weft.TensorType(("time", 3), weft.float32),), ""),
        (lambda x: x * 2, (weft.TensorType((2, 3), weft.float32),), ""),
        (lambda x: x * 2, (weft.TensorType((2, "batch"), weft.float32),), ""),
        (lambda x: x.sum(), (ROWS,), ""),
        (lambda x: x.sum(axis=0), (ROWS,), ""),
        (lambda x: x @ x.mT, (ROWS,), ""),
        (lambda x: weft.concat([x, x]), (ROWS,), ""),
        (lambda x, k: x * k, (ROWS, weft.TensorType((), weft.float32)), ""),
        (lambda x, y: x[:, :1] * y, (ROWS, weft.TensorType(("batch", "n"), weft.float32)), "batch"),
    ],
)
def test_rows_are_the_first_size_of_everything(tmp_path: Path, function: Any, kinds: Any, name: str) -> None:
    assert row_size(interface_of(tmp_path, function, *kinds)) == name


def test_another_size_may_be_named(tmp_path: Path) -> None:
    interface = interface_of(tmp_path, lambda x: x * 2, weft.TensorType(("n", 3), weft.float32))
    assert (row_size(interface, "n"), row_size(interface, "m")) == ("n", "")


@pytest.mark.rotating(3)
@pytest.mark.parametrize(
    ("function", "kind", "expected"),
    [
        (lambda x: weft.softmax(x, axis=1), ROWS, True),
        (lambda x: weft.softmax(x, axis=0), ROWS, False),
        (lambda x: weft.cumsum(x, axis=0), ROWS, False),
        (lambda x: weft.flip(x, axis=0), ROWS, False),
        (lambda x: x - x.max(), ROWS, False),
        (lambda x: x / x.shape[0], ROWS, False),
        (lambda x: weft.sort(x, axis=0), ROWS, False),
        (lambda i: TABLE[i], weft.TensorType(("batch", 2), weft.int64), True),
        (lambda i: i - i.min(), weft.TensorType(("batch", 2), weft.int64), False),
        (lambda b: weft.logical_not(b), weft.TensorType(("batch", 2), weft.bool), True),
        (lambda b: b ^ b.any(), weft.TensorType(("batch", 2), weft.bool), False),
    ],
)
def test_rows_that_depend_on_each_other_are_found(
    tmp_path: Path, function: Any, kind: Any, expected: bool
) -> None:
    interface = interface_of(tmp_path, function, kind)
    sizes = fitting_sizes(interface)
    assert sizes is not None
    assert rows_are_independent(interface, "batch", sizes) is expected


def test_sizes_that_a_model_takes_are_found(tmp_path: Path) -> None:
    kind = weft.TensorType(("batch", "n"), weft.float32)
    interface = interface_of(tmp_path, lambda x: x[:, 5], kind)
    assert row_size(interface) == "batch"
    assert fitting_sizes(interface) == {"batch": 8, "n": 8}


def test_a_model_that_refuses_random_inputs_is_served_one_by_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def f(x: weft.Tensor) -> weft.Tensor:
        assert (x > 100.0).all(), "must be large"
        return x + 1

    weft.compile(f).save(tmp_path / "f.weft", ROWS)
    app = weft.serve.app(tmp_path / "f.weft")
    assert app.models["f"].batch == ""
    assert "refuses random inputs" in caplog.text
    assert weft.serve.app(tmp_path / "f.weft", batch_size="batch").models["f"].batch == "batch"
