"""Lines of one function in LLVM assembly, and where each of them goes.

Code nests in scopes: the function, the body of a loop, the branch of an if. Something pure is written into
the outermost scope that knows its operands, before the loop that it is used in, and only once: so invariant
code is hoisted and common code shared at no cost, and few passes of LLVM are left to run.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_UNLIKELY = ', !prof !{!"branch_weights", i32 1, i32 1048575}'
Lines = list[Any]  # of text, and of Lines that may still grow


class Scope:
    """A place where code goes: what was computed here, and where code goes while a scope inside is open."""

    __slots__ = ("hoisted", "known")

    def __init__(self) -> None:
        self.known: dict[str, str] = {}
        self.hoisted: Lines = []


class Writer:
    """Writes the lines of a function.

    >>> from weft.backends.llvm.emit.writer import Writer
    >>> w = Writer()
    >>> w.pure("add i64 %x, 1", 0) == w.pure("add i64 %x, 1", 0)
    True
    >>> w.text()
    '  %r1 = add i64 %x, 1'
    """

    def __init__(self) -> None:
        self.slots: Lines = []
        self.lines: Lines = [self.slots]
        self.scopes = [Scope()]
        self.barrier = 0  # the innermost scope that what is costly does not leave
        self.guard = 0  # the innermost scope that what may fault does not leave
        self.block = "entry"
        self.declarations: set[str] = set()
        self._count = 0

    @property
    def depth(self) -> int:
        """The number of the innermost scope."""
        return len(self.scopes) - 1

    def fresh(self, letter: str = "r") -> str:
        """A name that is not taken."""
        self._count += 1
        return f"%{letter}{self._count}"

    def line(self, text: str) -> None:
        """An instruction without a result, here."""
        self.lines.append("  " + text)

    def here(self, text: str) -> str:
        """The result of an instruction at this place."""
        name = self.fresh()
        self.lines.append(f"  {name} = {text}")
        return name

    def home(self, scope: int) -> int:
        """The scope where something pure is known whose operands are known in a scope."""
        return max(scope, self.barrier)

    def pure(self, text: str, scope: int, *, cheap: bool = False) -> str:
        """The result of an instruction that depends on its operands alone, which are known in a scope.

        It leaves loops, but a branch of an if only if it is cheap, because there it may not be needed.
        """
        return self._once(text, scope, scope if cheap or scope > self.barrier else self.barrier)

    def invariant(self, text: str, scope: int) -> tuple[str, int]:
        """The result of a load of what does not change, and the scope it is known in."""
        home = max(scope, self.guard)
        return self._once(text, scope, home), home

    def _once(self, text: str, scope: int, home: int) -> str:
        """The result of an instruction in its home, unless that or a scope around it has it already."""
        for s in range(home, scope - 1, -1):
            found = self.scopes[s].known.get(text)
            if found is not None:
                return found
        self._count += 1
        name = f"%r{self._count}"
        place = self.scopes[home]
        lines = self.lines if home == len(self.scopes) - 1 else place.hoisted
        lines.append(f"  {name} = {text}")
        place.known[text] = name
        return name

    def slot(self, type_: str, value: str = "", align: int = 8) -> str:
        """A place on the stack for the whole function, with a value at its beginning."""
        name = self.fresh("s")
        self.slots.append(f"  {name} = alloca {type_}, align {align}")
        if value:
            self.slots.append(f"  store {type_} {value}, ptr {name}")
        return name

    def declare(self, text: str) -> None:
        """Note that the module needs a declaration."""
        self.declarations.add(f"declare {text}")

    # Blocks

    def label(self, prefix: str) -> str:
        """A name for a block."""
        self._count += 1
        return f"{prefix}{self._count}"

    def begin(self, label: str) -> None:
        """A block begins."""
        self.lines.append(f"{label}:")
        self.block = label

    def jump(self, label: str) -> None:
        """The block ends by a jump."""
        self.line(f"br label %{label}")

    def branch(self, condition: str, then: str, otherwise: str, *, unlikely: bool = False) -> None:
        """The block ends by a branch."""
        weights = _UNLIKELY if unlikely else ""
        self.line(f"br i1 {condition}, label %{then}, label %{otherwise}{weights}")

    @contextmanager
    def scope(self, *, is_loop: bool, surely: bool) -> Iterator[None]:
        """A scope inside the present one. What it hoists goes to the place of ``room``, called before.

        Args:
            is_loop: whether it runs again and again, so that it pays to hoist from it.
            surely: whether it runs if the scope around does.
        """
        before = self.barrier, self.guard
        self.scopes.append(Scope())
        if not is_loop:
            self.barrier = self.depth
        if not surely:
            self.guard = self.depth
        try:
            yield
        finally:
            self.scopes.pop()
            self.barrier, self.guard = before

    def room(self) -> None:
        """Leave room at this place for what scopes inside hoist to here."""
        self.scopes[-1].hoisted = []
        self.lines.append(self.scopes[-1].hoisted)

    def text(self) -> str:
        """All lines."""
        return "\n".join(_flat(self.lines))


def module_text(head: str, writer: Writer, buffers: int) -> str:
    """A function with the declarations and the metadata it needs; texts can be merged into one module.

    Args:
        head: its definition, with parameters and attributes.
        writer: its lines.
        buffers: the number of scopes of memory that it tells apart.
    """
    before = [*sorted(writer.declarations), *alias_scopes(buffers)]
    return "\n".join([*before, f"{head} {{", "entry:", writer.text(), "}", ""])


def alias_scopes(count: int) -> list[str]:
    """The metadata that declares so many scopes of memory, the same in all texts."""
    return ['!0 = !{!"weft"}', *[f'!{i + 1} = !{{!"{i}", !0}}' for i in range(count)]]


def _flat(lines: Lines) -> Iterator[str]:
    for line in lines:
        if isinstance(line, str):
            yield line
        else:
            yield from _flat(line)
