"""What a converted function keeps of the original, what is converted, and what the runtime is told."""

from __future__ import annotations

import functools
import inspect
import linecache
import textwrap
import traceback
import types
from typing import Any

import pytest

import weft
from tests.capture import plain_runtime
from tests.capture.convert_checks import check, converted, function_from
from tests.timing import least_seconds
from weft.capture.convert.functions import (
    convert,
    convert_function,
    converted_code,
    converted_source,
    is_converted,
)
from weft.errors import CaptureError


def documented(x: int, /, y: float = 2.0, *rest: int, scale: float = 3.0, **named: float) -> float:
    """Adds up."""
    if x > 0:
        return x + y + sum(rest) + scale + sum(named.values())
    return scale


def test_name_document_and_signature_are_kept() -> None:
    made = converted(documented)
    assert made is not documented
    assert inspect.signature(made) == inspect.signature(documented)
    for name in ("__name__", "__qualname__", "__doc__", "__module__", "__defaults__", "__kwdefaults__"):
        assert getattr(made, name) == getattr(documented, name)
    assert made.__globals__ is documented.__globals__
    assert made.__code__.co_filename == documented.__code__.co_filename
    assert made.__code__.co_firstlineno == documented.__code__.co_firstlineno
    assert made(1, 2.0, 3, scale=4.0, q=5.0) == documented(1, 2.0, 3, scale=4.0, q=5.0)


def test_wrapped_function_is_kept() -> None:
    @functools.wraps(documented)
    def wrapper(*args: Any) -> Any:
        return documented(*args) if args else None

    assert converted(wrapper).__wrapped__ is documented
    assert converted(wrapper).__name__ == "documented"


def counter(start: int) -> tuple[Any, Any]:
    def add(by: int) -> int:
        nonlocal start
        if by > 0:
            start += by
        return start

    def read() -> int:
        return start

    return add, read


def test_cells_are_shared_with_the_original() -> None:
    add, read = counter(5)
    made = converted(add)
    assert made(2) == 7
    assert read() == 7
    assert add(1) == 8
    assert made(0) == 8


def test_functions_of_one_code_share_the_converted_code() -> None:
    one, two = counter(1)[0], counter(2)[0]
    assert converted(one).__code__ is converted(two).__code__
    assert (converted(one)(0), converted(two)(0)) == (1, 2)
    assert converted_code(one) is converted_code(two)


def test_lambdas_of_one_line_are_told_apart() -> None:
    pair = (lambda x: x + 1 if x else 0, lambda x: x - 1 if x else 9)  # fmt: skip
    assert [converted(f)(3) for f in pair] == [4, 2]
    assert [converted(f)(0) for f in pair] == [0, 9]
    outer = lambda x: lambda y: x * y if x > y else y  # noqa: E731
    assert converted(outer)(3)(2) == 6
    assert converted(outer(3))(4) == 4


class Base:
    def __init__(self, x: int) -> None:
        self.__x = x

    def value(self, more: int = 0) -> int:
        __hidden = self.__x
        if more:
            self.__x += more
            return self.__x
        return __hidden

    @classmethod
    def make(cls, x: int) -> Base:
        if x < 0:
            return cls(0)
        return cls(x)

    @staticmethod
    def double(x: int) -> int:
        while x < 10:
            x *= 2
        return x

    @property
    def sign(self) -> str:
        return "+" if self.__x > 0 else "-"

    def __call__(self, x: int) -> int:
        return x if x > self.__x else self.__x


class Derived(Base):
    def value(self, more: int = 0) -> int:
        found = 0
        for _ in range(2):
            found += super().value(more)
        return found

    def kind(self) -> Any:
        return [__class__ for _ in range(1)]  # type: ignore[name-defined]


def test_private_names_and_super_mean_the_class() -> None:
    base, derived = Base(3), Derived(4)
    assert converted(Base.value)(base) == 3
    assert converted(Base.value)(base, 2) == 5
    assert converted(Derived.value)(derived, 1) == 11
    assert converted(Derived.kind)(derived) == [Derived]
    assert converted(Base.__init__)(base, -1) is None
    assert converted(Base.sign.fget)(base) == "-"  # type: ignore[attr-defined]
    assert converted(Base.make.__func__)(Derived, -3).value() == 0  # type: ignore[attr-defined]
    assert converted(Base.double)(3) == 12


def test_methods_and_callable_objects_are_bound_again() -> None:
    base = Base(3)
    bound = convert(base.value)
    assert isinstance(bound, types.MethodType)
    assert bound.__self__ is base
    assert convert(base)(1) == 3


