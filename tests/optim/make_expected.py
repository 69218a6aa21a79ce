"""Follow the ways of ``problem`` with PyTorch, and store where they lead.

Run by ``python -m tests.optim.make_expected``.

It ran once, with PyTorch 2.13; weft's tests read ``expected.npz`` and need no PyTorch.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np

from tests.optim import problem


def parameters(shift: float = 0.0) -> list[Any]:
    return [torch.tensor(p * (1 + shift), requires_grad=True) for p in problem.START]


def steady(way: problem.Way) -> np.ndarray:
    """Where a way leads; it must be one on which the last digits of the start do not matter."""
    found = follow(way)
    assert np.abs(found - follow(way, 1e-15)).max() < 1e-7, way
    return found


def follow(way: problem.Way, shift: float = 0.0) -> np.ndarray:
    params = parameters(shift)
    x, y = torch.tensor(problem.X), torch.tensor(problem.Y)
    optimizer = problem.make_optimizer(torch.optim, way, params)
    schedule = way.schedule(lr_scheduler, optimizer) if way.schedule else None

    def closure() -> Any:
        optimizer.zero_grad()
        loss = problem.loss_of(params, x, y)
        loss.backward()
        return loss

    rows = []
    for i in range(1, way.steps + 1):
        if way.kind == "LBFGS":
            optimizer.step(closure)
        else:
            closure()
            if way.clip:
                getattr(torch.nn.utils, f"clip_grad_{way.clip[0]}_")(params, way.clip[1])
            optimizer.step()
        if schedule is not None:
            schedule.step()
        if i in problem.KEPT:
            rows.append(torch.cat([p.detach().ravel() for p in params]).numpy().copy())
    return np.stack(rows)


def rates(name: str) -> np.ndarray:
    groups = [{"params": [torch.ones(1, requires_grad=True)], "lr": lr} for lr in (0.4, 0.1)]
    optimizer = torch.optim.SGD(groups, momentum=0.9)
    schedule = problem.SCHEDULES[name](lr_scheduler, optimizer)
    found = []
    for i in range(problem.SCHEDULE_STEPS):
        found.append([g[k] for g in optimizer.param_groups for k in ("lr", "momentum")])
        optimizer.step()
        schedule.step(*([problem.METRICS[i]] if name.startswith("plateau") else []))
    return np.array(found)


def average(decay: float) -> np.ndarray:
    """The moving average of weights over 20 steps of gradient descent."""
    model = torch.nn.ParameterList(parameters())
    averaged = torch.optim.swa_utils.AveragedModel(
        model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(decay)
    )
    averaged.update_parameters(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = torch.tensor(problem.X), torch.tensor(problem.Y)
    for _ in range(20):
        optimizer.zero_grad()
        problem.loss_of(list(model), x, y).backward()
        optimizer.step()
        averaged.update_parameters(model)
    return torch.cat([p.detach().ravel() for p in averaged.module.parameters()]).numpy()


def scales() -> tuple[np.ndarray, np.ndarray]:
    """The scale after each step, where some steps have infinite gradients, and the parameter."""
    w = torch.ones(2, requires_grad=True)
    optimizer = torch.optim.Adam([w], lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=3)
    found, path = [], []
    for factor in problem.FACTORS:
        optimizer.zero_grad()
        scaler.scale((w * w * factor).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        found.append(scaler.get_scale())
        path.append(w.detach().numpy().copy())
    return np.array(found), np.stack(path)


def main() -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    stored = {f"way/{name}": steady(way) for name, way in problem.WAYS.items()}
    stored |= {f"schedule/{name}": rates(name) for name in problem.SCHEDULES}
    stored["average"] = average(0.9)
    stored["scales"], stored["scaled"] = scales()
    np.savez_compressed(Path(__file__).with_name("expected.npz"), **stored)


if __name__ == "__main__":
    import torch  # not there when the tests collect this file
    from torch.optim import lr_scheduler

    main()
