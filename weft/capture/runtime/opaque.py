"""Objects of libraries that hold more than attributes: deques, arrays, generators of random numbers.

Captured code calls their methods as they are. What a way of an ``if`` or a turn of a loop does to one cannot
be a part of the graph, so that one must be made where it changes; a loop is run by Python instead. Where a
capture tries something and goes back they are put back, too, or nobody uses them any more.
"""

from __future__ import annotations

import array
import copy
import sys
import types
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from weft.capture.runtime.joined import check_not_ended
from weft.capture.runtime.owners import CONTAINERS, is_made_here, note_made
from weft.capture.runtime.places import ContentsSlot
from weft.errors import CaptureError
from weft.ops.op import TensorLike
from weft.tensor.mode import thread
from weft.transform.slots import Slot

# What they hold

_State = tuple[Callable[[Any], Any], Callable[[Any, Any], None]]  # how to look at it, how to set it


def _put_items(x: Any, content: Any) -> None:
    deque.clear(x)
    deque.extend(x, content)


def _put_elements(x: Any, content: Any) -> None:
    x[:] = content


def _put_array(x: Any, content: Any) -> None:
    if x.shape != content.shape:
        x.resize(content.shape, refcheck=False)
    x[...] = content


def _bytes_of(x: Any) -> bytes:
    return bytes(memoryview(x).cast("B"))


def _put_bytes(x: Any, content: bytes) -> None:
    memoryview(x).cast("B")[:] = content


def _put_position(x: Any, content: Any) -> None:
    x.bit_generator.state = content


_KINDS: tuple[tuple[type, _State], ...] = (
    (deque, (lambda x: [*deque.__iter__(x)], _put_items)),
    (bytearray, (lambda x: x[:], _put_elements)),
    (array.array, (lambda x: x[:], _put_elements)),
    (np.ndarray, (np.array, _put_array)),
)
_NAMED: dict[tuple[str, str], _State] = {  # of modules that may not be there
    ("random", "Random"): (lambda x: x.getstate(), lambda x, content: x.setstate(content)),
    ("numpy.random.mtrand", "RandomState"): (
        lambda x: x.get_state(),
        lambda x, content: x.set_state(content),
    ),
    ("numpy.random._generator", "Generator"): (
        lambda x: copy.deepcopy(x.bit_generator.state),
        _put_position,
    ),
}
_SEALED = frozenset(
    {"_hashlib", "_md5", "_sha1", "_sha2", "_sha3", "_blake2", "zlib", "_bz2", "_lzma", "_queue"}
)


def _state_of(x: Any) -> _State | None:
    """How the content of something that is no list, dict or set is looked at and set."""
    for kind, state in _KINDS:
        if isinstance(x, kind):
            return state
    kinds = [(kind.__module__, kind.__name__) for kind in type(x).__mro__]
    if any(module == "_ctypes" for module, _ in kinds):
        return _bytes_of, _put_bytes
    return next((_NAMED[kind] for kind in kinds if kind in _NAMED), None)


def is_opaque(x: Any) -> bool:
    """Whether something holds what no attribute or item of a list or dict tells."""
    return _state_of(x) is not None or is_sealed(x)


def is_sealed(x: Any) -> bool:
    """Whether something has a content that nobody can look at."""
    return type(x).__module__ in _SEALED


class StateSlot(ContentsSlot):
    """Everything in an object that is no list, dict or set."""

    __slots__ = ()

    def get(self) -> Any:
        """A copy of it."""
        state = _state_of(self.obj)
        assert state is not None
        return state[0](self.obj)

    def put(self, content: Any) -> None:
        """Let it hold something else."""
        state = _state_of(self.obj)
        assert state is not None
        state[1](self.obj, content)

    def describe(self) -> str:
        """In words, for messages."""
        return with_article(type(self.obj).__name__)


