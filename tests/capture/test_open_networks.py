"""Networks that go down to fewer pixels and up again, of open height and width: saved and trained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from weft import nn

rng = np.random.default_rng(6)


class Down(nn.Module):
    """A U-Net of two levels, whose way up is told how many pixels an odd size has left."""

    def __init__(self, stride: int) -> None:
        super().__init__()
        self.stride = stride
        self.first, self.second = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 6, 3, padding=1)
        self.up = nn.ConvTranspose2d(6, 4, stride, stride=stride)
        self.last = nn.Conv2d(8, 2, 1)

    def forward(self, x: Any) -> Any:
        wide = weft.relu(self.first(x))
        deep = weft.relu(self.second(weft.max_pool2d(wide, self.stride)))
        up = self.up(deep)
        below, right = (wide.shape[i] - up.shape[i] for i in (2, 3))
        return self.last(weft.concat([nn.functional.pad(up, (0, right, 0, below)), wide], axis=1))


@pytest.mark.parametrize("stride", [2, 3])
@pytest.mark.parametrize("transform", [False, True], ids=["values", "gradients"])
def test_unet_of_any_height_and_width_is_saved(stride: int, transform: bool, tmp_path: Path) -> None:
    model = Down(stride)
    run: Any = weft.grad(lambda x: (model(x) ** 2).sum()) if transform else model
    weft.compile(run).save(tmp_path / "m.weft", weft.TensorType(("b", 3, "h", "w"), weft.float32))
    loaded = weft.load_graph(tmp_path / "m.weft")
    for shape in ((2, 3, 9, 13), (1, 3, 4, 17), (1, 3, 16, 6), (1, 3, 3, 3)):
        x = weft.tensor(rng.normal(size=shape).astype(np.float32))
        found, wanted = loaded(x).detach().numpy(), run(x).detach().numpy()
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_unet_of_any_height_and_width_is_trained() -> None:
    models = [Down(2), Down(2)]
    models[1].load_state_dict(models[0].state_dict())
    optimizers = [weft.optim.SGD(model.parameters(), lr=0.05) for model in models]

    def step(model: Any, optimizer: Any, x: Any) -> Any:
        optimizer.zero_grad()
        loss = (model(x) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    compiled = weft.compile(lambda x: step(models[1], optimizers[1], x))
    for shape in ((2, 3, 9, 13), (1, 3, 4, 17), (3, 3, 16, 6), (2, 3, 7, 7)):
        x = weft.tensor(rng.normal(size=shape).astype(np.float32))
        wanted = step(models[0], optimizers[0], x)
        np.testing.assert_allclose(compiled(x).numpy(), wanted.numpy(), rtol=1e-4)
