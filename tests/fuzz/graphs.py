"""Random graphs: compiled as interpreted, values and gradients, however they are optimised.

All dtypes, sizes with names, control flow, several outputs; any passes, any of them and of the
schedule's choices switched off. A case is JSON: the text of the graph, its constants, and how it is run.
How far results may be apart follows from the dtypes and from the graph itself: what lies beyond a few units
in the last place is compared with runs of the interpreter in which each node's result is off by as much.
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

import weft
from tests.backends.agreement import assert_agree, build_quickly, epsilon
from tests.fuzz.campaign import TooLong, Watch, campaign, place, told
from tests.ir.drawing import BySeed, Draw
from tests.ir.large_graphs import drawn_large_graph, large_arrays
from tests.ir.random_graphs import COMPLEX, WIDE, arrays_of, drawn_graph
from weft.backends.llvm.driver import build_executable
from weft.base.dtypes import as_dtype, kind
from weft.errors import WeftError
from weft.ir.graph import Graph, Node
from weft.ir.interpret import interpret
from weft.ir.rewrite import map_regions
from weft.ops.table import import_all
from weft.passes.lowering import LOWERING
from weft.passes.pipeline import PIPELINE
from weft.passes.simplify import load_rules
from weft.schedule.choices import CHOICES, ON_DEVICES
from weft.schedule.cpu.target import Cpu

Array = np.ndarray[Any, Any]
ULPS = {"small": 16, "large": 256}
NOISY = 12  # runs with noise
EACH = 300  # graphs in a batch
SHORTEN = 60.0  # seconds to make a case short in
KEPT = {"inline", "decompose"}  # without these there is no lowering of some ops

Build = Callable[[Graph, dict[str, Any]], Callable[..., Any]]  # of a graph, as a case says


# Cases


def written(graph: Graph, **how: Any) -> bytes:
    """A case as JSON."""
    data = {name: _data(array) for name, array in graph.constant_data(expand=True).items()}
    row = {**how, "constants": data, "graph": graph.to_text(locations=False, expand=True).splitlines()}
    return json.dumps(row, indent=1).encode()


def _data(array: Array) -> dict[str, Any]:
    return {"dtype": array.dtype.name, "shape": list(array.shape), "bytes": array.tobytes().hex()}


def _array(row: dict[str, Any]) -> Array:
    return np.frombuffer(bytes.fromhex(row["bytes"]), as_dtype(row["dtype"])).reshape(row["shape"])


def parsed(row: dict[str, Any]) -> Graph:
    """The graph of a case."""
    constants = {name: _array(data) for name, data in row["constants"].items()}
    return weft.parse_graph("\n".join(row["graph"]), constants)


def with_gradients(graph: Graph) -> Graph:
    """A graph that also gives the gradients of its float outputs by its float inputs."""
    where = [i for i, v in enumerate(graph.inputs) if kind(v.type.dtype) == "f"]
    plain = graph.replace(roles=("arg",) * len(graph.inputs), updates=())

    def both(*given: Any) -> Any:
        def floats(*some: Any) -> Any:
            full = list(given)
            for i, x in zip(where, some, strict=True):
                full[i] = x
            outs = weft.tree_leaves(plain(*full))
            return tuple(o for o in outs if kind(o.dtype) == "f" and o.requires_grad) or (some[0] * 0,)

        outs = weft.tree_leaves(plain(*given))
        found, pull = weft.vjp(floats, *[given[i] for i in where])
        return (*outs, *pull(tuple(weft.cos(o) for o in found)))

    return weft.make_graph(both)(*[v.type for v in graph.inputs]) if where else plain


# One case


def replay(case: bytes) -> str:
    """What is wrong with a case."""
    return judged(case)[1]


class FailedRunError(Exception):
    """A run ended with an error, of which only the message is known."""


class LeftOutError(Exception):
    """A graph that cannot be built, as it is said that it cannot."""


def judged(case: bytes, build: Build | None = None) -> tuple[list[str], str]:
    """How a graph was decided in each way, and what is wrong with it; ``build`` makes code of it."""
    row = json.loads(case)
    graph = parsed(row)
    how = []
    for way in row["ways"]:
        try:
            outcome, wrong = _judged(graph, row | way, build or built)
        except LeftOutError:
            outcome, wrong = "left out", ""
        how.append(outcome)
        if wrong:
            return how, f"{wrong}\nthis way: {way}"
    return how, ""


def _judged(graph: Graph, row: dict[str, Any], build: Build) -> tuple[str, str]:
    if row["gradient"]:
        try:
            graph = with_gradients(graph)
        except WeftError:  # no gradient is declared, or it is not known for sizes with names
            return "without gradient", ""
    arrays = (large_arrays if row["kind"] == "large" else arrays_of)(graph, row["seed"], row["sizes"])
    try:
        expected = noisy(graph, arrays, None)
    except (WeftError, ZeroDivisionError) as error:
        return "errors", _fails_alike(graph, row, arrays, error, build)
    return _compared(graph, arrays, build(graph, row)(arrays), expected, row)


def built(graph: Graph, row: dict[str, Any]) -> Callable[..., Any]:
    """A graph as machine code, as a case says."""
    optimised = improved(graph, row)
    if row["debug"]:
        return build_quickly(optimised)
    return build_executable(optimised, disable=row["disable"])


def improved(graph: Graph, row: dict[str, Any]) -> Graph:
    """A graph after the passes of a case."""
    disable = [name for name in row["disable"] if name not in CHOICES]
    return graph.optimize(passes=row["passes"], disable=disable)


def _fails_alike(
    graph: Graph, row: dict[str, Any], arrays: list[Array], error: Exception, build: Build
) -> str:
    try:
        found = build(graph, row)(arrays)
    except (type(error), FailedRunError):
        return ""
    return f"the interpreter raises {type(error).__name__}: {error}, compiled code gives {found}"


def _compared(
    graph: Graph, arrays: list[Array], found: list[Array], expected: list[Array], row: dict[str, Any]
) -> tuple[str, str]:
    try:
        assert_agree(found, expected, ULPS[row["kind"]])
    except AssertionError as error:
        difference = str(error)
    else:
        return "alike", ""
    runs = [noisy(graph, arrays, number) for number in range(NOISY)]
    for i, (ours, right) in enumerate(zip(found, expected, strict=True)):
        several = [run[i] for run in runs]
        if (ours.shape, ours.dtype) != (right.shape, right.dtype) or not _within(ours, right, several):
            return "wrong", f"result {i}:{difference}\ncompiled {ours!r}\ninterpreted {right!r}"
    return "by noise", ""


def _within(ours: Array, right: Array, several: list[Array]) -> bool:
    """Whether each element is as far from the interpreter's as noise explains."""
    if any(x.shape != right.shape for x in several):
        return True
    if kind(right.dtype) == "c":
        return _complex_within(ours, right, several)
    if kind(right.dtype) != "f":
        steady = np.all([x == right for x in several], axis=0)
        return bool(np.all((ours == right) | ~steady))
    wide = np.array([x.astype(np.float64) for x in (right, *several)])
    actual = ours.astype(np.float64)
    with np.errstate(all="ignore"):
        low, high = wide.min(axis=0), wide.max(axis=0)
        spread = (
            high - low + 16 * epsilon(right.dtype) * np.maximum(np.abs(wide[0]), np.finfo(np.float32).tiny)
        )
        near = (actual >= low - 8 * spread) & (actual <= high + 8 * spread)
    same = np.isnan(actual) & np.isnan(wide[0]) | (actual == wide[0])
    unsteady = ~np.all(np.isfinite(wide), axis=0) & ~np.all(_alike(wide, wide[0]), axis=0)
    return bool(np.all(near | same | unsteady))


