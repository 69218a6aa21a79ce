"""Modules: from PTX to machine code of a device, by the driver, in threads, kept in weft's cache on disk.

The driver compiles while it links, 30 to 100 ms a module, without holding Python's lock. What comes of it is
kept as the host's machine code is, by the same rules of trust, under a name that has the text, the device's
architecture and the driver's version in it.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from weft.backends.cuda.card import Card
from weft.backends.llvm.cache import default_cache
from weft.base.digest import digest
from weft.base.threads import get_num_threads
from weft.errors import GraphError

_PTX = 1  # of CUjitInputType
_ERROR_LOG, _ERROR_LOG_SIZE = 5, 6  # of CUjit_option
_LOG_BYTES = 8192
_MOST_SHARED = 8  # of CUfunction_attribute: dynamic shared memory of a block
_ALWAYS_SHARED = 48 << 10  # bytes that every kernel may ask for


class Function:
    """A kernel of a module.

    Attributes:
        name: in the PTX.
        card: the device.
        handle: of the driver.
        dynamic_shared: bytes of shared memory that a launch may ask for.
    """

    __slots__ = ("card", "dynamic_shared", "handle", "module", "name")

    def __init__(self, module: Module, name: str) -> None:
        self.module = module
        self.name = name
        self.card = module.card
        self.handle = int(module.card.driver.cuModuleGetFunction(module.handle, name.encode()))
        self.dynamic_shared = _ALWAYS_SHARED

    def allow_shared(self, nbytes: int) -> None:
        """Let launches ask for more shared memory than every kernel may."""
        attribute = getattr(self.card.driver.api, "CUfunction_attribute", int)(_MOST_SHARED)
        self.card.driver.cuFuncSetAttribute(self.handle, attribute, nbytes)
        self.dynamic_shared = nbytes


class Module:
    """Machine code in a device.

    Attributes:
        card: the device.
        handle: of the driver.
    """

    def __init__(self, card: Card, image: bytes) -> None:
        card.enter()
        self.card = card
        self.handle = int(card.driver.cuModuleLoadData(image))
        self._functions: dict[str, Function] = {}

    def function(self, name: str) -> Function:
        """A kernel by its name."""
        known = self._functions.get(name)
        if known is None:
            known = self._functions[name] = Function(self, name)
        return known


def link(card: Card, text: str, name: str = "weft") -> bytes:
    """The machine code (a cubin) of PTX; what the driver has to say against it is the error."""
    card.enter()
    api = card.driver.api
    log = bytes(_LOG_BYTES)  # the bindings hand its memory to the driver, which writes there
    option, kind = getattr(api, "CUjit_option", int), getattr(api, "CUjitInputType", int)
    options = [option(_ERROR_LOG), option(_ERROR_LOG_SIZE)]
    state = card.driver.cuLinkCreate(2, options, [log, _LOG_BYTES])
    image = text.encode() + b"\0"
    try:
        code = card.driver.code(
            "cuLinkAddData", state, kind(_PTX), image, len(image), name.encode(), 0, [], []
        )
        if code:
            said = log.split(b"\0")[0].decode(errors="replace").strip() or card.driver.reason(code)
            raise GraphError("cuda", f"the driver must take the PTX of {name}, got: {said}")
        address, size = card.driver.cuLinkComplete(state)
        return ctypes.string_at(int(address), int(size))
    finally:
        card.driver.code("cuLinkDestroy", state)


def machine_code(card: Card, text: str) -> bytes:
    """The machine code of PTX for a device, from the cache on disk or linked and put there."""
    cache, key = default_cache(), _key(card, text)
    known = cache.get(key)
    if known is None:
        known = link(card, text)
        cache.put(key, known)
    return known


def _key(card: Card, text: str) -> tuple[str, ...]:
    version = int(card.driver.cuDriverGetVersion())
    return ("cuda", card.architecture, str(version), text)


_modules: dict[tuple[int, bytes], Module] = {}
_lock = threading.Lock()


def load_module(card: Card, text: str) -> Module:
    """The module of PTX on a device; the same text is loaded once."""
    return load_modules(card, [text])[0]


def load_text(card: Card, text: str) -> Module:
    """The module of PTX that the driver must load as it is: it calls functions that only the driver has."""
    key = (id(card), digest(text.encode()))
    with _lock:
        if key not in _modules:
            _modules[key] = Module(card, text.encode() + b"\0")
    return _modules[key]


def load_modules(card: Card, texts: Sequence[str]) -> list[Module]:
    """Modules of several texts, linked side by side."""
    keys = [(id(card), digest(text.encode())) for text in texts]
    new = {key: text for key, text in zip(keys, texts, strict=True) if key not in _modules}
    if new:
        images = _linked(card, list(new.values()))
        with _lock:
            for key, image in zip(new, images, strict=True):
                if key not in _modules:
                    _modules[key] = Module(card, image)
    return [_modules[key] for key in keys]


def _linked(card: Card, texts: list[str]) -> list[bytes]:
    if len(texts) == 1:
        return [machine_code(card, texts[0])]
    with ThreadPoolExecutor(min(len(texts), get_num_threads())) as threads:
        return list(threads.map(lambda text: machine_code(card, text), texts))


def forget_modules() -> None:
    """Drop all modules, for tests that put another driver in place."""
    _modules.clear()
