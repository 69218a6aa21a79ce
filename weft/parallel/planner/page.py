"""The page of a plan: one file of HTML with its text, its parts as bars, and a picture of the timeline."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from weft.base.pages import fill_page
from weft.parallel.planner.plan import Event, Plan, show_size
from weft.schedule.explanation import show_seconds

_WIDTH, _ROW, _LABEL = 1200, 22, 70  # of the picture, in units of its own
_RANKS = 16  # that are drawn at most
_FINEST = 0.4  # units: what is shorter is drawn with its neighbours
_COLOURS = {
    "forward": "#4c8bd6",
    "backward": "#3fa878",
    "weights": "#8fcf6a",
    "compute": "#4c8bd6",
    "optimizer": "#8a63c9",
    "recompute": "#e0a72e",
    "bubble": "#d5d9de",
}
_MOVES = ("#d9603b", "#c2447e", "#b8862b", "#5c6fc4", "#2f9aa8", "#94614a")  # what goes over links


def colours_of(plan: Plan) -> dict[str, str]:
    """A colour for each part of a plan, and each kind of event."""
    names = [*plan.parts, *[e.kind for e in plan.events], *[t.what for t in plan.traffic]]
    found: dict[str, str] = {}
    moves = iter(_MOVES * (1 + len(names) // len(_MOVES)))
    for name in dict.fromkeys(names):
        found[name] = _COLOURS.get(name) or next(moves)
    return found


def page_text(plan: Plan) -> str:
    """The page, with everything in it.

    >>> from weft.parallel.planner.page import page_text
    >>> from weft.parallel.planner.plan import Event, Plan
    >>> events = [Event(0, "F0", "forward", 0.0, 1.0)]
    >>> plan = Plan("f", "data=1", "laptop", 1, 1.0, {"forward": 1.0}, [], {}, 0.0, 1.0, 0.0, events)
    >>> "<svg" in page_text(plan)
    True
    """
    colours = colours_of(plan)
    parts = {
        "title": escape(f"plan of {plan.name}"),
        "summary": escape(f"{plan.setup} on {plan.cluster}"),
        "numbers": "".join(_numbers(plan)),
        "parts": "".join(_bars(plan.parts, plan.seconds, colours, show_seconds)),
        "memory": "".join(_bars(plan.memory, plan.limit or plan.memory_bytes, colours, show_size)),
        "timeline": "".join(_timeline(plan, colours)),
        "text": escape(str(plan)),
    }
    return fill_page("weft.parallel.planner", parts)


def _numbers(plan: Plan) -> Iterator[str]:
    shown = {
        "a step": show_seconds(plan.seconds),
        "ranks": f"{plan.ranks:,}",
        "of the peak": f"{plan.utilization:.1%}",
        "bubble": f"{plan.bubble:.1%}",
        "memory of a rank": show_size(plan.memory_bytes),
    }
    for name, text in shown.items():
        yield f"<div><b>{escape(text)}</b>{escape(name)}</div>"


def _bars(rows: object, whole: float, colours: dict[str, str], show: object) -> Iterator[str]:
    assert isinstance(rows, dict)
    assert callable(show)
    for name, amount in rows.items():
        if amount > 0:
            share = min(100.0, 100 * amount / whole) if whole else 0.0
            colour = colours.get(name, "#7d8894")
            bar = f'<i style="width:{share:.2f}%;background:{colour}"></i>'
            yield f"<tr><td>{escape(name)}</td><td>{escape(show(amount))}</td><td>{bar}</td></tr>"


def _timeline(plan: Plan, colours: dict[str, str]) -> Iterator[str]:
    """The events as a picture: a row for each rank, and a thin one below for what its links do."""
    ranks = sorted({e.rank for e in plan.events})
    step = -(-len(ranks) // _RANKS) if ranks else 1
    shown = [*ranks[::step][:-1], ranks[-1]] if len(ranks) > _RANKS else ranks
    end = max([e.end for e in plan.events], default=1.0) or 1.0
    height = len(shown) * _ROW + 24
    yield f'<svg viewBox="0 0 {_WIDTH + _LABEL} {height}" role="img" aria-label="timeline">'
    for row, rank in enumerate(shown):
        top = row * _ROW
        yield f'<text x="0" y="{top + 14}">rank {rank}</text>'
        yield f'<rect x="{_LABEL}" y="{top + 2}" width="{_WIDTH}" height="{_ROW - 6}" fill="#eef0f3"/>'
        for lane, (y, size) in {"compute": (top + 2, _ROW - 9), "links": (top + _ROW - 7, 4)}.items():
            own = [e for e in plan.events if e.rank == rank and e.lane == lane]
            for e in _merged(own, end):
                x, width = _LABEL + _WIDTH * e.start / end, max(0.2, _WIDTH * (e.end - e.start) / end)
                title = f"{e.name}: {show_seconds(e.end - e.start)} from {show_seconds(e.start)}"
                yield (
                    f'<rect x="{x:.2f}" y="{y}" width="{width:.2f}" height="{size}" fill="{colours[e.kind]}">'
                    f"<title>{escape(title)}</title></rect>"
                )
    yield from _ruler(end, height)
    yield "</svg>"
    kinds = dict.fromkeys(e.kind for e in plan.events)
    yield (
        '<p class="key">'
        + "".join(f'<span><i style="background:{colours[k]}"></i>{escape(k)}</span>' for k in kinds)
        + "</p>"
    )


def _merged(events: Sequence[Event], end: float) -> list[Event]:
    """Events in order; those of one kind that are too short to be seen are one."""
    found: list[Event] = []
    least = _FINEST * end / _WIDTH
    for e in sorted(events, key=lambda e: e.start):
        last = found[-1] if found else None
        is_short = last is not None and (e.end - e.start < least or last.end - last.start < least)
        if last is not None and is_short and last.kind == e.kind and e.start - last.end < least:
            found[-1] = last._replace(
                end=max(last.end, e.end), name=f"{last.name.split(' … ')[0]} … {e.name}"
            )
        else:
            found.append(e)
    return found


def _ruler(end: float, height: int) -> Iterator[str]:
    for i in range(5):
        x, at = _LABEL + _WIDTH * i / 4, end * i / 4
        anchor = "start" if i == 0 else "end" if i == 4 else "middle"
        yield f'<line x1="{x}" x2="{x}" y1="0" y2="{height - 18}" stroke="#c5cad1" stroke-width="0.5"/>'
        yield f'<text x="{x}" y="{height - 5}" text-anchor="{anchor}">{escape(show_seconds(at))}</text>'
