"""Compiled functions whose arguments, state and results share memory, over calls of which most are replays.

What eager code gives on the processor is right: its results, what each call leaves in the tensors that it may
reach, and all results of earlier calls that somebody still holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import weft
from tests.backends.cuda.emulated import EmulatedDriver, emulated

Wrap = Callable[[Callable[..., Any]], Callable[..., Any]]
Scene = Callable[[str, Wrap], tuple[Callable[[int], Any], Callable[[], list[Any]]]]


@pytest.fixture(autouse=True)
def card() -> Iterator[EmulatedDriver]:
    with emulated() as found:
        yield found


def numbers(device: str, count: int = 6) -> Any:
    return weft.arange(float(count)).to(device)


def view_of_a_state(device: str, wrap: Wrap) -> Any:
    w = numbers(device).reshape(2, 3)

    @wrap
    def step(x: Any) -> Any:
        w.add_(1.0)
        return x * 2

    return lambda i: step(w[0]), lambda: [w]


def one_tensor_twice(device: str, wrap: Wrap) -> Any:
    w = numbers(device)

    @wrap
    def step(x: Any, y: Any) -> Any:
        x.add_(1.0)
        return y * 2

    return lambda i: step(w, w), lambda: [w]


def views_that_overlap_in_some_calls(device: str, wrap: Wrap) -> Any:
    w, u = numbers(device), numbers(device)

    @wrap
    def step(x: Any, y: Any) -> Any:
        x.add_(1.0)
        return y * 2

    return lambda i: step(w[:4], (w if i % 3 else u)[2:]), lambda: [w, u]


def results_that_are_views_of_an_argument(device: str, wrap: Wrap) -> Any:
    w = numbers(device)
    step = wrap(lambda x: (x, x[1:], x.reshape(2, 3)))

    def call(i: int) -> Any:
        a, b, c = step(w)
        b.add_(1.0)
        return a, b, c

    return call, lambda: [w]


def views_of_results_that_are_held(device: str, wrap: Wrap) -> Any:
    x, held = numbers(device), list[Any]()
    step = wrap(lambda x: (weft.sin(x) * 3 + 1, (weft.sin(x) * 6).sum()))

    def call(i: int) -> Any:
        x.add_(1.0)
        a, b = step(x)
        held.append(a[2:4])
        return b

    return call, lambda: held


def results_that_are_the_next_arguments(device: str, wrap: Wrap) -> Any:
    last = [numbers(device)]
    step = wrap(lambda x: (weft.cos(x) + x * 0.5 + 1, weft.exp(-x)))

    def call(i: int) -> Any:
        last[0], other = step(last[0])
        last[0].mul_(other)
        return last[0] if i % 2 else other

    return call, lambda: last


def results_changed_in_place(device: str, wrap: Wrap) -> Any:
    x = numbers(device)
    step = wrap(lambda x: (weft.cos(x) + x * 0.5 + 1, weft.exp(-x)))

    def call(i: int) -> Any:
        a, b = step(x)
        a.add_(b)
        x.add_(1.0)
        return a

    return call, lambda: [x]


def failures_in_between(device: str, wrap: Wrap) -> Any:
    w = weft.zeros(4).to(device)

    @wrap
    def step(i: Any) -> Any:
        picked = w[i]
        w.add_(1.0)
        return picked

    def call(k: int) -> Any:
        try:
            return step(weft.tensor([0, 9 if k % 3 == 2 else 1]).to(device))
        except weft.errors.BoundsError:
            return weft.full((1,), -1.0)

    return call, lambda: [w]


def no_rows_in_some_calls(device: str, wrap: Wrap) -> Any:
    @wrap
    def step(x: Any, y: Any) -> Any:
        return x @ y, weft.softmax(x, axis=-1), weft.concat([x, x], axis=0), weft.cumsum(x, axis=0)

    def call(i: int) -> Any:
        n = (0, 3, 0, 1, 0, 2)[i]
        return step(weft.ones(n, 4).to(device), weft.ones(4, n).to(device))

    return call, list


def _edges(dtype: Any) -> Scene:
    def scene(device: str, wrap: Wrap) -> Any:
        edges = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, 2.0, -65504.0]
        x = weft.tensor(np.array(edges, np.float32)).astype(dtype).to(device)

        def step(x: Any) -> Any:
            picked = weft.where(x > 1, x, 1), weft.where(weft.isnan(x), 0, x), weft.clip(x, -1, 1)
            ends = weft.maximum(x, 1), weft.minimum(x, 1), weft.relu(x), x.max(), x.min(), x.argmax()
            casts = [x.astype(to) for to in (weft.float16, weft.bfloat16, weft.float32, weft.float64)]
            return *picked, *ends, *casts, -x, abs(x), x == x, x > 0

        run = wrap(step)
        return lambda i: run(x), list

    return scene


SCENES: dict[str, Scene] = {
    scene.__name__: scene
    for scene in (
        view_of_a_state, one_tensor_twice, views_that_overlap_in_some_calls,
        results_that_are_views_of_an_argument, views_of_results_that_are_held,
        results_that_are_the_next_arguments, results_changed_in_place, failures_in_between,
        no_rows_in_some_calls,
    )
}  # fmt: skip
SCENES |= {f"edges in {d}": _edges(getattr(weft, d)) for d in ("bfloat16", "float16", "float32", "float64")}


def _arrays(value: Any) -> list[Any]:
    leaves = [x for x in weft.tree_leaves(value) if isinstance(x, weft.Tensor)]
    return [x.detach().cpu().numpy().copy() for x in leaves]


def _history(scene: Scene, device: str, wrap: Wrap) -> list[list[Any]]:
    """What each of some calls gives and leaves, and in the end all results once more."""
    call, left = scene(device, wrap)
    results, found = [], []
    for i in range(6):
        results.append(call(i))
        found.append([*_arrays(results[-1]), *_arrays(left())])
    return [*found, _arrays(results)]


@pytest.mark.parametrize("name", SCENES)
def test_calls_are_those_of_eager_code_on_the_processor(name: str) -> None:
    check_scene(SCENES[name])


def check_scene(scene: Scene) -> None:
    """Compare calls on the device, eager and compiled, with eager ones on the processor."""
    expected = _history(scene, "cpu", lambda f: f)
    ways: list[Wrap] = [lambda f: f, weft.compile]
    for way in ways:
        for ours, theirs in zip(_history(scene, "cuda", way), expected, strict=True):
            for a, b in zip(ours, theirs, strict=True):
                assert (a.shape, a.dtype) == (b.shape, b.dtype)
                wide = np.float64 if a.dtype.kind in "fV" or a.dtype == weft.bfloat16 else a.dtype
                np.testing.assert_allclose(a.astype(wide), b.astype(wide), rtol=2e-5, atol=1e-6)
