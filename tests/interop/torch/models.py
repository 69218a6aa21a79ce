"""Models as people write them in PyTorch, small, each with examples and which sizes stay open."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

BATCH = torch.export.Dim("batch")


class Case(NamedTuple):
    """A model, inputs for two batch sizes, and its dynamic shapes."""

    model: nn.Module
    inputs: tuple[torch.Tensor, ...]
    others: tuple[torch.Tensor, ...] | None
    dynamic: Any


CASES: dict[str, Callable[[], Case]] = {}


def case(*shapes: tuple[int, ...], open_batch: bool = True) -> Any:
    """Enter a model: its inputs are float tensors of these shapes, after the size of the batch."""

    def enter(make: Callable[[], nn.Module]) -> Any:
        def build() -> Case:
            torch.manual_seed(0)
            model = make().eval()
            inputs, others = ([torch.randn(n, *shape) for shape in shapes] for n in (2, 5))
            dynamic = tuple({0: BATCH} for _ in shapes) if open_batch else None
            return Case(model, tuple(inputs), tuple(others) if open_batch else None, dynamic)

        CASES[make.__name__] = build
        return make

    return enter


class Of(nn.Module):
    """A module of a function."""

    def __init__(self, function: Callable[..., Any], **parts: Any) -> None:
        super().__init__()
        self.function = function
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x: torch.Tensor, y: torch.Tensor | None = None) -> Any:
        return self.function(self, x) if y is None else self.function(self, x, y)


@case((6,))
def mlp() -> nn.Module:
    return nn.Sequential(
        nn.Linear(6, 16),
        nn.ReLU(),
        nn.Dropout(),
        nn.Linear(16, 8),
        nn.GELU(),
        nn.Linear(8, 3),
        nn.LogSoftmax(-1),
    )


@case((3, 16, 16))
def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 6, 3, stride=2, groups=2),
        nn.LeakyReLU(0.1),
        nn.AvgPool2d(2, ceil_mode=True),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(24, 5),
    )


class ResidualBlock(nn.Module):
    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(after)
        self.conv2 = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(after)
        self.down = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(out + self.down(x))


@case((3, 16, 16))
def resnet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 7, 2, 3),
        nn.MaxPool2d(3, 2, 1),
        ResidualBlock(8, 8, 1),
        ResidualBlock(8, 16, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 4),
    )


@case((7, 8))
def transformer_encoder() -> nn.Module:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, activation="gelu")
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


@case((7, 8), (5, 8))
def transformer_decoder() -> nn.Module:
    return nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 16, batch_first=True, norm_first=True), 1)


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, c = x.shape
        q, k, v = (
            s.view(b, t, self.heads, c // self.heads).transpose(1, 2)
            for s in self.qkv(self.ln1(x)).split(c, dim=2)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, c))
        return x + self.mlp(self.ln2(x))


class GPT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.token, self.place = nn.Embedding(20, 16), nn.Embedding(12, 16)
        self.blocks = nn.ModuleList([Block(16, 2) for _ in range(2)])
        self.norm = nn.LayerNorm(16)
        self.head = nn.Linear(16, 20, bias=False)
        self.head.weight = self.token.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.token(ids) + self.place(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def _gpt() -> Case:
    torch.manual_seed(0)
    time = torch.export.Dim("time", max=12)
    ids, others = torch.randint(20, (2, 9)), torch.randint(20, (3, 4))
    return Case(GPT().eval(), (ids,), (others,), ({0: BATCH, 1: time},))


CASES["gpt"] = _gpt


@case((9, 6))
def lstm() -> nn.Module:
    return Of(lambda m, x: m.rnn(x), rnn=nn.LSTM(6, 5, 2, batch_first=True, bidirectional=True))


@case((9, 6))
def gru() -> nn.Module:
    return Of(
        lambda m, x: m.head(m.rnn(x)[0][:, -1]), rnn=nn.GRU(6, 5, batch_first=True), head=nn.Linear(5, 2)
    )


def _embedding_bag() -> Case:
    torch.manual_seed(0)
    given = [
        (torch.randint(10, (7,)), torch.tensor([0, 3, 3])),
        (torch.randint(10, (7,)), torch.tensor([0, 1, 6])),
    ]
    return Case(nn.EmbeddingBag(10, 4, mode="mean"), given[0], given[1], None)


CASES["embedding_bag"] = _embedding_bag


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down1, self.down2 = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 8, 3, padding=1)
        self.up = nn.ConvTranspose2d(8, 4, 2, stride=2)
        self.merge, self.last = nn.Conv2d(8, 4, 3, padding=1), nn.Conv2d(4, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = F.relu(self.down1(x))
        b = F.relu(self.down2(F.max_pool2d(a, 2)))
        c = F.relu(self.merge(torch.cat([self.up(b), a], dim=1)))
        smooth = F.interpolate(b, scale_factor=2, mode="bilinear", align_corners=False)
        near = F.interpolate(c, size=(12, 12), mode="nearest")
        return self.last(c) + smooth.mean(1, keepdim=True), near


@case((1, 8, 8))
def unet() -> nn.Module:
    return UNet()


class ViT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 8, 4, 4)
        self.token = nn.Parameter(torch.randn(1, 1, 8))
        self.places = nn.Parameter(torch.randn(1, 17, 8))
        self.block = Block(8, 2)
        self.head = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], dim=1) + self.places
        return self.head(self.block(x)[:, 0])


@case((3, 16, 16))
def vit() -> nn.Module:
    return ViT()


@case((6, 8))
def norms() -> nn.Module:
    def run(m: Any, x: torch.Tensor) -> Any:
        image = x.view(-1, 6, 2, 4)
        return (
            m.group(image),
            m.instance(image),
            m.rms(x),
            F.normalize(x, dim=-1),
            F.local_response_norm(image, 3),
        )

    return Of(run, group=nn.GroupNorm(3, 6), instance=nn.InstanceNorm2d(6, affine=True), rms=nn.RMSNorm(8))


@case((4, 5), (5, 3))
def einsum() -> nn.Module:
    return Of(
        lambda m, x, y: (
            torch.einsum("bij,bjk->bik", x, y),
            torch.einsum("bij,bij->b", x, x),
            torch.einsum("bij->bji", x),
        )
    )


@case((5, 4))
def index_ops() -> nn.Module:
    def run(m: Any, x: torch.Tensor) -> Any:
        order = torch.tensor([3, 0, 2])
        values, places = x.topk(2, dim=1)
        filled = x.masked_fill(x > 0.5, -1.0)
        gathered = torch.gather(x, 2, x.argsort(dim=2))
        return (
            x[:, order],
            x[:, 1:4:2],
            values,
            places,
            filled,
            gathered,
            x.flip(1).roll(1, 2),
            torch.where(x > 0, x, x.exp()),
            x.cumsum(1),
        )

    return Of(run)


@case((5, 4))
def scatter() -> nn.Module:
    def run(m: Any, x: torch.Tensor) -> Any:
        places = (x > 0).long() * 2
        base = torch.zeros_like(x)
        put = base.clone()
        put[:, 1] = x[:, 0]
        put[:, :, 2:] += 1.0
        return (
            base.scatter(2, places, x.abs().cumsum(2)[:, :, :1].expand_as(x)),
            base.scatter_add(2, places, x),
            base.scatter_reduce(2, places, x, "amax", include_self=False),
            put,
        )

    return Of(run)


@case((8,))
def activations() -> nn.Module:
    parts = [
        nn.SiLU(),
        nn.Mish(),
        nn.Softplus(),
        nn.Hardswish(),
        nn.Hardsigmoid(),
        nn.ELU(),
        nn.SELU(),
        nn.PReLU(),
        nn.Softsign(),
        nn.Tanhshrink(),
        nn.LogSigmoid(),
        nn.ReLU6(),
        nn.CELU(),
        nn.Hardshrink(),
        nn.Softshrink(),
        nn.GLU(),
    ]
    return Of(lambda m, x: [part(x) for part in m.parts], parts=nn.ModuleList(parts))


@case((6, 5))
def losses() -> nn.Module:
    def run(m: Any, x: torch.Tensor) -> Any:
        target = x.argmax(2)
        flat = x.reshape(-1, 5)
        return (
            F.cross_entropy(flat, target.reshape(-1)),
            F.mse_loss(x, x.tanh()),
            F.smooth_l1_loss(x, x * 2),
            F.huber_loss(x, x * 3),
            F.binary_cross_entropy_with_logits(x, (x > 0).float()),
            F.kl_div(F.log_softmax(x, -1), F.softmax(x * 2, -1), reduction="batchmean"),
            F.nll_loss(F.log_softmax(flat, -1), target.reshape(-1)),
            F.cosine_similarity(x[:, 0], x[:, 1]),
        )

    return Of(run)


@case((3, 8))
def statistics() -> nn.Module:
    return Of(
        lambda m, x: (
            x.std(2),
            x.var(),
            x.mean(1),
            x.norm(dim=2),
            x.logsumexp(2),
            x.prod(2),
            x.median(dim=2),
            x.amax(1),
            (x > 0).any(),
            x.argmin(2),
            torch.cdist(x, x),
            x.softmax(1),
        )
    )


@case((2, 8))
def fourier() -> nn.Module:
    return Of(lambda m, x: torch.fft.irfft(torch.fft.rfft(x) * 2, n=8))


@case((2, 4, 6))
def pixel_and_pad() -> nn.Module:
    return Of(
        lambda m, x: (
            F.pad(x, (1, 2, 1, 1), mode="reflect"),
            F.pad(x, (1, 1, 2, 0), value=3.0),
            F.pad(x, (1, 1, 1, 1), mode="replicate"),
            F.pixel_shuffle(torch.cat([x, x], 1).view(-1, 4, 4, 6), 2),
            x.unfold(2, 3, 2),
        )
    )
