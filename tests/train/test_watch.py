"""The page of a run: what it is told, that it ends with the run, and that training does not notice it."""

from __future__ import annotations

import json
import re
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest

import weft
from weft import nn
from weft import parallel as par
from weft.train import Callback
from weft.train.watch import PARTS, Points, resident_bytes


def make(watch: bool = True, callbacks: Any = (), compile: bool = True, **more: Any) -> Any:
    weft.manual_seed(0)
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((96, 6)).astype(np.float32), rng.integers(0, 3, 96)
    layers = nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Dropout(0.1), nn.Linear(8, 3)
    model = nn.Sequential(*layers)
    optimizer = weft.optim.Adam(model.parameters(), lr=0.01)
    batches = [(x[i : i + 16], y[i : i + 16]) for i in range(0, 96, 16)]
    parts = model, weft.cross_entropy, optimizer, batches, batches[:1]
    settings: dict[str, Any] = {"metrics": ["accuracy"], "progress": False, "compile": compile, **more}
    return weft.Trainer(*parts, watch=watch, callbacks=callbacks, **settings)


def bits(trainer: Any) -> bytes:
    tensors = [*trainer.model.parameters(), *trainer.model.buffers()]
    return b"".join(t.detach().numpy().tobytes() for t in tensors)


class Visit(Callback):
    """Opens the page after some steps, as a browser does."""

    def __init__(self) -> None:
        self.page = self.graph = ""
        self.messages: list[dict[str, Any]] = []
        self.thread = threading.Thread(target=lambda: None)
        self.address = ""
        self.hears = threading.Event()

    def on_step(self, trainer: Any, row: Any) -> None:
        if trainer.step == 3:
            self.address = trainer._watch.address
            self.page = read(self.address)
            self.graph = read(self.address + "graph")
            self.thread = threading.Thread(target=self.listen)
            self.thread.start()
            assert self.hears.wait(20)  # the run is short, and must not end before

    def listen(self) -> None:
        with urllib.request.urlopen(self.address + "events", timeout=10) as answer:
            for line in answer:
                if line.startswith(b"data: "):
                    self.messages.append(json.loads(line[6:]))
                    self.hears.set()


def read(address: str) -> str:
    with urllib.request.urlopen(address, timeout=10) as answer:
        return str(answer.read().decode())


def test_page_gets_curves_times_memory_norms_and_graph(capsys: pytest.CaptureFixture[str]) -> None:
    visit = Visit()
    trainer = make(callbacks=[visit])
    history = trainer.fit(epochs=3)
    visit.thread.join(10)
    assert f"watch this run at {visit.address}" in capsys.readouterr().out
    points: dict[str, list[Any]] = {}
    for message in visit.messages:
        for name, new in message["points"]["columns"].items():
            points[name] = points.get(name, [])[: message["points"]["first"]] + new
    assert points["step"] == list(range(1, 19))
    losses = [np.mean(points["loss"][i : i + 6]) for i in range(0, 18, 6)]
    np.testing.assert_allclose(losses, [row["loss"] for row in history], rtol=1e-5)
    assert all(t > 0 for t in points["time_step"])
    assert {"accuracy", "lr", "time_loader", "time_rest"} <= set(points)
    assert visit.messages[-1]["state"]["status"] == "has ended"
    epochs = [m["epochs"] for m in visit.messages if "epochs" in m][-1]
    assert [row["val_loss"] for row in epochs] == pytest.approx([row["val_loss"] for row in history])
    norms = visit.messages[0]["norms"]["columns"]
    assert set(norms) == {"step", "0", "1", "4"}
    assert norms["step"] == [0]
    assert visit.messages[0]["memory"]["columns"]["resident"][0] > 1e6
    assert "cross_entropy" in visit.graph


def test_parts_of_steps_add_up_to_the_time_of_the_run() -> None:
    class Slow:
        """Batches, and an end of the epoch, that are waited for."""

        def __init__(self, batches: Any) -> None:
            self.batches = batches

        def __iter__(self) -> Iterator[Any]:
            for batch in self.batches:
                time.sleep(0.002)
                yield batch
            time.sleep(0.1)

    class Clock(Callback):
        def __init__(self) -> None:
            self.times: list[float] = []

        def on_step(self, trainer: Any, row: Any) -> None:
            self.times.append(time.perf_counter())

    clock = Clock()
    trainer = make(callbacks=[clock])
    trainer._train._source = Slow(trainer._train._source)
    trainer.fit(epochs=3)
    trainer._watch.settle()
    columns = trainer._watch.points.columns
    whole = sum(columns[f"time_{part}"] for part in PARTS)
    taken = 1e3 * np.diff(clock.times)
    np.testing.assert_allclose(whole[1:].sum(), taken.sum(), rtol=0.01)
    ends = columns["time_loader"][[6, 12]]  # the first steps of an epoch: the end of the one before is theirs
    assert (ends > 95).all()
    assert (whole[[6, 12]] < 100 + 0.5 * (ends - 100) + 1.2 * taken[[5, 11]]).all()


def test_page_needs_nothing_from_elsewhere() -> None:
    class Elements(HTMLParser):
        def __init__(self) -> None:
            super().__init__()
            self.sources: list[str] = []

        def handle_starttag(self, tag: str, attrs: Any) -> None:
            self.sources += [v for k, v in attrs if k in ("src", "href") and v]

    visit = Visit()
    make(callbacks=[visit]).fit(steps=4)
    visit.thread.join(10)
    parser = Elements()
    parser.feed(visit.page)
    assert parser.sources == ["data:,"]
    assert not [a for a in re.findall(r"https?://[^\s\"'`]+", visit.page) if "www.w3.org" not in a]


