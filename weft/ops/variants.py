"""Functions that are alike: written once with parameters more, of which each public name gives the values.

A variant has a signature, a name and a docstring of its own, as if it were written out. Its code is compiled
for them, as that of a dataclass's ``__init__`` is, so that a wrong call is Python's own error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import cleandoc
from typing import Any, Concatenate, ParamSpec, TypeVar

from weft.base.public import parameters, public
from weft.ops.op import Samples, Tensor, composite
from weft.ops.public import example_text

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

_AXES = ("the last axis", "the last two axes", "the last three axes")
_SIZES = ("L", "H, W", "D, H, W")


def variants(
    function: Callable[Concatenate[str, T, P], R], given: dict[str, T], *documents: str
) -> tuple[Callable[P, R], ...]:
    """A public function for each name, which gives its name and its value as the first two arguments."""
    made = plain_variants(function, given, documents)
    return tuple(public(variant) for variant in made)


def plain_variants(
    function: Callable[Concatenate[str, T, P], R], given: dict[str, T], documents: Sequence[str]
) -> list[Callable[P, R]]:
    """The same, which are not public yet."""
    make, found = _maker(function), []
    for (name, value), document in zip(given.items(), documents, strict=True):
        variant = make(function, name, value)
        variant.__name__ = variant.__qualname__ = name
        variant.__doc__ = document
        variant.__defaults__, variant.__kwdefaults__ = function.__defaults__, function.__kwdefaults__
        own = {*parameters(variant)[0], *parameters(variant)[1], "return"}
        variant.__annotations__ = {k: v for k, v in function.__annotations__.items() if k in own}
        found.append(variant)
    return found


def _maker(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that makes variants: closures whose parameters are those after the first two."""
    positional, keywords, _ = parameters(function)
    names = positional[2:]
    only = max(function.__code__.co_posonlyargcount - 2, 0)
    takes = [*names[:only], *["/"] * bool(only), *names[only:], *["*"] * bool(keywords), *keywords]
    passes = [*names, *(f"{name}={name}" for name in keywords)]
    lines = (
        "def make(function, name, value):",
        f"    def variant({', '.join(takes)}):",
        f"        return function(name, value, {', '.join(passes)})",
        "    return variant",
    )
    made: dict[str, Any] = {}
    code = compile("\n".join(lines), function.__code__.co_filename, "exec")
    exec(code, function.__globals__, made)  # noqa: S102 - of names of parameters alone
    return made["make"]  # type: ignore[no-any-return]


def of_ranks(
    function: Callable[Concatenate[str, int, P], Tensor],
    examples: dict[int, str],
    samples: Callable[[int], Samples],
    whole: tuple[str, ...] = (),
    precision: str = "",
    single: bool = False,
) -> tuple[Callable[P, Tensor], ...]:
    """The public composites for one, two and three axes of a function of its name, their number and the rest.

    Args:
        function: ``_pool`` gives ``pool1d``, ``pool2d`` and ``pool3d``. In its docstring ``{axes}`` are "the
            last two axes" and ``{sizes}`` "H, W", for instance.
        examples: one for each, by the number of axes.
        samples: of the generated tests, likewise.
        whole: of the composites.
        precision: of the composites.
        single: of the composites.
    """
    base, text = function.__name__.strip("_"), cleandoc(function.__doc__ or "")
    documents = [
        text.format(axes=_AXES[rank - 1], sizes=_SIZES[rank - 1])
        + example_text(f"weft.{base}{rank}d{example}")
        for rank, example in examples.items()
    ]
    made = plain_variants(function, {f"{base}{rank}d": rank for rank in examples}, documents)
    enter = [
        composite(samples=samples(rank), whole=whole, precision=precision, single=single) for rank in examples
    ]
    return tuple(e(variant) for e, variant in zip(enter, made, strict=True))
