"""Files made to do harm; ``python -m tests.fuzz.hostile`` writes them to tests/io/corpus.

Those of ``refused`` must be a FileError, those of ``harmless`` load, since what is bad about them is only
what running them would cost. Neither may take much memory or time.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from weft.io.layout import write_file

CORPUS = Path(__file__).parent.parent / "io" / "corpus"

GRAPH = """graph f(%x: f32[2], param %w: f32[2]) {
  %0: f32[2] = add(%x, %w)
  return %0
}
"""
PROGRAM: dict[str, Any] = {
    "parameters": [["x", "POSITIONAL_OR_KEYWORD"]],
    "arguments": {"dict": {"x": {"input": 0}}},
    "returned": {"output": 0},
    "sources": [{"input": 0}, {"weight": "w"}],
    "weights": {"w": {"array": "w"}},
    "constants": {},
}
WEIGHTS = {"w": np.arange(2, dtype=np.float32)}


def written(arrays: dict[str, Any], kind: str, metadata: dict[str, str]) -> bytes:
    """A file whose checksums are right."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file"
        write_file(str(path), arrays, kind, metadata)
        return path.read_bytes()


def graph(text: str = GRAPH, arrays: dict[str, Any] | None = None, **changes: Any) -> bytes:
    """A graph file with another text, or another description of its program."""
    metadata = {"weft.graph": text, "weft.program": json.dumps(PROGRAM | changes)}
    return written(WEIGHTS if arrays is None else arrays, "graph", metadata)


def tree(structure: str, arrays: dict[str, Any] | None = None) -> bytes:
    """A tree file with another structure."""
    return written(WEIGHTS if arrays is None else arrays, "tree", {"weft.tree": structure})


