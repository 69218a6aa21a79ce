"""One argument, several spellings: ``axis=`` is ``dim=`` to PyTorch's users, ``input=`` the first tensor.

Functions of weft follow the array API, methods of Tensor and ``nn.functional`` PyTorch. Where the two mean
different things by a name, what a call spells decides: ``dim=`` and ``keepdim=`` speak PyTorch's dialect,
``axis=`` and ``keepdims=`` the array API's, wherever the call is made. ``public`` asks this module only when
a call has such a word, or does not fit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.base.hooks import hooks
from weft.errors import ArgumentError

Call = tuple[tuple[Any, ...], dict[str, Any]]

# Words that are looked for in every call with keywords; the others only in calls that do not fit.
DIALECT = frozenset(
    [
        "dim",
        "keepdim",
        "dims",
        "dim0",
        "dim1",
        "dim2",
        "start_dim",
        "end_dim",
        "in_dims",
        "out_dims",
        "unbiased",
        "as_tuple",
        "ddof",
    ]
)
ARRAY_API = frozenset(("axis", "keepdims"))
_PYTORCH = frozenset(("dim", "keepdim", "unbiased", "as_tuple"))

# What an argument is called here, in the order in which names are tried.
NAMES: dict[str, tuple[str, ...]] = {
    "dim": ("axis", "axes"),
    "keepdim": ("keepdims",),
    "dims": ("axis", "axes"),
    "dim0": ("axis0",),
    "dim1": ("axis1",),
    "dim2": ("axis2",),
    "axis0": ("source",),
    "start_dim": ("start_axis",),
    "end_dim": ("end_axis",),
    "in_dims": ("in_axes",),
    "out_dims": ("out_axes",),
    "ddof": ("correction",),
    "axis": ("axes", "dim"),
    "axes": ("axis",),
    "size": ("shape",),
    "sizes": ("shape", "repetitions"),
    "newshape": ("shape",),
    "device_type": ("what",),
    "input": ("x", "x1", "condition", "probs", "p", "y"),
    "a": ("x", "x1"),
    "other": ("x2", "y"),
    "arr": ("x",),
    "tensors": ("arrays",),
    "object": ("obj",),
    "data": ("obj",),
    "shifts": ("shift",),
    "split_size_or_sections": ("size",),
    "split_size": ("size",),
    "indices_or_sections": ("size",),
    "index": ("indices",),
    "ord": ("p",),
    "p": ("ord",),
    "learning_rate": ("lr",),
    "end": ("stop",),
    "steps": ("num",),
    "diagonal": ("k",),
    "value": ("src", "fill_value"),
    "minval": ("low",),
    "maxval": ("high",),
    "num": ("n",),
    "a_min": ("min",),
    "a_max": ("max",),
    "constant_values": ("value",),
    "pad": ("pad_width",),
    "reps": ("repetitions",),
    "pattern": ("equation",),
    "src": ("source",),
    "func": ("f", "function"),
    "fun": ("f", "function"),
    "N": ("n",),
    "weights": ("weight",),
    "M": ("m",),
    "map_location": ("device",),
    "rcond": ("rtol",),
}

# Functions that mean something else in PyTorch, by module and name: ``weft.tensor.pytorch`` has them.
MEANT_OTHERWISE = frozenset(
    {
        "weft.ops.reduce.max",
        "weft.ops.reduce.min",
        "weft.ops.sort.sort",
        "weft.ops.statistics.median",
        "weft.ops.statistics.std",
        "weft.ops.statistics.var",
        "weft.ops.view.axes.squeeze",
        "weft.tensor.dynamic.nonzero",
    }
)

KEY_FIRST = (  # of functions of weft.random
    "make one with weft.random.key(seed): functions of weft.random take a key first, weft.rand, weft.randn, "
    "weft.normal and weft.randint take none"
)


_SPOKEN = frozenset(name for word in DIALECT for name in NAMES.get(word, ()))


def is_spoken(plain: Callable[..., Any], takes: tuple[tuple[str, ...], tuple[str, ...], str]) -> bool:
    """Whether a function takes what has another word elsewhere, so that its calls are looked at."""
    positional, keywords, rest = takes
    own = f"{plain.__module__}.{plain.__name__}"
    return own in MEANT_OTHERWISE or not _SPOKEN.isdisjoint((*positional, *keywords, rest))


def in_dialect(plain: Callable[..., Any], kwargs: dict[str, Any]) -> Any:
    """The function of PyTorch's meaning that a call asks for by its words; None if it means but one thing."""
    if f"{plain.__module__}.{plain.__name__}" not in MEANT_OTHERWISE:
        return None
    theirs = [word for word in kwargs if word in _PYTORCH]
    if not theirs:
        return None
    if mixed := [word for word in kwargs if word in ARRAY_API]:
        raise ArgumentError(
            plain.__name__,
            f"a call speaks one dialect, got {theirs[0]}= of PyTorch and {mixed[0]}= of the array API",
            hint=f"{plain.__name__} means different things in them: see docs/coming-from.md",
        )
    return hooks.pytorch_function(plain.__name__)


def respelled(
    name: str,
    takes: tuple[tuple[str, ...], tuple[str, ...], str],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Call | None:
    """A call with the words that a function takes, or None where none of its words is another's.

    What a function takes are names of positional parameters, of keywords, and of ``*rest`` or "".
    """
    positional, keywords, rest = takes
    known = (*positional, *keywords)
    out, more, changed = dict(kwargs), args, False
    for word in kwargs:
        own = next((n for n in (word, *NAMES.get(word, ())) if n in known or (rest and n == rest)), None)
        if own is None or (own == word and own != rest):
            continue
        if (
            (own in out and own != word)
            or own in positional[: len(args)]
            or (own == rest and more is not args)
        ):
            hint = KEY_FIRST if positional[:1] == ("key",) else None
            raise ArgumentError(name, f"{own}= and {word}= are one argument, got both", hint=hint)
        value = out.pop(word)
        if own == rest:
            more = (*args, value)
        else:
            out[own] = value
        changed = True
    if more is not args:
        return more, out
    return _by_place(positional, args, out) if changed else None


def _by_place(positional: tuple[str, ...], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
    """A call whose keywords are given by position as far as they follow what is: some are taken so alone."""
    given = list(args)
    for word in positional[len(args) :]:
        if word not in kwargs:
            break
        given.append(kwargs.pop(word))
    return tuple(given), kwargs
