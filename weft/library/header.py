"""The C header of a library: what it has, typed, and a function that takes arrays one by one."""

from __future__ import annotations

from string import Template

from weft.backends.library import STATUS, Model, dtype_number
from weft.base.dtypes import DTYPES, DType, kind
from weft.library.model import c_name

_BYTES_OF_BITS = {"float16": "uint16_t", "bfloat16": "uint16_t", "bool": "bool"}


def c_type(dtype: DType) -> str:
    """The type that C has for the elements of a dtype; complex numbers are pairs.

    >>> import weft
    >>> from weft.library.header import c_type
    >>> c_type(weft.float32), c_type(weft.int64), c_type(weft.bfloat16), c_type(weft.complex64)
    ('float', 'int64_t', 'uint16_t', 'float')
    """
    if dtype.name in _BYTES_OF_BITS:
        return _BYTES_OF_BITS[dtype.name]
    if kind(dtype) in "fc":
        bits = 8 * dtype.itemsize // (2 if kind(dtype) == "c" else 1)
        return "float" if bits == 32 else "double"
    return f"{dtype.name}_t"


_TEXT = Template("""/* $name: a model as a library, written by weft $version. See README.md.

   A handle holds what runs change, and memory for what is in between. Handles are independent of each other:
   several threads may use several handles at the same time. Calls with the same handle wait for each other.
   Arrays are dense, in C order. An output must not overlap an input or another output. */

#ifndef ${upper}_H
#define ${upper}_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ${upper}_INPUTS $inputs
#define ${upper}_OUTPUTS $outputs
#define ${upper}_SIZES $sizes
#define ${upper}_WEIGHTS $weights

/* What calls return. */
enum {
$statuses
};

/* Dtypes. Complex numbers are pairs of real and imaginary part; float16 and bfloat16 are their bits. */
enum {
$dtypes
};

typedef struct ${name}_model ${name}_model;

/* What an input, an output or a weight is. */
typedef struct {
  const char *name;
  const char *type;     /* such as "f32[batch,4]" */
  const int64_t *shape; /* -1 where a size depends on those with names */
  int32_t rank;
  int32_t dtype;
} ${name}_tensor;

/* Options; all zero is the default. */
typedef struct {
  size_t size;         /* sizeof(${name}_options) */
  uint64_t seed;       /* of random numbers */
  const char *weights; /* path of the file with the weights, where they are beside the library */
  void *(*allocate)(size_t bytes, size_t alignment, void *user);
  void (*release)(void *memory, void *user);
  void *user;          /* given to both */
} ${name}_options;

/* Make a handle; options may be NULL. */
int ${name}_create(const ${name}_options *options, ${name}_model **model);

/* End a handle; NULL is fine. */
void ${name}_free(${name}_model *model);

/* Run.$notes
   If it fails, nothing that the handle holds has changed. */
int ${name}_run(${name}_model *model, const int64_t *sizes, const void *const *inputs, void *const *outputs);

/* What is wrong, after a call with this handle that did not return ${upper}_OK; valid up to the next call. */
const char *${name}_error(const ${name}_model *model);

/* What a status means. */
const char *${name}_status(int status);

/* What tensors there are, by number; NULL beyond the last. */
const ${name}_tensor *${name}_input(int number);
const ${name}_tensor *${name}_output(int number);
const ${name}_tensor *${name}_weight(int number);

/* The shape of a tensor, and how many bytes it takes (-1 if there is none), as sizes make it. */
int ${name}_input_shape(const int64_t *sizes, int number, int64_t *shape);
int ${name}_output_shape(const int64_t *sizes, int number, int64_t *shape);
int64_t ${name}_input_bytes(const int64_t *sizes, int number);
int64_t ${name}_output_bytes(const int64_t *sizes, int number);

/* Copy a weight out of a handle, or into it. */
int ${name}_get_weight(${name}_model *model, const char *weight, void *data, size_t bytes);
int ${name}_set_weight(${name}_model *model, const char *weight, const void *data, size_t bytes);

/* Let random numbers start again. */
void ${name}_seed(${name}_model *model, uint64_t seed);

/* How many threads all handles of this library use together; at first as many as there are processors. */
void ${name}_set_threads(int threads);

$call

#ifdef __cplusplus
}
#endif

#endif
""")


def header_text(model: Model, version: str) -> str:
    """The header."""
    lists = {"inputs": model.inputs, "outputs": model.outputs, "sizes": model.sizes, "weights": model.weights}
    upper = model.name.upper()
    return _TEXT.substitute(
        {key: len(items) for key, items in lists.items()},
        name=model.name,
        upper=upper,
        version=version,
        statuses=_statuses(upper),
        dtypes=",\n".join([f"  {upper}_{d.name.upper()} = {dtype_number(d)}" for d in DTYPES]),
        notes=_run_notes(model),
        call=_call(model),
    )


def _statuses(upper: str) -> str:
    rows = [f"  {upper}_{word} = {number}" for number, (word, _) in STATUS.items()]
    notes = [f" /* {text} */" for _, text in STATUS.values()]
    commas = [","] * (len(rows) - 1) + [""]
    return "\n".join([row + comma + note for row, comma, note in zip(rows, commas, notes, strict=True)])


def _run_notes(model: Model) -> str:
    lines = []
    if model.sizes:
        lines.append(f"sizes: {', '.join(model.sizes)}.")
    for what, tensors in (("inputs", model.inputs), ("outputs", model.outputs)):
        lines.append(f"{what}: {', '.join([f'{t.name} {t.type}' for t in tensors]) or 'none'}.")
    return "".join([f"\n   {line.replace('*/', '* /')}" for line in lines])


# One function for this model


def call_parameters(model: Model) -> list[str]:
    """The parameters of the typed function."""
    sizes = [f"int64_t {c_name(name)}" for name in model.sizes]
    inputs = [f"const {c_type(t.type.dtype)} *{t.symbol}" for t in model.inputs]
    outputs = [f"{c_type(t.type.dtype)} *{t.symbol}" for t in model.outputs]
    return [f"{model.name}_model *model", *sizes, *inputs, *outputs]


def _call(model: Model) -> str:
    tables = {
        "const int64_t weft_sizes": [c_name(n) for n in model.sizes],
        "const void *weft_inputs": [t.symbol for t in model.inputs],
        "void *weft_outputs": [t.symbol for t in model.outputs],
    }
    given = [table.split()[-1].strip("*") if values else "NULL" for table, values in tables.items()]
    filled = [(table, values) for table, values in tables.items() if values]
    lines = [f"  {table}[{len(values)}] = {{{', '.join(values)}}};" for table, values in filled]
    lines.append(f"  return {model.name}_run(model, {', '.join(given)});")
    head = f"static inline int {model.name}_call({', '.join(call_parameters(model))}) {{"
    return "\n".join(["/* The same with arrays one by one. */", head, *lines, "}"])
