"""A page that shows a run while it trains: ``Trainer(..., watch=True)`` serves it on this machine alone.

What is shown is collected by the thread that trains, in a bounded number of points; threads of the server
send it to browsers. None of them can hold up or end training, and all of them end with ``fit``.
"""

from __future__ import annotations

import json
import math
import os
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from operator import itemgetter
from typing import Any

import numpy as np

import weft
from weft.train.callbacks import Callback, Row
from weft.viewer.page import page_data, page_text

HOST = "127.0.0.1"
MOST_POINTS = 1500  # of each curve; where there are more, neighbours become one
PAUSE = 0.5  # seconds between messages to a page, and between looks at the memory
FIRST_NORMS, NORMS_EVERY = (0, 10, 50, 100), 200  # steps at which norms of gradients are taken
NORMS_PAUSE = 0.5  # seconds from one of the later ones to the next, where no other rank waits for them
MOST_LAYERS = 60  # whose norms are shown
Columns = dict[str, Any]  # arrays of float64 by name, all of one length
MOST_ROWS = 1024  # steps that wait to become points
HIDDEN = ("epoch",)  # numbers that are no curves
PARTS = ("loader", "step", "optimizer", "rest")
CLOCKS_PAUSE = 0.01  # seconds between looks at what parts have taken; those of steps between are shared out
Clocks = tuple[float, float, float, float]  # the time, and seconds spent so far: waits, optimizer, steps


class Points:
    """Curves over steps, of a bounded number of points: each is the mean of ``stride`` steps.

    Attributes:
        generation: changes when all points have changed.
        columns: by name, the values; NaN where there is none.

    >>> import numpy as np
    >>> from weft.train.watch import Points
    >>> points = Points(4)
    >>> points.extend({"step": np.arange(1.0, 7.0)})
    >>> points.columns["step"], points.generation
    (array([1.5, 3.5, 5.5]), 1)
    """

    def __init__(self, most: int = MOST_POINTS) -> None:
        self._most = most
        self._stride = 1
        self._left: Columns = {}  # steps that do not make a point yet
        self.generation = 0
        self.columns: Columns = {}

    def extend(self, new: Columns) -> None:
        """Add the numbers of some steps."""
        rows = _joined(self._left, new)
        count = _length(rows)
        whole = count - count % self._stride
        self._left = {name: x[whole:] for name, x in rows.items()}
        made = {name: _means(x[:whole], self._stride) for name, x in rows.items()}
        self.columns = _joined(self.columns, made)
        while _length(self.columns) >= self._most:
            self._halve()

    def _halve(self) -> None:
        """Make one point of two; one that is left over at the end becomes steps again."""
        even = _length(self.columns) // 2 * 2
        last = {name: np.repeat(x[even:], self._stride) for name, x in self.columns.items()}
        self._left = _joined(last, self._left)
        self.columns = {name: _means(x[:even], 2) for name, x in self.columns.items()}
        self.generation, self._stride = self.generation + 1, 2 * self._stride


def _length(columns: Columns) -> int:
    return len(next(iter(columns.values()), ()))


def _joined(first: Columns, second: Columns) -> Columns:
    """Columns one below the other, with NaN where one of them has none."""
    if not first or not second:
        return first or second
    lengths, found = (_length(first), _length(second)), {}
    for name in {**first, **second}:
        parts = (c.get(name, np.full(n, np.nan)) for c, n in zip((first, second), lengths, strict=True))
        found[name] = np.concatenate(list(parts))
    return found


def _means(x: Any, stride: int) -> Any:
    """The means of so many neighbours each, of those that are numbers."""
    if stride == 1:
        return x
    groups = x.reshape(-1, stride)
    there = np.isfinite(groups)
    with np.errstate(invalid="ignore"):
        return np.where(there, groups, 0.0).sum(axis=1) / there.sum(axis=1)


