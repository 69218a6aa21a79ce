"""What converted code calls: each statement and expression that may meet a tensor of a graph.

``weft.capture.convert`` rewrites a function so that its control flow goes through these functions. Where
the value that decides is plain Python they do what Python does. Where it is a tensor of the graph being
captured they put control flow into the graph; where the capture only traces, they ask for the value, which
leaves a guard.
"""

from __future__ import annotations

from weft.capture.runtime_access import augmented, delitem, getitem, new_dict, new_list, new_set, setitem
from weft.capture.runtime_access import delattr_ as delattr
from weft.capture.runtime_access import getattr_ as getattr
from weft.capture.runtime_access import setattr_ as setattr
from weft.capture.runtime_branch import and_, assert_stmt, compare, if_exp, if_stmt, not_, or_
from weft.capture.runtime_calls import call, call_method, enter, returned
from weft.capture.runtime_loop import for_stmt, while_stmt
from weft.capture.runtime_names import note_missing as _note_missing  # noqa: F401 - enters handlers
from weft.capture.runtime_raise import raised, unfinished
from weft.capture.runtime_sizes import compare_size as _compare_sizes  # noqa: F401 - enters a rule
from weft.capture.runtime_whole import items, whole
from weft.capture.undefined import load, undefined

__all__ = [
    "and_",
    "assert_stmt",
    "augmented",
    "call",
    "call_method",
    "compare",
    "delattr",
    "delitem",
    "enter",
    "for_stmt",
    "getattr",
    "getitem",
    "if_exp",
    "if_stmt",
    "items",
    "load",
    "new_dict",
    "new_list",
    "new_set",
    "not_",
    "or_",
    "raised",
    "returned",
    "setattr",
    "setitem",
    "undefined",
    "unfinished",
    "while_stmt",
    "whole",
]
