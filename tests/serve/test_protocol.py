"""The Open Inference Protocol: what requests say, what answers say, against what the graphs compute."""

from __future__ import annotations

import asyncio
import gc
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from tests.serve.common import arrays_of, asked, binary_request, infer, metric, request, tensor
from weft.serve.protocol import DTYPES


@pytest.fixture(scope="module")
def app(models: Path) -> Any:
    names = ("affine", "pair", "types", "lookup", "count", "fixed")
    return weft.serve.app([models / f"{name}.weft" for name in names])


@pytest.fixture(scope="module")
def affine(models: Path) -> Any:
    with np.load(models / "affine.npz") as found:
        w, b = found["w"], found["b"]
    return lambda x: x @ w.T + b


X = np.random.default_rng(0).random((2, 3)).astype(np.float32)
PATH = "/v2/models/affine/infer"


# The server and its models


def test_server_tells_what_it_is(app: Any) -> None:
    found = asked(app, "GET", "/v2")
    assert found.status == 200
    assert found.json == {
        "name": "weft",
        "version": weft.__version__,
        "extensions": ["binary_tensor_data"],
    }
    assert found.headers["content-type"] == "application/json"


def test_health(app: Any) -> None:
    assert asked(app, "GET", "/v2/health/live").json == {"live": True}
    assert asked(app, "GET", "/v2/health/ready").json == {"ready": True}
    assert asked(app, "GET", "/v2/models/affine/ready").json == {"ready": True}
    app.is_ready = False
    try:
        assert asked(app, "GET", "/v2/health/live").status == 200
        assert asked(app, "GET", "/v2/health/ready").status == 503
        assert asked(app, "GET", "/v2/models/affine/versions/1/ready").status == 503
    finally:
        app.is_ready = True


@pytest.mark.parametrize("path", ["/v2/models/pair", "/v2/models/pair/versions/1"])
def test_metadata_of_a_model(app: Any, path: str) -> None:
    assert asked(app, "GET", path).json == {
        "name": "pair",
        "versions": ["1"],
        "platform": "weft",
        "inputs": [
            {"name": "x", "datatype": "FP32", "shape": [-1, -1]},
            {"name": "y", "datatype": "FP32", "shape": [-1, -1]},
        ],
        "outputs": [
            {"name": "sum", "datatype": "FP32", "shape": [-1, -1]},
            {"name": "total", "datatype": "FP32", "shape": [-1]},
        ],
        "parameters": {"max_batch_size": 64},
    }


def test_index_of_the_repository(app: Any) -> None:
    found = asked(app, "POST", "/v2/repository/index", b"{}").json
    assert {item["name"] for item in found} == set(app.models)
    assert all(item["state"] == "READY" for item in found)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 404),
        ("GET", "/v3", 404),
        ("GET", "/v2/health", 404),
        ("GET", "/v2/models/nobody", 404),
        ("GET", "/v2/models/affine/versions/2", 404),
        ("GET", "/v2/models/affine/nonsense", 404),
        ("POST", "/v2/models/nobody/infer", 404),
        ("POST", "/v2/models/affine/versions/2/infer", 404),
        ("GET", PATH, 405),
        ("DELETE", "/v2", 405),
        ("POST", "/metrics", 405),
    ],
)
def test_paths_that_are_not_there(app: Any, method: str, path: str, status: int) -> None:
    found = asked(app, method, path, b"{}")
    assert found.status == status
    assert list(found.json) == ["error"]
    assert ("allow" in found.headers) == (status == 405)


# Inference


@pytest.mark.parametrize("path", [PATH, f"{PATH}/", "/v2/models/affine/versions/1/infer"])
def test_inference_in_json(app: Any, affine: Any, path: str) -> None:
    found = asked(app, "POST", path, request({"x": X}, id="seven"))
    assert found.status == 200
    answer = found.json
    assert (answer["model_name"], answer["model_version"], answer["id"]) == ("affine", "1", "seven")
    (output,) = answer["outputs"]
    assert (output["name"], output["shape"], output["datatype"]) == ("output", [2, 2], "FP32")
    np.testing.assert_allclose(np.reshape(output["data"], (2, 2)), affine(X), rtol=1e-5)


def test_nested_data_is_the_same(app: Any) -> None:
    nested = json.dumps({"inputs": [tensor("x", X, X.tolist())]}).encode()
    assert asked(app, "POST", PATH, nested).json == infer(app, "affine", {"x": X}).json


