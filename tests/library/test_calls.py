"""The functions of a library: state, weights, errors, threads, memory; from C, C++ and plain Python."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from tests.library.harness import BAD_ARGUMENT, FAILED, OK, OUT_OF_MEMORY, build, data, exported, same
from weft import nn

Type = weft.TensorType


def numbers(*shape: int, dtype: Any = np.float32) -> Any:
    return np.random.default_rng(0).standard_normal(shape).astype(dtype)


def training_step() -> tuple[Any, Any, Any]:
    """A step with momentum and dropout, its model, and arrays for it."""
    weft.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Dropout(0.2), nn.Linear(16, 4))
    optimizer = weft.optim.Adam(model.parameters(), lr=1e-2)

    @weft.compile
    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = weft.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step, model, (numbers(16, 8), np.random.default_rng(1).integers(0, 4, 16))


# State


def test_training_goes_on_in_a_handle(tmp_path: Path) -> None:
    step, model, arrays = training_step()
    tensors = [weft.tensor(a) for a in arrays]
    step(*tensors)  # from here on the optimizer has its state
    library = exported(step, tmp_path)
    with library.create() as handle, library.create() as other:
        weft.manual_seed(0)
        first = data(model[0].weight).copy()
        for _ in range(5):
            assert same(handle(*arrays), [step(*tensors)])
        names = [w["name"] for w in library.signature["weights"] if w["changes"]]
        (name,) = [n for n in names if n.endswith("0.weight")]
        assert same([handle.weight(name, first)], [model[0].weight])
        assert same([other.weight(name, first)], [first])  # what one handle learns, others do not


def test_failed_step_changes_nothing(tmp_path: Path) -> None:
    step, _, (x, y) = training_step()
    step(weft.tensor(x), weft.tensor(y))
    library = exported(step, tmp_path)
    wrong = y.copy()
    wrong[3] = 7
    with library.create() as handle, library.create() as other:
        handle(x, y)
        other(x, y)
        status, _ = handle.run((x, wrong), {})
        assert status == FAILED
        assert "class numbers must be in 0..3 or -100, got 7" in handle.error
        assert "test_calls.py:" in handle.error
        for w in library.signature["weights"]:
            like = np.empty(w["shape"], w["dtype"])
            assert same([handle.weight(w["name"], like)], [other.weight(w["name"], like)])
        assert same(handle(x, y), other(x, y))


def test_weight_that_is_set_is_that_of_one_handle(tmp_path: Path) -> None:
    model = nn.Linear(3, 2)
    library = exported(weft.compile(model), tmp_path, weft.ones((1, 3)))
    x, bias = numbers(1, 3), np.array([10.0, 20.0], np.float32)
    before = data(model.bias).copy()
    with library.create() as handle, library.create() as other:
        (old,) = other(x)
        assert handle.set_weight("bias", bias) == OK
        assert handle.set_weight("bias", bias + 1) == OK
        np.testing.assert_allclose(handle(x)[0], old - before + bias + 1, rtol=1e-6)
        assert same(other(x), [old])
        assert same([other.weight("bias", bias)], [before])


# Errors


def test_index_out_of_range_says_what_python_says(tmp_path: Path) -> None:
    pick = weft.compile(lambda x, i: x[i])
    x, i = numbers(4), np.array([1, -5])
    library = exported(pick, tmp_path, weft.tensor(x), weft.tensor(i))
    with pytest.raises(weft.errors.BoundsError) as caught:
        pick(weft.tensor(x), weft.tensor(i))
    with library.create() as handle:
        assert handle.run((x, i), {})[0] == FAILED
        assert handle.error.splitlines()[0] == "gather: index must be in -4..3 for axis 0 of size 4, got -5"
        assert handle.error == str(caught.value)
        assert same(handle(x, i + 1), [x[[2, -4]]])
        assert handle.error == ""


def test_assertion_that_does_not_hold_says_what_python_says(tmp_path: Path) -> None:
    def root(x: Any, n: Any, flag: Any) -> Any:
        assert n < 100, "100% of n"
        assert (x >= 0).all(), (
            f"x must not be negative, got {x.min()} or {x.min():.3f} of {n} ({flag}) at {n:4d}"
        )
        return weft.sqrt(x)

    run = weft.compile(root)
    good, bad = np.array([1, 4], np.float32), np.array([1, -1.5], np.float32)
    n, flag = np.array(7, np.int32), np.array(True)
    library = exported(run, tmp_path, *map(weft.tensor, (good, n, flag)))
    with library.create() as handle:
        for arrays in ((bad, n, flag), (good, n + 93, flag)):
            with pytest.raises(weft.errors.CheckError) as caught:
                run(*map(weft.tensor, arrays))
            assert handle.run(arrays, {})[0] == FAILED
            assert handle.error == str(caught.value)
        assert same(handle(good, n, flag), [np.array([1, 2], np.float32)])


def test_assertion_with_an_array_in_its_text_leaves_it_out(tmp_path: Path) -> None:
    def root(x: Any) -> Any:
        assert (x >= 0).all(), f"got {x}!"
        return weft.sqrt(x)

    with exported(weft.compile(root), tmp_path, weft.ones(2)).create() as handle:
        assert handle.run([np.array([1, -1], np.float32)], {})[0] == FAILED
        assert handle.error.startswith("assert: got ...!\n  at test_calls.py:")


def test_nan_names_its_line(tmp_path: Path) -> None:
    library = exported(weft.compile(lambda x: weft.log(x) + 1), tmp_path, weft.ones(2), check_nan=True)
    with library.create() as handle:
        assert handle.run([np.array([1, -1], np.float32)], {})[0] == FAILED
        assert handle.error.startswith("log: the result must have no NaN, got some\n  at test_calls.py:")


def test_sizes_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    table = weft.arange(40)
    run = weft.compile(lambda x: x[2] + table[x.shape[0]])
    library = exported(run, tmp_path, Type(("n",), weft.float32))
    assert "- n must be in 3..39" in (tmp_path / "README.md").read_text()
    with library.create() as handle:
        for n in (3, 39):
            assert same(handle(numbers(n), n=n), [numbers(n)[2] + np.float32(n)])
        for n in (2, 40, -3, 2**40):
            status = library.function("run")(handle.handle, (ctypes.c_int64 * 1)(n), None, None)
            assert (status, handle.error) == (BAD_ARGUMENT, f"model: n must be in 3..39, got {n}")
        assert library.function("run")(handle.handle, None, None, None) == BAD_ARGUMENT
        assert handle.error == "model: sizes must be given, got NULL"


def test_sizes_whose_product_is_too_large_are_refused(tmp_path: Path) -> None:
    run = weft.compile(lambda x, y, z: weft.sort(x[:, None, None] * y[:, None] * z, axis=1).sum())
    types = [Type((name,), weft.float32) for name in "abc"]
    library = exported(run, tmp_path, *types)
    x = numbers(4)
    table = (ctypes.c_void_p * 3)(*[x.ctypes.data] * 3)
    with library.create() as handle:
        largest = (ctypes.c_int64 * 3)(*[2**31 - 1] * 3)
        assert library.function("run")(handle.handle, largest, table, table) == OUT_OF_MEMORY
        assert "bytes of memory must be there for what is in between" in handle.error
        np.testing.assert_allclose(handle(x, x, x, a=4, b=4, c=4)[0], x.sum() ** 3, rtol=1e-4)
    beyond = (ctypes.c_int64 * 3)(2**31, 1, 1)
    assert library.function("input_bytes")(beyond, 0) == -1
    assert library.function("input_shape")(beyond, 0, table) == BAD_ARGUMENT


def test_addresses_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    library = exported(weft.compile(lambda x: x + 1), tmp_path, weft.ones(4))
    x, run = numbers(5), library.function("run")
    table = ctypes.c_void_p * 1
    good = table(x.ctypes.data)
    with library.create() as handle:
        assert run(handle.handle, None, None, good) == BAD_ARGUMENT
        assert handle.error == "model: inputs must be given, got NULL"
        assert run(handle.handle, None, good, table(None)) == BAD_ARGUMENT
        assert handle.error.startswith("model: out must be the address of f32[4], a multiple of 4, got 0")
        assert run(handle.handle, None, table(x.ctypes.data + 2), good) == BAD_ARGUMENT
        assert handle.error.startswith("model: x must be the address of f32[4], a multiple of 4, got 0x")
    assert run(None, None, good, good) == BAD_ARGUMENT
    assert library.function("create")(None, None) == BAD_ARGUMENT
    library.function("free")(None)


def test_weight_that_is_not_there_is_refused(tmp_path: Path) -> None:
    library = exported(weft.compile(nn.Linear(3, 2)), tmp_path, weft.ones((1, 3)))
    with library.create() as handle:
        assert handle.set_weight("weights", np.zeros(6, np.float32)) == BAD_ARGUMENT
        assert handle.error == "model: there is no weight weights"
        assert handle.set_weight("weight", np.zeros(5, np.float32)) == BAD_ARGUMENT
        assert handle.error == "model: set_weight takes 24 bytes for this weight, got 20"


# Programs

THREADS = r"""
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include "model.h"

