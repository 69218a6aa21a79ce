"""A fixed problem and the ways through it, in terms that weft and PyTorch both understand.

``make_expected`` follows every way with PyTorch once and stores where it led; ``test_trajectories`` follows
it with weft. Nothing here imports either.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

STEPS = 100
KEPT = (1, 2, 10, 40, 70, 100)  # the steps after which parameters are stored

_rng = np.random.default_rng(7)
X = _rng.normal(size=(16, 3))
Y = np.stack([np.sin(X[:, 0]) + X[:, 1], X[:, 1] * X[:, 2]], 1)
START = [_rng.normal(size=shape) * 0.5 for shape in ((3, 4), (4,), (4, 2))]
METRICS = np.concatenate(
    [np.linspace(2, 1, 12), np.full(14, 1.0), np.linspace(1, 0.999, 14), np.full(20, 0.5)]
)


def loss_of(params: Sequence[Any], x: Any, y: Any) -> Any:
    """How far a small network is off."""
    w1, b1, w2 = params
    return (((x @ w1 + b1).tanh() @ w2 - y) ** 2).mean()


class Way(NamedTuple):
    """An optimizer with its settings, those of its second group, and what else happens at each step.

    A way that makes much of the last digits is followed for fewer steps.
    """

    kind: str
    settings: dict[str, Any]
    second: dict[str, Any] | None = None
    schedule: Callable[[Any, Any], Any] | None = None
    clip: tuple[str, float] | None = None
    steps: int = STEPS


def make_optimizer(optim: Any, way: Way, params: Sequence[Any]) -> Any:
    """The optimizer of a way, of either library."""
    kind = getattr(optim, way.kind)
    if way.second is None:
        return kind(params, **way.settings)
    return kind([{"params": params[:2]}, {"params": params[2:], **way.second}], **way.settings)


WAYS: dict[str, Way] = {
    "sgd": Way("SGD", {"lr": 0.1}),
    "sgd/momentum": Way("SGD", {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.01}),
    "sgd/dampening": Way("SGD", {"lr": 0.05, "momentum": 0.9, "dampening": 0.5}),
    "sgd/nesterov": Way("SGD", {"lr": 0.05, "momentum": 0.8, "nesterov": True}),
    "sgd/maximize": Way("SGD", {"lr": 1e-3, "momentum": 0.5, "maximize": True}),
    "sgd/groups": Way("SGD", {"lr": 0.1, "momentum": 0.5}, {"lr": 0.02, "weight_decay": 0.1}),
    "sgd/clip_norm": Way("SGD", {"lr": 0.1}, clip=("norm", 0.3)),
    "sgd/clip_value": Way("SGD", {"lr": 0.1, "momentum": 0.9}, clip=("value", 0.05)),
    "adam": Way("Adam", {"lr": 0.01}),
    "adam/settings": Way("Adam", {"lr": 0.02, "betas": (0.8, 0.95), "eps": 1e-6, "weight_decay": 0.1}),
    "adam/amsgrad": Way("Adam", {"lr": 0.05, "amsgrad": True, "maximize": False}),
    "adam/groups": Way("Adam", {"lr": 0.01}, {"lr": 0.05, "betas": (0.5, 0.9)}),
    "adamw": Way("AdamW", {"lr": 0.01}),
    "adamw/amsgrad": Way("AdamW", {"lr": 0.02, "weight_decay": 0.3, "amsgrad": True}, {"weight_decay": 0.0}),
    "adamw/maximize": Way("AdamW", {"lr": 1e-3, "maximize": True}),
    "rmsprop": Way("RMSprop", {"lr": 0.01}),
    "rmsprop/centered": Way("RMSprop", {"lr": 5e-3, "alpha": 0.9, "centered": True, "weight_decay": 0.05}),
    "rmsprop/momentum": Way("RMSprop", {"lr": 2e-3, "momentum": 0.9, "eps": 1e-5}, {"centered": True}),
    "adagrad": Way("Adagrad", {"lr": 0.1}),
    "adagrad/settings": Way(
        "Adagrad",
        {"lr": 0.1, "lr_decay": 0.1, "weight_decay": 0.01, "initial_accumulator_value": 0.1},
        {"lr": 0.3},
    ),
    "adadelta": Way("Adadelta", {"lr": 0.5, "rho": 0.8, "eps": 1e-4}),
    "adadelta/decay": Way("Adadelta", {"lr": 0.5, "weight_decay": 0.05, "maximize": True}),
    "adamax": Way("Adamax", {"lr": 0.02}),
    "adamax/settings": Way("Adamax", {"lr": 0.02, "betas": (0.8, 0.9), "weight_decay": 0.1}),
    "nadam": Way("NAdam", {"lr": 0.01}),
    "nadam/decoupled": Way("NAdam", {"lr": 0.02, "weight_decay": 0.1, "decoupled_weight_decay": True}),
    "nadam/decay": Way("NAdam", {"lr": 0.02, "weight_decay": 0.1, "momentum_decay": 0.1}, {"lr": 0.01}),
    "radam": Way("RAdam", {"lr": 0.02}),
    "radam/settings": Way("RAdam", {"lr": 0.02, "betas": (0.8, 0.99), "weight_decay": 0.1}),
    "radam/decoupled": Way("RAdam", {"lr": 0.02, "weight_decay": 0.1, "decoupled_weight_decay": True}),
    "sgd+step": Way("SGD", {"lr": 0.2, "momentum": 0.9}, schedule=lambda s, o: s.StepLR(o, 20, gamma=0.5)),
    "sgd+cyclic": Way(
        "SGD",
        {"lr": 0.1, "momentum": 0.9},
        {"weight_decay": 0.01},
        lambda s, o: s.CyclicLR(o, [0.01, 0.02], [0.1, 0.2], step_size_up=7, step_size_down=13),
    ),
    "adam+sequential": Way(
        "Adam",
        {"lr": 0.05},
        {"lr": 0.02},
        lambda s, o: s.SequentialLR(
            o, [s.LinearLR(o, 0.1, total_iters=10), s.CosineAnnealingLR(o, 90, eta_min=1e-3)], [10]
        ),
    ),
    "adamw+onecycle": Way(
        "AdamW", {"lr": 1.0}, schedule=lambda s, o: s.OneCycleLR(o, max_lr=0.05, total_steps=STEPS)
    ),
    "rmsprop+restarts": Way(
        "RMSprop", {"lr": 0.01}, schedule=lambda s, o: s.CosineAnnealingWarmRestarts(o, 10, 2, eta_min=1e-4)
    ),
    "adagrad+chained": Way(
        "Adagrad",
        {"lr": 0.2},
        schedule=lambda s, o: s.ChainedScheduler([s.ConstantLR(o, 0.5, 8), s.ExponentialLR(o, 0.98)]),
    ),
    "lbfgs": Way("LBFGS", {"lr": 0.1, "max_iter": 2}),
    "lbfgs/history": Way("LBFGS", {"lr": 0.02, "max_iter": 2, "history_size": 3}),
    "lbfgs/wolfe": Way("LBFGS", {"max_iter": 1, "history_size": 5, "line_search_fn": "strong_wolfe"}),
    "lbfgs/wolfe_short": Way(
        "LBFGS", {"lr": 0.2, "max_iter": 1, "max_eval": 20, "line_search_fn": "strong_wolfe"}
    ),
    "lbfgs/wolfe_long": Way(
        "LBFGS", {"lr": 4.0, "max_iter": 1, "max_eval": 9, "line_search_fn": "strong_wolfe"}, steps=70
    ),
}

SCHEDULES: dict[str, Callable[[Any, Any], Any]] = {
    "lambda": lambda s, o: s.LambdaLR(o, [lambda i: 1 / (1 + i), lambda i: 0.9**i]),
    "multiplicative": lambda s, o: s.MultiplicativeLR(o, lambda i: 1 - 1 / (i + 5)),
    "step": lambda s, o: s.StepLR(o, 7, gamma=0.5),
    "multistep": lambda s, o: s.MultiStepLR(o, [30, 3, 11, 11], gamma=0.3),
    "exponential": lambda s, o: s.ExponentialLR(o, 0.93),
    "constant": lambda s, o: s.ConstantLR(o, 0.25, total_iters=6),
    "linear": lambda s, o: s.LinearLR(o, 0.25, total_iters=4),
    "linear/down": lambda s, o: s.LinearLR(o, 1.0, 0.1, total_iters=30),
    "polynomial": lambda s, o: s.PolynomialLR(o, total_iters=30, power=2.0),
    "cosine": lambda s, o: s.CosineAnnealingLR(o, 13, eta_min=0.01),
    "cosine/long": lambda s, o: s.CosineAnnealingLR(o, 60),
    "restarts": lambda s, o: s.CosineAnnealingWarmRestarts(o, 9),
    "restarts/longer": lambda s, o: s.CosineAnnealingWarmRestarts(o, 4, 2, eta_min=0.02),
    "cyclic": lambda s, o: s.CyclicLR(o, 0.01, 0.5, step_size_up=5),
    "cyclic/2": lambda s, o: s.CyclicLR(o, 0.01, [0.5, 0.3], 5, 9, mode="triangular2", base_momentum=0.7),
    "cyclic/exp": lambda s, o: s.CyclicLR(o, 0.1, 0.5, 4, mode="exp_range", gamma=0.95, cycle_momentum=False),
    "cyclic/function": lambda s, o: s.CyclicLR(
        o, 0.1, 0.5, 4, scale_fn=lambda i: 1 / (1 + i), scale_mode="iterations"
    ),
    "onecycle": lambda s, o: s.OneCycleLR(o, 0.7, total_steps=60),
    "onecycle/linear": lambda s, o: s.OneCycleLR(
        o, [0.7, 0.2], epochs=6, steps_per_epoch=10, anneal_strategy="linear", pct_start=0.5, div_factor=5
    ),
    "onecycle/three": lambda s, o: s.OneCycleLR(o, 0.7, 60, three_phase=True, cycle_momentum=False),
    "sequential": lambda s, o: s.SequentialLR(
        o, [s.LinearLR(o, 0.25, total_iters=4), s.CosineAnnealingLR(o, 20), s.ExponentialLR(o, 0.9)], [4, 24]
    ),
    "sequential/step": lambda s, o: s.SequentialLR(o, [s.ConstantLR(o, 0.1, 9), s.StepLR(o, 5, 0.7)], [3]),
    "chained": lambda s, o: s.ChainedScheduler([s.LinearLR(o, 0.2, total_iters=9), s.ExponentialLR(o, 0.95)]),
    "chained/cosine": lambda s, o: s.ChainedScheduler(
        [s.CosineAnnealingLR(o, 40, eta_min=0.0), s.MultiStepLR(o, [10, 20], 0.5)]
    ),
    "plateau": lambda s, o: s.ReduceLROnPlateau(o, factor=0.5, patience=3),
    "plateau/max": lambda s, o: s.ReduceLROnPlateau(
        o, "max", 0.7, patience=2, threshold=0.01, threshold_mode="abs", cooldown=2, min_lr=[0.05, 0.01]
    ),
}
SCHEDULE_STEPS = 60
FACTORS = [1.0, 2.0, 0.5, 1.0, float("inf"), 1.0, 1.0, float("nan"), float("inf"), 1.0, 1.0, 1.0, 1.0, 1.0]
"""What the loss of each step is multiplied by, for loss scaling."""
