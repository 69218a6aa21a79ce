"""``weft plan``: what a step takes on a mesh, in time, bytes and memory; and which mesh is best."""

from __future__ import annotations

import argparse
import shlex
import sys
from typing import Any

from weft.base.ranks import mesh_axes
from weft.cli.arguments import Commands, add_sizes, chosen_sizes, positive
from weft.errors import ArgumentError

_GPT = (
    "a transformer: layers=96,width=12288,heads=96,context=2048,vocab=50257; "
    "more: ffn, kv_heads, gated, tied=0, fused=0, dropout"
)
_MESH = (
    "data=16,model=8,pipe=8; of a script in the place of its own; "
    "without one, of a transformer, the best are found"
)


def add(commands: Commands) -> None:
    """Describe the command."""
    parser = commands.add_parser("plan", help="tell what a training step takes on many devices, without them")
    parser.add_argument(
        "file", nargs="?", help="a script that calls a step on a mesh, or a saved graph (.weft)"
    )
    parser.add_argument(
        "--args", type=shlex.split, default=[], metavar="TEXT", help="for the script, as one text"
    )
    parser.add_argument("--gpt", metavar="SIZES", help=_GPT)
    parser.add_argument("--batch", type=positive, help="sequences of a step of all ranks (of a transformer)")
    parser.add_argument("--gpus", type=positive, metavar="N", help="how many devices there are")
    parser.add_argument("--mesh", metavar="AXES", help=_MESH)
    parser.add_argument(
        "--cluster", "--links", metavar="NAME", help="where: a name (--clusters), or a .toml file"
    )
    parser.add_argument(
        "--memory", type=float, metavar="GB", help="that a rank may use (90 %% of its device)"
    )
    parser.add_argument("--micro", type=positive, default=1, help="sequences of a microbatch (1)")
    parser.add_argument(
        "--schedule", default="1f1b", help="of a pipeline: gpipe, 1f1b, interleaved, zero-bubble (1f1b)"
    )
    parser.add_argument("--chunks", type=positive, default=1, help="stages of a rank of a pipeline (1)")
    parser.add_argument("--zero", type=int, default=0, choices=range(4), help="what ranks of data share (0)")
    parser.add_argument(
        "--recompute", default="none", help="in backward passes: none, attention, full (none)"
    )
    parser.add_argument(
        "--precision", default="bf16", choices=("bf16", "f16", "f32"), help="of products (bf16)"
    )
    parser.add_argument("--most", type=positive, default=5, help="meshes that a search tells (5)")
    parser.add_argument("--trace", metavar="FILE", help="write the timeline for ui.perfetto.dev")
    parser.add_argument("--page", metavar="FILE", help="write a page with a picture of the timeline")
    parser.add_argument("--clusters", action="store_true", help="list the clusters that are known")
    parser.add_argument("--measure", metavar="FILE", help="measure this machine, and write it as a cluster")
    parser.add_argument("-n", type=positive, default=2, metavar="N", help="ranks to measure with (2)")
    add_sizes(parser, "values of named sizes of a graph")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Plan, search, measure or list."""
    if options.clusters:
        return _list_clusters()
    if options.measure:
        return _measure(options)
    if (options.file is None) == (options.gpt is None):
        raise ArgumentError(
            "plan", "takes a file or --gpt, got " + ("none" if options.file is None else "both")
        )
    plan = _plan_gpt(options) if options.gpt is not None else _plan_file(options)
    sys.stdout.write(f"{plan}\n")
    for path, write in ((options.trace, plan.trace), (options.page, plan.page)):
        if path:
            write(path)
            sys.stdout.write(f"wrote {path}\n")
    return 0


def _list_clusters() -> int:
    from weft.parallel.planner.clusters import find_cluster, known_clusters
    from weft.parallel.planner.plan import show_rate, show_size

    for name in known_clusters():
        cluster = find_cluster(name)
        device, best = cluster.device, max(cluster.device.flops.values())
        links = ", ".join(f"{link.name} {show_size(link.bandwidth)}/s" for link in cluster.links)
        sys.stdout.write(
            f"{name:<10} {device.name}, {show_rate(best)}, {show_size(device.memory)}; {links}\n"
        )
    return 0


def _measure(options: argparse.Namespace) -> int:
    from weft.io.atomic import replacing
    from weft.parallel.planner.measuring import cluster_text, measure_cluster

    text = cluster_text(measure_cluster(options.n))
    with replacing(options.measure) as file:
        file.write(text.encode())
    sys.stdout.write(text)
    return 0


# Transformers


def _plan_gpt(options: argparse.Namespace) -> Any:
    from weft.parallel.planner.clusters import find_cluster
    from weft.parallel.planner.predict import predict
    from weft.parallel.planner.setup import Setup
    from weft.parallel.planner.transformer import parse_transformer

    model = parse_transformer(options.gpt)
    if options.batch is None:
        raise ArgumentError("plan", "a transformer must have a batch, got none", hint="--batch 1536")
    cluster = find_cluster(options.cluster or "dgx-a100")
    name = f"transformer of {model.parameters / 1e9:.3g} G parameters"
    if options.mesh is None:
        return _search(options, model, cluster, name)
    axes: dict[str, Any] = dict(mesh_axes(_checked_mesh(options.mesh)))
    wrong = [axis for axis in axes if axis not in ("data", "model", "pipe")]
    if wrong:
        raise ArgumentError("plan", f"axes of a transformer are data, model and pipe, got {wrong[0]}")
    fields = ("micro", "chunks", "schedule", "zero", "recompute", "precision")
    chosen = {field: getattr(options, field) for field in fields}
    return predict(model, Setup(options.batch, **axes, **chosen), cluster, name)


def _checked_mesh(text: str) -> str:
    from weft.base.ranks import Mesh
    from weft.parallel.planner.program import as_mesh

    return as_mesh(text, Mesh("")).text


def _search(options: argparse.Namespace, model: Any, cluster: Any, name: str) -> Any:
    from weft.parallel.planner.predict import predict
    from weft.parallel.planner.search import search
    from weft.schedule.explanation import show_seconds

    if options.gpus is None:
        raise ArgumentError("plan", "needs a mesh, or a number of devices, got neither", hint="--gpus 1024")
    memory = None if options.memory is None else 1e9 * options.memory
    found = search(
        model,
        options.gpus,
        options.batch,
        cluster,
        memory=memory,
        most=options.most,
        precision=options.precision,
    )
    for number, (setup, plan, reason) in enumerate(found, 1):
        told = f"{show_seconds(plan.seconds)}, {plan.utilization:.1%}, {plan.memory_bytes / 1e9:.0f} GB"
        sys.stdout.write(f"{number}. {setup}: {told}\n")
        if reason:
            sys.stdout.write(f"   than the next: {reason}\n")
    sys.stdout.write("\n")
    return predict(model, found[0].setup, cluster, name)


# Scripts and graphs


def _plan_file(options: argparse.Namespace) -> Any:
    from weft.parallel.planner.clusters import find_cluster
    from weft.parallel.planner.scripts import plan_script

    cluster = find_cluster(options.cluster or "laptop")
    if options.file.endswith(".py"):
        return plan_script(options.file, options.args, options.mesh or "", cluster, options.gpus or 1)
    return _plan_graph(options, cluster)


def _plan_graph(options: argparse.Namespace, cluster: Any) -> Any:
    import numpy as np

    from weft.io.interface import Interface, open_model
    from weft.ir.graph import substitute_sizes
    from weft.parallel.planner.scripts import plan_graph

    if options.mesh is None:
        raise ArgumentError("plan", "a saved graph needs a mesh, got none", hint="--mesh data=8")
    interface = Interface(open_model(options.file, "interpret"))
    sizes = chosen_sizes(options.sizes, interface.sizes)
    graph = substitute_sizes(interface.loaded.graph, sizes)
    wholes = [np.zeros(v.type.shape, v.type.dtype) for v in graph.inputs]
    return plan_graph(graph, wholes, _checked_mesh(options.mesh), cluster)
