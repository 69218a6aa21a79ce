"""Files that are damaged or made to do harm: each gives a FileError, and nothing else."""

from __future__ import annotations

import json
import tracemalloc
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from weft.errors import FileError
from weft.io.layout import read_file, write_file

MANY = settings(max_examples=150)
DESCRIPTIONS = ("weft.tree", "weft.program", "weft.graph")
PIECES = [
    '"',
    "{",
    "}",
    "[",
    "]",
    ",",
    "0",
    "1",
    "-1",
    "null",
    "true",
    "1e9",
    "99999999999",
    "x",
    "%",
    "(",
    "",
]


def packed(header: Any, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def entry(dtype: str = "F32", shape: Any = (1,), offsets: Any = (0, 4)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """A file of each kind, as bytes."""
    path = tmp_path_factory.mktemp("files") / "file"
    tree = {"w": weft.arange(5.0), "flag": weft.tensor([True, False]), "n": [1, (2.5, "text", b"bytes")]}
    weft.save(tree, path)
    found = {"tree": path.read_bytes()}
    table, rate = weft.arange(20.0), weft.tensor(2.0)
    weft.compile(lambda x, k=3: {"y": weft.gelu(x * rate + table)[:k], "k": k}).save(path, weft.ones(20))
    found["graph"] = path.read_bytes()
    return found


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "file"


def load(kind: str, path: Path) -> Any:
    return weft.load(path) if kind == "tree" else weft.load_graph(path)


@pytest.mark.parametrize("kind", ["tree", "graph"])
def test_every_flipped_bit_is_noticed(kind: str, files: dict[str, bytes], file: Path) -> None:
    data = files[kind]

    @MANY
    @given(st.integers(0, len(data) - 1), st.integers(0, 7))
    def check(byte: int, bit: int) -> None:
        damaged = bytearray(data)
        damaged[byte] ^= 1 << bit
        file.write_bytes(damaged)
        with pytest.raises(FileError):
            load(kind, file)

    check()


@pytest.mark.parametrize("kind", ["tree", "graph"])
def test_every_cut_and_every_addition_is_noticed(kind: str, files: dict[str, bytes], file: Path) -> None:
    data = files[kind]

    @MANY
    @given(st.integers(0, len(data) - 1), st.binary(min_size=1, max_size=20), st.booleans())
    def check(length: int, more: bytes, cut: bool) -> None:
        file.write_bytes(data[:length] if cut else data + more)
        with pytest.raises(FileError):
            load(kind, file)

    check()


def test_any_bytes_are_no_file(file: Path) -> None:
    @MANY
    @given(st.binary(max_size=200), st.booleans())
    def check(data: bytes, framed: bool) -> None:
        file.write_bytes(packed(data) if framed else data)
        for kind in ("tree", "graph"):
            with pytest.raises(FileError):
                load(kind, file)

    check()


def test_descriptions_that_were_changed_by_hand_load_or_are_errors(
    files: dict[str, bytes], file: Path
) -> None:
    """Checksums are right here, so that what is behind them is asked."""
    parts = []
    for kind in ("tree", "graph"):
        file.write_bytes(files[kind])
        parts.append(read_file("load", str(file), mmap=False, verify=True))

    @MANY
    @given(st.sampled_from(parts), st.data())
    def check(contents: Any, data: st.DataObject) -> None:
        own = {name: contents.metadata[name] for name in DESCRIPTIONS if name in contents.metadata}
        name = data.draw(st.sampled_from(list(own)))
        at = data.draw(st.integers(0, len(own[name])))
        added, removed = data.draw(st.sampled_from(PIECES)), data.draw(st.integers(0, 6))
        own[name] = own[name][:at] + added + own[name][at + removed :]
        write_file(str(file), contents.arrays, contents.kind, own)
        with suppress(FileError):
            load(contents.kind, file)

    check()


HOSTILE = {
    "header longer than the file": ((2**40).to_bytes(8, "little") + b"{}", "the header must take at most"),
    "header cut off": ((100).to_bytes(8, "little") + b"{}", "the header must be whole, got 2 of 100 bytes"),
    "no JSON": (packed(b"{'a'}"), "the header must be JSON"),
    "no UTF-8": (packed(b'{"\xff": 1}'), "the header must be JSON"),
    "no object": (packed([]), "the header must be a JSON object, got a list"),
    "a name twice": (packed(b'{"a":1,"a":2}'), "a name comes twice"),
    "nested deep": (packed(b"[" * 100_000), "the header must not be nested so deep"),
    "a long number": (packed(b'{"a":' + b"9" * 5000 + b"}"), "the header must be JSON"),
    "an unknown dtype": (
        packed({"a": entry("F8_E4M3", (4,))}, b"1234"),
        "the dtype of 'a' must be one of BOOL",
    ),
    "no dtype": (packed({"a": entry([], (4,))}, b"1234"), "the dtype of 'a' must be one of"),
    "a shape that is none": (
        packed({"a": entry(shape="ab")}, b"1234"),
        "shape and offsets of 'a' must be lists",
    ),
    "a negative size": (
        packed({"a": entry(shape=[-1, -1])}, b"1234"),
        "shape and offsets of 'a' must be lists",
    ),
    "a size that is a bool": (packed({"a": entry(shape=[True])}, b"1234"), "must be lists of sizes"),
    "a huge shape": (packed({"a": entry(shape=[2**40, 2**40])}, b"1234"), "the data of 'a' must take"),
    "an empty shape that is huge": (
        packed({"a": entry(shape=[0, 2**61], offsets=[0, 0])}),
        "must be possible",
    ),
    "a shape of many axes": (packed({"a": entry(shape=[1] * 65)}, b"1234"), "must be lists of sizes"),
    "data that overlaps": (packed({"a": entry(), "b": entry()}, b"1234"), "the data of 'b' must begin at 4"),
    "data with a hole": (packed({"a": entry(offsets=[4, 8])}, b"12345678"), "must begin at 0, got 4"),
    "data cut off": (packed({"a": entry()}, b"12"), "there must be 4 bytes of data, got 2"),
    "data too long": (packed({"a": entry()}, b"123456"), "there must be 4 bytes of data, got 6"),
    "bools that are none": (
        packed({"a": entry("BOOL", [2], [0, 2])}, b"\1\2"),
        "the bools of 'a' must be 0 or 1",
    ),
    "metadata that is no text": (packed({"__metadata__": {"a": 1}}), "the metadata must be strings by name"),
    "half of weft's metadata": (
        packed({"__metadata__": {"weft.kind": "tree"}}),
        "must say its weft.checksum",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_file_is_an_error_that_names_what_is_wrong(name: str, file: Path) -> None:
    data, message = HOSTILE[name]
    file.write_bytes(data)
    with pytest.raises(FileError) as caught:
        weft.load(file)
    assert message in str(caught.value)
    assert str(caught.value).startswith("load: file: ")


@pytest.mark.parametrize(
    "tree",
    [
        '{"tensor":"none"}',
        '{"tensor":[]}',
        '{"tensor":"a","complex":true}',
        '{"bytes":"a"}',
        '{"scalar":"a"}',
        '{"unknown":1}',
        "{}",
        '{"items":[[[],1]]}',
        '{"items":[1]}',
        '{"int":"zz"}',
        '{"int":5}',
        '{"float":"1.0"}',
        '{"complex":[1]}',
        '{"dtype":"object"}',
        '{"dict":[]}',
        '{"tuple":5}',
        '{"sparse":{"dict":{"indices":{"tensor":"i"},"values":{"tensor":"a"}}},"shape":[1]}',
        '{"ragged":{"dict":{"values":{"tensor":"a"},"splits":{"tensor":"i"}}}}',
        "[" * 150 + "]" * 150,
    ],
)
def test_structure_that_is_none_is_an_error(tree: str, file: Path) -> None:
    arrays = {"a": np.ones(3, np.float32), "i": np.array([[7, 8]])}
    write_file(str(file), arrays, "tree", {"weft.tree": tree})
    with pytest.raises(FileError):
        weft.load(file)


def test_no_more_is_allocated_than_the_file_is_long(file: Path) -> None:
    """Many names for one array, and sizes that are claimed: neither costs memory."""
    array = np.zeros(250_000, np.float32)
    tree = [{"tensor": f"t{i}", "data": "a"} for i in range(200)]
    write_file(str(file), {"a": array}, "tree", {"weft.tree": json.dumps(tree)})
    size = file.stat().st_size
    tracemalloc.start()
    try:
        found = weft.load(file)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(found) == 200
    assert peak < 2 * size


def test_damage_of_mapped_data_is_noticed_when_asked(files: dict[str, bytes], file: Path) -> None:
    damaged = bytearray(files["tree"])
    damaged[-20] ^= 1
    file.write_bytes(damaged)
    weft.load(file, mmap=True)
    with pytest.raises(FileError, match="must agree with its checksum"):
        weft.load(file, mmap=True, verify=True)


def test_each_kind_of_file_says_how_it_is_loaded(files: dict[str, bytes], file: Path) -> None:
    file.write_bytes(files["graph"])
    with pytest.raises(FileError, match=r"must hold a tree, got a graph\n(.*\n)*.*weft.load_graph"):
        weft.load(file)
    file.write_bytes(files["tree"])
    with pytest.raises(FileError, match=r"must hold a graph, got a tree\n(.*\n)*.*weft.load"):
        weft.load_graph(file)
