"""From the start of a process to the first answer of a saved network, as a program of its own.

``python first_answer.py make LABEL ARRAYS MODEL`` writes the file of the convolutional network;
``python first_answer.py run LABEL MODEL X`` loads it, runs it once, and prints the answer. There nothing is
imported that a user's program would not import.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

THREADS = 2


def run_weft(model: str, x: Any) -> Any:
    import weft

    return weft.load_graph(model)(x).numpy()


def run_onnxruntime(model: str, x: Any) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = THREADS
    session = onnxruntime.InferenceSession(model, options, ["CPUExecutionProvider"])
    return session.run(None, {"x": x})[0]


def run_torch(model: str, x: Any) -> Any:
    import torch

    torch.set_num_threads(THREADS)
    with torch.inference_mode():
        return torch.jit.load(model)(torch.from_numpy(x)).numpy()


def make_weft(arrays: dict[str, Any], path: str) -> None:
    import weft
    from bench.workloads.deployed import CNN

    weft.jit.trace(CNN.weft(arrays), weft.tensor(arrays["x"][:1])).save(path)


def make_onnxruntime(arrays: dict[str, Any], path: str) -> None:
    from bench.workloads.onnx_models import cnn_model

    with open(path, "wb") as file:
        file.write(cnn_model(arrays))


def make_torch(arrays: dict[str, Any], path: str) -> None:
    import torch

    from bench.workloads.deployed import CNN

    with torch.inference_mode():
        traced = torch.jit.trace(CNN.torch(arrays), torch.from_numpy(arrays["x"][:1]))
    torch.jit.freeze(traced).save(path)


def main(mode: str, label: str, *paths: str) -> None:
    """Make a file, or answer."""
    if mode == "make":
        with np.load(paths[0]) as stored:
            globals()[f"make_{label}"](dict(stored), paths[1])
    else:
        answer = globals()[f"run_{label}"](paths[0], np.load(paths[1]))
        print(" ".join(map(str, answer.reshape(-1).tolist())), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
