"""``check_op``: everything that weft's own tests demand of an op, for ops that users declare."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from weft.base.dtypes import kind
from weft.errors import ArgumentError, GradientError
from weft.ops.op import OPS, NoGradient, Op, Sample, type_of
from weft.tensor.tensor import Tensor, wrap
from weft.testing.compare import assert_close
from weft.testing.gradcheck import check_vmap, gradcheck, gradgradcheck


def check_op(
    op: Any, samples: Iterable[Any] | None = None, *, reference: Callable[..., Any] | None = None
) -> None:
    """Check an op on samples: types, values, gradients to second order in both modes, ``vmap``.

    Where it has scalar code, a fold or a view, what is compiled from these must give the kernel's values.

    Args:
        op: an op, what ``weft.custom_op`` gave, or its name.
        samples: tuples of arrays or ``weft.testing.Sample``; by default those of the declaration.
        reference: another function of arrays that gives the same values.

    >>> import weft, numpy as np
    >>> @weft.custom_op("doc::cube", partials=[lambda x: 3.0 * x * x], samples=[[np.ones(3)]], replace=True)
    ... def cube(x):
    ...     return x * x * x
    >>> weft.testing.check_op(cube, reference=lambda x: x**3)
    >>> weft.remove_custom_op("doc::cube")
    """
    found = _find(op)
    own = () if found.samples is None else found.samples()
    given = own if samples is None else samples
    listed = [s if isinstance(s, Sample) else Sample(tuple(map(np.asarray, s))) for s in given]
    if not listed:
        raise ArgumentError("check_op", f"there must be samples to check {found.name} on, got none")
    for i, sample in enumerate(listed):
        try:
            _check(found, sample, reference)
        except (AssertionError, GradientError) as error:
            error.add_note(
                f"in sample {i} of {found.name}: {', '.join(str(type_of(a)) for a in sample.inputs)}"
            )
            raise


def _find(op: Any) -> Op:
    if isinstance(op, str) and op in OPS:
        return OPS[op]
    found = getattr(op, "op", op)
    if not isinstance(found, Op):
        raise ArgumentError("check_op", f"must be given an op or its name, got {op!r}")
    return found


def _check(op: Op, sample: Sample, reference: Callable[..., Any] | None) -> None:
    def call(*inputs: Any) -> Any:
        return op.on_tensors(*inputs, **sample.attrs)

    inputs = tuple(wrap(a) for a in sample.inputs)
    outs = _listed(call(*inputs))
    declared = _listed(op.type_rule(*map(type_of, inputs), **sample.attrs))
    actual = [type_of(o) for o in outs]
    if actual != declared:
        raise AssertionError(
            f"{op.name}: the type rule says {_words(declared)}, the kernel gave {_words(actual)}"
        )
    if reference is not None:
        for out, expected in zip(outs, _listed(reference(*sample.inputs, **sample.attrs)), strict=True):
            assert_close(out, np.asarray(expected, out.dtype))
    if op.scalar is not None or op.fold or op.view is not None:
        _check_compiled(op, call, inputs, outs)
    if sample.smooth and not isinstance(op.vjp, NoGradient) and _is_double(inputs):
        gradcheck(call, inputs)
        gradgradcheck(call, inputs)
    for in_axes in ([0] * len(inputs), [0, *[None] * (len(inputs) - 1)]):
        args = tuple(x if a is None else _batch(x) for x, a in zip(inputs, in_axes, strict=True))
        check_vmap(call, args, tuple(in_axes))


def _check_compiled(op: Op, call: Callable[..., Any], inputs: Sequence[Tensor], outs: list[Any]) -> None:
    """Compare what is compiled from the declaration with what the kernel gave."""
    import weft

    for out, expected in zip(_listed(weft.compile(call)(*inputs)), outs, strict=True):
        try:
            assert_close(out, expected)
        except AssertionError as error:
            error.add_note(f"compiled by the scalar code, fold or view of {op.name}, against its kernel")
            raise


def _listed(items: Any) -> list[Any]:
    return list(items) if isinstance(items, tuple | list) else [items]


def _words(types: list[Any]) -> str:
    return ", ".join(map(str, types))


def _is_double(inputs: Iterable[Tensor]) -> bool:
    """Whether finite differences can be taken: there are floats, and all are of double precision."""
    widths = [x.dtype.itemsize // (2 if kind(x.dtype) == "c" else 1) for x in inputs if kind(x.dtype) in "fc"]
    return bool(widths) and all(width == 8 for width in widths)


def _batch(x: Tensor) -> Tensor:
    """Three examples, each like x."""
    array = x.numpy()
    scales = (1.0, 1.01, 0.99) if kind(x.dtype) in "fc" else (1, 1, 1)
    return wrap(np.stack([(array * s).astype(array.dtype) for s in scales]))
