"""Requests that nobody thought of: whatever comes, the answer is never that the server failed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from tests.of_code import examples
from tests.serve.common import asked, binary_request, request

NAMES = ("x", "y", "output", "inputs", "")
NUMBERS = st.one_of(st.integers(-(2**70), 2**70), st.floats(), st.booleans(), st.none())
LEAVES = st.one_of(NUMBERS, st.text(max_size=5), st.sampled_from(["NaN", "FP32", "INT64", *NAMES]))
JSON = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.sampled_from([*NAMES, "z"]), inner, max_size=3)
    ),
    max_leaves=12,
)
PARAMETERS = st.one_of(
    JSON, st.fixed_dictionaries({}, optional={"binary_data_size": JSON, "binary_data": JSON})
)
TENSOR = st.fixed_dictionaries(
    {},
    optional={
        "name": st.one_of(st.sampled_from(NAMES), JSON),
        "shape": st.one_of(st.lists(st.integers(-1, 4), max_size=4), st.lists(NUMBERS, max_size=4), JSON),
        "datatype": st.one_of(st.sampled_from(["FP32", "FP64", "BOOL", "BYTES"]), JSON),
        "data": st.one_of(st.lists(NUMBERS, max_size=8), JSON),
        "parameters": PARAMETERS,
    },
)
BODY = st.fixed_dictionaries(
    {},
    optional={
        "inputs": st.one_of(st.lists(st.one_of(TENSOR, JSON), max_size=3), JSON),
        "outputs": st.one_of(st.lists(st.one_of(TENSOR, JSON), max_size=3), JSON),
        "parameters": st.one_of(st.fixed_dictionaries({}, optional={"binary_data_output": JSON}), JSON),
        "id": JSON,
    },
)
GOOD = {"x": np.ones((2, 3), np.float32), "y": np.ones((2, 3), np.float32)}


@pytest.fixture(scope="module")
def app(models: Path) -> Any:
    return weft.serve.app([models / "pair.weft", models / "types.weft"])


def checked(app: Any, *args: Any) -> None:
    reply = asked(app, *args)
    assert reply.status in (200, 400, 404, 405, 413, 415, 503), reply
    if reply.status != 200:
        assert list(reply.json) == ["error"]


@examples(150, 50)
@given(BODY, st.sampled_from(["pair", "types"]))
def test_any_json(app: Any, body: Any, model: str) -> None:
    checked(app, "POST", f"/v2/models/{model}/infer", json.dumps(body).encode())


@settings(max_examples=100)
@given(st.data())
def test_a_good_request_with_something_changed(app: Any, data: st.DataObject) -> None:
    body = json.loads(request(GOOD))
    item = data.draw(st.sampled_from(body["inputs"]))
    key = data.draw(st.sampled_from(["name", "shape", "datatype", "data", "parameters"]))
    value = data.draw(JSON)
    if isinstance(item.get(key), list) and data.draw(st.booleans()):
        item[key][data.draw(st.integers(0, len(item[key]) - 1))] = value
    else:
        item[key] = value
    checked(app, "POST", "/v2/models/pair/infer", json.dumps(body).encode())


@examples(150, 50)
@given(st.data())
def test_bytes_that_are_damaged(app: Any, data: st.DataObject) -> None:
    body, headers = binary_request(GOOD, parameters={"binary_data_output": True})
    damaged = bytearray(body)
    for _ in range(data.draw(st.integers(0, 3))):
        damaged[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(body))) if data.draw(st.booleans()) else len(body)
    length = data.draw(
        st.one_of(st.just(headers["Inference-Header-Content-Length"]), st.text(max_size=6).filter(_is_header))
    )
    name = "Inference-Header-Content-Length"
    checked(app, "POST", "/v2/models/pair/infer", bytes(damaged[:cut]), {name: length})


def _is_header(text: str) -> bool:
    return all(ord(c) < 256 for c in text)


@examples(150, 50)
@given(
    st.sampled_from(["GET", "POST", "PUT", "HEAD", "OPTIONS", "x"]),
    st.text(max_size=12),
    st.binary(max_size=20),
)
def test_any_path(app: Any, method: str, path: str, body: bytes) -> None:
    for begin in ("/", "/v2/", "/v2/models/", "/v2/models/pair/", "/v2/models/pair/versions/"):
        checked(app, method, begin + path, body)
