"""Random programs in plain Python over tensors: source text that hypothesis draws and shrinks.

A variable keeps its kind, which the first letter of its name tells, so that a capture must take the program:
``v`` a row of three floats, ``s`` a 0-d float, ``k`` a 0-d whole number, ``n`` a plain int, ``b`` a truth,
``l`` a list of rows, ``d`` a dictionary of rows. Loops end after a few iterations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

Choose = Callable[[int], int]

VECTORS = ("v0", "v1", "v2")
SCALARS = ("s0", "s1")
NUMBERS = ("0.5", "-1.0", "2.0", "0.25")


class _Writer:
    """Lines of one function, drawn one after the other.

    Args:
        choose: a whole number from 0 up to, not including, the given one.
        helpers: names of functions from a row and a scalar to a row that may be called.
    """

    def __init__(self, choose: Choose, helpers: tuple[str, ...]) -> None:
        self.choose = choose
        self.helpers = helpers
        self.lines: list[str] = []
        self.fresh = 0
        self.items: list[str] = []  # loop variables in scope that hold a row
        self.indices: list[str] = []  # loop variables in scope that hold a whole number below three

    def pick(self, *options: str) -> str:
        return options[self.choose(len(options))]

    def chance(self, percent: int) -> bool:
        return self.choose(100) >= 100 - percent

    def put(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    # Expressions

    def vector(self, deep: int = 2) -> str:
        if deep == 0 or self.chance(30):
            return self.pick(*VECTORS, *self.items)
        a, b = self.vector(deep - 1), self.vector(deep - 1)
        forms = [
            f"({a} + {b})",
            f"({a} * {self.pick(*NUMBERS)})",
            f"({a} - {b})",
            f"({a} * {b})",
            f"weft.tanh({a})",
            f"weft.sin({a})",
            f"({a} * {self.scalar(deep - 1)})",
            f"weft.where({a} > {b}, {a}, {self.pick(*NUMBERS)})",
            f"({a} if {self.test(deep - 1)} else {b})",
            f"d0[{self.pick(repr('p'), repr('q'))}]",
            f"{a}.detach()",
        ]
        if self.helpers:
            forms.append(f"{self.pick(*self.helpers)}({a}, {self.scalar(deep - 1)})")
        return self.pick(*forms)

    def index(self) -> str:
        return self.pick("0", "2", "-1", "n0 % 3", "k0 % 3", *self.indices)

    def scalar(self, deep: int = 2) -> str:
        if deep == 0 or self.chance(30):
            return self.pick(*SCALARS)
        a = self.scalar(deep - 1)
        return self.pick(
            f"({a} + {self.scalar(deep - 1)})",
            f"({a} * {self.pick(*NUMBERS)})",
            f"weft.tanh({a})",
            f"{self.vector(deep - 1)}.mean()",
            f"{self.pick(*VECTORS)}[{self.index()}]",
            f"({a} * n0)",
            f"abs({a})",
            f"max({a}, {self.scalar(0)})",
        )

    def whole(self) -> str:
        options = ("n0 + 1", "n1 - n0", "n0 * 2", "n1", "len(l0)", "3", *self.indices)
        return f"({self.pick(*options)}) % 7"

    def test(self, deep: int = 1) -> str:
        if deep > 0 and self.chance(30):
            a, b = self.test(deep - 1), self.test(deep - 1)
            return self.pick(
                f"({a} and {b})", f"({a} or {b})", f"(not {a})", f"(-0.5 < {self.scalar(1)} < 0.5)"
            )
        return self.pick(
            f"{self.scalar(1)} > {self.pick(*NUMBERS)}",
            f"{self.scalar(1)} < {self.scalar(0)}",
            f"{self.vector(1)}.sum() > 0",
            "k0 % 2 == 0",
            f"k0 < {self.pick('1', '2', '3')}",
            "n0 < 2",
            "n0 % 2 == 1",
            "b0",
        )

    # Statements

    def statement(self, depth: int, room: int, *, loop: bool) -> None:
        kinds = ["assignment"] * 4 + ["change"] * 2
        if room > 0:
            kinds += ["branch"] * 3 + ["for"] * 2 + ["while"]
        kind = self.pick(*kinds)
        if kind == "assignment":
            self.assignment(depth)
        elif kind == "change":
            self.change(depth)
        elif kind == "branch":
            self.branch(depth, room, loop=loop)
        elif kind == "for":
            self.for_loop(depth, room)
        else:
            self.while_loop(depth, room)

    def block(self, depth: int, room: int, *, loop: bool) -> None:
        for _ in range(1 + self.choose(3)):
            self.statement(depth, room, loop=loop)

    def assignment(self, depth: int) -> None:
        a, b = self.pick(*VECTORS), self.pick(*VECTORS)
        self.put(
            depth,
            self.pick(
                f"{a} = {self.vector()}",
                f"{self.pick(*SCALARS)} = {self.scalar()}",
                f"{a}, {b} = {b}, {self.vector(1)}" if a != b else f"{a} = {b} * 1.0",
                f"k0 = k0 + {self.pick('1', '2', 'n0')}",
                f"n0 = {self.whole()}",
                f"n1 = {self.whole()}",
                f"b0 = {self.test(0)}",
                f"d0[{self.pick(repr('p'), repr('q'))}] = {self.vector(1)}",
            ),
        )

    def change(self, depth: int) -> None:
        """A change in place, of a copy: a tensor that several variables hold is the matter of other tests."""
        v = self.pick(*VECTORS)
        key = self.pick(self.index(), "1:", "::2")
        form = self.choose(6)
        if form == 0:
            self.put(depth, f"{v} = {v}.clone()")
            self.put(depth, f"{v}[{key}] = {self.scalar(1)}")
        elif form == 1:
            self.put(depth, f"{v} = {v}.clone()")
            self.put(depth, f"{v}[{key}] {self.pick('+=', '*=')} {self.scalar(1)}")
        elif form == 2:
            self.put(depth, f"{v} = {v}.clone()")
            self.put(depth, f"{v} {self.pick('+=', '-=')} {self.vector(1)}")
        elif form == 3:
            self.put(depth, f"l0.append({self.vector(1)})")
        elif form == 4:
            s = self.pick(*SCALARS)
            self.put(depth, f"{s} = {s}.clone()")
            self.put(depth, f"{s} += {self.scalar(1)}")
        else:
            self.put(depth, f"n0 += {self.pick('1', '2')}")

    def branch(self, depth: int, room: int, *, loop: bool) -> None:
        self.put(depth, f"if {self.test()}:")
        self.block(depth + 1, room - 1, loop=loop)
        self.leave(depth + 1, loop=loop)
        if self.chance(30):
            self.put(depth, f"elif {self.test()}:")
            self.block(depth + 1, room - 1, loop=loop)
            self.leave(depth + 1, loop=loop)
        if self.chance(50):
            self.put(depth, "else:")
            self.block(depth + 1, room - 1, loop=loop)

    def leave(self, depth: int, *, loop: bool) -> None:
        if self.chance(25):
            ways = [f"return {self.result()}"]
            if loop:
                ways += ["break", "continue"]
            self.put(depth, self.pick(*ways))

    def result(self) -> str:
        return self.vector(1)

    def for_loop(self, depth: int, room: int) -> None:
        self.fresh += 1
        i, x = f"i{self.fresh}", f"x{self.fresh}"
        rows, indices = (
            self.pick("m", "m * 0.5", "m[1:]"),
            self.pick("range(3)", "range(n0 % 3)", "range(2, 0, -1)"),
        )
        form = self.choose(4)
        headers = (
            f"for {i} in {indices}:",
            f"for {x} in {rows}:",
            f"for {i}, {x} in enumerate({rows}):",
            f"for {i}, {x} in zip(range(3), {rows}):",
        )
        self.put(depth, headers[form])
        items, names = self.items, self.indices
        self.items = items + ([x] if form else [])
        self.indices = names + ([i] if form != 1 else [])
        self.block(depth + 1, room - 1, loop=True)
        self.items, self.indices = items, names
        if self.chance(15):
            self.put(depth, "else:")
            self.block(depth + 1, room - 1, loop=False)

    def while_loop(self, depth: int, room: int) -> None:
        self.fresh += 1
        c = f"c{self.fresh}"
        self.put(depth, f"{c} = {self.pick('0', 'k0 * 0')}")
        self.put(depth, f"while {c} < {self.pick('2', '3')} and {self.test()}:")
        self.put(depth + 1, f"{c} = {c} + 1")
        self.block(depth + 1, room - 1, loop=True)


START = (
    "v0 = v * 1.0",
    "v1 = weft.sin(v)",
    "v2 = v0",
    "s0 = s * 0.5",
    "s1 = v.mean()",
    "k0 = {k}",
    "n0 = {n}",
    "n1 = 2",
    "b0 = False",
    "l0 = [v1]",
    "d0 = {{'p': v0, 'q': v1}}",
)
END = "v0 + v1 * s0 + v2 * s1 + weft.stack(l0).sum(0) + d0['p'] * (n0 + n1) + d0['q'] * k0"


def _function(choose: Choose, name: str, helpers: tuple[str, ...], statements: int, room: int) -> list[str]:
    writer = _Writer(choose, helpers)
    main = name == "f"
    writer.put(0, f"def {name}(v, s, m, k, n):" if main else f"def {name}(v, s):")
    for line in START:
        writer.put(1, line.format(k="k" if main else "weft.tensor(1)", n="n" if main else "1"))
    if not main:
        writer.put(1, "m = weft.stack([v0, v1])")
    for _ in range(1 + choose(statements)):
        writer.statement(1, room, loop=False)
    writer.put(1, f"return {END}")
    return writer.lines


def write_program(choose: Choose, statements: int = 3, room: int = 3) -> str:
    """The source of a module with a function ``f(v, s, m, k, n)``, and a helper that it may call.

    Args:
        choose: a whole number from 0 up to, not including, the given one.
        statements: how many at most in the function, at its own level.
        room: how deep they may be nested.
    """
    lines = ["import weft", ""]
    helpers = ("g",) if choose(2) else ()
    if helpers:
        lines += [*_function(choose, "g", (), 2, 1), ""]
    lines += _function(choose, "f", helpers, statements, room)
    return "\n".join(lines) + "\n"


@st.composite
def programs(draw: Any) -> str:
    """Programs as hypothesis draws and shrinks them."""
    return write_program(lambda count: int(draw(st.integers(0, count - 1))))
