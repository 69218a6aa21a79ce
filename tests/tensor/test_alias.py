"""Views: a change through one is seen through all, as NumPy has it, in eager code and in graphs."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from tests.of_code import examples
from weft.errors import GradientError, ShapeError

# Random programs: steps take views of what there is, or change it; NumPy does the same to arrays

KEYS: list[Any] = [
    0,
    -1,
    slice(None),
    slice(1, None),
    slice(None, None, 2),
    slice(None, None, -1),
    (Ellipsis, 0),
    (None, slice(0, 1)),
    (slice(None), slice(1, None)),
    (1, Ellipsis),
]


def flat(x: Any) -> Any:
    return x.reshape(-1)


def pairs(x: Any) -> Any:
    return x.reshape((-1, 2)) if x.size % 2 == 0 and x.size else x.reshape((1, *x.shape))


def turned(x: Any) -> Any:
    return x.T if x.ndim == 2 else x


def moved(x: Any) -> Any:
    axes = tuple(reversed(range(x.ndim)))
    return x.transpose(axes) if isinstance(x, np.ndarray) else x.permute(axes)


def diagonal(x: Any) -> Any:
    if x.ndim < 2:
        return x
    if isinstance(x, np.ndarray):
        out = np.diagonal(x, axis1=-2, axis2=-1)
        out.flags.writeable = True
        return out
    return weft.diagonal(x)


def halves(x: Any) -> Any:
    if x.ndim == 0 or x.shape[0] < 2:
        return x
    parts = np.split(x, [1]) if isinstance(x, np.ndarray) else weft.split(x, (1, x.shape[0] - 1))
    return parts[1]


def raveled(x: Any) -> Any:
    return x.ravel()


SHAPES = [flat, pairs, turned, moved, diagonal, halves, raveled]


def key_step(key: Any) -> Callable[[Any], Any]:
    items = key if isinstance(key, tuple) else (key,)
    taken = [item for item in items if item is not None and item is not Ellipsis]
    whole = items if Ellipsis in items else (*items, ...)  # NumPy gives elements as views only with it

    def step(x: Any) -> Any:
        if x.ndim < len(taken) or 0 in x.shape or (1 in taken and x.shape[0] < 2):
            return x
        return x[whole if isinstance(x, np.ndarray) else key]

    return step


def add_one(x: Any) -> None:
    x += 1.0


def double(x: Any) -> None:
    x *= 2.0


def fill(x: Any) -> None:
    x[...] = 5.0


def set_first(x: Any) -> None:
    if x.ndim and x.shape[0]:
        x[0] = 9.0


def add_to_last(x: Any) -> None:
    if x.ndim and x.shape[0]:
        x[-1] += 3.0


CHANGES = [add_one, double, fill, set_first, add_to_last]
VIEWS: list[Callable[[Any], Any]] = [*map(key_step, KEYS), *SHAPES]

Program = list[tuple[bool, int, int]]  # whether a step changes something, of which, and how


def run(program: Program, start: Any) -> list[Any]:
    """What there is after the steps: the start, and the views that were taken."""
    held = [start]
    for changes, which, how in program:
        x = held[which % len(held)]
        if changes:
            CHANGES[how % len(CHANGES)](x)
        else:
            held.append(VIEWS[how % len(VIEWS)](x))
    return held


programs = st.lists(st.tuples(st.booleans(), st.integers(0, 50), st.integers(0, 50)), min_size=1, max_size=12)
shapes = st.sampled_from([(4,), (2, 3), (4, 4), (2, 3, 2), (1, 6), (3, 0)])


def start_of(shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape).copy()


@examples(300, 100)
@given(programs, shapes)
def test_changes_through_views_are_those_of_numpy(program: Program, shape: tuple[int, ...]) -> None:
    expected = run(program, start_of(shape))
    found = run(program, weft.tensor(start_of(shape)))
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a.numpy(), b)


@settings(max_examples=60, deadline=None)
@given(programs, shapes)
def test_changes_by_ops_are_those_by_memory(program: Program, shape: tuple[int, ...]) -> None:
    expected = run(program, start_of(shape))
    leaf = weft.tensor(start_of(shape), requires_grad=True)
    found = run(program, leaf * 1.0)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a.detach().numpy(), b)


@examples(60, 20)
@given(programs, shapes)
def test_compiled_changes_are_those_of_numpy(program: Program, shape: tuple[int, ...]) -> None:
    compiled = weft.compile(lambda x: run(program, x), backend="interpret")
    x, array = weft.tensor(start_of(shape)), start_of(shape)
    view = x.reshape(-1)[1:]
    for _ in range(2):
        expected, found = run(program, array), compiled(x)
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_array_equal(a.numpy(), b)
        np.testing.assert_array_equal(x.numpy(), array)
        np.testing.assert_array_equal(view.numpy(), array.reshape(-1)[1:])
    found[-1].mul_(7.0)  # what the call gave are views, too
    expected[-1][...] *= 7.0
    np.testing.assert_array_equal(x.numpy(), array)


@settings(max_examples=60, deadline=None)
@given(programs, shapes)
def test_gradients_through_views_are_those_of_finite_differences(
    program: Program, shape: tuple[int, ...]
) -> None:
    weights = [
        np.cos(np.arange(x.size) + k).reshape(x.shape) for k, x in enumerate(run(program, start_of(shape)))
    ]

    def loss(x: Any) -> Any:
        return sum((a * weft.tensor(w)).sum() for a, w in zip(run(program, x * 1.0), weights, strict=True))

    x = weft.tensor(start_of(shape).astype(np.float64), requires_grad=True)
    (loss(x) + 0.0 * x.sum()).backward()  # which a program may not use at all
    for i in range(x.size):  # the programs are linear, so that a difference is exact
        step = np.zeros(x.size)
        step[i] = 1.0
        moved_x = x.detach() + weft.tensor(step).reshape(shape)
        difference = (loss(moved_x) - loss(x.detach().clone())).item()
        np.testing.assert_allclose(x.grad.numpy().reshape(-1)[i], difference, atol=1e-6)


# What people write


def test_the_loop_of_a_tutorial_trains() -> None:
    rng = np.random.default_rng(0)
    x = weft.tensor(rng.normal(size=(64, 3)))
    y = x @ weft.tensor([1.0, -2.0, 0.5], dtype=weft.float64)
    w = weft.zeros(3, dtype=weft.float64, requires_grad=True)
    for _ in range(200):
        loss = ((x @ w - y) ** 2).mean()
        loss.backward()
        w.data.sub_(0.1 * w.grad)
        w.grad.data.zero_()
    np.testing.assert_allclose(w.detach().numpy(), [1.0, -2.0, 0.5], atol=1e-4)
    assert w.is_leaf


@pytest.mark.parametrize(
    "change",
    [
        lambda w: w.data.fill_(3.0),
        lambda w: w.detach().fill_(3.0),
        lambda w: w.data.__setitem__(slice(None), 3.0),
        lambda w: [row.fill_(3.0) for row in w.data],
        lambda w: w.data.view(-1).fill_(3.0),
        lambda w: [part.fill_(3.0) for part in w.data.split(1)],
        lambda w: [part.fill_(3.0) for part in w.data.unbind(1)],
        lambda w: w.data.T.fill_(3.0),
    ],
)
def test_change_of_the_data_of_a_parameter_is_one_of_the_parameter(change: Any) -> None:
    net = weft.nn.Linear(2, 3)
    before = net.weight.detach().clone()
    out = change(net.weight)
    copied = (
        isinstance(out, weft.Tensor) and out.shape == (6,) and not out.is_view
    )  # a flatten that must copy
    np.testing.assert_array_equal(
        net.weight.detach().numpy(), before.numpy() if copied else np.full((3, 2), 3.0)
    )
    assert net.weight.is_leaf
    assert net.weight.requires_grad


def test_rows_that_a_loop_takes_are_views() -> None:
    x = weft.zeros(3, 2)
    for i, row in enumerate(x):
        row.fill_(float(i))
    x[0].add_(1)
    v = x.view(-1)
    v[5] = 9.0
    assert x.tolist() == [[1.0, 1.0], [1.0, 1.0], [2.0, 9.0]]


def test_which_are_views() -> None:
    x = weft.arange(6.0).reshape(2, 3)
    views = [x[0], x[:, 1:], x[None], x[...], x.T, x.view(3, 2), x.reshape(-1), x.flatten(), x.unsqueeze(0)]
    views += [x.expand(4, 2, 3), x.permute(1, 0), x.moveaxis(0, 1), *x.unbind(), *x.split(1), *x.chunk(2, 1)]
    views += [weft.diagonal(x), weft.squeeze(x[None]), *iter(x)]
    assert [v._base is x._base for v in views] == [True] * len(views)
    assert [weft.real(x + 0j).is_view, x.is_view, x._base.is_view] == [True, True, False]
    copies = [x + 0, x.clone(), x[[0, 1]], x[x > 0], x.T.reshape(-1), x.T.contiguous(), x.flip(0)]
    copies += [weft.concat([x]), weft.stack([x]), weft.repeat(x, 2), x.roll(0), x.roll(1), weft.tensor(x)]
    copies += [weft.tile(x, (1,)), weft.pad(x, 0), x.astype(weft.float64), weft.flip(x, ())]
    assert [c.is_view and c is not x for c in copies] == [False] * len(copies)
    assert [c is x for c in copies] == [False] * len(copies)
    for copy in copies:
        before = x.tolist()
        copy.zero_()
        assert x.tolist() == before


def test_view_that_needs_a_copy_is_an_error() -> None:
    x = weft.zeros(2, 3)
    with pytest.raises(ShapeError, match=r"view|reshape: must be possible without a copy"):
        x.T.view(-1)
    assert x.T.reshape(-1).shape == (6,)
    assert x[:, :2].unsqueeze(0).view(2, 2, 1).is_view


def test_expanded_elements_are_not_changed() -> None:
    x = weft.zeros(3)
    wide = x.expand(2, 3)
    with pytest.raises(ShapeError, match="elements that are repeated must not be changed in place"):
        wide += 1.0
    x += 1.0
    assert wide.tolist() == [[1.0, 1.0, 1.0]] * 2


# Gradients


def test_view_of_a_leaf_is_not_changed_while_recording() -> None:
    w = weft.ones(3, requires_grad=True)
    for change in (lambda: w[0].add_(1), lambda: w.view(-1).zero_(), lambda: w[:2].__setitem__(0, 1.0)):
        with pytest.raises(GradientError, match="a leaf that requires grad must not be changed in place"):
            change()
    with weft.no_grad():
        inside = w[0]
    with pytest.raises(GradientError, match="a leaf that requires grad must not be changed in place"):
        inside.add_(1)
    assert w.tolist() == [1.0, 1.0, 1.0]
    with weft.no_grad():
        w[0].add_(1)
    assert w.tolist() == [2.0, 1.0, 1.0]


def test_view_that_was_taken_under_no_grad_is_not_changed_while_recording() -> None:
    leaf, c = weft.ones((2, 3), requires_grad=True), weft.tensor(2.0, requires_grad=True)
    m, plain = leaf * 1.0, weft.ones(3)
    with weft.no_grad():
        row, part = m[0], plain[1:]
    told = "a view that was taken under no_grad must not be changed while recording"
    for change in (
        lambda: row.mul_(2.0),
        lambda: row.__setitem__(0, 5.0),
        lambda: row[1:].mul_(2.0),
        lambda: row.view(-1)[:2].copy_(c),
        lambda: part.mul_(c),
    ):
        with pytest.raises(GradientError, match=told):
            change()
    part.mul_(2.0)  # where nothing has a gradient
    assert plain.tolist() == [1.0, 2.0, 2.0]
    assert row._base is m
    assert row.is_view
    with weft.no_grad():
        row.mul_(3.0)
    m.detach()[1].mul_(c)
    (m * m).sum().backward()
    assert leaf.grad.tolist() == [[6.0] * 3, [4.0] * 3]  # type: ignore[union-attr]
    assert c.grad is None


def test_view_that_was_taken_under_no_grad_shows_changes_and_has_no_graph() -> None:
    leaf = weft.ones((2, 3), requires_grad=True)
    m = leaf * 1.0
    with weft.no_grad():
        row = m[0]
    m.mul_(leaf * 4.0)
    assert row.tolist() == [4.0] * 3
    assert not row.requires_grad
    (m.sum() + 2 * m[0].sum() + (row * 7).sum()).backward()
    assert leaf.grad.tolist() == [[24.0] * 3, [8.0] * 3]  # type: ignore[union-attr]


def test_change_without_recording_leaves_the_place_in_the_graph() -> None:
    x = weft.ones(2, requires_grad=True)
    y = x * 3.0
    view = y[0]
    with weft.no_grad():
        y += 10.0
        view *= 2.0
    assert (y.tolist(), view.item()) == ([26.0, 13.0], 26.0)
    (y.sum() + view).backward()
    assert x.grad.tolist() == [6.0, 3.0]


def test_base_gets_the_history_of_a_change_through_a_view() -> None:
    a = weft.tensor([1.0, 2.0], requires_grad=True)
    y = weft.zeros(3)
    y[1:].copy_(a * a)
    (y * weft.tensor([1.0, 10.0, 100.0])).sum().backward()
    assert a.grad.tolist() == [20.0, 400.0]


def test_gradients_of_two_tensors_are_not_views_of_each_other() -> None:
    x, y = (weft.ones(2, 2, requires_grad=True) for _ in range(2))
    (x + y.T).sum().backward(create_graph=True)
    with weft.no_grad():
        x.grad.zero_()
    assert y.grad.tolist() == [[1.0, 1.0], [1.0, 1.0]]


# What is kept


def test_detached_tensor_keeps_no_graph_alive() -> None:
    x = weft.ones(2, requires_grad=True)
    loss = (x * 2.0).sum()
    node = weakref.ref(loss)
    kept = loss.detach()
    del loss
    gc.collect()
    assert node() is None
    assert kept.item() == 4.0


def test_views_that_are_gone_leave_nothing_behind() -> None:
    x = weft.zeros(4)
    for i in range(1000):
        x[i % 4]
    assert len(x._views) < 64


def test_chain_of_very_many_views() -> None:
    x = weft.zeros(2)
    v = x
    for _ in range(5000):
        v = v[:]
    v += 1.0
    assert x.tolist() == [1.0, 1.0]
    v.detach().mul_(2.0)
    assert x.tolist() == [2.0, 2.0]
    del v


def test_filling_rows_costs_what_it_writes() -> None:
    x = weft.zeros(2000, 8)
    array = x._data
    place = array.ctypes.data
    del array
    for row in x:
        row.fill_(2.0)
    assert x._data.ctypes.data == place
    assert x.sum().item() == 32000.0


def test_writing_after_views_are_gone_goes_to_the_same_memory() -> None:
    x = weft.zeros(4, 3)
    place = x.numpy().__array_interface__["data"][0]
    for i in range(4):
        assert x[i - 1].sum().item() == (3.0 if i else 0.0)
        assert x.detach()[0, 0].item() == (1.0 if i else 0.0)
        x[i] = 1.0
    assert x.numpy().__array_interface__["data"][0] == place
    np.testing.assert_array_equal(x.numpy(), np.ones((4, 3)))


def test_reshape_of_a_tensor_that_was_detached_is_a_view() -> None:
    x = weft.zeros(2, 3)
    cut = x.detach()
    flat, again = x.reshape(6), cut.reshape(3, 2)
    x += 1
    flat[0] = 5.0
    for view in (flat, again, cut, x):
        np.testing.assert_array_equal(view.numpy().ravel(), [5.0, 1, 1, 1, 1, 1])
    turned = x.mT.detach()  # whose elements do not lie in order
    copied = turned.reshape(6)
    x[0, 0] = 7.0
    assert (turned[0, 0].item(), copied[0].item()) == (7.0, 5.0)


def test_a_view_that_repeats_nothing_can_be_written_to() -> None:
    x = weft.zeros(2, 2)
    row = x.expand(2, 2)[0]
    row += 1.0
    assert x.tolist() == [[1.0, 1.0], [0.0, 0.0]]
