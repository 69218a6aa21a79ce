"""Writes tests/onnx/files: models as a widely used exporter writes them, with inputs and outputs.

Run by hand, where torch, onnx and onnxscript are installed: ``python tests/onnx/make_files.py``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from torch import nn
from torch.nn import functional as F

FILES = Path(__file__).parent / "files"


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(16, 48)

    def forward(self, x: Any) -> Any:
        batch, time, width = x.shape
        parts = [p.view(batch, time, 4, 4).transpose(1, 2) for p in self.project(x).split(16, dim=2)]
        out = F.scaled_dot_product_attention(*parts, is_causal=True)
        return out.transpose(1, 2).contiguous().view(batch, time, width)


class Pictures(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layers = [nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)]
        self.layers = nn.Sequential(*layers, nn.Conv2d(8, 8, 3, 2, 1), nn.SiLU(), nn.AdaptiveAvgPool2d(1))
        self.head = nn.Linear(8, 10)

    def forward(self, x: Any) -> Any:
        return torch.log_softmax(self.head(torch.flatten(self.layers(x), 1)), -1)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(6, 5, 2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(10, 4)

    def forward(self, x: Any) -> Any:
        y, (h, _) = self.lstm(x)
        return self.head(y[:, -1]), h


class Resizing(nn.Module):
    def forward(self, x: Any) -> Any:
        larger = F.pad(F.interpolate(x, scale_factor=2, mode="bilinear"), (1, 2, 0, 1))
        return larger[:, :, 1:-1, ::2], F.interpolate(x, size=(7, 9), mode="nearest")


class Indexing(nn.Module):
    def forward(self, x: Any, i: Any) -> Any:
        picked = torch.gather(x, 1, i.unsqueeze(1).expand(-1, 2))
        sums = torch.where(x > 0, x, torch.zeros_like(x)).cumsum(1)
        values, places = torch.topk(x, 3, dim=1)
        return x[i], picked, sums, values, places, torch.einsum("bi,bj->bij", x, x).mean((1, 2))


def export(name: str, model: nn.Module, args: tuple[Any, ...], axes: dict[int, str], newer: bool) -> None:
    """Write a model by the newer or the older exporter, and what it computes."""
    path = FILES / f"{name}_{'graph' if newer else 'trace'}.onnx"
    names = [f"x{i}" for i in range(len(args))]
    if newer:
        open_sizes = {axis: torch.export.Dim(size) for axis, size in axes.items()}
        shapes = (open_sizes,) if axes else None
        torch.onnx.export(
            model, args, path, dynamo=True, input_names=names, dynamic_shapes=shapes, external_data=False
        )
    else:
        torch.onnx.export(
            model, args, path, dynamo=False, input_names=names, dynamic_axes={"x0": axes}, opset_version=17
        )
    onnx.save(without_notes(onnx.load(path)), path)
    outputs = model(*args)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    arrays = {n: a.numpy() for n, a in zip(names, args, strict=True)}
    np.savez(path.with_suffix(".npz"), **arrays, **{f"y{i}": y.detach() for i, y in enumerate(outputs)})


def without_notes(model: onnx.ModelProto) -> onnx.ModelProto:
    """A model without what is for people alone, such as folders of the machine that made it."""
    graph = model.graph
    for item in (graph, *graph.node, *graph.input, *graph.output, *graph.initializer):
        item.doc_string = ""
        del item.metadata_props[:]
    del graph.value_info[:], model.metadata_props[:]
    return model


def main() -> None:
    torch.manual_seed(0)
    FILES.mkdir(exist_ok=True)
    for newer in (False, True):
        export("attention", Attention(), (torch.randn(2, 5, 16),), {0: "batch", 1: "time"}, newer)
        export("pictures", Pictures().eval(), (torch.randn(2, 3, 12, 12),), {0: "batch"}, newer)
        export("recurrent", Recurrent(), (torch.randn(2, 5, 6),), {0: "batch"}, newer)
        export("resizing", Resizing(), (torch.randn(1, 2, 5, 6),), {0: "batch"}, newer)
        export("indexing", Indexing(), (torch.randn(4, 5), torch.tensor([0, 2, 1, 3])), {}, newer)


if __name__ == "__main__":
    main()