def generator(n: int) -> Any:
    if n:
        yield n


async def coroutine() -> None:
    pass


def looking(x: int) -> dict[str, int]:
    if x:
        y = x + 1
    return locals()


def test_a_generator_keeps_its_flow() -> None:
    made = convert(generator)
    assert made is not None
    assert list(made(2)) == [2]
    assert list(made(0)) == []


@pytest.mark.parametrize(
    "function",
    [len, dict, coroutine, looking, textwrap.fill, weft.tensor, 3, None],
)
def test_what_is_not_converted(function: Any) -> None:
    assert convert(function) is None


def test_functions_without_source_are_not_converted() -> None:
    scope: dict[str, Any] = {}
    exec("def f(x):\n    return x if x else 1\n", scope)  # noqa: S102
    assert convert(scope["f"]) is None
    assert converted_source(scope["f"]) is None


def test_source_that_has_changed_is_not_used() -> None:
    function = function_from("def f(x):\n    return x + 1 if x else 0\n")
    name = function.__code__.co_filename
    text = "def f(x):\n    return x + 100 if x else 0\n"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    assert convert_function(function, plain_runtime.runtime) is None


def test_a_jump_out_of_finally_leaves_the_function_as_it_is() -> None:
    function = function_from(
        "def f(x):\n    for i in x:\n        try:\n            i / 0\n        finally:\n            break\n"
    )
    assert convert_function(function, plain_runtime.runtime) is None


def test_nested_functions_are_converted_with_the_outer_one() -> None:
    add, _ = converted(counter)(5)
    assert is_converted(add)
    assert convert(add) is add
    assert not is_converted(counter(5)[0])
    assert add.__qualname__ == "counter.<locals>.add"


def recursive(n: int) -> int:
    return 1 if n == 0 else n * recursive(n - 1)


def test_recursion_goes_through_the_runtime() -> None:
    plain_runtime.asked.clear()
    assert converted(recursive)(5) == 120
    assert plain_runtime.asked["call"] == 1  # the name means the original, which this runtime just calls


def fails(x: Any) -> Any:
    if x > 0:
        for _ in range(3):
            y = (x +
                 1) / 0  # fmt: skip
    return y


def test_tracebacks_show_the_source() -> None:
    frames = []
    for function in (fails, converted(fails)):
        with pytest.raises(ZeroDivisionError) as found:
            function(1)
        own = [f for f in traceback.extract_tb(found.tb) if f.filename == __file__ and f.name == "fails"]
        frames.append((own[-1].lineno, own[-1].colno, own[-1].end_lineno, own[-1].end_colno, own[-1].name))
    assert frames[0] == frames[1]


# What the runtime is told


class Watch:
    """A runtime that notes the variables of each statement."""

    def __init__(self) -> None:
        self.states: list[tuple[str, tuple[str, ...]]] = []
        self.stores: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        found = getattr(plain_runtime.runtime, name)

        def noted(*args: Any, **kwargs: Any) -> Any:
            if name.endswith("_stmt") and name != "assert_stmt":
                self.states.append((name[:-5], args[-1 if name != "for_stmt" else -2]))
            if name in ("setitem", "setattr"):
                self.stores.append((type(args[0]), *args[1:]))
            return found(*args, **kwargs)

        return noted


def states_of(function: Any, *args: Any) -> list[tuple[str, tuple[str, ...]]]:
    watch = Watch()
    made = convert_function(function, watch)
    assert made is not None
    assert made(*args) == function(*args)
    return watch.states


def test_only_variables_that_are_read_later_are_state() -> None:
    def f(x: int) -> int:
        if x > 0:
            t = x * 2
            y = t + 1
        else:
            y = x
        return y

    assert states_of(f, 3) == [("if", ("y",))]


def test_a_variable_that_a_branch_changes_for_itself_is_no_state() -> None:
    def f(x: int) -> int:
        if x > 0:
            x = x * 2
            y = x
        else:
            y = 1
        return y

    assert states_of(f, 3) == [("if", ("y",))]


def test_loops_carry_what_the_next_round_or_what_follows_reads() -> None:
    def f(n: int) -> int:
        total, last = 0, 0
        for i in range(n):
            square = i * i
            total += square
            last = i
        while total > 5:
            half = total // 2
            total = half
        return total + last

    assert states_of(f, 4) == [("for", ("last", "total")), ("while", ("total",))]


