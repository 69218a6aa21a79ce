"""Loops: ``while`` and ``for``.

A loop whose condition is a tensor, or that goes along a range or the rows of a tensor, becomes one node of
the graph. Where its body needs a true Python number (``layers[i]``, a shape) or its variables change type
at every turn, it is run as Python, iteration by iteration, and so is every other loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from weft.capture.runtime.branch import and_
from weft.capture.runtime.carry import Carry
from weft.capture.runtime.deciding import by_value, count_by_value, may_decide
from weft.capture.runtime.entries import Fresh, Late, Replan, Same
from weft.capture.runtime.failing import Handled
from weft.capture.runtime.items import Grown
from weft.capture.runtime.iterables import Source, Tail, prepare_all, source_of
from weft.capture.runtime.iterators import END, Ahead, items
from weft.capture.runtime.lists import grow
from weft.capture.runtime.meet import Statement, as_predicate, meet
from weft.capture.runtime.number import Number, fresh_index, number_of
from weft.capture.runtime.number_checks import is_number_check
from weft.capture.runtime.picked import WriteOut, tracing_loop
from weft.capture.runtime.places import changes_since, note_read, take_places, watching
from weft.capture.runtime.raising import ends_way
from weft.capture.runtime.text import check_written
from weft.capture.runtime.truth import asked, is_staged
from weft.capture.runtime.whole import truth
from weft.errors import CaptureError
from weft.ops.effects import print_text
from weft.tensor.mode import thread
from weft.transform.control.flat import attempt, run_scan, run_while
from weft.transform.staging import Unsettled

State = tuple[Any, ...]
Step = Callable[..., State]
Test = Callable[..., Any]

MOST_UNROLLED = 64  # iterations of a loop whose variables change type at every turn
_MOST_PLANS = 40


class _Staged(Exception):  # noqa: N818 - says that another way must be taken
    """A loop that began as Python turned out to be one of the graph."""


class _ActsInTest(Exception):  # noqa: N818 - says that another way must be taken
    """The test of a loop changes something, so that it must be a part of the turns."""


class _NoTensors(Exception):  # noqa: N818 - says that another way must be taken
    """A loop that touches no tensor: Python runs it."""


def while_stmt(test: Test, body: Step, state: State, names: Sequence[str]) -> State:
    """``while test(...): body(...)``, as functions of the variables."""
    capture = thread.capture
    if capture is None or not capture.root.stages_control:
        while truth(asked(test(*state))):
            state = body(*state)
        return state
    at = Statement.here("while")
    mark = len(capture.nodes)
    going = asked(test(*state))
    acts = _prints(capture.nodes[mark:])
    if not is_staged(going) and truth(going):
        first = _first_turn(test, body, state)
        if first is None:
            found = _try_while(test, body, state, names, at, acts)
            if found is not None:
                return found
            after = body(*state)
            first = after, asked(test(*after))
        state, going = first
    while not is_staged(going):
        if not truth(going):
            return state
        state = body(*state)
        going = asked(test(*state))
    try:
        return _stage_while(test, body, state, names, at, going, acts)
    except Exception as error:
        if not may_decide(error):
            raise
        refused = error
    turns = 0
    while by_value(as_predicate(going), refused):
        turns += 1
        if turns > MOST_UNROLLED and not isinstance(refused, Handled):
            raise refused
        state = body(*state)
        going = asked(test(*state))
    return state


def _prints(nodes: Sequence[Any]) -> bool:
    """Whether nodes print, which they must do as often as the user's code."""
    return any(n.op is print_text or any(_prints(r.nodes) for r in n.regions) for n in nodes)


def _try_while(
    test: Test, body: Step, state: State, names: Sequence[str], at: Statement, acts: bool
) -> State | None:
    """The variables after a loop of the graph, or None if it cannot be one from its first turn on."""
    try:
        return _stage_while(test, body, state, names, at, True, acts)
    except CaptureError:
        return None


def _first_turn(test: Test, body: Step, state: State) -> tuple[State, Any] | None:
    """The variables after one turn run as Python, and whether to go on; None if then a tensor decides."""
    try:
        with attempt(thread.capture):
            after = body(*state)
            going = asked(test(*after))
            if is_staged(going):
                raise _Staged
    except _Staged:
        return None
    except CaptureError:
        raise
    except Exception:  # which is the program's, and leaves what was changed before it
        after = body(*state)
        going = asked(test(*after))
    return after, going


def _stage_while(
    test: Test, body: Step, state: State, names: Sequence[str], at: Statement, going: Any, acts: bool
) -> State:
    """The variables after a loop of the graph; going is what the test gave for the first turn.

    A test that acts is a part of the turns, as its first answer is there already.
    """
    if not acts:
        try:
            return _stage_pure(test, body, state, names, at, going)
        except _ActsInTest:
            pass

    def turn(*given: Any) -> State:
        after = body(*given[:-1])
        return *after, as_predicate(asked(test(*after)))

    first = going if going is True else as_predicate(going)
    ours = (*names, "_done")
    return _stage_pure(lambda *given: given[-1], turn, (*state, first), ours, at, going)[:-1]


