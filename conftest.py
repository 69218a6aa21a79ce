"""Imports weft before pytest imports one of its modules by path, and makes random tests repeatable.

By path, pytest would put the package ``weft.tensor`` in the place of the function ``weft.tensor``.
"""

import gc
import os
import shutil
import signal
import tempfile
from importlib import import_module
from pathlib import Path

import pytest
from hypothesis import settings

import weft

# The examples are the same in each run, so that a failure can be repeated and a change is not blamed for
# what it did not do. `pytest --hypothesis-profile=explore` looks for new ones, and for more of them.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("explore", deadline=None, max_examples=1000)
settings.load_profile("repeatable")

gc.disable()  # until all tests are collected, see below
os.environ["SCIPY_ARRAY_API"] = "1"  # which SciPy reads once, at its import: its functions take tensors

# their code is that of docs/course/en, which is run: tests/course checks it
collect_ignore_glob = ["docs/course/zh/*.md"]

_own_cache: list[str] = []
_WEFT = Path(weft.__file__).parent


def pytest_configure(config: pytest.Config) -> None:
    """Keep object code of the tests in a directory that all workers share, and away from the user's.

    What a shell starts in the background ignores Ctrl-C, and so would programs that tests interrupt.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if not hasattr(config, "workerinput") and "WEFT_CACHE_DIR" not in os.environ:
        _own_cache.append(tempfile.mkdtemp(prefix="weft-tests-"))
        os.environ["WEFT_CACHE_DIR"] = _own_cache[0]
    os.environ.setdefault("WEFT_TUNING", "")  # the same code for everybody who runs them


def pytest_collect_file(file_path: Path) -> None:
    """Import the package of a module first: else pytest hides its functions by modules of the same name."""
    if file_path.suffix == ".py" and _WEFT in file_path.parents:
        import_module(".".join(("weft", *file_path.relative_to(_WEFT).parent.parts)))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take a part of the largest tables of cases, another one whenever weft's code is another."""
    from tests.of_code import rotating

    if config.option.keyword or any("::" in argument for argument in config.args):
        return  # what is asked for by name is all there
    taken = rotating(items)
    if len(taken) < len(items):
        kept = set(taken)
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = taken


_unfreeze = gc.unfreeze
_thawed: list[bool] = []
_ran: list[bool] = []


def _note_thawing() -> None:
    _thawed.append(True)
    _unfreeze()


def pytest_collection_finish() -> None:
    """Keep the garbage collector from going through all tests again and again: they stay anyway."""
    gc.enable()
    gc.collect()
    gc.freeze()
    gc.unfreeze = _note_thawing


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """Again after a test that thawed them: servers do, and ``weft.cuda.graph``, which lists all tensors.

    And now and then, as what tests leave in caches stays, too. Without this every later ``gc.collect()`` of
    the process takes more than a second.
    """
    _ran.append(True)
    if _thawed or len(_ran) > 500:
        if len(_ran) > 500:
            gc.collect()
        _ran.clear()
        _thawed.clear()
        gc.freeze()


@pytest.fixture(autouse=True)
def _pages_write_elsewhere(request: pytest.FixtureRequest) -> None:
    """Files that examples of a page write go to a folder of its own, not to the repository."""
    if request.node.path.suffix == ".md":
        request.getfixturevalue("monkeypatch").chdir(request.getfixturevalue("tmp_path"))


def pytest_unconfigure() -> None:
    """Remove that directory."""
    for directory in _own_cache:
        shutil.rmtree(directory, ignore_errors=True)
