"""Calls of cuDNN by its graph API (the package nvidia-cudnn-frontend): attention and convolutions, both ways.

A plan is made once for shapes, strides and dtype, kept in memory, and on disk in the library's own form.
"""

from __future__ import annotations

import threading
from ast import literal_eval
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import Any

from weft.backends.cuda.card import Card, PerCard
from weft.backends.cuda.front_end import load_front_end
from weft.backends.cuda.program import CudaProgram, LibraryCall, all_steps, evaluate
from weft.backends.cuda.streams import Stream
from weft.backends.llvm.cache import default_cache
from weft.base.records import NamedTuple
from weft.errors import DeviceError, DeviceMemoryError
from weft.ops.library_conv import library_conv_add, library_conv_input_add

IN_ORDER = True  # gradients of attention are summed in a fixed order: the same bits each time
_OLDEST = 90300  # cuDNN 9.3: attention both ways on all cards from Ampere on


@cache
def _front_end() -> Any:
    return load_front_end()


@cache
def has_cudnn() -> bool:
    """Whether cuDNN and its front end are there."""
    try:
        return int(_front_end().backend_version()) >= _OLDEST
    except Exception:  # whatever keeps it from being used, programs do without
        return False


class Operand(NamedTuple):
    """An array that the library is told of."""

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def nbytes(self) -> int:
        """From its first element to its last."""
        last = sum((n - 1) * s for n, s in zip(self.shape, self.strides, strict=True))
        return (last + 1) * (4 if self.dtype == "float32" else 2)


class _Library:
    """cuDNN on one device: its handle, which serves one call at a time.

    Attributes:
        api: the module of the front end.
        handle: of the library.
        lock: held while the handle is told of a stream and called.
    """

    def __init__(self, card: Card) -> None:
        card.enter()
        self.card = card
        self.api = _front_end()
        self.handle = self.api.create_handle()
        self.lock = threading.RLock()
        self.calls: dict[Any, Call] = {}


_libraries = PerCard(_Library)


def forget_libraries() -> None:
    """Drop all handles and plans, for tests that put another driver in place."""
    _libraries.forget()


class Call:
    """An op that the library has a plan for.

    Attributes:
        workspace: bytes that it works in; whoever calls gives them.
        operands: inputs and outputs.
    """

    def __init__(self, library: _Library, name: str, given: Sequence[Operand], attrs: dict[str, Any]) -> None:
        self._library = library
        self.operands = given
        self._parts = _parts(name, given)
        with library.lock:
            self._plan = _planned(library, name, given, attrs)
            self.workspace = int(self._plan.get_workspace_size())

    @classmethod
    def of(cls, card: Card, step: LibraryCall, sizes: Mapping[str, int]) -> Call:
        """The call of a step; equal ones are one."""
        library = _libraries.of(card)
        operands = _operands(step, sizes)
        key = (step.name, operands, step.attrs)
        with library.lock:
            known = library.calls.get(key)
            if known is None:
                known = library.calls[key] = cls(library, step.name, operands, literal_eval(step.attrs))
        return known

    def run(self, pointers: Sequence[int], workspace: int, stream: Stream) -> None:
        """Compute on a stream; pointers are those of inputs and outputs, in order."""
        library = self._library
        with library.lock:
            library.api.set_stream(library.handle, stream.handle)
            places = {uid: pointers[at] + offset for uid, (at, offset) in enumerate(self._parts, 1)}
            self._plan.execute(places, workspace, handle=library.handle)


def has_plans(card: Card, program: CudaProgram) -> bool:
    """Whether the library has a plan for each call of a program; what it makes is there for the run."""
    try:
        for step in all_steps(program.steps):
            if isinstance(step, LibraryCall) and step.name in _BUILDERS:
                Call.of(card, step, {})
    except DeviceMemoryError:
        raise
    except DeviceError:
        return False
    return True