def _stage_pure(
    test: Test, body: Step, state: State, names: Sequence[str], at: Statement, going: Any
) -> State:
    """One node for a loop whose test changes nothing."""
    carry = Carry(names, state, at, runs=going is True)

    def run() -> State:
        outs = run_while(
            lambda given: _tested(carry, given, test),
            lambda given: _turn(carry, body, *carry.enter(given)),
            carry.initial(),
            collect=lambda _: carry.stacked,
        )
        return _finish(carry, outs, None, ran)

    ran = as_predicate(going) if is_staged(going) else True
    with tracing_loop(writable=False):
        return _planned(carry, run)


def _turn(carry: Carry, body: Step, *given: Any) -> list[Any]:
    """What one iteration leaves, run in its region."""
    try:
        values = body(*given)
    except (CaptureError, Replan):
        raise
    except Exception as error:  # such as the KeyError of a key made from text
        if ends_way(error):
            take_places(thread.capture)
            return carry.leave(carry.given)
        check_written(error)
        raise
    check_written()
    return carry.leave(values)


def _tested(carry: Carry, given: Sequence[Any], test: Callable[..., Any]) -> Any:
    """The truth of a test in a region of its own."""
    values, capture = carry.enter(given), thread.capture
    made = len(capture.notes.made)
    with watching(capture):
        out = as_predicate(asked(test(*values)))
        if changes_since(capture, made):
            raise _ActsInTest
    mended = [carry.look(key, grown) for key, grown in carry.grown.items()]
    if any(mended):
        raise Replan
    take_places(thread.capture)
    return out


def _finish(carry: Carry, outs: Sequence[Any], count: int | None, ran: Any = True) -> State:
    kept = len(outs) - len(carry.stacked)
    items = grow(carry, outs[kept:], count)
    values = carry.results(outs[:kept], ran, items)
    carry.freeze_items()
    return values


def _planned(carry: Carry, run: Callable[[], State]) -> State:
    """Trace until the guess of what flows holds."""
    for _ in range(_MOST_PLANS):
        try:
            with attempt(thread.capture):
                return run()
        except Replan:
            continue
    carry.settles = (
        False  # after a first turn they may: a number that becomes a tensor is changed in place then
    )
    raise CaptureError(
        carry.at.kind, f"the variables of {carry.at} must keep their types, got new ones each time"
    )


# for


def for_stmt(
    iterable: Iterable[Any], body: Step, state: State, names: Sequence[str], more: Test | None = None
) -> State:
    """``for item in iterable: body(item, ...)``, going on while ``more(...)`` holds."""
    capture = thread.capture
    if capture is None:
        return _run(iterable, body, state, more)
    at = Statement.here("for")
    source = source_of(iterable)
    if source is None:
        note_read(iterable)
        return _run(items(iterable), body, state, more, names, at)
    if not capture.root.stages_control or (isinstance(source.length, int) and source.length < 2):
        return _run(source, body, state, more, names, at)
    if not isinstance(source.length, int):
        return _stage_for(source, body, state, names, more, at)
    return _for_known(source, body, state, names, more, at)


def _run(
    items: Iterable[Any],
    body: Step,
    state: State,
    more: Test | None,
    names: Sequence[str] = (),
    at: Statement | None = None,
) -> State:
    """A loop run by Python; where a tensor decides whether it goes on, what follows is conditional."""
    iterator = iter(items)
    ahead = None if thread.capture is None else Ahead(iterator, str(at))
    staged = False
    while True:
        going = True if more is None else more(*state)
        staged = staged or is_staged(going)
        if not is_staged(going) and not going:
            break  # before the iterator moves on: others may go on with it
        item = ahead.next() if staged and ahead is not None else next(iterator, END)
        if item is END:
            break
        if isinstance(item, Grown):
            hint = "append to another list, or take a copy of this one for the loop"
            raise CaptureError(
                "for", "a list must not grow where a run decides while a loop goes along it", hint=hint
            )
        if is_staged(going):
            assert at is not None
            state = meet(as_predicate(going), _once(body, item, state), state, names, at)
        else:
            state = body(item, *state)
    if staged and ahead is not None:
        ahead.end()
    return state


def _once(body: Step, item: Any, state: State) -> tuple[Callable[[], State], Callable[[], State]]:
    return lambda: body(item, *state), lambda: state


def _for_known(
    source: Source, body: Step, state: State, names: Sequence[str], more: Test | None, at: Statement
) -> State:
    """A loop of a known number of iterations: one node, or peeled once, or as Python."""
    going = True if more is None else more(*state)
    carry = Carry(names, state, at, runs=not is_staged(going) and truth(going))
    failed: Exception | None = None
    try:
        with tracing_loop(writable=source.length <= MOST_UNROLLED):
            return _stage(carry, source, body, more)
    except WriteOut:
        return _run(source, body, state, more, names, at)
    except _NoTensors:
        pass
    except Exception as error:  # a way that Python would not take may fail; a true error comes again
        failed = error.with_traceback(None)  # whose frames would keep tensors of the capture alive
    if isinstance(failed, Unsettled) and more is None:
        return _until_settled(source, body, state, names, at, failed)
    if isinstance(failed, Unsettled) and source.length > MOST_UNROLLED:
        raise failed
    if failed is None or carry.settles or isinstance(failed, Handled):
        return _run(source, body, state, more, names, at)
    return _peel(source, body, state, names, more, at, failed)


