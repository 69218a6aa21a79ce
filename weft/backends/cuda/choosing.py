"""Which of the algorithms that cuBLASLt offers for a product is the fastest: tried once, and kept on disk.

The first that it offers is up to a quarter slower than the best. What was found is kept as machine code is,
under a name that has the device, the versions of driver and library and the product in it. So a product has
the same bits from run to run as long as the cache is kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from weft.backends.cuda.capturing import captured
from weft.backends.cuda.cublaslt import Heuristic
from weft.backends.cuda.streams import Event, Stream
from weft.backends.llvm.cache import default_cache
from weft.errors import DeviceError, DeviceMemoryError

if TYPE_CHECKING:
    from weft.backends.cuda.products import Product

_OFFERS = 12  # algorithms that are asked for
_WORTH = 1 << 20  # operations from which on a trial pays
_LONG = 3e-4  # seconds that a trial takes, if one product takes less
_MOST_TURNS, _ROUNDS = 20, 3
_HOPELESS = 2.0  # times the best: what a first run, which is slower than others, may take
_SPEED = {2: 6e14, 4: 5e13, 8: 5e13}  # operations a second, by bytes of an element: to tell how often to try
_FILL = 0x3C  # bytes of numbers near 0.01 in all types: zeros would run faster than what is computed with


def choose(product: Product) -> Heuristic:
    """The algorithm for a product."""
    library, shape = product.library, product.shape
    key, cache = _key(product), default_cache()
    kept = cache.get(key)
    if kept is not None and len(kept) == 64:
        known = library.accepted(product.description, product.layouts, kept)
        if known is not None:
            return known
    a, b, c = shape.alignments
    once = shape.rounds_once
    offers = library.heuristics(product.description, product.layouts, (b, a, c, c), _OFFERS, once=once)
    if not offers:
        raise DeviceError("matmul", "cublasLt must have an algorithm for the matrices, got none")
    if shape.flops() < _WORTH or len(offers) == 1:
        return offers[0]
    try:
        best = _fastest(product, offers)
    except DeviceMemoryError:  # no room for a trial
        return offers[0]
    cache.put(key, bytes(best.algorithm))
    return best


def _key(product: Product) -> tuple[str, ...]:
    card, shape = product.library.card, product.shape
    version = int(card.driver.cuDriverGetVersion())
    named = tuple([part.name if isinstance(part, np.dtype) else part for part in shape])
    named = named if shape.result is not None else named[:-1]  # those that were kept before keep their names
    named += ("rounded once",) if shape.rounds_once else ()
    parts = (card.name, card.architecture, version, product.library.version, named)
    return ("cublaslt", *map(str, parts))


def _fastest(product: Product, offers: list[Heuristic]) -> Heuristic:
    card = product.library.card
    stream = Stream(card)
    blocks = [card.pool.take(size, stream) for size in product.shape.extents()]
    blocks.append(card.pool.take(product.shape.n * product.shape.result_dtype.itemsize, stream))
    workspace = card.pool.take(max(offer.workspace for offer in offers), stream)
    for block in blocks:
        card.driver.cuMemsetD8Async(block.pointer, _FILL, block.size, stream.handle)
    a, b, c, bias = (block.pointer for block in blocks)
    places = (c, a, b, workspace.pointer, bias)
    times: list[float] = []
    for offer in offers:
        times.append(_seconds(product, offer, places, stream, min(times, default=float("inf"))))
    best = min(times)
    if best == float("inf"):
        return offers[0]
    return offers[times.index(best)]


def _seconds(
    product: Product, offer: Heuristic, places: tuple[int, int, int, int, int], stream: Stream, best: float
) -> float:
    """How long an algorithm takes; infinity if it fails. One that is far from the best so far is run once."""
    card, shape = product.library.card, product.shape
    once = shape.flops() / _SPEED[shape.dtype.itemsize]
    turns = max(1, min(_MOST_TURNS, int(_LONG / once)))

    def work(on: Stream) -> None:
        for _ in range(turns):
            if code := product.trial(offer, *places[:4], on, places[4]):
                raise DeviceError("matmul", f"cublasLtMatmul must succeed, got error {code}")

    try:
        graph = captured(card, work)
    except DeviceError:
        return float("inf")
    driver = card.driver
    ready = driver.cuGraphInstantiate(graph, 0)
    try:
        first = _launched(ready, stream)  # which warms up
        if first > _HOPELESS * turns * best:
            return first / turns
        rounds = _ROUNDS if once < _LONG else 1
        found = [_launched(ready, stream) for _ in range(rounds)]
    finally:
        driver.code("cuGraphExecDestroy", ready)
        driver.code("cuGraphDestroy", graph)
    return min(found) / turns


def _launched(ready: object, stream: Stream) -> float:
    begin, end = Event(), Event()
    begin.record(stream)
    stream.card.driver.cuGraphLaunch(ready, stream.handle)
    end.record(stream)
    end.synchronize()
    return begin.elapsed_time(end) / 1e3
