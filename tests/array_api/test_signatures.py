"""Every function and method of the standard is there and can be called as the standard says."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from inspect import Parameter
from typing import Any

import pytest

import weft
from tests.array_api.reference import strict

NOT_OF_THE_STANDARD = {
    "ArrayAPIStrictFlags",
    "Device",
    "get_array_api_strict_flags",
    "reset_array_api_strict_flags",
    "set_array_api_strict_flags",
    "broadcast_shapes",  # of a later revision
}
VARIADIC = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
BY_NAME = (Parameter.KEYWORD_ONLY, Parameter.POSITIONAL_OR_KEYWORD)

NAMES = sorted(set(strict.__all__) - NOT_OF_THE_STANDARD)
ATTRIBUTES = [name for name in vars(type(strict.ones(1))) if name in dir(strict.ones(1))]
ATTRIBUTES = [name for name in ATTRIBUTES if not name.startswith("_") or name.endswith("__")]
ATTRIBUTES = sorted(
    set(ATTRIBUTES)
    - {
        "__module__",
        "__doc__",
        "__slots__",
        "__weakref__",
        "__new__",
        "__annotations__",
        "__buffer__",
        "__array__",
    }
)


def parameters(function: Callable[..., Any]) -> list[Parameter]:
    return list(inspect.signature(function).parameters.values())


def misfits(ours: list[Parameter], standard: list[Parameter]) -> Iterator[str]:
    """What a caller who follows the standard would stumble over; further parameters are allowed."""
    named = {p.name: p for p in ours}
    for i, wanted in enumerate(standard):
        if wanted.kind is Parameter.KEYWORD_ONLY:
            found = named.get(wanted.name)
            if found is None or found.kind not in BY_NAME:
                yield f"{wanted.name}= is not a keyword"
                continue
        else:
            found = ours[i] if i < len(ours) else None
            if found is None or (found.kind in VARIADIC and wanted.kind not in VARIADIC):
                yield f"argument {i}, {wanted.name}, is missing"
                continue
            if wanted.kind is not Parameter.POSITIONAL_ONLY and found.kind is not wanted.kind:
                yield f"argument {i}, {wanted.name}, is {found.kind.description}"
            if wanted.kind is Parameter.POSITIONAL_OR_KEYWORD and found.name != wanted.name:
                yield f"argument {i}, {wanted.name}, is called {found.name}"
        if wanted.default is not Parameter.empty and not same_default(found.default, wanted.default):
            yield f"{wanted.name} has the default {found.default!r}, not {wanted.default!r}"


def same_default(ours: Any, standard: Any) -> bool:
    if type(standard).__name__ == "Undef":  # the reference's mark for "not given", None in the standard
        standard = None
    return bool(ours == standard) and isinstance(ours, bool) == isinstance(standard, bool)


def check(ours: Any, standard: Any) -> None:
    if callable(standard) and not isinstance(standard, type):
        assert list(misfits(parameters(ours), parameters(standard))) == []


@pytest.mark.parametrize("name", NAMES)
def test_namespace_has_the_name_with_the_signature_of_the_standard(name: str) -> None:
    check(getattr(weft, name), getattr(strict, name))


@pytest.mark.parametrize(
    ("extension", "name"), [(e, n) for e in ("linalg", "fft") for n in sorted(getattr(strict, e).__all__)]
)
def test_extension_has_the_name_with_the_signature_of_the_standard(extension: str, name: str) -> None:
    check(getattr(getattr(weft, extension), name), getattr(getattr(strict, extension), name))


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_tensor_has_the_attribute_with_the_signature_of_the_standard(name: str) -> None:
    shape = (2, 2) if name in ("T", "mT") else ()
    dtype = "int64" if name in ("__index__", "__invert__") else "bool" if name == "__bool__" else "float64"
    tensor, reference = weft.ones(shape, dtype=dtype), strict.ones(shape, dtype=getattr(strict, dtype))
    check(getattr(tensor, name), getattr(reference, name))


def test_dtypes_and_constants_are_there() -> None:
    for name in ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"):
        assert weft.zeros(1, dtype=getattr(weft, name)).dtype == getattr(weft, name)
    for name in ("float32", "float64", "complex64", "complex128"):
        assert weft.zeros(1, dtype=getattr(weft, name)).dtype == getattr(weft, name)
    assert (weft.e, weft.inf, weft.pi, weft.newaxis) == (strict.e, strict.inf, strict.pi, None)
    assert weft.nan != weft.nan


def test_namespace_says_which_revision_it_follows() -> None:
    assert weft.__array_api_version__ == "2024.12"
    for version in (None, "2021.12", "2022.12", "2023.12", "2024.12"):
        assert weft.ones(1).__array_namespace__(api_version=version) is weft
    with pytest.raises(ValueError, match=r"api_version must be one of .*, got '2020.01'"):
        weft.ones(1).__array_namespace__(api_version="2020.01")


def test_all_names_what_is_public_and_nothing_twice() -> None:
    public = {n for n in vars(weft) if not n.startswith("_") and not inspect.ismodule(getattr(weft, n))}
    assert len(weft.__all__) == len(set(weft.__all__))
    assert public - set(weft.__all__) == {"float", "int"}  # which would hide types of Python
    assert [n for n in weft.__all__ if not hasattr(weft, n)] == []
