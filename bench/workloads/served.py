"""A network behind HTTP: ``weft serve`` beside a plain handler of FastAPI that calls ONNX Runtime.

A step is 256 requests in JSON, of one image each, over 16 connections that are kept, from a process of its
own. The client is as light as Python allows: sockets, and answers that are looked at only at the end.
"""

from __future__ import annotations

import atexit
import json
import os
import selectors
import socket
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bench.case import Arrays, Case, Run
from bench.workloads import cnn, onnx_models
from bench.workloads.training import linear, load_weft, weights_of

CONNECTIONS = 16
REQUESTS = 256
ROOT = Path(__file__).parent.parent.parent


# The networks: that of the demonstration, for images of 8 × 8, and that of the row `cnn`


def digits_arrays(rng: np.random.Generator) -> Arrays:
    """Weights of the network for digits, and an image for each connection."""
    found: Arrays = {}
    for i, inputs, outputs in ((0, 1, 16), (3, 16, 32)):
        kernel = linear(rng, f"{i}", inputs * 9, outputs)
        kernel[f"{i}.weight"] = kernel[f"{i}.weight"].reshape(outputs, inputs, 3, 3)
        found |= kernel
    found |= linear(rng, "7", 128, 10)
    found["x"] = (rng.integers(0, 17, (CONNECTIONS, 1, 8, 8)) / 16).astype(np.float32)
    return found


def digits_network(nn: Any) -> Any:
    """The network for digits."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(128, 10),
    )


def digits_onnx(arrays: Arrays) -> bytes:
    """The same in ONNX."""
    n = onnx_models._Nodes(weights_of(arrays))
    x = "x"
    for i in (0, 3):
        x = n.add("Relu", n.add("Conv", x, f"{i}.weight", f"{i}.bias", pads=[1, 1, 1, 1]))
        x = n.add("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    n.add("Gemm", n.add("Flatten", x), "7.weight", "7.bias", transB=1, out="y")
    return n.model(("float", ["batch", 1, 8, 8]), ["batch", 10])


def cnn_arrays(rng: np.random.Generator) -> Arrays:
    """Weights of the network for images of 28 × 28, and an image for each connection."""
    found = {name: array for name, array in cnn.arrays(rng).items() if name != "y"}
    found["x"] = found["x"][:CONNECTIONS]
    return found


# The servers


def in_weft(arrays: Arrays, network: Any) -> Run:
    return start_weft(arrays, network)[0]


def start_weft(arrays: Arrays, network: Any) -> tuple[Run, subprocess.Popen[str]]:
    """A client of ``weft serve``, and the process of the server."""
    import weft
    from weft import nn

    folder = Path(tempfile.mkdtemp(prefix="bench-"))
    model = load_weft(network(nn), arrays).requires_grad_(False).eval()
    kind = weft.TensorType(("batch", *arrays["x"].shape[1:]), weft.float32)
    weft.compile(model).save(folder / "model.weft", kind)
    command = ["-m", "weft.cli", "serve", str(folder / "model.weft"), "--port", "0"]
    process = _started([sys.executable, *command])
    assert process.stdout is not None
    port = int(process.stdout.readline().split("127.0.0.1:")[1].split()[0])
    return Run(Client(port, "/v2/models/model/infer", arrays["x"]).step), process


HANDLER = """
import os
import numpy as np
import onnxruntime
from fastapi import FastAPI
from pydantic import BaseModel

options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 2
session = onnxruntime.InferenceSession(os.environ["MODEL"], options, ["CPUExecutionProvider"])
app = FastAPI()

class Tensor(BaseModel):
    name: str
    shape: list[int]
    datatype: str
    data: list[float]

class Request(BaseModel):
    inputs: list[Tensor]

def answer(request):
    tensor = request.inputs[0]
    x = np.array(tensor.data, np.float32).reshape(tensor.shape)
    y = session.run(None, {"x": x})[0]
    output = {"name": "y", "shape": y.shape, "datatype": "FP32", "data": y.reshape(-1).tolist()}
    return {"model_name": "model", "outputs": [output]}

@app.post("/threads")
def in_threads(request: Request):
    return answer(request)

@app.post("/loop")
async def in_loop(request: Request):
    return answer(request)
