"""Small functions that use every statement and expression of Python, with arguments to call them on.

Odd code is what is wanted here, so the linter is told to look away.
"""

# ruff: noqa: B007, B023, B905, C416, E731, E741, F841, RUF007, SIM201
# mypy: ignore-errors

import contextlib
import types


def loops_with_else(n):
    out = []
    for i in range(n):
        if i == 2:
            continue
        if i == 5:
            break
        for j in range(i):
            if j == 3:
                break
            if i * j == 4:
                return ("r", out)
            out.append((i, j))
        else:
            out.append("else")
    else:
        out.append("end")
    return out


def branch_that_raises(x):
    try:
        if x > 0:
            y = 1
            raise ValueError(x)
        elif x == 0:
            z = 3
    except ValueError:
        return y, "h"
    finally:
        x = None
    return z


def late_bound_loop_variable(xs):
    fs = []
    for x in xs:
        fs.append(lambda: x)
    return [f() for f in fs], x


def nonlocal_of_nested(x):
    def inc():
        nonlocal x
        x += 1
        if x > 3:
            x = 10
        return x

    if x > 2:
        inc()
    while x < 6:
        inc()
    return x, inc()


def while_with_walrus(x):
    while (y := x - 1) > 0:
        x = y
        if x == 3:
            continue
        if x == 2:
            break
    else:
        return "else", y
    return x, y


def classes_inside(x):
    class A:
        k = x

        def __init__(self, v):
            self.__v = v
            self.w = [v]

        def get(self):
            if self.__v > 1:
                return self.__v
            return -self.__v

        def __repr__(self):
            return f"A({self.__v!r:>4})"

    class B(A):
        def get(self):
            r = None
            if x:
                r = super().get()
            else:
                r = super().__init__(3)
            return r

    b = B(x)
    return b.get(), b, A.__qualname__, A.get.__qualname__


def targets(x):
    a, (b, *c), d = x
    o = types.SimpleNamespace(q=[0, 0, 0])
    o.r, o.q[a], (o.q[2], e) = x[0], d, (b, c)
    o.q[a] += 5
    o.r *= 2
    del o.q[0], b
    if a:
        b = 3
    return vars_(o), b, e


def vars_(o):
    return o.__dict__


def matching(x):
    match x:
        case [1, y]:
            return y
        case {"a": z, **rest} if z > 1:
            return z, rest
        case int(v) | float(v):
            for i in range(3):
                if i == v:
                    return "i", i
        case _:
            pass
    return "end"


def expressions(x):
    return (
        (1 < x < 5 and not x == 3) or x if x > 2 else (x, [*range(x)], {"a": x}, {x, 1}),
        f"{x + 1:{x}}",
        x[1:2] if x is None else x,
    )


def exception_name(x):
    e = 1
    for i in range(3):
        try:
            if i == x:
                raise KeyError(i)
        except KeyError as e:
            y = str(e)
            if x == 1:
                break
    return e


def return_given_up_in_finally(x):
    for i in range(4):
        try:
            try:
                if i < 3:
                    return i
            finally:
                if i < x:
                    raise KeyError
        except KeyError:
            pass
    return "end"


def return_given_up_and_suppressed(x):
    for i in range(4):
        with contextlib.suppress(KeyError):
            try:
                if i < 3:
                    return i
            finally:
                if i < x:
                    raise KeyError
    return "end"


def suppressed_half_way(x):
    for i in range(4):
        with contextlib.suppress(KeyError):
            y = i
            if i == x:
                raise KeyError
            z = i
    return y, z


def deletes_parameter(x):
    if x:
        del x
    else:
        x = 1
    return x


def imports_and_defaults(x):
    if x:
        import os.path as p

        def g(a=x, *, b=x):
            return a + b

        h = lambda a, b=x: a * b
    return g(1) + h(2), p.sep


def temporary_of_branch(x):
    t = x
    if x > 1:
        u = t + 1
        t = u
        y = t * 2
    else:
        y = t
    return y


