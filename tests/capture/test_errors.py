"""Mistakes in code that is captured: each error says what must hold, what was got, and the user's own line.

Each function below makes one mistake, in the line that is marked with ``# here``; where that says ``not in a
trace``, a trace does not meet it.
"""

from __future__ import annotations

import collections
import inspect
import logging
import random
import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from weft import errors

x = weft.tensor([1.0, 2.0, 3.0])
w = weft.ones(3, requires_grad=True)
kept: list[Any] = []
names: set[str] = set()
queue: collections.deque[Any] = collections.deque()
state = types.SimpleNamespace(n=0)
numbers = iter([1.0, 2.0])

MISTAKES: list[tuple[Callable[..., Any], str, str]] = []


def mistake(message: str, hint: str = "") -> Callable[[Any], Any]:
    """Note what the error of a function says."""

    def note(function: Any) -> Any:
        MISTAKES.append((function, message, hint))
        return function

    return note


# Variables that tensors decide about


@mistake("y is assigned only where the `if` at .* is true", "give y a value before the `if`")
def variable_of_one_branch(x: Any) -> Any:
    if x.sum() > 0:
        y = x * 2.0
    return y  # here, not in a trace


@mistake(
    r"if: y must be the same on both ways, got f32\[3\] where .* and f32\[2\] where", "one shape and dtype"
)
def shapes_of_branches(x: Any) -> Any:
    if x.sum() > 0:  # here, not in a trace
        y = x
    else:
        y = x[:2]
    return y


@mistake(r"y must be the same on both ways, got f32\[3\] where .* i64\[3\] where", "one shape and dtype")
def dtypes_of_branches(x: Any) -> Any:
    if x.sum() > 0:  # here, not in a trace
        y = x
    else:
        y = x.astype(weft.int64)
    return y


@mistake(r"what the function returns must be the same on both ways, got f32\[3\] where .* and None where")
def result_of_one_branch(x: Any) -> Any:
    if x.sum() > 0:  # here, not in a trace
        return x
    return None


@mistake(
    r"x must stay what it is in the `while` at .*, got f32\[3\] before and f32\[6\] after", "another name"
)
def shape_in_a_loop(x: Any) -> Any:
    while x.sum() < 100:
        x = weft.concat([x, x])  # here, not in a trace
    return x


@mistake(r"n must stay what it is in the `while` at .*, got f32\[\] before and i32\[\] after")
def dtype_in_a_loop(x: Any) -> Any:
    n = x.sum()
    while n < 100:
        n = (n * 2).astype(weft.int32)  # here, not in a trace
    return n


@mistake("z is assigned only inside the `while` at .*, which may run no iteration", "give z a value before")
def variable_of_a_loop(x: Any) -> Any:
    while x.sum() < 100:
        z = x * 2.0
        x = z
    return z  # here, not in a trace


@mistake(r"bool: the truth of a tensor needs one element, got bool\[3\]", "weft.any")
def truth_of_many(x: Any) -> Any:
    if x > 0:  # here
        return x
    return -x


@mistake(r"bool: the truth of a tensor needs one element, got bool\[3\]", "weft.any")
def loop_while_many(x: Any) -> Any:
    while x < 10:  # here
        x = x * 2.0
    return x


@mistake("must not call itself without end while it is captured", "a `while` loop")
def recursion_of_a_tensor(x: Any) -> Any:
    if x.sum() > 0:
        return recursion_of_a_tensor(x - 1.0)  # here, not in a trace
    return x


# Control flow by functions


@mistake(r"cond: the result must be f32\[3\] as from branch 0, got f32\[1\] from branch 1", "same shape")
def branches_of_cond(x: Any) -> Any:
    return weft.cond(x.sum() > 0, lambda a: a, lambda a: a[:1], x)  # here


@mistake(r"while_loop: carry must be f32\[3\], got f32\[6\] from the body", "same shape")
def carry_of_while_loop(x: Any) -> Any:
    return weft.while_loop(lambda a: a.sum() < 9, lambda a: weft.concat([a, a]), x)  # here


@mistake(r"scan: carry must be f32\[\], got f32\[2\] from the body", "same shape")
def carry_of_scan(x: Any) -> Any:
    return weft.scan(lambda c, a: (weft.stack([c, c]), a), x.sum(), x)  # here


