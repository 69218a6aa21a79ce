"""Kernels under NVIDIA's checks of memory and races, in pieces that take a limited time:

    compute-sanitizer --tool memcheck python3 -m tests.gpu.card_sanitize ops 0/8 100
    compute-sanitizer --tool racecheck python3 -m tests.gpu.card_sanitize kernels 2/8 100

``ops`` are those of the matrix with their gradients, ``kernels`` what ``tests/gpu/sanitized.py`` lists, the
third of eight parts here, ``halves`` is a graph with calls of cuBLASLt and cuDNN and the counters of these,
for at most so many seconds; names of some may follow. Memory comes from the
driver in the exact size that was asked for, so that an access one byte beyond is seen. Values are compared
with the interpreter's, too.
"""

from __future__ import annotations

import signal
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import weft
from tests.backends.agreement import assert_agree, interpreted
from tests.backends.llvm.matrix import arrays_of, cases, graph_of, rows
from tests.gpu.sanitized import KERNELS, STEPS, halves, train
from weft.backends.cuda import memory
from weft.backends.cuda.card import card
from weft.backends.cuda.compiling import compile_for_device
from weft.backends.cuda.copies import to_device

_SECONDS = {"ops": 40, "kernels": 150, "halves": 150}  # that one may take


def run_op(name: str) -> None:
    """One op with its gradient."""
    found = list(cases(name))
    run_graph(graph_of(found), arrays_of(found))


def run_kernel(name: str) -> None:
    """One program of the list."""
    function, tensors = KERNELS[name]
    run_graph(weft.make_graph(function)(*tensors), [t.numpy() for t in tensors])


def run_graph(graph: weft.Graph, arrays: list[Any]) -> None:
    """A graph as a program, beside the interpreter."""
    run = compile_for_device(graph.optimize(), card())
    outs = run([to_device(a, card()) for a in arrays])
    assert_agree([out.to_host() for out in outs], interpreted(graph, arrays))


def run_step(name: str) -> None:
    """A few training steps, of which the last are replays."""
    np.testing.assert_allclose(train("cuda", *STEPS[name]), train("cpu", *STEPS[name]), rtol=2e-3)


def run_halves() -> None:
    """Calls of libraries as a list, then as replays of a graph, which give the same bits."""
    function, given = halves()
    compiled, wanted = weft.compile(function), list[Any]()
    for call in range(8):
        if call == 5:  # others in between
            compiled(*[x * 2.0 for x in given])
        found = [x.cpu().numpy() for x in weft.tree_leaves(compiled(*given))]
        wanted = wanted or found
        assert all(a.tobytes() == b.tobytes() for a, b in zip(found, wanted, strict=True)), f"call {call}"
    run: Any = compiled.versions[0].run
    plans = run._plans.values()
    counted = [r._bound.counters[2] for plan in plans for r in plan.replays.values()]
    print(f"      bytes that libraries count in, by graph: {counted}", flush=True)
    assert counted, "calls must have become a graph"


def _late(*_: Any) -> None:
    raise TimeoutError("it took too long")


def main() -> int:
    """A part of the cases, as many as the time allows."""
    warnings.simplefilter("ignore")
    kind, (part, parts), seconds = sys.argv[1], map(int, sys.argv[2].split("/")), float(sys.argv[3])
    memory._GRAIN, memory._SMALL = 1, -1
    signal.signal(signal.SIGALRM, _late)
    checks: list[tuple[str, Callable[[], None]]] = [(name, partial(run_op, name)) for name in rows()]
    if kind == "kernels":
        checks = [(name, partial(run_step, name)) for name in STEPS]
        checks += [(name, partial(run_kernel, name)) for name in KERNELS]
    if kind == "halves":
        checks = [("halves", run_halves)]
    wanted = sys.argv[4:]
    checks = [c for c in checks if not wanted or c[0] in wanted][part::parts]
    begin, bad, left_out = time.monotonic(), [], 0
    for name, check in checks:
        if time.monotonic() - begin > seconds:
            left_out += 1
            continue
        signal.alarm(_SECONDS[kind])
        try:
            check()
        except Exception as error:
            bad.append(name)
            print(f"NOT {name}: {type(error).__name__}: {str(error).splitlines()[0][:150]}", flush=True)
        finally:
            signal.alarm(0)
    weft.cuda.synchronize()
    right = len(checks) - left_out - len(bad)
    print(f"{kind} {part}/{parts}: {right} right, {left_out} left out, not: {', '.join(bad) or 'none'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
