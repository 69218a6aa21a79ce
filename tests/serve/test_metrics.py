"""The text of the metrics."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

import weft
from tests.serve.common import asked, infer
from weft.serve.metrics import Histogram, _label

LINE = re.compile(r'([a-z_]+)(\{([a-z]+="(\\.|[^"\\])*",?)*\})? (-?[0-9.e+-]+|\+Inf)')


def text_of(app: Any) -> str:
    reply = asked(app, "GET", "/metrics")
    assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
    return reply.body.decode()


def test_metrics_are_in_the_text_format(models: Path) -> None:
    app = weft.serve.app({"a-1": models / "affine.weft", "pair": models / "pair.weft"})
    infer(app, "a-1", {"x": np.ones((2, 3), np.float32)})
    infer(app, "a-1", {"x": np.ones((2, 4), np.float32)})
    asked(app, "GET", "/nowhere")
    text = text_of(app)
    typed: set[str] = set()
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name not in typed
            typed.add(name)
            assert kind in ("counter", "gauge", "histogram")
        elif not line.startswith("# HELP "):
            found = LINE.fullmatch(line)
            assert found, line
            assert re.sub("_(bucket|sum|count)$", "", found[1]) in typed or found[1] in typed
    assert 'weft_requests_total{model="a-1",code="200"} 1\n' in text
    assert 'weft_requests_total{model="a-1",code="400"} 1\n' in text
    assert 'weft_requests_total{model="",code="404"} 1\n' in text
    assert 'weft_request_duration_seconds_count{model="a-1"} 2\n' in text
    assert 'weft_batch_rows_sum{model="a-1"} 2' in text
    assert 'weft_requests_in_flight{model="a-1"} 0\n' in text
    assert text.endswith("\n")


def test_names_that_do_not_exist_make_no_metrics(models: Path) -> None:
    app = weft.serve.app(models / "affine.weft")
    for i in range(50):
        asked(app, "POST", f"/v2/models/name{i}/infer", b"{}")
    assert "name1" not in text_of(app)


def test_histograms_add_up() -> None:
    histogram = Histogram((1, 2, 4))
    for x in (0.5, 1, 1.5, 3, 9):
        histogram.add(x)
    counts = [int(line.rpartition(" ")[2]) for line in histogram.lines("x") if "_bucket" in line]
    assert counts == [2, 3, 4, 5]


def test_labels_are_quoted() -> None:
    assert _label('a"b\\c\nd') == 'model="a\\"b\\\\c\\nd"'
