"""Nested containers as JSON, with the arrays beside it.

What JSON has no word for is an object with one telling name: ``{"tuple": [...]}``, ``{"tensor": "w"}``. A
tensor or array that comes again is the same name again, and one object after loading.
"""

from __future__ import annotations

import math
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from weft.base.device import CPU, DeviceLike
from weft.base.dtypes import as_dtype, canonical, kind, real_dtype
from weft.base.parts import Parts
from weft.errors import ArgumentError, FileError, WeftError
from weft.io.layout import Array, Problem
from weft.io.parts import KINDS, Parted
from weft.tensor.moving import moved
from weft.tensor.ragged import RaggedTensor, ragged_from_splits
from weft.tensor.sparse import SparseTensor, sparse_coo_tensor
from weft.tensor.tensor import Tensor, wrap

DEEPEST = 100  # levels of containers
_EXACT = 2**53  # ints up to here are the same in every reader of JSON
_HINT = "it takes dicts, lists, tuples, None, bools, numbers, strings, bytes, dtypes, tensors and arrays"


class Mark(NamedTuple):
    """Something in a tree that is no data, such as an argument of a graph: ``{"input": 0}``."""

    word: str
    value: Any


class Encoder:
    """Makes JSON of trees, and gathers the arrays in them.

    Attributes:
        arrays: by name, to be written beside the JSON; complex ones as pairs of real numbers.
        placed: by name what each rank of a mesh holds a part of, to be written by all of them.
    """

    def __init__(self, op: str) -> None:
        self.op = op
        self.arrays: dict[str, Array] = {}
        self.placed: dict[str, Parts] = {}
        self._notes: dict[int, tuple[Any, Any]] = {}  # by id of a leaf, the leaf, kept alive, and its JSON
        self._data: dict[Any, str] = {}  # by what tells arrays apart, the name
        self._taken = {"__metadata__"}

    def encode(self, x: Any, path: str = "", depth: int = 0) -> Any:
        """The JSON of a tree, whose arrays get names after the path to them."""
        if depth > DEEPEST:
            raise self._error(f"must be nested at most {DEEPEST} deep, got deeper, or one that holds itself")
        kind = type(x)
        if x is None or kind is bool or kind is str:
            return x
        if kind in _PLAIN:
            return _PLAIN[kind](x)
        if kind is list or kind is tuple:
            items = [self.encode(item, _join(path, i), depth + 1) for i, item in enumerate(x)]
            return items if kind is list else {"tuple": items}
        if kind in (dict, OrderedDict, defaultdict):
            return self._dict(x, path, depth)
        return self._leaf(x, path)

    def _dict(self, x: dict[Any, Any], path: str, depth: int) -> Any:
        values = {key: self.encode(value, _join(path, key), depth + 1) for key, value in x.items()}
        if all(type(key) is str for key in values):
            return {"dict": values}
        for key in values:
            if not _is_key(key):
                raise self._error(f"keys must be numbers, strings, bytes or tuples, got {key!r}", path)
        return {"items": [[self.encode(k, _join(path, "key"), depth + 1), v] for k, v in values.items()]}

    def _leaf(self, x: Any, path: str) -> Any:
        if id(x) not in self._notes:
            self._notes[id(x)] = (x, self._note(x, path or "data"))
        return self._notes[id(x)][1]

    def _note(self, x: Any, path: str) -> Any:
        if isinstance(x, Tensor):
            more = {"grad": True} if x.requires_grad else {}
            if isinstance(x._data, Parts):
                return {"sliced": {"name": self._slices(x._data, path)} | more}
            return self._array("tensor", x.detach()._array(self.op), path) | more
        if isinstance(x, np.ndarray):
            return self._array("array", x, path)
        if isinstance(x, np.generic):
            return self._array("scalar", np.asarray(x), path)
        if type(x) is bytes:
            return self._array("bytes", np.frombuffer(x, np.uint8), path)
        if isinstance(x, np.dtype) and canonical(x) is not None:
            return {"dtype": canonical(x).name}  # type: ignore[union-attr]
        if isinstance(x, Mark):
            return {x.word: x.value}
        if isinstance(x, Parted):
            tensors = [self.encode(t, path) for t in x.tensors]
            return {"parts": x.kind, "tensors": tensors, "rest": self.encode(x.rest, path)}
        if isinstance(x, SparseTensor):
            parts = {"indices": x.indices, "values": x.values}
            return {"sparse": self.encode(parts, path), "shape": list(x.shape)}
        if isinstance(x, RaggedTensor):
            return {"ragged": self.encode({"values": x.values, "splits": x.splits}, path)}
        raise self._unknown(x, path)

    def _array(self, word: str, array: Array, path: str) -> dict[str, Any]:
        dtype = canonical(array.dtype)
        if dtype is None:
            raise self._error(f"dtypes must be weft's, got {array.dtype}", path)
        array = array.astype(dtype, copy=False)
        note: dict[str, Any] = {word: self._own_name(path)}
        if kind(dtype) == "c":
            note["complex"] = True
            real = np.ascontiguousarray(array).view(real_dtype(dtype))
            array = real.reshape(*array.shape, 2)
        place = array.__array_interface__["data"][0]
        key = (word, place, array.shape, array.strides, dtype)  # arrays can be written to, tensors cannot
        name = self._data.setdefault(key, note[word]) if array.size else note[word]
        if name == note[word]:
            self.arrays[name] = array
        else:
            note["data"] = name
        return note

    def _slices(self, data: Parts, path: str) -> str:
        """The name of what ranks hold parts of; tensors that share it share the name."""
        found = next((name for name, other in self.placed.items() if other is data), None)
        if found is None:
            found = self._own_name(path)
            self.placed[found] = data
        return found

    def _own_name(self, path: str) -> str:
        """A name after a path that no other array has."""
        name = path = path.encode("utf-8", "replace").decode()
        count = 1
        while name in self._taken:
            count += 1
            name = f"{path}~{count}"
        self._taken.add(name)
        return name

    def _unknown(self, x: Any, path: str) -> ArgumentError:
        hint = _HINT
        if hasattr(x, "state_dict"):
            hint = "save what its state_dict() gives, and load it with load_state_dict"
        elif isinstance(x, tuple) and hasattr(x, "_asdict"):
            hint = "save what its _asdict() gives"
        return self._error(f"must hold what can be written, got {type(x).__name__}", path, hint)

    def _error(self, message: str, path: str = "", hint: str = _HINT) -> ArgumentError:
        return ArgumentError(self.op, f"{message} at {path}" if path else message, hint=hint)