def test_floats_come_back_to_the_bit(app: Any, models: Path) -> None:
    expected = weft.load_graph(models / "affine.weft")(X).numpy()
    assert (arrays_of(infer(app, "affine", {"x": X}))["output"] == expected).all()


def test_inference_with_bytes(app: Any, models: Path) -> None:
    expected = weft.load_graph(models / "affine.weft")(X).numpy()
    body, headers = binary_request({"x": X}, parameters={"binary_data_output": True})
    found = asked(app, "POST", PATH, body, headers)
    assert found.status == 200
    assert found.headers["content-type"] == "application/octet-stream"
    assert (arrays_of(found)["output"] == expected).all()


def test_bytes_in_and_json_out(app: Any) -> None:
    body, headers = binary_request({"x": X})
    found = asked(app, "POST", PATH, body, headers)
    assert found.json == infer(app, "affine", {"x": X}).json


def test_outputs_that_are_asked_for(app: Any) -> None:
    inputs = {"x": X, "y": X}
    wanted = [{"name": "total"}]
    assert list(arrays_of(infer(app, "pair", inputs, outputs=wanted))) == ["total"]
    wanted = [{"name": "total", "parameters": {"binary_data": True}}, {"name": "sum"}]  # type: ignore[dict-item]
    found = arrays_of(infer(app, "pair", inputs, outputs=wanted))
    assert list(found) == ["total", "sum"]
    np.testing.assert_allclose(found["total"], (X * X).sum(1), rtol=1e-6)
    np.testing.assert_array_equal(found["sum"], X + X)
    wanted = [{"name": "sum", "parameters": {"binary_data": False}}]  # type: ignore[dict-item]
    found = infer(app, "pair", inputs, outputs=wanted, parameters={"binary_data_output": True})  # type: ignore[assignment]
    assert "data" in found.json["outputs"][0]  # type: ignore[attr-defined]


def test_a_request_for_no_outputs_gets_none(app: Any) -> None:
    assert infer(app, "affine", {"x": X}, outputs=[]).json["outputs"] == []


def edges_of(dtype: Any) -> list[Any]:
    if dtype.kind in "iu":
        return [np.iinfo(dtype).min, np.iinfo(dtype).max]
    return [np.finfo(dtype).tiny, np.finfo(dtype).max] if dtype.kind == "f" else [0, 1]


@pytest.mark.parametrize("as_bytes", [False, True])
def test_every_datatype_goes_there_and_back(app: Any, as_bytes: bool) -> None:
    given = {}
    for dtype in DTYPES.values():
        edges = edges_of(dtype)
        given[dtype.name] = np.array([edges, edges[::-1]], dtype)
    inputs = {f"xs.{name}": array for name, array in given.items()}
    path = "/v2/models/types/infer"
    if as_bytes:
        body, headers = binary_request(inputs, parameters={"binary_data_output": True})
        found = asked(app, "POST", path, body, headers)
    else:
        found = asked(app, "POST", path, request(inputs))
    assert found.status == 200, found.body
    for name, array in arrays_of(found).items():
        assert array.dtype == given[name].dtype
        assert (array == given[name][:, ::-1]).all(), name


def test_nan_and_infinities_are_words_in_json(app: Any) -> None:
    x = tensor("x", np.zeros((1, 4), np.float32), ["NaN", "Infinity", "-Infinity", 1.5])
    y = tensor("y", np.ones((1, 4), np.float32))
    found = asked(app, "POST", "/v2/models/pair/infer", json.dumps({"inputs": [x, y]}).encode())
    assert found.json["outputs"][0]["data"] == ["NaN", "Infinity", "-Infinity", 2.5]


def test_a_model_without_open_sizes(app: Any) -> None:
    x = np.arange(4, dtype=np.float32).reshape(2, 2)
    assert (arrays_of(infer(app, "fixed", {"x": x}))["output"] == 2 * x).all()
    assert "parameters" not in asked(app, "GET", "/v2/models/fixed").json


def test_a_model_with_state_counts_only_requests(app: Any) -> None:
    x = np.ones(2, np.float32)
    first = arrays_of(infer(app, "count", {"x": x}))["output"]
    second = arrays_of(infer(app, "count", {"x": x}))["output"]
    assert (first.tolist(), second.tolist()) == ([3.0, 3.0], [5.0, 5.0])


