"""A function that has become graphs: each call finds the version that holds for it, or captures another.

A version holds for calls whose arguments have the same key, while its guards hold. How many there may be is
bounded; the one that was not used for longest goes. ``weft.jit.trace`` makes a function of one version,
``weft.jit.script`` and ``weft.compile`` functions of as many as their calls need.
"""

from __future__ import annotations

import copy
import functools
import logging
import types
import warnings
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Generic, ParamSpec, TypeVar

from weft.base.collector import collector_paused
from weft.base.frames import format_location, user_location
from weft.base.notebook import place_text
from weft.base.tracebacks import hide_weft
from weft.capture.call.looking import Looking
from weft.capture.call.reasons import describe_growth, other_call
from weft.capture.call.version import Build, Version, placed_data
from weft.capture.call.versions import Versions
from weft.capture.program.arguments import Arguments, call_key, flatten, leaf_names, name_of, rebuild
from weft.capture.program.call_keys import CallKey
from weft.capture.program.examples import stand_ins
from weft.capture.program.program import Program
from weft.capture.program.sizes import Shape, Varying, has_names, named_key, open_key, values_of
from weft.capture.record.counting import Counted
from weft.capture.record.entry import MISS
from weft.capture.record.record import call, capture_call, enter
from weft.capture.record.root import lock
from weft.capture.record.settling import MOST_SETTLED
from weft.capture.runtime.floats import as_inputs, changed_floats, relies_on_floats
from weft.errors import ShapeError, TraceGuardError, WeftError
from weft.ops.effects import said
from weft.ops.op import intercepted
from weft.tensor.autocast import not_casting
from weft.tensor.mode import call_user, thread
from weft.transform.scopes import run_scope

_log = logging.getLogger("weft.compile")
MANY_VERSIONS = 8  # from there on a warning says why there are so many

Failures = Mapping[Version, Exception]
_NONE: Failures = MappingProxyType({})
_STEADY: frozenset[int] = frozenset({-1})  # of a function that needs the values of its floats
_BOUND = "_weft_compiled"  # the attribute of an object that holds its compiled methods


class _Bound(dict[Any, Any]):
    """The compiled methods of one object; a copy of the object gets its own."""

    def __reduce__(self) -> Any:
        return _Bound, ()


P = ParamSpec("P")
R = TypeVar("R")


