"""Models as files: weights in them or beside them, checked before they take their place."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, TensorProto, numpy_helper

from weft.errors import GraphError
from weft.io.atomic import replacing
from weft.ir.graph import Array
from weft.onnx.export_model import Made
from weft.onnx.types import code_of

_MOST = 2**31 - 2**24  # bytes that a file of protobuf can hold, less what nodes may take
_SMALL = 1024  # bytes of a tensor that stays in the model: shapes and numbers
_PAGE = 4096  # tensors of a data file begin at a multiple of this, so that they can be mapped


def write_model(made: Made, path: str, *, external: bool) -> None:
    """Write a model; its data goes beside it if that is asked for, or there is too much of it."""
    total = sum(array.nbytes for array in made.tensors.values())
    model = made.model
    if external or total > _MOST:
        _write_beside(made, path)
    else:
        tensors = [_tensor(name, array) for name, array in made.tensors.items()]
        model.graph.initializer.extend(tensors)
        _check(model)
    with replacing(path) as file:
        file.write(model.SerializeToString())


def _tensor(name: str, array: Array) -> TensorProto:
    return numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name)


def _write_beside(made: Made, path: str) -> None:
    data = f"{path}.data"
    location = os.path.basename(data)
    small = {n: a for n, a in made.tensors.items() if a.nbytes <= _SMALL}
    large = {n: a for n, a in made.tensors.items() if a.nbytes > _SMALL}
    made.model.graph.initializer.extend([_tensor(name, array) for name, array in small.items()])
    _check(_with_inputs(made.model, large))
    with replacing(data) as file:
        for name, array in large.items():
            file.write(bytes(-file.tell() % _PAGE))
            made.model.graph.initializer.append(_external(name, array, location, file.tell()))
            file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


def _external(name: str, array: Array, location: str, offset: int) -> TensorProto:
    out = TensorProto(name=name, data_type=code_of(array.dtype), dims=array.shape)
    out.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", offset), ("length", array.nbytes)):
        out.external_data.add(key=key, value=str(value))
    return out


def _with_inputs(model: ModelProto, tensors: dict[str, Array]) -> ModelProto:
    """The model in which tensors that are not there yet are inputs, so that it can be checked."""
    out = ModelProto()
    out.CopyFrom(model)
    for name, array in tensors.items():
        out.graph.input.append(onnx.helper.make_tensor_value_info(name, code_of(array.dtype), array.shape))
    return out


def _check(model: ModelProto) -> None:
    """Let the standard's own checker look at a model, its types and shapes included."""
    try:
        onnx.checker.check_model(model, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        reason: Any = str(error).strip().splitlines()[0]
        hint = "this is a mistake of weft's writers; please report it"
        raise GraphError("onnx.export", f"the model must be valid, got: {reason}", hint=hint) from error
