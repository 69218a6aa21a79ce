"""``weft run``: a saved graph on arrays from files, its results to files."""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from weft.cli.arguments import Commands, add_command, positive, set_threads
from weft.errors import ArgumentError, FileError

Array = np.ndarray[Any, Any]


_INPUT = (
    "an input: x=a.npy, x=a.npz:key, x=- (a .npy file on the standard input), k=3, x=[1,2]; "
    "or all of them: arrays.npz"
)
_OUTPUT = (
    "where results go: y.npy, all.npz, y.txt, logits=y.npy, - for a .npy file on the standard output; "
    "by default they are printed"
)


def add(commands: Commands) -> None:
    """Describe the command."""
    parser = add_command(commands, "run", "run a saved graph on arrays from files", run)
    several: dict[str, Any] = {"action": "append", "default": []}
    parser.add_argument("-i", "--input", metavar="NAME=VALUE", help=_INPUT, **several)
    parser.add_argument("-o", "--output", metavar="[NAME=]FILE", help=_OUTPUT, **several)
    parser.add_argument(
        "--save", metavar="FILE", help="write the graph with the weights it has after the run"
    )
    parser.add_argument("--backend", help="what runs the graph (llvm, interpret)")
    parser.add_argument("--device", help="where it runs: cpu, cuda, cuda:1 (cpu)")
    parser.add_argument("--threads", type=positive, help="how many threads to use")


def run(options: argparse.Namespace) -> int:
    """Run the graph once."""
    from weft.io.interface import Interface, open_model

    set_threads(options.threads)
    interface = Interface(open_model(options.file, options.backend, options.device))
    names = [port.name for port in interface.inputs]
    given: dict[str, Any] = {}
    for text in options.input:
        for name, value in read_input(text, names).items():
            if name in given:
                raise ArgumentError("input", f"inputs must be given once, got {name} twice")
            given[name] = value
    outputs = [port.name for port in interface.outputs]
    targets = [_target(text, outputs) for text in options.output]
    results = dict(zip(outputs, interface.run(interface.arrays(given)), strict=True))
    for wanted, path in targets:
        write_output({name: results[name] for name in wanted}, path)
    if not targets:
        _show(results)
    if options.save:
        interface.loaded.save(options.save)
    return 0


# Inputs


def read_input(text: str, names: list[str]) -> dict[str, Any]:
    """What an ``--input`` gives, by name.

    >>> read_input("k=3", ["k"])
    {'k': 3}
    """
    name, equals, value = text.partition("=")
    if equals and (name in names or not os.path.exists(text)):
        return {name: _read_value(name, value)}
    if text.endswith(".npz"):
        return dict(_load(text).items())
    if len(names) == 1:
        return {names[0]: _read_value(names[0], text)}
    raise ArgumentError("input", f"must be like name=file.npy, got {text!r}")


def _read_value(name: str, text: str) -> Any:
    path, colon, key = text.rpartition(":")
    if colon and path.endswith(".npz"):
        found = _load(path)
        if key not in found:
            raise ArgumentError("input", f"{path} must have an array {key}, got {', '.join(found)}")
        return found[key]
    if text == "-":
        return _load(io.BytesIO(sys.stdin.buffer.read()), "the standard input")
    if text.endswith(".npz"):
        return _only(name, text, _load(text))
    if text.endswith(".npy") or os.path.exists(text):
        return _load(text)
    try:
        return json.loads(text)
    except ValueError:
        message = f"{name} must be a file (.npy, .npz) that is there, a number or a list"
        raise ArgumentError("input", f"{message}, got {text!r}") from None


def _only(name: str, path: str, found: Mapping[str, Array]) -> Array:
    if name in found:
        return found[name]
    if len(found) == 1:
        return next(iter(found.values()))
    raise ArgumentError("input", f"{path} must have an array {name}, or one alone, got {', '.join(found)}")


def _load(source: Any, shown: str = "") -> Any:
    """The array or the arrays of a file; nothing in it can run code."""
    try:
        found = np.load(source, allow_pickle=False)
        return found if isinstance(found, np.ndarray) else {name: found[name] for name in found.files}
    except (ValueError, EOFError, KeyError) as error:
        raise FileError(
            "input", f"{shown or source}: must be a file of arrays, got another ({error})"
        ) from None


# Outputs


def _target(text: str, names: list[str]) -> tuple[list[str], str]:
    """Which results go to a file."""
    name, equals, path = text.partition("=")
    if equals and name in names:
        return _target(path, [name])
    if equals and not text.startswith((".", "/")):
        raise ArgumentError("output", f"results must be among {', '.join(names)}, got {name!r}")
    ending = os.path.splitext(text)[1]
    if text != "-" and ending not in (".npy", ".npz", ".txt"):
        hint = "y.npy, all.npz, y.txt, or - for the standard output"
        raise ArgumentError("output", f"files must end in .npy, .npz or .txt, got {text!r}", hint=hint)
    if ending not in (".npz", ".txt") and len(names) != 1:
        hint = f"write several with NAME=FILE ({', '.join(names)}), or all of them to one .npz file"
        raise ArgumentError("output", f"a .npy file must have one result, got {len(names)}", hint=hint)
    return names, text


def write_output(arrays: Mapping[str, Array], path: str) -> None:
    """Write results to a file, which is there whole or not at all."""
    from weft.io.atomic import replacing

    if path == "-":
        _write_npy(sys.stdout.buffer, next(iter(arrays.values())))
        return
    with replacing(path) as file:
        if path.endswith(".txt"):
            for name, array in arrays.items():
                file.write(f"# {name}: {_type(array)}\n".encode())
                np.savetxt(file, np.asarray(array).reshape(-1, *array.shape[-1:]), "%.9g")
        elif path.endswith(".npz"):
            np.savez(file, allow_pickle=False, **{name: np.asarray(a) for name, a in arrays.items()})
        else:
            _write_npy(file, next(iter(arrays.values())))


def _type(array: Array) -> str:
    return f"{array.dtype.name}[{','.join(map(str, array.shape))}]"


def _write_npy(file: Any, array: Array) -> None:
    text = io.BytesIO()
    np.save(text, array, allow_pickle=False)
    file.write(text.getvalue())


def _show(results: Mapping[str, Array]) -> None:
    for name, array in results.items():
        sys.stdout.write(f"{name}: {_type(array)}\n{array}\n")
