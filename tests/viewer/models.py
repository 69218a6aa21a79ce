"""Three models to look at, in weft's page and elsewhere: a training step, residual blocks, a transformer."""

from __future__ import annotations

from typing import Any

import weft
from weft import nn, optim


def mlp_step() -> tuple[Any, tuple[Any, ...]]:
    """The training step of a network of three layers with Adam, and its arguments."""
    weft.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 4))
    optimizer = optim.Adam(model.parameters(), lr=0.01)

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step, (weft.randn(8, 16), weft.tensor([0, 1, 2, 3, 0, 1, 2, 3]))


class Residual(nn.Module):
    """Two convolutions, and a way around them."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels)

    def forward(self, x: Any) -> Any:
        y = nn.functional.relu(self.norm1(self.conv1(x)))
        return nn.functional.relu(x + self.norm2(self.conv2(y)))


class ResNet(nn.Module):
    """Three stages of residual blocks, each with twice the channels of the one before."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.stages = nn.ModuleList(
            [nn.Sequential(*[Residual(8 * 2**stage) for _ in range(4)]) for stage in range(3)]
        )
        self.wider = nn.ModuleList([nn.Conv2d(8, 16, 1, stride=2), nn.Conv2d(16, 32, 1, stride=2)])
        self.head = nn.Linear(32, 10)

    def forward(self, x: Any) -> Any:
        x = self.stem(x)
        for i, stage in enumerate(self.stages):
            x = stage(x)
            if i < len(self.wider):
                x = self.wider[i](x)
        return self.head(x.mean(axis=(2, 3)))


class Block(nn.Module):
    """Attention and a network, each behind a norm and with a way around it."""

    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(size), nn.LayerNorm(size)
        self.qkv, self.out = nn.Linear(size, 3 * size), nn.Linear(size, size)
        self.up, self.down = nn.Linear(size, 4 * size), nn.Linear(4 * size, size)

    def forward(self, x: Any) -> Any:
        batch, length, size = x.shape
        parts = self.qkv(self.norm1(x)).chunk(3, -1)
        q, k, v = [a.reshape(batch, length, self.heads, -1).transpose(1, 2) for a in parts]
        weights = weft.softmax(q @ k.mT / (size // self.heads) ** 0.5, axis=-1)
        x = x + self.out((weights @ v).transpose(1, 2).reshape(batch, length, size))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


class Transformer(nn.Module):
    """Twelve blocks between an embedding and a head."""

    def __init__(self, size: int = 32, layers: int = 12) -> None:
        super().__init__()
        self.tokens = nn.Embedding(64, size)
        self.blocks = nn.ModuleList([Block(size, 4) for _ in range(layers)])
        self.norm = nn.LayerNorm(size)
        self.head = nn.Linear(size, 64)

    def forward(self, tokens: Any) -> Any:
        x = self.tokens(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def models() -> dict[str, tuple[Any, tuple[Any, ...]]]:
    """The three, each with the arguments of a call."""
    return {
        "mlp": mlp_step(),
        "resnet": (ResNet().eval(), (weft.randn(1, 3, 16, 16),)),
        "transformer": (Transformer().eval(), (weft.zeros((1, 16), dtype=weft.int64),)),
    }
