"""Arrays that lie the other way round: copies by tiles, and groups that read them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
from tests.backends.agreement import assert_agree, interpreted
from tests.backends.cuda.emulator import EmulatedCard
from tests.backends.cuda.standin import StandIn, standing_in
from tests.gpu.plain_driver import run_on_card
from tests.schedule.test_gpu import run_grid
from weft.backends.cuda.build import build_program
from weft.backends.cuda.turning import as_turned, tiles_of, turn_name, turn_text
from weft.ops.alias import _merged


@pytest.mark.parametrize("width", [1, 2, 4, 8])
def test_the_kernel_for_transposed_copies(width: int) -> None:
    """Batches of matrices whose sides fill tiles and do not, with room between their columns."""
    dtype = np.dtype(f"u{width}")
    for batch, rows, columns, more in ((1, 32, 32, 0), (1, 40, 33, 3), (2, 17, 70, 0)):
        card = EmulatedCard()
        full = np.random.default_rng(0).integers(0, 200, (batch, columns, rows + more)).astype(dtype)
        source, out = card.allocate(full.nbytes), card.allocate(batch * rows * columns * width)
        card.put(source, full)
        down, across = tiles_of(rows), tiles_of(columns)
        apart, stride = columns * (rows + more) * width, (rows + more) * width
        entry = card.load(turn_text(width))[turn_name(width)]
        words = [out, source, batch, rows, columns, apart, stride, down, across]
        card.launch(entry, batch * down * across, 256, 0, words)
        found = np.empty((batch, rows, columns), dtype)
        card.get(out, found)
        np.testing.assert_array_equal(found, full[:, :, :rows].transpose(0, 2, 1))


def test_which_copies_go_by_tiles() -> None:
    x = np.empty((200, 300), np.float32)
    assert as_turned(_merged(x.T.shape, x.T.strides), 4) == (1, 300, 200, 0, 1200)
    y = np.empty((5, 64, 4, 64), np.float32)  # heads of attention, the last two turned
    z = y.transpose(0, 2, 3, 1)
    assert as_turned(_merged(z.shape, z.strides), 4) == (5, 256, 64, 65536, 1024)
    assert as_turned(_merged(x[:, ::2].shape, x[:, ::2].strides), 4) is None
    assert as_turned(_merged(x[:8].T.shape, x[:8].T.strides), 4) is None  # too narrow
    assert as_turned(_merged(x[::-1].T.shape, x[::-1].T.strides), 4) == (1, 300, 200, 0, -1200)


def test_transposed_tensors_are_copied_on_the_device() -> None:
    x = np.arange(200 * 300, dtype=np.float32).reshape(200, 300)
    with standing_in(StandIn()):
        t = weft.tensor(x).to("cuda")
        np.testing.assert_array_equal(t.T.clone().cpu().numpy(), x.T)
        np.testing.assert_array_equal(t.T.clone()[:3].cpu().numpy(), x.T[:3])


CASES: dict[str, tuple[Any, tuple[int, ...]]] = {
    "elements": (lambda x, y: x.T * 2.0 + y.T, (72, 65)),
    "one side turned": (lambda x, y: (x.T + y.reshape(65, 72), x.T * 0.5), (72, 65)),
    "a batch": (lambda x, y: weft.tanh(x.swapaxes(1, 2)) - y[0, 0, 0], (2, 48, 50)),
    "the first axis is the last": (lambda x, y: x.permute((1, 2, 0)) + 1.0, (64, 5, 16)),
    "nothing is computed": (lambda x, y: (x.T, y.T), (64, 64)),
}


@pytest.mark.rotating(2)
@pytest.mark.parametrize("name", CASES)
def test_groups_that_read_turned_arrays(name: str) -> None:
    function, shape = CASES[name]
    arrays = [np.random.default_rng(i).standard_normal(shape).astype(np.float32) for i in (0, 1)]
    graph = weft.make_graph(function)(*map(weft.tensor, arrays)).optimize()
    program = build_program(graph)
    assert ".shared" in program.ptx
    wanted = interpreted(graph, arrays)
    assert_agree(run_on_card(EmulatedCard(), program, arrays), wanted)
    if name == "a batch":
        assert_agree(run_grid(graph, arrays), wanted)


def test_normal_distribution_without_double_precision() -> None:
    """The very PTX at numbers of all sizes: no float64, and at most 4 units in the last place."""
    special = pytest.importorskip("scipy.special")
    random = np.random.default_rng(0)
    near, far = np.exp(random.uniform(-12, 2.6, 6000)), random.uniform(-14.1, 8, 6000)
    x = np.concatenate([near, -near, far, [0, -0.0, np.inf, -np.inf, 20, -20]]).astype(np.float32)
    graph = weft.make_graph(weft.special.ndtr)(weft.tensor(x)).optimize()
    program = build_program(graph)
    assert ".f64" not in program.ptx
    (found,) = run_on_card(EmulatedCard(), program, [x])
    wanted = special.ndtr(x.astype(np.float64))
    unit = np.spacing(np.maximum(wanted, 1e-45).astype(np.float32)).astype(np.float64)
    assert (np.abs(found - wanted) / unit).max() <= 4
    assert np.isnan(run_on_card(EmulatedCard(), program, [np.full_like(x, np.nan)])[0]).all()
