"""Figures that say what pays on a processor, and that are only known by measuring.

Each family of processors has a table; ``weft tune`` measures one for the machine at hand. Programs are equal
in value with any of them, but sums may be cut otherwise, and so rounded otherwise.
"""

from __future__ import annotations

from weft.base.records import NamedTuple


class Tuning(NamedTuple):
    """What pays on a processor.

    >>> from weft.schedule.cpu.tuning import Tuning
    >>> Tuning().blas_single
    512

    Attributes:
        blas_single: the BLAS library multiplies matrices of float32 from so many rows, columns and steps on.
        blas_double: the same, for float64; one of the three may be smaller if the others are larger.
        blas_blocks: that a large product is cut into, at most: each copies what it reads.
        blas_task: operations of one call of it: fewer, and it packs too often.
        tile_vectors: vectors that a row of a tile of a product has.
        tile_sums: vectors of sums in a tile; 0 for what suits the number of registers.
        near_bytes: of what a tile reads, so that it stays in the nearest cache.
        panel_bytes: of a packed panel, which stays in the next one.
        stream_bytes: of a matrix that no cache of a core holds: few rows are multiplied with it as it lies.
    """

    blas_single: int = 512
    blas_double: int = 448
    blas_blocks: int = 16
    blas_task: int = 300_000_000
    tile_vectors: int = 2
    tile_sums: int = 0
    near_bytes: int = 40 << 10
    panel_bytes: int = 1 << 18
    stream_bytes: int = 1 << 22


# What each figure may be: from, to. Outside of it a program could be wrong, or take all of the memory.
LIMITS = {
    "blas_single": (16, 1 << 20),
    "blas_double": (16, 1 << 20),
    "blas_blocks": (1, 64),
    "blas_task": (1 << 16, 1 << 40),
    "tile_vectors": (1, 8),
    "tile_sums": (0, 28),
    "near_bytes": (8 << 10, 1 << 19),
    "panel_bytes": (1 << 16, 1 << 19),
    "stream_bytes": (1 << 16, 1 << 40),
}

# By family of processors, and how the names that LLVM has for its members begin.
FAMILIES: dict[str, tuple[tuple[str, ...], Tuning]] = {
    "Xeon with AVX-512": (
        ("skylake-avx512", "cascadelake", "cooperlake", "icelake", "sapphirerapids", "emeraldrapids",
         "graniterapids", "x86-64-v4"),
        Tuning(stream_bytes=1 << 21),
    ),
    "Intel with AVX2": (
        ("haswell", "broadwell", "skylake", "alderlake", "raptorlake", "arrowlake", "x86-64-v3"),
        Tuning(),
    ),
    "Zen": (("znver",), Tuning()),
    "Neoverse N1": (("neoverse-n1", "cortex-a7"), Tuning(blas_single=128, blas_double=128)),
    "Neoverse V1": (("neoverse-v1", "neoverse-512tvb"), Tuning(blas_single=128, blas_double=128)),
    "Neoverse V2": (("neoverse-v2", "neoverse-n2", "neoverse-n3"), Tuning(blas_single=128, blas_double=128)),
    "Apple": (("apple-",), Tuning(blas_single=128, blas_double=128, near_bytes=96 << 10)),
}  # fmt: skip
OTHER = "other"


def family_of(processor: str) -> str:
    """The family of a processor, by the name that LLVM has for it.

    >>> from weft.schedule.cpu.tuning import family_of
    >>> family_of("znver4"), family_of("skylake"), family_of("skylake-avx512"), family_of("generic")
    ('Zen', 'Intel with AVX2', 'Xeon with AVX-512', 'other')
    """
    found = [
        (len(start), family)
        for family, (starts, _) in FAMILIES.items()
        for start in starts
        if processor.startswith(start)
    ]
    return max(found)[1] if found else OTHER


def built_in(processor: str) -> Tuning:
    """The table of a processor's family.

    >>> from weft.schedule.cpu.tuning import built_in
    >>> built_in("generic") == Tuning()
    True
    """
    family = family_of(processor)
    return FAMILIES[family][1] if family != OTHER else Tuning()
