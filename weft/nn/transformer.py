"""The layers of transformers, stacks of them, and the whole (Vaswani and others, 2017)."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import weft
from weft import Tensor
from weft.base.device import DeviceLike
from weft.base.dtypes import DTypeLike
from weft.errors import DomainError, ShapeError
from weft.nn import init
from weft.nn.attention import MultiheadAttention
from weft.nn.containers import ModuleList
from weft.nn.dropout import Dropout
from weft.nn.linear import Linear
from weft.nn.module import Module
from weft.nn.norm import LayerNorm

Activation = str | Callable[[Any], Any]


def _activation(op: str, choice: Activation) -> Callable[[Any], Any]:
    if callable(choice):
        return choice
    if choice not in ("relu", "gelu"):
        raise DomainError(op, f"activation must be 'relu', 'gelu' or a function, got {choice!r}")
    found: Callable[[Any], Any] = weft.relu if choice == "relu" else weft.gelu
    return found


class _Layer(Module):
    """What both kinds of layers share: attention to oneself, and a network on each position."""

    norms = 2
    norm1: Module
    norm2: Module
    norm3: Module
    dropout1: Module
    dropout2: Module
    dropout3: Module

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = "relu",
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__()
        like: dict[str, Any] = {"bias": bias, "device": device, "dtype": dtype}
        attention: dict[str, Any] = {"dropout": dropout, "batch_first": batch_first, **like}
        self.self_attn = MultiheadAttention(d_model, nhead, **attention)
        if self.norms == 3:
            self.multihead_attn = MultiheadAttention(d_model, nhead, **attention)
        self.linear1 = Linear(d_model, dim_feedforward, **like)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, **like)
        self.norm_first = norm_first
        for i in range(1, self.norms + 1):
            setattr(self, f"norm{i}", LayerNorm(d_model, layer_norm_eps, **like))
        for i in range(1, self.norms + 1):
            setattr(self, f"dropout{i}", Dropout(dropout))
        self.activation = _activation(type(self).__name__, activation)

    def _attend_to_self(
        self, x: Tensor, mask: Tensor | None, padding: Tensor | None, is_causal: bool, cache: Any
    ) -> Any:
        found, _ = self.self_attn(
            x, x, x, padding, need_weights=False, attn_mask=mask, is_causal=is_causal, cache=cache
        )
        return self.dropout1(found)

    def _feed_forward(self, x: Tensor) -> Tensor:
        return self.linear2(self.dropout(self.activation(self.linear1(x))))

    def make_cache(self, batch_size: int, max_length: int) -> Any:
        """Room for the keys and values of tokens, to be passed to each step of decoding."""
        return self.self_attn.make_cache(batch_size, max_length)


class TransformerEncoderLayer(_Layer):
    """Attention to oneself, then a network on each position, both with a way around them and normalised.

    Args:
        d_model: features.
        nhead: heads of attention.
        dim_feedforward: features inside the network.
        dropout: probability in training.
        activation: of the network, "relu", "gelu" or a function.
        layer_norm_eps: added to variances.
        batch_first: whether tensors are (N, L, E) rather than (L, N, E).
        norm_first: normalise before each part rather than after.
        bias: whether linear maps and norms have one.
        device: of the parameters.
        dtype: of the parameters.

    >>> import weft
    >>> layer = weft.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    >>> layer(weft.randn(3, 5, 8), is_causal=True).shape
    (3, 5, 8)
    """

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
        cache: Any = None,
    ) -> Any:
        """src, transformed; masks and cache as those of ``MultiheadAttention``."""
        masks = (src_mask, src_key_padding_mask, is_causal, cache)
        if self.norm_first:
            x = src + self._attend_to_self(self.norm1(src), *masks)
            return x + self.dropout2(self._feed_forward(self.norm2(x)))
        x = self.norm1(src + self._attend_to_self(src, *masks))
        return self.norm2(x + self.dropout2(self._feed_forward(x)))


class TransformerDecoderLayer(_Layer):
    """Attention to oneself, then to a memory, then a network on each position.

    The arguments are those of ``TransformerEncoderLayer``.

    >>> import weft
    >>> layer = weft.nn.TransformerDecoderLayer(8, 2, 16, batch_first=True)
    >>> layer(weft.randn(3, 5, 8), weft.randn(3, 7, 8), tgt_is_causal=True).shape
    (3, 5, 8)
    """

    norms = 3

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
        cache: Any = None,
    ) -> Any:
        """tgt, transformed; masks and cache as those of ``MultiheadAttention``."""
        own = (tgt_mask, tgt_key_padding_mask, tgt_is_causal, cache)
        other = (memory, memory_mask, memory_key_padding_mask, memory_is_causal)
        if self.norm_first:
            x = tgt + self._attend_to_self(self.norm1(tgt), *own)
            x = x + self._attend_to(self.norm2(x), *other)
            return x + self.dropout3(self._feed_forward(self.norm3(x)))
        x = self.norm1(tgt + self._attend_to_self(tgt, *own))
        x = self.norm2(x + self._attend_to(x, *other))
        return self.norm3(x + self.dropout3(self._feed_forward(x)))

    def _attend_to(
        self, x: Tensor, memory: Tensor, mask: Tensor | None, padding: Tensor | None, is_causal: bool
    ) -> Any:
        found, _ = self.multihead_attn(
            x, memory, memory, padding, need_weights=False, attn_mask=mask, is_causal=is_causal
        )
        return self.dropout2(found)


class _Stack(Module):
    """Layers one after another, each a copy of the one given, and perhaps a norm at the end."""

    norm: Any

    def __init__(self, layer: Module, num_layers: int, norm: Module | None) -> None:
        super().__init__()
        self.layers = ModuleList(deepcopy(layer) for _ in range(num_layers))
        self.num_layers = num_layers
        self.register_module("norm", norm)

    def make_cache(self, batch_size: int, max_length: int) -> ModuleList:
        """Room for the keys and values of tokens in each layer, to be passed to each step of decoding."""
        layers: Any = self.layers
        return ModuleList(layer.make_cache(batch_size, max_length) for layer in layers)

    def _caches(self, cache: Any) -> Any:
        caches = [None] * self.num_layers if cache is None else list(cache)
        if len(caches) != self.num_layers:
            got = f"{len(caches)} for {self.num_layers} layers"
            raise ShapeError(type(self).__name__, f"there must be one cache for each layer, got {got}")
        return caches


class TransformerEncoder(_Stack):
    """Encoder layers one after another, each a copy of the one given, and perhaps a norm at the end.

    Args:
        encoder_layer: to copy.
        num_layers: how many.
        norm: at the end.
        enable_nested_tensor: makes no difference; programs pass it.
        mask_check: makes no difference; programs pass it.

    >>> import weft
    >>> layer = weft.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    >>> weft.nn.TransformerEncoder(layer, 2)(weft.randn(3, 5, 8)).shape
    (3, 5, 8)
    """

    def __init__(
        self,
        encoder_layer: Module,
        num_layers: int,
        norm: Module | None = None,
        enable_nested_tensor: bool = True,
        mask_check: bool = True,
    ) -> None:
        super().__init__(encoder_layer, num_layers, norm)

    def forward(
        self,
        src: Tensor,
        mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool | None = None,
        cache: Any = None,
    ) -> Tensor:
        """src, transformed by each layer in turn."""
        for layer, own in zip(self.layers, self._caches(cache), strict=True):
            src = layer(src, mask, src_key_padding_mask, bool(is_causal), own)
        return src if self.norm is None else self.norm(src)


class TransformerDecoder(_Stack):
    """Decoder layers one after another, each a copy of the one given, and perhaps a norm at the end.

    Args:
        decoder_layer: to copy.
        num_layers: how many.
        norm: at the end.

    >>> import weft
    >>> layer = weft.nn.TransformerDecoderLayer(8, 2, 16, batch_first=True)
    >>> weft.nn.TransformerDecoder(layer, 2)(weft.randn(3, 5, 8), weft.randn(3, 7, 8)).shape
    (3, 5, 8)
    """

    def __init__(self, decoder_layer: Module, num_layers: int, norm: Module | None = None) -> None:
        super().__init__(decoder_layer, num_layers, norm)

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
        cache: Any = None,
    ) -> Tensor:
        """tgt, transformed by each layer in turn."""
        masks = (tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask)
        for layer, own in zip(self.layers, self._caches(cache), strict=True):
            tgt = layer(tgt, memory, *masks, bool(tgt_is_causal), memory_is_causal, own)
        return tgt if self.norm is None else self.norm(tgt)


class Transformer(Module):
    """An encoder, and a decoder that attends to what it gives.

    Args:
        d_model: features.
        nhead: heads of attention.
        num_encoder_layers: of the encoder.
        num_decoder_layers: of the decoder.
        dim_feedforward: features inside the networks.
        dropout: probability in training.
        activation: of the networks, "relu", "gelu" or a function.
        custom_encoder: instead of the usual one.
        custom_decoder: instead of the usual one.
        layer_norm_eps: added to variances.
        batch_first: whether tensors are (N, L, E) rather than (L, N, E).
        norm_first: normalise before each part rather than after.
        bias: whether linear maps and norms have one.
        device: of the parameters.
        dtype: of the parameters.

    >>> import weft
    >>> model = weft.nn.Transformer(8, 2, 1, 1, 16, batch_first=True)
    >>> model(weft.randn(3, 7, 8), weft.randn(3, 5, 8), tgt_is_causal=True).shape
    (3, 5, 8)
    """

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = "relu",
        custom_encoder: Module | None = None,
        custom_decoder: Module | None = None,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__()
        like: dict[str, Any] = {"bias": bias, "device": device, "dtype": dtype}
        sizes = (d_model, nhead, dim_feedforward, dropout, activation)
        settings: dict[str, Any] = {
            "layer_norm_eps": layer_norm_eps,
            "batch_first": batch_first,
            "norm_first": norm_first,
            **like,
        }

        def norm() -> LayerNorm:
            return LayerNorm(d_model, layer_norm_eps, **like)

        self.encoder = custom_encoder or TransformerEncoder(
            TransformerEncoderLayer(*sizes, **settings), num_encoder_layers, norm()
        )
        self.decoder = custom_decoder or TransformerDecoder(
            TransformerDecoderLayer(*sizes, **settings), num_decoder_layers, norm()
        )
        self.d_model = d_model
        self.nhead = nhead
        self.batch_first = batch_first
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Start again: all matrices by Glorot and Bengio."""
        for p in self.parameters():
            if p.ndim > 1:
                init.xavier_uniform_(p)

    @staticmethod
    def generate_square_subsequent_mask(
        sz: int, device: DeviceLike | None = None, dtype: DTypeLike | None = None
    ) -> Tensor:
        """A floating mask (sz, sz) that lets position i look at positions 0..i.

        >>> import weft
        >>> weft.nn.Transformer.generate_square_subsequent_mask(2)
        tensor([[  0., -inf],
                [  0.,   0.]])
        """
        return weft.full((sz, sz), -weft.inf, device=device, dtype=dtype).triu(1)

    def forward(
        self,
        src: Tensor,
        tgt: Tensor,
        src_mask: Tensor | None = None,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        src_is_causal: bool | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Any:
        """tgt, transformed with attention to src; masks as those of ``MultiheadAttention``."""
        axis = 0 if self.batch_first or src.ndim == 2 else 1
        if src.ndim != tgt.ndim or src.shape[-1] != self.d_model or tgt.shape[-1] != self.d_model:
            got = f"{src.shape} and {tgt.shape}"
            raise ShapeError("Transformer", f"src and tgt must have {self.d_model} features, got {got}")
        if src.ndim == 3 and src.shape[axis] != tgt.shape[axis]:
            got = f"{src.shape[axis]} and {tgt.shape[axis]}"
            raise ShapeError("Transformer", f"src and tgt must have as many sequences, got {got}")
        memory = self.encoder(src, src_mask, src_key_padding_mask, src_is_causal)
        masks = (tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask)
        return self.decoder(tgt, memory, *masks, tgt_is_causal, memory_is_causal)
