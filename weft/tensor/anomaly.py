"""Anomaly detection: remember where each op stood, and stop at the first gradient that goes NaN."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.errors import AnomalyError, format_location
from weft.tensor.node import Instrumented


class _Thread(threading.local):
    watching = False


thread = _Thread()


def check_gradients(rule: Instrumented, grads: Sequence[Any]) -> None:
    """Raise if a gradient that a watched node produced has a NaN."""
    if rule.location is None:
        return
    for i, grad in enumerate(grads):
        data = getattr(grad, "_data", grad)
        if isinstance(data, np.ndarray | np.generic) and np.isnan(np.asarray(data)).any():
            raise AnomalyError(
                rule.name,
                f"the gradient of input {i} must not be NaN; the forward op stood at {format_location(rule.location)}",
            )
