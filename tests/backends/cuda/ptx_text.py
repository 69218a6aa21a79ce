"""The text of PTX, read: entries with their parameters, their shared memory and their instructions."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np

_ENTRY = re.compile(r"\.entry\s+(\w+)\s*\((.*?)\)(.*?)\{(.*?)^\}", re.S | re.M)
_SHARED = re.compile(r"\.shared\s+\.align\s+(\d+)\s+\.[bfsu](\d+)\s+([\w$]+)(?:\[(\d+)\])?;")
_ASKED = re.compile(r"\.extern\s+\.shared\s+\.align\s+\d+\s+\.b8\s+(\w+)\[\]")
_LOCAL = re.compile(r"\.local\s+\.align\s+\d+\s+\.b8\s+(\w+)\[(\d+)\]")
_INSTRUCTION = re.compile(r"(?:@(!?)(%\w+)\s+)?([a-z][\w.:]*)\s*(.*);$", re.S)
_OPERAND = re.compile(r"\{[^}]*\}|\[[^\]]*\]|[^,{}\[\]]+")


class Instruction(NamedTuple):
    """One line: its predicate, whether that is turned round, its opcode in parts, and its operands."""

    negated: bool
    predicate: str
    opcode: tuple[str, ...]
    operands: tuple[str, ...]
    text: str


class Entry(NamedTuple):
    """A kernel.

    Attributes:
        parameters: their names, in order, and the first word of each.
        words: that all of them take.
        code, labels: instructions, and where labels stand among them.
        shared, local: by name, where variables are in shared memory and on a thread's stack; and the sizes.
    """

    name: str
    parameters: dict[str, int]
    words: int
    code: list[Instruction]
    labels: dict[str, int]
    symbols: dict[str, int]
    shared: int
    local: int


def read_entries(ptx: str) -> dict[str, Entry]:
    """The entries of a text, by name."""
    variables = _SHARED.findall(ptx)
    symbols, shared = _lay_out([(a, name, int(bits) // 8 * int(n or 1)) for a, bits, name, n in variables])
    shared = -(-shared // 16) * 16
    symbols |= dict.fromkeys(_ASKED.findall(ptx), shared)  # what a launch asks for is behind the rest
    found = {}
    for name, parameters, _, body in _ENTRY.findall(ptx):
        places, words = parameter_words(parameters)
        own, local = _lay_out([(16, n, size) for n, size in _LOCAL.findall(body)])
        code, labels = _read_code(body)
        found[name] = Entry(name, places, words, code, labels, {**symbols, **own}, shared, local)
    return found


def parameter_words(head: str) -> tuple[dict[str, int], int]:
    """By name of a parameter its first word, one for each but for a row of them; and how many there are."""
    places, count = {}, 0
    for name, size in re.findall(r"(\w+_param_\d+)(?:\[(\d+)\])?", head):
        places[name] = count
        count += int(size or 8) // 8
    return places, count


def _lay_out(variables: Any) -> tuple[dict[str, int], int]:
    places, at = {}, 0
    for align, name, size in variables:
        at = -(-at // int(align)) * int(align)
        places[name] = at
        at += int(size)
    return places, at


def _read_code(body: str) -> tuple[list[Instruction], dict[str, int]]:
    code: list[Instruction] = []
    labels = {}
    for line in body.splitlines():
        text = line.split("//")[0].strip()
        if text.endswith(":"):
            labels[text[:-1]] = len(code)
        elif text.endswith(";") and not text.startswith("."):
            match = _INSTRUCTION.match(text)
            assert match is not None, text
            operands = tuple(x.strip() for x in _OPERAND.findall(match[4]) if x.strip())
            code.append(
                Instruction(match[1] == "!", match[2] or "", tuple(match[3].split(".")), operands, text)
            )
    return code, labels


def literal(text: str, dtype: Any) -> Any:
    """A number of a dtype."""
    if text.startswith(("0f", "0d")):
        bits = np.array(int(text[2:], 16), np.uint32 if text[1] == "f" else np.uint64)
        exact = bits.view(np.float32 if text[1] == "f" else np.float64)
        return exact.astype(dtype) if dtype.kind == "f" else bits.astype(dtype)
    whole = int(text.removesuffix("U"), 0) % (1 << 8 * dtype.itemsize)
    return np.array(whole, f"u{dtype.itemsize}").view(dtype)