def _complex_within(ours: Array, right: Array, several: list[Array]) -> bool:
    """Likewise, by distances in the plane; what of a number is infinite or NaN, libraries differ about."""
    with np.errstate(all="ignore"):
        wide = np.array([x.astype(np.complex128) for x in (right, *several)])
        spread = np.abs(wide - wide[0]).max(axis=0)
        allowed = 8 * spread + 16 * epsilon(right.dtype) * np.maximum(
            np.abs(wide[0]), np.finfo(np.float32).tiny
        )
        near = np.abs(ours.astype(np.complex128) - wide[0]) <= allowed
    unsteady = ~np.all(np.isfinite(wide), axis=0)
    return bool(np.all(near | unsteady))


def _alike(some: Array, other: Array) -> Array:
    return (some == other) | (np.isnan(some) & np.isnan(other))


# Noise


def noisy(graph: Graph, arrays: Sequence[Array], number: int | None) -> list[Array]:
    """The results of the interpreter; with a number, each node's are off by some units in the last place."""
    rng = None if number is None else np.random.default_rng(number)
    with np.errstate(all="ignore"):
        given = graph if rng is None else _noisy_graph(graph, rng)
        return [np.asarray(a) for a in interpret(given, arrays)]


def _noisy_graph(graph: Graph, rng: np.random.Generator) -> Graph:
    return graph.replace(nodes=[_noisy_node(node, rng) for node in graph.nodes])


def _noisy_node(node: Node, rng: np.random.Generator) -> Node:
    node = map_regions(node, lambda region: _noisy_graph(region, rng))
    if node.op.moves or node.op.view or node.regions:
        return node
    op, evaluate = copy.copy(node.op), node.op.eval

    def run(*given: Any, **attrs: Any) -> Any:
        result = evaluate(*given, **attrs)
        return _off(result, rng) if op.outputs == 1 else tuple(_off(r, rng) for r in result)

    op.eval = run
    return Node(op, node.inputs, node.attrs, node.outputs, node.location)


