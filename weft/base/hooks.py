"""What lower layers ask of higher ones: each hook names the function that answers, imported at first use.

Imports go downwards (``tests/test_layers.py``); where a lower layer must run something of a higher one, it
asks this table, and nothing else. Types of higher layers stand here for the type checker alone.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from weft.base.device import Device
    from weft.base.ranks import World
    from weft.base.sizes import Size
    from weft.ir.graph import Graph, Node
    from weft.ops.op import Composite, Op
    from weft.passes.base import Pass
    from weft.tensor.call import Call
    from weft.tensor.large import Layer

F = TypeVar("F", bound=Callable[..., Any])
_Call = tuple[Any, ...]  # the positional arguments of a call of the user


class late(Generic[F]):  # noqa: N801 - reads as what it says of a field
    """A function of a higher layer, ``"module:function"``; its module is imported at first use."""

    __slots__ = ("name", "place")

    def __init__(self, place: str) -> None:
        self.place = place

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, hooks: Hooks, owner: type) -> F:
        module, _, function = self.place.partition(":")
        found: F = getattr(import_module(module), function)
        hooks.__dict__[self.name] = found  # from now on this descriptor is not asked
        return found


class if_loaded(Generic[F]):  # noqa: N801 - likewise
    """The same, but None unless something else imported the module: without it there is nothing to ask."""

    __slots__ = ("name", "place")

    def __init__(self, place: str) -> None:
        self.place = place

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, hooks: Hooks, owner: type) -> F | None:
        module, _, function = self.place.partition(":")
        found: F | None = getattr(sys.modules.get(module), function, None)  # None while it is being imported
        if found is not None:
            hooks.__dict__[self.name] = found
        return found


class Hooks:
    """The table. A profile replaces some of the functions while it watches."""

    # named sizes in arithmetic and comparisons
    compute_with_size: if_loaded[Callable[[str, Size, object, bool], Any]] = if_loaded(
        "weft.ops.size:compute_with_size"
    )
    compare_size: if_loaded[Callable[[str, Size, object], Any]] = if_loaded(
        "weft.capture.runtime.sizes:compare_size"
    )
    fresh_size: late[Callable[[], Size]] = late("weft.transform.fresh:fresh_size")
    number_of_size: if_loaded[Callable[[Size], Any]] = if_loaded("weft.capture.runtime.number:number_of")

    # views
    note_layout: late[Callable[[Any], None]] = late("weft.transform.capture_root:note_layout")

    # ops and composites on tensors
    tensor_function: late[Callable[[Op], Callable[..., Any]]] = late("weft.tensor.fast:build")
    publish: if_loaded[Callable[[Op], None]] = if_loaded("weft.tensor.published:publish")
    run_composite: late[Callable[[Composite, _Call, dict[str, Any]], Any]] = late(
        "weft.transform.scopes:run_composite"
    )
    note_checkpoint: late[Callable[[Any, int], None]] = late("weft.transform.scopes:note_checkpoint")
    run_in_precision: late[Callable[[str, Callable[..., Any], _Call, dict[str, Any]], Any]] = late(
        "weft.tensor.autocast:run_in_precision"
    )
    recording: late[Callable[[], bool]] = late("weft.tensor.dispatch:recording")
    run_backward: late[Callable[..., Any]] = late("weft.tensor.engine:run_backward")
    call_large: late[Callable[[Composite, _Call, dict[str, Any]], Any]] = late("weft.tensor.large:call_large")
    load_kernels: late[Callable[[], Layer | None]] = late("weft.backends.eager:load_kernels")
    nonzero: late[Callable[[Any], Any]] = late("weft.tensor.dynamic:nonzero")
    pytorch_function: late[Callable[[str], Callable[..., Any]]] = late("weft.tensor.pytorch:pytorch_function")
    tensor_text: late[Callable[[Any, str, str], str]] = late("weft.tensor.tensor:tensor_text")
    call_converted: if_loaded[Callable[..., Any]] = if_loaded("weft.capture.runtime.calls:call")
    run_where: late[Callable[[Any, Callable[[], Any], Callable[[], Any]], Any]] = late(
        "weft.capture.runtime.branch:run_where"
    )
    apply_in_region: late[Callable[[Any, Sequence[Any]], tuple[Any, Call]]] = late(
        "weft.transform.function_region:apply_in_region"
    )

    # tensors on devices
    found_device: late[Callable[[Device], Device]] = late("weft.backends.cuda.placing:found_device")
    cuda_devices: late[Callable[[], list[Device]]] = late("weft.backends.cuda.placing:cuda_devices")
    copy_to: late[Callable[[Any, Device], Any]] = late("weft.backends.cuda.placing:copy_to")
    new_filled: late[Callable[[_Call, Any, Any, Device], Any]] = late("weft.backends.cuda.placing:new_filled")
    evaluate_on_device: late[Callable[[Op, Sequence[Any], Sequence[Any], dict[str, Any]], _Call]] = late(
        "weft.backends.cuda.eager:evaluate_on_device"
    )
    pull_on_device: late[Callable[[Any, Any, _Call, _Call], Sequence[Any] | None]] = late(
        "weft.backends.cuda.backward:pull_on_device"
    )
    short_pull: late[Callable[[Any, tuple[bool, ...], bool], Callable[[Any, _Call], Any]]] = late(
        "weft.backends.cuda.backward:short_pull"
    )
    build_on_device: late[Callable[[Callable[..., Any], Any], Callable[..., Any]]] = late(
        "weft.backends.cuda.placed:placed_build"
    )
    arena_on_device: late[Callable[[Graph, Any], Any]] = late("weft.backends.cuda.placed:arena_on_device")
    import_from_device: late[Callable[..., Any]] = late("weft.backends.cuda.exchange:import_array")
    describe_on_device: late[Callable[[Any, object], dict[str, Any]]] = late(
        "weft.backends.cuda.exchange:array_interface"
    )
    export_from_device: late[Callable[..., Any]] = late("weft.backends.cuda.exchange:export_array")

    # several processes
    process_world: late[Callable[[], World]] = late("weft.parallel.world:process_world")
    mesh_builder: late[Callable[..., tuple[Sequence[Pass], Callable[..., Any], frozenset[str]]]] = late(
        "weft.parallel.step:mesh_builder"
    )

    evaluate_placed: late[Callable[[Op, Sequence[Any], Sequence[Any], dict[str, Any]], _Call]] = late(
        "weft.parallel.eager:evaluate_placed"
    )
    whole_array: late[Callable[[Any], Any]] = late("weft.parallel.placing:whole_array")

    # derivatives and batching of control flow
    branch_vjp: late[Callable[..., Any]] = late("weft.transform.control.reverse:branch_vjp")
    while_vjp: late[Callable[..., Any]] = late("weft.transform.control.reverse:while_vjp")
    scan_vjp: late[Callable[..., Any]] = late("weft.transform.control.reverse:scan_vjp")
    branch_ways: late[Callable[..., Any]] = late("weft.transform.control.ways:branch_ways")
    while_ways: late[Callable[..., Any]] = late("weft.transform.control.ways:while_ways")
    scan_ways: late[Callable[..., Any]] = late("weft.transform.control.ways:scan_ways")
    branch_jvp: late[Callable[..., Any]] = late("weft.transform.control.forward:branch_jvp")
    while_jvp: late[Callable[..., Any]] = late("weft.transform.control.forward:while_jvp")
    scan_jvp: late[Callable[..., Any]] = late("weft.transform.control.forward:scan_jvp")
    branch_batch: late[Callable[..., Any]] = late("weft.transform.control.batch:branch_batch")
    while_batch: late[Callable[..., Any]] = late("weft.transform.control.batch:while_batch")
    scan_batch: late[Callable[..., Any]] = late("weft.transform.control.batch:scan_batch")
    function_vjp: late[Callable[..., Any]] = late("weft.transform.function_region:function_vjp")

    # the text of graphs
    find_op: late[Callable[[str], Any]] = late("weft.ops.table:find_op")
    op_names: late[Callable[[], list[str]]] = late("weft.ops.table:op_names")
    argument_names: late[Callable[[str], tuple[tuple[str, ...], int]]] = late("weft.ops.table:argument_names")
    call_outputs: late[Callable[[Node], Any]] = late("weft.transform.composites:call_outputs")
    composite_body: late[Callable[..., Graph]] = late("weft.transform.composites:composite_body")

    # what compiled functions do beyond running
    builder: late[Callable[..., Callable[..., Any]]] = late("weft.backends:builder")
    default_backend: late[Callable[[], str]] = late("weft.backends:default_backend")
    compile: late[Callable[..., Any]] = late("weft.compile:compile")
    step_call: late[Callable[..., Any]] = late("weft.capture.call.stepping:step_call")
    plan_call: late[Callable[..., Any]] = late("weft.parallel.planner.program:plan_call")
    diff_calls: late[Callable[..., Any]] = late("weft.capture.call.diffing:diff_calls")
    save_version: late[Callable[..., None]] = late("weft.io.model:save_version")
    export_function: late[Callable[..., None]] = late("weft.library.export:export_function")

    # what notebooks show
    graph_html: late[Callable[[Any], str]] = late("weft.viewer.notebook:graph_html")
    function_html: late[Callable[[Any], str]] = late("weft.viewer.notebook:function_html")
    profile_html: late[Callable[[Any], str]] = late("weft.viewer.notebook:profile_html")
    module_html: late[Callable[[Any], str]] = late("weft.viewer.notebook:module_html")
    summary_html: late[Callable[[Any], str]] = late("weft.viewer.notebook:summary_html")


hooks = Hooks()


GRAPH_METHODS: dict[str, str] = {  # methods of a graph that other modules have, and where
    "enter_graph": "weft.capture.static.block",
    "exit_graph": "weft.capture.static.block",
    "call_graph": "weft.capture.call.calling",
    "run": "weft.capture.call.calling",
    "step": "weft.capture.call.stepping",
    "diff": "weft.capture.call.diffing",
    "to_text": "weft.ir.text",
    "constant_data": "weft.ir.text",
    "same": "weft.ir.compare",
    "difference": "weft.ir.compare",
    "verify": "weft.ir.verify",
    "value": "weft.ir.surgery",
    "clone": "weft.ir.surgery",
    "extract": "weft.ir.surgery",
    "cut": "weft.ir.surgery",
    "replace_values": "weft.ir.surgery",
    "stats": "weft.ir.stats",
    "optimize": "weft.passes.pipeline",
    "history": "weft.passes.pipeline",
    "rewrite": "weft.passes.replace",
    "memory": "weft.schedule.memory_report",
}


def graph_method(name: str) -> Callable[..., Any]:
    """The function that a method of graphs is."""
    found: Callable[..., Any] = getattr(import_module(GRAPH_METHODS[name]), name)
    return found
