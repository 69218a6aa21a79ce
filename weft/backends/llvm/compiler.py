"""LLVM's code generator: from text to object code, by several threads at the same time.

Functions of llvmlite's library are called without the lock that llvmlite puts around its calls: LLVM lets
threads work side by side on what belongs to different contexts and target machines.

Threads compile texts that are there while more is being written. Short texts are put together, since some
1.2 ms of work are done once for each module. Which ones does not depend on how far the threads have got, so
that the cache on disk knows the modules again.
"""

from __future__ import annotations

import ctypes
import re
import sys
from _thread import start_new_thread
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from math import inf
from queue import PriorityQueue, SimpleQueue
from typing import Any

import llvmlite.binding as llvm
from llvmlite.binding import ffi

from weft.backends.llvm.code import Source
from weft.backends.llvm.target import Target
from weft.base.threads import get_num_threads
from weft.errors import GraphError

__all__ = ["PIPELINE", "Compiler", "Source", "machine_for"]

PIPELINE = "O2 slp"  # what optimising means; stands in the keys of the cache


class Compiler:
    """A code generator, for one thread at a time."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._machines: dict[int, llvm.TargetMachine] = {}

    def compile(self, source: Source, verify: bool) -> bytes:
        """The object code of a text."""
        machine = self._machine(0 if source.quick else 2)
        module = _parse(source.text, llvm.create_context())
        if verify:
            module.verify()
        if source.optimise:
            _optimise(machine, module)
        return _emit(machine, module)

    def _machine(self, level: int) -> llvm.TargetMachine:
        if level not in self._machines:
            self._machines[level] = machine_for(self._target, level)
        return self._machines[level]


def machine_for(target: Target, level: int = 2) -> llvm.TargetMachine:
    """LLVM's code generator; small code with relative addresses, so that constants need none computed."""
    kind = llvm.Target.from_triple(target.triple)
    return kind.create_target_machine(
        target.cpu, target.features, opt=level, reloc="pic", codemodel="small", jit=True
    )


@cache
def _function(name: str, *, keeps_turn: bool = False) -> Any:
    """A function of llvmlite's library, without the lock that llvmlite puts around its calls.

    Other threads run Python meanwhile, unless it keeps the turn, because it takes no time.
    """
    library = (ctypes.PyDLL if keeps_turn else ctypes.CDLL)(ffi.lib._name)
    wrapped, function = getattr(ffi.lib, name), library[name]
    function.argtypes, function.restype = wrapped.argtypes, wrapped.restype
    return function


def _parse(text: str, context: llvm.ContextRef) -> llvm.ModuleRef:
    message = ctypes.c_char_p()
    pointer = _function("LLVMPY_ParseAssembly")(context, text.encode(), ctypes.byref(message))
    if message:
        raise GraphError("llvm", f"the text must be LLVM's, got {_taken(message)}")
    return llvm.ModuleRef(pointer, context)


def _emit(machine: llvm.TargetMachine, module: llvm.ModuleRef) -> bytes:
    message = ctypes.c_char_p()
    emit = _function("LLVMPY_TargetMachineEmitToMemory")
    buffer = emit(machine, module, 1, ctypes.byref(message))
    if not buffer:
        raise GraphError("llvm", f"the text must have machine code, got {_taken(message)}")
    start = _function("LLVMPY_GetBufferStart", keeps_turn=True)(buffer)
    size = _function("LLVMPY_GetBufferSize", keeps_turn=True)(buffer)
    try:
        return ctypes.string_at(start, size)
    finally:
        _function("LLVMPY_DisposeMemoryBuffer", keeps_turn=True)(buffer)


def _taken(message: ctypes.c_char_p) -> str:
    """What LLVM says; it is freed."""
    text = (message.value or b"").decode(errors="replace")
    ffi.lib.LLVMPY_DisposeString(message)
    return text


def _optimise(machine: llvm.TargetMachine, module: llvm.ModuleRef) -> None:
    """Everything LLVM has, its vectorisers among it."""
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    options.slp_vectorization = True
    builder = llvm.create_pass_builder(machine, options)
    # It has a name: freed where the call ends, Ctrl-C would be raised in a destructor, which loses it.
    passes = builder.getModulePassManager()
    _function("LLVMPY_RunNewModulePassManager")(passes, module, builder)


_DEFINED = re.compile(r"define (?!internal|private|available_externally).*?@([\w.$]+)\(")
_DECLARED = re.compile(r"declare .*?@([\w.$]+)\(")
_SHARED = ("declare ", "attributes ", "!", "target ")  # lines that several texts may have in common

# Characters of a module: few at first, so that no processor waits for the first one; a fifth of all later.
_LEAST_BATCH, _MOST_BATCH, _PART = 8_000, 16_000, 5

_TURN = 1e-4  # seconds after which a thread that runs Python lets one take over that has compiled something


