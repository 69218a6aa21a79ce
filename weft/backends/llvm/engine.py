"""From LLVM text to machine code in memory: optimise, generate, link, and give addresses.

What the cache on disk knows is not compiled again. The rest is compiled side by side on the processors: each
text in an LLVM context of its own, by functions of llvmlite's library that are called without the lock which
llvmlite holds around its own calls.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import llvmlite
import llvmlite.binding as llvm
from llvmlite.binding import ffi

from weft.backends.llvm.cache import Cache, default_cache
from weft.backends.llvm.target import Target, host_target
from weft.base.threads import get_num_threads
from weft.errors import GraphError

_DEFINED = re.compile(r"^define (?!internal|private|available_externally).*?@([\w.$]+)\(", re.MULTILINE)
_DECLARED = re.compile(r"^declare .*?@([\w.$]+)\(", re.MULTILINE)
_SHARED = ("declare ", "attributes ", "!", "target ")  # lines that several texts may have in common

# Some 1.2 ms of work are done once for each module, so short texts are put together, in as few modules as
# keep four processors busy; how many there are does not matter, so that the cache knows the modules again.
_LEAST_BATCH, _MOST_BATCH, _BATCHES = 4_000, 16_000, 4  # the first two in characters of text


_lock = threading.RLock()  # of all engines: whoever compiles uses all processors anyway


class Source(NamedTuple):
    """A text with functions in it.

    Attributes:
        text: the functions.
        optimise: whether LLVM is to optimise them first. It takes two to four times as long; it pays for
            loops over scalars, and gains nothing for code whose vectors are written out.
    """

    text: str
    optimise: bool = False


class Library:
    """Machine code that was linked together; it stays in memory as long as this object."""

    __slots__ = ("__weakref__", "_tracker")

    def __init__(self, tracker: Any) -> None:
        self._tracker = tracker


class Code:
    """A function in machine code.

    Attributes:
        symbol: its name.
        address: where it is.
    """

    __slots__ = ("__weakref__", "_library", "address", "symbol")

    def __init__(self, symbol: str, address: int, library: Library) -> None:
        self.symbol = symbol
        self.address = address
        self._library = library


class Engine:
    r"""Compiles for one target; knows what it compiled as long as somebody holds it.

    >>> from weft.backends.llvm.engine import Source, default_engine
    >>> code = default_engine().load([Source("define i64 @one() {\n  ret i64 1\n}")])["one"]
    >>> import ctypes
    >>> ctypes.CFUNCTYPE(ctypes.c_int64)(code.address)()
    1
    """

    def __init__(self, target: Target, cache: Cache) -> None:
        self.target = target
        self.cache = cache
        self.lock = _lock
        self._known: WeakValueDictionary[str, Code] = WeakValueDictionary()
        self._symbols: dict[str, Callable[[], int]] = {}
        self._compilers: list[_Compiler] = []
        self._numbers = itertools.count()
        self._linker: Any = None

    def known(self, symbol: str) -> Code | None:
        """The code of a function that was loaded before, if it is still there."""
        return self._known.get(symbol)

    def provide(self, symbol: str, address: Callable[[], int]) -> None:
        """Tell where a function is that texts may declare; asked for when the first one does."""
        self._symbols[symbol] = address

    def load(
        self, sources: Sequence[Source], *, known: Iterable[Code] = (), verify: bool = False
    ) -> dict[str, Code]:
        """The functions that texts define, by name, in memory.

        Args:
            sources: the texts. What they declare is defined in another one of them, in ``known``, given by
                ``provide``, or a function of the C library.
            known: code that they call, from earlier loads.
            verify: whether LLVM is to check the texts.
        """
        with self.lock:
            objects = self._objects(_batches(sources), verify)
            return self._link(sources, objects, {code.symbol: code.address for code in known})

    # Compiling

    def _objects(self, sources: Sequence[Source], verify: bool) -> list[bytes]:
        """The object code of each text, from the cache or compiled."""
        keys = [self._key(source) for source in sources]
        found = [self.cache.get(key) for key in keys]
        missing = [i for i, data in enumerate(found) if data is None]
        missing.sort(key=lambda i: -len(sources[i].text))  # the longest first, so that all end together

        def compile_one(i: int) -> None:
            compiler = self._free_compiler()
            data = found[i] = compiler.compile(sources[i], verify)
            self._compilers.append(compiler)
            self.cache.put(keys[i], data)

        _run_side_by_side(compile_one, missing)
        return [data for data in found if data is not None]

    def _free_compiler(self) -> _Compiler:
        try:
            return self._compilers.pop()
        except IndexError:
            return _Compiler(self.target)

    def _key(self, source: Source) -> tuple[str, ...]:
        version = ".".join(map(str, llvm.llvm_version_info))
        target = self.target
        machine = (target.triple, target.cpu, target.features)
        return (llvmlite.__version__, version, *machine, _PIPELINE if source.optimise else "", source.text)

    # Linking

    def _link(
        self, sources: Sequence[Source], objects: Sequence[bytes], known: Mapping[str, int]
    ) -> dict[str, Code]:
        defined = [name for source in sources for name in _DEFINED.findall(source.text)]
        builder = llvm.JITLibraryBuilder().add_current_process()
        for data in objects:
            builder.add_object_img(data)
        for name in defined:
            builder.export_symbol(name)
        open_names = _declared(sources).difference(defined)
        for name in open_names & {*known, *self._symbols}:
            builder.import_symbol(name, known[name] if name in known else self._symbols[name]())
        try:
            tracker = builder.link(self._jit(), f"weft{next(self._numbers)}")
        except RuntimeError as error:
            missing = ", ".join(sorted(open_names.difference(known, self._symbols)))
            raise GraphError("llvm", f"the code must link, got {error} with {missing} from outside") from None
        library = Library(tracker)
        codes = {name: Code(name, tracker[name], library) for name in defined}
        self._known.update(codes)
        return codes

    def _jit(self) -> Any:
        if self._linker is None:
            machine = _machine(self.target)
            self._linker = llvm.create_lljit_compiler(machine, use_jit_link=True, suppress_errors=True)
        return self._linker


def _declared(sources: Sequence[Source]) -> set[str]:
    """The functions that texts call and that are not LLVM's own."""
    names = {name for source in sources for name in _DECLARED.findall(source.text)}
    return {name for name in names if not name.startswith("llvm.")}


