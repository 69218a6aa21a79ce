"""Conditional nodes of CUDA graphs: branches and loops that the device decides on by itself.

A node has a handle, which a kernel sets to 0 or 1: here one of a single thread, that reads a bool in memory.
The device's own function for it, ``cudaGraphSetConditional``, is known to the driver when it loads PTX.
"""

from __future__ import annotations

from typing import Any, Literal

from weft.backends.cuda.card import Card
from weft.backends.cuda.emit.kernel import WAIT, waits_for_others
from weft.backends.cuda.launches import Launch
from weft.backends.cuda.modules import load_text

_CONDITIONAL = 13  # of CUgraphNodeType
_KINDS = {"if": 0, "while": 1}  # of CUgraphConditionalNodeType
_ASSIGN = 1  # CU_GRAPH_COND_ASSIGN_DEFAULT: each launch begins with the default, which is 0
_VERSION = 12080  # of the driver, from which on branches have two sides


def has_conditions(card: Card) -> bool:
    """Whether the driver knows conditional nodes, with all that is used here."""
    return int(card.driver.cuDriverGetVersion()) >= _VERSION and hasattr(card.driver.api, "cuGraphAddNode")


class Conditions:
    """Makes conditional nodes on a device."""

    def __init__(self, card: Card) -> None:
        self._card = card

    def handle(self, root: Any) -> Any:
        """A handle for one node of a graph, or of one inside of it."""
        return self._card.driver.cuGraphConditionalHandleCreate(root, self._card.context, 0, _ASSIGN)

    def launch(self, handle: Any, flag: int, context: int) -> Launch:
        """What sets a handle: a flag's bool, if there is a flag, and that nothing has failed in a context."""
        function = load_text(self._card, setter_text(self._card.architecture)).function("weft_set_condition")
        launch = Launch(function, 3)
        launch.set(int(handle), flag, context)
        return launch

    def add(
        self, graph: Any, before: list[Any], handle: Any, kind: Literal["if", "while"], count: int
    ) -> tuple[Any, list[Any]]:
        """A node after others, and the graphs of its bodies."""
        api: Any = self._card.driver.api
        params = api.CUgraphNodeParams()
        params.type = getattr(api, "CUgraphNodeType", int)(_CONDITIONAL)
        params.conditional.handle = handle
        params.conditional.type = getattr(api, "CUgraphConditionalNodeType", int)(_KINDS[kind])
        params.conditional.size = count
        params.conditional.ctx = self._card.context
        node = self._card.driver.cuGraphAddNode(graph, before or None, None, len(before), params)
        return node, [params.conditional.phGraph_out[i] for i in range(count)]


def setter_text(architecture: str) -> str:
    """The PTX of the kernel that sets a handle."""
    return f""".version 8.6
.target {architecture}
.address_size 64

.extern .func cudaGraphSetConditional
(
  .param .b64 cudaGraphSetConditional_param_0,
  .param .b32 cudaGraphSetConditional_param_1
);

.visible .entry weft_set_condition(
  .param .u64 p_handle,
  .param .u64 p_flag,
  .param .u64 p_context
)
{{
  .reg .pred %p<4>;
  .reg .b16 %h<2>;
  .reg .b32 %r<4>;
  .reg .b64 %d<6>;
  {WAIT if waits_for_others(architecture) else ""}
  ld.param.u64 %d1, [p_handle];
  ld.param.u64 %d2, [p_flag];
  ld.param.u64 %d3, [p_context];
  mov.u32 %r1, 1;
  setp.eq.u64 %p1, %d2, 0;
  @%p1 bra FAILED;
  ld.global.u8 %h1, [%d2];
  setp.ne.u16 %p2, %h1, 0;
  selp.u32 %r1, 1, 0, %p2;
FAILED:
  setp.eq.u64 %p1, %d3, 0;
  @%p1 bra SET;
  ld.global.u64 %d4, [%d3];
  setp.eq.u64 %p3, %d4, 0;
  selp.u32 %r1, %r1, 0, %p3;
SET:
  {{
  .param .b64 param0;
  st.param.b64 [param0], %d1;
  .param .b32 param1;
  st.param.b32 [param1], %r1;
  call.uni cudaGraphSetConditional, (param0, param1);
  }}
  ret;
}}
"""