def has_biases(program: CudaProgram) -> bool:
    """Whether a program leaves convolutions with a bias to the library."""
    calls = (step.name for step in all_steps(program.steps) if isinstance(step, LibraryCall))
    return not {library_conv_add.name, library_conv_input_add.name}.isdisjoint(calls)


def _operands(step: LibraryCall, sizes: Mapping[str, int]) -> tuple[Operand, ...]:
    """Inputs and outputs; the latter are dense."""
    out = []
    for i, kind in enumerate(step.arrays):
        shape = tuple([evaluate(s, sizes) for s in kind.shape])
        if i < len(step.inputs):
            strides = tuple([evaluate(x, sizes) for x in step.strides[i]])
        else:
            strides = _dense(shape)
        out.append(Operand(kind.dtype.name, shape, strides))
    return tuple(out)


def _parts(name: str, given: Sequence[Operand]) -> list[tuple[int, int]]:
    """By number of a tensor of the plan, which operand it is in, and how many bytes from its begin."""
    whole = [(i, 0) for i in range(len(given))]
    if name != "library_attention_packed":
        return whole
    last, size = given[-1], 2  # bytes of half precision
    return [*whole[:-1], *[(len(given) - 1, i * last.strides[2] * size) for i in range(3)]]


def _dense(shape: Sequence[int]) -> tuple[int, ...]:
    strides = [1] * len(shape)
    for axis in reversed(range(len(shape) - 1)):
        strides[axis] = strides[axis + 1] * shape[axis + 1]
    return tuple(strides)


# Plans


def _planned(library: _Library, name: str, given: Sequence[Operand], attrs: dict[str, Any]) -> Any:
    """The plan of an op, from disk or made and put there."""
    kept_by, key = default_cache(), _key(library, name, given, attrs)
    plan = _restored(library, kept_by.get(key))
    if plan is not None:
        return plan
    plan = _graph(library)
    _BUILDERS[name](library.api, plan, given, attrs)
    try:
        plan.build([library.api.heur_mode.A, library.api.heur_mode.FALLBACK])
    except Exception as error:
        raise DeviceError(name, f"cuDNN must have a plan for it, got: {str(error)[:200]}") from None
    with suppress(Exception):  # not every plan can be kept
        kept_by.put(key, bytes(plan.serialize()))
    return plan


def _restored(library: _Library, kept: bytes | None) -> Any:
    """The plan that was kept; None where there is none, or the library does not take it any more."""
    if kept is None:
        return None
    plan = _graph(library)
    with suppress(Exception):
        plan.deserialize(library.handle, bytearray(kept))
        return plan
    return None


def _key(library: _Library, name: str, given: Sequence[Operand], attrs: dict[str, Any]) -> tuple[str, ...]:
    card, api = library.card, library.api
    versions = (api.__version__, api.backend_version(), int(card.driver.cuDriverGetVersion()))
    about = (*versions, IN_ORDER, name, tuple(given), tuple(attrs.items()))
    return ("cudnn", card.name, card.architecture, *map(str, about))


def _graph(library: _Library) -> Any:
    types = library.api.data_type
    return library.api.pygraph(
        intermediate_data_type=types.FLOAT, compute_data_type=types.FLOAT, handle=library.handle
    )


def _type(api: Any, name: str) -> Any:
    names = {"bfloat16": "BFLOAT16", "float16": "HALF", "float32": "FLOAT"}
    return getattr(api.data_type, names[name])


def _channels_first(values: Sequence[int]) -> list[int]:
    """From (batch, height, width, channels) to the library's order."""
    batch, height, width, channels = values
    return [batch, channels, height, width]


def _by_heads(values: Sequence[int]) -> list[int]:
    """From (batch, places, heads, features) to the library's order."""
    batch, places, heads, features = values
    return [batch, heads, places, features]


_Order = Callable[[Sequence[int]], list[int]]
_Build = Callable[[Any, Any, Sequence[Operand], dict[str, Any]], None]


