"""Make ``nn.npz``: what PyTorch gives for layers, optimizers and schedules on fixed inputs, in float64.

Run by hand in an environment with torch 2.13: ``python tests/data/make_nn.py``. The tests read the file only.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

torch: Any = None  # imported when this is run
nn: Any = None

LAYERS: dict[str, Any] = {
    "linear": lambda: (nn.Linear(4, 3), [(2, 4)]),
    "embedding": lambda: (nn.Embedding(7, 3, padding_idx=2), ["indices"]),
    "layer_norm": lambda: (nn.LayerNorm(4), [(2, 3, 4)]),
    "rms_norm": lambda: (nn.RMSNorm(4, eps=1e-5), [(2, 3, 4)]),
    "batch_norm1d": lambda: (nn.BatchNorm1d(3), [(5, 3)]),
    "batch_norm2d": lambda: (nn.BatchNorm2d(3), [(2, 3, 4, 4)]),
    "conv2d": lambda: (nn.Conv2d(4, 6, 3, stride=2, padding=1, groups=2), [(2, 4, 7, 7)]),
    "attention": lambda: (nn.MultiheadAttention(8, 2), [(5, 3, 8)] * 3),
    "attention_first": lambda: (
        nn.MultiheadAttention(8, 4, batch_first=True),
        [(2, 5, 8), (2, 6, 8), (2, 6, 8)],
    ),
    "encoder_layer": lambda: (
        nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True),
        [(2, 5, 8)],
    ),
    "encoder_norm_first": lambda: (
        nn.TransformerEncoderLayer(8, 2, 16, 0.0, "gelu", batch_first=True, norm_first=True),
        [(2, 5, 8)],
    ),
    "rnn_cell": lambda: (nn.RNNCell(3, 4), [(2, 3), (2, 4)]),
    "gru_cell": lambda: (nn.GRUCell(3, 4), [(2, 3), (2, 4)]),
    "lstm_cell": lambda: (nn.LSTMCell(3, 4), [(2, 3)]),
    "rnn": lambda: (nn.RNN(3, 4, num_layers=2, nonlinearity="relu"), [(5, 2, 3)]),
    "gru": lambda: (nn.GRU(3, 4, num_layers=2, bidirectional=True, batch_first=True), [(2, 5, 3)]),
    "lstm": lambda: (nn.LSTM(3, 4, num_layers=2, bidirectional=True), [(5, 2, 3)]),
}

OPTIMIZERS: dict[str, Any] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01),
    "dampened": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.5),
    "nesterov": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "adam": lambda p: torch.optim.Adam(p, lr=0.05, weight_decay=0.1),
    "amsgrad": lambda p: torch.optim.Adam(p, lr=0.05, amsgrad=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.05, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.2),
}

SCHEDULES: dict[str, Any] = {
    "lambda": lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda i: 1 / (1 + i)),
    "step": lambda o: torch.optim.lr_scheduler.StepLR(o, 3, gamma=0.5),
    "cosine": lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 5, eta_min=0.01),
    "linear": lambda o: torch.optim.lr_scheduler.LinearLR(o, 0.25, total_iters=4),
    "sequential": lambda o: torch.optim.lr_scheduler.SequentialLR(
        o,
        [
            torch.optim.lr_scheduler.LinearLR(o, 0.25, total_iters=4),
            torch.optim.lr_scheduler.CosineAnnealingLR(o, 5),
        ],
        [4],
    ),
}


def tensors(out: Any) -> list[Any]:
    return [t for o in out for t in tensors(o)] if isinstance(out, tuple) else [out]


def layers() -> dict[str, np.ndarray]:
    found = {}  # type: ignore[var-annotated]
    for name, make in LAYERS.items():
        torch.manual_seed(0)
        layer, shapes = make()
        layer = layer.double()
        for p in layer.parameters():
            p.data = torch.randn(p.shape, dtype=torch.float64) * 0.5
        start = {k: v.numpy().copy() for k, v in layer.state_dict().items()}
        inputs = [
            torch.tensor([[0, 2], [6, 2]]) if s == "indices" else torch.randn(s, dtype=torch.float64)
            for s in shapes
        ]
        for x in inputs:
            if x.is_floating_point():
                x.requires_grad_()
        outs = tensors(layer(*inputs))
        loss = sum((o * torch.arange(o.numel(), dtype=o.dtype).cos().reshape(o.shape)).sum() for o in outs)
        loss.backward()
        found |= {f"{name}/state/{k}": v for k, v in start.items()}
        found |= {f"{name}/after/{k}": v.numpy() for k, v in layer.state_dict().items()}
        found |= {f"{name}/in/{i}": x.detach().numpy() for i, x in enumerate(inputs)}
        found |= {f"{name}/out/{i}": o.detach().numpy() for i, o in enumerate(outs)}
        found |= {f"{name}/in_grad/{i}": x.grad.numpy() for i, x in enumerate(inputs) if x.grad is not None}
        found |= {f"{name}/grad/{k}": p.grad.numpy() for k, p in layer.named_parameters()}
    return found


def trajectories() -> dict[str, np.ndarray]:
    found = {}
    for name, make in OPTIMIZERS.items():
        w = torch.tensor([[1.0, -2.0], [0.5, 3.0]], dtype=torch.float64, requires_grad=True)
        b = torch.tensor([0.1, -0.2], dtype=torch.float64, requires_grad=True)
        optimizer = make([w, b])
        path = []
        for i in range(8):
            optimizer.zero_grad()
            loss = ((w * w).sum() * 0.5 + (w.sum(0) * b).sin().sum()) if i != 3 else (w**4).sum() * 0.1
            loss.backward()
            optimizer.step()
            path.append(torch.cat([w.detach().flatten(), b.detach()]).numpy())
        found[f"optimizer/{name}"] = np.stack(path)
    return found


def schedules() -> dict[str, np.ndarray]:
    found = {}
    for name, make in SCHEDULES.items():
        optimizer = torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=0.4)
        schedule = make(optimizer)
        rates = []
        for _ in range(10):
            rates.append(schedule.get_last_lr()[0])
            optimizer.step()
            schedule.step()
        found[f"schedule/{name}"] = np.array(rates)
    return found


if __name__ == "__main__":
    import torch  # type: ignore[no-redef]
    from torch import nn  # type: ignore[no-redef]

    everything = {**layers(), **trajectories(), **schedules()}
    index = {name: (list(array.shape), array.dtype.name) for name, array in everything.items()}
    values = np.concatenate([array.astype(np.float64).ravel() for array in everything.values()])
    np.savez_compressed(Path(__file__).parent / "nn.npz", index=json.dumps(index), values=values)
