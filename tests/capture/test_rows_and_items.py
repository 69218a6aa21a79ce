"""Rows of tensors that loops go along, and lists that they fill: views and items as in eager code."""

from __future__ import annotations

import textwrap

import pytest

from tests.capture.state_programs import check_source
from tests.capture.state_source import PREAMBLE

PROGRAMS = {
    "one of two tensors, picked before, in a comprehension": """
        v2 = o.p
        if D["x"].sum() > 0.3:
            v2 = net.kept
        l2 = [v2 for x2 in range(2)]
        v2, o.q = l2
        return a, o.prop
    """,
    "the last row of enumerate": """
        for k, r in enumerate(m):
            v0 = r
        return v0, a
    """,
    "the last rows of zip": """
        for r, q in zip(m, m):
            v0 = r
            v1 = q
        return v0, v1
    """,
    "the last row of reversed": """
        for r in reversed(m):
            v0 = r
        return v0, a
    """,
    "the row at a break": """
        v0 = a
        for r in m:
            v0 = r
            if r.sum() > c:
                break
        return v0, a
    """,
    "a row kept after continue": """
        v0 = a
        for r in m:
            if r.sum() > c:
                continue
            v0 = r
        v0 += 1
        return v0, a
    """,
    "rows in a comprehension": """
        l = [r for r in m]
        return l[0], l[1]
    """,
    "the tensor changes while its rows are gone along": """
        for r in m:
            m += 1.0
            v0 = r * 1.0
        return v0, a
    """,
    "a row and the tensor change in turn": """
        for r in m:
            m[1] += 1.0
            r *= 2.0
            a += r
        return a, a
    """,
    "views of rows": """
        for r in m:
            o.p = r[1:]
            o.q = r.view(3)
        o.q += 1.0
        return a, a
    """,
    "rows in a list": """
        l = []
        for r in m:
            l.append(r)
        return l[0], l[1]
    """,
    "a row in a list changes": """
        l = []
        for r in m:
            l.append(r)
        l[0] += 1
        return l[0], l[1]
    """,
    "rows in a loop of unknown length": """
        for i in range(n):
            for r in m:
                o.p = r
            o.p += c
        return a, a
    """,
    "the row before changes": """
        prev = a
        for r in m:
            prev += r
            prev = r
        return prev, a
    """,
    "a row of a tensor made inside changes": """
        y = m * 2.0
        for r in y:
            v0 = r
        v0 += 1
        return y, v0
    """,
    "a row leaves beside its tensor": """
        y = m * 2.0
        for r in y:
            v0 = r
        return y, v0
    """,
    "rows in a dict": """
        d = {}
        for k, r in enumerate(m):
            d[k] = r
        return d[0], d[1]
    """,
    "rows of a view": """
        for r in m.T:
            v0 = r
        return v0, a
    """,
    "rows of a slice": """
        for r in m[:, 1:]:
            L[0] = r
        return a, a
    """,
    "a row that a branch picks": """
        v0 = a
        for r in m:
            if c > 0:
                v0 = r
        return v0, a
    """,
    "two loops over the rows": """
        for r in m:
            for s in m:
                o.p = s
            o.q = r
        return a, a
    """,
    "an item of one of two branches changes": """
        l = []
        if c > 0:
            l.append(z)
        else:
            l.append(a)
        l[0] += 1
        return a, a
    """,
    "the last item of a list that a branch fills": """
        l = [a]
        if c > 0:
            l.append(m[0][:])
        o.p = l[-1]
        return a, a
    """,
    "an item changes before the list is stacked": """
        l = []
        for i in range(3):
            l.append(a * i)
        l[0] += 1
        return weft.stack(l), a
    """,
    "all items change before the list is stacked": """
        l = []
        for i in range(3):
            l.append(a * i)
        for x in l:
            x *= 2
        return weft.stack(l), a
    """,
    "a hundred items, the last one a variable's": """
        l = []
        h = a
        for i in range(100):
            h = h * 0.9
            l.append(h)
        return weft.stack(l), l[98], l[99], h
    """,
    "a hundred items, the last one an attribute's, which changes": """
        l = []
        h = a
        for i in range(100):
            h = h * 0.9
            o.p = h
            l.append(h)
        o.p += 1
        return weft.stack(l), l[98], l[99], h
    """,
    "a tensor from outside twice in a list": """
        l = []
        for i in range(2):
            l.append(z)
        return l[0], l[1]
    """,
    "a variable is the last item": """
        l = []
        h = a
        for i in range(3):
            h = h * 0.5
            l.append(h)
        return l[0], l[1], l[2], h
    """,
    "an item of two lists": """
        l = []
        k = []
        for i in range(3):
            h = a * i
            l.append(h)
            k.append(h)
        return l[0], l[1], k[0], k[1]
    """,
    "an item twice": """
        l = []
        for i in range(3):
            h = a * i
            l.append(h)
            l.append(h)
        return l[0], l[1], l[2], l[3]
    """,
    "views in a list": """
        l = []
        for i in range(2):
            l.append(m[i])
        return l[0], l[1]
    """,
    "an attribute is the last item": """
        l = []
        for i in range(2):
            o.p = a * 2
            l.append(o.p)
        return l[0], l[1]
    """,
    "a tensor from outside changes after it was appended": """
        l = []
        for i in range(2):
            l.append(z)
        z += 1
        return l[0], l[1]
    """,
    "a variable changes, and so does the last item": """
        l = []
        h = a
        for i in range(3):
            h = h * 0.5
            l.append(h)
        h += 1
        return l[0], l[1], l[2], h
    """,
    "the last item changes, and so does a variable": """
        l = []
        h = a
        for i in range(3):
            h = h * 0.5
            l.append(h)
        l[-1] += 1
        return l[0], l[1], l[2], h
    """,
    "what was there before the loop is the first item": """
        l = []
        h = a
        for i in range(3):
            l.append(h)
            h = h * 0.5
        return l[0], l[1], l[2], h
    """,
    "one of two tensors in a list": """
        l = []
        for i in range(3):
            if c > 0:
                h = a
            else:
                h = z
            l.append(h)
        return l[0], l[1]
    """,
    "a tensor from outside in a comprehension": """
        l = [z for i in range(2)]
        return l[0], l[1]
    """,
    "a view in a comprehension changes": """
        l = [m[i] for i in range(2)]
        l[0] += 1
        return l[0], l[1]
    """,
    "list of a tensor": """
        l = list(m)
        l[0] += 1
        m[1] *= 2
        return l[0], l[1]
    """,
    "tuple of a tensor": """
        l = tuple(m)
        return l
    """,
    "a starred target": """
        p, *q = m
        return p, q[0]
    """,
    "extend by a tensor": """
        l = []
        l.extend(m)
        return l[0], l[1]
    """,
    "rows in a comprehension of a dict": """
        d = {k: r for k, r in enumerate(m)}
        return d[0], d[1]
    """,
}


@pytest.mark.rotating(4)
@pytest.mark.parametrize("gradients", [False, True], ids=["values", "gradients"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_rows_and_items_are_those_of_eager_code(name: str, gradients: bool) -> None:
    body = textwrap.indent(textwrap.dedent(PROGRAMS[name]).strip("\n"), " " * 8)
    source = f"{PREAMBLE}{body}\n\n    return f\n"
    assert check_source(source, f"<{name}>", gradients=gradients) == "same"
