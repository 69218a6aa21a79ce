"""Effects that a capture cannot keep: random numbers of others, clocks, input, and writing to files.

What would be baked into the graph and differ at each call is an error. What happens outside of Python's
objects, such as writing to a file, is warned of with the line: only the capture does it, not each call.
"""

from __future__ import annotations

import array
import builtins
import collections
import dis
import functools
import io
import os
import warnings
from contextvars import ContextVar
from types import CodeType
from typing import Any

from weft.base.frames import format_location, user_location
from weft.capture.convert.source import is_library
from weft.capture.runtime.owners import is_made_inside
from weft.errors import CaptureError
from weft.tensor.mode import thread

_RANDOM = ("random", "numpy.random", "secrets", "uuid")
_WRITES = ("write", "writelines", "truncate")
_CLOCKS = ("time", "datetime")
_LOGS = ("logging",)


def check_repeatable(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise or warn where a call would do or give something else at each call of the captured function."""
    owner = getattr(function, "__self__", None)
    name = getattr(function, "__name__", type(function).__name__)
    module = _module_of_call(function)
    check_setting(function)
    if (owner is os.environ and name in _ENVIRON_CHANGES) or any(function is f for f in _ENVIRON_FUNCTIONS):
        raise changing_environment(name)
    if isinstance(owner, ContextVar) and name in ("set", "reset"):
        raise _growing(name, owner)
    if _is_of(module, _RANDOM) and name not in _QUIET and not is_made_inside(owner):
        raise _changing(name, "use weft.rand, weft.randn or another random function of weft")
    if function is builtins.input:
        raise _changing(name, "pass what was typed as an argument")
    if _is_of_threads(function, owner) and (
        name in _STARTS or (name in _WAITS and not is_made_inside(owner))
    ):
        raise _threaded(name)
    if module == "pprint" and name in ("pprint", "pp"):
        what = "captured code must print by print, got pprint, which only this capture would do"
        raise CaptureError(name, what, hint="write print(pprint.pformat(x))")
    if _is_of(module, _LOGS) and name in _LEVELS:
        _warn(name, "writes to a log")
    elif isinstance(owner, _GROWING) and name in _CHANGES and not is_made_inside(owner):
        raise _growing(name, owner)
    elif _is_of(module, _CLOCKS) and name in _TIMES:
        _warn(name, "reads a clock")
    elif isinstance(owner, io.IOBase) and name in _WRITES and not _is_own_text(owner):
        _warn("file.write", "writes to a file")
    elif any(function is f for f in _OPENS):
        _warn("open", "opens a file to write" if _is_to_write(args, kwargs) else "reads a file")
    elif (_is_of(module, _PROGRAMS) and name in _RUNS) or function is os.system:
        _warn(name, "runs a program")
    elif _is_of(module, _FILES) and name in _LOOKS:
        _warn(name, "looks at files")
    elif _uses_eval(function):
        _warn("eval", "runs code that it makes itself, which is not captured: what that reads is taken once")


def check_setting(function: Any) -> None:
    """Raise where a function changes a setting of the process."""
    name = getattr(function, "__name__", "")
    if name in _FILTERS and thread.capture.root.filters is not warnings.filters:
        return  # of warnings, and put back at the end of a block
    if name in _SETTINGS.get(_module_of_call(function).partition(".")[0], ()):
        raise CaptureError(
            name,
            "captured code must not change a setting of the process, which only the capture would do, not "
            "each call",
            hint="set it before the call",
        )


_FILTERS = frozenset({"simplefilter", "filterwarnings", "resetwarnings"})
_SETTINGS: dict[str, frozenset[str]] = {
    "weft": frozenset({"set_default_dtype", "set_num_threads", "set_printoptions"}),
    "numpy": frozenset({"seterr", "seterrcall", "set_printoptions"}),
    "gc": frozenset({"enable", "disable", "freeze", "unfreeze", "set_threshold"}),
    "sys": frozenset({"setrecursionlimit", "setswitchinterval", "settrace", "setprofile"}),
    "logging": frozenset({"setLevel", "disable", "basicConfig", "addHandler", "removeHandler"}),
    "warnings": _FILTERS,
    "decimal": frozenset({"setcontext"}),
    "posix": frozenset({"chdir", "umask", "nice"}),
    "nt": frozenset({"chdir", "umask"}),
    "locale": frozenset({"setlocale"}),
    "signal": frozenset({"signal"}),
    "atexit": frozenset({"register", "unregister"}),
}


def _is_own_text(owner: Any) -> bool:
    """Whether a file is one in memory that captured code has made."""
    return isinstance(owner, io.StringIO | io.BytesIO) and is_made_inside(owner)


def _is_of_threads(function: Any, owner: Any) -> bool:
    """Whether a function is one of threads, processes and queues, or a method of such an object."""
    kinds = type(owner).__mro__ if _is_object(owner) else (function,)
    return any(_is_of(_module(kind), _THREADS) for kind in kinds)


def _threaded(name: str) -> CaptureError:
    return CaptureError(
        name,
        "captured code must not hand work to other threads or processes, or wait for them, which only the "
        "capture would do, not each call",
        hint="do it outside, and pass what they give; independent parts of a graph run side by side anyway",
    )


def check_followed(function: Any) -> None:
    """Raise where a function whose source cannot be read assigns attributes, globals or outer variables."""
    code = getattr(function, "__code__", None)
    names = () if code is None else _assigned(code)
    if names:
        raise CaptureError(
            function.__name__,
            f"the source of a function that assigns {names[0]} must be there to be captured, else only the "
            "capture would do so, not each call",
            hint="put the function in a file; that of one typed at the prompt is there from Python 3.13 on",
        )


@functools.lru_cache(maxsize=4096)
def _assigned(code: CodeType) -> tuple[str, ...]:
    """What code assigns beside its own variables and items, in words."""
    found = []
    for at in dis.get_instructions(code):
        kind, free = at.opname.partition("_")[2], at.argval in code.co_freevars
        if at.opname.startswith(("STORE_", "DELETE_")) and (kind in _OUTER or (kind == "DEREF" and free)):
            found.append(f"the {_OUTER.get(kind, 'outer variable')} {at.argval!r}")
    return tuple(found)


_OUTER = {"ATTR": "attribute", "GLOBAL": "global"}


def _module_of_call(function: Any) -> str:
    owner = getattr(function, "__self__", None)
    if isinstance(owner, type):
        return _module(owner)
    return _module(type(owner)) if _is_object(owner) else _module(function)


def _uses_eval(function: Any) -> bool:
    """Whether a function of the user runs code that it makes itself."""
    if function is eval or function is exec:
        return True
    code = getattr(function, "__code__", None)
    if not isinstance(code, CodeType) or is_library(code.co_filename):
        return False
    return "eval" in code.co_names or "exec" in code.co_names


def changing_environment(name: str) -> CaptureError:
    """The error where captured code changes the environment of the process."""
    return CaptureError(
        name,
        "captured code must not change os.environ, which only the capture would do, not each call",
        hint="set it before the call",
    )


_THREADS = ("threading", "_thread", "queue", "_queue", "concurrent", "multiprocessing")
_STARTS = frozenset({"start", "submit", "map", "starmap", "imap", "imap_unordered", "apply", "apply_async"})
_STARTS |= {"map_async", "starmap_async", "start_new_thread"}
_WAITS = frozenset({"join", "result", "wait", "get", "get_nowait", "put", "put_nowait", "recv", "send"})
_PROGRAMS = ("subprocess",)
_RUNS = frozenset({"run", "call", "check_call", "check_output", "Popen", "getoutput"})
_OPENS = (builtins.open, os.open)
_FILES = ("os", "posix", "nt", "posixpath", "ntpath", "genericpath", "pathlib", "numpy", "glob")
_LOOKS = frozenset(
    {
        *("read_text", "read_bytes", "listdir", "scandir", "getcwd", "exists", "isfile", "isdir", "getsize"),
        *("getmtime", "stat", "iterdir", "is_file", "is_dir", "glob", "rglob", "walk"),
        *("load", "loadtxt", "genfromtxt", "fromfile", "memmap"),
    }
)
_ENVIRON_CHANGES = frozenset({"update", "pop", "popitem", "clear", "setdefault", "__setitem__"})
_ENVIRON_FUNCTIONS = (os.putenv, os.unsetenv)
_QUIET = frozenset({"seed", "default_rng", "Random", "RandomState", "Generator", "getstate", "get_state"})
_TIMES = frozenset({"time", "perf_counter", "monotonic", "process_time", "time_ns", "now", "today", "utcnow"})


_LEVELS = frozenset({"debug", "info", "warning", "error", "critical", "exception", "log"})
_GROWING = (collections.deque, array.array, bytearray)
_CHANGES = frozenset(
    {"append", "appendleft", "extend", "extendleft", "insert", "pop", "popleft", "remove", "clear", "rotate"}
)


def is_log(function: Any) -> bool:
    """Whether a function writes to a log, so that what it reads is no part of the graph."""
    return _is_of(_module_of_call(function), _LOGS)


def _growing(name: str, owner: Any) -> CaptureError:
    return CaptureError(
        name,
        f"captured code must not change a {type(owner).__name__} from outside, "
        "which only the capture would do, not each call",
        hint="return the value, and let the caller keep it",
    )


def _is_object(owner: Any) -> bool:
    """Whether a function is a method of an object, and not one of a module."""
    return owner is not None and type(owner).__name__ != "module"


def _module(x: Any) -> str:
    found = getattr(x, "__module__", None)
    return found if isinstance(found, str) else ""


def _is_of(module: str, packages: tuple[str, ...]) -> bool:
    return any(module == p or module.startswith(f"{p}.") for p in packages)


def _changing(name: str, hint: str) -> CaptureError:
    return CaptureError(
        name,
        "captured code must give the same at each call for the same inputs, got a call whose result changes",
        hint=hint,
    )


def _is_to_write(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    mode = kwargs.get("mode", args[1] if len(args) > 1 else "r")
    return isinstance(mode, str) and any(letter in mode for letter in "wax+")


def _warn(op: str, what: str) -> None:
    where = user_location(2)
    place = "" if where is None else f"\n  at {format_location(where)}"
    message = f"{op}: captured code {what}, which happens during the capture and not at each call{place}"
    file, line = where or ("<unknown>", 1)
    warnings.warn_explicit(message, RuntimeWarning, file, line)