def test_with_does_not_make_variables_loop_carried() -> None:
    import contextlib

    def f(n: int) -> int:
        total = 0
        for i in range(n):
            with contextlib.nullcontext():
                y = i * 2
            total += y
        return total

    assert states_of(f, 3) == [("for", ("total",))]


def test_early_return_needs_no_flags() -> None:
    def f(x: int) -> str:
        if x > 2:
            return "big"
        if x > 1:
            return "middle"
        return "small"

    assert states_of(f, 1) == [("if", ("_value",)), ("if", ("_value",))]


def test_break_is_a_flag_and_continue_is_not() -> None:
    def f(n: int) -> int:
        total = 0
        for i in range(n):
            if i == 1:
                continue
            if i > 3:
                break
            total += i
        return total

    assert states_of(f, 9)[-1][1] == ("_break_1", "total")
    assert "_continue" not in str(converted_source(f))


def test_stores_to_variables_outside_go_through_the_runtime() -> None:
    add, _ = counter(1)
    watch = Watch()
    made = convert_function(add, watch)
    assert made is not None
    made(3)
    assert watch.stores == [(types.CellType, "cell_contents", 4)]
    function = function_from("def f(x):\n    global total\n    total = x\n    return total\n")
    watch = Watch()
    made = convert_function(function, watch)
    assert made is not None
    assert made(2) == 2
    assert watch.stores == [(dict, "total", 2)]
    assert function.__globals__["total"] == 2


def test_user_names_that_look_like_ours_are_left_alone() -> None:
    check(
        function_from(
            "def f(_w, _state, _item, _value):\n"
            "    for _returned in range(_w):\n"
            "        if _returned > _state: return _item, _value\n"
            "    return _returned\n"
        ),
        (3, 1, 2, 3),
        (3, 5, 2, 3),
    )


def test_conversion_of_a_long_function_takes_milliseconds() -> None:
    block = (
        "    if x > {i}:\n        y = x * {i}\n        for k in range(3):\n            y += k\n    x += y\n"
    )
    source = "def f(x):\n    y = 0\n" + "".join(block.format(i=i) for i in range(20)) + "    return x\n"
    function = function_from(source)
    assert converted_code(function) is not None
    assert least_seconds(lambda: converted_code(function_from(source)), 0.25) < 0.25  # about 15 ms


def test_converted_source_can_be_looked_at() -> None:
    text = weft.jit.converted_source(recursive)
    assert text is not None
    assert text.startswith("def recursive(n):")
    assert "_w.if_exp(_w.binary('==', n, 0)" in text


# End to end, with the real runtime


def halve(x: weft.Tensor, limit: float) -> tuple[weft.Tensor, int]:
    steps = 0
    while (x * x).sum() > limit:
        x = x / 2.0
        steps += 1
        if steps == 5:
            break
    else:
        return x, -steps
    return -x, steps


@pytest.mark.parametrize("limit", [1.0, 100.0, 0.0])
def test_a_loop_on_a_tensor_is_captured(limit: float) -> None:
    x = weft.tensor([3.0, 4.0])
    expected, steps = halve(x, limit)
    got, counted = weft.jit.script(halve)(x, limit)
    assert got.tolist() == expected.tolist()
    assert int(counted) == steps


def handled(x: weft.Tensor) -> weft.Tensor:
    try:
        if x.sum() > 0:
            raise ValueError("positive")
        y = x * 3.0
    except ValueError:
        y = -x
    return y


@pytest.mark.parametrize("value", [1.0, -1.0])
def test_a_raise_that_a_tensor_decides_about_is_handled(value: float) -> None:
    x = weft.tensor([value])
    assert weft.jit.script(handled)(x).tolist() == handled(x).tolist()


def test_in_a_graph_of_types_it_is_an_error_that_names_the_line() -> None:
    with pytest.raises(CaptureError, match=r"raise: must not raise what.*got ValueError") as found:
        weft.make_graph(handled)(weft.tensor([1.0]))
    assert 'raise ValueError("positive")' in str(found.value)


def test_a_raise_that_python_decides_about_is_raised() -> None:
    def checked(x: weft.Tensor, scale: float) -> weft.Tensor:
        if scale < 0:
            raise ValueError("negative")
        for _ in range(3):
            x = x * scale
        return x

    script = weft.jit.script(checked)
    assert script(weft.ones(1), 2.0).tolist() == [8.0]
    with pytest.raises(ValueError, match="negative"):
        script(weft.ones(1), -2.0)