# Ops


@mistake(r"add: shapes must broadcast together, got f32\[3\] and f32\[4\]")
def shapes_of_add(x: Any) -> Any:
    return x + weft.ones(4)  # here


@mistake(r"matmul: inner dimensions must agree, got f32\[3\] and f32\[4,2\]")
def shapes_of_matmul(x: Any) -> Any:
    return x @ weft.ones(4, 2)  # here


@mistake(r"sum: axis must be in -1..0 for rank 1, got 3")
def axis_of_sum(x: Any) -> Any:
    return x.sum(axis=3)  # here


@mistake(r"reshape: the number of elements must stay 3, got f32\[3\] to \(2, 2\)")
def elements_of_reshape(x: Any) -> Any:
    return x.reshape(2, 2)  # here


@mistake("index: index must be in -3..2 for axis 0 of size 3, got 5")
def index_out_of_bounds(x: Any) -> Any:
    return x[5]  # here


@mistake("index: must be integers, slices.* got float32", "astype")
def index_by_a_float(x: Any) -> Any:
    return x[x.sum()]  # here


@mistake("bitwise_and: dtype must be bool or integer, got float32", "logical_and")
def dtype_of_and(x: Any) -> Any:
    return x & x  # here


@mistake("mul: inputs must be tensors, got str")
def text_in_a_product(x: Any) -> Any:
    return x * "a"  # here


# Effects that a graph cannot keep


@mistake("append: captured code must not change the length of a list from outside", "let the caller keep it")
def append_to_a_list(x: Any) -> Any:
    kept.append(x)  # here
    return x


@mistake("add: captured code must not change the length of a set from outside", "let the caller keep it")
def add_to_a_set(x: Any) -> Any:
    names.add("a")  # here
    return x


@mistake("append: captured code must not change a deque from outside", "let the caller keep it")
def append_to_a_deque(x: Any) -> Any:
    queue.append(x)  # here
    return x


@mistake(
    "next: captured code must not move an iterator from outside on, got a list_iterator", "as an argument"
)
def next_of_an_iterator(x: Any) -> Any:
    return x * next(numbers)  # here


@mistake(
    "random: captured code must give the same at each call .* got a call whose result changes", "weft.rand"
)
def random_number(x: Any) -> Any:
    return x * random.random()  # here


@mistake(
    "rand: captured code must give the same at each call .* got a call whose result changes", "weft.rand"
)
def random_array(x: Any) -> Any:
    return x * np.random.rand()  # here


@mistake("input: captured code must give the same at each call", "as an argument")
def typed_text(x: Any) -> Any:
    return x, input()  # here


@mistake("print: captured code must print to standard output, got file=", "without file=")
def print_to_a_file(x: Any) -> Any:
    print(x, file=sys.stderr)  # noqa: T201 # here
    return x


# Gradients


@mistake(
    r"backward: a gradient must be given for a tensor of more than one element, got f32\[3\]", "gradient="
)
def backward_of_many(x: Any) -> Any:
    (w * x).backward()  # here
    return x


@mistake("backward: the tensor must have a graph, got one that does not require grad", "requires_grad=True")
def backward_without_a_graph(x: Any) -> Any:
    x.sum().backward()  # here
    return x


@mistake("backward: the graph must not be freed, got a second backward", "retain_graph=True")
def backward_twice(x: Any) -> Any:
    y = (w * x).sum()
    y.backward()
    y.backward()  # here
    return y


# Python's own errors stay what they are


@mistake("name 'nowhere' is not defined")
def unknown_name(x: Any) -> Any:
    return x * nowhere  # type: ignore[name-defined]  # noqa: F821 # here


@mistake("'Tensor' object has no attribute 'nowhere'")
def unknown_method(x: Any) -> Any:
    return x.nowhere()  # here


@mistake("missing 1 required positional argument: 'hint'")
def missing_argument(x: Any) -> Any:
    return two_arguments(x)  # type: ignore[call-arg]  # here


def two_arguments(x: Any, hint: Any) -> Any:
    return x


def _name(part: Any) -> str:
    return getattr(part, "__name__", "it")


