"""How far training is: a bar in a notebook, one of rich on a terminal that has it, else plain lines."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from html import escape
from importlib.util import find_spec
from typing import Any, TextIO

from weft.base.notebook import Shown, in_notebook

SECONDS = 10.0  # between plain lines inside an epoch
BETWEEN = 0.2  # seconds between changes of a bar in a notebook
MOST_LINES = 50  # of a notebook, above the bar


class Progress:
    """Shows how far an epoch is; this one shows nothing."""

    def begin(self, title: str, total: int | None, done: int, later: int) -> None:
        """An epoch begins, or goes on after some batches; epochs with so many batches are to follow."""

    def advance(self, done: int, numbers: Mapping[str, float]) -> None:
        """Some batches of it are done."""

    def end(self, line: str) -> None:
        """It has ended; a line sums it up."""
        self.say(line)

    def say(self, text: str) -> None:
        """Show a line."""

    def close(self) -> None:
        """Leave the terminal as it was."""


class Lines(Progress):
    """Plain lines: one at the end of each epoch, and one every ten seconds of a long one.

    >>> import sys
    >>> from weft.train.progress import Lines
    >>> lines = Lines(sys.stdout)
    >>> lines.begin("epoch 1/2", 100, 0, 100)
    >>> lines.end("epoch 1/2: loss 0.5000")
    epoch 1/2: loss 0.5000
    """

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._pace = Pace()
        self._title = ""
        self._total: int | None = None
        self._shown = 0.0

    def begin(self, title: str, total: int | None, done: int, later: int) -> None:
        """Note where it is."""
        self._title, self._total, self._shown = title, total, time.monotonic()
        self._pace.begin(done, None if total is None else total + later)

    def advance(self, done: int, numbers: Mapping[str, float]) -> None:
        """Show a line if the last one was long ago."""
        self._pace.note(done)
        if time.monotonic() - self._shown >= SECONDS:
            self._shown = time.monotonic()
            of = "" if self._total is None else f"/{self._total}"
            shown = [f"{done}{of}", f"{self._pace.rate():.1f}/s", as_text(numbers), self._pace.left_text()]
            self.say(f"{self._title}: {', '.join(filter(None, shown))}")

    def say(self, text: str) -> None:
        """Show a line at once."""
        print(text, file=self._file, flush=True)


class Bar(Progress):
    """A bar of rich, with rate, numbers and time left."""

    def __init__(self) -> None:
        from rich.progress import BarColumn, Progress, TextColumn

        columns = [
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed:.0f}{task.fields[of]}"),
            TextColumn("[cyan]{task.fields[rate]}"),
            TextColumn("[green]{task.fields[numbers]}"),
            TextColumn("[yellow]{task.fields[left]}"),
        ]
        self._bar = Progress(*columns, transient=True)
        self._pace = Pace()
        self._task: Any = None
        self._bar.start()

    def begin(self, title: str, total: int | None, done: int, later: int) -> None:
        """Show an empty bar."""
        if self._task is not None:
            self._bar.remove_task(self._task)
        of = "" if total is None else f"/{total}"
        self._pace.begin(done, None if total is None else total + later)
        self._task = self._bar.add_task(
            title, total=total, completed=done, of=of, rate="", numbers="", left=""
        )

    def advance(self, done: int, numbers: Mapping[str, float]) -> None:
        """Move the bar."""
        self._pace.note(done)
        rate, left = f"{self._pace.rate():.1f}/s", self._pace.left_text()
        self._bar.update(self._task, completed=done, rate=rate, numbers=as_text(numbers), left=left)

    def say(self, text: str) -> None:
        """Show a line above the bar."""
        self._bar.console.print(text, highlight=False, markup=False)

    def close(self) -> None:
        """Remove the bar."""
        self._bar.stop()


class NotebookBar(Progress):
    """A bar below the cell of a notebook, with rate, numbers and time left; lines stay below it."""

    def __init__(self) -> None:
        self._pace = Pace()
        self._title = ""
        self._total: int | None = None
        self._lines: list[str] = []
        self._drawn = 0.0
        self._shown = Shown("", "")

    def begin(self, title: str, total: int | None, done: int, later: int) -> None:
        """Show an empty bar."""
        self._title, self._total = title, total
        self._pace.begin(done, None if total is None else total + later)
        self._draw(done, {})

    def advance(self, done: int, numbers: Mapping[str, float]) -> None:
        """Move the bar, a few times a second."""
        self._pace.note(done)
        if time.monotonic() - self._drawn >= BETWEEN:
            self._draw(done, numbers)

    def _draw(self, done: int, numbers: Mapping[str, float]) -> None:
        self._drawn = time.monotonic()
        of = "" if self._total is None else f"/{self._total}"
        told = [f"{done}{of}", f"{self._pace.rate():.1f}/s", as_text(numbers), self._pace.left_text()]
        text = "  ".join(filter(None, told))
        size = "" if self._total is None else f' value="{done}" max="{max(self._total, 1)}"'
        bar = f"<div>{escape(self._title)} <progress{size}></progress> {escape(text)}</div>"
        self._update(bar, f"{self._title}: {text}")

    def _update(self, bar: str, plain: str) -> None:
        lines = "".join(f"<div>{escape(line)}</div>" for line in self._lines)
        style = "font-family:monospace;font-size:13px;white-space:pre-wrap"
        self._shown.update(f'<div style="{style}">{lines}{bar}</div>', "\n".join([*self._lines, plain]))

    def say(self, text: str) -> None:
        """Show a line above the bar; of very many the last ones."""
        self._lines = [*self._lines, text][-MOST_LINES:]
        self._update("", "")

    def close(self) -> None:
        """Remove the bar; the lines stay."""
        self._update("", "")


class Pace:
    """How fast batches are done, from the times of late.

    >>> from weft.train.progress import Pace
    >>> pace = Pace()
    >>> pace.begin(0, 10)
    >>> pace.left() is None
    True
    """

    def __init__(self) -> None:
        self._marks: list[tuple[float, int]] = []
        self._total: int | None = None

    def begin(self, done: int, total: int | None) -> None:
        """Start the clock; so many batches are done, and so many there are until the end of training."""
        self._marks, self._total = [(time.monotonic(), done)], total

    def note(self, done: int) -> None:
        """Some batches are done by now."""
        now = time.monotonic()
        self._marks.append((now, done))
        if len(self._marks) > 200:  # the rate is that of the last hundred batches or more
            del self._marks[:100]

    def rate(self) -> float:
        """Batches a second; 0 if that is not known yet."""
        (start, first), (end, last) = self._marks[0], self._marks[-1]
        return (last - first) / (end - start) if end > start else 0.0

    def left(self) -> float | None:
        """Seconds until all are done; None if that is not known."""
        rate = self.rate()
        if self._total is None or rate == 0.0:
            return None
        return max(0, self._total - self._marks[-1][1]) / rate

    def left_text(self) -> str:
        """The time that is left, "" if it is not known."""
        left = self.left()
        return "" if left is None else f"{as_time(left)} left"


def as_text(numbers: Mapping[str, float]) -> str:
    """Numbers in a line.

    >>> from weft.train.progress import as_text
    >>> as_text({"loss": 0.25, "accuracy": 0.5})
    'loss 0.2500  accuracy 0.5000'
    """
    return "  ".join(f"{name} {x:.4f}" for name, x in numbers.items())


def as_time(seconds: float) -> str:
    """Seconds as ``1:02:03``.

    >>> from weft.train.progress import as_time
    >>> as_time(3723.4), as_time(59.0)
    ('1:02:03', '0:59')
    """
    whole = int(seconds)
    hours, minutes = whole // 3600, whole // 60 % 60
    return f"{hours}:{minutes:02d}:{whole % 60:02d}" if hours else f"{minutes}:{whole % 60:02d}"


def make_progress(shown: bool) -> Progress:
    """What fits the output: nothing, a bar, or lines."""
    if not shown:
        return Progress()
    if in_notebook():
        return NotebookBar()
    if sys.stdout.isatty() and find_spec("rich") is not None:
        return Bar()
    return Lines(sys.stdout)
