"""Training runs of large transformers that were published: sizes, meshes, and the measured throughput.

Where a publication does not say how large microbatches were, or how many stages a rank had, they are None,
and the planner takes what is best. No figure here is a guess; what is not published is not in the table.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from weft.parallel.planner.clusters import find_cluster
from weft.parallel.planner.plan import Plan
from weft.parallel.planner.predict import predict
from weft.parallel.planner.search import estimate
from weft.parallel.planner.setup import Setup
from weft.parallel.planner.transformer import Transformer


class Run(NamedTuple):
    """A run.

    Attributes:
        name: of the model.
        source: where it was published.
        model, cluster: what was trained where.
        setup: how.
        micro, chunks: as published, or None.
        seconds: of a step, as published or from the published rate; the other is 0.
        rate: TFLOP/s a device, as published.
        again: whether the published rate counts what was computed again.
    """

    name: str
    source: str
    model: Transformer
    cluster: str
    setup: Setup
    micro: int | None
    chunks: int | None
    seconds: float = 0.0
    rate: float = 0.0
    again: bool = False

    @property
    def measured(self) -> float:
        """Seconds of a step."""
        if self.seconds:
            return self.seconds
        return self._counted() / (self.rate * 1e12 * self.setup.ranks)

    def _counted(self) -> float:
        """The operations that the publication counts."""
        m, flops = self.model, self.model.flops(self.setup.batch)
        if not self.again:
            return flops
        tokens = self.setup.batch * m.context
        return flops + tokens * m.layers * (2 * m.layer_weights + 4 * m.context * m.width)

    def plan(self) -> Plan:
        """The best plan, of those that the publication leaves open."""
        cluster = find_cluster(self.cluster)
        rated = [(estimate(self.model, s, cluster), s) for s in self._setups()]
        fitting = [row for row in rated if row[0].memory <= cluster.device.memory] or rated
        _, setup = min(fitting, key=lambda row: row[0].seconds)
        return predict(self.model, setup, cluster, self.name, whole=False)

    def _setups(self) -> list[Setup]:
        s = self.setup
        found = []
        share = s.batch // s.data
        for micro in [self.micro] if self.micro else [n for n in (1, 2, 4, 8) if share % n == 0]:
            for chunks in [self.chunks] if self.chunks else self._chunks(share // micro):
                name = "interleaved" if chunks > 1 else "1f1b"
                found.append(s._replace(micro=micro, chunks=chunks, schedule=name))
        return found

    def _chunks(self, microbatches: int) -> list[int]:
        each, pipe = self.model.layers // self.setup.pipe, self.setup.pipe
        if pipe == 1 or microbatches % pipe:
            return [1]
        return [n for n in (1, 2, 3, 4, 5) if each % n == 0]


# Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM", SC21
# (arXiv 2104.04473), table 1: A100 80 GB of Selene, f16, blocks computed again, whose operations its formula
# counts.
_SC21 = "Narayanan et al., SC21, table 1"


def _sc21(
    name: str, heads: int, width: int, layers: int, model: int, pipe: int, ranks: int, batch: int, rate: float
) -> Run:
    setup = Setup(
        batch,
        ranks // (model * pipe),
        model,
        pipe,
        recompute="full",
        sequence=False,
        overlap=False,
        precision="f16",
    )
    sizes = Transformer(layers, width, heads, 2048, 51200, fused=False, dropout=True)
    return Run(name, _SC21, sizes, "dgx-a100", setup, None, None, rate=rate, again=True)


# Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models" (arXiv 2205.05198),
# tables 3 and 5: A100 80 GB of Selene. Microbatches and stages are those of table 3.
_KORTHIKANTI = "Korthikanti et al., 2022, table 5"


def _less_again(
    name: str,
    heads: int,
    width: int,
    layers: int,
    pipe: int,
    chunks: int | None,
    batch: int,
    micro: int,
    full: float,
    part: float,
) -> list[Run]:
    sizes = Transformer(layers, width, heads, 2048, 51200, fused=False, dropout=True)
    common = Setup(batch, 1, 8, pipe, overlap=False, precision="f16")
    ways = {
        "full": (common._replace(recompute="full", sequence=False), full),
        "attention": (common._replace(recompute="attention", sequence=True), part),
    }
    return [
        Run(f"{name} {way}", _KORTHIKANTI, sizes, "dgx-a100", setup, micro, chunks, seconds=seconds)
        for way, (setup, seconds) in ways.items()
    ]


# Smith et al., "Using DeepSpeed and Megatron to Train Megatron-Turing NLG 530B" (arXiv 2201.11990), section
# 2.4: batches of 1920 on 280, 350 and 420 DGX A100 servers took 60.1, 50.2 and 44.4 s.
_MT_NLG = "Smith et al., 2022, section 2.4"


def _mt_nlg(data: int, seconds: float) -> Run:
    sizes = Transformer(105, 20480, 128, 2048, 50257, fused=False, dropout=True)
    setup = Setup(1920, data, 8, 35, recompute="full", sequence=False, overlap=False, scatter=False)
    return Run(f"MT-NLG 530B, {280 * data} GPUs", _MT_NLG, sizes, "dgx-a100", setup, 1, 1, seconds=seconds)


# BLOOM: bigscience-workshop/bigscience, train/tr11-176B-ml: README (TP=4, PP=12, DP=8, MBS=2, batch of 2048)
# and chronicles of 2022-03-18 (105.22 s an iteration). The cluster: arXiv 2211.05100, section 3.4.
_BLOOM = Run(
    "BLOOM 176B",
    "BigScience, chronicles of tr11-176B-ml, 2022-03-18",
    Transformer(70, 14336, 112, 2048, 250880, fused=False),
    "jean-zay",
    Setup(2048, 8, 4, 12, zero=1, recompute="full", sequence=False, overlap=False, scatter=False),
    2,
    1,
    seconds=105.22,
)

# Grattafiori et al., "The Llama 3 Herd of Models" (arXiv 2407.21783), table 4, the rows with a context of
# 8,192. The paper says that the first stage has the table alone and the last the logits alone (section
# 3.3.2): eight stages a rank.
_LLAMA = Transformer(126, 16384, 128, 8192, 128256, ffn=53248, kv_heads=8, gated=True, tied=False)


def _llama(data: int, batch: int, rate: float) -> Run:
    setup = Setup(data * batch, data, 8, 16, zero=2)
    name = f"Llama 3 405B, {setup.ranks} GPUs"
    return Run(name, "Grattafiori et al., 2024, table 4", _LLAMA, "dgx-h100", setup, 1, 8, rate=rate)


RUNS = (
    _sc21("GPT 1.7B", 24, 2304, 24, 1, 1, 32, 512, 137),
    _sc21("GPT 3.6B", 32, 3072, 30, 2, 1, 64, 512, 138),
    _sc21("GPT 7.5B", 32, 4096, 36, 4, 1, 128, 512, 142),
    _sc21("GPT 18.4B", 48, 6144, 40, 8, 1, 256, 1024, 135),
    _sc21("GPT 39.1B", 64, 8192, 48, 8, 2, 512, 1536, 138),
    _sc21("GPT 76.1B", 80, 10240, 60, 8, 4, 1024, 1792, 140),
    _sc21("GPT 145.6B", 96, 12288, 80, 8, 8, 1536, 2304, 148),
    _sc21("GPT 310.1B", 128, 16384, 96, 8, 16, 1920, 2160, 155),
    _sc21("GPT 529.6B", 128, 20480, 105, 8, 35, 2520, 2520, 163),
    _sc21("GPT 1008.0B", 160, 25600, 128, 8, 64, 3072, 3072, 163),
    *_less_again("GPT 22B", 64, 6144, 48, 1, 1, 4, 4, 1.42, 1.10),
    *_less_again("GPT 175B", 96, 12288, 96, 8, 3, 64, 1, 18.13, 13.75),
    *_less_again("GPT 530B", 128, 20480, 105, 35, 3, 280, 1, 49.05, 37.83),
    *_less_again("GPT 1T", 160, 25600, 128, 64, None, 512, 1, 94.42, 71.49),
    _mt_nlg(8, 60.1),
    _mt_nlg(10, 50.2),
    _mt_nlg(12, 44.4),
    _BLOOM,
    _llama(64, 32, 430),
    _llama(128, 16, 400),
)  # fmt: skip


@cache
def plan_of(run: Run) -> Plan:
    """The plan of a run, made once."""
    return run.plan()
