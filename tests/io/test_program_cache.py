"""Graphs that were compiled before: run from disk with the same results, or compiled again, never wrong."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from tests.io.kept import OPEN, is_kept, model, rows, run_python, saved, twice
from weft import nn
from weft.backends.llvm import fingerprint as fingerprints
from weft.backends.llvm.fingerprint import fingerprint, weft_fingerprint
from weft.errors import ShapeError, WeftError

pytestmark = pytest.mark.skipif(fingerprint() is None, reason="programs are not kept on this machine")

# The same results


def test_second_load_runs_what_the_first_compiled(cache: Path, tmp_path: Path) -> None:
    expected, found = twice(saved(tmp_path), rows(2))
    np.testing.assert_array_equal(found.numpy(), expected.numpy())
    np.testing.assert_allclose(found.numpy(), model()(weft.tensor(rows(2))).numpy(), rtol=1e-6)


def test_interpreter_agrees(cache: Path, tmp_path: Path) -> None:
    file = saved(tmp_path)
    _, found = twice(file, rows(2))
    interpreted = weft.load_graph(file, backend="interpret")(rows(2))
    np.testing.assert_allclose(found.numpy(), interpreted.numpy(), rtol=1e-5, atol=1e-6)


def test_tensors_arrays_and_both_orders_of_memory_are_taken(cache: Path, tmp_path: Path) -> None:
    x = rows(2)
    expected, found = twice(saved(tmp_path), x)
    loaded = weft.load_graph(str(tmp_path / "model.weft"))
    for given_x in (weft.tensor(x), np.asfortranarray(x), x.tolist(), np.repeat(x, 2, axis=0)[::2]):
        np.testing.assert_array_equal(loaded(given_x).numpy(), expected.numpy())
    np.testing.assert_array_equal(loaded(x=x).numpy(), expected.numpy())
    assert found.dtype == weft.float32


def test_results_are_fresh_arrays(cache: Path, tmp_path: Path) -> None:
    file = saved(tmp_path)
    twice(file, rows(2))
    loaded = weft.load_graph(file)
    first, second = loaded(rows(2)), loaded(np.zeros((2, 4), np.float32))
    assert not np.array_equal(first.numpy(), second.numpy())
    np.testing.assert_array_equal(first.numpy(), loaded(rows(2)).numpy())


def test_trees_come_out(cache: Path, tmp_path: Path) -> None:
    def f(x: Any, y: Any) -> Any:
        return {"sum": x + y, "both": (x * 2.0, [y * 3.0, None])}

    file = saved(tmp_path, f, weft.ones(3), weft.ones(3))
    x, y = np.arange(3, dtype=np.float32), np.ones(3, np.float32)
    _, found = twice(file, x, y)
    np.testing.assert_array_equal(found["sum"].numpy(), x + y)
    np.testing.assert_array_equal(found["both"][0].numpy(), 2 * x)
    np.testing.assert_array_equal(found["both"][1][0].numpy(), 3 * y)
    assert found["both"][1][1] is None
    assert type(found["both"]) is tuple


def test_signature_name_text_and_graph_are_there(cache: Path, tmp_path: Path) -> None:
    file = saved(tmp_path)
    twice(file, rows(2))
    first, second = weft.load_graph(file, backend="interpret"), weft.load_graph(file)
    assert second._opened is None
    assert second.__name__ == first.__name__
    assert second.signature == first.signature
    assert repr(second) == repr(first)
    assert second.text == first.text
    assert list(second.weights) == list(first.weights)


def test_new_process_runs_it_without_the_compiler(cache: Path, tmp_path: Path) -> None:
    file = saved(tmp_path)
    expected, _ = twice(file, rows(2))
    np.save(tmp_path / "x.npy", rows(2))
    code = """