def test_no_rows_are_rows_too(app: Any) -> None:
    found = infer(app, "affine", {"x": np.zeros((0, 3), np.float32)})
    assert found.status == 200
    assert found.json["outputs"][0]["shape"] == [0, 2]


def test_a_body_in_small_pieces(app: Any) -> None:
    whole = infer(app, "affine", {"x": X})
    assert asked(app, "POST", PATH, request({"x": X}), chunk=7).json == whole.json


# Requests that are refused


def changed(**changes: Any) -> bytes:
    return json.dumps({"inputs": [{**tensor("x", X), **changes}]}).encode()


BARE = b'{"inputs": [{"name": "x", "shape": [1, 3], "datatype": "FP32", %b}]}'


def test_colons_in_texts_are_no_keys(app: Any) -> None:
    parts = b'"data": ["NaN", 2, 3], "parameters": {"a:b": "c:d", "e": {"f": [1, ":", {"g": null}]}}'
    found = asked(app, "POST", PATH, BARE.replace(b"{", b'{"id": "x:\\":y",', 1) % parts)
    assert found.status == 200, found.body
    assert found.json["id"] == 'x:":y'


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"", "the request must be JSON"),
        (b"{", "the request must be JSON"),
        (b"\xff\xfe", "the request must be JSON"),
        (b"[" * 100_000, "the request must be JSON"),
        (b'{"inputs": [NaN]}', "the request must be JSON"),
        (b"[]", "must be a JSON object"),
        (b"{}", "inputs must be a list"),
        (b'{"inputs": [3]}', "an input must be an object with a name"),
        (b'{"inputs": []}', "every input of the model must be given, got none for 'x'"),
        (json.dumps({"inputs": [tensor("x", X)] * 2}).encode(), "got 'x' twice"),
        (changed(name="z"), "inputs of affine must be among x, got 'z'"),
        (changed(datatype="FP64"), "datatype must be FP32, got 'FP64'"),
        (changed(datatype=["FP32"]), "datatype must be FP32"),
        (changed(datatype="BYTES"), "datatype must be FP32"),
        (changed(shape=[3, 3]), "data must be of shape [3, 3], got 6 numbers"),
        (changed(shape=[-2, 3]), "shape must be made of sizes, got -2"),
        (changed(shape=[2.0, 3]), "shape must be made of sizes, got 2.0"),
        (changed(shape=[True, 3]), "shape must be made of sizes, got True"),
        (changed(shape="23"), "shape must be a list"),
        (changed(shape=[1] * 40), "at most 32 sizes"),
        (changed(shape=[2, 3, 1]), "x must be f32[batch,3], got f32[2,3,1]"),
        (changed(shape=[6, 1]), "x must be f32[batch,3], got f32[6,1]"),
        (changed(data=None), "data must be a list"),
        (changed(data=X.tolist()[0]), "data must be of shape [2, 3], got 3 numbers"),
        (changed(data=[[1, 2, 3], [4, 5]]), "lists must be nested like [2, 3]"),
        (changed(data=[[1, 2, 3], 4, 5, 6]), "lists must be nested like [2, 3]"),
        (changed(data=[[[1], [2], [3]], [[4], [5], [6]]]), "data must be FP32, got [1]"),
        (changed(data=[1, 2, 3, 4, 5, [6]]), "data must be FP32, got [6]"),
        (changed(data=["a" * 10**6] + [1] * 5), "data must be FP32, got 'aaaa"),
        (changed(data=[[1, 2, 3], [4, 5, True]]), "data must be FP32, got True"),
        (changed(data=X.T.tolist()), "lists must be nested like [2, 3]"),
        (changed(data=["1"] * 6), "data must be FP32, got '1'"),
        (changed(data=[None] * 6), "data must be FP32, got None"),
        (changed(data=[True] * 6), "data must be FP32, got True"),
        (changed(data=[1e300] * 6), "data must be numbers that FP32 holds"),
        (changed(data=[{}] * 6), "data must be FP32, got {}"),
        (changed(parameters=3), "parameters must be an object"),
        (changed(parameters={"binary_data_size": 24}), "must have data or binary_data_size, got both"),
        (BARE % b'"parameters": {"binary_data_size": 24}', "binary_data_size must be in 0..0, got 24"),
        (BARE % b'"data": [1, 2, 3], "data": [4, 5, 6]', "got 'data' twice"),
        (BARE % b'"data": [1, 2, 3], "\\u0064ata": [4, 5, 6]', "got 'data' twice"),
        (BARE % b'"parameters": {"a": 1, "a": 1}, "data": [1, 2, 3]', "got 'a' twice"),
        (b'{"id": "a", "id": "a", "inputs": []}', "got 'id' twice"),
        (b'{"id": "a:b", "id": "a:b", "inputs": []}', "got 'id' twice"),
        (b'{"inputs": ' + b"[" * 1000 + b"]" * 1000 + b"}", "must be JSON"),
        (request({"x": X}, id=3), "id must be a string"),
        (request({"x": X}, outputs=3), "outputs must be a list"),
        (request({"x": X}, outputs=["output"]), "outputs of affine must be among output"),
        (request({"x": X}, outputs=[{"name": "z"}]), "outputs of affine must be among output, got 'z'"),
        (request({"x": X}, outputs=[{"name": "output"}] * 2), "got one twice"),
        (request({"x": X}, parameters={"binary_data_output": "yes"}), "must be true or false, got 'yes'"),
        (request({"x": np.zeros((65, 3), np.float32)}), "at most 64 rows, got 65"),
    ],
)  # fmt: skip
def test_requests_that_are_wrong_are_told_why(app: Any, body: bytes, told: str) -> None:
    if b"[[[" in body:
        gc.collect()  # what earlier tests left is not to end where no stack is left for what follows its end
    found = asked(app, "POST", PATH, body)
    assert found.status == 400, found.body
    assert told in found.json["error"]


