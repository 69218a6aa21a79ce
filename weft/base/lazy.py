"""Attributes that are computed when they are first asked for, and kept.

``functools.cached_property`` of Python 3.11 holds a lock while it computes: if another thread did so while
the process forked, the child would wait for it for ever.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


class cached_property(Generic[T]):  # noqa: N801 - it is used as what it stands for
    """An attribute of an object that a method computes once; two threads may both compute it.

    >>> from weft.base.lazy import cached_property
    >>> class Circle:
    ...     radius = 2.0
    ...
    ...     @cached_property
    ...     def area(self):
    ...         print("computed")
    ...         return 3.0 * self.radius**2
    >>> circle = Circle()
    >>> circle.area, circle.area
    computed
    (12.0, 12.0)
    """

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self.compute = compute
        self.name = compute.__name__
        self.__doc__ = compute.__doc__

    @overload
    def __get__(self, obj: None, owner: type[Any]) -> cached_property[T]: ...

    @overload
    def __get__(self, obj: object, owner: type[Any]) -> T: ...

    def __get__(self, obj: Any, owner: type[Any]) -> cached_property[T] | T:
        if obj is None:
            return self
        found: T = obj.__dict__.setdefault(self.name, self.compute(obj))
        return found