class Compilation:
    r"""Object code of texts, compiled side by side, in the order of their modules.

    >>> from weft.backends.llvm.compiler import Compilation
    >>> from weft.backends.llvm.compiler import Source
    >>> with Compilation(lambda source: source.text.encode()) as compilation:
    ...     compilation.add(Source("define void @f() {\n  ret void\n}\n"))
    ...     [code] = compilation.finish()
    >>> code[:16]
    b'define void @f()'

    Attributes:
        sources: all texts, as they were given.
    """

    def __init__(self, compile: Callable[[Source], bytes]) -> None:
        self.sources: list[Source] = []
        self._compile = compile
        self._waiting: dict[tuple[bool, ...], list[str]] = {}
        self._modules: list[Source] = []
        self._characters = self._begun = 0
        self._objects: dict[int, bytes] = {}
        self._queue: PriorityQueue[tuple[float, int, Callable[[], None] | None]] = PriorityQueue()
        self._threads = 0
        self._ended: list[None] = []  # an item for each thread that has
        self._wake: SimpleQueue[None] = SimpleQueue()
        self._errors: list[BaseException] = []

    def __enter__(self) -> Compilation:
        self._turn = sys.getswitchinterval()
        sys.setswitchinterval(_TURN)
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            self._errors.append(error)  # so that nothing more is begun
        self._end()
        try:
            self._join()
        finally:
            sys.setswitchinterval(self._turn)

    def add(self, source: Source) -> None:
        """Take a text."""
        self.sources.append(source)
        batch = self._waiting.setdefault(source[1:], [])
        batch.append(source.text)
        least = _LEAST_BATCH if self._modules else _LEAST_BATCH // 2
        if sum(map(len, batch)) >= min(max(self._characters // _PART, least), _MOST_BATCH):
            self._begin(source[1:])

    def finish(self) -> list[bytes]:
        """The object code of all modules; the first error is raised."""
        for settings in list(self._waiting):
            self._begin(settings)
        self._end()
        self._work()
        self._join()
        if self._errors:
            raise self._errors[0]
        return self.objects

    @property
    def objects(self) -> list[bytes]:
        """The object code of the modules that are finished."""
        return [self._objects[i] for i in sorted(self._objects)]

    def run(self, work: Callable[[], None], effort: float = inf) -> None:
        """Have other work done beside; what takes longest is done first, so that threads end together."""
        self._begun += 1
        self._queue.put((-effort, self._begun, work))
        if self._threads < min(get_num_threads() - 1, self._begun):
            self._start()

    def _begin(self, settings: tuple[bool, ...]) -> None:
        """Let the texts that wait be compiled."""
        module = Source(merged(self._waiting.pop(settings)), *settings)
        self._modules.append(module)
        self._characters += len(module.text)
        effort = len(module.text) / (10 if module.quick else 1)
        self.run(partial(self._compile_module, len(self._modules) - 1), effort)

    def _compile_module(self, i: int) -> None:
        self._objects[i] = self._compile(self._modules[i])

    def _work(self) -> None:
        """Do what there is, and what comes, up to a sign to stop."""
        try:
            while (work := self._queue.get()[-1]) is not None and not self._errors:
                work()
        except BaseException as error:
            self._errors.append(error)

    def _start(self) -> None:
        """Have one more thread.

        It is none of ``threading``: these end in callbacks of Python, which lose a Ctrl-C that comes there.
        """
        self._threads += 1
        try:
            start_new_thread(self._work_beside, ())
        except RuntimeError:  # there are as many as the machine allows
            self._threads -= 1

    def _work_beside(self) -> None:
        try:
            self._work()
        finally:
            self._ended.append(None)
            self._wake.put(None)

    def _end(self) -> None:
        """Give the sign to stop to all threads, and to the one that waits for them."""
        for i in range(self._threads + 1):
            self._queue.put((inf, i, None))

    def _join(self) -> None:
        while len(self._ended) < self._threads:  # which holds, too, if Ctrl-C has come after a wake
            self._wake.get()


def defined_names(text: str) -> list[str]:
    r"""The functions that a text defines for others.

    >>> from weft.backends.llvm.compiler import defined_names
    >>> defined_names("declare void @f()\ndefine void @g() {\n  ret void\n}\n")
    ['g']
    """
    return [found[1] for line in _lines(text, "define ") if (found := _DEFINED.match(line))]


def declared_names(text: str) -> list[str]:
    """The functions that a text takes from others."""
    return [found[1] for line in _lines(text, "declare ") if (found := _DECLARED.match(line))]


def _lines(text: str, word: str) -> Iterator[str]:
    """The lines that begin with a word; few of many, so that it pays not to look at each."""
    text, wanted = f"\n{text}\n", f"\n{word}"
    at = text.find(wanted)
    while at >= 0:
        end = text.index("\n", at + 1)
        yield text[at + 1 : end]
        at = text.find(wanted, end)


def merged(texts: Sequence[str]) -> str:
    """Texts as one, where what they share is said once."""
    if len(texts) == 1:
        return texts[0]
    defined = {name for text in texts for name in defined_names(text)}
    shared: dict[str, None] = {}
    own: list[str] = []
    for text in texts:
        head, body = _parted(text)
        for line in head:
            if not line.startswith(_SHARED):
                own.append(line)
            elif defined.isdisjoint(declared_names(line)):
                shared[line] = None
        own += body
    return "\n".join([*shared, *own, ""])


def _parted(text: str) -> tuple[list[str], list[str]]:
    """The lines to look at, and what surely shares nothing: mostly all from the first definition on."""
    at = text.find("\ndefine ") + 1
    if any(f"\n{word}" in text[at:] for word in _SHARED):
        return text.splitlines(), []
    return text[:at].splitlines(), [text[at:].rstrip("\n")]
