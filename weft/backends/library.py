"""A library for C, as a backend that can export takes it: its tensors, where its data is, what it gives.

``weft.library`` makes a ``Model`` of a saved graph, has a backend compile it, and links what comes back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from weft.backends.backend import Array
from weft.base.dtypes import DType, kind
from weft.base.records import NamedTuple, dataclass
from weft.ir.graph import Graph
from weft.ir.types import TensorType

ALIGNMENT = 64  # of every array in the data of a library

OK, BAD_ARGUMENT, OUT_OF_MEMORY, FAILED, NO_WEIGHTS, BAD_PROCESSOR = range(6)
STATUS = {
    OK: ("OK", "all went well"),
    BAD_ARGUMENT: ("BAD_ARGUMENT", "an argument does not fit; the message says which"),
    OUT_OF_MEMORY: ("OUT_OF_MEMORY", "there is not enough memory"),
    FAILED: ("FAILED", "the run failed; the message says where, and nothing has changed"),
    NO_WEIGHTS: ("NO_WEIGHTS", "the file of the weights is missing, or another one"),
    BAD_PROCESSOR: ("BAD_PROCESSOR", "the processor lacks instructions that the library is made of"),
}
_LETTERS = {"b": 0, "i": 1, "u": 2, "f": 3, "c": 4}


def dtype_number(dtype: DType) -> int:
    """The number of a dtype in the header: its kind, and its bits.

    >>> import weft
    >>> from weft.backends.library import dtype_number
    >>> dtype_number(weft.float32), dtype_number(weft.bfloat16), dtype_number(weft.bool)
    (3032, 13016, 8)
    """
    return 10_000 * (dtype.name == "bfloat16") + 1000 * _LETTERS[kind(dtype)] + 8 * dtype.itemsize


@dataclass(frozen=True)
class Tensor:
    """A tensor that goes into a library or comes out of it.

    Attributes:
        name: as Python knows it.
        symbol: as C can write it.
        type: its dtype and shape.
        slot: its number among the inputs of the graph, or among its results.
    """

    name: str
    symbol: str
    type: TensorType
    slot: int


@dataclass(frozen=True)
class Weight(Tensor):
    """A tensor that a library holds.

    Attributes:
        array: what it holds at first.
        update: the number of the result that it becomes, if runs change it.
    """

    array: Array
    update: int | None


@dataclass(frozen=True)
class Generator:
    """A random generator: its input, the result it becomes, and where it starts (None: at a seed)."""

    slot: int
    update: int | None
    state: tuple[int, int] | None


@dataclass(frozen=True)
class Model:
    """A graph as a library has it.

    Attributes:
        name: which all its functions begin with.
        graph: whose results are the outputs, then the updates.
        inputs, outputs: what a run is given, and what it gives; an input that it changes is among both.
        weights, generators: what the library holds.
        sizes: the names of sizes that a run chooses.
    """

    name: str
    graph: Graph
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    weights: tuple[Weight, ...]
    generators: tuple[Generator, ...]
    sizes: tuple[str, ...]


class Storage(NamedTuple):
    """Where the data of a library is.

    Attributes:
        offsets: of each array, in bytes: the weights, then the constants.
        symbol: of the data inside the library; None if it is beside, or there is none.
        header: what a file beside begins with.
        size: of all of it.
    """

    offsets: tuple[int, ...]
    symbol: str | None = None
    header: bytes | None = None
    size: int = 0


class Exported(NamedTuple):
    """A model as machine code.

    Attributes:
        objects: for a linker.
        symbols: the functions that C programs call.
        libraries: files that must lie beside the library.
        sizes: what each named size must be, as text.
    """

    objects: Sequence[bytes]
    symbols: Sequence[str]
    libraries: Sequence[Path]
    sizes: Sequence[str]


class Exporter(Protocol):
    """Makes machine code of models for a processor.

    Attributes:
        cpu: the processor, in words.
        is_arm: whether it is one of ARM's.
    """

    cpu: str
    is_arm: bool

    def export(self, model: Model, place: Callable[[Sequence[Array]], Storage]) -> Exported:
        """The code of a model; ``place`` puts its weights, and the constants it is told of, somewhere."""
