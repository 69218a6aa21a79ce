"""``weft serve``: saved graphs behind HTTP."""

from __future__ import annotations

import argparse
import os
import sys

import weft
from weft.cli.arguments import Commands, not_negative, positive
from weft.errors import ArgumentError

_MEGABYTE = 1 << 20


def add(commands: Commands) -> None:
    """Describe the command."""
    parser = commands.add_parser(
        "serve", help="serve saved graphs by the Open Inference Protocol (KServe v2)"
    )
    parser.add_argument(
        "models", nargs="+", metavar="[NAME=]FILE", help="graphs (.weft), or ONNX models (.onnx)"
    )
    parser.add_argument("--host", default="127.0.0.1", help="where to listen (127.0.0.1)")
    parser.add_argument("--port", type=_port, default=8000, help="0: the system chooses one (8000)")
    parser.add_argument("--max-batch", type=positive, default=64, help="rows that are run at once (64)")
    parser.add_argument("--max-delay-ms", type=not_negative, default=0.0, help="to wait for others with (0)")
    parser.add_argument("--max-queue", type=positive, default=256, help="requests of a model that wait (256)")
    parser.add_argument("--max-body-mb", type=not_negative, default=64.0, help="size of a request (64)")
    parser.add_argument("--timeout", type=not_negative, default=30.0, help="seconds to an answer (30)")
    parser.add_argument(
        "--read-timeout", type=not_negative, default=60.0, help="seconds to send a request in (60)"
    )
    parser.add_argument(
        "--drain", type=not_negative, default=0.5, help="seconds to listen on after a signal (0.5)"
    )
    parser.add_argument(
        "--grace",
        type=not_negative,
        default=25.0,
        help="seconds to answer in after that, then runs are stopped (25)",
    )
    parser.add_argument(
        "--batch-size", default="", metavar="NAME", help="the size that counts rows (batch...)"
    )
    parser.add_argument("--workers", type=positive, default=1, help="processes that serve (1)")
    parser.add_argument("--threads", type=positive, help="threads that the graphs use, in each process")
    parser.add_argument("--backend", help="what runs the graphs (llvm, interpret)")
    parser.add_argument("--device", help="where they run: cpu, cuda, cuda:1 (cpu)")
    parser.set_defaults(run=run)


def _port(text: str) -> int:
    if not (text.isdecimal() and int(text) < 65536):
        raise argparse.ArgumentTypeError(f"must be a number from 0 to 65535, got {text!r}")
    return int(text)


def run(options: argparse.Namespace) -> int:
    """Serve until a signal comes."""
    same = "host port backend device workers threads max_batch max_queue timeout read_timeout drain grace"
    chosen = {name: getattr(options, name) for name in (*same.split(), "batch_size")}
    chosen["max_delay"] = options.max_delay_ms / 1000.0
    chosen["max_body"] = max(1, round(options.max_body_mb * _MEGABYTE))
    answered = weft.serve.run(_models(options.models), told=_told, **chosen)
    if not answered:
        sys.stdout.flush()
        os._exit(1)  # a second signal: what still runs is not waited for
    return 0


def _models(texts: list[str]) -> dict[str, str]:
    """Paths by name; a file that is given without one is called like it."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, path = text.partition("=")
        if not equals or os.path.exists(text):
            name, path = os.path.splitext(os.path.basename(text))[0], text
        if name in found:
            hint = f"give names: first={found[name]} second={path}"
            raise ArgumentError("serve", f"names of models must be distinct, got {name} twice", hint=hint)
        found[name] = path
    return found


def _told(address: str) -> None:
    sys.stdout.write(f"weft: serving on {address} (process {os.getpid()})\n")
    sys.stdout.flush()
