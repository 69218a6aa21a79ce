"""Tables: CSV by Python's own reader, Parquet and Arrow by pyarrow where it is installed."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import weft
from weft.base.dtypes import as_dtype
from weft.base.public import public
from weft.data.pipeline import Pipeline
from weft.data.source import arrays_pipeline
from weft.errors import ArgumentError, DomainError, ParseError

Columns = Sequence[str] | Mapping[str, Any] | None

_TRUTH = {"true": True, "false": False}


@public
def from_csv(path: Any, columns: Columns = None, *, delimiter: str = ",", header: bool = True) -> Pipeline:
    r"""A pipeline of the rows of a CSV file, as dicts by column.

    Args:
        path: of the file, in UTF-8.
        columns: which ones; a dict says of which dtype each is (``str`` for text). A dtype that is not said
            is found from the column: int64, float32 (an empty cell is NaN), bool or text.
        delimiter: between cells.
        header: whether the first row has the names of the columns; if not, they are "0", "1", ...

    >>> import tempfile
    >>> from weft import data
    >>> with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
    ...     _ = file.write("x,name\n1,a\n2,b\n")
    ...     file.flush()
    ...     rows = data.from_csv(file.name)
    >>> list(rows.batch(2))
    [{'x': tensor([1, 2]), 'name': array(['a', 'b'], dtype='<U1')}]
    """
    with open(path, newline="", encoding="utf-8") as file:
        rows = [row for row in csv.reader(file, delimiter=delimiter) if row]
    names = rows[0] if header and rows else [str(k) for k in range(len(rows[0]) if rows else 0)]
    body = rows[1:] if header else rows
    for i, row in enumerate(body):
        if len(row) != len(names):
            line = f"row {i + 1} of {os.fspath(path)}"
            raise ParseError("from_csv", f"rows must have {len(names)} cells, got {len(row)} in {line}")
    wanted = _wanted("from_csv", names, columns)
    cells = {name: [row[names.index(name)] for row in body] for name in wanted}
    tree = {name: _column(name, cells[name], dtype) for name, dtype in wanted.items()}
    return arrays_pipeline("csv", tree, os.fspath(path))


def _wanted(op: str, names: Sequence[str], columns: Columns) -> dict[str, Any]:
    """The columns that are asked for, with the dtype of each or None."""
    found = dict.fromkeys(columns or names)
    if isinstance(columns, Mapping):
        found = dict(columns)
    for name in found:
        if name not in names:
            raise DomainError(op, f"the file must have a column {name!r}, got {', '.join(map(repr, names))}")
    if not found:
        raise DomainError(op, "the file must have columns, got an empty one")
    return found


def _column(name: str, cells: list[str], dtype: Any) -> Any:
    if dtype is None:
        return _guess(cells)
    if dtype is str:
        return np.array(cells, dtype=np.str_)
    target = as_dtype(dtype)
    readers: dict[str, Callable[[str], Any]] = {"b": _truth, "i": int, "u": int, "c": complex}
    read = readers.get(target.kind, _float)
    out = np.empty(len(cells), target)
    for i, cell in enumerate(cells):
        try:
            out[i] = read(cell)
        except (ValueError, OverflowError):
            where = f"{cell!r} in row {i + 1} of column {name!r}"
            raise ParseError("from_csv", f"cells must be of dtype {target.name}, got {where}") from None
    return out


def _guess(cells: list[str]) -> Any:
    """A column of the narrowest kind that all cells are of."""
    for read, dtype in ((int, np.int64), (_float, weft.get_default_dtype()), (_truth, np.bool_)):
        try:
            return np.array([read(cell) for cell in cells], dtype)
        except (ValueError, OverflowError):
            continue
    return np.array(cells, dtype=np.str_)


def _float(cell: str) -> float:
    return float(cell) if cell.strip() else float("nan")


def _truth(cell: str) -> bool:
    try:
        return _TRUTH[cell.strip().lower()]
    except KeyError:
        raise ValueError(cell) from None


@public
def from_parquet(path: Any, columns: Sequence[str] | None = None) -> Pipeline:
    """A pipeline of the rows of a Parquet file, or of an Arrow file (.arrow, .feather), as dicts by column.

    Args:
        path: of the file. The columns are read into memory, an Arrow file is mapped where it can be.
        columns: which ones; all by default.

    Needs pyarrow: ``pip install 'weft[arrow]'``.

    >>> import pyarrow, pyarrow.parquet, tempfile
    >>> from weft import data
    >>> with tempfile.NamedTemporaryFile(suffix=".parquet") as file:
    ...     pyarrow.parquet.write_table(pyarrow.table({"x": [1, 2]}), file.name)
    ...     rows = data.from_parquet(file.name)
    >>> list(rows.batch(2))
    [{'x': tensor([1, 2])}]
    """
    table = _read_table(os.fspath(path), columns)
    tree = {name: _arrow_column(name, table.column(name)) for name in table.column_names}
    return arrays_pipeline("parquet", tree, os.fspath(path))


def _read_table(path: str, columns: Sequence[str] | None) -> Any:
    try:
        import pyarrow
        from pyarrow import ipc, parquet
    except ImportError:
        hint = "pip install 'weft[arrow]'"
        raise ArgumentError(
            "from_parquet", "needs the package pyarrow, which is not there", hint=hint
        ) from None
    arrow = path.endswith((".arrow", ".feather"))
    names = ipc.open_file(path).schema.names if arrow else parquet.read_schema(path).names
    wanted = list(_wanted("from_parquet", names, columns))
    if arrow:
        return ipc.open_file(pyarrow.memory_map(path)).read_all().select(wanted)
    return parquet.read_table(path, columns=wanted)


def _arrow_column(name: str, column: Any) -> Any:
    """A column as an array; one of lists of equal length has an axis for them."""
    import pyarrow

    whole = column.combine_chunks()
    if column.null_count and not pyarrow.types.is_floating(column.type):
        raise DomainError(
            "from_parquet", f"column {name!r} must have no missing values, got {column.null_count}"
        )
    if pyarrow.types.is_fixed_size_list(column.type):
        inner = whole.flatten().to_numpy(zero_copy_only=False)
        return inner.reshape(len(column), column.type.list_size)
    if pyarrow.types.is_list(column.type) or pyarrow.types.is_large_list(column.type):
        return np.array(whole.to_pylist())
    array = whole.to_numpy(zero_copy_only=False)
    return array.astype(np.str_) if array.dtype == np.object_ else array
