"""The trainer: what a step does, what is measured, what is called, and what is said of mistakes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from tests.train.common import batches, bits, classifier, examples, trainer
from weft import nn
from weft.errors import ArgumentError, DomainError
from weft.train import metrics


def plain_loop(epochs: int, clip: float | None = None) -> tuple[Any, Any]:
    """Training as it is written by hand."""
    model = classifier()
    optimizer = weft.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(epochs):
        for x, y in batches():
            optimizer.zero_grad()
            loss = weft.cross_entropy(model(weft.asarray(x)), weft.asarray(y))
            loss.backward()
            if clip is not None:
                weft.nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
    return model, optimizer


def numbers_of(model: Any) -> dict[str, Any]:
    return {name: x.numpy() for name, x in model.state_dict().items()}


@pytest.mark.parametrize("clip", [None, 0.05])
def test_an_eager_run_is_the_loop_one_would_write(clip: float | None) -> None:
    run = trainer(source=batches(), validation=None, scheduler=None, clip_norm=clip, compile=False)
    run.fit(epochs=2)
    model, _ = plain_loop(2, clip)
    for name, expected in numbers_of(model).items():
        np.testing.assert_array_equal(run.model.state_dict()[name].numpy(), expected)


def test_a_compiled_run_is_close_to_an_eager_one() -> None:
    runs = [trainer(source=batches(), compile=compiled) for compiled in (False, True)]
    for run in runs:
        weft.manual_seed(1)
        run.fit(epochs=2)
    for name, expected in numbers_of(runs[0].model).items():
        np.testing.assert_allclose(runs[1].model.state_dict()[name].numpy(), expected, rtol=1e-3, atol=1e-4)


def test_it_learns() -> None:
    run = trainer(compile=True)
    history = run.fit(epochs=12)
    assert history[-1]["loss"] < 0.6 * history[0]["loss"]
    assert history[-1]["val_accuracy"] > 0.8


def test_accumulated_gradients_are_those_of_one_large_batch() -> None:
    x, y = examples()
    large = [(x[:48], y[:48])]
    small = [(x[i : i + 16], y[i : i + 16]) for i in (0, 16, 32)]
    found = []
    for source, parts in ((large, 1), (small, 3)):
        weft.manual_seed(0)
        model = nn.Linear(3, 3)
        optimizer = weft.optim.SGD(model.parameters(), lr=0.5)
        settings = {"accumulate": parts, "progress": False, "compile": False}
        run = weft.Trainer(model, weft.cross_entropy, optimizer, source, **settings)
        assert run.fit(epochs=2)[0]["loss"] == pytest.approx(run.history[0]["loss"])
        assert run.step == 2
        found.append(numbers_of(model))
    for name in found[0]:
        np.testing.assert_allclose(found[0][name], found[1][name], rtol=1e-5, atol=1e-6)


def test_a_step_at_the_end_of_an_epoch_takes_the_batches_that_are_left() -> None:
    run = trainer(source=batches(), accumulate=3, compile=False)  # 7 batches: 3, 3 and 1
    run.fit(epochs=2)
    assert run.step == 6


def test_means_are_over_examples_and_not_over_batches() -> None:
    weft.manual_seed(0)
    model = nn.Linear(3, 3)
    optimizer = weft.optim.SGD(model.parameters(), lr=0.0)
    run = weft.Trainer(
        model, weft.cross_entropy, optimizer, batches(), batches(16), metrics=["accuracy"], progress=False
    )
    (row,) = run.fit(epochs=1)
    x, y = examples()
    logits = x @ model.weight.detach().numpy().T + model.bias.detach().numpy()
    shifted = logits - logits.max(axis=1, keepdims=True)
    losses = np.log(np.exp(shifted).sum(axis=1)) - shifted[np.arange(len(y)), y]
    for prefix in ("", "val_"):
        assert row[f"{prefix}loss"] == pytest.approx(losses.mean(), rel=1e-5)
        assert row[f"{prefix}accuracy"] == pytest.approx((logits.argmax(axis=1) == y).mean())


def test_validation_changes_nothing_and_leaves_modes_alone() -> None:
    run = trainer(compile=False)
    run.model.train()
    run.model[1].eval()
    before = bits(run)
    found = run.validate()
    assert set(found) == {"loss", "accuracy"}
    assert found == run.validate() == run.validate(batches(16))
    assert bits(run) == before
    assert [m.training for m in run.model] == [True, False, True, True, True]


def test_validation_is_of_the_averaged_parameters() -> None:
    run = trainer(compile=False, average=True)
    run.fit(epochs=1)
    plain = run.model[0].weight.detach().numpy()
    ema = run.state_dict()["ema"]["averages"]
    run.model.load_state_dict({name: ema[name] for name in run.model.state_dict()})
    other = trainer(compile=False)
    other.model.load_state_dict(run.model.state_dict())
    assert other.validate() == {k[4:]: x for k, x in run.history[0].items() if k.startswith("val_")}
    assert not np.array_equal(plain, ema["0.weight"].numpy())


def test_batches_of_other_kinds_have_a_forward_of_their_own() -> None:
    x, y = examples()
    source = [{"features": x, "label": y}]
    weft.manual_seed(0)
    model = nn.Linear(3, 3)

    def forward(model: Any, batch: Any) -> tuple[Any, Any]:
        out = model(batch["features"])
        if out.sum() > 1e6:  # a branch on a tensor, in a compiled step
            out = out * 0.0
        return out, batch["label"]

    optimizer = weft.optim.SGD(model.parameters(), lr=0.5)
    run = weft.Trainer(model, weft.cross_entropy, optimizer, source, forward=forward, progress=False)
    history = run.fit(epochs=20)
    assert history[-1]["loss"] < history[0]["loss"]


def test_metrics_are_functions_of_outputs_and_targets() -> None:
    given = {"total": lambda output, target: target.sum(), "accuracy": metrics.accuracy}
    run = trainer(source=batches(), metrics=given, compile=True)
    (row,) = run.fit(epochs=1)
    sizes = [len(y) for _, y in batches()]
    totals = [y.sum() for _, y in batches()]
    assert row["total"] == pytest.approx(np.average(totals, weights=sizes))


@pytest.mark.parametrize(
    ("every", "expected"), [("epoch", [0.02, 0.016]), ("step", [0.02 * 0.8**7, 0.02 * 0.8**14])]
)
def test_schedules_step_when_told(every: str, expected: list[float]) -> None:
    run = trainer(source=batches(), scheduler_every=every, compile=False)
    rates = [row["lr"] for row in run.fit(epochs=2)]
    np.testing.assert_allclose(rates, expected, rtol=1e-6)


def test_a_schedule_on_a_metric_gets_it() -> None:
    model = classifier()
    optimizer = weft.optim.SGD(model.parameters(), lr=1.0)
    plateau = weft.optim.lr_scheduler.ReduceLROnPlateau(
        optimizer, patience=0, factor=0.5, threshold=1e9, threshold_mode="abs"
    )
    run = weft.Trainer(
        model, weft.cross_entropy, optimizer, batches(), scheduler=plateau, compile=False, progress=False
    )
    run.fit(epochs=3)
    assert plateau.best == run.history[0]["loss"]
    assert optimizer.param_groups[0]["lr"] == 0.25


class Notes(weft.train.Callback):
    def __init__(self) -> None:
        self.seen: list[str] = []

    def on_start(self, trainer: Any) -> None:
        self.seen.append("start")

    def on_step(self, trainer: Any, row: Any) -> None:
        self.seen.append(f"step {row['step']}")

    def on_epoch(self, trainer: Any, row: Any) -> None:
        self.seen.append(f"epoch {row['epoch']}")
        if row["epoch"] == 2:
            trainer.stop("enough")

    def on_end(self, trainer: Any) -> None:
        self.seen.append("end")


def test_callbacks_are_called_in_order_and_may_stop() -> None:
    notes = Notes()
    run = trainer(source=batches(26), callbacks=[notes], compile=False)
    run.fit(epochs=9)
    assert notes.seen == ["start", "step 1", "step 2", "epoch 1", "step 3", "step 4", "epoch 2", "end"]
    assert run.stopped == "enough"


def test_it_stops_early_when_a_number_gets_no_better(tmp_path: Path) -> None:
    losses = iter([3.0, 2.0, 2.5, 2.4, 1.0, 1.1, 1.2, 1.3])
    stopping = weft.train.EarlyStopping("val_score", patience=2)
    run = trainer(
        tmp_path, source=batches(26), callbacks=[stopping], monitor="val_score", scheduler=None, compile=False
    )
    run.validate = lambda: {"score": next(losses)}
    run.fit(epochs=100)
    assert run.epoch == 8
    assert stopping.best == 1.0
    assert "val_score has not become better for 3 epochs" in run.stopped
    assert weft.load(run.checkpoints.best)["epoch"] == 5


def test_checkpoints_are_the_newest_and_the_best(tmp_path: Path) -> None:
    run = trainer(tmp_path, source=batches(), compile=False, checkpoint_every=3, keep=2)
    run.fit(epochs=2)
    names = sorted(p.name for p in tmp_path.glob("*.safetensors"))
    assert names == ["best.safetensors", "step-00000012.safetensors", "step-00000014.safetensors"]
    state = weft.load(tmp_path / "best.safetensors")["model"]
    model = classifier()
    model.load_state_dict(state)  # what is in a checkpoint loads without a trainer


def test_without_a_directory_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = trainer(compile=False)
    run.fit(steps=2)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ArgumentError, match="save: must have a path, got none"):
        run.save()
    run.save(tmp_path / "mine")
    other = trainer(compile=False)
    assert other.resume(tmp_path / "mine")
    assert bits(other) == bits(run)


def test_the_model_and_the_step_may_be_used_between_fits() -> None:
    run = trainer(source=batches(), compile=True)
    run.fit(epochs=1)
    with weft.no_grad():
        run.model(weft.ones((2, 3)))
        run.model[0].weight.data = run.model[0].weight.detach() * 0.5
    run.fit(epochs=2)
    assert run.step == 14


@pytest.mark.rotating(3)
@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: trainer(source=5), ArgumentError, "train: must be an iterable of batches, got int"),
        (lambda: trainer(metrics=["f2"]), DomainError, "metrics must be among accuracy"),
        (lambda: trainer(metrics={"loss": len}), ArgumentError, "metrics must be functions by names"),
        (lambda: trainer(accumulate=0), DomainError, "accumulate must be a whole number from 1 on, got 0"),
        (lambda: trainer(scheduler_every="day"), DomainError, 'scheduler_every must be "epoch" or "step"'),
        (lambda: trainer(mode="low"), DomainError, "mode must be min or max, got 'low'"),
        (lambda: trainer(logs=["paper"]), DomainError, "among csv, jsonl, tensorboard, got 'paper'"),
        (lambda: trainer().fit(), ArgumentError, "fit: must be given epochs or steps"),
        (lambda: trainer(source=iter(batches())).fit(epochs=2), DomainError, "an epoch must have at least"),
        (lambda: trainer(source=[weft.ones(3)]).fit(epochs=1), ArgumentError, "a batch must be a tuple"),
        (lambda: trainer(monitor="val_f1").fit(epochs=1), DomainError, "monitor must be among lr, loss, acc"),
        (lambda: trainer(validation=None).validate(), ArgumentError, "validate: must have batches"),
    ],
)  # fmt: skip
def test_a_mistake_is_named(make: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        make()
    assert message in str(caught.value)


def test_a_loss_that_is_no_number_is_an_error() -> None:
    model = classifier()
    optimizer = weft.optim.SGD(model.parameters(), lr=0.1)

    def per_example(output: Any, target: Any) -> Any:
        return weft.cross_entropy(output, target, reduction="none")

    run = weft.Trainer(model, per_example, optimizer, batches(), progress=False)
    with pytest.raises(DomainError, match=r"the loss must be one number, got shape \(8,\)"):
        run.fit(epochs=1)
