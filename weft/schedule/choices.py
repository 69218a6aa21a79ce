"""What the schedule chooses by itself, each by a name under which it can be switched off.

Passes have names, too; ``disable=`` of ``weft.compile`` takes both.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from weft.errors import ArgumentError
from weft.passes.pipeline import Step, as_pass, pass_names

CHOICES: dict[str, str] = {
    "fusion": "nodes that work on the same elements are one kernel",
    "epilogues": "what follows a product elementwise is part of its kernel",
    "dots": "products whose sides lie in order along their sums add these up in vectors",
    "units": "products of narrow numbers are computed by units of the processor for them",
    "prepared": "weights of products are packed once, not at each call",
    "layouts": "values are written in the order in which they are read",
    "copy_elision": "a value that is copied is made where it is copied to",
    "vectorisation": "loops between kernels that change arrays in place use vectors",
    "waves": "independent kernels run at the same time",
    "memory_plan": "values that are not needed at the same time share memory",
    "donation": "new values of state are written over the old ones",
    "libraries": "on a GPU, products, attention and convolutions are left to libraries",
    "alike": "on a GPU, work that differs in the length of arrays alone is one kernel",
    "graphs": "on a GPU, calls are launched as one graph from the third on",
}
ON_DEVICES = frozenset({"libraries", "alike", "graphs"})  # those that processors have no use for


def check_disabled(op: str, disable: Iterable[str], passes: Sequence[Step] = ()) -> frozenset[str]:
    """The names of passes and choices to leave out; an error if one is unknown.

    >>> from weft.schedule.choices import check_disabled
    >>> sorted(check_disabled("compile", ["fusion", "cse"]))
    ['cse', 'fusion']
    """
    names = frozenset([disable] if isinstance(disable, str) else disable)
    if not names:
        return names
    known = dict.fromkeys([*pass_names(), *[as_pass(p).name for p in passes], *CHOICES])
    for name in sorted(names - known.keys()):
        raise ArgumentError(op, f"disable must be among {', '.join(known)}, got {name!r}")
    return names


def enabled(disable: Iterable[str]) -> tuple[str, ...]:
    """The choices that are on."""
    off = set(disable)
    if "fusion" in off:
        off.add("epilogues")
    return tuple(name for name in CHOICES if name not in off)