def _until_settled(
    source: Source, body: Step, state: State, names: Sequence[str], at: Statement, error: Exception
) -> State:
    """Run turns as Python until what they leave can flow through the rest of the loop."""
    for _ in range(min(source.length - 2, MOST_UNROLLED)):
        state, source = body(next(iter(source)), *state), Tail(source)
        try:
            with attempt(thread.capture):
                return _stage(Carry(names, state, at, runs=True), source, body, None)
        except Unsettled:
            continue
    if source.length > MOST_UNROLLED:
        raise error
    return _run(source, body, state, None, names, at)


def _peel(
    source: Source,
    body: Step,
    state: State,
    names: Sequence[str],
    more: Test | None,
    at: Statement,
    error: Exception,
) -> State:
    """Run the first iteration as Python, after which types may have settled."""
    if source.length > 2 and more is None:
        try:
            with attempt(thread.capture):
                first = body(next(iter(source)), *state)
                return _stage(Carry(names, first, at, runs=True), Tail(source), body, None)
        except Exception:  # noqa: S110 - Python tries next
            pass
    if source.length > MOST_UNROLLED:
        raise error
    return _run(source, body, state, more, names, at)


def _stage_for(
    source: Source, body: Step, state: State, names: Sequence[str], more: Test | None, at: Statement
) -> State:
    try:
        with tracing_loop(writable=False):
            return _stage(Carry(names, state, at, runs=False), source, body, more)
    except Exception as error:
        if not may_decide(error):
            raise
        refused = error
    if count_by_value(source.length, refused) > MOST_UNROLLED and not isinstance(refused, Handled):
        raise refused
    return _run(source, body, state, more, names, at)


def _stage(carry: Carry, source: Source, body: Step, more: Test | None) -> State:
    """One node for a loop along a source."""
    prepare_all([source])
    if more is None and source.rows is not None:
        return _planned(carry, lambda: _scan(carry, source, body))
    return _planned(carry, lambda: _count(carry, source, body, more))


def _scan(carry: Carry, source: Source, body: Step) -> State:
    assert source.rows is not None
    plain: list[bool] = []

    def turn(given: list[Any], rows: list[Any]) -> tuple[list[Any], list[Any]]:
        after = _turn(carry, body, source.item_of(rows), *carry.enter(given))
        plain[:] = [_touches_no_tensor(carry)]
        return after, carry.stacked

    known = isinstance(source.length, int)
    outs, stacks = run_scan(
        turn, carry.initial(), list(source.rows), length=source.length, checkpoint_every=source.every
    )
    if known and plain[0]:
        raise _NoTensors
    ran = True if known else as_predicate(number_of(source.length).tensor > 0)
    return _finish(carry, [*outs, *stacks], source.length if known else None, ran)


def _touches_no_tensor(carry: Carry) -> bool:
    """Whether a body used nothing from around it but Python's numbers, and nothing of it is seen but such."""
    region = thread.capture
    if region.externals or region.journal or any(a.ndim for a in region.constants.values()):
        return False
    if not all(n.is_pure or is_number_check(n) for n in region.nodes):
        return False
    plans = [e.plan if isinstance(e, Late) else e for e in carry.entries if not isinstance(e, Fresh | Same)]
    parts = [p for plan in plans for p in plan.parts]
    return all(getattr(p, "kind", int) is not None for p in parts) and not carry.stacked


def _count(carry: Carry, source: Source, body: Step, more: Test | None) -> State:
    """A loop that counts itself: it may end early, or only a run tells its length."""
    plain: list[bool] = []

    def test(given: list[Any]) -> Any:
        index = Number(int, given[0])
        tests: list[Callable[[], Any]] = [lambda: index < source.length]
        if more is not None:
            tests.append(lambda: more(*carry.enter(given[1:])))
        out = as_predicate(and_(*tests))
        take_places(thread.capture)
        return out

    def turn(given: list[Any]) -> list[Any]:
        values = carry.enter(given[1:])
        after = _turn(carry, body, source.item_at(fresh_index(given[0])), *values)
        plain[:] = [_touches_no_tensor(carry)]
        return [given[0] + 1, *after]

    outs = run_while(
        test,
        turn,
        [number_of(0).tensor, *carry.initial()],
        checkpoint_every=source.every,
        collect=lambda _: carry.stacked,
    )
    if isinstance(source.length, int) and plain[0]:
        raise _NoTensors
    return _finish(carry, outs[1:], None, True if carry.runs else outs[0] > 0)