def _given(api: Any, plan: Any, place: int, x: Operand, order: _Order = _by_heads) -> Any:
    shape, strides = order(x.shape), order(x.strides)
    return plan.tensor(
        dim=shape, stride=strides, data_type=_type(api, x.dtype), uid=place + 1, name=f"t{place}"
    )


def _result(api: Any, tensor: Any, place: int, x: Operand, order: _Order = _by_heads) -> None:
    shape, strides = order(x.shape), order(x.strides)
    tensor.set_output(True).set_dim(shape).set_stride(strides)
    tensor.set_data_type(_type(api, x.dtype)).set_uid(place + 1)


def _attention(api: Any, plan: Any, given: Sequence[Operand], attrs: dict[str, Any]) -> None:
    query, keys, values = (_given(api, plan, i, x) for i, x in enumerate(given[:3]))
    out, sums = plan.sdpa(
        name="attention", q=query, k=keys, v=values, generate_stats=True, attn_scale=attrs["scale"],
        use_causal_mask=attrs["causal"],
    )  # fmt: skip
    _result(api, out, 3, given[3])
    _result(api, sums, 4, given[4], list)


def _attention_gradient(api: Any, plan: Any, given: Sequence[Operand], attrs: dict[str, Any]) -> None:
    tensors = [_given(api, plan, i, x, list if i == 5 else _by_heads) for i, x in enumerate(given[:6])]
    query, keys, values, out, g, sums = tensors
    found = plan.sdpa_backward(
        name="attention_gradient", q=query, k=keys, v=values, o=out, dO=g, stats=sums,
        attn_scale=attrs["scale"], use_causal_mask=attrs["causal"],
        use_deterministic_algorithm=IN_ORDER,
    )  # fmt: skip
    for place, (tensor, operand) in enumerate(zip(found, _separate(given[6:]), strict=True), 6):
        _result(api, tensor, place, operand)


def _separate(results: Sequence[Operand]) -> Sequence[Operand]:
    """Gradients as the library sees them, where they lie side by side."""
    if len(results) == 3:
        return results
    (whole,) = results
    return [Operand(whole.dtype, *((*v[:2], *v[3:]) for v in (whole.shape, whole.strides)))] * 3


def _convolution(kind: str, first: str, second: str) -> _Build:
    """A convolution, or a gradient of one: what its two sides are called."""

    def build(api: Any, plan: Any, given: Sequence[Operand], attrs: dict[str, Any]) -> None:
        left, right = (_given(api, plan, i, x, _channels_first) for i, x in enumerate(given[:2]))
        out = getattr(plan, kind)(
            **{first: left, second: right},
            pre_padding=[lo for lo, _ in attrs["padding"]], post_padding=[hi for _, hi in attrs["padding"]],
            stride=list(attrs["stride"]), dilation=list(attrs["dilation"]), name=kind,
        )  # fmt: skip
        if len(given) == 4:  # what is between is in float32, as all that is not stored
            if kind == "conv_dgrad":  # several sizes have such a gradient
                shape, strides = (_channels_first(v) for v in given[-1][1:])
                out.set_dim(shape).set_stride(strides)
            row = _given(api, plan, 2, _as_image(given[2]), _channels_first)
            out = plan.bias(input=out, bias=row, name="bias")
        _result(api, out, len(given) - 1, given[-1], _channels_first)

    return build


def _as_image(row: Operand) -> Operand:
    """A number for each channel as an image of one place."""
    (count,) = row.shape
    return Operand(row.dtype, (1, 1, 1, count), (count, count, count, *row.strides))


_BUILDERS: dict[str, _Build] = {
    "library_attention": _attention,
    "library_attention_gradient": _attention_gradient,
    "library_attention_packed": _attention_gradient,
    "library_conv": _convolution("conv_fprop", "image", "weight"),
    "library_conv_add": _convolution("conv_fprop", "image", "weight"),
    "library_conv_input": _convolution("conv_dgrad", "loss", "filter"),
    "library_conv_input_add": _convolution("conv_dgrad", "loss", "filter"),
    "library_conv_weight": _convolution("conv_wgrad", "image", "loss"),
}
