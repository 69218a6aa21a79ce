# ruff: noqa: N803 - the names are those of the library
"""A stand-in for the front end of cuDNN: its graphs are records, run by NumPy on the memory of a stand-in."""

from __future__ import annotations

import json
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from tests.backends.cuda.standin import StandIn
from weft.base.dtypes import bfloat16
from weft.ops.library_attention import library_attention, library_attention_gradient
from weft.ops.library_conv import (
    library_conv,
    library_conv_add,
    library_conv_input,
    library_conv_input_add,
    library_conv_weight,
)

_TYPES: dict[str, Any] = {"BFLOAT16": bfloat16, "HALF": np.float16, "FLOAT": np.float32}
_CONVOLUTIONS = {
    "conv_fprop": library_conv,
    "conv_fprop bias": library_conv_add,
    "conv_dgrad bias": library_conv_input_add,
    "conv_dgrad": library_conv_input,
    "conv_wgrad": library_conv_weight,
}


class Tensor:
    """A tensor of a graph: where it is comes with a call."""

    def __init__(self, **told: Any) -> None:
        self.told: dict[str, Any] = told

    def _set(self, name: str, value: Any) -> Tensor:
        self.told[name] = value
        return self

    def set_output(self, value: bool) -> Tensor:
        return self._set("output", value)

    def set_dim(self, value: Sequence[int]) -> Tensor:
        return self._set("dim", list(value))

    def set_stride(self, value: Sequence[int]) -> Tensor:
        return self._set("stride", list(value))

    def set_data_type(self, value: str) -> Tensor:
        return self._set("data_type", value)

    def set_uid(self, value: int) -> Tensor:
        return self._set("uid", value)


class Graph:
    """One op with its tensors."""

    def __init__(self, front: FrontEnd) -> None:
        self.front = front
        self.op: dict[str, Any] = {}

    def tensor(self, **told: Any) -> Tensor:
        return Tensor(**told)

    def _made(self, kind: str, inputs: Sequence[Tensor], outputs: int, **attrs: Any) -> Any:
        outs = [Tensor() for _ in range(outputs)]
        self.op = {"kind": kind, "inputs": inputs, "outputs": outs, "attrs": attrs}
        return outs[0] if outputs == 1 else outs

    def sdpa(self, *, name: str, q: Any, k: Any, v: Any, generate_stats: bool, **attrs: Any) -> Any:
        assert generate_stats
        return self._made("sdpa", [q, k, v], 2, **attrs)

    def sdpa_backward(self, *, name: str, q: Any, k: Any, v: Any, o: Any, dO: Any, **attrs: Any) -> Any:
        stats = attrs.pop("stats")
        assert attrs.pop("use_deterministic_algorithm")
        return self._made("sdpa_backward", [q, k, v, o, dO, stats], 3, **attrs)

    def conv_fprop(self, *, image: Any, weight: Any, **attrs: Any) -> Any:
        return self._made("conv_fprop", [image, weight], 1, **attrs)

    def conv_dgrad(self, *, loss: Any, filter: Any, **attrs: Any) -> Any:
        return self._made("conv_dgrad", [loss, filter], 1, **attrs)

    def conv_wgrad(self, *, image: Any, loss: Any, **attrs: Any) -> Any:
        return self._made("conv_wgrad", [image, loss], 1, **attrs)

    def bias(self, *, input: Any, bias: Any, name: str) -> Any:
        assert input is self.op["outputs"][0]
        assert self.op["kind"] == "conv_fprop" or "dim" in input.told
        assert bias.told["dim"][::2] == [1, 1]
        return self._made(f"{self.op['kind']} bias", [*self.op["inputs"], bias], 1, **self.op["attrs"])

    def build(self, modes: Sequence[str]) -> None:
        self.front.built += 1
        assert modes[0] == "A"

    def get_workspace_size(self) -> int:
        return 1000

    def serialize(self) -> bytes:
        told = {name: [t.told for t in self.op[name]] for name in ("inputs", "outputs")}
        return json.dumps(self.op | told).encode()

    def deserialize(self, handle: object, data: bytearray) -> None:
        op = json.loads(data)
        self.op = op | {name: [Tensor(**t) for t in op[name]] for name in ("inputs", "outputs")}

    def execute(self, places: dict[int, int], workspace: int, handle: object) -> None:
        front = self.front

        def work(stream: int) -> None:
            front.api.bytes_at(workspace, 1000, stream, writes=True)[:] = 0xAB
            inputs = [self._array(t, places, stream) for t in self.op["inputs"]]
            outputs = [self._array(t, places, stream, writes=True) for t in self.op["outputs"]]
            for out, found in zip(outputs, self._computed(inputs, outputs), strict=True):
                out[...] = found

        front.api.give(front.stream, work)

    def _array(self, tensor: Tensor, places: dict[int, int], stream: int, *, writes: bool = False) -> Any:
        told = tensor.told
        dtype = np.dtype(_TYPES[told["data_type"]])
        strides = [s * dtype.itemsize for s in told["stride"]]
        size = sum((n - 1) * s for n, s in zip(told["dim"], strides, strict=True)) + dtype.itemsize
        assert places[told["uid"]] % 16 == 0  # what the library takes for granted, unless it is told
        memory = self.front.api.bytes_at(places[told["uid"]], size, stream, writes=writes)
        return np.ndarray(told["dim"], dtype, memory, 0, strides)

    def _computed(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> Sequence[Any]:
        """What the op gives, by the ops' own kernels, whose axes are in another order."""
        attrs, kind = self.op["attrs"], self.op["kind"]
        if kind in _CONVOLUTIONS:
            given = {"stride": tuple(attrs["stride"]), "dilation": tuple(attrs["dilation"])}
            given["padding"] = tuple(zip(attrs["pre_padding"], attrs["post_padding"], strict=True))
            if "fprop" not in kind:
                given["size"] = outputs[0].shape[2:]
            last = [x.transpose(0, 2, 3, 1) for x in inputs[:2]] + [z.reshape(-1) for z in inputs[2:]]
            return [_CONVOLUTIONS[kind].eval(*last, **given).transpose(0, 3, 1, 2)]
        known = {"scale": attrs["attn_scale"], "causal": attrs["use_causal_mask"]}
        turned = [x if i == 5 else x.swapaxes(1, 2) for i, x in enumerate(inputs)]
        if kind == "sdpa":
            out, sums = library_attention.eval(*turned, **known)
            return [out.swapaxes(1, 2), sums]
        return [g.swapaxes(1, 2) for g in library_attention_gradient.eval(*turned, **known)]


class FrontEnd:
    """The module.

    Attributes:
        built: how many plans were made.
    """

    __version__ = "1.18.0"
    data_type = SimpleNamespace(**{name: name for name in _TYPES})
    heur_mode = SimpleNamespace(A="A", FALLBACK="FALLBACK")

    def __init__(self, api: StandIn) -> None:
        self.api = api
        self.stream = 0
        self.built = 0

    def backend_version(self) -> int:
        return 91900

    def create_handle(self) -> object:
        return object()

    def set_stream(self, handle: object, stream: int) -> None:
        self.stream = stream

    def pygraph(self, **options: Any) -> Graph:
        return Graph(self)
