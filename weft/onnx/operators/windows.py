"""Windows of convolutions and pools: what attributes such as ``kernel_shape`` and ``auto_pad`` say.

Sizes of the input may be named; so may then be what "SAME" pads.
"""

from __future__ import annotations

from typing import Any

from weft import Tensor
from weft.base.size_bounds import size_max
from weft.interop.forms.window import Ints, Windows
from weft.onnx.operators.registry import Call


def read_windows(call: Call, x: Tensor, kernel: Ints | None = None) -> Windows:
    """What the attributes of a call say of windows over the last axes of x (N, C, *S)."""
    windows = plain_windows(call, tuple(call.attribute("kernel_shape", kernel)))
    mode = call.attribute("auto_pad", "NOTSET")
    if mode not in ("SAME_UPPER", "SAME_LOWER"):
        return windows
    axes = zip(x.shape[2:], windows.stride, windows.reach, strict=True)
    return windows._replace(padding=tuple([halves(_missing(*axis), mode) for axis in axes]))


def plain_windows(call: Call, kernel: Ints) -> Windows:
    """The same where ``auto_pad`` is left to the caller; nothing is padded if it is "VALID"."""
    rank = len(kernel)
    ones, zeros = (1,) * rank, (0,) * 2 * rank
    pads = zeros if call.attribute("auto_pad", "NOTSET") == "VALID" else call.attribute("pads", zeros)
    sides = tuple(zip(pads[:rank], pads[rank:], strict=True))
    strides, dilations = (tuple(call.attribute(name, ones)) for name in ("strides", "dilations"))
    return Windows(kernel, strides, sides, dilations)


def _missing(size: Any, stride: int, reach: int) -> Any:
    """How much must be added so that one window starts at every stride-th element."""
    if reach == 1:
        return 0
    total = ((size + stride - 1) // stride - 1) * stride + reach - size
    if reach >= stride:
        return total  # never negative, which a named size may not be able to tell
    return size_max(total, 0)


def halves(total: Any, mode: str) -> tuple[Any, Any]:
    """What to pad on both sides; an odd one is at the end for "SAME_UPPER"."""
    half = total // 2
    return (half, total - half) if mode == "SAME_UPPER" else (total - half, half)


def need_rank(call: Call, rank: int) -> None:
    """Raise where weft has no function for a number of sizes."""
    if not 1 <= rank <= 3:
        raise call.error(f"the input must have 1 to 3 sizes after batch and channels, got {rank}")