@pytest.mark.parametrize("capture", ["source", "trace"])
@pytest.mark.parametrize(("function", "message", "hint"), MISTAKES, ids=_name)
def test_mistake_is_named_with_its_line(function: Any, message: str, hint: str, capture: str) -> None:
    lines, start = inspect.getsourcelines(function)
    at = next(i for i, line in enumerate(lines) if "# here" in line)
    if capture == "trace" and "not in a trace" in lines[at]:
        weft.compile(function, capture=capture)(x)
        return
    with pytest.raises(Exception, match=message) as caught:
        weft.compile(function, capture=capture)(x)
    text = str(caught.value)
    assert hint in text
    assert_plain(text)
    if isinstance(caught.value, errors.WeftError):
        assert f"test_errors.py:{start + at}: {lines[at].strip()}" in text
    else:
        frames = [(f.path.name, f.lineno + 1) for f in caught.traceback]
        assert ("test_errors.py", start + at) in frames


def assert_plain(text: str) -> None:
    """Nothing of weft's inside is in a message."""
    assert not any(word in text for word in ("_w.", "Captured", "MISSING", "Number", "weft/", " #0>"))


@pytest.mark.parametrize("capture", ["source", "trace"])
def test_arguments_that_are_changed_are_named(capture: str) -> None:
    def put(d: dict[str, Any]) -> Any:
        d["b"] = d["a"]
        return d["a"]

    def take(d: dict[str, Any]) -> Any:
        return d.pop("a") * 2.0

    def replace(items: list[Any]) -> Any:
        items[0] = items[0] * 2.0
        return items[0]

    for function, given in ((put, {"a": x}), (take, {"a": x}), (replace, [x])):
        before = list(given)
        with pytest.raises(errors.CaptureError, match=r"an argument must not be changed\n.*test_errors.py"):
            weft.compile(function, capture=capture)(given)
        assert list(given) == before


def test_results_that_a_call_cannot_make_are_named() -> None:
    class Box(set[Any]):
        def __init__(self, inner: Any) -> None:
            self.inner = inner

    with pytest.raises(
        errors.CaptureError, match=r"must be made of tensors, .* got a Box that holds a tensor"
    ):
        weft.compile(lambda x: Box(x * 2.0))(x)
    with pytest.raises(errors.CaptureError, match="keys of a dict that is returned must be plain values"):
        weft.compile(lambda x: {x[0]: 1})(x)


def test_error_that_a_trace_raises_has_the_values() -> None:
    @weft.compile(capture="trace")
    def f(x: Any) -> Any:
        if x.sum() > 7:
            raise ValueError(f"too large: {x.sum():.1f}")
        return x

    f(x)
    with pytest.raises(ValueError, match=r"too large: 12\.0"):
        f(x * 2.0)


def test_things_that_cannot_be_captured_are_named() -> None:
    def generate(x: Any) -> Any:
        yield x

    for bad, got in ((generate, "the generator generate"), (3, "int"), ("f", "str")):
        with pytest.raises(errors.ArgumentError, match=f"compile: takes a function.* got {got}"):
            weft.compile(bad)  # type: ignore[arg-type]


def test_call_that_differs_from_a_trace_says_how() -> None:
    f = weft.jit.trace(lambda x, n: x * n, x, 2)
    with pytest.raises(
        errors.TraceGuardError, match="must be like the one that was traced, got n: 2 before, 3 now"
    ):
        f(x, 3)
    with pytest.raises(errors.TraceGuardError, match=r"got x: f32\[3\] before, f32\[4\] now"):
        f(weft.ones(4), 2)


def test_writing_to_a_log_warns_with_the_line_and_needs_one_version() -> None:
    log = logging.getLogger("weft.tests.errors")

    @weft.compile
    def f(x: Any) -> Any:
        log.info("a call")
        return x

    with pytest.warns(
        RuntimeWarning, match=r"info: captured code writes to a log.*\n.*test_errors.py:\d+: log.info"
    ):
        f(x)
    f(x)
    assert len(f.versions) == 1


def test_function_without_source_says_so() -> None:
    names: dict[str, Any] = {}
    exec("def f(x):\n    return x if x.sum() > 0 else -x\n", names)  # noqa: S102 - as the prompt does
    with pytest.raises(weft.errors.CaptureError, match="which only a run tells") as caught:
        weft.make_graph(names["f"])(weft.ones(2))
    assert "the source of the function cannot be read" in str(caught.value)