def _off(x: Any, rng: np.random.Generator) -> Any:
    """A result, some units off, and NaN of any sign: which one it has is the processor's choice."""
    x = np.asarray(x)
    if kind(x.dtype) not in "fc":
        return x
    steps = rng.integers(-4, 5, x.shape) * epsilon(x.dtype)
    if kind(x.dtype) == "c":
        turned = steps + 1j * rng.integers(-4, 5, x.shape) * epsilon(x.dtype)
        return (x + np.abs(x) * turned).astype(x.dtype)
    near = (x.astype(np.float64) * (1 + steps)).astype(x.dtype)
    return np.where(np.isnan(x) & (steps > 0), -near, near)


# The campaign

NAMES = sorted({*(p.name for p in (*PIPELINE, *LOWERING)), *CHOICES} - ON_DEVICES - KEPT)
PASSES = [p.name for p in PIPELINE]


def made(draw: Draw, of_complex: bool = False) -> bytes:
    """A case of a small graph of any kind, or of a large one; or of complex numbers and floats alone."""
    small = of_complex or draw.whole(0, 4) < 4
    graph = drawn_graph(draw, COMPLEX if of_complex else WIDE) if small else drawn_large_graph(draw)
    sizes = {"n": draw.of([3, 1, 0, 2, 5, 17])} if small else {}
    ways = [
        {
            "gradient": gradient,
            "disable": draw.of([[], NAMES, draw.some(NAMES)]),
            "passes": draw.of([None, None, [], draw.shuffled(draw.some(PASSES))]),
            "debug": draw.whole(0, 7) == 7,
        }
        for gradient in (False, True)
    ]
    kind = "small" if small else "large"
    return written(graph, kind=kind, sizes=sizes, seed=draw.whole(0, 1000), ways=ways)


def shortened(case: bytes, watch: Watch, build: Build | None = None) -> bytes:
    """A case that goes wrong, too, with fewer ways, outputs and nodes, as long as there is time."""
    end = time.monotonic() + SHORTEN
    found = True
    while found and time.monotonic() < end:
        found = False
        for less in _shorter(json.loads(case)):
            if time.monotonic() > end:
                break
            if _is_wrong(less, watch, build):
                case, found = less, True
                break
    return case


def _is_wrong(case: bytes, watch: Watch, build: Build | None) -> bool:
    watch.begin(case, "cases made short", 30)
    try:
        return bool(judged(case, build)[1])
    except (Exception, TooLong):
        return False
    finally:
        watch.done()


def _shorter(row: dict[str, Any]) -> Iterator[bytes]:
    """Cases that are a little less."""
    for way in row["ways"]:
        if len(row["ways"]) > 1:
            yield json.dumps({**row, "ways": [way]}, indent=1).encode()
        elif way != (plain := {**way, "disable": [], "passes": None, "debug": False}):
            yield json.dumps({**row, "ways": [plain]}, indent=1).encode()
    graph = parsed(row)
    for less in _shorter_graphs(graph):
        try:
            rest = {k: v for k, v in row.items() if k not in ("graph", "constants")}
            yield written(less.verify(), **rest)
        except WeftError:
            continue


def _shorter_graphs(graph: Graph) -> Iterator[Graph]:
    if graph.updates:
        yield graph.replace(updates=())
    if len(graph.outputs) > 1:
        yield from (graph.extract(graph.inputs, [v]) for v in graph.outputs)
    for node in graph.nodes[::-1]:
        kept = [v for v in graph.outputs if v not in node.outputs]
        yield graph.replace(outputs=[*kept, *node.inputs][:4], updates=())
    for node in graph.nodes[::-1]:
        yield graph.cut(list(node.outputs))


def batch(watch: Watch, build: Build | None = None) -> None:
    """Many graphs; those that are wrong are made short."""
    for number in range(EACH):
        if watch.over():
            return
        try:
            case = made(BySeed(watch.seed * EACH + number), getattr(watch.options, "complex", False))
            watch.begin(case, "graphs", 30)
            how, wrong = judged(case, build)
            watch.counts.update(how)
            if wrong:
                case = shortened(case, watch, build)
                key = f"wrong-{watch.seed}-{number}"
                watch.found(key, "what the interpreter gives", judged(case, build)[1] or wrong, case)
        except (Exception, TooLong) as error:
            watch.found(place(error), "a result", told(error))
        watch.done()


def main(arguments: Sequence[str] | None = None) -> int:
    """Fuzz."""
    import_all()
    Cpu().load()
    load_rules()
    return campaign("graphs", batch, arguments, _options)


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--complex", action="store_true", help="graphs of complex numbers and floats alone")


if __name__ == "__main__":
    sys.exit(main())
