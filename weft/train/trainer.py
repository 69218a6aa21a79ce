"""The trainer: epochs, validation, checkpoints and their like around the steps of ``weft.train.step``.

It is thin: a loop that can be read, over objects that know nothing of it. The state of a run is that of its
parts, so a run that goes on from a checkpoint gives the same bits as one that never stopped.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import weft
from weft import parallel
from weft.base.device import CPU, DeviceLike
from weft.base.tracebacks import edge
from weft.errors import ArgumentError, DomainError
from weft.io.files import save_together
from weft.train.callbacks import Best, Callback, monitored
from weft.train.checkpoints import (
    FORMAT,
    Checkpoints,
    check_parts,
    load_parts,
    parts_state,
    random_state,
    set_random_state,
)
from weft.train.logs import Log, check_kinds
from weft.train.metrics import Means, Metric, MetricFunction, named_metrics
from weft.train.progress import Progress, as_text, make_progress
from weft.train.ranks import Ranks
from weft.train.runner import Feed, Interrupt, Runner
from weft.train.step import Recipe, split_batch

Row = dict[str, Any]


class _InterruptedError(Exception):
    """Ctrl-C, noticed where nothing is half done."""


class Trainer:
    """Trains a model.

    Args:
        model: a module.
        loss: a function of outputs and targets that gives one number.
        optimizer: of the parameters of the model.
        train: an iterable of batches, such as a ``weft.data.Pipeline``; each time it is iterated over is an
            epoch. A batch is a tuple ``(input, ..., target)`` of tensors or arrays.
        validation: likewise, gone through after each epoch.
        forward: from the model and a batch to outputs and targets, for batches of other kinds.
        metrics: functions of outputs and targets by name, or objects such as ``weft.train.metrics.F1(10)``,
            which are added up over batches; or names of weft's own, such as "accuracy".
        scheduler: of the learning rate.
        scheduler_every: whether it takes a step after each "epoch" or each "step".
        compile: whether steps are compiled, each into one function.
        clip_norm: the largest norm of all gradients together.
        clip_value: the largest element of gradients.
        accumulate: how many batches make one step.
        autocast: the dtype to compute in where that is safe, such as ``weft.bfloat16``.
        scaler: a ``GradScaler``, of the loss.
        ema: an average of the parameters, updated after each step.
        callbacks: see ``weft.train.Callback``.
        directory: of checkpoints and logs; without one there are none.
        checkpoint_every: steps between checkpoints; by default they are made after each epoch.
        keep: how many of the newest checkpoints are kept.
        monitor: the number that tells the best checkpoint; by default the loss, that of validation if it is
            there.
        mode: whether better is "min", lower, or "max", higher.
        logs: which of "csv", "jsonl" and "tensorboard" are written.
        log_every: steps between rows of logs.
        progress: whether to show how far it is.
        watch: serve a page on this machine that shows the run while it trains: losses, times, memory, norms
            of gradients, the graph. Its address is printed; it ends with ``fit``.
        device: where the model goes; batches go where it is, a pipeline's while those before are used.
        mesh: of ``weft.parallel``, whose ranks share the work on each batch; all of them run this trainer on
            the same batches. Logs are written by the first, checkpoints by all; an error or Ctrl-C on one
            rank ends the run, which goes on from the last checkpoint.
        zero: what the ranks of a batch share, see ``weft.compile``.
        reproducible: whether the bits do not depend on the number of ranks.
        microbatches: in how many parts a rank works on its part of a batch, see ``weft.compile``.
        schedule: of a mesh with the axis "pipe": in which order stages work on microbatches.
        stages: likewise, how many there are.

    Attributes:
        step: how many steps have been taken.
        epoch: how many epochs have ended.
        history: a row of numbers for each epoch.
        stopped: why it stopped before its goal; "" if it did not.

    >>> import weft
    >>> x = weft.linspace(0.0, 1.0, 64).reshape(64, 1)
    >>> batches = [(x[i : i + 16], 3.0 * x[i : i + 16] + 1.0) for i in range(0, 64, 16)]
    >>> model = weft.nn.Linear(1, 1)
    >>> optimizer = weft.optim.SGD(model.parameters(), lr=0.5)
    >>> trainer = weft.Trainer(model, weft.mse_loss, optimizer, batches, progress=False)
    >>> history = trainer.fit(epochs=50)
    >>> history[-1]["loss"] < 0.001, trainer.step
    (True, 200)
    """

    def __init__(
        self,
        model: Any,
        loss: Callable[[Any, Any], Any],
        optimizer: Any,
        train: Any,
        validation: Any = None,
        *,
        forward: Callable[[Any, Any], tuple[Any, Any]] = split_batch,
        metrics: Mapping[str, MetricFunction | Metric] | Sequence[str] = (),
        scheduler: Any = None,
        scheduler_every: str = "epoch",
        compile: bool = True,
        clip_norm: float | None = None,
        clip_value: float | None = None,
        accumulate: int = 1,
        autocast: Any = None,
        scaler: Any = None,
        ema: Any = None,
        callbacks: Sequence[Callback] = (),
        directory: str | os.PathLike[str] | None = None,
        checkpoint_every: int | None = None,
        keep: int = 3,
        monitor: str | None = None,
        mode: str = "min",
        logs: Sequence[str] = ("csv", "tensorboard"),
        log_every: int = 50,
        progress: bool = True,
        watch: bool = False,
        device: DeviceLike | None = None,
        mesh: Any = None,
        zero: int = 0,
        reproducible: bool = True,
        microbatches: int | None = None,
        schedule: Any = "1f1b",
        stages: int | None = None,
    ) -> None:
        if mesh is not None and not compile:
            raise DomainError("Trainer", "steps on a mesh must be compiled, got compile=False")
        pipeline = microbatches, schedule, stages
        ranks = None if mesh is None else Ranks(mesh, zero, reproducible, *pipeline)
        _check_count("accumulate", accumulate)
        _check_count("log_every", log_every)
        _check_count("checkpoint_every", 1 if checkpoint_every is None else checkpoint_every)
        if scheduler_every not in ("epoch", "step"):
            message = f'scheduler_every must be "epoch" or "step", got {scheduler_every!r}'
            raise DomainError("Trainer", message)
        parts = model, loss, optimizer, forward, named_metrics(metrics)
        recipe = Recipe(*parts, clip_norm, clip_value, accumulate, autocast, scaler, ema, ranks)
        recipe.check()
        place = _place(model, ema, device)
        self.model = model
        self.optimizer = optimizer
        self.scheduler = scheduler
        self.callbacks = list(callbacks)
        self.checkpoints = None if directory is None else Checkpoints(directory, keep, ranks)
        self.monitor = monitor or ("loss" if validation is None else "val_loss")
        self._runner = Runner(recipe, compile)
        self._train = Feed("train", train, place)
        self._validation = None if validation is None else Feed("validation", validation, place)
        self._scheduler_every = scheduler_every
        self._checkpoint_every = checkpoint_every
        self._best = Best(mode)
        self._log_kinds = check_kinds(logs)
        self._log_every = log_every
        self._writes = ranks is None or ranks.is_first
        self._shows = progress and self._writes
        self._watch = self._make_watch() if watch else None
        self._begin()

    def _begin(self) -> None:
        """The state of a run that has not begun."""
        self.step = 0
        self.epoch = 0
        self.history: list[Row] = []
        self.stopped = ""
        self._means = Means(self._runner.recipe.metrics)  # of this epoch
        self._lately = Means(self._runner.recipe.metrics)  # since the last row of the logs
        self._log: Log | None = None
        self._progress = Progress()
        self._interrupt = Interrupt()
        self._mark: Row | None = None  # what the state was before something that has not ended yet
        self._saved = -1  # the step of the last checkpoint

    # Training

    @edge
    def fit(self, epochs: int | None = None, steps: int | None = None) -> list[Row]:
        """Train until so many epochs have ended, or so many steps have been taken, in all.

        Ctrl-C lets the step end, makes a checkpoint, and stops; a second one is the usual error. After an
        error, wherever it comes from, there is a checkpoint of the last step that was complete.

        Args:
            epochs: in all, those of earlier calls and of the checkpoint that was resumed from included.
            steps: likewise.

        Returns:
            ``history``: for each epoch its means.
        """
        if epochs is None and steps is None:
            raise ArgumentError("fit", "must be given epochs or steps, got none")
        for name, count in (("epochs", epochs), ("steps", steps)):
            if count is not None and not hasattr(count, "__index__"):
                hint = "weft.Trainer takes the model and the batches, fit how long to train"
                message = f"{name} must be a whole number, got {type(count).__name__}"
                raise ArgumentError("fit", message, hint=hint)
        self.stopped, self._runner.is_broken = "", False
        with ExitStack() as stack:
            self._open(stack)
            try:
                while not self._is_done(epochs, steps):
                    self._run_epoch(epochs, steps)
                if self.checkpoints is not None and self._saved != self.step:
                    self.save()
            except _InterruptedError:
                self._rescue()
                self.stopped = "interrupted"
            except BaseException as error:
                self._rescue(error)
                raise
        return self.history

    def stop(self, reason: str) -> None:
        """Stop after this step, or after this epoch if one has just ended; for callbacks."""
        self.stopped = reason

    def _is_done(self, epochs: int | None, steps: int | None) -> bool:
        done = (epochs is not None and self.epoch >= epochs) or (steps is not None and self.step >= steps)
        return done or bool(self.stopped)

    def _open(self, stack: ExitStack) -> None:
        """Begin what ends with ``fit``."""
        if self._runner.recipe.ranks is None:  # ranks would notice it after different steps
            self._interrupt = stack.enter_context(Interrupt())
        stack.callback(setattr, self._interrupt, "asked", False)  # validate() may be called later
        if self.checkpoints is not None and self._saved < 0 and self.checkpoints.files():
            hint = "call resume() to go on from it, or take another directory"
            where = self.checkpoints.directory
            raise DomainError("fit", f"the directory must be of this run, got {where} of another", hint=hint)
        self._progress = make_progress(self._shows)
        stack.callback(self._progress.close)
        stack.callback(self._leave_feeds)
        if self.checkpoints is not None and self._writes:
            columns = ["step", "epoch", "lr", *self._names(), *[f"val_{n}" for n in self._names()], "seconds"]
            where = self.checkpoints.directory
            place = {"step": self.step, "epoch": self.epoch}
            self._log = stack.enter_context(Log(where, self._log_kinds, columns=columns, **place))
            self._log.open()
            stack.callback(setattr, self, "_log", None)
        for callback in self._called():
            callback.on_start(self)
            stack.callback(callback.on_end, self)

    def _called(self) -> list[Callback]:
        return self.callbacks if self._watch is None else [*self.callbacks, self._watch]

    def _make_watch(self) -> Callback:
        from weft.train.watch import make_watch  # with a server, which few runs need

        return make_watch(self, self._runner, self._writes)

    def _leave_feeds(self) -> None:
        """Let feeds stop reading ahead; a later ``fit`` goes on where they are."""
        for feed in (self._train, self._validation):
            if feed is not None and feed.batch:
                feed.load_state_dict(feed.state_dict())

    def _run_epoch(self, epochs: int | None, steps: int | None) -> None:
        """Train until the epoch, or all of it, ends."""
        self.model.train()
        of = f"/{epochs}" if epochs is not None else ""
        title, began = f"epoch {self.epoch + 1}{of}", time.monotonic()
        length = self._train.length
        later = 0 if length is None or epochs is None else (epochs - self.epoch - 1) * length
        self._progress.begin(title, length, self._train.batch, later)
        while self._run_step():
            if self._is_done(None, steps):
                return
        self._end_epoch(title, time.monotonic() - began)

    def _run_step(self) -> bool:
        """Take one step; False at the end of the epoch."""
        if self.checkpoints is not None:
            self._mark = self._small_state()
        means = Means(self._runner.recipe.metrics)

        def add(numbers: Mapping[str, float], count: int) -> None:
            for each in (means, self._means, self._lately):
                each.add(numbers, count)

        began = time.perf_counter()
        taken = self._runner.step(self._train, add)
        self._runner.stepped += time.perf_counter() - began  # at the end of an epoch, the wait for it
        if not taken:
            return False
        self.step += 1
        if self.scheduler is not None and self._scheduler_every == "step":
            self._step_scheduler(means.values())
        self._mark = None
        self._after_step(means.values())
        return True

    def _after_step(self, numbers: dict[str, float]) -> None:
        row = {"step": self.step, "epoch": self.epoch, "lr": self._rate(), **numbers}
        self._progress.advance(self._train.batch, self._means.values(quick=True))
        for callback in self.callbacks:
            callback.on_step(self, row)
        if self._watch is not None:
            self._watch.on_step(self, row)
        if self.step % self._log_every == 0:
            self._write({**row, **self._lately.values()})
            self._lately.clear()
        every = self._checkpoint_every
        if self.checkpoints is not None and every is not None and self.step % every == 0:
            self.save()
        self._check_interrupt()

    # The end of an epoch

    def _end_epoch(self, title: str, seconds: float) -> None:
        row: Row = {"step": self.step, "epoch": self.epoch + 1, "lr": self._rate(), **self._means.values()}
        if self._validation is not None:
            row |= {f"val_{name}": x for name, x in self.validate().items()}
        row["seconds"] = seconds
        watched = monitored(row, self.monitor)
        for callback in self._called():
            callback.on_epoch(self, row)
        if self.scheduler is not None and self._scheduler_every == "epoch":
            self._step_scheduler(row)
        self.epoch += 1
        self.history.append(row)
        self._means.clear()
        is_best = self._best.improves(watched)
        self._mark = None
        self._write(row)
        numbers = {k: x for k, x in row.items() if isinstance(x, float) and k not in ("lr", "seconds")}
        self._progress.end(f"{title}: {as_text(numbers)}  ({seconds:.1f} s)")
        if self.checkpoints is None:
            return
        if is_best:
            self.checkpoints.save_best(self.state_dict())
        if self._checkpoint_every is None:
            self.save()

    @edge
    def validate(self, source: Any = None) -> dict[str, float]:
        """The means of the loss and the metrics over all batches of validation.

        Args:
            source: of batches; by default the one the trainer was given.
        """
        feed = self._validation if source is None else Feed("validation", source)
        if feed is None:
            raise ArgumentError("validate", "must have batches, got none", hint="pass validation= to Trainer")
        return self._runner.check(feed, self._check_interrupt)

    def _check_interrupt(self) -> None:
        if self._interrupt.asked:
            raise _InterruptedError

    def _step_scheduler(self, row: Mapping[str, Any]) -> None:
        if isinstance(self.scheduler, weft.optim.lr_scheduler.ReduceLROnPlateau):
            self.scheduler.step(monitored(row, self.monitor))
        else:
            self.scheduler.step()

    def _rate(self) -> float:
        return float(self.optimizer.param_groups[0]["lr"])

    def _names(self) -> list[str]:
        return ["loss", *self._runner.recipe.metrics]

    def _write(self, row: Row) -> None:
        if self._log is not None:
            self._log.write(row)

    # State

    def state_dict(self) -> Row:
        """All that it takes to go on."""
        small = self._mark or self._small_state()
        generators = {**random_state(), **small["random"]}
        return {"format": FORMAT, **parts_state(self._changed_by_steps()), **small, "random": generators}

    def _small_state(self) -> Row:
        """The state but for what steps change, which is noted before each of them."""
        return {
            "step": self.step,
            "epoch": self.epoch,
            "history": list(self.history),
            "best": self._best.value,
            "callbacks": [callback.state_dict() for callback in self.callbacks],
            "random": {"weft": weft.get_rng_state()},
            **parts_state(self._parts()),
        }

    def _changed_by_steps(self) -> dict[str, Any]:
        recipe = self._runner.recipe
        return {"model": self.model, "optimizer": self.optimizer, "scaler": recipe.scaler, "ema": recipe.ema}

    def _parts(self) -> dict[str, Any]:
        return {
            "runner": self._runner,
            "train": self._train,
            "validation": self._validation,
            "scheduler": self.scheduler,
            "means": self._means,
            "lately": self._lately,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what ``state_dict`` gave."""
        if state.get("format") != FORMAT or len(state["callbacks"]) != len(self.callbacks):
            hint = "it must be made with the same parts and as many callbacks"
            raise DomainError("resume", "the checkpoint must be of such a trainer, got another", hint=hint)
        check_parts({**self._changed_by_steps(), **self._parts()}, state)
        load_parts(self._changed_by_steps(), state)
        self._load_small_state(state)
        self._saved = self.step

    def _load_small_state(self, state: Mapping[str, Any]) -> None:
        load_parts(self._parts(), state)
        for callback, own in zip(self.callbacks, state["callbacks"], strict=True):
            callback.load_state_dict(own)
        self.step, self.epoch, self.history = state["step"], state["epoch"], list(state["history"])
        self._best.value = state["best"]
        self._mark = None
        set_random_state(state["random"])

    def save(self, path: str | os.PathLike[str] | None = None) -> None:
        """Make a checkpoint: at a path, or in the directory of the run."""
        if path is not None:
            ranks = self._runner.recipe.ranks
            (weft.save if ranks is None else save_together)(self.state_dict(), path)
        elif self.checkpoints is None:
            raise ArgumentError("save", "must have a path, got none", hint="or pass directory= to Trainer")
        else:
            state = self.state_dict()
            self.checkpoints.save(state, state["step"])
            self._saved = state["step"]

    def resume(self, path: str | os.PathLike[str] | None = None) -> bool:
        """Go on from a checkpoint: that at a path, or the newest in the directory of the run.

        Returns:
            Whether there was one.
        """
        if path is None and self.checkpoints is None:
            raise ArgumentError("resume", "must have a path, got none", hint="or pass directory= to Trainer")
        ranks = self._runner.recipe.ranks
        if path is None:
            state = self.checkpoints.load()  # type: ignore[union-attr]
        else:
            state = weft.load(path) if ranks is None else parallel.load(path, ranks.mesh)
        if state is None:
            return False
        self.load_state_dict(state)
        return True

    def _rescue(self, error: BaseException | None = None) -> None:
        """After an error: a checkpoint of the last step that was complete, if none is there."""
        if self.checkpoints is None:
            return
        ranks = self._runner.recipe.ranks
        if not self._runner.is_broken and self._mark is not None:
            self._runner.undo()
            self._load_small_state(self._mark)
        together = ranks is None or ranks.meet_after(error, self.step, self._runner.is_broken)
        if self._runner.is_broken or not together:
            return
        if self._saved != self.step:
            self.save()
        self._progress.say(f"stopped after step {self._saved}; saved in {self.checkpoints.directory}")


def _place(model: Any, ema: Any, device: DeviceLike | None) -> Any:
    """Where a model is, moved there with its averages if it was asked for."""
    if device is not None:
        model.to(device)
        if ema is not None:
            ema.to(device)
    return next((p.device for p in model.parameters()), CPU)


def _check_count(name: str, number: Any) -> None:
    if type(number) is not int or number < 1:
        raise DomainError("Trainer", f"{name} must be a whole number from 1 on, got {number!r}")
