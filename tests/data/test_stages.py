"""What each stage does to elements, beside plain NumPy."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import weft
from weft import data
from weft.errors import ArgumentError, DomainError, ShapeError

IMAGES = np.arange(5 * 4 * 6, dtype=np.uint8).reshape(5, 4, 6)
LABELS = np.arange(5)


def only(pipeline: data.Pipeline) -> Any:
    (found,) = pipeline.numpy()
    return found


# Elements


def test_batches_are_tensors_and_share_no_memory_with_the_source() -> None:
    x = np.zeros((4, 3), np.float32)
    (batch,) = data.from_arrays(x).batch(4)
    assert isinstance(batch, weft.Tensor)
    x[:] = 1
    assert batch.sum().item() == 0


def test_functions_cannot_change_the_source_by_mistake() -> None:
    def spoil(x: Any) -> Any:
        x += 1
        return x

    x = np.zeros((4, 3))
    with pytest.raises(weft.errors.PipelineError, match="read-only"):
        list(data.from_arrays(x).map(spoil))
    with pytest.raises(weft.errors.PipelineError, match="read-only"):
        list(data.from_arrays(x).cache().map(spoil))
    assert x.sum() == 0


class Point(NamedTuple):
    x: Any
    y: Any


@pytest.mark.parametrize(
    "tree",
    [
        (np.arange(6), np.arange(12).reshape(6, 2)),
        {"a": np.arange(6), "b": (np.arange(6), {"c": np.zeros((6, 2, 2))})},
        Point(np.arange(6), np.arange(6)),
    ],
)
def test_batches_keep_the_structure_of_elements(tree: Any) -> None:
    fused = list(data.from_arrays(tree).shuffle(seed=3).batch(4).numpy())
    one_by_one = list(data.from_arrays(tree).shuffle(seed=3).map(identity).batch(4).numpy())
    order = np.concatenate([weft.tree_leaves(b)[0] for b in fused])
    expected = [weft.tree_map(lambda a, i=i: a[order[i : i + 4]], tree) for i in (0, 4)]
    for found in (fused, one_by_one):
        for a, b in zip(found, expected, strict=True):
            assert weft.tree_structure(a) == weft.tree_structure(b)
            for p, q in zip(weft.tree_leaves(a), weft.tree_leaves(b), strict=True):
                assert p.dtype == q.dtype
                np.testing.assert_array_equal(p, q)


def identity(*parts: Any) -> Any:
    return parts[0] if len(parts) == 1 else parts


def test_map_may_return_tensors() -> None:
    (batch,) = data.from_arrays(np.arange(4.0)).map(lambda x: weft.tensor(x) * 2).batch(4)
    assert batch.tolist() == [0, 2, 4, 6]


def test_numbers_of_python_get_wefts_dtypes() -> None:
    (batch,) = data.from_dataset([(1, 2.0, True, [1.0, 2.0])] * 2).batch(2)
    assert [x.dtype.name for x in batch] == ["int64", "float32", "bool", "float32"]


def test_what_cannot_be_a_tensor_stays_an_array() -> None:
    ((x, name),) = data.from_dataset([(1, "a"), (2, "b")]).batch(2)
    assert isinstance(x, weft.Tensor)
    assert name.tolist() == ["a", "b"]


# Batches


@pytest.mark.parametrize(("last", "count"), [("keep", 3), ("drop", 2), ("pad", 3)])
def test_length_tells_the_number_of_batches(last: str, count: int) -> None:
    pipeline = data.from_arrays(np.arange(5)).batch(2, last)
    assert len(pipeline) == count == len(list(pipeline))


def test_padding_fills_every_leaf_and_is_masked() -> None:
    *_, (x, y, mask) = data.from_arrays(IMAGES, LABELS).batch(3, "pad", value=9, mask=True).numpy()
    assert x.shape == (3, 4, 6)
    assert (x[2] == 9).all()
    assert (x[:2] == IMAGES[3:]).all()
    assert y.tolist() == [3, 4, 9]
    assert mask.tolist() == [True, True, False]
    *_, batch = data.from_arrays({"y": LABELS}).batch(3, "pad", mask=True)
    assert batch["mask"].tolist() == [True, True, False]


def test_ragged_rows_become_ragged_tensors_or_padded_arrays() -> None:
    rows = [np.array([1, 2]), np.array([3]), np.array([], np.int64)]
    elements = [{"tokens": r, "label": i, "fixed": np.zeros(2)} for i, r in enumerate(rows)]
    (named,) = data.from_dataset(elements).batch(3, ragged=("tokens",))
    assert named["tokens"].tolist() == [[1, 2], [3], []]
    assert named["fixed"].shape == (3, 2)
    (every,) = data.from_dataset(elements).batch(3, ragged=True)
    assert every["fixed"].shape == (3, None)
    assert every["label"].tolist() == [0, 1, 2]
    points = [Point(r, i) for i, r in enumerate(rows)]
    (point,) = data.from_dataset(points).batch(3, ragged=(0,))
    assert isinstance(point, Point)
    assert point.x.tolist() == [[1, 2], [3], []]
    (padded,) = data.from_dataset(rows).batch(3, ragged="pad", value=-1)
    assert padded.values.tolist() == [[1, 2], [3, -1], [-1, -1]]
    assert padded.lengths.tolist() == [2, 1, 0]


def test_last_ragged_batch_is_padded_with_empty_rows() -> None:
    (batch,) = data.from_dataset([[1, 2], [3]]).batch(4, "pad", ragged=True)
    assert batch.tolist() == [[1, 2], [3], [], []]
    (padded,) = data.from_dataset([[1, 2], [3]]).batch(3, "pad", ragged="pad", value=7)
    assert padded.lengths.tolist() == [2, 1, 0]
    assert padded.values.tolist() == [[1, 2], [3, 7], [7, 7]]


@pytest.mark.parametrize("mode", [None, "thread", "process"])
def test_batches_by_a_function_of_the_user(mode: str | None) -> None:
    def longest(rows: list[Any]) -> Any:
        return max(rows, key=len), len(rows)

    loader = data.Loader([[1], [2, 3], [4]], batch_size=2, collate_fn=longest)
    pipeline = loader if mode is None else loader.prefetch(2, mode=mode)
    assert list(pipeline) == [([2, 3], 2), ([4], 1)]
    broken = data.from_arrays([1, 2]).batch(2, collate=len).map(lambda n: 1 // (n - 2))
    with pytest.raises(weft.errors.PipelineError, match="ZeroDivisionError"):
        list(broken)
    with pytest.raises(weft.errors.PipelineError, match=r"batch: sum \(stage %1\) failed on element 0"):
        list(data.from_dataset(["a", "b"]).batch(2, collate=sum))


def test_batches_of_batches() -> None:
    (found,) = data.from_arrays(np.arange(12)).batch(3).batch(2, "drop").take(1).numpy()
    assert found.tolist() == [[0, 1, 2], [3, 4, 5]]
    streamed = data.from_generator(lambda: iter(range(12))).batch(3).batch(2).numpy()
    assert [x.tolist() for x in streamed] == [[[0, 1, 2], [3, 4, 5]], [[6, 7, 8], [9, 10, 11]]]


def test_rows_that_do_not_fit_are_named() -> None:
    with pytest.raises(ShapeError, match=r"got \(2,\) and \(1,\) \(elements 2 and 3\)") as caught:
        list(data.from_dataset([[1, 2], [1, 2], [1, 2], [1]]).batch(2))
    assert "ragged=True" in str(caught.value)
    with pytest.raises(ShapeError, match="differ in their first axis alone"):
        list(data.from_dataset([np.zeros((1, 2)), np.zeros((1, 3))]).batch(2, ragged=True))
    with pytest.raises(ShapeError, match=r"got \(\) and \(2,\) \(elements 0 and 1\)"):
        list(data.from_dataset([1, [1, 2]]).batch(2))
    with pytest.raises(ArgumentError, match="trees of one structure"):
        list(data.from_dataset([{"a": 1}, {"b": 1}]).batch(2))


# Changes


def test_normalise_scales_channels() -> None:
    x = np.random.default_rng(0).random((6, 3, 4, 4))
    mean, std = np.array([0.1, 0.2, 0.3]), np.array([1.0, 2.0, 3.0])
    expected = (x - mean[:, None, None]) / std[:, None, None]
    pipeline = data.from_arrays(x, np.arange(6)).normalise(mean, std)
    np.testing.assert_array_equal(only(pipeline.batch(6))[0], expected)
    np.testing.assert_array_equal(only(pipeline.map(identity).batch(6))[0], expected)


def test_normalise_makes_integers_floats() -> None:
    found = only(data.from_arrays(IMAGES).normalise(127.5, 127.5).batch(5))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, IMAGES / 127.5 - 1, rtol=1e-5)


def test_normalise_scales_single_numbers() -> None:
    pipeline = data.from_arrays(np.array([1.0, 3.0])).normalise(1.0, 2.0)
    assert [float(x) for x in pipeline] == [0.0, 1.0]
    assert only(pipeline.batch(2)).tolist() == [0.0, 1.0]


def test_normalise_along_features() -> None:
    x = np.arange(6.0).reshape(3, 2)
    found = only(data.from_arrays({"x": x}).normalise(x.mean(0), x.std(0), on="x").batch(3))["x"]
    np.testing.assert_allclose(found.mean(0), 0, atol=1e-12)
    np.testing.assert_allclose(found.std(0), 1)


def test_crop_takes_the_centre() -> None:
    pipeline = data.from_arrays(IMAGES, LABELS).crop((2, 2))
    np.testing.assert_array_equal(only(pipeline.batch(5))[0], IMAGES[:, 1:3, 2:4])
    np.testing.assert_array_equal(only(pipeline.map(identity).batch(5))[0], IMAGES[:, 1:3, 2:4])


def test_random_crop_is_a_part_and_differs_between_elements_and_epochs() -> None:
    pipeline = (
        data.from_arrays(np.stack([IMAGES[0]] * 50)).crop((2, 3), random=True, seed=4).batch(50).numpy()
    )
    (first,), (second,) = list(pipeline), list(pipeline)
    parts = {IMAGES[0, i : i + 2, j : j + 3].tobytes() for i in range(3) for j in range(4)}
    assert {x.tobytes() for x in first} == parts  # all twelve places come up
    assert (first != second).any()


def test_tile_repeats() -> None:
    found = only(data.from_arrays(IMAGES, LABELS).tile((2, 1)).batch(5))[0]
    np.testing.assert_array_equal(found, np.tile(IMAGES, (1, 2, 1)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda p: p.crop((9, 9)), "must fit into the last axes"),
        (lambda p: p.normalise([1.0, 2.0], [1.0, 1.0]), "must fit axis 0"),
        (lambda p: p.augment(data.Rotate()), "as many to be turned"),
    ],
)
def test_changes_that_do_not_fit_are_refused(change: Any, message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        list(change(data.from_arrays(IMAGES, LABELS)))


def test_parts_must_be_named_in_dicts_and_must_be_there() -> None:
    pipeline = data.from_arrays({"image": IMAGES})
    with pytest.raises(
        ArgumentError, match="on must name parts of an element that is a dict, one of 'image'"
    ):
        list(pipeline.crop((2, 2)))
    with pytest.raises(DomainError, match="got 'label' for"):
        list(pipeline.crop((2, 2), on="label"))


# Cache


def test_cache_calls_functions_once() -> None:
    calls: list[int] = []
    pipeline = data.from_arrays(np.arange(4)).map(lambda x: calls.append(int(x)) or x * 2).cache().shuffle()
    for _ in range(3):
        assert sorted(int(x) for x in pipeline) == [0, 2, 4, 6]
    assert sorted(calls) == [0, 1, 2, 3]


def test_cache_of_a_stream_reads_on_after_an_epoch_was_left() -> None:
    calls: list[int] = []
    source = data.from_generator(lambda: iter(range(6))).map(lambda x: calls.append(x) or x)
    pipeline = source.filter(lambda x: x % 2 == 0).cache()
    next(iter(pipeline))
    assert [list(pipeline) for _ in range(2)] == [[0, 2, 4]] * 2
    assert sorted(calls) == [0, 1, 2, 3, 4, 5]


def test_cache_on_disk_is_written_once_and_read_by_others(tmp_path: Path) -> None:
    calls: list[int] = []

    def build() -> data.Pipeline:
        source = data.from_arrays({"x": np.arange(5), "y": (np.ones((5, 2)),)})
        counted = source.map(lambda e: calls.append(1) or e).filter(lambda e: e["x"] != 2)
        return counted.cache(tmp_path / "kept").shuffle().batch(3)

    expected = [0, 1, 3, 4]
    for _ in range(2):
        batches = list(build().numpy())
        assert sorted(int(x) for b in batches for x in b["x"]) == expected
        assert batches[0]["y"][0].shape == (3, 2)
    assert len(calls) == 5
    assert sorted(p.name for p in (tmp_path / "kept").iterdir()) == ["0.npy", "1.npy", "elements.json"]
    np.testing.assert_array_equal(np.load(tmp_path / "kept" / "0.npy"), expected)


def test_cache_of_other_stages_is_refused(tmp_path: Path) -> None:
    list(data.from_arrays([1, 2]).cache(tmp_path / "kept"))
    with pytest.raises(DomainError, match=r"must be of the same stages.*count=2"):
        list(data.from_arrays([1, 2, 3]).cache(tmp_path / "kept"))


def test_failing_cache_leaves_no_files(tmp_path: Path) -> None:
    with pytest.raises(ShapeError, match="elements on disk must be alike"):
        list(data.from_dataset([np.zeros(2), np.zeros(3)]).cache(tmp_path / "kept"))
    assert list(tmp_path.iterdir()) == []


# Bad arguments


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda p: p.map(3), ArgumentError, "map: takes a function, got int"),
        (lambda p: p.filter(None), ArgumentError, "filter: takes a function"),
        (lambda p: p.batch(0), DomainError, "batch: size must be positive, got 0"),
        (lambda p: p.batch(2.5), ArgumentError, "batch: size must be an int, got 2.5"),
        (lambda p: p.batch(2, "cut"), DomainError, "last must be one of 'keep', 'drop', 'pad', got 'cut'"),
        (lambda p: p.batch(2, ragged=2.5), DomainError, "ragged must be a bool, 'pad' or names"),
        (lambda p: p.shuffle(0), DomainError, "shuffle: buffer must be positive"),
        (lambda p: p.shuffle(seed=-1), DomainError, "shuffle: seed must not be negative"),
        (lambda p: p.take(-1), DomainError, "take: count must not be negative, got -1"),
        (lambda p: p.repeat(0), DomainError, "repeat: times must be positive"),
        (lambda p: p.zip([1]), ArgumentError, "zip: takes pipelines, got list"),
        (lambda p: p.augment(), ArgumentError, "augment: takes at least one change"),
        (lambda p: p.normalise("a", 1), ArgumentError, "normalise: mean must be numbers"),
        (lambda p: p.normalise(0, 0), DomainError, "normalise: std must be positive"),
        (lambda p: p.prefetch(0), DomainError, "prefetch: count must be positive"),
        (lambda p: p.prefetch(2, mode="gpu"), DomainError, "mode must be one of 'thread', 'process'"),
        (lambda p: p.prefetch(2, start="clone"), DomainError, "start must be one of"),
    ],
)
def test_bad_arguments_are_refused_where_they_are_given(
    build: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        build(data.from_arrays(np.arange(3)))


@pytest.mark.parametrize(
    ("pipeline", "why"),
    [
        (data.from_arrays([1, 2]).repeat(), "has no end"),
        (data.from_arrays([1, 2]).filter(bool), "only after running it"),
    ],
)
def test_unknown_length_is_said(pipeline: data.Pipeline, why: str) -> None:
    with pytest.raises(TypeError, match=why):
        len(pipeline)


# Seeing


def test_text_and_dot_show_the_graph() -> None:
    images = data.from_arrays(np.zeros((10, 28, 28), np.uint8)).normalise(0.5, 0.25).crop((24, 24))
    pairs = images.zip(data.from_arrays(np.arange(10))).filter(identity)
    pipeline = pairs.shuffle(100, seed=7).batch(4).map(identity).prefetch(2, workers=2)
    assert pipeline.to_text(locations=False) == (
        "pipeline {\n"
        "  %0: u8[28,28] = arrays(count=10)\n"
        "  %1: f32[28,28] = normalise(%0, mean=0.5, std=0.25)\n"
        "  %2: f32[24,24] = crop(%1, size=(24, 24))\n"
        "  %3: i64[] = arrays(count=10)\n"
        "  %4: (f32[24,24], i64[]) = zip(%2, %3)\n"
        "  %5: (f32[24,24], i64[]) = filter(%4, identity)\n"
        "  %6: (f32[24,24], i64[]) = shuffle(%5, buffer=100, seed=7)\n"
        "  %7: (f32[batch,24,24], i64[batch]) = batch(%6, size=4)\n"
        "  %8 = map(%7, identity)\n"
        "  %9 = prefetch(%8, count=2, workers=2)\n"
        "  return %9\n"
        "}"
    )
    assert "@ test_stages.py:" in str(pipeline)
    assert "n2 -> n4" in str(pipeline.dot())
    assert 'n6 -> n7 [label="(f32[24,24], i64[])"]' in str(pipeline.dot())


def test_types_that_are_told_are_those_of_the_elements() -> None:
    x = np.zeros((6, 8, 8), np.uint8)
    changes = [
        data.Flip(),
        data.Shift(1),
        data.RandomCrop((4, 4), pad=1),
        data.Noise(0.1),
        data.Erase((1, 1)),
    ]
    pipeline = data.from_arrays(x, np.arange(6)).augment(*changes).tile((2, 1)).batch(3, mask=True)
    (first, *_) = pipeline
    told = pipeline.to_text(locations=False).splitlines()[-3].partition(": ")[2].partition(" = ")[0]
    assert told == "(f32[3,8,4], i64[3], bool[3])"
    assert [(t.dtype.name, t.shape) for t in first] == [
        ("float32", (3, 8, 4)),
        ("int64", (3,)),
        ("bool", (3,)),
    ]


# The familiar fronts


class Squares(data.Dataset):
    def __len__(self) -> int:
        return 10

    def __getitem__(self, i: int) -> Any:
        return np.float32(i), i * i


@pytest.mark.parametrize("workers", [0, 2])
def test_loader_gives_each_item_once_in_each_epoch(workers: int) -> None:
    loader = data.Loader(Squares(), batch_size=3, shuffle=True, num_workers=workers, seed=1)
    assert len(loader) == 4
    orders = []
    for _ in range(2):
        batches = list(loader)
        assert [len(x) for x, _ in batches] == [3, 3, 3, 1]
        orders.append([int(v) for x, _ in batches for v in x])
        assert all(int(a) ** 2 == int(b) for x, y in batches for a, b in zip(x, y, strict=True))
    assert sorted(orders[0]) == sorted(orders[1]) == list(range(10))
    assert orders[0] != orders[1]


def test_loader_drops_the_last_and_takes_arrays_tensors_and_pipelines() -> None:
    x = weft.arange(10)
    assert [b.tolist() for b in data.Loader(x, batch_size=4, drop_last=True)] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert [b["x"].tolist() for b in data.Loader({"x": x[:4]}, batch_size=4)] == [[0, 1, 2, 3]]
    assert [b.tolist() for b in data.Loader(data.from_arrays(x).take(2), batch_size=4)] == [[0, 1]]


def test_loader_uses_threads_for_arrays_and_processes_for_functions() -> None:
    assert "mode" not in repr(data.Loader((np.zeros(4),), num_workers=2))
    assert "mode='process'" in repr(data.Loader(Squares(), num_workers=2))


def test_dataset_must_define_its_methods() -> None:
    class Empty(data.Dataset):
        pass

    with pytest.raises(NotImplementedError, match="Empty must define __len__"):
        len(Empty())
    with pytest.raises(NotImplementedError, match="Empty must define __getitem__"):
        Empty()[0]


@pytest.mark.parametrize(
    ("call", "message", "hint"),
    [
        (lambda p: p.batch(2, drop=True), "unknown keyword 'drop'", 'last="drop"'),
        (lambda p: p.batch(2, drop_last=True), "unknown keyword 'drop_last'", 'last="drop"'),
        (lambda p: p.batch(batch_size=2), "unknown keyword 'batch_size'", "size="),
        (lambda p: p.shuffle(sed=3), "unknown keyword 'sed'", "did you mean seed=?"),
        (lambda p: p.map(abs, num_workers=2), "unknown keyword 'num_workers'", "prefetch(workers=n)"),
        (lambda p: p.batch(), "missing 1 required positional argument: 'size'", "it takes size, last"),
        (lambda p: p.take(1, 2), "takes at most 1 arguments by position, got 2", "it takes count"),
    ],
)
def test_calls_of_stages_that_do_not_fit_are_told(call: Any, message: str, hint: str) -> None:
    with pytest.raises(ArgumentError, match=message) as told:
        call(data.from_arrays([1, 2, 3]))
    assert hint in str(told.value.hint)
