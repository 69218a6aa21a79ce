"""From LLVM text to machine code in memory: optimise, generate, link, and give addresses.

What the cache on disk knows is not compiled again. The rest is compiled side by side on the processors: each
text in an LLVM context of its own, by functions of llvmlite's library that are called without the lock which
llvmlite holds around its own calls.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any
from weakref import WeakValueDictionary

import llvmlite
import llvmlite.binding as llvm

from weft.backends.llvm.cache import Cache, default_cache
from weft.backends.llvm.code import Code, early, lock
from weft.backends.llvm.compiler import (
    PIPELINE,
    Compilation,
    Compiler,
    Source,
    declared_names,
    defined_names,
    machine_for,
)
from weft.backends.llvm.target import Target, host_target
from weft.errors import GraphError

__all__ = ["Code", "Engine", "default_engine"]

_LIBRARIES = 200  # that one linker links: llvmlite keeps 9 KB of each, though its code is dropped


class Engine:
    r"""Compiles for one target; knows what it compiled as long as somebody holds it.

    >>> from weft.backends.llvm.compiler import Source
    >>> from weft.backends.llvm.engine import default_engine
    >>> code = default_engine().load([Source("define i64 @one() {\n  ret i64 1\n}")])["one"]
    >>> import ctypes
    >>> ctypes.CFUNCTYPE(ctypes.c_int64)(code.address)()
    1
    """

    def __init__(self, target: Target, cache: Cache) -> None:
        self.target = target
        self.cache = cache
        self.lock = lock
        self._known: WeakValueDictionary[str, Code] = WeakValueDictionary()
        self._symbols: dict[str, Callable[[str], int]] = {}
        self._prepared: dict[tuple[str, ...], bytes] = {}
        self._expected: set[tuple[str, ...]] = set()
        self._compilers: list[Compiler] = []
        self._numbers = itertools.count()
        self._linker: Any = None
        self._libraries = 0

    def known(self, symbol: str) -> Code | None:
        """The code of a function that was loaded before, if it is still there."""
        return self._known.get(symbol)

    def provide(self, symbols: Iterable[str], address: Callable[[str], int]) -> None:
        """Tell where functions are that texts may declare; each is asked for when the first one does."""
        self._symbols.update(dict.fromkeys(symbols, address))

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
        with self.lock, self.compilation(verify) as compilation:
            for source in sources:
                compilation.add(source)
            return self.link(compilation, known)

    def compilation(self, verify: bool = False) -> Compilation:
        """Takes texts one by one, and compiles meanwhile; to be used and linked under the lock."""
        return Compilation(partial(self.object_code, verify=verify))

    def prepare(self, source: Source, compilation: Compilation) -> None:
        """Have a text compiled beside others, for a load later on."""
        key = self._key(source)
        if key not in self._prepared and key not in self._expected:
            self._prepared[key] = b""
            compilation.run(lambda: self._prepared.update({key: self.object_code(source)}))

    def prepare_early(self, sources: Iterable[Source]) -> None:
        """Compile texts that are not loaded yet, for loads later on, which wait for it; needs no lock."""
        new = [s for s in sources if not any(map(self.known, defined_names(s.text)))]
        wanted = {self._key(source): source for source in new}
        self._expected.update(wanted.keys() - self._prepared.keys())
        for key in [key for key in wanted if key in self._expected]:
            with early:
                self._prepared[key] = self.object_code(wanted[key])
                self._expected.discard(key)

    def object_code(self, source: Source, verify: bool = False) -> bytes:
        """The object code of a text, from the cache or compiled."""
        key = self._key(source)
        if key in self._expected:
            with early:  # another thread is at it, unless it comes later or is gone with a fork
                pass
        return self._prepared.get(key) or self.cache.get(key) or self._compile(source, verify)

    def _compile(self, source: Source, verify: bool = False) -> bytes:
        """The object code of a text, compiled here, and kept."""
        compiler = self._free_compiler()
        found = compiler.compile(source, verify)
        self._compilers.append(compiler)
        self.cache.put(self._key(source), found)
        return found

    def _free_compiler(self) -> Compiler:
        try:
            return self._compilers.pop()
        except IndexError:
            return Compiler(self.target)

    def _key(self, source: Source) -> tuple[str, ...]:
        version = ".".join(map(str, llvm.llvm_version_info))
        target = self.target
        machine = (target.triple, target.cpu, target.features)
        settings = PIPELINE if source.optimise else "quick" if source.quick else ""
        return (llvmlite.__version__, version, *machine, settings, source.text)

    # Linking

    def link(self, compilation: Compilation, known: Iterable[Code] = ()) -> dict[str, Code]:
        """The functions of a compilation, by name, in memory."""
        sources, objects = compilation.sources, compilation.finish()
        addresses = {code.symbol: code.address for code in known}
        defined = [name for source in sources for name in defined_names(source.text)]
        outside = self._outside(sources, defined, addresses)
        try:
            tracker = self._linked(objects, defined, outside)
        except RuntimeError:  # an object from the cache may be another than its key says
            try:
                tracker = self._linked([self._compile(source) for source in sources], defined, outside)
            except RuntimeError as error:
                missing = ", ".join(sorted(_declared(sources).difference(defined, outside)))
                raise GraphError(
                    "llvm", f"the code must link, got {error} with {missing} from outside"
                ) from None
        codes = {name: Code(name, tracker[name], tracker) for name in defined}
        self._known.update(codes)
        return codes

    def _outside(
        self, sources: Sequence[Source], defined: Sequence[str], known: Mapping[str, int]
    ) -> dict[str, int]:
        """Where functions are that texts declare and do not define, but for those of the C library."""
        names = _declared(sources).difference(defined) & {*known, *self._symbols}
        return {name: known[name] if name in known else self._symbols[name](name) for name in names}

    def _linked(self, objects: Sequence[bytes], defined: Sequence[str], outside: Mapping[str, int]) -> Any:
        builder = llvm.JITLibraryBuilder().add_current_process()
        for data in objects:
            builder.add_object_img(data)
        for name in defined:
            builder.export_symbol(name)
        for name, address in outside.items():
            builder.import_symbol(name, address)
        return builder.link(self._jit(), f"weft{next(self._numbers)}")

    def _jit(self) -> Any:
        """What links: a new one now and then, for some memory of each library goes with the linker alone."""
        self._libraries += 1
        if self._linker is None or self._libraries % _LIBRARIES == 0:
            machine = machine_for(self.target)
            self._linker = llvm.create_lljit_compiler(machine, use_jit_link=True, suppress_errors=True)
        return self._linker


def _declared(sources: Sequence[Source]) -> set[str]:
    """The functions that texts call and that are not LLVM's own."""
    names = {name for source in sources for name in declared_names(source.text)}
    return {name for name in names if not name.startswith("llvm.")}


_engines: dict[Target, Engine] = {}


def default_engine(target: Target | None = None) -> Engine:
    """The engine of this process for a target, this machine if none is given."""
    target = target or host_target()
    engine = _engines.get(target)
    return engine if engine is not None else _engines.setdefault(target, Engine(target, default_cache()))
