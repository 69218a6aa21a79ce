"""Random programs in plain Python give the values and gradients of eager when compiled."""

from __future__ import annotations

import linecache
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import HealthCheck, assume, given, note
from hypothesis import strategies as st

import weft
from tests.capture.random_source import programs
from tests.of_code import examples
from weft.errors import CaptureError, GradientError

RUNS = (
    ((0.3, -0.7, 1.2), 0.4, 1, 1),
    ((-1.1, 0.2, -0.4), -0.9, 2, 1),
    ((2.0, 0.1, 0.6), 1.3, 0, 2),
)
# What a capture may refuse: lists whose length a tensor decides, and a change in place that it cannot follow.
REFUSED = (
    "append: ",
    "a list must be the same on both ways",
    "changes in place must be held by one variable",
)


def load(source: str) -> Callable[..., Any]:
    """The function ``f`` of a module given as text, whose lines tracebacks and captures can read."""
    name = f"<random program {zlib.crc32(source.encode())}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    space: dict[str, Any] = {"__name__": "random_program"}
    exec(compile(source, name, "exec"), space)  # noqa: S102 - the text is ours
    function: Callable[..., Any] = space["f"]
    return function


def run(function: Callable[..., Any], given: tuple[Any, ...]) -> tuple[Any, list[Any]]:
    """The value of a program, and its gradients by the three arguments that have one."""
    row, number, k, n = given
    v = weft.tensor(np.array(row, np.float32), requires_grad=True)
    s = weft.tensor(np.float32(number), requires_grad=True)
    m = weft.tensor(
        np.outer(np.array(row, np.float32), np.array([1, -0.5, 0.3], np.float32)), requires_grad=True
    )
    out = function(v, s, m, weft.tensor(k), n)
    if out.requires_grad:
        (out * weft.tensor(np.array([1.0, 2.0, -1.5], np.float32))).sum().backward()
    return out.detach().numpy(), [None if x.grad is None else x.grad.numpy() for x in (v, s, m)]


def assert_close(got: Any, expected: Any) -> None:
    if got is None or expected is None:
        other = got if expected is None else expected
        assert other is None or not np.any(other)
        return
    assert got.dtype == expected.dtype
    scale = float(np.max(np.abs(expected), initial=1.0, where=np.isfinite(expected)))
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5 * scale)


@examples(60, 12, suppress_health_check=list(HealthCheck))
@given(programs(), st.sampled_from(["as captured", "optimised"]))
def test_compiled_program_agrees_with_eager(source: str, way: str) -> None:
    note(source)
    function = load(source)
    try:
        expected = [run(function, row) for row in RUNS]
    except GradientError:
        assume(False)  # what the gradient needs was changed in place
    compiled = weft.compile(function) if way == "optimised" else weft.compile(function, passes=[])
    for given_row, (value, slopes) in zip(RUNS, expected, strict=True):
        try:
            found, found_slopes = run(compiled, given_row)
        except CaptureError as error:
            assume(not any(text in str(error) for text in REFUSED))
            raise
        assert_close(found, value)
        for a, b in zip(found_slopes, slopes, strict=True):
            assert_close(a, b)
