"""A function that has become graphs: each call finds the version that holds for it, or captures another.

A version holds for calls whose arguments have the same key, while its guards hold. How many there may be is
bounded; the one that was not used for longest goes. ``weft.jit.trace`` makes a function of one version,
``weft.jit.script`` and ``weft.compile`` functions of as many as their calls need.
"""

from __future__ import annotations

import copy
import functools
import threading
import types
import warnings
from collections.abc import Callable
from typing import Any

from weft import errors
from weft.base.dtypes import default_float
from weft.capture.arguments import (
    Arguments,
    flatten,
    leaf_names,
    name_of,
    quick_key,
    rebuild,
    without_gradients,
)
from weft.capture.floats import as_inputs, changed_floats, relies_on_floats
from weft.capture.reasons import describe_growth, other_call
from weft.capture.record import call, capture_call, enter
from weft.capture.tracebacks import at_user
from weft.capture.version import Build, Version
from weft.errors import CaptureError, TraceGuardError
from weft.ir.graph import Graph
from weft.ops.op import staging
from weft.tensor.mode import thread
from weft.transform.scopes import run_scope

MOST_VERSIONS = 64  # of one function; beyond it, those not used for longest go
MANY_VERSIONS = 8  # from there on a warning says why there are so many

Key = tuple[Any, ...]
_STEADY: frozenset[int] = frozenset({-1})  # of a function that needs the values of its floats
_BOUND = "_weft_compiled"  # the attribute of an object that holds its compiled methods


class _Bound(dict[Any, Any]):
    """The compiled methods of one object; a copy of the object gets its own."""

    def __reduce__(self) -> Any:
        return _Bound, ()


