"""What functions that are converted together share: new names, the class around, what the code is given."""

from __future__ import annotations

from collections.abc import Iterable

from weft.base.records import dataclass, field


@dataclass(slots=True)
class Unit:
    """A function of the user, with those inside it, while it is converted.

    Attributes:
        taken: the names that occur in it, and those that were added.
        class_name: the class whose body the code stands in, for names that begin with two underscores; or "".
        in_class: whether ``__class__`` can be had, so that ``super()`` means something.
        runtime: the variable that holds the runtime.
        state: the parameter that takes the variables of a statement.
        item: the parameter that takes the item of a loop.
        given: variables that the code gets besides its own, with what they hold: "runtime", "slice", ...
        made: names of functions that conversion added, with what a traceback shows; "" for the user's own.
        cells: free variables that the code assigns, each with the variable that holds its cell.
        numbers: the number last given to each base of new names.
    """

    taken: set[str]
    class_name: str = ""
    in_class: bool = False
    runtime: str = ""
    state: str = ""
    item: str = ""
    given: dict[str, str] = field(default_factory=dict)
    made: dict[str, str] = field(default_factory=dict)
    cells: dict[str, str] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.runtime, self.state, self.item = self.once("_w"), self.once("_state"), self.once("_item")
        self.given[self.runtime] = "runtime"

    def once(self, base: str) -> str:
        """A name, as it is if the function does not use it."""
        name, number = base, 0
        while name in self.taken:
            number += 1
            name = f"{base}_{number}"
        self.taken.add(name)
        return name

    def fresh(self, base: str) -> str:
        """A new name with a number."""
        if base in ("_returned", "_value"):
            return base if base not in self.taken else self.numbered(base)
        return self.numbered(base)

    def numbered(self, base: str) -> str:
        """The next name with a number that is not in use."""
        while True:
            self.numbers[base] = self.numbers.get(base, 0) + 1
            name = f"{base}_{self.numbers[base]}"
            if name not in self.taken:
                self.taken.add(name)
                return name

    def generated(self, base: str, like: str = "") -> str:
        """The name of a function that conversion adds."""
        name = self.numbered(base)
        self.made[name] = like
        return name

    def use(self, what: str) -> str:
        """The variable that holds a builtin, or the globals, whatever the user calls by its name."""
        for name, held in self.given.items():
            if held == what:
                return name
        name = self.once(f"_{what}")
        self.given[name] = what
        return name

    def cell(self, variable: str) -> str:
        """The variable that holds the cell of a free variable."""
        if variable not in self.cells:
            self.cells[variable] = self.once(f"_cell_{variable}")
        return self.cells[variable]

    def mangled(self, name: str) -> str:
        """A name as the class around makes it: ``__x`` in ``class C`` is ``_C__x``."""
        plain = self.class_name.lstrip("_")
        if not plain or not name.startswith("__") or name.endswith("__") or "." in name:
            return name
        return f"_{plain}{name}"

    def free(self, names: Iterable[str]) -> list[str]:
        """All variables that the code is given from around it."""
        return sorted({*names, *self.given, *self.cells.values()})
