"""``weft.custom_op``: ops declared by users, which then are ops like any other.

A custom op is an entry in the same table, under a name with a namespace: it records, differentiates to any
order, runs under every transform, and appears in graphs. What is checked here and taken on trust elsewhere
is that the parts of the declaration fit together, and that kernel and gradient keep to the declared types.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from weft.base.public import parameters, public
from weft.base.shapes import normalize_axes, size_of
from weft.errors import ArgumentError, GradientError, ShapeError
from weft.ir.types import TensorType
from weft.ops.batching import batch_leading, shifted_axes
from weft.ops.families import elementwise
from weft.ops.op import (
    FOLDS,
    OPS,
    Array,
    NoGradient,
    Op,
    Rule,
    Sample,
    Samples,
    Tensor,
    TensorLike,
    View,
    type_of,
)
from weft.ops.reduce import reduction_type
from weft.tensor.dispatch import declared_rule

_LITERALS = (bool, int, float, complex, str, bytes, type(None), np.dtype)


@public
def custom_op(
    name: str,
    *,
    gradient: object = None,
    partials: Sequence[Any] | None = None,
    type_rule: Callable[..., Any] | None = None,
    batch: object = None,
    jvp: Callable[..., Any] | None = None,
    scalar: Callable[..., Any] | None = None,
    fold: str | None = None,
    view: View | None = None,
    outputs: int = 1,
    cuda: object = None,
    samples: object = None,
    replace: bool = False,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Declare an op whose kernel is the decorated function, on arrays.

    The function's positional parameters are the op's inputs, its keyword-only ones attributes, which are
    numbers, strings, dtypes and tuples of these. Rules name what they use, as in ``lambda g, x, factor``:
    ``g`` is the gradient of the output (a list, if there are several), then any of the inputs, attributes,
    ``out`` (``outs``), and ``x_type``, the type of ``x`` alone. They are written in weft's functions.

    Args:
        name: with a namespace, such as ``"mylib::scale"``.
        gradient: a rule for each input, or one that returns the gradients of all; for an op of one input
            its rule; ``weft.no_gradient("why")`` where there is none.
        partials: instead of gradient, for an op that works element by element: its derivative by each
            input, a number or a function of the inputs and ``out``. Type rule and batching then follow.
        type_rule: from the ``TensorType`` of each input, and attributes, to that of the output or a tuple.
        batch: ``(op, size, inputs, axes, attrs) -> (output, axis)``, or "leading" if the kernel takes any
            axes before its own; without it ``vmap`` runs the op for each example.
        jvp: ``(primals, tangents, outs, **attrs) -> tangents``; without it the gradient is transposed.
        scalar: code of an op with partials, for compiled programs: it is then fused as weft's own are, and
            so is an op with a fold or a view; others are run by Python.
        fold: instead of type_rule and batch, for a reduction: the instruction that makes one element of two
            ("add", "mul", "max", "min", "and_", "or_"). Attributes are ``axes`` and ``keepdims``.
        view: of an op that gives elements of its one input in another order: where one lies there, a
            function ``(index, x, **attrs) -> index`` of the output's index, by sums and multiples; or "flat"
            if elements keep their order.
        outputs: number of outputs.
        cuda: a kernel of ``weft.cuda.kernel`` that runs the op on tensors of a GPU; without it they go
            through the host. It is given the inputs, the attributes and the outputs, in this order.
        samples: calls for ``weft.testing.check_op``: tuples of arrays, or ``weft.testing.Sample``.
        replace: take the place of an op of the same name.

    >>> import weft
    >>> @weft.custom_op(
    ...     "doc::scale",
    ...     type_rule=lambda x, *, factor: x,
    ...     gradient=lambda g, factor: g * factor,
    ...     replace=True,
    ... )
    ... def scale(x, *, factor=2.0):
    ...     return x * factor
    >>> x = weft.tensor(3.0, requires_grad=True)
    >>> scale(x, factor=5.0).backward()
    >>> x.grad
    tensor(5.)
    >>> weft.remove_custom_op("doc::scale")
    """
    _check_name(name, replace)

    def declare(kernel: Callable[..., Any]) -> Callable[..., Any]:
        declaration = _Declaration(name, kernel, outputs)
        common = {"jvp": jvp, "samples": _as_samples(samples)}
        if fold is not None:
            _check_absent(name, "fold", type_rule=type_rule, batch=batch, view=view)
        with _free_name(name):
            if partials is None:
                op = declaration.primitive(gradient, type_rule, batch, scalar, fold, view, **common)
            else:
                given = {"gradient": gradient, "type_rule": type_rule, "batch": batch}
                _check_absent(name, "partials", **given, fold=fold, view=view)
                op = declaration.elementwise(tuple(partials), scalar, **common)
            op.cuda = _checked_cuda(name, cuda, scalar=scalar, fold=fold, view=view)
        OPS[name] = op
        return declaration.function(op)

    return declare


