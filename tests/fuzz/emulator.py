"""Machine code of the other architecture, run here: linked by a cross compiler, executed by qemu.

ARM's on x86-64, and x86-64's on ARM. One process under qemu takes libraries and arrays on its input, and
gives results on its output; where a library crashes it, the next request starts another one.
"""

from __future__ import annotations

import json
import shutil
import struct
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np

import weft
from weft.backends.llvm.export import exporter
from weft.backends.llvm.export.processor import is_arm
from weft.backends.llvm.target import host_target
from weft.base.dtypes import as_dtype
from weft.ir.graph import Graph
from weft.library import export
from weft.schedule.program import lower_graph

Array = np.ndarray[Any, Any]
REFUSED = (
    1,
    3,
)  # statuses of runs that end with an error of their own: sizes that are not allowed, and others
AS_MANY = 200  # libraries that a process loads before another one goes on: none is ever unloaded


class Other(NamedTuple):
    """The other architecture.

    Attributes:
        cpu: as ``export_library`` names it.
        compiler: that links for it.
        emulators: programs that run it, of which one is enough.
        root: where its C library is.
    """

    cpu: str
    compiler: str
    emulators: tuple[str, ...]
    root: str

    def missing(self) -> str:
        """What has to be installed, "" if nothing."""
        if shutil.which(self.compiler) is None:
            return f"{self.compiler} is missing: apt install gcc-{self.root}"
        if not any(map(shutil.which, self.emulators)):
            return f"{self.emulators[0]} is missing: apt install qemu-user-static"
        return ""

    def command(self, program: Path) -> list[str]:
        """What runs a program."""
        emulator = next(filter(None, map(shutil.which, self.emulators)))
        return [emulator, "-L", f"/usr/{self.root}", str(program)]


ARM = Other("armv8-a", "aarch64-linux-gnu-gcc", ("qemu-aarch64-static", "qemu-aarch64"), "aarch64-linux-gnu")
X86 = Other("x86-64-v2", "x86_64-linux-gnu-gcc", ("qemu-x86_64-static", "qemu-x86_64"), "x86_64-linux-gnu")


def other() -> Other:
    """The architecture that this machine is not of."""
    return X86 if is_arm(host_target()) else ARM


class CrashError(Exception):
    """The process ended where it should have answered."""


def export_for(machine: Other, graph: Graph, folder: Path, disable: Sequence[str] = ()) -> None:
    """Write a graph as it is, with all its inputs as arguments, as a library for a machine."""
    plain = graph.replace(roles=("arg",) * len(graph.inputs))
    lowering = partial(lower_graph, disable=disable)
    with (
        patch.object(exporter, "lower_graph", lowering),
        patch.object(export, "optimize", lambda graph, **_: graph),
    ):
        weft.export_library(plain, folder, name="model", cpu=machine.cpu, linker=machine.compiler)


class Emulator:
    """Runs libraries of the other architecture; to be used in ``with``."""

    def __init__(self, machine: Other, folder: Path) -> None:
        self.machine = machine
        self._program = folder / "emulator"
        source = Path(__file__).with_suffix(".c")
        command = [machine.compiler, "-O1", "-Wall", "-Werror", "-o", self._program, source, "-ldl"]
        subprocess.run(command, check=True, capture_output=True)
        self._process: subprocess.Popen[bytes] | None = None
        self._seen = 0
        self._last: Path | None = None

    def __enter__(self) -> Emulator:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            for pipe in (self._process.stdin, self._process.stdout):
                with suppress(BrokenPipeError):  # what it was not given yet
                    pipe.close()  # type: ignore[union-attr]
            self._process.wait()
            self._process = None

    def _ended(self) -> int:
        """The status of a process that ended by itself."""
        assert self._process is not None
        status = self._process.wait(10)
        self.stop()
        return status

    def __call__(
        self, folder: Path, arrays: Sequence[Array], sizes: Mapping[str, int]
    ) -> tuple[str, list[Array]]:
        """An error that a run raised, "" if none, and its results, flat; raises ``CrashError``."""
        signature = json.loads((folder / "model.json").read_text())
        try:
            return self._ask(folder / "libmodel.so", signature, arrays, sizes)
        except BrokenPipeError:
            raise CrashError(f"the library ended the process with {self._ended()}") from None
        except BaseException:
            self.stop()  # it would go on with the answer to this
            raise

    def _ask(
        self, library: Path, signature: dict[str, Any], arrays: Sequence[Array], sizes: Mapping[str, int]
    ) -> tuple[str, list[Array]]:
        process = self._running(library)
        assert process.stdin is not None
        path = str(library).encode()
        process.stdin.write(struct.pack("<q", len(path)) + path)
        words = [sizes[name] for name in signature["sizes"]]
        process.stdin.write(struct.pack(f"<{2 + len(words)}q", len(words), *words, len(arrays)))
        for array in arrays:
            process.stdin.write(struct.pack("<q", array.nbytes) + array.tobytes())
        process.stdin.write(struct.pack("<q", len(signature["outputs"])))
        process.stdin.flush()
        status = self._word()
        if status:
            message = self._bytes().decode()
            if status not in REFUSED:
                raise CrashError(f"status {status}: {message}")
            return message, []
        return "", [np.frombuffer(self._bytes(), as_dtype(row["dtype"])) for row in signature["outputs"]]

    def _running(self, library: Path) -> subprocess.Popen[bytes]:
        self._seen += library != self._last
        self._last = library
        if self._seen > AS_MANY:
            self.stop()
        if self._process is None:
            self._seen = 1
            command = self.machine.command(self._program)
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        return self._process

    def _word(self) -> int:
        return int(struct.unpack("<q", self._read(8))[0])

    def _bytes(self) -> bytes:
        return self._read(self._word())

    def _read(self, count: int) -> bytes:
        assert self._process is not None
        assert self._process.stdout is not None
        found = self._process.stdout.read(count)
        if len(found) < count:
            raise BrokenPipeError
        return found