class GraphFunction(Looking, Generic[P, R]):
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
        self,
        function: Callable[P, R],
        build: Build,
        *,
        staged: bool,
        looks: bool,
        grows: bool,
        budget: Any = None,
    ) -> None:
        self._function = function
        self._build = build
        self._staged = staged
        self._looks = looks
        self._grows = grows
        self._budget = budget  # of memory, see ``weft.schedule.budget``
        self._kept = Versions()
        self._floats: dict[Any, frozenset[int]] = {}  # by structure, the leaves that are inputs
        self._varying = Varying()
        self._rebound: frozenset[tuple[Any, ...]] = frozenset()  # slots with a new tensor from call to call
        self._counted = Counted()  # numbers of Python that calls change
        self._warned = False
        functools.update_wrapper(self, function, updated=())
        self.__name__ = name_of(function)

    # Calling

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the version that holds for this call, or capture one."""
        failed = _NONE
        try:
            if not kwargs:
                quick = self._kept.quick
                for version in quick:
                    try:
                        result = version.enter(args)
                    except (TraceGuardError, ValueError) as error:
                        failed = self._failed(failed, version, error)
                        continue
                    if result is not MISS:
                        if version is not quick[0]:
                            self._kept.touch(version)
                            said.before.clear()
                        return result  # type: ignore[no-any-return]
            if intercepted.threads and thread.capture is not None:
                return self._inline(args, kwargs)  # type: ignore[no-any-return]
            try:
                return self._call(args, kwargs, failed)  # type: ignore[no-any-return]
            finally:
                said.before.clear()
        except Exception as error:
            hide_weft(error)
            raise

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any], failed: Failures) -> Any:
        """A call that is none of those that recent versions know at once."""
        newest = self._kept.newest
        arguments = self._with_inputs(_flatten(args, kwargs))
        key = call_key(arguments)
        for version in self._kept.find(key, arguments.shapes):
            if version not in failed and version.holds(arguments.tensors):
                try:
                    result = self._run(version, arguments, args, kwargs)
                except (TraceGuardError, ValueError) as error:
                    failed = self._failed(failed, version, error)
                    continue
                self._kept.touch(version)
                return result
        if not self._grows:
            return self._follow(arguments, key, args, kwargs)
        fixed = arguments.traced or any(isinstance(error, ValueError) for error in failed.values())
        found = None
        with collector_paused():  # up to the first result
            with lock:
                if self._kept.newest is newest:
                    self._rebound |= self._kept.rebound(key, arguments.shapes)
                    found = self._capture_inputs(arguments, key, fixed, failed)
                    found = found or self._capture_values(args, kwargs, fixed, failed)
            if found is not None:
                return self._first_run(*found, args, kwargs)
        return self._call(args, kwargs, failed)  # another thread captured meanwhile, this very call perhaps

    def _first_run(
        self, arguments: Arguments, version: Version, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Run a new version on the call that it was captured for."""
        for _ in range(MOST_SETTLED):
            try:
                return self._run(version, arguments, args, kwargs)
            except TraceGuardError as error:
                if not version.settle(error):
                    raise
                said.before[:] = error.said
        return self._run(version, arguments, args, kwargs)

    def _run(
        self, version: Version, arguments: Arguments, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Run a version; inside a transform by its ops."""
        if arguments.traced:
            return self._run_ops(version, arguments, args, kwargs)
        return version(arguments.tensors)

    def _run_ops(
        self, version: Version, arguments: Arguments, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Run a version op by op, or the function itself where these do not tell its derivatives."""
        if version.program.untold_gradient or version.program.untold_tangent:
            return call_user(self._function, *args, **kwargs)
        return version.replay(arguments.tensors)

    def _failed(self, failed: Failures, version: Version, error: Exception) -> Failures:
        """Note that a version does not serve a call: a guard in its graph failed, or sizes do not fit it.

        Any other error is raised.
        """
        misfit = version.is_open and (isinstance(error, ShapeError) or not isinstance(error, WeftError))
        if not self._grows or not (misfit or isinstance(error, TraceGuardError)):
            raise error
        failed = {**failed, version: error}
        said.before[:] = max([getattr(e, "said", ()) for e in failed.values()], key=len)
        return failed

    # Floats and sizes that change from call to call

    def _with_inputs(self, arguments: Arguments) -> Arguments:
        """The arguments, where floats that have changed before are inputs of the graph."""
        places = self._floats.get(arguments.shape, _STEADY)
        return arguments if places is _STEADY else as_inputs(arguments, places)

    def _capture_inputs(
        self, arguments: Arguments, key: CallKey, fixed: bool, failed: Failures
    ) -> tuple[Arguments, Version] | None:
        """A version in which floats are inputs; None if none has changed, or their values are needed."""
        shape = key.shape
        known = self._floats.get(shape, frozenset())
        places = known | changed_floats(open_key(key), map(open_key, self._kept.keys()))
        if not places or known is _STEADY:
            return None
        given = as_inputs(arguments, places)
        try:
            version = self._captured(given, None, call_key(given), fixed)
        except Exception:  # what needs a true float; an error of the user comes again with its value
            version = None
        if version is None or relies_on_floats(version.program, len(places)):
            self._floats[shape] = _STEADY
            return None
        self._floats[shape] = places
        self._keep(version, given, failed)
        return given, version

    def _capture_values(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], fixed: bool, failed: Failures = _NONE
    ) -> tuple[Arguments, Version]:
        """A version for the values of all plain arguments."""
        arguments = flatten(args, kwargs)
        own = None if arguments.converted else (args, kwargs)
        return arguments, self.capture(arguments, own, call_key(arguments), fixed, failed)

    def _captured(self, arguments: Arguments, own: Any, key: CallKey, fixed: bool) -> Version:
        """A version for a call, in which sizes that varied have names, unless captured code needs them."""
        opened = open_key(key)
        named = None if fixed else self._varying.named(opened, arguments.shapes)
        version = None if named is None else self._try_named(arguments, own, key, named)
        if version is None:
            version = self._version(arguments, own, key, arguments.shapes)
            if named is not None:
                self._varying.keep_fixed(opened)
        return version

    def _try_named(
        self, arguments: Arguments, own: Any, key: CallKey, shapes: Sequence[Shape]
    ) -> Version | None:
        """A version with named sizes; None where code needs a number, or an error comes again with it."""
        try:
            return self._version(arguments, own, named_key(key, shapes), shapes, may_fix=True)
        except Exception:
            return None

    def _follow(
        self, arguments: Arguments, key: CallKey, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """A call of a trace that differs from the traced one; gradients on or off are no other way.

        Only where results had no gradient and arguments ask for one now, nobody knows whether it was cut.
        """
        (version,) = self.versions
        was, now = version.key.without_gradients(), key.without_gradients()
        like = was == now._replace(autocast=was.autocast) and version.holds(arguments.tensors)
        if like and not (version.key.asks_less_than(key) and version.program.has_cut_results):
            return self._run_ops(version, arguments, args, kwargs)
        raise other_call(version, arguments, key)

    def _inline(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Become part of the graph that this thread captures, as one call there."""
        function = self._function
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

    def __deepcopy__(self, memo: dict[int, Any]) -> GraphFunction[..., Any]:
        return self._of(copy.deepcopy(self._function, memo))

    def _of(self, function: Callable[..., Any]) -> GraphFunction[..., Any]:
        """Another function with the same settings, not captured yet."""
        settings: dict[str, Any] = {"staged": self._staged, "looks": self._looks, "grows": self._grows}
        settings["budget"] = self._budget
        return GraphFunction(function, self._build, **settings)

    def __getattr__(self, name: str) -> Any:
        """What the function or module has itself, such as ``parameters``."""
        if name.startswith("__") or "_function" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self._function, name)

    # Versions

    def capture(
        self, arguments: Arguments, own: Any, key: CallKey, fixed: bool = True, failed: Failures = _NONE
    ) -> Version:
        """A new version, for a call; all its sizes are fixed, or those that varied have names."""
        with collector_paused():
            version = self._captured(arguments, own, key, fixed)
        if not self._grows and not arguments.traced:
            version.settle_on(arguments.tensors)
        self._keep(version, arguments, failed)
        return version

    def _version(
        self,
        arguments: Arguments,
        own: Any,
        key: CallKey,
        shapes: Sequence[Shape],
        *,
        typed: bool = False,
        may_fix: bool = False,
    ) -> Version:
        """A version for arguments, or for types, whose values say nothing of those that calls will have.

        If sizes may be fixed after all, code that needs to know them is an error.
        """
        looks = self._looks and not arguments.traced

        def run() -> Program:
            with enter(self.__name__, staged=self._staged, looks=looks) as root:
                root.open_counts, root.rebound, root.counted = typed, self._rebound, self._counted
                root.opens_sizes = may_fix
                return capture_call(root, self._function, arguments, own, shapes)

        if self._budget is None:
            program = self._counted.capture(run)
        else:
            sizes = values_of(shapes, arguments.shapes)
            placed = functools.partial(placed_data, tensors=arguments.tensors)
            program = self._budget.choose(self.__name__, lambda: self._counted.capture(run), sizes, placed)
        names = leaf_names(self._function, *(rebuild(arguments) if own is None else own))
        with not_casting():
            return Version(program, self._build, key, names, arguments.tensors, is_open=has_names(shapes))

    def _keep(self, version: Version, arguments: Arguments, failed: Failures) -> None:
        """Let later calls find a version, and say why there is another one."""
        if self._grows:
            self._report(version, arguments, failed)
        self._varying.note(open_key(version.key), arguments.shapes)
        self._kept.keep(version)

    def _report(self, version: Version, arguments: Arguments, failed: Failures) -> None:
        """Note and log the reason of another capture; where there are very many, warn of it once."""
        count = len(self.versions)
        if count == 0:
            return
        where = user_location(2)
        fixed = self._varying.is_fixed(open_key(version.key))
        row = (self.versions, arguments, version.key, fixed, version.names, failed)
        version.reason = why = describe_growth(*row)
        if self._warned:
            return
        if count < MANY_VERSIONS:
            line = "" if where is None else f" ({place_text(*where)})"
            _log.warning("%s: compiled again, %s%s", self.__name__, why, line)
            return
        self._warned = True
        line = "" if where is None else f"\n  at {format_location(where)}"
        warnings.warn(
            f"{self.__name__}: captured {count + 1} times, lately {why}{line}\n"
            "  hint: pass what changes as a tensor, or read it with weft.jit.dynamic",
            stacklevel=5,
        )

    # What looking and saving ask for

    def _version_for(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Version, Sequence[Any]]:
        """The version for a call, captured if there is none, and the tensors that it takes."""
        arguments = self._with_inputs(flatten(args, kwargs))
        key = call_key(arguments)
        for version in self._kept.find(key, arguments.shapes):
            if version.holds(arguments.tensors):
                return version, arguments.tensors
        if not self._grows:
            raise other_call(self.versions[0], arguments, key)
        arguments, version = self._capture_values(args, kwargs, fixed=False)
        return version, arguments.tensors

    def _version_to_save(self, examples: tuple[Any, ...], keywords: dict[str, Any]) -> Version:
        if not examples and not keywords:
            if self._kept.newest is None:
                raise self._no_graph()
            return self._kept.newest
        given = stand_ins(examples, keywords)
        if not given.shapes:
            return self._version_for(examples, keywords)[0]
        arguments = flatten(given.args, given.kwargs)
        shapes = given.shapes_of(arguments.tensors)
        own = None if arguments.converted else (given.args, given.kwargs)
        return self._version(arguments, own, named_key(call_key(arguments), shapes), shapes, typed=True)


def _flatten(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
    """The arguments taken apart; not while another thread has lent their data to the graph it captures."""
    arguments = flatten(args, kwargs)
    if arguments.traced and intercepted.threads and thread.capture is None:
        with lock:
            return flatten(args, kwargs)
    return arguments
