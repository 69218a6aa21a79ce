"""Transformers as published weights expect them: GPT-2, Llama, BERT and ViT, from the parts of ``weft.nn``.

Attributes are named as the weights are, so a state loads by name. ``weft.nn.load_hf`` makes these from a
folder; its ``config.json`` says their sizes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import weft
from weft import Tensor
from weft.errors import DomainError
from weft.nn.containers import ModuleList
from weft.nn.conv import Conv2d
from weft.nn.embedding import Embedding
from weft.nn.linear import Linear
from weft.nn.module import Module
from weft.nn.norm import LayerNorm, RMSNorm
from weft.nn.parameter import Parameter

Config = Mapping[str, Any]
ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "gelu": weft.gelu,
    "gelu_new": lambda x: weft.gelu(x, approximate="tanh"),
    "gelu_pytorch_tanh": lambda x: weft.gelu(x, approximate="tanh"),
    "relu": weft.relu,
    "silu": weft.silu,
}


def activation_of(name: str) -> Callable[[Any], Any]:
    """The function that a configuration names."""
    if name not in ACTIVATIONS:
        raise DomainError("load_hf", f"the activation must be among {', '.join(ACTIVATIONS)}, got {name!r}")
    return ACTIVATIONS[name]


class Parts(Module):
    """Modules under names, as the weights have them."""

    def __init__(self, /, **parts: Module) -> None:
        super().__init__()
        for name, part in parts.items():
            setattr(self, name, part)

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...


class Layers(ModuleList):
    """Modules of the same parts, one after the other."""

    if TYPE_CHECKING:

        def __iter__(self) -> Iterator[Parts]: ...


def attend(q: Tensor, k: Tensor, v: Tensor, heads: int, **how: Any) -> Tensor:
    """Attention of tensors ``(batch, length, features)`` in several heads."""
    q, k, v = _split(q, heads), _split(k, heads), _split(v, heads)
    return _joined(weft.scaled_dot_product_attention(q, k, v, **how))


def _split(x: Tensor, heads: int) -> Tensor:
    return x.reshape(x.shape[0], x.shape[1], heads, -1).swapaxes(1, 2)


def _joined(x: Tensor) -> Tensor:
    return x.swapaxes(1, 2).reshape(x.shape[0], x.shape[2], -1)


class GPT2(Module):
    """GPT-2: from ids of tokens ``(batch, length)`` to logits, or to features without a head."""

    def __init__(self, config: Config, head: str) -> None:
        super().__init__()
        width, eps = config["n_embd"], config.get("layer_norm_epsilon", 1e-5)
        inner = config.get("n_inner") or 4 * width
        self.heads, self.head = config["n_head"], head
        self.activation = activation_of(config.get("activation_function", "gelu_new"))
        self.wte = Embedding(config["vocab_size"], width)
        self.wpe = Embedding(config["n_positions"], width)
        self.h = Layers(
            Parts(
                ln_1=LayerNorm(width, eps),
                attn=Parts(c_attn=Linear(width, 3 * width), c_proj=Linear(width, width)),
                ln_2=LayerNorm(width, eps),
                mlp=Parts(c_fc=Linear(width, inner), c_proj=Linear(inner, width)),
            )
            for _ in range(config["n_layer"])
        )
        self.ln_f = LayerNorm(width, eps)
        if head and not config.get("tie_word_embeddings", True):
            self.lm_head = Linear(width, config["vocab_size"], bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        """The logits of the next tokens."""
        x = self.wte(ids) + self.wpe(weft.arange(ids.shape[1]))
        for block in self.h:
            q, k, v = weft.split(block.attn.c_attn(block.ln_1(x)), x.shape[-1], axis=-1)
            x = x + block.attn.c_proj(attend(q, k, v, self.heads, is_causal=True))
            x = x + block.mlp.c_proj(self.activation(block.mlp.c_fc(block.ln_2(x))))
        x = self.ln_f(x)
        if not self.head:
            return x
        out: Tensor = self.lm_head(x) if hasattr(self, "lm_head") else x @ self.wte.weight.mT
        return out


class Llama(Module):
    """Llama: from ids of tokens ``(batch, length)`` to logits, or to features without a head."""

    def __init__(self, config: Config, head: str) -> None:
        super().__init__()
        width, inner, eps = config["hidden_size"], config["intermediate_size"], config["rms_norm_eps"]
        self.heads, self.head = config["num_attention_heads"], head
        self.groups = config.get("num_key_value_heads") or self.heads
        self.size = config.get("head_dim") or width // self.heads
        biased, mlp_biased = config.get("attention_bias", False), config.get("mlp_bias", False)
        self.activation = activation_of(config.get("hidden_act", "silu"))
        self.frequencies = rotary_frequencies(config, self.size)
        self.embed_tokens = Embedding(config["vocab_size"], width)
        whole, shared = self.heads * self.size, self.groups * self.size
        self.layers = Layers(
            Parts(
                input_layernorm=RMSNorm(width, eps),
                self_attn=Parts(
                    q_proj=Linear(width, whole, biased),
                    k_proj=Linear(width, shared, biased),
                    v_proj=Linear(width, shared, biased),
                    o_proj=Linear(whole, width, biased),
                ),
                post_attention_layernorm=RMSNorm(width, eps),
                mlp=Parts(
                    gate_proj=Linear(width, inner, mlp_biased),
                    up_proj=Linear(width, inner, mlp_biased),
                    down_proj=Linear(inner, width, mlp_biased),
                ),
            )
            for _ in range(config["num_hidden_layers"])
        )
        self.norm = RMSNorm(width, eps)
        if head and not config.get("tie_word_embeddings", False):
            self.lm_head = Linear(width, config["vocab_size"], bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        """The logits of the next tokens."""
        x = self.embed_tokens(ids)
        angles = weft.arange(ids.shape[1], dtype=weft.float32)[:, None] * weft.tensor(self.frequencies)
        angles = weft.concat([angles, angles], axis=-1)
        turns = weft.cos(angles).astype(x.dtype), weft.sin(angles).astype(x.dtype)
        for block in self.layers:
            x = x + self._attended(block.self_attn, block.input_layernorm(x), turns)
            y, mlp = block.post_attention_layernorm(x), block.mlp
            x = x + mlp.down_proj(self.activation(mlp.gate_proj(y)) * mlp.up_proj(y))
        x = self.norm(x)
        if not self.head:
            return x
        out: Tensor = self.lm_head(x) if hasattr(self, "lm_head") else x @ self.embed_tokens.weight.mT
        return out

    def _attended(self, attn: Parts, x: Tensor, turns: tuple[Tensor, Tensor]) -> Tensor:
        q = _turned(_split(attn.q_proj(x), self.heads), *turns)
        k = _turned(_split(attn.k_proj(x), self.groups), *turns)
        v = _split(attn.v_proj(x), self.groups)
        if self.groups != self.heads:  # several heads share their keys and values
            k, v = (weft.repeat(t, self.heads // self.groups, axis=1) for t in (k, v))
        out: Tensor = attn.o_proj(_joined(weft.scaled_dot_product_attention(q, k, v, is_causal=True)))
        return out


def _turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Pairs of features turned by angles; a pair is a feature of the first half and one of the second."""
    first, second = weft.split(x, x.shape[-1] // 2, axis=-1)
    return x * cos + weft.concat([-second, first], axis=-1) * sin


def rotary_frequencies(config: Config, size: int) -> list[float]:
    """How fast the pairs of features turn from position to position."""
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    theta = rope.get("rope_theta") or config.get("rope_theta") or 10000.0
    kind = rope.get("rope_type") or rope.get("type") or "default"
    plain = [theta ** (-i / size) for i in range(0, size, 2)]
    if kind == "default":
        return plain
    if kind == "linear":
        return [f / rope["factor"] for f in plain]
    if kind != "llama3":
        raise DomainError("load_hf", f"rope_type must be default, linear or llama3, got {kind!r}")
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    found = []
    for f in plain:  # slow turns are made slower, those in between a little
        waves = rope["original_max_position_embeddings"] * f / (2 * math.pi)
        share = min(max((waves - low) / (high - low), 0.0), 1.0)
        found.append((1 - share) * f / rope["factor"] + share * f)
    return found


def _encoder_layer(
    config: Config, attention: Parts, own: Mapping[str, Module] | None = None, **norms: Module
) -> Parts:
    width, inner = config["hidden_size"], config["intermediate_size"]
    return Parts(
        attention=attention,
        intermediate=Parts(dense=Linear(width, inner)),
        output=Parts(dense=Linear(inner, width), **(own or {})),
        **norms,
    )


class Bert(Module):
    """BERT: from ids ``(batch, length)`` to features, logits of tokens, or logits of classes."""

    def __init__(self, config: Config, head: str) -> None:
        super().__init__()
        width, eps = config["hidden_size"], config.get("layer_norm_eps", 1e-12)
        self.heads, self.head = config["num_attention_heads"], head
        self.activation = activation_of(config.get("hidden_act", "gelu"))

        def dense(**norm: Module) -> Parts:
            return Parts(dense=Linear(width, width), **norm)

        def attention() -> Parts:
            own = {name: Linear(width, width) for name in ("query", "key", "value")}
            return Parts(self=Parts(**own), output=dense(LayerNorm=LayerNorm(width, eps)))

        self.embeddings = Parts(
            word_embeddings=Embedding(config["vocab_size"], width),
            position_embeddings=Embedding(config["max_position_embeddings"], width),
            token_type_embeddings=Embedding(config.get("type_vocab_size", 2), width),
            LayerNorm=LayerNorm(width, eps),
        )
        layers = (
            _encoder_layer(config, attention(), {"LayerNorm": LayerNorm(width, eps)})
            for _ in range(config["num_hidden_layers"])
        )
        self.encoder = Parts(layer=Layers(layers))
        if head != "tokens":
            self.pooler = dense()
        if head == "tokens":
            self.predictions = Parts(transform=dense(LayerNorm=LayerNorm(width, eps)))
            self.predictions.bias = Parameter(weft.zeros(config["vocab_size"]))
        elif head == "classes":
            self.classifier = Linear(width, count_labels(config))

    def forward(
        self, ids: Tensor, attention_mask: Tensor | None = None, token_type_ids: Tensor | None = None
    ) -> Tensor:
        """What the head gives; positions where the mask is 0 are not looked at."""
        e = self.embeddings
        kinds = weft.zeros_like(ids) if token_type_ids is None else token_type_ids
        x = e.word_embeddings(ids) + e.position_embeddings(weft.arange(ids.shape[1]))
        x = e.LayerNorm(x + e.token_type_embeddings(kinds))
        mask = None if attention_mask is None else (attention_mask != 0)[:, None, None, :]
        for block in self.encoder.layer:
            own, out = block.attention.self, block.attention.output
            y = attend(own.query(x), own.key(x), own.value(x), self.heads, attn_mask=mask)
            x = out.LayerNorm(out.dense(y) + x)
            y = block.output.dense(self.activation(block.intermediate.dense(x)))
            x = block.output.LayerNorm(y + x)
        if self.head == "tokens":
            transform = self.predictions.transform
            y = transform.LayerNorm(self.activation(transform.dense(x)))
            x = weft.linear(y, e.word_embeddings.weight, self.predictions.bias)
        elif self.head == "classes":
            x = self.classifier(weft.tanh(self.pooler.dense(x[:, 0])))
        features: Tensor = x
        return features


class ViT(Module):
    """ViT: from images ``(batch, channels, height, width)`` to features, or logits of classes."""

    def __init__(self, config: Config, head: str) -> None:
        super().__init__()
        width, eps = config["hidden_size"], config.get("layer_norm_eps", 1e-12)
        size, patch = config["image_size"], config["patch_size"]
        self.heads, self.head = config["num_attention_heads"], head
        self.activation = activation_of(config.get("hidden_act", "gelu"))
        biased = config.get("qkv_bias", True)

        def attention() -> Parts:
            own = {name: Linear(width, width, biased) for name in ("query", "key", "value")}
            return Parts(attention=Parts(**own), output=Parts(dense=Linear(width, width)))

        def norms() -> dict[str, Module]:
            return {name: LayerNorm(width, eps) for name in ("layernorm_before", "layernorm_after")}

        projection = Conv2d(config.get("num_channels", 3), width, patch, stride=patch)
        self.embeddings = Parts(patch_embeddings=Parts(projection=projection))
        self.embeddings.cls_token = Parameter(weft.zeros((1, 1, width)))
        self.embeddings.position_embeddings = Parameter(weft.zeros((1, (size // patch) ** 2 + 1, width)))
        layers = (
            _encoder_layer(config, attention(), None, **norms()) for _ in range(config["num_hidden_layers"])
        )
        self.encoder = Parts(layer=Layers(layers))
        self.layernorm = LayerNorm(width, eps)
        if head == "classes":
            self.classifier = Linear(width, count_labels(config))
        else:
            self.pooler = Parts(dense=Linear(width, width))

    def forward(self, images: Tensor) -> Tensor:
        """What the head gives."""
        e = self.embeddings
        x = e.patch_embeddings.projection(images)
        x = x.reshape(x.shape[0], x.shape[1], -1).swapaxes(1, 2)
        first = weft.broadcast_to(e.cls_token, (x.shape[0], 1, x.shape[2]))
        x = weft.concat([first, x], axis=1) + e.position_embeddings
        for block in self.encoder.layer:
            own, y = block.attention.attention, block.layernorm_before(x)
            y = attend(own.query(y), own.key(y), own.value(y), self.heads)
            x = x + block.attention.output.dense(y)
            y = self.activation(block.intermediate.dense(block.layernorm_after(x)))
            x = x + block.output.dense(y)
        x = self.layernorm(x)
        out: Tensor = self.classifier(x[:, 0]) if self.head == "classes" else x
        return out


def count_labels(config: Config) -> int:
    """How many classes a head has."""
    return len(config["id2label"]) if config.get("id2label") else int(config.get("num_labels", 2))