def _batches(sources: Sequence[Source]) -> list[Source]:
    """The texts, short ones together in one."""
    found: list[Source] = []
    for optimise in (False, True):
        texts = [source.text for source in sources if source.optimise == optimise]
        enough = min(max(sum(map(len, texts)) // _BATCHES, _LEAST_BATCH), _MOST_BATCH)
        batch: list[str] = []
        for text in texts:
            batch.append(text)
            if sum(map(len, batch)) >= enough:
                found.append(Source(_merged(batch), optimise))
                batch = []
        if batch:
            found.append(Source(_merged(batch), optimise))
    return found


def _merged(texts: Sequence[str]) -> str:
    """Texts as one, where what they share is said once."""
    if len(texts) == 1:
        return texts[0]
    defined = {name for text in texts for name in _DEFINED.findall(text)}
    shared: dict[str, None] = {}
    own: list[str] = []
    for text in texts:
        for line in text.splitlines():
            if not line.startswith(_SHARED):
                own.append(line)
            elif defined.isdisjoint(_DECLARED.findall(line)):
                shared[line] = None
    return "\n".join([*shared, *own, ""])


def _run_side_by_side(work: Callable[[int], None], items: Sequence[int]) -> None:
    """Do work on items, in as many threads as weft may use; the first error is raised."""
    queue = iter(items)
    errors: list[BaseException] = []

    def run() -> None:
        try:
            for item in queue:  # a list's iterator may be shared: each step of it is one operation
                work(item)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run) for _ in range(min(get_num_threads(), len(items)) - 1)]
    for thread in threads:
        thread.start()
    run()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


# What one thread compiles with


class _Compiler:
    """A code generator, for one thread at a time."""

    def __init__(self, target: Target) -> None:
        self._machine = _machine(target)

    def compile(self, source: Source, verify: bool) -> bytes:
        """The object code of a text."""
        context = llvm.create_context()
        module = _parse(source.text, context)
        if verify:
            module.verify()
        if source.optimise:
            _optimise(self._machine, module)
        return _emit(self._machine, module)


def _machine(target: Target) -> Any:
    """LLVM's code generator; small code with relative addresses, so that constants need none computed."""
    kind = llvm.Target.from_triple(target.triple)
    return kind.create_target_machine(
        target.cpu, target.features, opt=2, reloc="pic", codemodel="small", jit=True
    )


def _unlocked(name: str) -> Any:
    """A function of llvmlite's library, without the lock that llvmlite puts around its calls.

    LLVM lets threads work at the same time on what belongs to different contexts and target machines.
    """
    wrapped = getattr(ffi.lib, name)
    function = ctypes.CDLL(ffi.lib._name)[name]
    function.argtypes, function.restype = wrapped.argtypes, wrapped.restype
    return function


_parse_assembly = _unlocked("LLVMPY_ParseAssembly")
_run_passes = _unlocked("LLVMPY_RunNewModulePassManager")
_emit_to_memory = _unlocked("LLVMPY_TargetMachineEmitToMemory")


def _parse(text: str, context: Any) -> Any:
    with ffi.OutputString() as message:
        pointer = _parse_assembly(context, text.encode(), message)
        if message:
            raise GraphError("llvm", f"the text must be LLVM's, got {message}")
    return llvm.ModuleRef(pointer, context)


def _emit(machine: Any, module: Any) -> bytes:
    with ffi.OutputString() as message:
        buffer = _emit_to_memory(machine, module, 1, message)
        if not buffer:
            raise GraphError("llvm", f"the text must have machine code, got {message}")
    try:
        return ctypes.string_at(ffi.lib.LLVMPY_GetBufferStart(buffer), ffi.lib.LLVMPY_GetBufferSize(buffer))
    finally:
        ffi.lib.LLVMPY_DisposeMemoryBuffer(buffer)


_PIPELINE = "O2 slp"  # stands in the keys of the cache


def _optimise(machine: Any, module: Any) -> None:
    """Everything LLVM has, its vectorisers among it."""
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    options.slp_vectorization = True
    builder = llvm.create_pass_builder(machine, options)
    _run_passes(builder.getModulePassManager(), module, builder)


_engines: dict[Target, Engine] = {}


def default_engine(target: Target | None = None) -> Engine:
    """The engine of this process for a target, this machine if none is given."""
    target = target or host_target()
    engine = _engines.get(target)
    return engine if engine is not None else _engines.setdefault(target, Engine(target, default_cache()))


if hasattr(os, "register_at_fork"):  # the child of a fork finds nobody in the middle of compiling
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)