def _checked_cuda(name: str, cuda: object, **others: object) -> object:
    if cuda is None:
        return None
    if not hasattr(cuda, "prepare"):
        got = type(cuda).__name__
        raise ArgumentError(name, f"cuda must be a kernel, got {got}", hint="make one by weft.cuda.kernel")
    for word, value in others.items():
        if value is not None:
            raise ArgumentError(name, f"the code for GPUs follows from {word}, got cuda, too")
    return cuda


@contextmanager
def _free_name(name: str) -> Iterator[None]:
    """A block in which no op has a name; if it fails, the one that had it has it again."""
    before = OPS.pop(name, None)
    try:
        yield
    except BaseException:
        if before is not None:
            OPS[name] = before
        raise


def _check_absent(name: str, source: str, **parts: object) -> None:
    for word, value in parts.items():
        if value is not None:
            raise ArgumentError(name, f"{word} follows from {source}, got both")


@public
def remove_custom_op(name: str) -> None:
    """Take a custom op out of the table; what was recorded with it still has its gradient.

    >>> import weft
    >>> weft.remove_custom_op("doc::none")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    weft.errors.ArgumentError: remove_custom_op: the op must be declared, got 'doc::none'
    ...
    """
    if "::" not in name or name not in OPS:
        raise ArgumentError("remove_custom_op", f"the op must be declared, got {name!r}")
    del OPS[name]


def _check_name(name: str, replace: bool) -> None:
    space, _, last = name.partition("::") if isinstance(name, str) else ("", "", "")
    if not (space.isidentifier() and last.isidentifier()):
        raise ArgumentError(
            "custom_op", f"the name must have a namespace, got {name!r}", hint='write it as "mylib::scale"'
        )
    if name in OPS and not replace:
        raise ArgumentError(
            "custom_op", f"the name must be new, got {name!r} again", hint="pass replace=True"
        )


def _as_samples(samples: Any) -> Callable[[], Iterable[Sample]] | None:
    if samples is None or callable(samples):
        return samples  # type: ignore[no-any-return]
    found = [s if isinstance(s, Sample) else Sample(tuple(map(np.asarray, s))) for s in samples]
    return lambda: found