class GraphFunction:
    """A function that runs as graphs; made by ``weft.jit.trace``, ``weft.jit.script`` and ``weft.compile``.

    It is called like the function it was made from. Inside another capture it becomes a part of that graph.

    >>> import weft
    >>> f = weft.jit.trace(lambda x: x * 2.0, weft.ones(3))
    >>> f(weft.tensor([1.0, 2.0, 3.0]))
    tensor([2., 4., 6.])
    >>> len(f.graph.nodes)
    1
    """

    def __init__(
        self, function: Callable[..., Any], build: Build, *, staged: bool, looks: bool, grows: bool
    ) -> None:
        self._function = function
        self._build = build
        self._staged = staged
        self._looks = looks
        self._grows = grows
        self._versions: dict[Key, list[Version]] = {}
        self._quick: dict[Key, list[Version]] = {}  # the same lists, by keys that are cheap to make
        self._newest: Version | None = None
        self._floats: dict[Any, frozenset[int]] = {}  # by structure, the leaves that are inputs
        self._changing = threading.RLock()
        self._warned = False
        functools.update_wrapper(self, function, updated=())
        self.__name__ = name_of(function)

    # Calling

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the version that holds for this call, or capture one."""
        if staging.threads and thread.capture is not None:
            return self._inline(args, kwargs)
        key = None if kwargs else quick_key(args)
        if key is not None:
            for version in self._quick.get(key, ()):
                if version.holds(args):
                    try:
                        return version(args)
                    except TraceGuardError:
                        if not self._grows:
                            raise
        return self._call(args, kwargs, key)

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any], quick: Key | None) -> Any:
        """A call that no version is known to hold for."""
        arguments = self._with_inputs(flatten(args, kwargs))
        key = full_key(arguments)
        for version in self._versions.get(key, ()) if quick is None or quick not in self._quick else ():
            if version.holds(arguments.tensors):
                try:
                    return (
                        version.replay(arguments.tensors) if arguments.traced else version(arguments.tensors)
                    )
                except TraceGuardError:
                    if not self._grows:
                        raise
        if not self._grows:
            return self._follow(arguments, key)
        arguments, version = self._capture_inputs(arguments, key) or self._capture_values(args, kwargs, quick)
        return version.replay(arguments.tensors) if arguments.traced else version(arguments.tensors)

    # Floats that change from call to call

    def _with_inputs(self, arguments: Arguments) -> Arguments:
        """The arguments, where floats that have changed before are inputs of the graph."""
        places = self._floats.get(arguments.key[0], _STEADY)
        return arguments if places is _STEADY else as_inputs(arguments, places)

    def _capture_inputs(self, arguments: Arguments, key: Key) -> tuple[Arguments, Version] | None:
        """A version in which floats are inputs; None if none has changed, or their values are needed."""
        shape = key[0]
        known = self._floats.get(shape, frozenset())
        places = known | changed_floats(key, [*self._versions])
        if not places or known is _STEADY:
            return None
        given = as_inputs(arguments, places)
        try:
            version = self._captured(given, None, full_key(given))
        except Exception:  # what needs a true float; an error of the user comes again with its value
            version = None
        if version is None or relies_on_floats(version.program, len(places)):
            self._floats[shape] = _STEADY
            return None
        self._floats[shape] = places
        self._keep(version, given)
        return given, version

    def _capture_values(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], quick: Key | None
    ) -> tuple[Arguments, Version]:
        """A version for the values of all plain arguments."""
        arguments = flatten(args, kwargs)
        own = None if arguments.converted else (args, kwargs)
        return arguments, self.capture(arguments, own, full_key(arguments), quick)

    def _follow(self, arguments: Arguments, key: Key) -> Any:
        """A call of a trace that differs from the traced one; gradients on or off are no other way."""
        (version,) = self.versions
        alike = without_gradients(version.key[:-2]) == without_gradients(key[:-2])
        if alike and version.key[-1] == key[-1] and version.holds(arguments.tensors):
            return version.replay(arguments.tensors)
        raise other_call(version, arguments, key)

    def _inline(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Become part of the graph that this thread captures, as one call there."""
        function = self._function
        if hasattr(thread.capture.root, "read_function"):
            thread.capture.root.read_function(function)

        def run(*args: Any, **kwargs: Any) -> Any:
            return call(function, args, kwargs)

        if hasattr(function, "__code__"):
            run.__wrapped__ = function  # type: ignore[attr-defined]
        return run_scope(thread.capture, self.__name__, run, args, kwargs)

    def __get__(self, obj: Any, owner: type | None = None) -> Any:
        """As a method: a function of each object's own, so that its versions die with the object."""
        if obj is None:
            return self
        space = getattr(obj, "__dict__", None)
        if type(space) is not dict:
            return types.MethodType(self, obj)
        bound = space.setdefault(_BOUND, _Bound())
        if self not in bound:
            bound[self] = self._of(types.MethodType(self._function, obj))
        return bound[self]

    def __deepcopy__(self, memo: dict[int, Any]) -> GraphFunction:
        return self._of(copy.deepcopy(self._function, memo))

    def _of(self, function: Callable[..., Any]) -> GraphFunction:
        """Another function with the same settings, not captured yet."""
        settings = {"staged": self._staged, "looks": self._looks, "grows": self._grows}
        return GraphFunction(function, self._build, **settings)

    def __getattr__(self, name: str) -> Any:
        """What the function or module has itself, such as ``parameters``."""
        if name.startswith("__") or "_function" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self._function, name)

    # Versions

    def capture(self, arguments: Arguments, own: Any, key: Key, quick: Key | None = None) -> Version:
        """A new version, for a call."""
        version = self._captured(arguments, own, key)
        self._keep(version, arguments, quick)
        return version

    def _captured(self, arguments: Arguments, own: Any, key: Key) -> Version:
        looks = self._looks and not arguments.traced
        try:
            with enter(self.__name__, staged=self._staged, looks=looks) as root:
                program = capture_call(root, self._function, arguments, own)
        except Exception as error:
            raise at_user(error) from error.__cause__
        names = leaf_names(self._function, *(rebuild(arguments) if own is None else own))
        return Version(program, self._build, key, names)

    def _keep(self, version: Version, arguments: Arguments, quick: Key | None = None) -> None:
        """Let later calls find a version."""
        with self._changing:
            if self._grows:
                self._warn_of_growth(arguments, version.key)
            found = self._versions.setdefault(version.key, [])
            found.insert(0, version)
            if quick is not None:
                self._quick[quick] = found
            self._newest = version
            self._drop_oldest()

    def _warn_of_growth(self, arguments: Arguments, key: Key) -> None:
        count = len(self.versions)
        if count < MANY_VERSIONS or self._warned:
            return
        self._warned = True
        where = errors.user_location(2)
        line = "" if where is None else f"\n  at {errors.format_location(where)}"
        why = describe_growth(self._newest, arguments, key)
        warnings.warn(
            f"{self.__name__}: captured {count + 1} times, {why}{line}\n"
            "  hint: pass what changes as a tensor, or read it with weft.jit.dynamic",
            stacklevel=5,
        )

    def _drop_oldest(self) -> None:
        versions = self.versions
        if len(versions) <= MOST_VERSIONS:
            return
        oldest = min(versions, key=lambda version: version.used)
        for key, found in list(self._versions.items()):
            if oldest in found:
                found.remove(oldest)
                if not found:
                    del self._versions[key]
                    self._quick = {k: v for k, v in self._quick.items() if v is not found}

    # Looking

    @property
    def versions(self) -> list[Version]:
        """The versions there are."""
        return [v for found in list(self._versions.values()) for v in found]

    @property
    def graph(self) -> Graph:
        """The graph, that of the newest version if there are several."""
        if self._newest is None:
            hint = "call it, or pass examples to weft.jit.trace or weft.make_graph"
            raise CaptureError(self.__name__, "has a graph from its first call on, got none yet", hint=hint)
        return self._newest.graph

    @property
    def text(self) -> str:
        """The text of the graph."""
        return str(self.graph)

    @property
    def code(self) -> str:
        """The text of the graph."""
        return self.text

    def __repr__(self) -> str:
        count = len(self.versions)
        return f"<graph function {self.__name__}: {count} version{'' if count == 1 else 's'}>"


def full_key(arguments: Arguments) -> Key:
    """The key of a call: that of its arguments, and the settings of weft that matter to a graph."""
    return (*arguments.key, thread.recording, default_float())