def _join(path: str, key: Any) -> str:
    return f"{path}.{key}" if path else str(key)


def _is_key(x: Any) -> bool:
    if type(x) is tuple:
        return all(map(_is_key, x))
    return x is None or type(x) in (bool, int, float, str, bytes)


def _float(x: float) -> Any:
    return x if math.isfinite(x) else {"float": str(x)}


_PLAIN: dict[type, Callable[[Any], Any]] = {
    int: lambda x: x if abs(x) <= _EXACT else {"int": hex(x)},
    float: _float,
    complex: lambda x: {"complex": [_float(x.real), _float(x.imag)]},
}


# The way back


class Decoder:
    """Makes trees of JSON that a file holds; whatever the JSON is, what comes out is such a tree or an error.

    Args:
        arrays: those of the file, by name.
        problem: makes the errors.
        extra: by word, what else a tree of this kind of file may hold.
        device: where tensors go; None for where new ones go.
    """

    def __init__(
        self,
        arrays: Mapping[str, Array],
        problem: Problem,
        extra: Mapping[str, Callable[[Any], Any]] | None = None,
        device: DeviceLike | None = CPU,
    ) -> None:
        self.arrays = arrays
        self.problem = problem
        self.extra = dict(extra or {})
        self.device = device
        self._leaves: dict[tuple[str, str], Any] = {}

    def decode(self, x: Any, depth: int = 0) -> Any:
        """The tree that a JSON stands for."""
        if depth > DEEPEST + 2:
            raise self.problem(f"the structure must be nested at most {DEEPEST} deep, got deeper")
        if x is None or type(x) in (bool, int, float, str):
            return x
        if type(x) is list:
            return [self.decode(item, depth + 1) for item in x]
        for word in ("tensor", "array", "scalar", "bytes"):
            if word in x:
                return self._leaf(word, x)
        word = next(iter(x), "")
        if word in self.extra:
            return self.extra[word](x[word])
        if word not in _READERS:
            raise self.wrong(x)
        try:
            return _READERS[word](self, x, depth)
        except FileError:
            raise
        except (WeftError, ValueError, TypeError, KeyError, AttributeError, OverflowError):
            raise self.wrong(x) from None

    def wrong(self, x: Any) -> Exception:
        """The error about a part of the structure."""
        text = repr(x)
        shown = text if len(text) <= 60 else text[:60] + "..."
        return self.problem(f"the structure must be one that weft.save writes, got {shown}")

    def _leaf(self, word: str, x: dict[str, Any]) -> Any:
        name = x[word]
        source = x.get("data", name)
        if not isinstance(name, str) or not isinstance(source, str) or source not in self.arrays:
            raise self.wrong(x)
        if (word, name) not in self._leaves:
            self._leaves[word, name] = self._make(word, x, self.arrays[source])
        return self._leaves[word, name]

    def _make(self, word: str, x: dict[str, Any], array: Array) -> Any:
        if x.get("complex"):
            array = self._joined(x, array)
        if word == "tensor":
            tensor = moved(wrap(array), self.device)
            needs = x.get("grad") is True and kind(array.dtype) in "fc"
            return tensor.requires_grad_() if needs else tensor
        if word == "array":
            return array
        if word == "scalar" and array.ndim == 0:
            return array[()]
        if word == "bytes" and array.dtype == np.uint8 and array.ndim == 1:
            return array.tobytes()
        raise self.wrong(x)

    def _joined(self, x: dict[str, Any], array: Array) -> Array:
        """Pairs of real numbers as complex ones."""
        if kind(array.dtype) == "c":
            return array
        if array.dtype not in (np.float32, np.float64) or array.ndim == 0 or array.shape[-1] != 2:
            raise self.wrong(x)
        joined: Array = array.view(np.complex64 if array.dtype == np.float32 else np.complex128)
        return joined.reshape(array.shape[:-1])


