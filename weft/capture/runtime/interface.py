"""What converted code calls: each statement and expression that may meet a tensor of a graph.

``weft.capture.convert`` rewrites a function so that its control flow goes through these functions. Where
the value that decides is plain Python they do what Python does. Where it is a tensor of the graph being
captured they put control flow into the graph; where the capture only traces, they ask for the value, which
leaves a guard.
"""

from __future__ import annotations

from weft.capture.runtime.access import delitem, getitem, new_dict, new_list, new_set, setitem
from weft.capture.runtime.apart import mapped
from weft.capture.runtime.attributes import delattr_ as delattr
from weft.capture.runtime.attributes import getattr_ as getattr
from weft.capture.runtime.attributes import holds_gradient, lacks_gradient
from weft.capture.runtime.attributes import setattr_ as setattr
from weft.capture.runtime.branch import all_true, and_, any_true, assert_stmt, compare, if_exp, if_stmt, or_
from weft.capture.runtime.calls import call, call_method
from weft.capture.runtime.definitions import decorator, statements
from weft.capture.runtime.entering import enter, returned
from weft.capture.runtime.failing import finishing, started
from weft.capture.runtime.identity import is_, is_not, subject
from weft.capture.runtime.iterators import items
from weft.capture.runtime.loop import for_stmt, while_stmt
from weft.capture.runtime.names import note_missing as _note_missing  # noqa: F401 - enters handlers
from weft.capture.runtime.objects import base, managed
from weft.capture.runtime.operators import augmented, binary, unary
from weft.capture.runtime.raising import raised, trying, unfinished
from weft.capture.runtime.sizes import compare_size as _compare_sizes  # noqa: F401 - enters a rule
from weft.capture.runtime.truth import not_
from weft.capture.runtime.undefined import load, undefined
from weft.capture.runtime.whole import whole
from weft.capture.runtime.written import formatted, joined

__all__ = [
    "all_true",
    "and_",
    "any_true",
    "assert_stmt",
    "augmented",
    "base",
    "binary",
    "call",
    "call_method",
    "compare",
    "decorator",
    "delattr",
    "delitem",
    "enter",
    "finishing",
    "for_stmt",
    "formatted",
    "getattr",
    "getitem",
    "holds_gradient",
    "if_exp",
    "if_stmt",
    "is_",
    "is_not",
    "items",
    "joined",
    "lacks_gradient",
    "load",
    "managed",
    "mapped",
    "new_dict",
    "new_list",
    "new_set",
    "not_",
    "or_",
    "raised",
    "returned",
    "setattr",
    "setitem",
    "started",
    "statements",
    "subject",
    "trying",
    "unary",
    "undefined",
    "unfinished",
    "while_stmt",
    "whole",
]