class _Declaration:
    """A kernel and its signature, from which an op is made."""

    def __init__(self, name: str, kernel: Callable[..., Any], outputs: int) -> None:
        if not hasattr(kernel, "__code__"):
            raise ArgumentError(name, f"the kernel must be a Python function, got {type(kernel).__name__}")
        self.name = name
        self.kernel = kernel
        self.outputs = outputs
        self.inputs, self.attrs, self.variadic = parameters(kernel)
        self.defaults: dict[str, Any] = dict(kernel.__kwdefaults__ or {})
        if not self.inputs and not self.variadic:
            raise ArgumentError(name, "the kernel must have a positional parameter for each input, got none")
        for key, value in self.defaults.items():
            self._check_literal(key, value)

    def elementwise(
        self, partials: tuple[Any, ...], scalar: Rule | None, *, jvp: Rule | None, samples: Samples | None
    ) -> Op:
        """An op that works element by element."""
        if self.attrs or self.variadic or self.outputs != 1 or len(self.inputs) > 3:
            raise ArgumentError(
                self.name,
                "a kernel with partials must have one to three inputs, one output and no attributes",
            )
        self._check_count("partials", partials)
        known = {*self.inputs, "out"}
        for partial in partials:
            for parameter in parameters(partial)[0] if callable(partial) else ():
                self._check_known(parameter, known)
        op = elementwise(
            self.name,
            eval=lambda *arrays: None,
            arity=len(self.inputs),
            partials=partials,
            scalar=scalar,
            accepts="fc",
            jvp=jvp,
            samples=samples,
        )
        op.inputs = self.inputs
        op.eval = self._checked_kernel(op.type_rule)
        op.host = scalar is None
        try:
            assert op.cost  # counting runs the code
        except Exception as error:
            raise ArgumentError(
                self.name, f"scalar must be code for {len(self.inputs)} numbers, got {error!r}"
            ) from error
        return op

    def primitive(
        self,
        gradient: Any,
        type_rule: Any,
        batch: Any,
        scalar: Rule | None,
        fold: str | None,
        view: View | None,
        *,
        jvp: Rule | None,
        samples: Samples | None,
    ) -> Op:
        """An op declared in full."""
        if scalar is not None:
            raise ArgumentError(self.name, "scalar code belongs to an op with partials, got it without")
        if fold is not None:
            self._check_fold(fold)
            type_rule, batch = reduction_type(self.name, fold), batch_leading(shifted_axes)
        for word, value in (("gradient", gradient), ("type_rule", type_rule)):
            if value is None:
                hint = 'weft.no_gradient("why") says that there is none' if word == "gradient" else None
                raise ArgumentError(self.name, f"the op must have a {word}, got none", hint=hint)
        if callable(gradient) and len(self.inputs) == 1 and not self.variadic:
            gradient = (gradient,)
        if isinstance(gradient, tuple | list):
            gradient = tuple(gradient)
            self._check_count("gradient", gradient)
        rule = self._checked_types(type_rule)
        if view is not None:
            rule = self._checked_view(view, rule)
        op = Op(
            self.name,
            inputs=self.inputs,
            attrs=self.attrs,
            variadic=self.variadic,
            outputs=self.outputs,
            eval=self._checked_kernel(rule),
            type_rule=rule,
            vjp=gradient,
            jvp=jvp,
            batch=batch_leading() if batch == "leading" else batch,
            samples=samples,
            defaults=self.defaults,
            fold=fold or "",
            view=view,
            host=fold is None and view is None,
            fallible=fold is None and view is None,  # a kernel in Python may raise anything
            raises=Exception if fold is None and view is None else None,
        )
        if not isinstance(gradient, NoGradient):
            self._check_rules(gradient)
            _check_gradients(op)
        return op

    def function(self, op: Op) -> Callable[..., Any]:
        """What the user calls; the op itself is its attribute ``op``."""

        def call(*inputs: Any, **attrs: object) -> Tensor:
            if len(inputs) < len(self.inputs) or (len(inputs) > len(self.inputs) and not self.variadic):
                names = ", ".join(self.inputs)
                raise ArgumentError(
                    self.name, f"takes {len(self.inputs)} inputs ({names}), got {len(inputs)}"
                )
            self._check_inputs(inputs)
            full = self._complete(attrs)
            if op.fold:
                full["axes"] = normalize_axes(self.name, full["axes"], np.ndim(inputs[0]))
            return op(*inputs, **full)

        functools.update_wrapper(call, self.kernel)
        call.op = op  # type: ignore[attr-defined]
        return call

    def _check_inputs(self, inputs: Sequence[Any]) -> None:
        for x in inputs:
            if not isinstance(x, TensorLike | np.ndarray | np.generic | bool | int | float | complex):
                hint = "make it one with weft.tensor(...)" if isinstance(x, list | tuple) else None
                raise ArgumentError(self.name, f"inputs must be tensors, got {type(x).__name__}", hint=hint)
        if not any(isinstance(x, TensorLike | np.ndarray | np.generic) for x in inputs):
            raise ArgumentError(self.name, "one of the inputs must be a tensor, got Python numbers only")

    def _complete(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Attributes with their defaults, in the declared order."""
        for key, value in attrs.items():
            if key not in self.attrs:
                hint = f"it takes {', '.join(self.attrs)}" if self.attrs else "it takes none"
                raise ArgumentError(self.name, f"unknown keyword {key!r}", hint=hint)
            self._check_literal(key, value)
        full = self.defaults | attrs
        for key in self.attrs:
            if key not in full:
                raise ArgumentError(self.name, f"the attribute {key!r} must be given")
        return {key: full[key] for key in self.attrs}

    def _check_literal(self, key: str, value: object) -> None:
        if isinstance(value, tuple):
            for item in value:
                self._check_literal(key, item)
        elif not isinstance(value, _LITERALS):
            raise ArgumentError(
                self.name,
                f"the attribute {key!r} must be a number, string, dtype or tuple, got {type(value).__name__}",
            )

    def _check_count(self, word: str, rules: Sequence[Any]) -> None:
        if len(rules) != len(self.inputs) or self.variadic:
            raise ArgumentError(
                self.name,
                f"{word} must have one rule for each of {len(self.inputs)} inputs, got {len(rules)}",
            )

    def _check_fold(self, fold: str) -> None:
        if fold not in FOLDS:
            raise ArgumentError(self.name, f"fold must be one of {', '.join(FOLDS)}, got {fold!r}")
        if len(self.inputs) != 1 or self.variadic or set(self.attrs) != {"axes", "keepdims"}:
            raise ArgumentError(
                self.name, "a kernel with a fold must have one input and the attributes axes and keepdims"
            )

    def _checked_view(self, view: View, type_rule: Callable[..., Any]) -> Callable[..., Any]:
        """The type rule of a view, which changes no dtype; a flat one keeps the number of elements, too."""
        if len(self.inputs) != 1 or self.variadic or self.outputs != 1:
            raise ArgumentError(self.name, "a view must have one input and one output")
        if view != "flat":
            if not callable(view):
                raise ArgumentError(self.name, f'view must be a function or "flat", got {view!r}')
            positional, keywords, _ = parameters(view)
            if len(positional) < 2 or {*positional[2:], *keywords} != set(self.attrs):
                listed = ", ".join(("index", "x", *self.attrs))
                raise ArgumentError(self.name, f"view must be a function of ({listed})")

        def rule(x: TensorType, **attrs: Any) -> Any:
            out = type_rule(x, **attrs)
            if out.dtype != x.dtype or (view == "flat" and size_of(out.shape) != size_of(x.shape)):
                kept = "dtype and number of elements" if view == "flat" else "dtype"
                raise ShapeError(self.name, f"a view must keep the {kept}, got {x} to {out}")
            return out

        return rule

    def _check_known(self, parameter: str, known: set[str]) -> None:
        if parameter not in known:
            listed = ", ".join(sorted(known))
            raise ArgumentError(self.name, f"a rule asks for {parameter!r}, which is none of {listed}")

    def _check_rules(self, gradient: Any) -> None:
        """Raise if a rule cannot be called with what it asks for."""
        tensors = {*self.inputs, self.variadic} - {""}
        known = {*tensors, *self.attrs, "out", "outs", *(f"{t}_type" for t in tensors)}
        for rule in (gradient,) if callable(gradient) else gradient:
            if isinstance(rule, NoGradient):
                continue
            if not hasattr(rule, "__code__"):
                raise ArgumentError(self.name, f"a rule must be a function, got {type(rule).__name__}")
            if not parameters(rule)[0]:
                raise ArgumentError(
                    self.name, "a rule must take the gradient of the output first, got no parameters"
                )
            for parameter in parameters(rule)[0][1:]:
                self._check_known(parameter, known)

    def _checked_types(self, type_rule: Callable[..., Any]) -> Callable[..., Any]:
        def rule(*types: TensorType, **attrs: object) -> TensorType | tuple[TensorType, ...]:
            out = type_rule(*types, **attrs)
            listed = list(out) if isinstance(out, tuple | list) else [out]
            if len(listed) != self.outputs or not all(isinstance(t, TensorType) for t in listed):
                got = ", ".join(str(t) if isinstance(t, TensorType) else type(t).__name__ for t in listed)
                raise ArgumentError(self.name, f"type_rule must return {self.outputs} types, got {got}")
            return tuple(listed) if self.outputs > 1 else listed[0]

        return rule

    def _checked_kernel(self, type_rule: Callable[..., Any]) -> Callable[..., Any]:
        """The kernel on arrays it cannot change, whose results must be of the declared types."""

        def kernel(*arrays: Array, **attrs: object) -> Any:
            declared = type_rule(*map(type_of, arrays), **attrs)
            result = self.kernel(*map(_read_only, arrays), **attrs)
            if self.outputs == 1:
                return self._checked(result, declared)
            if not isinstance(result, tuple | list) or len(result) != self.outputs:
                got = len(result) if isinstance(result, tuple | list) else type(result).__name__
                raise ArgumentError(self.name, f"the kernel must return {self.outputs} arrays, got {got}")
            return tuple(self._checked(r, t) for r, t in zip(result, declared, strict=True))

        return kernel

    def _checked(self, result: object, declared: TensorType) -> Array:
        if not isinstance(result, np.ndarray | np.generic):
            raise ArgumentError(self.name, f"the kernel must return an array, got {type(result).__name__}")
        array = np.asarray(result)
        if type_of(array) != declared:
            raise ShapeError(
                self.name, f"the kernel must return {declared}, as its type rule says, got {_describe(array)}"
            )
        return array


def _describe(array: Array) -> str:
    return f"{array.dtype.name}[{','.join(map(str, array.shape))}]"


def _read_only(array: Array) -> Array:
    view = np.asarray(array).view()
    view.flags.writeable = False
    return view


def _check_gradients(op: Op) -> None:
    """Have the backward rule of an op check the gradients it gives."""
    rule, plan = declared_rule(op)
    where = [plan.position(f"{name}_type") for name in op.inputs]
    rest = plan.position(f"{op.variadic}_type") if op.variadic else None
    rule.slots = tuple(plan.slots)
    run = rule.run

    def checked(g: Tensor, saved: Any, edges: Any) -> Sequence[Any]:
        grads = run(g, saved, edges)
        types = [saved[i] for i in where] + (list(saved[rest]) if rest is not None else [])
        if not isinstance(grads, tuple | list) or len(grads) != len(types):
            got = len(grads) if isinstance(grads, tuple | list) else "one that is no tuple"
            raise GradientError(
                op.name, f"gradient must return one for each of {len(types)} inputs, got {got}"
            )
        for i, (grad, expected, edge) in enumerate(zip(grads, types, edges, strict=True)):
            if grad is not None and edge is not None and type_of(grad) != expected:
                raise ShapeError(
                    op.name, f"the gradient of input {i} must be of type {expected}, got {type_of(grad)}"
                )
        return grads

    rule.run = checked