def _read_items(decoder: Decoder, x: Any, depth: int) -> dict[Any, Any]:
    pairs = [(decoder.decode(key, depth + 1), decoder.decode(v, depth + 1)) for key, v in x["items"]]
    if not all(_is_key(key) for key, _ in pairs):
        raise ValueError
    return dict(pairs)


def _read_complex(decoder: Decoder, x: Any, depth: int) -> complex:
    real, imag = (decoder.decode(part, depth + 1) for part in x["complex"])
    return complex(float(real), float(imag))


def _read_sparse(decoder: Decoder, x: Any, depth: int) -> Any:
    parts = decoder.decode(x["sparse"], depth + 1)
    return sparse_coo_tensor(parts["indices"], parts["values"], tuple(x["shape"]))


def _read_ragged(decoder: Decoder, x: Any, depth: int) -> Any:
    parts = decoder.decode(x["ragged"], depth + 1)
    return ragged_from_splits(parts["values"], parts["splits"])


def _read_parts(decoder: Decoder, x: Any, depth: int) -> Any:
    if x["parts"] not in KINDS:
        raise ValueError
    tensors = tuple([decoder.decode(t, depth + 1) for t in x["tensors"]])
    return Parted(x["parts"], tensors, decoder.decode(x["rest"], depth + 1))


_READERS: dict[str, Callable[[Decoder, Any, int], Any]] = {
    "tuple": lambda decoder, x, depth: tuple([decoder.decode(item, depth + 1) for item in x["tuple"]]),
    "dict": lambda decoder, x, depth: {k: decoder.decode(v, depth + 1) for k, v in x["dict"].items()},
    "items": _read_items,
    "int": lambda decoder, x, depth: int(x["int"], 16),
    "float": lambda decoder, x, depth: {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}[x["float"]],
    "complex": _read_complex,
    "dtype": lambda decoder, x, depth: as_dtype(str(x["dtype"])),
    "sparse": _read_sparse,
    "ragged": _read_ragged,
    "parts": _read_parts,
}
