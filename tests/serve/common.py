"""Models to serve, requests to them, and a client that calls the application without a network."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from weft.serve.protocol import DATATYPES

Array = np.ndarray[Any, Any]


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


async def ask(
    app: Any,
    method: str,
    path: str,
    body: bytes = b"",
    headers: Mapping[str, str] | None = None,
    chunk: int = 1 << 20,
) -> Reply:
    """Ask the application, with the body in chunks."""
    parts = [body[i : i + chunk] for i in range(0, len(body), chunk)] or [b""]
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        part = parts.pop(0)
        return {"type": "http.request", "body": part, "more_body": bool(parts)}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    given = {"content-length": str(len(body))} | {k.lower(): v for k, v in (headers or {}).items()}
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "headers": [(k.encode("latin-1"), v.encode("latin-1")) for k, v in given.items()],
    }
    await app(scope, receive, send)
    begin, end = sent
    return Reply(begin["status"], {k.decode(): v.decode() for k, v in begin["headers"]}, end["body"])


def asked(app: Any, method: str, path: str, *args: Any, **kwargs: Any) -> Reply:
    """The same outside of an event loop."""
    return asyncio.run(ask(app, method, path, *args, **kwargs))


def tensor(name: str, array: Array, data: Any = None) -> dict[str, Any]:
    """A tensor of a request, in JSON."""
    found = array.reshape(-1).tolist() if data is None else data
    return {"name": name, "shape": list(array.shape), "datatype": DATATYPES[array.dtype], "data": found}


def request(inputs: Mapping[str, Array], **more: Any) -> bytes:
    """A request in JSON."""
    return json.dumps({"inputs": [tensor(n, a) for n, a in inputs.items()], **more}).encode()


def binary_request(inputs: Mapping[str, Array], **more: Any) -> tuple[bytes, dict[str, str]]:
    """A request with the bytes of its tensors, and its headers."""
    items, blocks = [], []
    for name, array in inputs.items():
        blocks.append(array.tobytes())
        item = tensor(name, array, [])
        del item["data"]
        items.append({**item, "parameters": {"binary_data_size": len(blocks[-1])}})
    head = json.dumps({"inputs": items, **more}).encode()
    return b"".join((head, *blocks)), {"Inference-Header-Content-Length": str(len(head))}


def arrays_of(reply: Reply) -> dict[str, Array]:
    """The tensors of an answer, as JSON or as bytes."""
    dtypes = {name: dtype for dtype, name in DATATYPES.items()}
    length = int(reply.headers.get("inference-header-content-length", len(reply.body)))
    found, at = {}, length
    for item in json.loads(reply.body[:length])["outputs"]:
        size = item.get("parameters", {}).get("binary_data_size")
        if size is None:
            dtype = dtypes[item["datatype"]]
            array = np.array(item["data"], np.float64 if "F" in item["datatype"] else dtype)
        else:
            array = np.frombuffer(reply.body[at : at + size], dtypes[item["datatype"]])
            at += size
        found[item["name"]] = array.astype(dtypes[item["datatype"]]).reshape(item["shape"])
    assert at == len(reply.body)
    return found


def infer(app: Any, model: str, inputs: Mapping[str, Array], **more: Any) -> Reply:
    """Ask a model."""
    return asked(app, "POST", f"/v2/models/{model}/infer", request(inputs, **more))


def metric(app: Any, line: str) -> float:
    """The number behind a name and its labels."""
    text = asked(app, "GET", "/metrics").body.decode()
    found = [row.rpartition(" ")[2] for row in text.splitlines() if row.startswith(line + " ")]
    return float(found[0]) if found else 0.0


def gather(app: Any, model: str, many: Sequence[Mapping[str, Array]]) -> list[Reply]:
    """Ask a model many things at once."""

    async def all_of_them() -> list[Reply]:
        path = f"/v2/models/{model}/infer"
        return list(await asyncio.gather(*[ask(app, "POST", path, request(inputs)) for inputs in many]))

    return asyncio.run(all_of_them())
