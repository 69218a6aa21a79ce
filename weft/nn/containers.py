"""Modules that hold others: in a row, a list or a dict."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Self

from weft import Tensor
from weft.errors import ArgumentError, BoundsError
from weft.nn.module import Module


def _checked(op: str, module: Any) -> Module:
    if not isinstance(module, Module):
        raise ArgumentError(op, f"must hold modules, got {type(module).__name__}")
    return module


class _Numbered(Module):
    """Modules under the names 0, 1, 2, and so on."""

    def _list(self) -> list[Module]:
        return [module for _, module in self._members("_module_names")]

    def _refill(self, modules: Iterable[Module]) -> None:
        for name in list(self._module_names):
            delattr(self, name)
        for i, module in enumerate(modules):
            setattr(self, str(i), _checked(type(self).__name__, module))

    def __len__(self) -> int:
        return len(self._module_names)

    def __iter__(self) -> Iterator[Module]:
        return iter(self._list())

    def __getitem__(self, index: Any) -> Any:
        found = self._list()
        if isinstance(index, slice):
            return type(self)._of(found[index])
        return found[self._position(index)]

    def _position(self, index: Any) -> int:
        count = len(self)
        if isinstance(index, bool) or not hasattr(index, "__index__"):
            raise ArgumentError(type(self).__name__, f"an index must be an int or a slice, got {index!r}")
        number = int(index)
        if not -count <= number < count:
            raise BoundsError(type(self).__name__, f"an index must be in {-count}..{count - 1}, got {number}")
        return number % count

    def __setitem__(self, index: int, module: Module) -> None:
        names = list(self._module_names)
        setattr(self, names[self._position(index)], _checked(type(self).__name__, module))

    def __delitem__(self, index: Any) -> None:
        kept = self._list()
        del kept[index]
        self._refill(kept)

    def append(self, module: Module) -> Self:
        """Add a module at the end; returns the container."""
        setattr(self, str(len(self)), _checked("append", module))
        return self

    def extend(self, modules: Iterable[Module]) -> Self:
        """Add modules at the end; returns the container."""
        for module in modules:
            self.append(module)
        return self

    def pop(self, index: int = -1) -> Module:
        """Take a module out, the last by default; returns it."""
        modules = self._list()
        taken = modules.pop(self._position(index))
        self._refill(modules)
        return taken

    def __add__(self, other: Iterable[Module]) -> Any:
        return type(self)._of([*self, *other])

    def insert(self, index: int, module: Module) -> None:
        """Put a module before another."""
        modules = self._list()
        modules.insert(index, _checked("insert", module))
        self._refill(modules)

    @classmethod
    def _of(cls, modules: Iterable[Module]) -> Any:
        raise NotImplementedError  # each kind of container says it


class Sequential(_Numbered):
    """Modules in a row: each is called with what the one before gave.

    Args:
        modules: in their order, one list of them, or one dict of them by name.

    >>> import weft
    >>> from weft import nn
    >>> nn.Sequential(nn.Linear(2, 3), nn.ReLU())
    Sequential(  # 9 parameters
      (0): Linear(in_features=2, out_features=3, bias=True)  # 9
      (1): ReLU()
    )
    """

    def __init__(self, *modules: Any) -> None:
        super().__init__()
        held = modules[0] if len(modules) == 1 and isinstance(modules[0], Mapping | list | tuple) else modules
        named = held.items() if isinstance(held, Mapping) else enumerate(held)
        for name, module in named:
            setattr(self, str(name), _checked("Sequential", module))

    @classmethod
    def _of(cls, modules: Iterable[Module]) -> Any:
        return cls(*modules)

    def forward(self, x: Tensor) -> Tensor:
        """What the last module gives."""
        for module in self._list():
            x = module(x)
        return x


class ModuleList(_Numbered):
    """A list of modules, whose parameters are those of what holds it.

    >>> from weft import nn
    >>> layers = nn.ModuleList(nn.Linear(2, 2) for _ in range(3))
    >>> len(layers), len(list(layers.parameters()))
    (3, 6)
    """

    def __init__(self, modules: Iterable[Module] = ()) -> None:
        super().__init__()
        self.extend(modules)

    @classmethod
    def _of(cls, modules: Iterable[Module]) -> Any:
        return cls(modules)


class ModuleDict(Module):
    """Modules by name, whose parameters are those of what holds it.

    >>> from weft import nn
    >>> choices = nn.ModuleDict({"linear": nn.Linear(2, 2), "none": nn.Identity()})
    >>> list(choices.keys())
    ['linear', 'none']
    """

    def __init__(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]] = ()) -> None:
        super().__init__()
        self.update(modules)

    def update(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]]) -> None:
        """Add or replace modules."""
        for name, module in dict(modules).items():
            self[name] = module

    def __setitem__(self, name: str, module: Module) -> None:
        if name not in self._module_names and hasattr(self, name):
            raise ArgumentError("ModuleDict", f"a name must not be that of an attribute, got {name!r}")
        setattr(self, name, _checked("ModuleDict", module))

    def __getitem__(self, name: str) -> Any:
        found: dict[str, Module] = dict(self._members("_module_names"))
        return found[name]

    def __delitem__(self, name: str) -> None:
        delattr(self, name)

    def __len__(self) -> int:
        return len(self._module_names)

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __contains__(self, name: object) -> bool:
        return name in self._module_names

    def keys(self) -> Iterable[str]:
        """The names."""
        return list(self._module_names)

    def values(self) -> Iterable[Module]:
        """The modules."""
        return [module for _, module in self._members("_module_names")]

    def items(self) -> Iterable[tuple[str, Module]]:
        """Names and modules."""
        return list(self._members("_module_names"))

    def clear(self) -> None:
        """Take all modules out."""
        for name in self.keys():
            del self[name]

    def pop(self, name: str) -> Any:
        """Take a module out; returns it."""
        module = self[name]
        del self[name]
        return module