"""


def in_fastapi(arrays: Arrays, model: Any, path: str) -> Run:
    folder = Path(tempfile.mkdtemp(prefix="bench-"))
    (folder / "handler.py").write_text(HANDLER)
    (folder / "model.onnx").write_bytes(model(arrays))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    options = ["--port", str(port), "--log-level", "warning", "--no-access-log", "--timeout-keep-alive", "75"]
    command = [sys.executable, "-m", "uvicorn", "handler:app", "--app-dir", str(folder), *options]
    _started(command, MODEL=str(folder / "model.onnx"))
    return Run(Client(port, path, arrays["x"]).step)


def _started(command: list[str], **settings: str) -> subprocess.Popen[str]:
    """A server that ends with this process; its group is stopped with it."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **settings}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    atexit.register(process.kill)
    return process


# The client


class Client:
    """Connections that each ask again as soon as they have an answer."""

    def __init__(self, port: int, path: str, images: np.ndarray) -> None:
        self.port = port
        self.requests = [_request(path, image[None]) for image in images]
        self._connect()

    def _connect(self) -> None:
        self.sockets = [_connected(self.port) for _ in self.requests]
        self.selector = selectors.DefaultSelector()
        for number, sock in enumerate(self.sockets):
            self.selector.register(sock, selectors.EVENT_READ, number)

    def step(self) -> np.ndarray:
        """Ask ``REQUESTS`` times; the numbers of the last answer of each connection."""
        try:
            answers = self._ask()
        except ConnectionError:  # this process was held still so long that the server ended quiet connections
            self.close()
            self._connect()
            answers = self._ask()
        return np.stack([_numbers(answer) for answer in answers])

    def _ask(self) -> list[bytes]:
        begun = len(self.sockets)
        answers = [b""] * begun
        for sock, request in zip(self.sockets, self.requests, strict=True):
            sock.sendall(request)
        left = REQUESTS
        while left:
            for key, _ in self.selector.select():
                number = key.data
                received = self.sockets[number].recv(1 << 16)
                if not received:
                    raise ConnectionResetError("the server ended a connection")
                answers[number] += received
                if not _is_whole(answers[number]):
                    continue
                left -= 1
                if begun < REQUESTS:
                    begun += 1
                    answers[number] = b""
                    self.sockets[number].sendall(self.requests[number])
        return answers

    def close(self) -> None:
        """End the connections."""
        self.selector.close()
        for sock in self.sockets:
            sock.close()


def _request(path: str, image: np.ndarray) -> bytes:
    tensor = {"name": "x", "shape": image.shape, "datatype": "FP32", "data": image.reshape(-1).tolist()}
    body = json.dumps({"inputs": [tensor]}).encode()
    lines = [
        f"POST {path} HTTP/1.1",
        "host: a",
        "content-type: application/json",
        f"content-length: {len(body)}",
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body


def _connected(port: int) -> socket.socket:
    """A connection, as soon as there is one to be had."""
    for _ in range(600):
        try:
            sock = socket.create_connection(("127.0.0.1", port))
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return sock
        except ConnectionRefusedError:
            time.sleep(0.1)
    raise TimeoutError("the server does not listen")


def _is_whole(answer: bytes) -> bool:
    end = answer.find(b"\r\n\r\n")
    if end < 0:
        return False
    if not answer.startswith(b"HTTP/1.1 200"):
        raise ValueError(answer[:500].decode())
    begin = answer.index(b"content-length: ") + 16
    return len(answer) == end + 4 + int(answer[begin : answer.index(b"\r", begin)])


def _numbers(answer: bytes) -> np.ndarray:
    (output,) = json.loads(answer[answer.index(b"\r\n\r\n") :])["outputs"]
    return np.array(output["data"], np.float32)


CASES = [
    Case(
        f"serve {name}",
        arrays,
        {
            "weft": partial(in_weft, network=network),
            "fastapi": partial(in_fastapi, model=model, path="/threads"),
            "fastapi async": partial(in_fastapi, model=model, path="/loop"),
        },
        goal=2.0,
    )
    for name, arrays, network, model in (
        ("digits", digits_arrays, digits_network, digits_onnx),
        ("cnn", cnn_arrays, cnn.network, onnx_models.cnn_model),
    )
]
