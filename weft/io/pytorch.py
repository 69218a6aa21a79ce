"""Files of PyTorch: archives of a pickle and of the data of tensors, read without running anything in them.

The pickle is not unpickled. Its instructions are taken one by one by a small machine that knows dicts, lists,
tuples, numbers, texts and tensors, and nothing that could call a function of the file's choice: what else it
names is an error. Every size is checked against the data that is there.
"""

from __future__ import annotations

import pickletools
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

import numpy as np

from weft.base.device import DeviceLike
from weft.base.dtypes import DType, as_dtype, kind
from weft.io.layout import Problem
from weft.tensor.moving import moved
from weft.tensor.tensor import Tensor, wrap

MAGIC = b"PK\x03\x04"
OLD_MAGIC = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."  # of files from before there were archives
_STORAGES = {
    "BFloat16Storage": "bfloat16",
    "BoolStorage": "bool",
    "ByteStorage": "uint8",
    "CharStorage": "int8",
    "ComplexDoubleStorage": "complex128",
    "ComplexFloatStorage": "complex64",
    "DoubleStorage": "float64",
    "FloatStorage": "float32",
    "HalfStorage": "float16",
    "IntStorage": "int32",
    "LongStorage": "int64",
    "ShortStorage": "int16",
    "UntypedStorage": "uint8",
}
_DTYPES = {*_STORAGES.values(), "uint16", "uint32", "uint64"}
_EXPANDED = 1 << 24  # elements that a tensor may have beyond those of its data, by strides of 0
_DEEPEST = 1000