def packed(header: Any, data: bytes = b"", length: int | None = None) -> bytes:
    """A file with any header, which has no checksums."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


def entry(dtype: Any = "F32", shape: Any = (1,), offsets: Any = (0, 4)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def body(*lines: str, result: str = "%0", head: str = "%x: f32[2], param %w: f32[2]") -> str:
    """The text of a graph with these lines."""
    inside = "".join([f"  {line}\n" for line in lines])
    return f"graph f({head}) {{\n{inside}  return {result}\n}}\n"


def nested(depth: int) -> str:
    """The text of a graph with branches inside of branches."""
    opened = "".join([f"%{i + 1}: f32[2] = cond(%p) {{\nbranches[0] a() {{\n" for i in range(depth)])
    return f"graph f(%x: f32[2], param %w: f32[2], %p: bool[]) {{\n{opened}"


def flipped(data: bytes, at: int) -> bytes:
    changed = bytearray(data)
    changed[at] ^= 16
    return bytes(changed)


def refused() -> dict[str, bytes]:
    """Files that must be refused, by what is wrong with them."""
    good, plain = graph(), tree('{"tensor":"w"}')
    return {
        **_cut_or_changed(good, plain),
        **_wrong_headers(),
        **_wrong_graphs(),
        **_wrong_programs(),
        **_wrong_trees(),
    }


def _cut_or_changed(good: bytes, plain: bytes) -> dict[str, bytes]:
    length = int.from_bytes(good[:8], "little")
    return {
        "empty": b"",
        "five-bytes": good[:5],
        "cut-in-header": good[: length // 2],
        "cut-after-header": good[: 8 + length],
        "cut-in-data": good[:-1],
        "one-byte-more": good + b"\0",
        "flipped-in-length": flipped(good, 1),
        "flipped-in-header": flipped(good, 60),
        "flipped-in-padding": flipped(good, 7 + length),
        "flipped-in-data": flipped(plain, len(plain) - 2),
        "two-files": good + good,
        "zip": b"PK\x03\x04" + bytes(60),
        "pickle": b"\x80\x04\x95" + bytes(60),
    }


def _wrong_headers() -> dict[str, bytes]:
    twice = (
        b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":' + json.dumps(entry()).encode() + b"}"
    )
    return {
        "length-of-9-exabytes": packed({}, length=2**63 - 1),
        "length-beyond-the-end": packed({}, length=3),
        "length-too-short": packed({"a": entry()}, bytes(4), length=5),
        "no-json": packed(b"{'a': 1}"),
        "no-utf8": packed(b'{"\xff\xfe": 1}'),
        "json-list": packed([1, 2]),
        "json-deep": packed(b"[" * 20_000),
        "json-deep-objects": packed(b'{"a":' * 5000 + b"1" + b"}" * 5000),
        "json-long-number": packed(
            b'{"a":{"dtype":"F32","shape":[' + b"9" * 6000 + b'],"data_offsets":[0,4]}}'
        ),
        "json-nan": packed(b'{"a":{"dtype":"F32","shape":[NaN],"data_offsets":[0,4]}}', bytes(4)),
        "name-twice": packed(twice, bytes(4)),
        "overlap": packed({"a": entry(), "b": entry(offsets=(2, 6))}, bytes(6)),
        "same-place": packed({"a": entry(), "b": entry()}, bytes(4)),
        "gap": packed({"a": entry(), "b": entry(offsets=(8, 12))}, bytes(12)),
        "offsets-backwards": packed({"a": entry(offsets=(4, 0))}, bytes(4)),
        "offsets-negative": packed({"a": entry(offsets=(-4, 0))}, bytes(4)),
        "offsets-float": packed({"a": entry(offsets=(0.0, 4.0))}, bytes(4)),
        "shape-huge": packed({"a": entry(shape=(2**40,))}, bytes(4)),
        "shape-overflows": packed({"a": entry(shape=(2**32, 2**32), offsets=(0, 0))}),
        "shape-huge-and-empty": packed({"a": entry(shape=(2**61, 2**61, 0), offsets=(0, 0))}),
        "shape-negative": packed({"a": entry(shape=(-1,))}, bytes(4)),
        "shape-bool": packed({"a": entry(shape=(True,))}, bytes(4)),
        "rank-1000": packed({"a": entry(shape=(1,) * 1000)}, bytes(4)),
        "dtype-unknown": packed({"a": entry(dtype="F31")}, bytes(4)),
        "dtype-list": packed({"a": entry(dtype=["F32"])}, bytes(4)),
        "bool-of-seven": packed({"a": entry("BOOL", offsets=(0, 1))}, b"\7"),
        "metadata-number": packed({"__metadata__": {"weft.version": 1}}),
        "metadata-list": packed({"__metadata__": []}),
        "entry-more": packed({"a": entry() | {"more": 1}}, bytes(4)),
    }


def _wrong_graphs() -> dict[str, bytes]:
    long = "+".join(["n"] * 5000)
    return {
        "cycle": graph(body("%0: f32[2] = add(%1, %x)", "%1: f32[2] = add(%0, %w)")),
        "own-input": graph(body("%0: f32[2] = add(%0, %x)")),
        "never-made": graph(body("%0: f32[2] = add(%7, %x)")),
        "made-twice": graph(body("%0: f32[2] = neg(%x)", "%0: f32[2] = neg(%w)")),
        "unknown-op": graph(body("%0: f32[2] = system(%x)")),
        "op-with-dots": graph(body("%0: f32[2] = os.system(%x)")),
        "wrong-dtype": graph(body("%0: i64[2] = add(%x, %w)")),
        "wrong-shape": graph(body("%0: f32[3] = add(%x, %w)")),
        "unknown-dtype": graph(body("%0: f31[2] = add(%x, %w)")),
        "too-few-operands": graph(body("%0: f32[2] = add(%x)")),
        "unknown-attribute": graph(body("%0: f32[2] = add(%x, %w, code=1)")),
        "attribute-code": graph(body('%0: f32[2] = add(%x, %w, f=__import__("os"))')),
        "huge-literal": graph(body("%0: f32[2] = add(%x, f32[100000000000](1.0))")),
        "literal-too-long": graph(body(f"%0: f32[2] = add(%x, f32[2]({', '.join(['1.0'] * 3000)}))")),
        "number-of-6000-digits": graph(body(f"%0: f32[2] = mul(%x, f32({'9' * 6000}))")),
        "missing-constant": graph(body("%0: f32[2] = add(%x, @table)")),
        "regions-1000-deep": graph(nested(1000)),
        "brackets-20000-deep": graph(body(f"%0: f32[2] = reshape(%x, shape={'(' * 20_000})")),
        "size-brackets-deep": graph(head_of("(" * 10_000 + "n")),
        "size-long": graph(head_of(long + "+")),
        "size-power": graph(head_of("*".join(["(a+b+c+d+e+f+g+h)"] * 60))),
        "size-divided-by-zero": graph(head_of("n//0")),
        "size-negative": graph(head_of("-5")),
        "update-of-a-node": graph(GRAPH.replace("  return", "  update %0 = %x\n  return")),
        "no-end": graph(GRAPH.replace("}", "")),
        "two-graphs": graph(GRAPH + GRAPH),
        "no-text": graph(""),
        "nul": graph(GRAPH.replace("add", "a\0d")),
    }


def head_of(size: str) -> str:
    """The text of a graph whose input has a size."""
    return f"graph f(%x: f32[{size}], param %w: f32[2]) {{\n  return %x\n}}\n"


def _wrong_programs() -> dict[str, bytes]:
    deep: Any = {"input": 0}
    for _ in range(500):
        deep = [deep]
    return {
        "program-list": written(WEIGHTS, "graph", {"weft.graph": GRAPH, "weft.program": "[]"}),
        "program-missing": written(WEIGHTS, "graph", {"weft.graph": GRAPH}),
        "no-sources": graph(sources=[]),
        "sources-twice": graph(sources=[{"input": 0}, {"input": 0}]),
        "source-unknown": graph(sources=[{"input": 0}, {"file": "/etc/passwd"}]),
        "source-negative": graph(sources=[{"input": -1}, {"weight": "w"}]),
        "weight-missing": graph(weights={}),
        "weight-of-another-shape": graph(arrays={"w": np.zeros(3, np.float32)}),
        "weight-of-another-dtype": graph(arrays={"w": np.zeros(2, np.int32)}),
        "weight-in-no-array": graph(weights={"w": {"array": "v"}}),
        "weight-is-code": graph(weights={"w": {"object": "os.system"}}),
        "output-beyond": graph(returned={"output": 7}),
        "output-negative": graph(returned={"output": -1}),
        "number-of-no-kind": graph(returned={"number": [0, "eval"]}),
        "argument-unknown": graph(arguments={"dict": {"y": {"input": 0}}}),
        "arguments-deep": graph(arguments={"dict": {"x": deep}}),
        "parameter-of-no-kind": graph(parameters=[["x", "LAMBDA"]]),
        "parameter-no-name": graph(parameters=[["x; import os", "POSITIONAL_ONLY"]]),
        "generator-of-three": graph(sources=[{"input": 0}, {"generator": [1, 2, 3]}]),
        "constant-missing": graph(constants={"constant.a": {"array": "a"}}),
    }


def _wrong_trees() -> dict[str, bytes]:
    indices, values = np.array([[0, 9]]), np.ones(2, np.float32)
    sparse = '{"sparse":{"dict":{"indices":{"tensor":"i"},"values":{"tensor":"v"}}},"shape":[3]}'
    ragged = '{"ragged":{"dict":{"values":{"tensor":"v"},"splits":{"tensor":"s"}}}}'
    return {
        "tree-deep": tree("[" * 5000 + "]" * 5000),
        "tree-deep-dicts": tree('{"dict":{"a":' * 300 + "1" + "}}" * 300),
        "tree-missing": tree('{"tensor":"nothing"}'),
        "tree-unknown-word": tree('{"module":"os"}'),
        "tree-int-of-code": tree('{"int":"__import__(0)"}'),
        "tree-int-huge": tree('{"int":"0x' + "f" * 20_000 + 'g"}'),
        "tree-key-twice": tree('{"dict":{"a":1,"a":2}}'),
        "tree-list-as-key": tree('{"items":[[[1],2]]}'),
        "tree-complex-of-floats": tree('{"tensor":"w","complex":1}', {"w": np.zeros(3, np.float32)}),
        "sparse-outside": tree(sparse, {"i": indices, "v": values}),
        "sparse-huge-shape": tree(sparse.replace("[3]", "[-1]"), {"i": indices, "v": values}),
        "ragged-outside": tree(ragged, {"v": values, "s": np.array([0, 9])}),
        "kind-unknown": written({}, "program", {}),
    }


def harmless() -> dict[str, bytes]:
    """Files that load: only running them would take much."""
    lines: dict[str, Callable[[], str]] = {
        "huge-value": lambda: body(
            "%0: f32[1] = reshape(f32(1.0), shape=(1,))",
            "%1: f32[1000000000000] = broadcast_to(%0, shape=(1000000000000,))",
            "%2: f32[] = sum(%1, axes=(0,))",
            result="%2",
        ),
        "huge-range": lambda: body("%0: i64[1000000000000] = iota(size=1000000000000, dtype=i64)"),
        "many-nodes": lambda: body(
            "%0: f32[2] = neg(%x)", *[f"%{i}: f32[2] = neg(%{i - 1})" for i in range(1, 1000)], result="%999"
        ),
    }
    return {name: graph(make()) for name, make in lines.items()}


def main() -> None:
    """Write all files."""
    for kind, files in (("refused", refused()), ("harmless", harmless())):
        folder = CORPUS / kind
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.iterdir():
            old.unlink()
        for name, data in files.items():
            (folder / f"{name}.weft").write_bytes(data)


if __name__ == "__main__":
    main()