class Watch(Callback):
    """Collects what a run does, and serves the page.

    Args:
        names: of the parameters of the model, in the order of their norms.
        modules: the paths of its modules, in their order.
        serves: whether this process serves a page; on a mesh one does.
        say: shows the address.
        alone: whether no other rank takes norms at the same steps.
    """

    def __init__(
        self,
        names: list[str],
        modules: list[str],
        serves: bool,
        say: Callable[[str], None],
        alone: bool = True,
    ) -> None:
        self.layers = _layers(names, modules)
        self.points = Points()
        self.memory = Points()
        self.norms = Points(400)
        self.epochs: list[dict[str, Any]] = []
        self.state: dict[str, Any] = {"status": "starts", "error": ""}
        self.graph: Callable[[], Any] = lambda: None
        self._say = say
        self._serves = serves
        self._server: _Server | None = None
        self._port = 0
        self._marks: Clocks = (0.0, 0.0, 0.0, 0.0)
        self._rows: deque[tuple[float, Row]] = deque()  # with when each step ended
        self._clocks: deque[Clocks] = deque()
        self._later: list[tuple[float, Row]] = []  # rows after the last look at the clocks
        self._due = 0.0  # when clocks are to be read again
        self._settling = threading.Lock()
        self._looked = 0.0
        self._norms_at = -1  # the step before which norms are taken next
        self._norms_pause = NORMS_PAUSE if alone else 0.0
        self._norms_taken = 0.0  # when
        self.before: Callable[[Any], None] | None = None
        self.takes_norms = True

    # What the trainer tells

    def on_start(self, trainer: Any) -> None:
        """Begin to serve."""
        self._marks = time.perf_counter(), *_parts_of(trainer)
        self._await_norms(trainer)
        self.state |= {"status": "trains", "began": time.time(), "model": type(trainer.model).__name__}
        if self._serves:
            self._server = _Server(self, self._port)
            self._port = self._server.port
            self._say(f"watch this run at {self.address}")

    @property
    def address(self) -> str:
        """Of the page."""
        return f"http://{HOST}:{self._port}/"

    def on_step(self, trainer: Any, row: Row) -> None:
        """Note the numbers of a step and when it ended; they are worked on later, many at once."""
        now = time.perf_counter()
        self._rows.append((now, row))
        if now > self._due:
            self._note(trainer, now)
        if row["step"] == self._norms_at:
            self._await_norms(trainer)

    def _note(self, trainer: Any, now: float) -> None:
        """Note what parts of the run have taken; not after each step where steps are short."""
        self._clocks.append((now, *_parts_of(trainer)))
        self._due = now + CLOCKS_PAUSE
        if now - self._looked > PAUSE:
            self._looked = now
            step = self._rows[-1][1]["step"] if self._rows else trainer.step
            self.memory.extend(_one({"step": step, "resident": resident_bytes()}))
        if len(self._rows) > MOST_ROWS:
            self.settle()

    def settle(self) -> None:
        """Make points of the rows that wait, as far as the times of their parts are known."""
        with self._settling:
            clocks = [self._clocks.popleft() for _ in range(len(self._clocks))]
            self._later += [self._rows.popleft() for _ in range(len(self._rows))]
            marks, self._marks = self._marks, clocks[-1] if clocks else self._marks
            ends = np.array([now for now, _ in self._later])
            known = int(np.searchsorted(ends, self._marks[0], "right"))
            rows, self._later = self._later[:known], self._later[known:]
            if not rows:
                return
            times = _times([marks, *clocks], ends[:known])
            found = _columns([row for _, row in rows])
            self.points.extend(found | times)
            self.state |= {"step": rows[-1][1]["step"], "epoch": rows[-1][1]["epoch"]}

    def on_epoch(self, trainer: Any, row: Row) -> None:
        """Note the means of an epoch."""
        numbers = {k: float(x) for k, x in row.items() if math.isfinite(x)}
        self.epochs = [*self.epochs, numbers][-MOST_POINTS:]

    def _await_norms(self, trainer: Any) -> None:
        """Have norms of gradients taken before the next step if they are due; the same on all ranks."""
        step, now = trainer.step, time.perf_counter()
        is_due = step % NORMS_EVERY == 0 and now - self._norms_taken >= self._norms_pause
        if self.takes_norms and (step in FIRST_NORMS or is_due):
            trainer._runner.before = self.before
            self._norms_taken = now
        later = [n for n in FIRST_NORMS if n > step]
        self._norms_at = min([*later, (step // NORMS_EVERY + 1) * NORMS_EVERY])

    def note_norms(self, step: int, squares: list[float]) -> None:
        """Note the squared norms of the gradients of all parameters."""
        found = dict.fromkeys(self.layers, 0.0)
        for names, layer in self.layers.items():
            found[names] = math.sqrt(sum(squares[i] for i in layer))
        self.norms.extend(_one({"step": step, **found}))

    def on_end(self, trainer: Any) -> None:
        """Send the last, and stop serving."""
        trainer._runner.before = None
        self._note(trainer, time.perf_counter())
        self.settle()
        self.state["status"] = trainer.stopped or "has ended"
        if self._server is not None:
            server, self._server = self._server, None
            server.close()

    # What pages get

    def message(self, known: dict[str, Any]) -> dict[str, Any]:
        """What is new to a page, by what it knows; that is changed."""
        self.settle()
        found: dict[str, Any] = {"state": {**self.state, "now": time.time()}}
        for name, points in (("points", self.points), ("memory", self.memory), ("norms", self.norms)):
            found[name] = _new(name, points, known)
        if known.get("epochs") != len(self.epochs):
            found["epochs"] = self.epochs
            known["epochs"] = len(self.epochs)
        return found

    def graph_page(self) -> str:
        """The page of the graph of a step."""
        graph = self.graph()
        if graph is None:
            return "<!doctype html><p>There is no graph: steps are not compiled, or none has been run yet."
        return page_text(page_data(graph))


def _columns(rows: list[Row]) -> Columns:
    """The numbers of rows by name."""
    names = [name for name in rows[-1] if name not in HIDDEN]
    try:
        table = np.array(list(map(itemgetter(*names), rows)), np.float64)
    except KeyError:  # some have fewer
        table = np.array([[row.get(name, math.nan) for name in names] for row in rows], np.float64)
    return dict(zip(names, table.reshape(len(rows), -1).T, strict=True))


def _parts_of(trainer: Any) -> tuple[float, float, float]:
    """The seconds spent so far waiting for batches, in the optimizer, and in steps."""
    runner = trainer._runner
    return trainer._train.waited, runner.applied, runner.stepped


def _times(clocks: list[Clocks], ends: Any) -> Columns:
    """Milliseconds of each step by part; between looks at the clocks, in proportion to the steps' times."""
    looks, ticks = np.array([c[0] for c in clocks]), np.diff(np.array(clocks), axis=0)
    whole = np.diff(ends, prepend=looks[0])
    window = np.searchsorted(looks[1:], ends)
    taken = np.bincount(window, whole, len(ticks))
    held = taken / np.maximum(ticks[:, 0], 1e-12)  # the last look may be later than the last step
    _, loader, optimizer, step = (ticks * held[:, None] * 1e3).T
    busy = np.maximum(step - loader - optimizer, 0.0)
    rest = np.maximum(taken * 1e3 - loader - busy - optimizer, 0.0)
    share = whole / np.maximum(taken, 1e-12)[window]
    return {
        f"time_{name}": x[window] * share
        for name, x in zip(PARTS, (loader, busy, optimizer, rest), strict=True)
    }


def _one(numbers: Mapping[str, float]) -> Columns:
    """The columns of a single step."""
    return {name: np.array([x], np.float64) for name, x in numbers.items()}


def _new(name: str, points: Points, known: dict[str, Any]) -> dict[str, Any]:
    """The points that a page does not have."""
    generation, columns = points.generation, points.columns
    count = min((len(x) for x in columns.values()), default=0)
    start = known.get(name, (generation, 0))
    first = start[1] if start[0] == generation else 0
    known[name] = generation, count
    new = {
        column: [v if math.isfinite(v) else None for v in x[first:count].tolist()]
        for column, x in columns.items()
    }
    return {"first": first, "columns": new, "names": list(new)}


def _layers(names: list[str], modules: list[str]) -> dict[str, list[int]]:
    """The numbers of the parameters of each module; of very many, those of modules that hold them."""
    for depth in range(max((name.count(".") for name in names), default=0), -1, -1):
        found: dict[str, list[int]] = {}
        for i, name in enumerate(names):
            parts = name.split(".")[:-1]
            found.setdefault(".".join(parts[: max(depth, 1)]) or name, []).append(i)
        if len(found) <= MOST_LAYERS:
            return dict(sorted(found.items(), key=lambda item: _place_of(item[0], modules)))
    return {"all": list(range(len(names)))}


def _place_of(path: str, modules: list[str]) -> list[int]:
    """Where a module comes, each behind those that hold it and before those that follow them."""
    parts = path.split(".")
    around = [".".join(parts[: i + 1]) for i in range(len(parts))]
    return [modules.index(each) if each in modules else -1 for each in around]


def resident_bytes() -> int:
    """The memory that this process holds.

    >>> from weft.train.watch import resident_bytes
    >>> resident_bytes() > 1_000_000
    True
    """
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:  # no Linux: the most that it ever held
        import resource

        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if os.uname().sysname == "Darwin" else most * 1024


class _Server(ThreadingHTTPServer):
    """Serves the page of a run to browsers of this machine."""

    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True

    def __init__(self, watch: Watch, port: int) -> None:
        self.watch = watch
        self.ends = threading.Event()
        try:
            super().__init__((HOST, port), _Handler)
        except OSError:  # the port of an earlier fit is taken
            super().__init__((HOST, 0), _Handler)
        self.port = self.server_address[1]
        self._open: set[threading.Thread] = set()
        serve = threading.Thread(target=self.serve_forever, args=(0.1,), name="weft watch", daemon=True)
        serve.start()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing: a browser that went away is no concern of training."""

    def close(self) -> None:
        """Let pages have the last message, and stop."""
        self.ends.set()
        self.shutdown()
        for thread in list(self._open):
            thread.join(1.0)
        with suppress(OSError):  # some systems refuse that of a socket that listens
            self.socket.shutdown(socket.SHUT_RDWR)  # processes that were forked may hold it, too
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    server: _Server
    protocol_version = "HTTP/1.0"
    timeout = 5.0  # seconds that a browser may take to read

    def do_GET(self) -> None:
        """The page, its messages, or the page of the graph."""
        host = (self.headers.get("Host") or "").rpartition(":")[0]
        if host not in (HOST, "localhost"):  # a page of another site, under a name that points here
            self.send_error(403)
        elif self.path == "/":
            self._send(watch_page())
        elif self.path == "/events":
            self._stream()
        elif self.path == "/graph":
            self._send(self.server.watch.graph_page())
        else:
            self.send_error(404)

    def _send(self, text: str) -> None:
        data = text.encode()
        self._begin("text/html; charset=utf-8")
        self.wfile.write(data)

    def _begin(self, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Cache-Control", "no-store")
        self.end_headers()

    def _stream(self) -> None:
        """Messages until the end of the run; a browser that goes away ends them."""
        thread, known = threading.current_thread(), dict[str, Any]()
        self.server._open.add(thread)
        try:
            self._begin("text/event-stream")
            while True:
                ends = self.server.ends.wait(PAUSE if known else 0.0)
                text = json.dumps(self.server.watch.message(known), separators=(",", ":"))
                self.wfile.write(f"data: {text}\n\n".encode())
                self.wfile.flush()
                if ends:
                    return
        finally:
            self.server._open.discard(thread)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: requests are not part of what a run shows."""


def watch_page() -> str:
    """The page, which asks for everything else."""
    return (resources.files("weft.train") / "page" / "watch.html").read_text("utf-8")


def parameter_names(model: Any, parameters: list[Any]) -> list[str]:
    """The paths of parameters in a model.

    >>> import weft
    >>> from weft.train.watch import parameter_names
    >>> model = weft.nn.Linear(2, 1)
    >>> parameter_names(model, list(model.parameters()))
    ['weight', 'bias']
    """
    names = {id(p): name for name, p in model.named_parameters()}
    return [names.get(id(p), f"parameter.{i}") for i, p in enumerate(parameters)]


def make_watch(trainer: Any, runner: Any, serves: bool) -> Watch:
    """The watch of a trainer, which takes the norms of gradients before some of its steps."""
    recipe = runner.recipe
    modules = [path for path, _ in recipe.model.named_modules()]
    names = parameter_names(recipe.model, recipe.parameters())
    watch = Watch(names, modules, serves, _print, alone=recipe.ranks is None)
    watch.graph = runner.graph
    run = runner.norms()

    def before(batch: Any) -> None:
        runner.before = None
        try:
            watch.note_norms(trainer.step, take_norms(recipe, run, batch))
        except Exception as error:  # training goes on without them
            watch.takes_norms = False
            watch.state["error"] = f"no norms of gradients: {error}"

    watch.before = before
    return watch


def _print(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - what the user has asked for


def take_norms(recipe: Any, run: Callable[..., Any], batch: Any) -> list[float]:
    """The squared norms of the gradients of a batch, without any trace in the model or in what is drawn.

    Args:
        recipe: of the steps.
        run: computes the norms, compiled or not; it leaves no gradients.
        batch: that the next step is of.
    """
    buffers = [(b, b.clone()) for b in recipe.model.buffers()]
    drawn = weft.get_rng_state()
    try:
        return [float(x) for x in run(batch).numpy().reshape(-1)]
    finally:
        weft.set_rng_state(drawn)
        with weft.no_grad():
            for buffer, before in buffers:
                buffer.copy_(before)
