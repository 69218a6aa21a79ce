"""What stands beside a library: how to use it, and how to build the example."""

from __future__ import annotations

from collections.abc import Sequence

from weft.backends.library import Model, Tensor
from weft.library.header import c_type
from weft.library.model import c_name


def makefile_text(model: Model) -> str:
    """A Makefile that builds the example."""
    return f"""CFLAGS ?= -O2 -Wall -Wextra

example: example.c {model.name}.h lib{model.name}.so
\t$(CC) $(CFLAGS) -std=c99 -o $@ example.c -L. -l{model.name} -Wl,-rpath,'$$ORIGIN'

clean:
\trm -f example

.PHONY: clean
"""


def readme_text(
    model: Model, *, version: str, cpu: str, files: dict[str, str], allowed: Sequence[str]
) -> str:
    """A page on the library."""
    name = model.name
    listed = "\n".join([f"| `{file}` | {what} |" for file, what in files.items()])
    sizes = "".join([f"\n- {text}" for text in allowed])
    return f"""# {name}

A model as a shared library, written by weft {version} for the processor `{cpu}`. It needs the C library
of the system and what lies in this folder, nothing else.

| file | what |
|---|---|
{listed}

| | name | type | C |
|---|---|---|---|
{_rows("input", model.inputs)}{_rows("output", model.outputs)}
{f"The caller chooses sizes:{sizes}" if sizes else "All sizes are fixed."}
{_state(model)}
```c
#include "{name}.h"

{name}_model *model;
if ({name}_create(NULL, &model) != {name.upper()}_OK) return 1;
if ({name}_call(model, {_arguments(model)}) != {name.upper()}_OK)
  fprintf(stderr, "%s\\n", {name}_error(model));
{name}_free(model);
```

    make
    ./example

or by hand, in a folder of your own: `cc -I. program.c -L. -l{name} -Wl,-rpath,'$ORIGIN'`.
"""


def _rows(what: str, tensors: tuple[Tensor, ...]) -> str:
    return "".join([f"| {what} | `{t.name}` | `{t.type}` | `{c_type(t.type.dtype)} *` |\n" for t in tensors])


def _state(model: Model) -> str:
    changed = [w.name for w in model.weights if w.update is not None]
    if not changed:
        return ""
    shown = ", ".join([f"`{n}`" for n in changed[:8]]) + (", ..." if len(changed) > 8 else "")
    count = f"{len(changed)} of its {len(model.weights)} weights"
    return f"\nRuns change {count} ({shown}); each handle has its own.\n"


def _arguments(model: Model) -> str:
    return ", ".join(
        [*[c_name(n) for n in model.sizes], *[t.symbol for t in (*model.inputs, *model.outputs)]]
    )
