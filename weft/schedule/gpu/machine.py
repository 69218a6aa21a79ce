"""What the schedule knows of a graphics processor."""

from __future__ import annotations

from weft.base.records import NamedTuple


class Gpu(NamedTuple):
    """A graphics processor.

    Attributes:
        access_bytes: the most that one thread reads or writes at a time.
        warp: threads that run in step.
        threads: of a block, where nothing asks for another number.
        most_threads: of a block.
        blocks: that keep all of the machine busy; as many partial results a reduction over rows has. It is
            the same number for all cards, so that sums are rounded alike on all of them.
        row_elements: of a row that one thread holds in registers, at most.
        shared_bytes: of shared memory that a block may have.
        libraries: whether products of matrices are left to a library.
        least_product: multiplications from which on they are.
        cudnn: whether attention and convolutions in half precision are left to a library.
        adds_biases: whether that library adds biases to convolutions; else sums are kept in float32 for them.
        good_elements: that it holds where threads allow: enough to be under way at once, few enough for many
            threads.
    """

    access_bytes: int = 16
    warp: int = 32
    threads: int = 256
    most_threads: int = 1024
    blocks: int = 264
    row_elements: int = 32
    shared_bytes: int = 227 << 10
    good_elements: int = 16
    libraries: bool = False
    least_product: int = 1 << 17
    cudnn: bool = False
    adds_biases: bool = True
