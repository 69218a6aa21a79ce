"""How a transformer is trained on a mesh: what a plan is asked for, and what a search goes through."""

from __future__ import annotations

from weft.base.ranks import Axes
from weft.base.records import NamedTuple
from weft.errors import DomainError
from weft.parallel.planner.transformer import Transformer

RECOMPUTE = ("none", "attention", "full")


class Setup(NamedTuple):
    """A mesh, and how it is used.

    Attributes:
        batch: sequences of a step, of all ranks.
        data, model, pipe: sizes of the axes of the mesh; ranks of ``model`` are next to each other, then come
            those of ``data``.
        micro: sequences of a microbatch.
        chunks: stages of each rank of the pipeline.
        schedule: of the pipeline, see ``weft.parallel.schedules``.
        zero: what ranks of ``data`` share, see ``weft.compile``.
        recompute: what backward passes compute again: "none", "attention" (its scores), "full" (blocks).
        sequence: whether what is between products is cut along the sequence over ``model``.
        overlap: whether sums of gradients go on beside the backward pass.
        scatter: whether each rank of ``model`` hands on its part of a microbatch, instead of the whole.
        precision: of products: "bf16", with parameters of the optimizer in single precision; or "f32".
    """

    batch: int
    data: int = 1
    model: int = 1
    pipe: int = 1
    micro: int = 1
    chunks: int = 1
    schedule: str = "1f1b"
    zero: int = 0
    recompute: str = "none"
    sequence: bool = True
    overlap: bool = True
    scatter: bool = True
    precision: str = "bf16"

    @property
    def ranks(self) -> int:
        """How many there are."""
        return self.data * self.model * self.pipe

    @property
    def axes(self) -> Axes:
        """The axes of the mesh; the last one goes from rank to rank."""
        return (("pipe", self.pipe), ("data", self.data), ("model", self.model))

    @property
    def mesh(self) -> str:
        """The mesh as text, without axes of one rank."""
        return ",".join(f"{name}={size}" for name, size in self.axes if size > 1) or "data=1"

    @property
    def microbatches(self) -> int:
        """How many of them a rank works on in a step."""
        return self.batch // (self.data * self.micro)

    @property
    def width_bytes(self) -> int:
        """Bytes of a number in products."""
        return 4 if self.precision == "f32" else 2

    def __str__(self) -> str:
        count = self.microbatches
        words = [self.mesh, f"{count} microbatch{'es' * (count != 1)} of {self.micro}"]
        if self.pipe > 1:
            words.append(self.schedule + (f" x {self.chunks}" if self.chunks > 1 else ""))
        words += [f"zero={self.zero}"] * (self.zero > 0)
        words += [f"recompute={self.recompute}"] * (self.recompute != "none")
        return ", ".join(words)


def check_setup(model: Transformer, setup: Setup) -> Setup:
    """The setup, if it can be one of the model; raises where sizes do not divide."""
    for name in ("batch", "data", "model", "pipe", "micro", "chunks"):
        if getattr(setup, name) < 1:
            raise DomainError("plan", f"{name} must be at least 1, got {getattr(setup, name)}")
    if setup.batch % (setup.data * setup.micro):
        of = f"data={setup.data} times micro={setup.micro}"
        raise DomainError("plan", f"the batch must divide by {of}, got {setup.batch}")
    if model.heads % setup.model:
        raise DomainError("plan", f"model={setup.model} must divide the {model.heads} heads")
    # The first stage may have the table alone, the last one the logits.
    if setup.pipe * setup.chunks > model.layers + 2:
        stages = f"pipe={setup.pipe} times chunks={setup.chunks}"
        raise DomainError("plan", f"there must be a layer for each stage, got {stages} for {model.layers}")
    if setup.recompute not in RECOMPUTE:
        raise DomainError("plan", f"recompute must be one of {', '.join(RECOMPUTE)}, got {setup.recompute!r}")
    if setup.zero not in (0, 1, 2, 3):
        raise DomainError("plan", f"zero must be 0, 1, 2 or 3, got {setup.zero!r}")
    return setup