#define N 64
static float input[N * 256];
static float expected[N * 256];

static void *work(void *shared) {
  static const int64_t batches[] = {64, 1, 33};
  float found[N * 256];
  model_model *model = (model_model *)shared;
  int i;
  if (!model && model_create(NULL, &model) != MODEL_OK) return (void *)1;
  for (i = 0; i < 60; i++) {
    const int64_t batch = batches[i % 3];
    memset(found, 0, sizeof found);
    if (model_call(model, batch, input, found) != MODEL_OK) return (void *)1;
    if (memcmp(found, expected, (size_t)batch * 256 * sizeof(float)) != 0) return (void *)2;
  }
  if (!shared) model_free(model);
  return NULL;
}

int main(void) {
  pthread_t threads[6];
  model_model *shared;
  void *result;
  int i, wrong = 0;
  for (i = 0; i < N * 256; i++) input[i] = (float)(i % 97) / 97.0f;
  model_set_threads(3);
  if (model_create(NULL, &shared) != MODEL_OK) return 1;
  if (model_call(shared, N, input, expected) != MODEL_OK) return 1;
  for (i = 0; i < 6; i++) pthread_create(&threads[i], NULL, work, i < 4 ? NULL : shared);
  for (i = 0; i < 6; i++) {
    pthread_join(threads[i], &result);
    wrong |= result != NULL;
  }
  model_free(shared);
  fwrite(expected, sizeof expected, 1, stdout);
  return wrong;
}
"""


def rows_model() -> Any:
    layers = [nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 256), nn.Softmax(-1)]
    return nn.Sequential(*layers)


@pytest.mark.rotating(2)
def test_threads_with_handles_of_their_own_and_a_shared_one_agree(tmp_path: Path) -> None:
    run = weft.compile(rows_model())
    run.save(tmp_path / "rows.weft", Type(("batch", 256), weft.float32))
    loaded = weft.load_graph(tmp_path / "rows.weft")
    exported(loaded, tmp_path)
    source = tmp_path / "threads.c"
    source.write_text(THREADS)
    done = subprocess.run([build(tmp_path, source, "-std=c99")], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    x = ((np.arange(64 * 256) % 97).astype(np.float32) / np.float32(97)).reshape(64, 256)
    assert same([done.stdout], [loaded(weft.tensor(x))])


ALLOCATOR = r"""
#include <cstdio>
#include <cstdlib>
#include "model.h"

