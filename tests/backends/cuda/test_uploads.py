"""``pipeline.to("cuda")``: the same elements on a device, in order, in buffers that no one uses too early."""

from __future__ import annotations

import gc
import time
from typing import Any

import numpy as np
import pytest

import weft
from tests.backends.cuda.standin import StandIn
from weft import data
from weft.errors import DeviceError, PipelineError

pytestmark = pytest.mark.filterwarnings("ignore:.*has no kernel for cuda:RuntimeWarning")


def test_elements_are_those_of_the_host(api: StandIn) -> None:
    x, y = np.random.default_rng(0).random((37, 5)), np.arange(37, dtype=np.int32)
    host = data.from_arrays({"x": x, "y": y}).shuffle(seed=3).batch(8)
    there = data.from_arrays({"x": x, "y": y}).shuffle(seed=3).batch(8).to("cuda")
    for _ in range(2):
        for a, b in zip(host, there, strict=True):
            assert b["x"].device == b["y"].device == "cuda"
            assert b["y"].dtype == weft.int32
            np.testing.assert_array_equal(b["x"].cpu().numpy(), a["x"].numpy())
            np.testing.assert_array_equal(b["y"].cpu().numpy(), a["y"].numpy())
    assert len(there) == 5


def test_stages_behind_it_padded_rows_texts_and_masks(api: StandIn) -> None:
    rows = data.from_dataset([([1, 2, 3], "a"), ([4], "b")]).to("cuda")
    batch = next(iter(rows.batch(2, ragged="pad", collate=None).take(1)))
    assert batch[0].values.device == batch[0].lengths.device == "cuda"
    assert batch[0].values.tolist() == [[1, 2, 3], [4, 0, 0]]
    padded, mask = next(iter(data.from_arrays([1, 2, 3]).skip(2).batch(2, last="pad", mask=True).to("cuda")))
    assert (padded.tolist(), mask.tolist()) == ([3, 0], [True, False])
    empty = next(iter(data.from_arrays(np.zeros((2, 0))).batch(2).to("cuda")))
    assert empty.shape == (2, 0)


def test_state_goes_on_where_the_loop_was(api: StandIn) -> None:
    def pipeline() -> Any:
        return data.from_arrays(np.arange(20)).shuffle(seed=1).batch(2).to("cuda")

    whole = [batch.tolist() for batch in pipeline()]
    first = pipeline()
    epoch = iter(first)
    seen = [next(epoch).tolist() for _ in range(3)]
    again = pipeline()
    again.load_state_dict(first.state_dict())
    epoch.close()
    assert seen + [batch.tolist() for batch in again] == whole


def test_two_elements_are_ahead_and_no_more(api: StandIn) -> None:
    made: list[int] = []

    def note(x: Any) -> Any:
        made.append(int(x))
        return x

    epoch = iter(data.from_arrays(np.arange(20)).map(note).to("cuda"))
    assert next(epoch).item() == 0
    end = time.monotonic() + 5
    while len(made) < 3 and time.monotonic() < end:
        time.sleep(0.01)
    time.sleep(0.05)
    assert len(made) == 3
    epoch.close()


def test_slots_wait_until_the_device_has_read_them(api: StandIn) -> None:
    batches = list(data.from_arrays(np.arange(40.0).reshape(20, 2)).batch(2).to("cuda"))
    assert [b.tolist() for b in batches] == np.arange(40.0).reshape(10, 2, 2).tolist()
    names = api.names()
    writes = [i for i, name in enumerate(names) if name == "cuMemcpyHtoDAsync"]
    assert len(writes) == 10
    assert len(api.pinned) <= 3
    for _ in range(2):  # the next epochs use the same memory
        assert sum(1 for _ in data.from_arrays(np.zeros((20, 2))).batch(2).to("cuda")) == 10
    assert api.names().count("cuMemHostAlloc") <= 3
    waits = [call[1] for call in api.calls if call[0] == "cuEventSynchronize"]
    assert len(waits) >= 7  # each slot but for the first time
    del batches
    gc.collect()
    assert weft.cuda.memory_allocated() == 0
    weft.cuda.empty_cache()
    assert not api.pinned


def test_errors_come_when_their_turn_is(api: StandIn) -> None:
    def wrong(x: Any) -> Any:
        if x == 3:
            raise KeyError("three")
        return x

    got = []
    with pytest.raises(PipelineError, match="map"):
        for x in data.from_arrays(np.arange(6)).map(wrong).to("cuda"):
            got.append(x.item())  # noqa: PERF401 - what came before the error
    assert got == [0, 1, 2]


def test_without_a_device_it_is_said_at_once() -> None:
    with pytest.raises(DeviceError, match="a CUDA device must be there"):
        data.from_arrays([1]).to("cuda")


def test_large_arrays_go_in_pieces(api: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.backends.cuda.uploads._PIECE", 1000)
    x = np.random.default_rng(0).random((6, 333))
    found = list(data.from_arrays(x).batch(2).to("cuda"))
    np.testing.assert_array_equal(np.concatenate([t.cpu().numpy() for t in found]), x)
    assert api.names().count("cuMemcpyHtoDAsync") == 3 * 6
