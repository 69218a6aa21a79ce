"""Ops of the matrix under NVIDIA's checks of memory and races, in pieces that take a limited time:

    compute-sanitizer --tool memcheck python3 -m tests.gpu.card_sanitize START SECONDS
    compute-sanitizer --tool racecheck python3 -m tests.gpu.card_sanitize START SECONDS

Memory comes from the driver in the exact size that was asked for, so that an access one byte beyond is seen.
The last line says where to go on. Values are compared with the interpreter's, too.
"""

from __future__ import annotations

import signal
import sys
import time
import warnings
from typing import Any

from tests.backends.agreement import assert_agree, interpreted
from tests.backends.llvm.matrix import arrays_of, cases, graph_of, rows
from weft.backends.cuda import memory
from weft.backends.cuda.card import card
from weft.backends.cuda.compiling import compile_for_device
from weft.backends.cuda.copies import to_device

_OP_SECONDS = 30


def run_op(name: str) -> None:
    """One op with its gradient."""
    found = list(cases(name))
    graph, arrays = graph_of(found), arrays_of(found)
    run = compile_for_device(graph.optimize(), card())
    outs = run([to_device(a, card()) for a in arrays])
    assert_agree([out.to_host() for out in outs], interpreted(graph, arrays))


def _late(*_: Any) -> None:
    raise TimeoutError(f"longer than {_OP_SECONDS} s")


def main() -> int:
    """Ops from a number on, as many as the time allows."""
    warnings.simplefilter("ignore")
    start, seconds = int(sys.argv[1]), float(sys.argv[2])
    memory._GRAIN, memory._SMALL = 1, -1
    signal.signal(signal.SIGALRM, _late)
    names, begin, bad, i = list(rows()), time.monotonic(), [], start
    for i in range(start, len(names)):
        if time.monotonic() - begin > seconds:
            break
        signal.alarm(_OP_SECONDS)
        try:
            run_op(names[i])
        except Exception as error:
            bad.append(names[i])
            print(f"{names[i]}: {type(error).__name__}: {str(error).splitlines()[0][:150]}", flush=True)
        finally:
            signal.alarm(0)
    else:
        i += 1
    print(f"ops {start} to {i} of {len(names)}: {i - start - len(bad)} right, not: {' '.join(bad) or 'none'}")
    print(f"go on at {i}" if i < len(names) else "all done")
    return 0


if __name__ == "__main__":
    sys.exit(main())
