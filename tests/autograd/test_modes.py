"""``no_grad``, ``enable_grad``, ``inference_mode`` and ``set_grad_enabled``: blocks, decorators, threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import weft
from weft.base.switch import switch
from weft.errors import ArgumentError

x = weft.tensor(3.0, requires_grad=True)


@pytest.fixture(autouse=True)
def _recording_is_on_before_and_after() -> Iterator[None]:
    assert weft.is_grad_enabled()
    yield
    assert weft.is_grad_enabled()
    assert threading.get_ident() not in switch.off


@pytest.mark.parametrize("mode", [weft.no_grad, weft.inference_mode, lambda: weft.set_grad_enabled(False)])
def test_nothing_is_recorded_inside(mode: Callable[[], Any]) -> None:
    with mode():
        y = x * x
        assert not weft.is_grad_enabled()
    assert not y.requires_grad
    assert y.grad_fn is None
    assert y.is_leaf
    assert (x * x).requires_grad


@pytest.mark.parametrize(
    "mode", [weft.enable_grad, lambda: weft.inference_mode(False), lambda: weft.set_grad_enabled(True)]
)
def test_recording_comes_back_inside(mode: Callable[[], Any]) -> None:
    with weft.no_grad():
        with mode():
            assert (x * x).requires_grad
        assert not (x * x).requires_grad


def test_blocks_nest_and_one_instance_may_be_entered_again() -> None:
    off, on = weft.no_grad(), weft.enable_grad()
    seen = []
    with off:
        seen.append(weft.is_grad_enabled())
        with on:
            seen.append(weft.is_grad_enabled())
            with off:
                seen.append(weft.is_grad_enabled())
            seen.append(weft.is_grad_enabled())
        seen.append(weft.is_grad_enabled())
    assert seen == [False, True, False, True, False]


def test_recording_is_put_back_after_an_error() -> None:
    with pytest.raises(ZeroDivisionError), weft.no_grad():
        raise ZeroDivisionError


@pytest.mark.parametrize(
    "decorator",
    [
        weft.no_grad,
        weft.no_grad(),
        weft.inference_mode,
        weft.inference_mode(),
        weft.inference_mode(True),
    ],
)
def test_decorated_function_does_not_record(decorator: Any) -> None:
    @decorator
    def square(t: Any) -> Any:
        """Its own name."""
        return t * t

    assert not square(x).requires_grad
    assert (square.__name__, square.__doc__) == ("square", "Its own name.")


def test_set_grad_enabled_decorates_without_changing_the_mode_outside() -> None:
    @weft.set_grad_enabled(False)
    def square(t: Any) -> Any:
        return t * t

    assert weft.is_grad_enabled()
    assert not square(x).requires_grad


def test_set_grad_enabled_alone_holds_until_set_again() -> None:
    weft.set_grad_enabled(False)
    assert not (x * x).requires_grad
    weft.set_grad_enabled(True)
    assert (x * x).requires_grad


def test_decorated_recursive_function_puts_the_mode_back() -> None:
    @weft.no_grad()
    def down(n: int) -> list[bool]:
        return [weft.is_grad_enabled()] + (down(n - 1) if n else [])

    assert down(3) == [False] * 4


def test_decorated_generator_sets_the_mode_only_while_it_runs() -> None:
    inside: list[bool] = []

    @weft.no_grad()
    def steps() -> Any:
        try:
            for i in range(3):
                inside.append(weft.is_grad_enabled())
                sent = yield i
                inside.append(sent == f"sent {i}" and weft.is_grad_enabled())
        finally:
            inside.append(weft.is_grad_enabled())
        return "done"

    generator, outside = steps(), []
    assert next(generator) == 0
    for i in (1, 2):
        outside.append(weft.is_grad_enabled())
        assert generator.send(f"sent {i - 1}") == i
    with pytest.raises(StopIteration, match="done"):
        generator.send("sent 2")
    assert inside == [False] * 7
    assert outside == [True, True]


def test_decorated_generator_gets_what_is_thrown_into_it_and_closes() -> None:
    log: list[Any] = []

    @weft.no_grad()
    def steps() -> Any:
        try:
            try:
                yield 1
            except ValueError:
                log.append(weft.is_grad_enabled())
                yield 2
        finally:
            log.append(("closed", weft.is_grad_enabled()))

    generator = steps()
    next(generator)
    assert generator.throw(ValueError()) == 2
    generator.close()
    assert log == [False, ("closed", False)]


def test_undecorated_generators_that_end_out_of_turn_put_back_what_they_saw() -> None:
    def steps() -> Any:
        with weft.no_grad():
            yield

    first, second = steps(), steps()
    next(first)
    next(second)
    first.close()
    second.close()
    weft.set_grad_enabled(True)  # the mode that second saw was that of first


def test_decorated_coroutine_sets_the_mode_only_while_it_runs() -> None:
    seen: list[bool] = []

    @weft.no_grad()
    async def quiet() -> bool:
        await asyncio.sleep(0)
        return weft.is_grad_enabled()

    async def loud() -> None:
        for _ in range(3):
            seen.append(weft.is_grad_enabled())
            await asyncio.sleep(0)

    async def main() -> bool:
        result, _ = await asyncio.gather(quiet(), loud())
        return result

    assert asyncio.run(main()) is False
    assert seen == [True] * 3


def test_async_generator_and_what_is_no_function_are_refused() -> None:
    async def steps() -> Any:
        yield 1

    with pytest.raises(ArgumentError, match="async generator"):
        weft.no_grad()(steps)
    with pytest.raises(ArgumentError, match="must decorate a function, got int"):
        weft.no_grad(3)


def test_mode_belongs_to_the_thread() -> None:
    inside, done = threading.Event(), threading.Event()
    seen: list[bool] = []

    def other() -> None:
        with weft.no_grad():
            inside.set()
            done.wait(10)
            seen.append((x * x).requires_grad)

    thread = threading.Thread(target=other)
    thread.start()
    inside.wait(10)
    seen.append((x * x).requires_grad)
    done.set()
    thread.join()
    assert seen == [True, False]


def test_one_instance_shared_by_threads_puts_back_what_each_had() -> None:
    shared, barrier = weft.no_grad(), threading.Barrier(8)
    wrong: list[int] = []

    def work(i: int) -> None:
        with weft.set_grad_enabled(i % 2 == 0):
            for _ in range(50):
                barrier.wait(10)
                with shared:
                    barrier.wait(10)
                    if weft.is_grad_enabled():
                        wrong.append(i)
                if weft.is_grad_enabled() != (i % 2 == 0):
                    wrong.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert wrong == []


def test_new_thread_starts_with_recording_on() -> None:
    seen: list[bool] = []
    with weft.no_grad():
        thread = threading.Thread(target=lambda: seen.append(weft.is_grad_enabled()))
        thread.start()
        thread.join()
    assert seen == [True]
