"""Make ``expected/*.safetensors``: what PyTorch gives for every case of ``cases.py``.

Run by hand in an environment with torch 2.13 and safetensors: ``python -m tests.nn.make_expected``. States
and inputs are float32; results are computed in float64 from these, so that they are right in all digits kept.
The tests read the files only.
"""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import numpy as np

from tests.nn.case import Case, differentiable, inputs_of
from tests.nn.cases import GROUPS

torch: Any = None  # imported when this is run
FOLDER = Path(__file__).parent / "expected"


def leaves(out: Any) -> list[Any]:
    """The tensors of a result, in order."""
    return [t for o in out for t in leaves(o)] if isinstance(out, tuple) else [out]


def weighted_sum(outs: list[Any]) -> Any:
    """A loss that tells all elements of all outputs apart."""
    return sum((o * torch.cos(torch.arange(o.numel(), dtype=o.dtype)).reshape(o.shape)).sum() for o in outs)


def randomize(module: Any) -> None:
    """Other values than those a module starts with: none is 0 or 1, and no two are equal."""
    for name, value in module.state_dict().items():
        if value.dtype == torch.float64:
            random = (
                torch.rand(value.shape, dtype=value.dtype)
                if "var" in name
                else torch.randn(value.shape) * 0.5
            )
            value.copy_((random + (0.5 if "var" in name else 0.0)).float().double())


def run(name: str, case: Case) -> dict[str, np.ndarray[Any, Any]]:
    """State, inputs, outputs, gradients, and state afterwards."""
    torch.manual_seed(zlib.crc32(name.encode()))
    torch.set_default_dtype(torch.float64)
    module = case.make(torch.nn, torch.tensor)
    if not name.startswith(("embedding_max_norm",)):
        randomize(module)
    module.train(case.training)
    state = {k: v.clone() for k, v in module.state_dict().items()}
    arrays = inputs_of(name, case)
    inputs = [torch.tensor(x) for x in arrays]
    inputs = [x.double() if x.dtype == torch.float32 else x for x in inputs]
    for i in differentiable(case):
        inputs[i].requires_grad_()
    outs = leaves((case.call or (lambda nn, m, *x: m(*x)))(torch.nn, module, *inputs))
    floating = [o for o in outs if o.is_floating_point()]
    weighted_sum(floating).backward()
    found: dict[str, Any] = {f"in/{i}": x for i, x in enumerate(arrays)}
    found |= {f"state/{k}": v for k, v in state.items()}
    found |= {f"out/{i}": o for i, o in enumerate(outs)}
    if case.exact:
        found |= {f"in_grad/{i}": x.grad for i, x in enumerate(inputs) if x.grad is not None}
        found |= {f"grad/{k}": p.grad for k, p in module.named_parameters() if p.grad is not None}
    after = module.state_dict()
    found |= {f"after/{k}": v for k, v in after.items() if not torch.equal(v, state[k])}
    return {f"{name}/{k}": stored(v) for k, v in found.items()}


def stored(value: Any) -> np.ndarray[Any, Any]:
    """As it goes into a file: float32 rather than float64."""
    array = value.detach().numpy() if isinstance(value, torch.Tensor) else value
    array = array.astype(np.float32) if array.dtype == np.float64 else array
    return np.ascontiguousarray(array).reshape(array.shape)


def main() -> None:
    """Write all files."""
    global torch
    import torch
    from safetensors.numpy import save_file

    FOLDER.mkdir(exist_ok=True)
    for group, cases in GROUPS.items():
        found: dict[str, Any] = {}
        for name, case in cases.items():
            found |= run(name, case)
        save_file(found, FOLDER / f"{group}.safetensors")


if __name__ == "__main__":
    main()
