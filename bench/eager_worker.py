"""One framework in one process: reads the name of a case from each line, answers with seconds."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

OPS = 1000  # operations in a chain
SMALL = 8
LARGE = 1_000_000
MATRIX = 1024

Case = Callable[[], float]


def timed(run: Callable[[], Any], repeat: int = 1) -> float:
    """Seconds on the clock for one run."""
    start = time.perf_counter()
    for _ in range(repeat):
        run()
    return (time.perf_counter() - start) / repeat


def timed_chain(run: Callable[[], Any]) -> float:
    """Seconds of the processor for one operation of a chain: on one thread the same as on the clock, but
    other programs disturb it less.
    """
    start = time.process_time()
    out = run()
    elapsed = time.process_time() - start
    del out  # freeing a graph is not part of making it
    return elapsed / OPS


def small_arrays() -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(0)
    x, w, b = (rng.uniform(0.9, 1.1, SMALL).astype(np.float32) for _ in range(3))
    return x, w, b - 1


def large_array() -> Any:
    return np.random.default_rng(0).uniform(0.1, 2.0, LARGE).astype(np.float32)


def matrix() -> Any:
    return np.random.default_rng(0).normal(size=(MATRIX, MATRIX)).astype(np.float32)


def add_mul(x: Any, w: Any, b: Any) -> Any:
    for _ in range(OPS // 2):
        x = x * w + b
    return x


def mixed(x: Any, w: Any, b: Any, tanh: Any) -> Any:
    for _ in range(OPS // 4):
        x = tanh((x * w - b) + w)
    return x


def chain_cases(tensor: Any, tanh: Any, no_grad: Any) -> dict[str, Case]:
    """Chains of small operations; ``add_mul`` asks for the gradient of x alone, ``mixed`` for all three."""
    arrays = small_arrays()

    def leaves(count: int) -> list[Any]:
        return [tensor(a, requires_grad=i < count) for i, a in enumerate(arrays)]

    def forward(run: Any, leaf_count: int) -> Case:
        def case() -> float:
            x = leaves(leaf_count)
            return timed_chain(lambda: run(*x))

        return case

    def backward(run: Any, leaf_count: int) -> Case:
        def case() -> float:
            total = run(*leaves(leaf_count)).sum()
            return timed_chain(total.backward)

        return case

    def without_grad(run: Any) -> Case:
        def case() -> float:
            x = leaves(0)
            with no_grad():
                return timed_chain(lambda: run(*x))

        return case

    def run_mixed(x: Any, w: Any, b: Any) -> Any:
        return mixed(x, w, b, tanh)

    return {
        "add_mul forward": forward(add_mul, 1),
        "add_mul backward": backward(add_mul, 1),
        "add_mul no grad": without_grad(add_mul),
        "mixed forward": forward(run_mixed, 3),
        "mixed backward": backward(run_mixed, 3),
        "mixed no grad": without_grad(run_mixed),
    }


def large_cases(namespace: Any, tensor: Any) -> dict[str, Case]:
    """Operations on a million floats, and a matrix product."""
    x, y = tensor(large_array()), tensor(large_array()[::-1].copy())
    m = tensor(matrix())

    def unary(name: str) -> Case:
        function = getattr(namespace, name)
        return lambda: timed(lambda: function(x), 5)

    return {
        "add 1e6": lambda: timed(lambda: x + y, 5),
        "mul 1e6": lambda: timed(lambda: x * y, 5),
        "div 1e6": lambda: timed(lambda: x / y, 5),
        "sqrt 1e6": unary("sqrt"),
        "exp 1e6": unary("exp"),
        "log 1e6": unary("log"),
        "tanh 1e6": unary("tanh"),
        "sin 1e6": unary("sin"),
        "sum 1e6": unary("sum"),
        "matmul 1024": lambda: timed(lambda: m @ m, 2),
    }


def weft_cases() -> dict[str, Case]:
    import weft

    return chain_cases(weft.tensor, weft.tanh, weft.no_grad) | large_cases(weft, weft.tensor)


def torch_cases() -> dict[str, Case]:
    import os

    import torch

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))

    def tensor(a: Any, requires_grad: bool = False) -> Any:
        return torch.tensor(a, requires_grad=requires_grad)

    return chain_cases(tensor, torch.tanh, torch.no_grad) | large_cases(torch, tensor)


def numpy_cases() -> dict[str, Case]:
    arrays = small_arrays()
    chains: dict[str, Case] = {
        "add_mul no grad": lambda: timed_chain(lambda: add_mul(*arrays)),
        "mixed no grad": lambda: timed_chain(lambda: mixed(*arrays, np.tanh)),
    }
    return chains | large_cases(np, np.array)


CASES = {"weft": weft_cases, "torch": torch_cases, "numpy": numpy_cases}


def main() -> None:
    cases = CASES[sys.argv[1]]()
    for line in sys.stdin:
        case = cases.get(line.strip())
        if case is None:
            print("none", flush=True)
            continue
        gc.collect()
        print(repr(case()), flush=True)


if __name__ == "__main__":
    main()