@pytest.mark.parametrize(
    ("datatype", "data", "told"),
    [
        ("int8", [1, 200], "numbers that INT8 holds"),
        ("int8", [1, 0.5], "data must be INT8, got 0.5"),
        ("uint8", [1, -1], "numbers that UINT8 holds"),
        ("uint64", [1, 2**64], "data must be UINT64, got 1.8"),
        ("uint64", [-1, 2**63], "numbers that UINT64 holds"),
        ("bool", [0, 1], "data must be BOOL, got 0"),
        ("float16", [1, 70000], "numbers that FP16 holds"),
        ("bfloat16", [1, 3.5e38], "numbers that BF16 holds"),
    ],
)
def test_numbers_that_a_datatype_does_not_hold(app: Any, datatype: str, data: list[Any], told: str) -> None:
    inputs = []
    for dtype in DTYPES.values():
        array = np.zeros((1, 2), dtype)
        inputs.append(tensor(f"xs.{dtype.name}", array, data if dtype.name == datatype else None))
    found = asked(app, "POST", "/v2/models/types/infer", json.dumps({"inputs": inputs}).encode())
    assert (found.status, told in found.json["error"]) == (400, True), found.body


@pytest.mark.parametrize(
    ("length", "rest", "told"),
    [
        ("many", b"", "inference-header-content-length must be a number of bytes"),
        ("-1", b"", "inference-header-content-length must be a number of bytes"),
        ("9" * 4000, b"", "inference-header-content-length must be a number of bytes"),
        ("100000", b"", "inference-header-content-length must be a number of bytes"),
        ("0", b"", "the request must be JSON"),
        (None, b"more", "got 4 more bytes"),
        (None, b"", ""),
    ],
)
def test_lengths_of_the_json(app: Any, length: str | None, rest: bytes, told: str) -> None:
    body, headers = binary_request({"x": X})
    if length is not None:
        headers = {"inference-header-content-length": length}
    found = asked(app, "POST", PATH, body + rest, headers)
    assert found.status == (400 if told else 200)
    assert told in found.body.decode()


def test_bytes_that_are_too_few(app: Any) -> None:
    body, headers = binary_request({"x": X})
    found = asked(app, "POST", PATH, body[:-1], headers)
    assert (found.status, "binary_data_size must be in 0..23, got 24" in found.json["error"]) == (400, True)


def test_bytes_of_bools_are_0_or_1(app: Any) -> None:
    inputs = {f"xs.{d.name}": np.zeros((1, 2), d) for d in DTYPES.values()}
    body, headers = binary_request(inputs)
    head = int(headers["Inference-Header-Content-Length"])
    found = asked(app, "POST", "/v2/models/types/infer", body[:head] + b"\x02" + body[head + 1 :], headers)
    assert (found.status, "BOOL must be 0 or 1" in found.json["error"]) == (400, True)