def test_norms_are_those_of_the_gradients_before_the_first_step() -> None:
    trainer = make()
    trainer.fit(steps=1)
    plain = make(watch=False)
    model, (x, y) = plain.model, plain._train.next()
    weft.cross_entropy(model(x), y).backward()
    norms = trainer._watch.norms.columns
    for name, layer in (("0", model[0]), ("1", model[1]), ("4", model[4])):
        squares = sum(float((p.grad.numpy() ** 2).sum()) for p in layer.parameters())
        np.testing.assert_allclose(norms[name][0], np.sqrt(squares), rtol=1e-4)


@pytest.mark.parametrize(("pause", "steps"), [(0.0, [0, 4, 8]), (1e6, [0])])
def test_later_norms_are_some_time_apart(
    monkeypatch: pytest.MonkeyPatch, pause: float, steps: list[int]
) -> None:
    monkeypatch.setattr("weft.train.watch.FIRST_NORMS", (0,))
    monkeypatch.setattr("weft.train.watch.NORMS_EVERY", 4)
    monkeypatch.setattr("weft.train.watch.NORMS_PAUSE", pause)
    trainer = make(compile=False)
    trainer.fit(steps=10)
    assert trainer._watch.norms.columns["step"].tolist() == steps


@pytest.mark.parametrize("compile", [True, False])
def test_watched_run_has_the_bits_of_one_that_is_not(compile: bool) -> None:
    found = []
    for watch in (True, False):
        trainer = make(watch=watch, compile=compile)
        trainer.fit(steps=12)
        found.append(bits(trainer))
    assert found[0] == found[1]


def test_server_ends_with_fit_and_keeps_its_address() -> None:
    trainer = make()
    trainer.fit(steps=2)
    address, port = trainer._watch.address, trainer._watch._port
    with pytest.raises(urllib.error.URLError):
        read(address)
    assert not [t for t in threading.enumerate() if "weft watch" in t.name]
    trainer.fit(steps=4)
    assert trainer._watch._port == port
    trainer._watch.settle()
    assert trainer._watch.points.columns["step"].tolist() == [1, 2, 3, 4]


def test_server_ends_after_an_error_too() -> None:
    class Fails(Callback):
        def on_step(self, trainer: Any, row: Any) -> None:
            raise ValueError("mine")

    trainer = make(callbacks=[Fails()])
    with pytest.raises(ValueError, match="mine"):
        trainer.fit(steps=3)
    with pytest.raises(urllib.error.URLError):
        read(trainer._watch.address)


@pytest.mark.rotating(2)
def test_browsers_that_go_away_are_not_noticed(capfd: pytest.CaptureFixture[str]) -> None:
    class Rude(Callback):
        def on_step(self, trainer: Any, row: Any) -> None:
            with socket.create_connection(("127.0.0.1", trainer._watch._port)) as one:
                one.sendall(b"GET /events HTTP/1.0\r\nHost: 127.0.0.1:1\r\n\r\n")
            with socket.create_connection(("127.0.0.1", trainer._watch._port)) as one:
                one.sendall(b"\x00\xff nonsense")

    make(callbacks=[Rude()]).fit(steps=6)
    assert capfd.readouterr().err == ""


def test_pages_of_other_sites_get_nothing() -> None:
    found = []

    class Asks(Callback):
        def on_step(self, trainer: Any, row: Any) -> None:
            request = urllib.request.Request(trainer._watch.address, headers={"Host": "evil.example:80"})
            with pytest.raises(urllib.error.HTTPError) as caught:
                urllib.request.urlopen(request, timeout=10)
            found.append(caught.value.code)
            caught.value.close()

    make(callbacks=[Asks()]).fit(steps=1)
    assert found == [403]


def test_norms_that_fail_do_not_stop_training(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = make()
    monkeypatch.setattr("weft.train.watch.take_norms", lambda *args: 1 / 0)
    trainer.fit(steps=3)
    assert "no norms of gradients" in trainer._watch.state["error"]
    assert trainer.step == 3


@pytest.mark.rotating(2)
def test_one_rank_serves_and_all_have_the_bits_of_one() -> None:
    def run(watch: bool) -> tuple[bytes, int]:
        trainer = make(watch=watch, mesh=par.mesh(data=-1))
        trainer.fit(steps=4)
        served = trainer._watch is not None and trainer._watch._port > 0
        return b"".join(p.detach().full().numpy().tobytes() for p in trainer.model.parameters()), served

    watched, plain = par.simulate(run, 2, True), par.simulate(run, 2, False)
    assert [weights for weights, _ in watched] == [weights for weights, _ in plain]
    assert sorted(served for _, served in watched) == [False, True]


def test_points_stay_bounded_and_are_means() -> None:
    points, many = Points(100), 12_345
    for at in range(0, many, 7):
        steps = np.arange(at, min(at + 7, many), dtype=np.float64)
        points.extend({"step": steps, "loss": 2 * steps})
    assert 50 <= len(points.columns["step"]) < 100
    np.testing.assert_allclose(points.columns["loss"], 2 * points.columns["step"])
    gaps = np.diff(points.columns["step"])
    assert (gaps == gaps[0]).all()
    points.extend({"step": np.arange(1000.0), "new": np.ones(1000)})
    assert np.isnan(points.columns["new"][0])


def test_resident_memory_is_known() -> None:
    assert 1e6 < resident_bytes() < 1e12