import json, sys
import numpy as np
import weft
answer = weft.load_graph(sys.argv[1])(np.load(sys.argv[2])).numpy()
heavy = ("llvmlite", "weft.schedule", "weft.passes.pipeline", "weft.capture.call.version", "weft.ir.parse")
loaded = [m for m in sys.modules if m in heavy]
print(json.dumps([answer.tolist(), loaded]))
"""
    found, loaded = json.loads(run_python(code, cache, file, str(tmp_path / "x.npy")))
    assert loaded == []
    np.testing.assert_array_equal(np.array(found, np.float32), expected.numpy())


def test_network_of_convolutions_and_attention_is_kept(cache: Path, tmp_path: Path) -> None:
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convolve = nn.Conv2d(1, 4, 3)
            self.norm, self.mix = nn.LayerNorm(36), nn.Linear(36, 36)

        def forward(self, x: Any) -> Any:
            x = weft.relu(self.convolve(x)).reshape(-1, 4, 36)
            q = self.mix(self.norm(x))
            return nn.functional.scaled_dot_product_attention(q, x, x).sum(axis=1)

    network = Mixed().requires_grad_(False).eval()
    x = np.random.default_rng(0).standard_normal((2, 1, 8, 8), dtype=np.float32)
    file = saved(tmp_path, network, weft.tensor(x))
    expected, found = twice(file, x)
    np.testing.assert_array_equal(found.numpy(), expected.numpy())
    np.testing.assert_allclose(found.numpy(), network(weft.tensor(x)).numpy(), rtol=1e-4, atol=1e-5)


# Weights are not in the program


def test_file_with_other_weights_shares_the_program(cache: Path, tmp_path: Path) -> None:
    twice(saved(tmp_path), rows(2))
    file = saved(tmp_path, model(1))
    loaded = weft.load_graph(file)
    np.testing.assert_allclose(
        loaded(rows(2)).numpy(), model(1)(weft.tensor(rows(2))).numpy(), rtol=1e-5, atol=1e-6
    )
    assert is_kept(loaded)


def test_weights_that_change_are_used(cache: Path, tmp_path: Path) -> None:
    file = saved(tmp_path)
    twice(file, rows(2))
    loaded = weft.load_graph(file)
    loaded(rows(2))
    for name, other in zip(loaded.weights, model(1).parameters(), strict=True):
        loaded.weights[name][...] = other
    np.testing.assert_allclose(
        loaded(rows(2)).numpy(), model(1)(weft.tensor(rows(2))).numpy(), rtol=1e-5, atol=1e-6
    )
    assert is_kept(loaded)
    loaded.save(str(tmp_path / "again.weft"))
    again = weft.load_graph(str(tmp_path / "again.weft"))
    np.testing.assert_array_equal(again(rows(2)).numpy(), loaded(rows(2)).numpy())


def test_weights_of_another_shape_are_an_error(cache: Path, tmp_path: Path) -> None:
    file = saved(tmp_path)
    twice(file, rows(2))
    loaded = weft.load_graph(file)
    next(iter(loaded.weights.values()))._data = np.ones((2, 2), np.float32)
    with pytest.raises(WeftError):
        loaded(rows(2))


def test_gradients_flow_as_before(cache: Path, tmp_path: Path) -> None:
    file = saved(tmp_path)
    twice(file, rows(2))
    loaded = weft.load_graph(file)
    x = weft.tensor(rows(2), requires_grad=True)
    loaded(x).sum().backward()
    expected = weft.grad(lambda x: model()(x).sum())(weft.tensor(rows(2)))
    np.testing.assert_allclose(x.grad.numpy(), expected.numpy(), rtol=1e-5, atol=1e-6)
    with weft.no_grad():
        assert not loaded(x).requires_grad
    weight = next(iter(loaded.weights.values()))
    weight.requires_grad_()
    loaded(rows(2)).sum().backward()
    assert weight.grad is not None


def test_transforms_and_captures_see_the_graph(cache: Path, tmp_path: Path) -> None:
    file = saved(tmp_path)
    expected, _ = twice(file, rows(2))
    loaded = weft.load_graph(file)
    mapped = weft.vmap(loaded)(weft.tensor(np.stack([rows(2), rows(2)])))
    np.testing.assert_allclose(mapped.numpy()[1], expected.numpy(), rtol=1e-5, atol=1e-6)
    graph = weft.make_graph(lambda x: loaded(x) * 2.0)(weft.ones((2, 4)))
    assert "linear" in str(graph)


def test_profile_sees_the_call(cache: Path, tmp_path: Path) -> None:
    file = saved(tmp_path)
    expected, _ = twice(file, rows(2))
    loaded = weft.load_graph(file)
    with weft.profile() as profile:
        found = loaded(rows(2))
    np.testing.assert_array_equal(found.numpy(), expected.numpy())
    assert loaded.__name__ in str(profile)
    np.testing.assert_array_equal(loaded(rows(2)).numpy(), expected.numpy())


# Keys


def test_constants_are_part_of_the_key(cache: Path, tmp_path: Path) -> None:
    for seed in (2, 3):
        data = np.random.default_rng(seed).standard_normal(50, dtype=np.float32)
        graph = weft.make_graph(lambda x, data=data: x * weft.tensor(data))(weft.ones(50))
        file = str(tmp_path / "model.weft")
        weft.save_graph(graph, file)
        expected, found = twice(file, np.ones(50, np.float32))
        np.testing.assert_array_equal(found.numpy(), data)
        np.testing.assert_array_equal(expected.numpy(), data)


def test_another_graph_is_compiled(cache: Path, tmp_path: Path) -> None:
    twice(saved(tmp_path, lambda x: x * 2.0), rows(2))
    expected, found = twice(saved(tmp_path, lambda x: x * 3.0), rows(2))
    np.testing.assert_array_equal(found.numpy(), rows(2) * 3)
    np.testing.assert_array_equal(expected.numpy(), rows(2) * 3)


@pytest.mark.parametrize("which", range(7))
def test_other_fingerprint_has_other_programs(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: int
) -> None:
    file = saved(tmp_path)
    twice(file, rows(2))
    parts = list(fingerprint() or ())
    parts[which] += " other"
    monkeypatch.setattr(fingerprints, "fingerprint", lambda: tuple(parts))
    first = weft.load_graph(file)
    first(rows(2))
    assert not is_kept(first)


def test_settings_that_change_code_are_part_of_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    before = fingerprint()
    monkeypatch.setenv("WEFT_VECTOR_BYTES", "16")
    assert fingerprint() != before
    monkeypatch.setenv("WEFT_DEBUG", "1")
    assert fingerprint() is None


def test_fingerprint_tells_changed_files(tmp_path: Path) -> None:
    for part in fingerprints._PARTS:
        (tmp_path / "weft" / part).mkdir(parents=True, exist_ok=True)
    folder = str(tmp_path / "weft")
    file = tmp_path / "weft" / "schedule" / "a.py"
    file.write_text("x = 1")
    found = {weft_fingerprint(folder)}
    file.write_text("x = 12")
    found.add(weft_fingerprint(folder))
    os.utime(file, (1, 1))
    found.add(weft_fingerprint(folder))
    (tmp_path / "weft" / "loop" / "b.py").write_text("")
    found.add(weft_fingerprint(folder))
    inside = tmp_path / "weft" / "backends" / "llvm" / "text"
    inside.mkdir(parents=True)
    (inside / "c.ll").write_text("")
    found.add(weft_fingerprint(folder))
    record = tmp_path / "weft-1.0.dist-info" / "RECORD"
    record.parent.mkdir()
    record.write_text("weft/__init__.py")
    found.add(weft_fingerprint(folder))
    record.write_text("weft/__init__.py\nother")
    found.add(weft_fingerprint(folder))
    assert len(found) == 7


def test_number_of_threads_is_no_part_of_the_key(cache: Path, tmp_path: Path) -> None:
    file = saved(tmp_path)
    expected, _ = twice(file, rows(2))
    before = weft.get_num_threads()
    try:
        weft.set_num_threads(before + 1)
        loaded = weft.load_graph(file)
        np.testing.assert_array_equal(loaded(rows(2)).numpy(), expected.numpy())
        assert is_kept(loaded)
    finally:
        weft.set_num_threads(before)


# Named sizes


def test_each_batch_that_was_seen_is_kept(cache: Path, tmp_path: Path) -> None:
    file = saved(tmp_path, None, OPEN)
    reference = weft.load_graph(file, backend="interpret")
    for count in (1, 5):
        first = weft.load_graph(file)
        first(rows(count))
        assert first._opened is not None  # this batch is new
    loaded = weft.load_graph(file)
    for count in (5, 1, 5):
        np.testing.assert_allclose(
            loaded(rows(count)).numpy(), reference(rows(count)).numpy(), rtol=1e-5, atol=1e-6
        )
    assert is_kept(loaded)
    np.testing.assert_allclose(loaded(rows(7)).numpy(), reference(rows(7)).numpy(), rtol=1e-5, atol=1e-6)


def test_wrong_arguments_are_the_same_errors(cache: Path, tmp_path: Path) -> None:
    file = saved(tmp_path, None, OPEN)
    twice(file, rows(2))
    for args in ((np.ones((2, 3), np.float32),), (np.ones((2, 4), np.float64),), ("x",), (), (1, 2)):
        messages = []
        for backend in (None, "interpret"):
            with pytest.raises(WeftError) as caught:
                weft.load_graph(file, backend=backend)(*args)
            messages.append((type(caught.value), str(caught.value)))
        assert messages[0] == messages[1]


def test_sizes_that_contradict_each_other_are_an_error(cache: Path, tmp_path: Path) -> None:
    kinds = [weft.TensorType(("n",), weft.float32)] * 2
    file = saved(tmp_path, lambda x, y: x + y, *kinds)
    twice(file, np.ones(3, np.float32), np.ones(3, np.float32))
    with pytest.raises(ShapeError):
        weft.load_graph(file)(np.ones(3, np.float32), np.ones(4, np.float32))


# Graphs that are not simple, and runs that fail


def test_training_step_goes_on(cache: Path, tmp_path: Path) -> None:
    network = nn.Linear(4, 1)
    optimizer = weft.optim.Adam(network.parameters())

    @weft.compile
    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = (network(x) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    step(weft.tensor(rows(2)))
    file = str(tmp_path / "step.weft")
    step.save(file)
    losses = []
    for _ in range(2):
        loaded = weft.load_graph(file)
        losses.append([float(loaded(weft.tensor(rows(2)))) for _ in range(3)])
    assert losses[0] == losses[1]
    assert losses[0][0] > losses[0][1] > losses[0][2]


def test_random_numbers_differ_from_call_to_call(cache: Path, tmp_path: Path) -> None:
    file = saved(tmp_path, lambda x: x + weft.rand(4), weft.ones(4))
    weft.load_graph(file)(np.zeros(4, np.float32))
    loaded = weft.load_graph(file)
    first, second = loaded(np.zeros(4, np.float32)), loaded(np.zeros(4, np.float32))
    assert not np.array_equal(first.numpy(), second.numpy())


def test_numbers_and_plain_arguments_keep_their_kind(cache: Path, tmp_path: Path) -> None:
    def f(x: Any, scale: float, k: int = 3) -> Any:
        return x * scale * k

    file = str(tmp_path / "f.weft")
    weft.compile(f).save(file, weft.ones(2), 2.0)
    for _ in range(2):
        loaded = weft.load_graph(file)
        np.testing.assert_array_equal(loaded(np.ones(2, np.float32), 2.0).numpy(), [6.0, 6.0])
        with pytest.raises(WeftError, match="k must be 3"):
            loaded(np.ones(2, np.float32), 2.0, k=4)


def test_run_that_fails_raises_its_error(cache: Path, tmp_path: Path) -> None:
    table = weft.tensor(np.arange(10, dtype=np.float32))
    file = saved(tmp_path, lambda i: weft.take(table, i), weft.zeros(2, dtype=weft.int64))
    expected, found = twice(file, np.array([3, 4]))
    np.testing.assert_array_equal(found.numpy(), expected.numpy())
    with pytest.raises(WeftError, match="take"):
        weft.load_graph(file)(np.array([3, 40]))
