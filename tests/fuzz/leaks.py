"""Memory that stays: eager steps, recompilations, dropped functions and requests, each many times.

The memory of the process is read after each twentieth; after the first tenth it must not grow any more. A
case is JSON: what is repeated, and how often.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import gc
import json
import resource
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

import weft
from tests.fuzz.campaign import Watch, campaign, place, told
from tests.serve.common import ask, binary_request, request
from weft import nn

PARTS = 20
SETTLED = PARTS // 10  # parts after which memory must not grow
GROWTH = 1 << 20  # bytes that are not told from a flat line: pages that the allocator happens to touch
COUNTS = {"eager": 100_000, "recompiles": 10_000, "dropped": 1_000, "requests": 200_000}
FIRST = {"eager": 2000, "recompiles": 60, "dropped": 60, "requests": 2000}  # in a batch of a campaign


def resident() -> int:
    """Bytes of memory that this process has, what can be given back not counted."""
    gc.collect()
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


# What is repeated: each gives a function that does it some times


def _eager() -> Callable[[int], None]:
    weft.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.GELU(), nn.Dropout(0.1), nn.Linear(16, 4))
    optimizer = weft.optim.Adam(model.parameters(), lr=1e-3)
    x, y = weft.randn(5, 8), weft.tensor([0, 1, 2, 3, 0])

    def run(count: int) -> None:
        for _ in range(count):
            optimizer.zero_grad()
            weft.cross_entropy(model(x), y).backward()
            optimizer.step()

    return run


def _recompiles() -> Callable[[int], None]:
    """A function that each call captures and compiles anew."""
    done = [0]

    def scaled(x: weft.Tensor, factor: int) -> weft.Tensor:
        return weft.tanh(x * float(factor)).sum()

    def run(count: int) -> None:
        for _ in range(count):
            done[0] += 1
            compiled = weft.compile(scaled)
            compiled(weft.ones(3 + done[0] % 5), done[0])

    return run


def _dropped() -> Callable[[int], None]:
    """Functions with weights, compiled with their gradients, run and dropped."""

    def run(count: int) -> None:
        for k in range(count):
            layer = nn.Linear(6, 6)

            def loss(x: weft.Tensor, layer: Any = layer, k: int = k) -> weft.Tensor:
                return (layer(x) * (k % 13)).square().sum()

            compiled = weft.compile(weft.grad(loss))
            compiled(weft.ones(2, 6))

    return run


def _requests() -> Callable[[int], None]:
    folder = tempfile.TemporaryDirectory()
    rows = weft.TensorType(("batch", 3), weft.float32)
    weft.compile(lambda x: {"sum": x.sum(axis=1), "scaled": x * 2.0}).save(f"{folder.name}/m.weft", rows)
    app = weft.serve.app([f"{folder.name}/m.weft"])
    x = {"x": np.ones((2, 3), np.float32)}
    bodies = [(request(x), {}), binary_request(x, parameters={"binary_data_output": True}), (b"{", {})]

    async def some(count: int) -> None:
        for i in range(count):
            body, headers = bodies[i % 3]
            reply = await ask(app, "POST", "/v2/models/m/infer", body, headers)
            assert reply.status == (200 if i % 3 < 2 else 400), (folder, reply)

    return lambda count: asyncio.run(some(count))


WAYS: dict[str, Callable[[], Callable[[int], None]]] = {
    "eager": _eager, "recompiles": _recompiles, "dropped": _dropped, "requests": _requests,
}  # fmt: skip


# One case


def measured(kind: str, count: int) -> list[int]:
    """The memory after each part."""
    run = WAYS[kind]()
    out = []
    for _ in range(PARTS):
        run(max(1, count // PARTS))
        out.append(resident())
    return out


def growth(memory: Sequence[int]) -> int:
    """Bytes by which memory grew after the first tenth, by a line through it."""
    rest = np.array(memory[SETTLED:], float)
    slope = np.polyfit(np.arange(rest.size), rest, 1)[0]
    return int(slope * (rest.size - 1))


def replay(case: bytes) -> str:
    """What is wrong with a case."""
    row = json.loads(case)
    memory = measured(row["kind"], row["count"])
    grown = growth(memory)
    if grown <= GROWTH:
        return ""
    each = grown / (row["count"] * (PARTS - SETTLED) / PARTS)
    return f"{grown / 2**20:.2f} MiB more, {each:.0f} bytes each: {[m >> 10 for m in memory]} KiB"


def batch(watch: Watch) -> None:
    """One kind, as often as the options say."""
    kinds = watch.options.only or [*WAYS]
    kind = kinds[watch.seed % len(kinds)]
    count = watch.options.count or (COUNTS if watch.options.whole else FIRST)[kind]
    case = json.dumps({"kind": kind, "count": count}).encode()
    watch.begin(case, "measurements", 7200)
    watch.counts[kind] += count
    try:
        wrong = replay(case)
    except Exception as error:
        watch.found(f"{kind}-{place(error)}", "no error", told(error))
        return
    if wrong:
        watch.found(kind, "memory that does not grow after the first tenth", wrong)
    watch.done()


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", nargs="*", choices=[*WAYS])
    parser.add_argument("--count", type=int, default=0, help="how often; by default a small number")
    parser.add_argument("--whole", action="store_true", help="as often as docs/reliability.md says")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure."""
    return campaign("leaks", batch, arguments, _options)


if __name__ == "__main__":
    sys.exit(main())
