"""Make ``network.npz``: what PyTorch gives on the cases of ``network_cases``, in float64.

Run by hand, from the root of the repository, in an environment with torch 2.13:
``PYTHONPATH=. python tests/data/make_network.py``. The tests read the file only.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tests.data.network_cases import CASES, Case

_RENAMED = {"axis": "dim"}


def draw(rng: Any, kind: str, shape: tuple[int, ...]) -> Any:
    if kind == "n":
        return rng.normal(size=shape)
    if kind == "p":
        return rng.uniform(0.05, 0.95, size=shape)
    if kind == "s":
        return np.sign(rng.normal(size=shape))
    if kind == "b":
        return rng.random(size=shape) < 0.6
    return rng.integers(0, int(kind[1:]), size=shape)


def run(index: int, case: Case) -> dict[str, Any]:
    import torch  # not there when the tests collect this file

    rng = np.random.default_rng(index)
    inputs = [draw(rng, kind, shape) for kind, shape in case.shapes]
    tensors = [torch.tensor(a) for a in inputs]
    for i, (kind, _) in enumerate(case.shapes):
        tensors[i].requires_grad_(i == 0 or kind == "n")
    settings = {_RENAMED.get(k, k): v for k, v in case.settings.items()}
    out = getattr(torch.nn.functional, case.name)(*tensors, **settings)
    seed = rng.normal(size=out.shape)
    out.backward(torch.tensor(seed))
    found = {f"{index}.in{i}": a for i, a in enumerate(inputs)}
    found |= {f"{index}.out": out.detach().numpy(), f"{index}.seed": seed}
    return found | {f"{index}.grad{i}": t.grad.numpy() for i, t in enumerate(tensors) if t.grad is not None}


def main() -> None:
    arrays: dict[str, Any] = {}
    for index, case in enumerate(CASES):
        arrays |= run(index, case)
    np.savez_compressed(Path(__file__).with_name("network.npz"), **arrays)


if __name__ == "__main__":
    main()
