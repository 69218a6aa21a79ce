"""Passes: pure functions from a graph to a graph, each named, and the pipeline of ``graph.optimize()``."""

from weft.passes.base import Pass, graph_pass
from weft.passes.check import check_passes
from weft.passes.cse import cse
from weft.passes.dce import dce
from weft.passes.fold import fold
from weft.passes.inline import inline
from weft.passes.licm import licm
from weft.passes.pipeline import PIPELINE, history, optimize, register, unregister
from weft.passes.rules import RewriteRule, any_attr, rewrite
from weft.passes.share_loops import share_loops
from weft.passes.simplify import simplify
from weft.passes.unroll import unroll

__all__ = [
    "PIPELINE",
    "Pass",
    "RewriteRule",
    "any_attr",
    "check_passes",
    "cse",
    "dce",
    "fold",
    "graph_pass",
    "history",
    "inline",
    "licm",
    "optimize",
    "register",
    "rewrite",
    "share_loops",
    "simplify",
    "unregister",
    "unroll",
]
