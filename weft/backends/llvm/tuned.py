"""The tuning in force: what ``weft tune`` measured on this processor, else the table of its family.

Measured ones stand in one file, by processor, as a home may be shared by machines of several kinds. A file
that cannot be read is said to be so, once, and does without.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from weft.backends.capabilities import Told
from weft.backends.llvm.emit.instructions import instruction_set
from weft.backends.llvm.target import Target
from weft.backends.llvm.tuning_file import state_of, tuning_file
from weft.schedule.cpu.machine import Machine
from weft.schedule.cpu.tuning import LIMITS, OTHER, Tuning, built_in, family_of

FORMAT = "weft tuning 1"
_LARGEST = 1 << 20  # bytes of a file that is read
_read: dict[tuple[str, int, int], dict[str, Tuning]] = {}
_trial: list[Tuning] = []


def tuning_of(processor: str) -> Told:
    """The tuning of a processor, by the name that LLVM has for it.

    >>> from weft.backends.llvm.tuned import tuning_of
    >>> tuning_of("neoverse-n1").source
    'the table for Neoverse N1'
    """
    if _trial:
        return Told(_trial[-1], "a trial")
    path = tuning_file()
    found = None if path is None else measured(path).get(processor)
    if found is not None:
        return Told(found, f"measured here: {path}")
    family = family_of(processor)
    source = "the table for any processor" if family == OTHER else f"the table for {family}"
    return Told(built_in(processor), source)


def machine_like(target: Target) -> Machine:
    """What the schedule knows of a target."""
    tuning = tuning_of(target.cpu).tuning
    return Machine(target.vector_bytes, target.registers, tuning, instruction_set(target).dots)


@contextmanager
def trying(tuning: Tuning) -> Iterator[None]:
    """Compile by a tuning inside a block."""
    _trial.append(tuning)
    try:
        yield
    finally:
        _trial.pop()


# The file


def measured(path: str) -> dict[str, Tuning]:
    """The tunings in a file, by processor; none where it is not there or makes no sense."""
    state = state_of(path)
    if state is None:
        return {}
    if state not in _read:
        try:
            _read[state] = _parsed(path)
        except (OSError, ValueError) as error:
            _read[state] = {}
            text = f"{path} holds no tuning that weft knows: {error} (`weft tune` writes it anew)"
            warnings.warn(text, RuntimeWarning, stacklevel=2)
    return _read[state]


def text_of(tunings: dict[str, Tuning]) -> str:
    """What a file of tunings has in it."""
    told = {name: t._asdict() for name, t in sorted(tunings.items())}
    return json.dumps({"format": FORMAT, "processors": told}, indent=2) + "\n"


def _parsed(path: str) -> dict[str, Tuning]:
    with open(path, encoding="utf-8") as file:
        text = file.read(_LARGEST)
    found: Any = json.loads(text)
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise ValueError(f"its format must be {FORMAT!r}")
    processors = found.get("processors")
    if not isinstance(processors, dict):
        raise ValueError("it must have processors")
    return {name: _checked(name, values) for name, values in processors.items()}


def _checked(processor: str, values: Any) -> Tuning:
    """A tuning of what a file says; figures that it does not name are those of the family."""
    if not isinstance(values, dict):
        raise ValueError(f"{processor} must have figures")
    for name, value in values.items():
        if name not in LIMITS:
            raise ValueError(f"{processor} has a figure {name}, which is none of {', '.join(LIMITS)}")
        least, most = LIMITS[name]
        if type(value) is not int or not least <= value <= most:
            raise ValueError(f"{name} of {processor} must be from {least} to {most}, got {value!r}")
    return built_in(processor)._replace(**values)
