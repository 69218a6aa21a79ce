"""Slices that begin or end where only a run tells are views, as all slices are: changes go both ways."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft

X = np.arange(24.0, dtype=np.float32).reshape(4, 6)
Change = Callable[[Any, Any], Any]


def _grown(x: Any, i: Any) -> Any:
    part = x[: int(i)]
    part += 1
    return part.sum()


def _filled(x: Any, i: Any) -> None:
    x[i:].fill_(7.0)


def _last(x: Any, i: Any) -> None:
    x[-int(i) - 1 :].mul_(2.0)


def _strided(x: Any, i: Any) -> None:
    x[:: int(i) + 1].add_(1.0)


def _columns(x: Any, i: Any) -> None:
    x[:, i:].add_(1.0)


def _from_the_end(x: Any, i: Any) -> None:
    x[..., : int(i)].add_(1.0)


def _selected(x: Any, i: Any) -> None:
    x.select(1, int(i)).add_(1.0)


def _flat(x: Any, i: Any) -> None:
    x.view(-1)[i : i + 3].mul_(3.0)


def _window(x: Any, i: Any) -> Any:
    part = x[int(i) : int(i) + 2]
    part.mul_(2.0)
    part[0] = 9.0
    return part, part[:, 1:3]


def _window_that_grows(x: Any, i: Any) -> None:
    x[i : i + 2] += 5.0


def _window_of_a_row(x: Any, i: Any) -> None:
    x[int(i), i : i + 2].neg_()


def _two_windows(x: Any, i: Any) -> None:
    x[i : i + 2, int(i) : int(i) + 3] -= 1.0


def _strided_window(x: Any, i: Any) -> None:
    x[0, int(i) : int(i) + 4 : 2] = 0.5


def _window_under_none(x: Any, i: Any) -> Any:
    part = x[:, None, i : i + 2]
    part.add_(1.0)
    return part


def _rows(x: Any, i: Any) -> None:
    for row in x[i:]:
        row.add_(1.0)


def _in_turns(x: Any, i: Any) -> None:
    for k in range(int(i) + 1):
        part = x[k : k + 2]
        part += 1.0
        x[k, k : k + 2].mul_(0.5)


def _in_turns_of_a_known_loop(x: Any, i: Any) -> None:
    for k in range(3):
        part = x[: int(i)]
        part += k


def _in_a_branch(x: Any, i: Any) -> None:
    if x.sum() > 0:
        part = x[int(i) : int(i) + 2]
        part += 1.0


def _detached(x: Any, i: Any) -> None:
    x.detach()[: int(i)].zero_()


def _copied(x: Any, i: Any) -> None:
    x[i:].copy_(x[i:] * 2.0)


def _moved(x: Any, i: Any) -> None:
    x[i : i + 2] = x[int(i) + 1 : int(i) + 3]


CHANGES = [
    _grown, _filled, _last, _strided, _columns, _from_the_end, _selected, _flat, _window, _window_that_grows,
    _window_of_a_row, _two_windows, _strided_window, _window_under_none, _rows, _in_turns,
    _in_turns_of_a_known_loop, _in_a_branch, _detached, _copied, _moved,
]  # fmt: skip


def _arrays(found: Any) -> list[Any]:
    return [x.numpy() for x in weft.tree_leaves(found) if isinstance(x, weft.Tensor)]


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_a_slice_is_one_of_the_tensor(change: Change) -> None:
    compiled = weft.compile(change)
    for i in (0, 1, 1, 2, 0):
        ours, theirs = weft.tensor(X), weft.tensor(X)
        found, expected = compiled(ours, weft.tensor(i)), change(theirs, weft.tensor(i))
        np.testing.assert_allclose(ours.numpy(), theirs.numpy())
        for tensors in ((ours, found), (theirs, expected)):
            for part in weft.tree_leaves(tensors[1]):
                part.add_(0.25)
            tensors[0].mul_(3.0)
        for a, b in zip(_arrays((ours, found)), _arrays((theirs, expected)), strict=True):
            np.testing.assert_allclose(a, b)


@pytest.mark.parametrize("change", [c for c in CHANGES if c is not _detached])
def test_gradients_flow_through_a_change_of_a_slice(change: Change) -> None:
    def loss(x: Any, i: Any) -> Any:
        y = x * 1.5
        change(y, i)
        return (y * weft.tensor(X)).sum()

    compiled = weft.compile(loss)
    for i in (0, 1, 2):
        ours, theirs = (weft.tensor(X, requires_grad=True) for _ in range(2))
        found, expected = compiled(ours, weft.tensor(i)), loss(theirs, weft.tensor(i))
        assert found.requires_grad is expected.requires_grad
        if expected.requires_grad:
            found.backward()
            expected.backward()
            np.testing.assert_allclose(ours.grad.numpy(), theirs.grad.numpy())


KEYS: list[Callable[[Any, Any], Any]] = [
    lambda rows, i: (rows, slice(int(i), int(i) + 2)),
    lambda rows, i: (None, slice(int(i), int(i) + 2), rows),
    lambda rows, i: (rows, slice(None, int(i))),
    lambda rows, i: (rows > 1, slice(i, i + 2), None),
    lambda rows, i: (..., slice(i, i + 2)),
    lambda rows, i: (slice(i, i + 1), [1, int(i)]),
    lambda rows, i: (int(i), ..., None, slice(i, i + 3)),
    lambda rows, i: (slice(int(i), int(i) + 2), slice(None, None, 2)),
]


@pytest.mark.parametrize("number", range(len(KEYS)))
def test_slices_beside_lists_and_tensors_of_indices(number: int) -> None:
    def read(x: Any, rows: Any, i: Any) -> Any:
        return x[KEYS[number](rows, i)]

    def write(x: Any, rows: Any, i: Any) -> Any:
        x[KEYS[number](rows, i)] = -1.0
        x[KEYS[number](rows, i)] += weft.tensor(2.0)
        return x

    rows = weft.tensor([2, 0, 3, 1])
    for function in (read, write):
        compiled = weft.compile(function)
        for i in (0, 1, 2):
            found, expected = (f(weft.tensor(X), rows, weft.tensor(i)) for f in (compiled, function))
            assert found.shape == expected.shape
            np.testing.assert_allclose(found.numpy(), expected.numpy())


def test_a_cache_that_a_counter_fills_is_changed_by_its_slices() -> None:
    class Cache:
        def __init__(self) -> None:
            self.k, self.n = weft.zeros(4), 0

        def push(self, x: Any) -> Any:
            self.k[self.n] = x
            self.n += 1
            past = self.k[: self.n]
            past.mul_(0.5)
            return past.sum()

    ours, theirs = Cache(), Cache()
    push = weft.compile(ours.push)
    for v in (1.0, 2.0, 3.0):
        assert push(weft.tensor(v)).item() == theirs.push(weft.tensor(v)).item()
        np.testing.assert_array_equal(ours.k.numpy(), theirs.k.numpy())


def test_a_slice_that_is_returned_shares_its_elements_with_the_argument() -> None:
    sliced = weft.compile(lambda x, i: x[int(i) : int(i) + 2])
    for i in (1, 2, 1):
        x = weft.tensor([1.0, 2.0, 3.0, 4.0])
        part = sliced(x, weft.tensor(i))
        assert part._base is x
        x[i] = 9.0
        part[1] = 7.0
        assert part.tolist() == x[i : i + 2].tolist() == [9.0, 7.0]


def test_a_window_of_a_turn_that_leaves_the_axis_is_an_error_of_the_run() -> None:
    @weft.compile
    def f(x: Any, n: Any) -> Any:
        for k in range(int(n)):
            part = x[k : k + 2]
            part += 1
        return x

    x = weft.ones(4)
    with pytest.raises(weft.errors.BoundsError, match=r"test_windows\.py"):
        f(x, weft.tensor(4))
    assert x.tolist() == [1.0] * 4


def test_an_object_that_is_an_index_takes_a_view_in_eager_code_too() -> None:
    class Second:
        def __index__(self) -> int:
            return 1

    x = weft.zeros(3)
    x[Second()].add_(1.0)
    x[: Second()].add_(2.0)
    assert x.tolist() == [2.0, 1.0, 0.0]


def test_slices_that_a_size_without_a_number_bounds_may_be_returned() -> None:
    def ends(x: Any) -> Any:
        return x[: x.shape[0] - 1], x[x.shape[0] // 2]

    compiled = weft.compile(ends)
    for n in (4, 6, 8, 10):
        ours, theirs = weft.arange(n).float(), weft.arange(n).float()
        for x, (rest, one) in ((ours, compiled(ours)), (theirs, ends(theirs))):
            x.mul_(2)
            rest.add_(1)
            one.fill_(-5)
        assert ours.tolist() == theirs.tolist()
    assert len(compiled.versions) == 2


@pytest.mark.parametrize("key", [None, (None,), ..., (), (None, 1), (..., None), slice(None)])
def test_keys_without_numbers_are_as_they_were(key: Any) -> None:
    x = weft.arange(12.0).reshape(3, 4)
    np.testing.assert_array_equal(weft.compile(lambda x: x[key])(x).numpy(), x.numpy()[key], strict=True)

    def write(x: Any) -> Any:
        x[key] = 7.0
        return x

    np.testing.assert_array_equal(
        weft.compile(write)(x.clone()).numpy(), write(x.clone()).numpy(), strict=True
    )
