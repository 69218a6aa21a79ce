"""Runs the cells that stand on its input in a shell of IPython; what each shows goes out as JSON."""

from __future__ import annotations

import json
import sys
from typing import Any

from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from traitlets.config import Config


def run_cells(cells: list[str]) -> list[dict[str, Any]]:
    """For each cell what it shows, prints and raises."""
    config = Config()
    config.HistoryManager.enabled = False
    shell = InteractiveShell.instance(config=config)
    found = []
    for cell in cells:
        with capture_output() as taken:
            done = shell.run_cell(cell, store_history=True)
        shown = [{"data": o.data, "update": bool(o.update)} for o in taken.outputs]
        if done.result is not None:  # what a kernel would send of it
            data, _ = shell.display_formatter.format(done.result)
            shown += [{"data": data, "update": False}] if data else []
        error = done.error_in_exec
        found.append(
            {"shown": shown, "printed": taken.stdout, "error": None if error is None else str(error)}
        )
    return found


if __name__ == "__main__":
    json.dump(run_cells(json.load(sys.stdin)), sys.stdout)