@pytest.mark.parametrize(
    ("shape", "data"),
    [([10**9, 10**9], [1.0]), ([10**18, 0], []), ([0, 10**18], []), ([10**9, 0], []), ([2**70, 3], [])],
)
def test_huge_shapes_take_no_memory(app: Any, shape: list[int], data: list[float]) -> None:
    inputs = [{"name": name, "shape": shape, "datatype": "FP32", "data": data} for name in ("x", "y")]
    before = metric(app, "process_resident_memory_bytes")
    found = asked(app, "POST", "/v2/models/pair/infer", json.dumps({"inputs": inputs}).encode())
    assert found.status in (400, 413), found.body
    assert metric(app, "process_resident_memory_bytes") - before < 50e6


def test_an_error_of_the_graph_is_that_of_the_request(app: Any) -> None:
    found = infer(app, "lookup", {"i": np.array([1, 9])})
    assert found.status == 400
    assert "9" in found.json["error"]


def test_bodies_have_a_limit(models: Path) -> None:
    app = weft.serve.app(models / "affine.weft", max_body=1000)
    assert asked(app, "POST", PATH, b" " * 1001).status == 413
    found = asked(app, "POST", PATH, b" " * 1001, {"content-length": "5"}, chunk=100)
    assert (found.status, "at most 1000 bytes" in found.json["error"]) == (413, True)
    assert asked(app, "POST", PATH, request({"x": X})).status == 200


def test_all_bodies_together_have_a_limit(models: Path) -> None:
    app = weft.serve.app(models / "affine.weft", max_held=100)
    found = asked(app, "POST", PATH, request({"x": X}), chunk=10)
    assert (found.status, found.headers["retry-after"]) == (503, "1")
    assert app._held == 0


def test_encoded_bodies_are_refused(app: Any) -> None:
    assert asked(app, "POST", PATH, b"...", {"content-encoding": "gzip"}).status == 415


# Setting it up


def test_models_get_names(models: Path) -> None:
    app = weft.serve.app({"one": models / "affine.weft", "two": weft.load_graph(models / "affine.weft")})
    assert list(app.models) == ["one", "two"]


@pytest.mark.parametrize(
    ("given", "limits", "told"),
    [
        ({"a/b": "affine.weft"}, {}, "must be made of letters"),
        ({"affine": "affine.weft"}, {"max_bodies": 3}, "limits must be among max_batch"),
        ({"affine": "affine.weft"}, {"max_batch": 0}, "max_batch must be at least 1, got 0"),
        ({"affine": "affine.weft"}, {"batch_size": "n"}, "n must be the first size of all inputs"),
        ({"coupled": "coupled.weft"}, {"batch_size": "batch"}, "must not depend on each other"),
    ],
)
def test_settings_that_are_wrong(models: Path, given: Any, limits: Any, told: str) -> None:
    with pytest.raises((TypeError, ValueError), match=told):
        weft.serve.app({name: models / file for name, file in given.items()}, **limits)


def test_complex_tensors_cannot_be_served(tmp_path: Path) -> None:
    weft.compile(lambda x: x * 2).save(tmp_path / "c.weft", weft.TensorType((2,), weft.complex64))
    with pytest.raises(weft.errors.ArgumentError, match="got x: c64"):
        weft.serve.app(tmp_path / "c.weft")


def test_the_application_can_be_mounted_below_a_path(app: Any) -> None:
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": request({"x": X}), "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": "POST",
        "path": f"/models{PATH}",
        "root_path": "/models",
        "headers": [],
    }
    asyncio.run(app(scope, receive, send))
    assert sent[0]["status"] == 200


def test_the_application_follows_the_life_of_its_server(models: Path) -> None:
    app = weft.serve.app(models / "affine.weft")
    incoming = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]
    sent: list[str] = []

    async def receive() -> dict[str, Any]:
        return incoming.pop(0)

    async def send(message: dict[str, Any]) -> None:
        sent.append(message["type"])

    asyncio.run(app({"type": "lifespan"}, receive, send))
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


def test_packages_that_are_missing_are_told(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.serve.serving.find_spec", lambda name: None)
    with pytest.raises(weft.errors.ArgumentError, match="needs uvicorn") as told:
        weft.serve.run(models / "affine.weft")
    assert told.value.hint == "pip install 'weft[serve]'"
    monkeypatch.setitem(sys.modules, "orjson", None)
    with pytest.raises(weft.errors.ArgumentError, match="needs orjson"):
        weft.serve.app(models / "affine.weft")