class MovedSlot(Slot):
    """How far something is that cannot be put back, as an iterator; who goes back has lost it."""

    __slots__ = ("owner",)

    def __init__(self, owner: Any) -> None:
        self.owner = owner
        self.key = ("moved", id(owner))

    def get(self) -> Any:
        """Nothing that could be put back."""
        return None

    def put(self, content: object) -> None:
        """Note that it is not where it was."""
        why = "where the capture has tried a loop with it as a part of the graph, and then went back"
        thread.capture.root.notes.ended[id(self.owner)] = (self.owner, why)

    def describe(self) -> str:
        """In words, for messages."""
        return with_article(type(self.owner).__name__)


# What is made of them, and what changes them


def with_article(kind: str) -> str:
    """The name of a class in a sentence."""
    return f"{'an' if kind == 'ndarray' or kind[0].lower() in 'aeiou' else 'a'} {kind}"


def whole_array(x: Any) -> Any:
    """The array whose elements an array or a memoryview shows; anything else itself."""
    while isinstance(x, np.ndarray | np.flatiter | memoryview):
        base: Any = x.obj if isinstance(x, memoryview) else x.base
        if not isinstance(base, _SHOWN):
            break
        x = base
    return x


_SHOWN = (np.ndarray, bytearray, array.array)


def note_new(made: Any) -> Any:
    """Note what the running capture got of a library, if nobody else holds it: it is new. Returns it."""
    if type(made) in _SIMPLE or isinstance(made, TensorLike) or sys.getrefcount(made) > _ALONE:
        return made
    if isinstance(made, tuple | list):
        for x in made:
            if type(x) not in _SIMPLE and sys.getrefcount(x) <= _ALONE_IN_ONE:
                _note(x)
    else:
        _note(made)
    return made


_SIMPLE = frozenset({int, float, str, bool, complex, dict, set, bytes, type(None)})


def _references(made: Any) -> int:
    """How many there are to an argument, as ``note_new`` counts them."""
    return sys.getrefcount(made)


def _references_to_variable() -> int:
    made = object()
    return _references(made)


def _references_to_item() -> int:
    (count,) = [sys.getrefcount(x) for x in (object(),)]
    return count


_ALONE = _references_to_variable()  # versions of Python count the variables of those that call differently
_ALONE_IN_ONE = _references_to_item()


def _note(made: Any) -> None:
    if is_opaque(made):
        whole = whole_array(made)
        if whole is made or sys.getrefcount(whole) <= _ALONE_IN_ONE:
            note_made(whole)
    elif hasattr(made, "__dict__") and not isinstance(made, _NO_OBJECTS):
        received = thread.capture.notes.received
        received[id(made)] = made
        for held in vars(made).values():
            if isinstance(held, CONTAINERS) and sys.getrefcount(held) <= _ALONE_IN_ONE:
                received[id(held)] = held


_NO_OBJECTS = (type, types.FunctionType, types.ModuleType)


def note_moved(x: Any) -> None:
    """Tell the running capture that something moves on that it has made, and that cannot be put back."""
    thread.capture.remember(MovedSlot(x))


def before_opaque_change(obj: Any, what: str) -> None:
    """Tell the running capture that something is changed of which a graph knows nothing."""
    capture = thread.capture
    if capture.region and not is_made_here(obj):
        raise opaque_change(obj, what)
    if is_sealed(obj):
        check_not_ended(obj)
        note_moved(obj)
    else:
        capture.remember(StateSlot(obj))


def opaque_change(obj: Any, what: str) -> CaptureError:
    """The error where a branch or a loop changes something that was made around it."""
    kind = type(obj).__name__
    hint = "make it inside"
    if isinstance(obj, deque):
        hint += ", or use a list"
    elif isinstance(obj, np.ndarray | array.array):
        hint += ", or use a tensor"
    elif not isinstance(obj, Iterator):
        hint += ", or take what it gives before"
    return CaptureError(
        what,
        f"{with_article(kind)} must be made in the branch or loop of the graph that changes it, got one from "
        "around it, which would change on all ways",
        hint=hint,
    )
