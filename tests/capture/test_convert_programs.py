"""Random programs of nested statements: converted they give the same result, log and errors as before."""

from __future__ import annotations

import contextlib
import random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.capture.convert_checks import converted, function_from, raised_at
from tests.of_code import examples

VARIABLES = ("a", "b", "c", "d")


class Writer:
    """Writes a random function; every way through it ends, since loops count their rounds."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.lines: list[str] = []
        self.left = 28  # statements that may still be written
        self.number = 0

    def pick(self, *choices: str) -> str:
        return self.random.choice(choices)

    def flip(self) -> bool:
        return self.random.random() < 0.5

    def atom(self) -> str:
        return self.pick(*VARIABLES, "0", "1", "2", "3")

    def value(self) -> str:
        x, y = self.atom(), self.atom()
        return self.pick(
            x,
            f"{x} + {y}",
            f"note({x})",
            f"({x} if {self.test()} else {y})",
            f"sum([{x} * k for k in range({y} % 4) if k != {self.atom()}])",
            f"(lambda q={x}: q - {y})()",
            f"({self.pick(*VARIABLES)} := {x} - 1)",
            f"box.get({x}, {y})",
        )

    def test(self) -> str:
        x, y = self.atom(), self.atom()
        return self.pick(
            f"{x} < {y}",
            f"{x} == {y}",
            f"not {x}",
            f"{x} < {y} <= 3",
            f"{x} and {y}",
            f"{x} or note({y})",
            f"{self.pick(*VARIABLES)} is None",
            "note(1) > 0",
        )

    def put(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    def block(self, depth: int, *, loop: bool, final: bool = False) -> None:
        for _ in range(self.random.randint(1, 3)):
            self.statement(depth, loop=loop, final=final)

    def statement(self, depth: int, *, loop: bool, final: bool) -> None:
        self.left -= 1
        kinds = ["assign", "assign", "augmented", "log", "item", "delete", "closure"]
        if self.left > 0 and depth < 6:
            kinds += ["if", "if", "if", "for", "while", "try", "with", "match"]
        if not final:
            kinds += ["return", "raise"] + (["break", "continue"] * 2 if loop else [])
        getattr(self, "put_" + self.pick(*kinds))(depth, loop, final)

    def put_assign(self, depth: int, loop: bool, final: bool) -> None:
        self.put(depth, f"{self.pick(*VARIABLES)} = {self.value()}")

    def put_augmented(self, depth: int, loop: bool, final: bool) -> None:
        self.put(depth, f"{self.pick(*VARIABLES)} += {self.value()}")

    def put_log(self, depth: int, loop: bool, final: bool) -> None:
        self.put(depth, f"log.append(({', '.join(self.random.sample(VARIABLES, 2))}))")

    def put_item(self, depth: int, loop: bool, final: bool) -> None:
        self.put(depth, f"box[{self.atom()}], {self.pick(*VARIABLES)} = {self.atom()}, {self.value()}")

    def put_delete(self, depth: int, loop: bool, final: bool) -> None:
        self.put(depth, f"del {self.pick(*VARIABLES)}")

    def put_closure(self, depth: int, loop: bool, final: bool) -> None:
        self.number += 1
        x, y = self.pick(*VARIABLES), self.pick(*VARIABLES)
        self.put(depth, f"def g{self.number}():")
        if self.flip():
            self.put(depth + 1, f"nonlocal {x}")
            self.put(depth + 1, f"{x} = {y} + 1")
        self.put(depth + 1, f"return {y}")
        self.put(depth, f"log.append(g{self.number}())")

    def put_return(self, depth: int, loop: bool, final: bool) -> None:
        self.put(depth, f"return {self.value()}")

    def put_raise(self, depth: int, loop: bool, final: bool) -> None:
        self.put(depth, f"raise {self.pick('KeyError', 'ValueError')}({self.atom()})")

    def put_break(self, depth: int, loop: bool, final: bool) -> None:
        self.put(depth, "break")

    def put_continue(self, depth: int, loop: bool, final: bool) -> None:
        self.put(depth, "continue")

    def put_if(self, depth: int, loop: bool, final: bool) -> None:
        self.put(depth, f"if {self.test()}:")
        self.block(depth + 1, loop=loop, final=final)
        for text in self.random.choice([(), ("else:",), (f"elif {self.test()}:", "else:")]):
            self.put(depth, text)
            self.block(depth + 1, loop=loop, final=final)

    def put_loop(self, depth: int, head: str, loop: bool, final: bool) -> None:
        self.put(depth, head)
        self.put(depth + 1, "rounds()")
        self.block(depth + 1, loop=not final, final=final)
        if self.flip():
            self.put(depth, "else:")
            self.block(depth + 1, loop=loop, final=final)

    def put_for(self, depth: int, loop: bool, final: bool) -> None:
        target = self.pick("i", *VARIABLES)
        self.put_loop(
            depth, f"for {target} in {self.pick('range(3)', '(2, 0)', f'range({self.atom()})')}:", loop, final
        )

    def put_while(self, depth: int, loop: bool, final: bool) -> None:
        test = self.pick("True", self.test(), f"({self.pick(*VARIABLES)} := note({self.atom()})) < 2")
        self.put_loop(depth, f"while {test}:", loop, final)

    def put_try(self, depth: int, loop: bool, final: bool) -> None:
        self.put(depth, "try:")
        self.block(depth + 1, loop=loop, final=final)
        handled = self.flip()
        if handled:
            self.put(
                depth,
                self.pick(
                    "except KeyError:", "except (ValueError, TypeError) as d:", "except NameError as e:"
                ),
            )
            self.block(depth + 1, loop=loop, final=final)
            if self.flip():
                self.put(depth, "else:")
                self.block(depth + 1, loop=loop, final=final)
        if not handled or self.flip():
            self.put(depth, "finally:")
            self.block(depth + 1, loop=False, final=True)

    def put_with(self, depth: int, loop: bool, final: bool) -> None:
        kind = self.pick(
            "suppress(KeyError)", "nullcontext(2) as b", "suppress(NameError), nullcontext(1) as box[0]"
        )
        self.put(depth, f"with {kind}:")
        self.block(depth + 1, loop=loop, final=final)

    def put_match(self, depth: int, loop: bool, final: bool) -> None:
        self.put(depth, f"match {self.atom()}:")
        for pattern in (f"case {self.pick('0', '1', 'None', 'int(d)')} if {self.test()}:", "case c:"):
            self.put(depth + 1, pattern)
            self.block(depth + 2, loop=loop, final=final)


def program(seed: int) -> str:
    writer = Writer(seed)
    writer.put(0, "def f(a, b):")
    writer.put(1, "c = 1")
    writer.put(1, "d: int")
    writer.block(1, loop=False)
    writer.block(1, loop=False)
    writer.put(1, "return a, b, c, d")
    return "\n".join(writer.lines) + "\n"


class Watch:
    """What programs call: each call is noted, and the rounds of their loops are counted."""

    def __init__(self) -> None:
        self.log: list[Any] = []
        self.left = 60

    def note(self, x: Any) -> Any:
        self.log.append(("note", x))
        return x

    def rounds(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise TimeoutError("the program does not end")


def run(source: str, args: tuple[int, int], *, convert: bool) -> Any:
    watch, box = Watch(), {}  # type: ignore[var-annotated]
    tools = {"suppress": contextlib.suppress, "nullcontext": contextlib.nullcontext}
    function = function_from(source, log=watch.log, box=box, note=watch.note, rounds=watch.rounds, **tools)
    call = converted(function) if convert else function
    try:
        ending: tuple[Any, ...] = ("returned", call(*args))
    except Exception as error:
        kind = "no value" if isinstance(error, NameError) else type(error)
        ending = ("raised", kind, raised_at(error, function.__code__.co_filename)[0][0])
    return repr((ending, watch.log, box))


@examples(200, 50)
@given(st.integers(0, 2**32), st.tuples(st.integers(0, 3), st.integers(0, 3)))
def test_converted_program_gives_what_the_original_gives(seed: int, args: tuple[int, int]) -> None:
    source = program(seed)
    assert run(source, args, convert=True) == run(source, args, convert=False), source
