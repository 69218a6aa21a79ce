"""What attention keeps between the steps of decoding: the keys and values of all tokens so far."""

from __future__ import annotations

from typing import Any

import weft
from weft import Tensor
from weft.base.device import DeviceLike
from weft.base.dtypes import DTypeLike
from weft.capture.runtime.modules import is_capturing
from weft.errors import BoundsError, ShapeError
from weft.nn.module import Module


class KeyValueCache(Module):
    """Room for the keys and values of a number of tokens, filled step by step.

    The room does not grow, so that every step of a compiled decoder is the same graph. What is kept has no
    gradient, and is not part of ``state_dict``. ``MultiheadAttention.make_cache`` makes one that fits.

    Args:
        batch_size: sequences.
        num_heads: of the attention.
        max_length: tokens for which there is room.
        head_dim: features of a head.
        device: of the tensors.
        dtype: of the tensors.

    >>> import weft
    >>> cache = weft.nn.KeyValueCache(1, 2, 8, 4)
    >>> keys, values, mask = cache.extended(weft.ones((1, 2, 3, 4)), weft.ones((1, 2, 3, 4)))
    >>> keys.shape, cache.length
    ((1, 2, 8, 4), tensor(3))
    """

    _shown = ("max_length",)
    key: Any
    value: Any
    length: Any

    def __init__(
        self,
        batch_size: int,
        num_heads: int,
        max_length: int,
        head_dim: int,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__()
        self.max_length = max_length
        shape = (batch_size, num_heads, max_length, head_dim)
        for name in ("key", "value"):
            self.register_buffer(name, weft.zeros(shape, device=device, dtype=dtype), persistent=False)
        self.register_buffer("length", weft.tensor(0), persistent=False)

    def reset(self) -> None:
        """Forget all tokens, for other sequences."""
        self.length._set(weft.tensor(0))

    def extended(self, key: Tensor, value: Any) -> tuple[Tensor, Tensor, Tensor]:
        """Keep the keys and values (N, heads, L, features) of further tokens.

        Returns:
            All keys and all values, and a mask (L, max_length): which of them each new token may look at,
            those up to itself.
        """
        self._check(key)
        with weft.no_grad():
            place = self.length + weft.arange(key.shape[2])
            self.key[:, :, place] = key._value().astype(self.key.dtype)
            self.value[:, :, place] = value._value().astype(self.value.dtype)
            self.length._set(self.length + key.shape[2])
        return self.key, self.value, weft.arange(self.max_length) <= place.unsqueeze(1)

    def _check(self, key: Tensor) -> None:
        room = (*self.key.shape[:2], self.key.shape[3])
        if (*key.shape[:2], key.shape[3]) != room:
            got = f"(N, heads, features) of {room}, got {(*key.shape[:2], key.shape[3])}"
            raise ShapeError("KeyValueCache", f"keys must have {got}")
        if is_capturing():
            assert self.length + key.shape[2] <= self.max_length, "a KeyValueCache is full"
        elif int(self.length) + key.shape[2] > self.max_length:
            got = f"{key.shape[2]} more after {int(self.length)}"
            raise BoundsError(
                "KeyValueCache", f"there must be room for all tokens, got {got} in {self.max_length}"
            )
