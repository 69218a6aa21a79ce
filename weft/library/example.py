"""What stands beside a library: an example program, how to build it, and a page on how to use the library."""

from __future__ import annotations

from collections.abc import Sequence

from weft.backends.library import Model, Tensor
from weft.library.header import c_type
from weft.library.model import c_name

_TEXT = r"""/* An example of how NAME is used.

   ./example                           runs on zeros and prints what comes out
   ./example n=4 x=x.bin out=out.bin   with sizes, and with the bytes of arrays from files and to files
   ./example runs=3                    runs several times: what the model learns, it keeps */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "NAME.h"

static const char *const size_names[] = {SIZE_NAMES};

/* The value of an argument `name=value`, or NULL. */
static const char *argument(int count, char **arguments, const char *name) {
  size_t length = strlen(name);
  int i;
  for (i = 1; i < count; i++)
    if (strncmp(arguments[i], name, length) == 0 && arguments[i][length] == '=')
      return arguments[i] + length + 1;
  return NULL;
}

static int read_file(const char *path, void *data, size_t bytes) {
  FILE *file = fopen(path, "rb");
  size_t found;
  if (!file) return 0;
  found = fread(data, 1, bytes, file);
  fclose(file);
  return found == bytes;
}

static int write_file(const char *path, const void *data, size_t bytes) {
  FILE *file = fopen(path, "wb");
  size_t written;
  if (!file) return 0;
  written = fwrite(data, 1, bytes, file);
  return fclose(file) == 0 && written == bytes;
}

static void print_first(const NAME_tensor *tensor, const void *data, int64_t bytes) {
  int64_t i;
  printf("%s: %s =", tensor->name, tensor->type);
  for (i = 0; i < 8; i++) {
    if (tensor->dtype == UPPER_FLOAT32 && i * 4 < bytes) printf(" %g", ((const float *)data)[i]);
    if (tensor->dtype == UPPER_FLOAT64 && i * 8 < bytes) printf(" %g", ((const double *)data)[i]);
    if (tensor->dtype == UPPER_INT64 && i * 8 < bytes) printf(" %lld", (long long)((const int64_t *)data)[i]);
    if (tensor->dtype == UPPER_INT32 && i * 4 < bytes) printf(" %d", (int)((const int32_t *)data)[i]);
    if (tensor->dtype == UPPER_BOOL && i < bytes) printf(" %d", (int)((const bool *)data)[i]);
  }
  printf("\n");
}

int main(int count, char **arguments) {
  NAME_model *model;
  void *inputs[UPPER_INPUTS + 1];
  void *outputs[UPPER_OUTPUTS + 1];
  int64_t sizes[UPPER_SIZES + 1];
  int status, i, run;
  const char *given = argument(count, arguments, "runs");
  const int runs = given ? atoi(given) : 1;

  status = NAME_create(NULL, &model);
  if (status != UPPER_OK) {
    fprintf(stderr, "%s\n", NAME_status(status));
    return 1;
  }
  for (i = 0; i < UPPER_SIZES; i++) {
    given = argument(count, arguments, size_names[i]);
    sizes[i] = given ? atoll(given) : 8;
  }
  for (i = 0; i < UPPER_INPUTS; i++) {
    const size_t bytes = (size_t)NAME_input_bytes(sizes, i);
    given = argument(count, arguments, NAME_input(i)->name);
    inputs[i] = calloc(bytes + 1, 1);
    if (!inputs[i] || (given && !read_file(given, inputs[i], bytes))) {
      fprintf(stderr, "%s: there must be %lu bytes\n", given ? given : "memory", (unsigned long)bytes);
      return 1;
    }
  }
  for (i = 0; i < UPPER_OUTPUTS; i++) {
    outputs[i] = calloc((size_t)NAME_output_bytes(sizes, i) + 1, 1);
    if (!outputs[i]) return 1;
  }

  for (run = 0; run < runs; run++) {
    status = NAME_run(model, sizes, (const void *const *)inputs, outputs);
    if (status != UPPER_OK) {
      fprintf(stderr, "%s\n", NAME_error(model));
      return 1;
    }
  }

  for (i = 0; i < UPPER_OUTPUTS; i++) {
    const int64_t bytes = NAME_output_bytes(sizes, i);
    print_first(NAME_output(i), outputs[i], bytes);
    given = argument(count, arguments, NAME_output(i)->name);
    if (given && !write_file(given, outputs[i], (size_t)bytes)) {
      fprintf(stderr, "%s cannot be written\n", given);
      return 1;
    }
  }
  for (i = 0; i < UPPER_INPUTS; i++) free(inputs[i]);
  for (i = 0; i < UPPER_OUTPUTS; i++) free(outputs[i]);
  NAME_free(model);
  return 0;
}
"""


def example_text(model: Model) -> str:
    """The program."""
    names = ", ".join([*[f'"{name}"' for name in model.sizes], '""'])
    text = _TEXT.replace("SIZE_NAMES", names)
    return text.replace("UPPER_", f"{model.name.upper()}_").replace("NAME", model.name)


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
    tensors = (*model.inputs, *model.outputs)
    arguments = ", ".join([*[c_name(n) for n in model.sizes], *[t.symbol for t in tensors]])
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
if ({name}_call(model, {arguments}) != {name.upper()}_OK)
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
