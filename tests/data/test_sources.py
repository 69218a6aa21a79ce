"""Where elements come from: arrays, files, generators, memory-mapped arrays, tables."""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pyarrow as pa
import pytest
from pyarrow import ipc, parquet

import weft
from weft import data
from weft.errors import ArgumentError, DomainError, ParseError, PipelineError, ShapeError

# Arrays


@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "uint16", "float16", "float64", "complex64", ">f4", "bfloat16"]
)
def test_arrays_of_every_dtype(dtype: str) -> None:
    own = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    x = np.arange(6).reshape(3, 2).astype(own)
    (batch,) = data.from_arrays(x).shuffle().batch(3)
    assert batch.dtype == own.newbyteorder("=")
    assert sorted(map(str, batch.tolist())) == sorted(map(str, x.tolist()))


@pytest.mark.parametrize(
    ("arrays", "error", "message"),
    [
        ((), ArgumentError, "takes at least one array"),
        (((),), ArgumentError, "takes at least one array"),
        ((np.zeros(2), np.zeros(3)), ShapeError, "as many rows as each other, got 2, 3"),
        ((3.0,), ShapeError, "must have rows, got 3.0"),
        (([[1, 2], [3]],), ShapeError, "rows must have one shape"),
        ((np.array([None]),), ArgumentError, "got dtype object"),
    ],
)
def test_arrays_that_are_no_rows_are_refused(arrays: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        data.from_arrays(*arrays)


def test_no_rows_are_no_elements() -> None:
    assert list(data.from_arrays(np.zeros((0, 3))).shuffle().batch(2)) == []
    assert list(data.from_arrays(np.zeros((0, 3))).repeat()) == []
    assert list(data.from_generator(lambda: iter(())).repeat()) == []


def test_dataset_must_have_length_and_items() -> None:
    with pytest.raises(
        ArgumentError, match="an object with __len__ and __getitem__, got generator"
    ) as caught:
        data.from_dataset(i for i in range(3))
    assert "from_generator" in str(caught.value)


# Files


def test_files_by_pattern_are_sorted_and_read_in_their_turn(tmp_path: Path) -> None:
    for i in (2, 0, 1):
        (tmp_path / f"{i}.txt").write_text(str(i))
    read: list[str] = []

    def read_number(path: str) -> int:
        read.append(Path(path).name)
        return int(Path(path).read_text())

    epoch = iter(data.from_files(tmp_path / "*.txt", read_number))
    assert next(epoch) == 0
    assert read == ["0.txt"]
    assert list(epoch) == [1, 2]


def test_records_of_files_are_flattened_and_resumed(tmp_path: Path) -> None:
    paths = [tmp_path / f"{i}.npy" for i in range(3)]
    for i, path in enumerate(paths):
        np.save(path, np.arange(10 * i, 10 * i + 4))

    def build() -> data.Pipeline:
        return data.from_files(paths, lambda p: [(x, {"y": -x}) for x in np.load(p)]).shuffle().flatten()

    whole = [(int(x), int(rest["y"])) for x, rest in build()]
    assert sorted(whole) == [(x, -x) for i in range(3) for x in range(10 * i, 10 * i + 4)]
    first = build()
    epoch = iter(first)
    for _ in range(6):
        next(epoch)
    second = build()
    second.load_state_dict(first.state_dict())
    assert [int(x) for x, _ in second] == [x for x, _ in whole[6:]]


def test_missing_files_are_said(tmp_path: Path) -> None:
    with pytest.raises(DomainError, match="the pattern must match files, got none"):
        data.from_files(str(tmp_path / "*.png"), open)
    with pytest.raises(PipelineError, match=r"files: load \(stage %0\) failed on element 0.*No such file"):
        list(data.from_files([tmp_path / "gone.npy"], np.load))


# Generators


def test_generator_is_made_anew_in_each_epoch() -> None:
    made: list[int] = []

    def count() -> Iterator[int]:
        made.append(1)
        yield from range(3)

    pipeline = data.from_generator(count)
    assert [list(pipeline) for _ in range(2)] == [[0, 1, 2]] * 2
    assert len(made) == 2


def test_generator_is_closed_when_the_loop_is_left() -> None:
    closed: list[bool] = []

    def count() -> Iterator[int]:
        try:
            yield from range(100)
        finally:
            closed.append(True)

    for _ in data.from_generator(count).prefetch(3):
        break
    assert closed == [True]


def test_generator_must_be_a_function_that_returns_an_iterator() -> None:
    with pytest.raises(ArgumentError, match="takes a function, got generator") as caught:
        data.from_generator(i for i in range(3))  # type: ignore[arg-type]
    assert "the function itself" in str(caught.value)
    with pytest.raises(ArgumentError, match="must return an iterator, got int"):
        list(data.from_generator(lambda: 3))  # type: ignore[arg-type,return-value]


# Memory-mapped arrays


def test_npy_files_are_mapped_and_not_read(tmp_path: Path) -> None:
    x, y = np.arange(12.0).reshape(6, 2), np.arange(6)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", y)
    pipeline = data.from_npy({"x": tmp_path / "x.npy", "y": tmp_path / "y.npy"})
    assert isinstance(pipeline.stage.tree["x"], np.memmap)  # type: ignore[attr-defined]
    (batch,) = pipeline.shuffle(seed=2).batch(6).numpy()
    np.testing.assert_array_equal(batch["x"], x[batch["y"]])
    assert type(batch["x"]) is np.ndarray
    assert "npy(count=6" in repr(pipeline)


def test_file_that_is_no_array_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.npy").write_bytes(b"not an array")
    with pytest.raises(DomainError, match="must be an array of numbers"):
        data.from_npy(tmp_path / "x.npy")


# CSV

TABLE = 'id,height,name,good\n1,1.5,"a, b",true\n2,,c,False\n3,2.5,d,TRUE\n'


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "table.csv"
    path.write_text(TABLE)
    return path


def test_columns_of_csv_get_the_dtype_that_all_cells_have(table: Path) -> None:
    (rows,) = data.from_csv(table).batch(3).numpy()
    assert {k: v.dtype.kind for k, v in rows.items()} == {"id": "i", "height": "f", "name": "U", "good": "b"}
    assert rows["height"].dtype == np.float32
    np.testing.assert_array_equal(rows["height"], np.float32([1.5, np.nan, 2.5]))
    assert rows["name"].tolist() == ["a, b", "c", "d"]
    assert rows["good"].tolist() == [True, False, True]


def test_columns_of_csv_are_chosen_and_typed(table: Path) -> None:
    (rows,) = data.from_csv(table, {"id": weft.float64, "name": str}).batch(3).numpy()
    assert list(rows) == ["id", "name"]
    assert rows["id"].dtype == np.float64
    (rows,) = data.from_csv(table, ["good"]).batch(3)
    assert rows["good"].tolist() == [True, False, True]


def test_csv_without_header_numbers_its_columns(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("1;2\n3;4\n")
    (rows,) = data.from_csv(tmp_path / "x.csv", delimiter=";", header=False).batch(2)
    assert {k: v.tolist() for k, v in rows.items()} == {"0": [1, 3], "1": [2, 4]}


@pytest.mark.parametrize(
    ("text", "columns", "error", "message"),
    [
        ("a,b\n1,2\n3\n", None, ParseError, "rows must have 2 cells, got 1 in row 2"),
        ("a\nx\n", {"a": weft.int64}, ParseError, "dtype int64, got 'x' in row 1 of column 'a'"),
        ("a\n300\n", {"a": weft.int8}, ParseError, "dtype int8, got '300'"),
        ("a\nmaybe\n", {"a": weft.bool}, ParseError, "dtype bool, got 'maybe'"),
        ("a\n1\n", ["b"], DomainError, "must have a column 'b', got 'a'"),
        ("", None, DomainError, "must have columns"),
    ],
)
def test_bad_csv_is_refused(
    tmp_path: Path, text: str, columns: Any, error: type[Exception], message: str
) -> None:
    (tmp_path / "x.csv").write_text(text)
    with pytest.raises(error, match=message):
        data.from_csv(tmp_path / "x.csv", columns)


# Parquet and Arrow


def arrow_table() -> Any:
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(6, dtype=np.float32)), 2)
    columns = {"x": pa.array([1, 2, 3]), "name": pa.array(["a", "b", "c"]), "vector": vectors}
    return pa.table(columns)


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_tables_of_pyarrow_are_read(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"table.{kind}"
    if kind == "parquet":
        parquet.write_table(arrow_table(), path, row_group_size=2)
    else:
        with ipc.new_file(str(path), arrow_table().schema) as writer:
            writer.write_table(arrow_table())
    (rows,) = data.from_parquet(path).batch(3)
    assert rows["x"].tolist() == [1, 2, 3]
    assert rows["vector"].tolist() == [[0, 1], [2, 3], [4, 5]]
    assert rows["vector"].dtype == weft.float32
    assert rows["name"].tolist() == ["a", "b", "c"]
    assert list(next(iter(data.from_parquet(path, ["x"])))) == ["x"]
    with pytest.raises(DomainError, match="must have a column 'y', got 'x', 'name', 'vector'"):
        data.from_parquet(path, ["y"])


def test_missing_values_of_integers_are_refused(tmp_path: Path) -> None:
    parquet.write_table(
        pa.table({"x": pa.array([1, None]), "y": pa.array([1.0, None])}), tmp_path / "x.parquet"
    )
    with pytest.raises(DomainError, match="'x' must have no missing values, got 1"):
        data.from_parquet(tmp_path / "x.parquet")
    (rows,) = data.from_parquet(tmp_path / "x.parquet", ["y"]).batch(2)
    np.testing.assert_array_equal(rows["y"].numpy(), [1.0, np.nan])


def test_missing_pyarrow_is_told_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ArgumentError, match="needs the package pyarrow") as caught:
        data.from_parquet("x.parquet")
    assert "pip install 'weft[arrow]'" in str(caught.value)
