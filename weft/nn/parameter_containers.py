"""Lists and dicts of parameters, which belong to the module that holds them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Self

import weft
from weft.errors import ArgumentError, BoundsError
from weft.nn.module import Module
from weft.nn.parameter import Parameter


def _as_parameter(value: Any) -> Any:
    """A tensor as a parameter; a parameter as it is."""
    return Parameter(value) if weft.is_tensor(value) and not isinstance(value, Parameter) else value


def _told(name: str, value: Any) -> str:
    kind = "Parameter" if isinstance(value, Parameter) else type(value).__name__
    return f"({name}): {kind} {tuple(value.shape)}" if weft.is_tensor(value) else f"({name}): {kind}"


class ParameterList(Module):
    """A list of parameters; tensors that are put into it become parameters.

    >>> import weft
    >>> from weft import nn
    >>> scales = nn.ParameterList([weft.ones(2), weft.ones(3)])
    >>> len(scales), [name for name, _ in scales.named_parameters()]
    (2, ['0', '1'])
    """

    def __init__(self, values: Iterable[Any] | None = None) -> None:
        super().__init__()
        self._size = 0
        self.extend(() if values is None else values)

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Any]:
        return iter([getattr(self, str(i)) for i in range(self._size)])

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return type(self)(list(self)[index])
        return getattr(self, self._name(index))

    def __setitem__(self, index: int, value: Any) -> None:
        setattr(self, self._name(index), _as_parameter(value))

    def _name(self, index: Any) -> str:
        if isinstance(index, bool) or not hasattr(index, "__index__"):
            raise ArgumentError("ParameterList", f"an index must be an int or a slice, got {index!r}")
        if not -self._size <= int(index) < self._size:
            places = f"{-self._size}..{self._size - 1}"
            raise BoundsError("ParameterList", f"an index must be in {places}, got {int(index)}")
        return str(int(index) % self._size)

    def append(self, value: Any) -> Self:
        """Add a parameter at the end; returns the list."""
        setattr(self, str(self._size), _as_parameter(value))
        self._size += 1
        return self

    def extend(self, values: Iterable[Any]) -> Self:
        """Add parameters at the end; returns the list."""
        for value in values:
            self.append(value)
        return self

    def extra_repr(self) -> str:
        """The shapes."""
        return ", ".join(_told(str(i), value) for i, value in enumerate(self))


class ParameterDict(Module):
    """Parameters by name; tensors that are put into it become parameters.

    >>> import weft
    >>> from weft import nn
    >>> parts = nn.ParameterDict({"left": weft.ones(2)})
    >>> parts["right"] = weft.ones(3)
    >>> list(parts), len(list(parts.parameters()))
    (['left', 'right'], 2)
    """

    def __init__(self, parameters: Mapping[str, Any] | Iterable[tuple[str, Any]] | None = None) -> None:
        super().__init__()
        self._keys: tuple[str, ...] = ()
        self.update({} if parameters is None else parameters)

    def update(self, parameters: Mapping[str, Any] | Iterable[tuple[str, Any]]) -> None:
        """Add or replace parameters."""
        for name, value in dict(parameters).items():
            self[name] = value

    def __setitem__(self, name: str, value: Any) -> None:
        if name not in self._keys and hasattr(self, name):
            raise ArgumentError("ParameterDict", f"a name must not be that of an attribute, got {name!r}")
        setattr(self, name, _as_parameter(value))
        if name not in self._keys:
            self._keys = (*self._keys, name)

    def __getitem__(self, name: str) -> Any:
        if name not in self._keys:
            raise KeyError(name)
        return getattr(self, name)

    def __delitem__(self, name: str) -> None:
        self._keys = tuple(k for k in self._keys if k != name)
        delattr(self, name)

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __contains__(self, name: object) -> bool:
        return name in self._keys

    def keys(self) -> Iterable[str]:
        """The names."""
        return list(self._keys)

    def values(self) -> Iterable[Any]:
        """The parameters."""
        return [getattr(self, name) for name in self._keys]

    def items(self) -> Iterable[tuple[str, Any]]:
        """Names and parameters."""
        return [(name, getattr(self, name)) for name in self._keys]

    def get(self, name: str, default: Any = None) -> Any:
        """The parameter of a name, or something else if there is none."""
        return getattr(self, name) if name in self._keys else default

    def pop(self, name: str) -> Any:
        """Take a parameter out; returns it."""
        value = self[name]
        del self[name]
        return value

    def extra_repr(self) -> str:
        """The shapes."""
        return ", ".join(_told(name, value) for name, value in self.items())
