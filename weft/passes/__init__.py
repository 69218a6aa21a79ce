"""Passes: pure functions from a graph to a graph, each named, and the pipeline of ``graph.optimize()``."""

from typing import Any

from weft.passes.base import Pass, graph_pass
from weft.passes.check import check_passes
from weft.passes.cse import cse
from weft.passes.dce import dce
from weft.passes.fold import fold
from weft.passes.inline import inline
from weft.passes.licm import licm
from weft.passes.lowering import LOWERING
from weft.passes.lowering.accumulate import accumulate
from weft.passes.lowering.decompose import decompose
from weft.passes.lowering.fuse_attention import fuse_attention
from weft.passes.lowering.hoist_lookups import hoist_lookups
from weft.passes.lowering.narrow_products import narrow_products
from weft.passes.lowering.recompute import recompute
from weft.passes.lowering.take_products import take_products
from weft.passes.lowering.turn_products import turn_products
from weft.passes.pipeline import PIPELINE, history, lower, optimize, register, unregister
from weft.passes.rules import RewriteRule, any_attr, rewrite
from weft.passes.share_loops import share_loops
from weft.passes.simplify import simplify
from weft.passes.unroll import unroll

__all__ = [
    "GPU_LOWERING",
    "LOWERING",
    "PIPELINE",
    "Pass",
    "RewriteRule",
    "accumulate",
    "any_attr",
    "check_passes",
    "cse",
    "dce",
    "decompose",
    "fold",
    "fuse_attention",
    "graph_pass",
    "history",
    "hoist_lookups",
    "inline",
    "licm",
    "lower",
    "narrow_products",
    "optimize",
    "recompute",
    "register",
    "rewrite",
    "share_loops",
    "simplify",
    "take_products",
    "turn_products",
    "unregister",
    "unroll",
]


def __getattr__(name: str) -> Any:
    """Passes known by their lists alone; those of programs for GPUs are imported when they are asked for."""
    from weft.base.elsewhere import unknown

    if name.startswith("__"):
        raise unknown(__name__, name)
    from weft.passes.lowering.gpu import GPU_LOWERING

    found = {"GPU_LOWERING": GPU_LOWERING, **{p.name: p for p in (*LOWERING, *GPU_LOWERING)}}
    if name not in found:
        raise unknown(__name__, name, [*__all__, *found])
    return found[name]


def __dir__() -> list[str]:
    from weft.passes.pipeline import builtin_passes

    return sorted({*globals(), *__all__, *builtin_passes()})
