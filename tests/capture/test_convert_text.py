"""Converted functions given as text: odd corners of Python, and syntax of later versions."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from tests.capture.convert_checks import check, function_from


class Thing:
    """Something with attributes."""

    def __init__(self) -> None:
        self.b = [0]

    def __repr__(self) -> str:
        return "Thing()"


CASES: dict[str, tuple[str, list[tuple[Any, ...]]]] = {
    "function inside a generator": (
        """
def f(x):
    def gen():
        n = 0
        def h():
            nonlocal n
            n += 1
            if n > 1: n = 5
            return n
        for i in range(x):
            yield h()
    return list(gen())
""",
        [(3,)],
    ),
    "exception group": (
        """
def f(x):
    if x:
        try: raise ValueError(1)
        except* ValueError as e: y = e.exceptions
    else: y = 0
    return str(y)
""",
        [(1,), (0,)],
    ),
    "order of evaluation": (
        """
def f(x):
    log = []
    def v(n):
        log.append(n)
        return n
    d = {v(1): v(2), **{v(3): v(4)}}
    d[v(5)] = v(6)
    d[v(1)] += v(7)
    a = b = d[v(8)] = v(9)
    c = {v(k): v(k + 10) for k in range(2)}
    (a, d[a]), *r = [(1, 2), 3, 4]
    v(v(1) < v(2) < v(0) < v(9))
    return log, d, c, a, r, [v(q) for q in (v(30), v(31)) if v(q) > 30]
""",
        [(1,)],
    ),
    "loop and with targets": (
        """
def f(x):
    r = []
    for x.a, x.b[0] in [(1, 2), (3, 4)]:
        r.append((x.a, x.b))
    with open("/dev/null") as x.f:
        pass
    return r, x.f.closed
""",
        [(Thing(),)],
    ),
    "mutual recursion": (
        """
def f(n):
    def even(k):
        if k == 0: return True
        return odd(k - 1)
    def odd(k):
        if k == 0: return False
        return even(k - 1)
    return even(n)
""",
        [(4,), (5,)],
    ),
    "function used before it is defined": (
        """
def f(n):
    if n:
        return g()
    def g(): return 1
    return g()
""",
        [(0,), (1,)],
    ),
    "class body": (
        """
def f(n):
    x = 5
    class A:
        x = x
        y = [n for _ in range(2)]
        if n:
            z = 1
        else:
            z = 2
        def m(self):
            for i in range(3):
                if i == n: return i, __class__.__name__
            return super().__repr__ is not None
    return A.x, A.y, A.z, A().m()
""",
        [(0,), (5,)],
    ),
    "else of loops": (
        """
def f(n):
    for i in range(3):
        pass
    while n:
        n -= 1
        if n == 2: break
    else:
        i = 'else'
    return i, n
""",
        [(0,), (1,), (5,)],
    ),
    "parameters": (
        """
def f(a, *b, c=1, **d):
    if a: b = b[1:]; d["k"] = c
    return a, b, c, d
""",
        [(1, 2, 3), (0,)],
    ),
    "nested endless loops": (
        """
def f(n):
    r = 0
    while True:
        while True:
            n += 1
            if n % 2: continue
            if n > 6: return r, n
            break
        r += n
""",
        [(0,), (9,)],
    ),
    "item targets": (
        """
def f(n):
    x = [0]
    i = 0
    i, x[i] = 0, 5
    x[i], i = 7, 3
    lst = [1,2,3]
    lst[1:2] = [9, 9]
    lst[::2] = [0, 0]
    del lst[0], x
    return i, lst
""",
        [(0,)],
    ),
    "coroutine inside": (
        """
def f(n):
    async def co():
        if n:
            return await other()
        return 1
    async def other():
        return 2
    import asyncio
    return asyncio.run(co())
""",
        [(0,), (1,)],
    ),
    "closures in comprehensions": (
        """
def f(n):
    return [(lambda: i)() for i in range(n)], [*(i for i in range(n) if (lambda q: q > 0)(i))]
""",
        [(3,)],
    ),
    "raising": (
        """
def f(n):
    if n > 0:
        raise ValueError("a") from KeyError("b")
    elif n == 0:
        raise TypeError
    print(n, end="", file=None) if n > 5 else None
    return not n, -n, ~n, n @ n if n > 100 else ...
""",
        [(0,), (1,), (-1,)],
    ),
    "break out of an else": (
        """
def f(n):
    r = []
    for i in range(n):
        for j in range(n):
            if j == 1: break
        else:
            r.append(i)
            continue
        if i == 2: break
        r.append((i, j))
    return r
""",
        [(0,), (1,), (3,)],
    ),
    "iterator stops where the loop was left": (
        """
def f(n):
    it = iter(range(10))
    for i in it:
        if i == n: break
    return next(it, None)
""",
        [(0,), (3,), (20,)],
    ),
    "jumps inside try": (
        """
def f(n):
    while n:
        try:
            n -= 1
            if n == 3: continue
            if n == 1: break
            if n == 5: return "five"
        except ZeroDivisionError:
            pass
        else:
            if n == 4: n -= 1
        finally:
            n = n
    return n
""",
        [(9,), (4,), (1,), (0,)],
    ),
}

LATER: dict[str, tuple[str, list[tuple[Any, ...]]]] = {
    "type parameters inside": (
        """
def f(x):
    type A[T] = list[T]
    def g[T](y: T, *rest: T) -> T:
        if y: return y, T
        return rest
    class C[T]:
        k: T
        def m(self): return T if x else None
    return g(x)[0] if x else g(x), A.__name__, C().m() is None
""",
        [(1,), (0,)],
    ),
    "type parameters": (
        """
def f[T](x: T) -> T:
    if x: return T
    return None
""",
        [(1,), (0,)],
    ),
    "nested quotes": (
        """
def f(x):
    y = f"{x!r:>{x + 5}} {'a' if x else "b"} {[i for i in range(x)]}"
    return y
""",
        [(1,), (0,)],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_converted_function_does_what_the_original_does(name: str) -> None:
    source, argument_lists = CASES[name]
    check(function_from(source.lstrip("\n")), *argument_lists)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="needs the syntax of Python 3.12")
@pytest.mark.parametrize("name", LATER)
def test_converted_function_of_later_syntax_does_what_the_original_does(name: str) -> None:
    source, argument_lists = LATER[name]
    check(function_from(source.lstrip("\n")), *argument_lists)


def test_long_chains_of_returns_are_converted_or_left_alone() -> None:
    lines = [f"    if n == {i}: return {i}\n" for i in range(40)]
    check(function_from("def f(n):\n" + "".join(lines)), (3,), (39,), (99,))


def test_long_chains_of_elif_are_converted() -> None:
    lines = [f"    {'elif' if i else 'if'} n == {i}: y = {i}\n" for i in range(40)]
    check(function_from("def f(n):\n" + "".join(lines) + "    return y\n"), (3,), (39,), (99,))
