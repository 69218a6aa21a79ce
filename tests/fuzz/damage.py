"""Damaged and changed files and requests: each is read, or is an error, in bounded memory and time.

Graph files, trees and checkpoints, safetensors of others, ONNX models, texts of graphs, and requests to the
server's parser. A case is a line with its kind, then its bytes. Wrong are errors of other classes, a crash, a
case that takes 5 s or more memory than four times the file (and what any file takes), and code that is run.
"""

from __future__ import annotations

import json
import random
import resource
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import weft
from tests.fuzz.campaign import TooLong, Watch, campaign, place, told
from tests.fuzz.hostile import graph, tree
from tests.fuzz.mutations import change_message, change_text, changed_request, mutated
from tests.onnx.models import BRANCH, MLP, parse
from tests.serve.common import binary_request
from weft.errors import FileError, WeftError
from weft.io.interface import Port
from weft.io.layout import read_file
from weft.serve.protocol import Codec
from weft.serve.settings import RefusedError

FILES = Path(__file__).parents[1] / "io"
ONNX = Path(__file__).parents[1] / "onnx" / "files"
SLACK = 64 << 20  # bytes of address space that a case may take besides four times its own
SOME = 2000  # cases in a batch
SHARES = {"weft": 6, "text": 2, "onnx": 3, "request": 9}
FORBIDDEN = (
    "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.forkpty", "os.remove", "os.rename",
    "subprocess.Popen", "pickle.find_class", "ctypes.dlopen", "socket.connect",
)  # fmt: skip


# What is changed


@cache
def seeds() -> dict[str, list[bytes]]:
    """By kind, what is good to begin with, and some that is known to be bad."""
    files = [path.read_bytes() for path in sorted(FILES.rglob("*.weft"))]
    with tempfile.TemporaryDirectory() as folder:
        files += [*_made(Path(folder) / "file"), graph(), tree("[1,2]")]
        found = [text.encode() for text in _texts(files, Path(folder) / "text")]
    models = [MLP, BRANCH, parse("f (float[N] x) => (float[M] y) { y = Add (x, x) }")]
    given = [path.read_bytes() for path in sorted(ONNX.rglob("*.onnx")) if path.stat().st_size < 20_000]
    return {
        "weft": files,
        "text": found,
        "onnx": [*[m.SerializeToString() for m in models], *given],
        "request": [_request(*binary_request(_arrays(n), id="a")) for n in (0, 1, 3)],
    }


def _made(path: Path) -> list[bytes]:
    """Files of functions with loops, branches, sizes, random numbers and state; trees; a foreign file."""
    weft.manual_seed(0)
    model = weft.nn.Linear(3, 2)
    optimizer = weft.optim.Adam(model.parameters())

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = weft.dropout(model(x), 0.5).square().sum()
        loss.backward()
        optimizer.step()
        return {"loss": loss.detach(), "count": [1, (2.5, None)]}

    def collatz(n: Any) -> Any:
        while n > 1:
            n = n // 2 if n % 2 == 0 else 3 * n + 1
        return n

    found = []
    types = weft.TensorType(("batch", 3), weft.float32), weft.TensorType((), weft.int64)
    for function, kind in zip((step, collatz), types, strict=True):
        weft.compile(function).save(path, kind)
        found.append(path.read_bytes())
    step(weft.ones((2, 3)))
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 3, "rng": (1, b"x")}
    sparse = weft.sparse_coo_tensor([[1]], [2.0], (3,))
    for kept in (state, {"a": weft.arange(3), "s": sparse, "n": 1.5}):
        weft.save(kept, path)
        found.append(path.read_bytes())
    return [*found, _safetensors()]


def _safetensors() -> bytes:
    header = {
        "w": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
        "__metadata__": {"format": "pt"},
    }
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + np.arange(6, dtype=np.float32).tobytes()


def _texts(files: Sequence[bytes], path: Path) -> list[str]:
    found = []
    for data in files:
        path.write_bytes(data)
        try:
            found.append(read_file("fuzz", str(path), mmap=False, verify=False).metadata["weft.graph"])
        except (FileError, KeyError):
            continue
    return found


_PORTS = {"x": weft.float32, "i": weft.int64, "b": weft.bool, "h": weft.bfloat16}


def _arrays(rows: int) -> dict[str, Any]:
    return {name: np.ones((rows, 2), dtype) for name, dtype in _PORTS.items()}


