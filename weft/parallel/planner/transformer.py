"""Transformers by a description: how many parameters one has, and how many operations a step takes.

Decoders as GPT and Llama: layers of attention and of two products (three where they are gated), a table of
tokens, and as many logits. Counts follow Narayanan et al., "Efficient Large-Scale Language Model Training on
GPU Clusters Using Megatron-LM" (SC21), section 5.1: attention counts as if it were not causal.
"""

from __future__ import annotations

from typing import Any

from weft.base.records import NamedTuple
from weft.errors import ArgumentError, DomainError


class Transformer(NamedTuple):
    """The sizes of a decoder.

    Attributes:
        layers: how many blocks.
        width: of the stream between them.
        heads: of attention.
        context: tokens of a sequence.
        vocab: rows of the table of tokens.
        ffn: width inside of a block; 0 for four times ``width``.
        kv_heads: heads of keys and values; 0 for as many as there are.
        gated: whether a third product gates the inside of a block.
        tied: whether logits are made by the table of tokens.
        fused: whether attention is one kernel that keeps no scores.
        dropout: whether there is any.
    """

    layers: int
    width: int
    heads: int
    context: int
    vocab: int
    ffn: int = 0
    kv_heads: int = 0
    gated: bool = False
    tied: bool = True
    fused: bool = True
    dropout: bool = False

    @property
    def inner(self) -> int:
        """The width inside of a block."""
        return self.ffn or 4 * self.width

    @property
    def kv_width(self) -> int:
        """The width of keys, and of values."""
        return self.width * (self.kv_heads or self.heads) // self.heads

    @property
    def layer_weights(self) -> int:
        """Parameters of the products of a block."""
        products = 3 if self.gated else 2
        return 2 * self.width * (self.width + self.kv_width) + products * self.width * self.inner

    @property
    def layer_parameters(self) -> int:
        """All parameters of a block."""
        return self.layer_weights + 9 * self.width + self.inner

    @property
    def table_parameters(self) -> int:
        """Parameters of the table of tokens."""
        return self.vocab * self.width

    @property
    def parameters(self) -> int:
        """All parameters.

        >>> from weft.parallel.planner.transformer import GPT3
        >>> round(GPT3.parameters / 1e9)
        175
        """
        tables = self.table_parameters * (1 if self.tied else 2)
        return self.layers * self.layer_parameters + tables + self.context * self.width * (not self.gated)

    def flops(self, sequences: int) -> float:
        """The operations of a step on so many sequences, without any that are done again.

        >>> from weft.parallel.planner.transformer import GPT3
        >>> f"{GPT3.flops(64):.2e}"
        '1.41e+17'
        """
        tokens = sequences * self.context
        layer = 2 * self.layer_weights + 4 * self.context * self.width
        return 3.0 * tokens * (self.layers * layer + 2 * self.table_parameters)


GPT3 = Transformer(layers=96, width=12288, heads=96, context=2048, vocab=50257)


def parse_transformer(text: str) -> Transformer:
    """A description as text.

    >>> from weft.parallel.planner.transformer import parse_transformer
    >>> parse_transformer("layers=2,width=64,heads=4,context=32,vocab=100,gated").gated
    True
    """
    found: dict[str, Any] = {}
    flags = {f for f in Transformer._fields if isinstance(Transformer._field_defaults.get(f), bool)}
    for part in filter(None, text.split(",")):
        name, equals, value = part.strip().partition("=")
        if name not in Transformer._fields:
            known = ", ".join(Transformer._fields)
            raise ArgumentError("plan", f"a transformer is described by {known}, got {name!r}")
        if name in flags:
            if value not in ("", "0", "1"):
                raise DomainError("plan", f"{name} must be 0 or 1, got {value!r}")
            found[name] = value != "0"
        elif equals and value.isdecimal():
            found[name] = int(value)
        else:
            raise DomainError("plan", f"{name} must be a whole number, got {value!r}")
    return check_transformer(found)


def check_transformer(given: dict[str, Any]) -> Transformer:
    """A description, if it is one that can be."""
    missing = [f for f in Transformer._fields if f not in Transformer._field_defaults and f not in given]
    if missing:
        raise ArgumentError("plan", f"a transformer must have {', '.join(missing)}, got {given or 'nothing'}")
    made = Transformer(**given)
    for name in ("layers", "width", "heads", "context", "vocab"):
        if getattr(made, name) < 1:
            raise DomainError("plan", f"{name} must be at least 1, got {getattr(made, name)}")
    if made.width % made.heads or (made.kv_heads and made.heads % made.kv_heads):
        raise DomainError(
            "plan",
            "heads must divide the width, and kv_heads the heads, "
            f"got {made.width}, {made.heads}, {made.kv_heads}",
        )
    return made
