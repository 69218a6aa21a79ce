"""The memory of a rank that trains a part of a transformer.

Activations follow Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models" (2022),
section 4, written for any width inside, number of heads of keys, and with or without dropout and fused
attention. State follows Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter
Models" (2020), for Adam.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.parallel.planner.setup import Setup
from weft.parallel.planner.transformer import Transformer


def stage_layers(layers: int, stages: int) -> list[int]:
    """How many blocks each stage has: the last one, which has the logits, and the first have the least.

    >>> from weft.parallel.planner.memory import stage_layers
    >>> stage_layers(126, 16)[:2], stage_layers(126, 16)[-2:]
    ([7, 8], [8, 7])
    """
    each, more = divmod(layers, stages)
    order = [*range(1, stages - 1), 0, stages - 1]
    extra = set(order[:more])
    return [each + (stage in extra) for stage in range(stages)]


def stage_parameters(model: Transformer, setup: Setup, layers: Sequence[int]) -> list[float]:
    """Parameters of each stage on one rank of the axis ``model``."""
    found = [n * model.layer_parameters / setup.model for n in layers]
    found[0] += model.table_parameters / setup.model
    if len(layers) > 1 or not model.tied:
        found[-1] += model.table_parameters / setup.model
    return found


def layer_activations(model: Transformer, setup: Setup) -> float:
    """Bytes that a block keeps of a microbatch for its backward pass.

    >>> from weft.parallel.planner.memory import layer_activations
    >>> from weft.parallel.planner.setup import Setup
    >>> from weft.parallel.planner.transformer import Transformer
    >>> model = Transformer(48, 6144, 64, 2048, 51200, fused=False, dropout=True)
    >>> sbh = 2048 * 6144
    >>> kept = layer_activations(model, Setup(1, sequence=False))
    >>> round(kept / sbh, 2), round(34 + 5 * 64 * 2048 / 6144, 2)
    (140.67, 140.67)
    """
    if setup.recompute == "full":
        part = setup.model if setup.sequence else 1
        return setup.width_bytes * setup.micro * model.context * model.width / part
    return _block_activations(model, setup)


def _block_activations(model: Transformer, setup: Setup) -> float:
    tokens, wide = setup.micro * model.context, setup.width_bytes
    mask = 1 if model.dropout else 0
    stream = (4 * wide + 2 * mask) * model.width / (setup.model if setup.sequence else 1)
    inner = model.inner * (3 if model.gated else 2)
    cut = wide * (2 * model.width + 2 * model.kv_width + inner) / setup.model
    found = tokens * (stream + cut)
    if not model.fused and setup.recompute == "none":
        found += (wide + mask * (1 + wide)) * model.heads * model.context * tokens / setup.model
    return found


def state_bytes(setup: Setup, parameters: float) -> dict[str, float]:
    """Bytes of weights, gradients and the state of Adam, of so many parameters.

    In half precision the optimizer holds weights of its own in single precision; gradients of bf16 are summed
    in single precision, those of f16 are kept as they are.

    >>> from weft.parallel.planner.memory import state_bytes
    >>> from weft.parallel.planner.setup import Setup
    >>> state_bytes(Setup(8, data=4, zero=1), 1000)
    {'weights': 2000.0, 'gradients': 4000.0, 'optimizer': 3000.0}
    """
    weights, gradients, optimizer = numbers_bytes(setup)
    cut = [setup.data if setup.zero >= stage else 1 for stage in (3, 2, 1)]
    sizes = [n * parameters / c for n, c in zip((weights, gradients, optimizer), cut, strict=True)]
    return dict(zip(("weights", "gradients", "optimizer"), sizes, strict=True))


def numbers_bytes(setup: Setup) -> tuple[int, int, int]:
    """Bytes for each parameter: of its weight, its gradient, and what the optimizer holds."""
    return {"f32": (4, 4, 8), "bf16": (2, 4, 12), "f16": (2, 2, 12)}[setup.precision]


def working_bytes(model: Transformer, setup: Setup, is_last: bool) -> float:
    """Bytes that are there for a moment: a block that is computed again, logits, gathered weights."""
    again = _block_activations(model, setup) if setup.recompute == "full" else 0.0
    tokens = setup.micro * model.context
    logits = (setup.width_bytes + 4) * tokens * model.vocab / setup.model if is_last else 0.0
    gathered = 2 * setup.width_bytes * model.layer_parameters / setup.model if setup.zero == 3 else 0.0
    return max(again, logits) + gathered