class _Name(NamedTuple):
    """A global that the pickle names."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


class _Storage(NamedTuple):
    data: Any  # bytes as an array
    dtype: DType


class _Mark:
    """Where on the stack a group of values begins."""


def read_pytorch(path: str, problem: Problem, device: DeviceLike | None) -> Any:
    """The tree of tensors and plain values that a file of PyTorch holds."""
    try:
        with zipfile.ZipFile(path) as archive:
            return _Reader(archive, path, problem, device).read()
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError) as error:
        raise problem(f"the archive must be whole, got one that is not: {error}") from None


class _Reader:
    """One archive: its entries, and the machine that takes the instructions of its pickle."""

    def __init__(
        self, archive: zipfile.ZipFile, path: str, problem: Problem, device: DeviceLike | None
    ) -> None:
        self.archive, self.problem, self.device = archive, problem, device
        infos = archive.infolist()
        pickles = [i.filename for i in infos if i.filename.rpartition("/")[2] == "data.pkl"]
        if len(pickles) != 1:
            hint = "torch.save(model.state_dict(), path) writes such a file"
            if infos and all(i.filename.endswith(".npy") for i in infos):
                hint = "it is NumPy's: weft.asarray(np.load(path)[name])"
            raise problem(f"the archive must hold one data.pkl, got {len(pickles)}", hint)
        for info in infos:
            if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size:
                raise problem(f"entries must be stored as they are, got {info.filename!r} compressed")
        self.sizes = {info.filename: info.file_size for info in infos}
        with open(path, "rb") as file:
            whole = file.seek(0, 2)
        if len(self.sizes) != len(infos) or sum(self.sizes.values()) > whole:
            raise problem("entries must have names of their own and fit into the file, got others")
        self.folder = pickles[0][: -len("data.pkl")]
        order = self._entry("byteorder") if f"{self.folder}byteorder" in self.sizes else b"little"
        if order.strip() not in (b"little", b"big"):
            raise problem(f"byteorder must be little or big, got {order[:20]!r}")
        self.is_big = order.strip() == b"big"
        self.storages: dict[tuple[str, str], _Storage] = {}
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def _entry(self, name: str) -> bytes:
        full = self.folder + name
        if full not in self.sizes:
            raise self.problem(f"the archive must hold {name}, which a tensor has its data in; it does not")
        return self.archive.read(full)

    # The machine

    def read(self) -> Any:
        """Take the instructions of the pickle one after the other."""
        try:
            for opcode, argument, _ in pickletools.genops(self._entry("data.pkl")):
                if opcode.name == "STOP":
                    found = self._pop()
                    if self.stack:
                        raise self.problem("the pickle must leave one value, got more")
                    return self._result(found)
                self._take(opcode.name, argument)
        except (ValueError, IndexError, KeyError, TypeError, OverflowError, UnicodeDecodeError) as error:
            raise self.problem(f"the pickle must be whole, got one that is not: {error}") from None
        raise self.problem("the pickle must come to an end, got one that does not")

    def _take(self, name: str, argument: Any) -> None:
        if name in _PUSHED:
            self.stack.append(argument)
        elif name in _MADE:
            self.stack.append(_MADE[name]())
        elif name in ("BINPUT", "LONG_BINPUT", "PUT"):
            self.memo[int(argument)] = self.stack[-1]
        elif name == "MEMOIZE":
            self.memo[len(self.memo)] = self.stack[-1]
        elif name in ("BINGET", "LONG_BINGET", "GET"):
            self.stack.append(self.memo[int(argument)])
        elif name not in ("PROTO", "FRAME"):
            method: Callable[[Any], None] | None = getattr(self, f"_op_{name.lower()}", None)
            if method is None:
                raise self.problem(f"the pickle must hold data alone, got the instruction {name}")
            method(argument)

    def _pop(self) -> Any:
        value = self.stack.pop()
        if isinstance(value, _Mark):
            raise IndexError("a group was not closed")
        return value

    def _group(self) -> list[Any]:
        """The values since the last mark."""
        values = []
        while not isinstance(self.stack[-1], _Mark):
            values.append(self.stack.pop())
        self.stack.pop()
        return values[::-1]

    def _op_tuple(self, _: Any) -> None:
        self.stack.append(tuple(self._group()))

    def _op_tuple1(self, _: Any) -> None:
        self.stack.append((self._pop(),))

    def _op_tuple2(self, _: Any) -> None:
        b, a = self._pop(), self._pop()
        self.stack.append((a, b))

    def _op_tuple3(self, _: Any) -> None:
        c, b, a = self._pop(), self._pop(), self._pop()
        self.stack.append((a, b, c))

    def _op_list(self, _: Any) -> None:
        self.stack.append(self._group())

    def _op_append(self, _: Any) -> None:
        self._extend([self._pop()])

    def _op_appends(self, _: Any) -> None:
        self._extend(self._group())

    def _extend(self, values: list[Any]) -> None:
        if type(self.stack[-1]) is not list:
            raise TypeError("items are appended to what is no list")
        self.stack[-1].extend(values)

    def _op_setitem(self, _: Any) -> None:
        value, key = self._pop(), self._pop()
        self._update([key, value])

    def _op_setitems(self, _: Any) -> None:
        self._update(self._group())

    def _update(self, pairs: list[Any]) -> None:
        target = self.stack[-1]
        if not isinstance(target, dict) or len(pairs) % 2:
            raise TypeError("items are set in what is no dict")
        for key, value in zip(pairs[::2], pairs[1::2], strict=True):
            if not isinstance(key, str | int | float | bool | tuple | bytes | type(None)):
                raise self.problem(f"keys must be plain values, got a {type(key).__name__}")
            target[key] = value

    def _op_additems(self, _: Any) -> None:
        values = self._group()
        if type(self.stack[-1]) is not set:
            raise TypeError("items are added to what is no set")
        self.stack[-1].update(values)

    def _op_global(self, argument: str) -> None:
        module, _, name = argument.partition(" ")
        self.stack.append(_Name(module, name))

    def _op_stack_global(self, _: Any) -> None:
        name, module = self._pop(), self._pop()
        self.stack.append(_Name(str(module), str(name)))

    def _op_binpersid(self, _: Any) -> None:
        self.stack.append(self._storage(self._pop()))

    def _op_build(self, _: Any) -> None:
        self._pop()  # attributes, which what is read here has none of
        if not isinstance(self.stack[-1], OrderedDict | Tensor):
            raise self.problem("the pickle must hold data alone, got an object with a state")

    def _op_reduce(self, _: Any) -> None:
        arguments, function = self._pop(), self._pop()
        if not isinstance(function, _Name) or type(arguments) is not tuple:
            raise TypeError("what is called is no name")
        self.stack.append(self._made(function, arguments))

    # Tensors

    def _made(self, function: _Name, arguments: tuple[Any, ...]) -> Any:
        """What a call of one of the known functions gives; all others are refused by name."""
        name = str(function)
        if name == "collections.OrderedDict" and not arguments:
            return OrderedDict()
        if name == "torch._utils._rebuild_tensor_v2" and len(arguments) in (6, 7):
            storage, offset, size, stride, grad, *_ = arguments
            return self._tensor(storage, offset, size, stride, grad)
        if name == "torch._utils._rebuild_tensor_v3" and len(arguments) in (7, 8):
            storage, offset, size, stride, grad, _, dtype, *_ = arguments
            if not isinstance(dtype, _Name) or dtype.module != "torch" or dtype.name not in _DTYPES:
                raise self.problem(f"dtypes must be known, got {dtype}")
            typed = _Storage(storage.data, as_dtype(dtype.name))
            return self._tensor(typed, offset, size, stride, grad)
        if name == "torch._utils._rebuild_parameter" and len(arguments) == 3:
            tensor, grad, _ = arguments
            if not isinstance(tensor, Tensor):
                raise TypeError("a parameter is of no tensor")
            return tensor.requires_grad_(bool(grad) and kind(tensor.dtype) in "fc")
        if name == "torch.Size" and len(arguments) == 1:
            return tuple(arguments[0])
        if name == "torch.device":
            return ":".join(map(str, arguments))
        raise self._unknown(function)

    def _unknown(self, name: _Name) -> Exception:
        return self.problem(
            f"a file may hold tensors and plain values, got {name}",
            "in PyTorch, save the state: torch.save(model.state_dict(), path)",
        )

    def _storage(self, saved: Any) -> _Storage:
        if type(saved) is not tuple or len(saved) < 5 or saved[0] != "storage":
            raise TypeError("a reference is to no data of a tensor")
        kind_, key = saved[1], str(saved[2])
        if not isinstance(kind_, _Name) or kind_.name not in _STORAGES:
            raise self._unknown(kind_ if isinstance(kind_, _Name) else _Name("", repr(kind_)))
        if (key, kind_.name) not in self.storages:
            data = np.frombuffer(self._entry(f"data/{key}"), np.uint8)
            self.storages[key, kind_.name] = _Storage(data, as_dtype(_STORAGES[kind_.name]))
        return self.storages[key, kind_.name]

    def _tensor(self, storage: Any, offset: Any, size: Any, stride: Any, grad: Any) -> Tensor:
        if not isinstance(storage, _Storage):
            raise TypeError("a tensor has no data")
        numbers = (offset, *size, *stride)
        if any(type(n) is not int or n < 0 for n in numbers) or len(size) != len(stride) or len(size) > 64:
            raise self.problem(f"sizes and strides must be numbers from 0 on, got {size} and {stride}")
        dtype, width = storage.dtype, storage.dtype.itemsize
        count = len(storage.data) // width
        elements = prod(size)
        last = offset + sum((n - 1) * s for n, s in zip(size, stride, strict=True)) if elements else 0
        if elements and (last >= count or elements > max(count, _EXPANDED)):
            raise self.problem(
                f"a tensor must lie in its data of {count} elements, got size {size} at {offset}"
            )
        flat = storage.data[: count * width]
        flat = flat != 0 if dtype.kind == "b" else flat.view(dtype)
        if elements:
            steps = tuple(s * width for s in stride)
            array = np.lib.stride_tricks.as_strided(flat[offset:], size, steps, writeable=False)
        else:
            array = np.empty(size, dtype)
        array = np.array(array, dtype, order="C")
        if self.is_big and width > 1:
            array = array.byteswap() if dtype.kind != "V" else array.view(np.uint16).byteswap().view(dtype)
        out = moved(wrap(array.view(dtype)), self.device)
        return out.requires_grad_() if grad and kind(dtype) in "fc" else out

    def _result(self, x: Any) -> Any:
        """What was read, if it is data all through; names of globals alone are dtypes, or refused."""
        seen: dict[int, Any] = {}

        def plain(x: Any, depth: int) -> Any:
            if isinstance(x, _Name):
                if x.module == "torch" and x.name in _DTYPES:
                    return as_dtype(x.name)
                raise self._unknown(x)
            if isinstance(x, _Storage | _Mark):
                raise self.problem("the file must hold tensors, got data that no tensor uses")
            if not isinstance(x, dict | list | tuple):
                return x
            if depth > _DEEPEST // 4:
                raise self.problem("values must not be nested without end, got such")
            if id(x) in seen:
                return seen[id(x)]
            if isinstance(x, dict):
                out: Any = {}
                seen[id(x)] = out
                out.update({k: plain(v, depth + 1) for k, v in x.items()})
                return out
            made = [plain(v, depth + 1) for v in x]
            seen[id(x)] = made if isinstance(x, list) else tuple(made)
            return seen[id(x)]

        return plain(x, 0)


_TEXTS = ("BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "UNICODE", "BINBYTES", "SHORT_BINBYTES")
_NUMBERS = ("BININT", "BININT1", "BININT2", "INT", "LONG", "LONG1", "LONG4", "BINFLOAT", "FLOAT")
_PUSHED = frozenset((*_TEXTS, "BINBYTES8", *_NUMBERS))
_MADE: dict[str, Callable[[], Any]] = {
    "EMPTY_DICT": dict,
    "EMPTY_LIST": list,
    "EMPTY_SET": set,
    "EMPTY_TUPLE": tuple,
    "MARK": _Mark,
    "NEWFALSE": lambda: False,
    "NEWTRUE": lambda: True,
    "NONE": lambda: None,
}
