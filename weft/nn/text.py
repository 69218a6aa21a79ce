"""How modules are shown: the tree of what they hold, with numbers of parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from weft.nn.module import Module


def format_module(module: Module) -> str:
    """The text of a module: its settings, what is inside, and how many parameters there are.

    >>> from weft import nn
    >>> print(format_module(nn.Sequential(nn.Linear(2, 3), nn.ReLU())))
    Sequential(  # 9 parameters
      (0): Linear(in_features=2, out_features=3, bias=True)  # 9
      (1): ReLU()
    )
    """
    return _tree(module, "{} parameters")


def count_parameters(module: Module) -> tuple[int, int]:
    """How many numbers the parameters of a module have, and how many are frozen; each counts once."""
    parameters = list(module.parameters())
    return sum(p.numel() for p in parameters), sum(p.numel() for p in parameters if not p.requires_grad)


def _tree(module: Module, unit: str) -> str:
    name, own = type(module).__name__, module.extra_repr()
    inside = [
        f"({key}): " + _tree(child, "{}").replace("\n", "\n  ")
        for key, child in module._members("_module_names")
    ]
    note = _note(module, unit)
    if not inside:
        return f"{name}({own}){note}"
    lines = [*([own] if own else []), *inside]
    return f"{name}({note}\n  " + "\n  ".join(lines) + "\n)"


def _note(module: Module, unit: str) -> str:
    if any("_waiting" in inner.__dict__ for inner in module.modules()):
        return "  # sizes come with the first input"
    count, frozen = count_parameters(module)
    if not count:
        return ""
    told = unit.format(f"{count:,}")
    if count == 1:
        told = told.removesuffix("s")
    return f"  # {told}" + (f", {frozen:,} frozen" if frozen else "")