def fibonacci(n):
    if n < 2:
        return n
    return fibonacci(n - 1) + fibonacci(n - 2)


def global_variable(x):
    global GG
    GG = x
    GG += 1
    if x:
        GG = 7
    for GG in [x]:
        pass
    return GG


def loop_over_zip(x):
    total = 0
    for i, (a, b) in enumerate(zip(x, x[1:])):
        if a > b:
            total += a
        elif a == b:
            continue
        else:
            total -= b
            if total < -5:
                break
        total += i
    return total, i


def asserts(x):
    assert x > 1, "no"
    assert x
    return x


def comprehensions(x):
    d = {k: v for k, v in x.items() if v}
    s = {k for k in d}
    l = [[a * b for b in range(a)] for a in d.values() if a > 1 if a < 5]
    g = sum(q for q in d.values() if q > 1)
    w = [z := k for k in d]
    return d, sorted(s), l, g, w, z


# fmt: off
def lookup_over_lines(x):
    return (x
        .foo
        .bar(
            1))
# fmt: on


def argument_after_lookup(x):
    return x.a(x.b(1)) + x["k"]["j"]


def plain_and_nested_returns(x, y=None):
    if y is None:
        return "none"
    if x:
        if y:
            return "xy"
        x = 5
    return x, y


def return_inside_with(x):
    with contextlib.nullcontext(x) as y, contextlib.nullcontext([1]) as (z,):
        for i in range(y):
            if i == 3:
                return i
        x = 10
    return x, z


def generator_inside(x):
    def gen():
        for i in range(x):
            if i:
                yield i * y

    if x:
        y = 3
    return list(gen())


def decorators_inside(x):
    print_ = []

    def dec(k):
        def d(f):
            print_.append(k)
            return f

        return d

    @dec(1)
    @dec(2)
    def g(q: int = 3) -> int:
        "doc"
        while q > x:
            q -= 1
            if q == 5:
                return "five", q
        return q

    return g(9), print_, g.__doc__, g.__name__, g.__qualname__, g.__annotations__


CASES = [
    (loops_with_else, [(i,) for i in range(9)]),
    (branch_that_raises, [(1,), (0,), (-1,)]),
    (late_bound_loop_variable, [([1, 2],), ([],)]),
    (nonlocal_of_nested, [(1,), (3,)]),
    (while_with_walrus, [(5,), (1,), (2,)]),
    (classes_inside, [(1,), (2,), (0,)]),
    (targets, [((1, (2, 3, 4), 5),), ((0, (2, 3, 4), 5),), (3,)]),
    (matching, [([1, 2],), ({"a": 2, "b": 3},), (1,), (7,), ("q",)]),
    (expressions, [(1,), (4,), (3,)]),
    (exception_name, [(0,), (1,), (5,)]),
    (return_given_up_in_finally, [(0,), (1,), (2,), (5,)]),
    (return_given_up_and_suppressed, [(0,), (1,), (2,), (5,)]),
    (suppressed_half_way, [(0,), (1,), (3,), (5,)]),
    (deletes_parameter, [(0,), (1,)]),
    (imports_and_defaults, [(0,), (1,)]),
    (temporary_of_branch, [(0,), (2,)]),
    (fibonacci, [(7,)]),
    (global_variable, [(0,), (3,)]),
    (loop_over_zip, [([1, 2, 3, 3, 2, 9],), ([],), ([1, 1],)]),
    (asserts, [(2,), (0,)]),
    (comprehensions, [({"a": 1, "b": 3},), ({},)]),
    (
        lookup_over_lines,
        [(1,), (types.SimpleNamespace(foo=1),), (types.SimpleNamespace(foo=types.SimpleNamespace(bar=1)),)],
    ),
    (argument_after_lookup, [(1,), ({},)]),
    (plain_and_nested_returns, [(1,), (0, 1), (1, 1), (1, 0)]),
    (return_inside_with, [(1,), (5,)]),
    (generator_inside, [(1,), (3,)]),
    (decorators_inside, [(1,), (7,)]),
]
