"""The search for garbage is paused, and goes on as before."""

from __future__ import annotations

import gc

import pytest

from weft.base.collector import collector_paused


def test_collector_works_again_after_an_error() -> None:
    with pytest.raises(KeyError), collector_paused():
        assert not gc.isenabled()
        raise KeyError
    assert gc.isenabled()


def test_collector_that_was_off_stays_off() -> None:
    gc.disable()
    try:
        with collector_paused():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