static long alive, all;

static void *allocate(size_t bytes, size_t alignment, void *user) {
  if (user != &all) return nullptr;
  alive++, all++;
  return aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

static void release(void *memory, void *user) {
  if (user == &all) alive--;
  free(memory);
}

static void *refuse(size_t, size_t, void *) { return nullptr; }

int main() {
  model_options options = {};
  options.size = sizeof options;
  options.allocate = allocate;
  if (model_create(&options, nullptr) != MODEL_BAD_ARGUMENT) return 1;
  model_model *model = nullptr;
  if (model_create(&options, &model) != MODEL_BAD_ARGUMENT || model) return 2;
  options.release = release;
  options.user = &all;
  if (model_create(&options, &model) != MODEL_OK) return 3;
  const float bias[256] = {1.0f};
  if (model_set_weight(model, "0.bias", bias, sizeof bias) != MODEL_OK) return 4;
  float x[2 * 256] = {0}, out[2 * 256];
  if (model_call(model, 2, x, out) != MODEL_OK) return 5;
  const model_tensor *input = model_input(0);
  if (input->rank != 2 || input->shape[0] != -1 || input->shape[1] != 256) return 6;
  if (input->dtype != MODEL_FLOAT32 || model_input(1) || model_input(-1)) return 7;
  model_free(model);
  options.allocate = refuse;
  if (model_create(&options, &model) != MODEL_OUT_OF_MEMORY || model) return 8;
  std::printf("%s %s %ld %d", input->name, input->type, alive, all > 2);
  return 0;
}
"""


def test_program_in_cpp_brings_its_own_memory(tmp_path: Path) -> None:
    exported(weft.compile(rows_model()), tmp_path, Type(("batch", 256), weft.float32))
    source = tmp_path / "allocator.cpp"
    source.write_text(ALLOCATOR)
    program = build(tmp_path, source, "-std=c++17", compiler="c++")
    done = subprocess.run([program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "x f32[batch,256] 0 1")


WITHOUT_WEFT = """
import ctypes, os, sys
library = ctypes.CDLL(sys.argv[1])
def run():
    handle, out = ctypes.c_void_p(), (ctypes.c_float * (64 * 256))()
    x = (ctypes.c_float * (64 * 256))(*[0.5] * (64 * 256))
    assert library.model_create(None, ctypes.byref(handle)) == 0
    pointers = [(ctypes.c_void_p * 1)(ctypes.addressof(a)) for a in (x, out)]
    assert library.model_run(handle, (ctypes.c_int64 * 1)(64), *pointers) == 0
    library.model_free(handle)
    return bytes(out)
library.model_set_threads(2)
expected = run()
child = os.fork()
if child == 0:  # the threads of the pool are gone here, and start again
    os._exit(0 if run() == expected else 1)
assert os.waitpid(child, 0)[1] == 0
assert not any(name in sys.modules for name in ("weft", "numpy", "llvmlite"))
sys.stdout.buffer.write(expected)
"""


def test_python_without_weft_loads_it_and_forks(tmp_path: Path) -> None:
    model = rows_model()
    run = weft.compile(model)
    run.save(tmp_path / "rows.weft", Type(("batch", 256), weft.float32))
    loaded = weft.load_graph(tmp_path / "rows.weft")
    library = exported(loaded, tmp_path)
    script = [sys.executable, "-I", "-S", "-c", WITHOUT_WEFT, str(library.folder / "libmodel.so")]
    done = subprocess.run(script, capture_output=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert same([done.stdout], [loaded(weft.full((64, 256), 0.5))])


def test_library_needs_the_system_alone_and_shows_its_functions_alone(tmp_path: Path) -> None:
    exported(weft.compile(nn.Linear(3, 2)), tmp_path, weft.ones((1, 3)))
    file = tmp_path / "libmodel.so"
    needed = subprocess.run(["readelf", "-d", file], capture_output=True, text=True, check=True).stdout
    named = {line.split("[")[1].rstrip("]") for line in needed.splitlines() if "(NEEDED)" in line}
    assert named <= {"libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2"}
    symbols = subprocess.run(["nm", "-D", "--defined-only", file], capture_output=True, text=True, check=True)
    shown = {line.split()[-1].split("@")[0] for line in symbols.stdout.splitlines()}
    header = (tmp_path / "model.h").read_text()
    assert shown
    assert all(name.startswith("model_") and f"{name}(" in header for name in shown)