def _request(body: bytes, headers: dict[str, str]) -> bytes:
    return headers["Inference-Header-Content-Length"].encode() + b"\n" + body


@cache
def _codec() -> Codec:
    ports = [Port(name, weft.TensorType(("n", 2), dtype)) for name, dtype in _PORTS.items()]
    return Codec("fuzz", "1", ports, ports[:2], 1 << 20)


def make(draw: random.Random) -> tuple[str, bytes]:
    """A kind, and something of it that was changed."""
    (kind,) = draw.choices([*SHARES], [*SHARES.values()])
    known = seeds()[kind]
    data = draw.choice(known)
    if kind == "text":
        return kind, change_text(data.decode(), draw).encode("utf-8", "surrogatepass")
    if kind == "onnx" and draw.random() < 0.7:
        return kind, _changed_model(data, draw)
    if kind == "request" and draw.random() < 0.8:
        return kind, changed_request(data, draw)
    return kind, mutated(data, known, draw)


def _changed_model(data: bytes, draw: random.Random) -> bytes:
    model = onnx.ModelProto()
    model.ParseFromString(data)
    for _ in range(draw.choice((1, 1, 2, 3))):
        change_message(model, draw)
    return bytes(model.SerializePartialToString())


# One case


def read_weft(data: bytes, path: Path) -> None:
    """Load a file in each way; what loads must be whole."""
    path.write_bytes(data)
    for load in (weft.load_graph, weft.load):
        try:
            loaded = load(path)
        except FileError:
            continue
        if load is weft.load_graph:
            _check_graph(loaded.graph)
            repr(loaded)


def read_text(data: bytes, path: Path) -> None:
    """Read the text of a graph."""
    try:
        found = weft.parse_graph(data.decode("utf-8", "surrogatepass"))
    except WeftError:
        return
    _check_graph(found)


def _check_graph(found: Any) -> None:
    """What was read can be written and read again."""
    constants = found.constant_data(expand=True)
    weft.parse_graph(found.to_text(expand=True), constants)


def read_onnx(data: bytes, path: Path) -> None:
    """Import a model."""
    try:
        weft.onnx.load(data)
    except (WeftError, NotImplementedError):
        return


def read_request(data: bytes, path: Path) -> None:
    """Read a request as the server does."""
    length, _, body = data.partition(b"\n")
    try:
        request = _codec().read(body, length.decode("latin-1"))
    except RefusedError:
        return
    _codec().write(request, [a.copy() for a in request.arrays])


READERS: dict[str, Callable[[bytes, Path], None]] = {
    "weft": read_weft, "text": read_text, "onnx": read_onnx, "request": read_request,
}  # fmt: skip


def replay(case: bytes) -> str:
    """What is wrong with a case, but for a crash."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            check(case, Path(folder) / "file")
        except Exception as error:
            return told(error)
    return ""


def check(case: bytes, path: Path) -> None:
    """Read a case; an error if it does what it must not."""
    name, _, data = case.partition(b"\n")
    with _no_code():
        READERS[name.decode()](data, path)


# What a case must not do

_forbidding: list[bool] = []


@contextmanager
def _no_code() -> Any:
    """Programs and code that are started meanwhile are errors."""
    if not _forbidding:
        sys.addaudithook(_hook)
        _forbidding.append(False)
    _forbidding[0] = True
    try:
        yield
    finally:
        _forbidding[0] = False


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if _forbidding[0] and event in FORBIDDEN:
        raise PermissionError(f"{event} of {arguments!r:.200}")


def _limited(size: int) -> None:
    """Limit the memory of this process to what it has, and what a case of a size may take."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + SLACK + 4 * size
    resource.setrlimit(resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))


def batch(watch: Watch) -> None:
    """Many cases."""
    draw, path = random.Random(watch.seed), watch.folder / "file"
    for kind, known in seeds().items():  # which imports what is needed
        READERS[kind](known[0], path)
    for _ in range(SOME):
        if watch.over():
            return
        kind, data = make(draw)
        case = kind.encode() + b"\n" + data
        watch.begin(case, kind)
        try:
            _limited(len(case))
            check(case, path)
        except (Exception, TooLong) as error:
            resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
            watch.found(f"{kind}-{place(error)}", "what was read, or a declared error", told(error))
        watch.done()


def main(arguments: Sequence[str] | None = None) -> int:
    """Fuzz."""
    seeds()
    return campaign("damage", batch, arguments)


if __name__ == "__main__":
    sys.exit(main())
