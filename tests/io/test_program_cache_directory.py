"""The directory of compiled graphs: missing, read-only, damaged, and used by many at once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from tests.io.kept import OPEN, ROOT, is_kept, model, rows, run_python, saved, twice
from tests.trusted import needs_trusted_files
from weft.backends.llvm.cache import Cache, default_cache, set_cache_directory
from weft.backends.llvm.code import shared
from weft.backends.llvm.fingerprint import fingerprint
from weft.backends.llvm.programs import _shared_key

pytestmark = [
    needs_trusted_files,
    pytest.mark.skipif(fingerprint() is None, reason="programs are not kept on this machine"),
]


def entries(cache: Path) -> list[Path]:
    return sorted(cache.glob("*.o"))


def test_without_a_directory_everything_is_compiled(tmp_path: Path) -> None:
    before = default_cache().directory
    set_cache_directory(None)
    try:
        file = saved(tmp_path)
        for _ in range(2):
            loaded = weft.load_graph(file)
            loaded(rows(2))
            assert not is_kept(loaded)
    finally:
        set_cache_directory(before)


def test_directory_that_cannot_be_written_is_no_error(cache: Path, tmp_path: Path) -> None:
    cache.write_text("a file")
    loaded = weft.load_graph(saved(tmp_path))
    np.testing.assert_allclose(
        loaded(rows(2)).numpy(), model()(weft.tensor(rows(2))).numpy(), rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o720, 0o702])
def test_directory_that_others_can_write_is_not_used(cache: Path, tmp_path: Path, mode: int) -> None:
    file = saved(tmp_path)
    twice(file, rows(2))
    cache.chmod(mode)
    loaded = weft.load_graph(file)
    loaded(rows(2))
    assert not is_kept(loaded)


@settings(max_examples=40)
@given(st.data())
def test_damaged_entry_is_compiled_again(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("kept")
    before = default_cache().directory
    set_cache_directory(folder / "cache")
    try:
        file = saved(folder, lambda x: x + 1.0, weft.ones(3))
        twice(file, np.ones(3, np.float32))
        for path in entries(folder / "cache"):
            whole = bytearray(path.read_bytes())
            at = data.draw(st.integers(0, len(whole) - 1))
            whole[at] ^= 1 << data.draw(st.integers(0, 7))
            path.write_bytes(whole if data.draw(st.booleans()) else whole[:at])
        loaded = weft.load_graph(file)
        np.testing.assert_array_equal(loaded(np.ones(3, np.float32)).numpy(), [2.0, 2.0, 2.0])
        assert not is_kept(loaded)
        again = weft.load_graph(file)
        np.testing.assert_array_equal(again(np.ones(3, np.float32)).numpy(), [2.0, 2.0, 2.0])
        assert is_kept(again)
    finally:
        set_cache_directory(before)


def hostile(head: dict[str, Any], change: str) -> dict[str, Any]:
    """What an entry says, changed in one place."""
    fixed, exports, imports, rebased, size = head["image"]
    changed = {
        "import outside": [fixed, exports, {"free": 1 << 40}, rebased, size],
        "import in code": [fixed, exports, {"free": 0}, rebased, size],
        "import unknown": [fixed, exports, {"no_such_function": fixed}, rebased, size],
        "export outside": [fixed, {"weft_main": 1 << 40}, imports, rebased, size],
        "no export": [fixed, {}, imports, rebased, size],
        "move outside": [fixed, exports, imports, [-8], size],
        "half a page": [100, exports, imports, rebased, size],
        "longer": [fixed, exports, imports, rebased, size + (1 << 50)],
    }
    return {**head, "image": changed[change]} if change in changed else {**head, change: [1, 2, 3]}


CHANGES = (
    "import outside", "import in code", "import unknown", "export outside", "no export", "move outside",
    "half a page", "longer", "facts", "plans", "constants", "inputs",
)  # fmt: skip


@pytest.mark.parametrize("change", [*CHANGES, "no JSON", "empty"])
def test_entry_with_other_content_is_compiled_again(cache: Path, tmp_path: Path, change: str) -> None:
    file = saved(tmp_path, lambda x: x + 1.0, weft.ones(3))
    twice(file, np.ones(3, np.float32))
    key = weft.load_graph(file)._cached.key
    whole = Cache(cache).get(key)
    assert whole is not None
    end = 8 + int.from_bytes(whole[:8], "little")
    text = b"{" if change == "no JSON" else json.dumps(hostile(json.loads(whole[8:end]), change)).encode()
    Cache(cache).put(key, b"" if change == "empty" else len(text).to_bytes(8, "little") + text + whole[end:])
    loaded = weft.load_graph(file)
    np.testing.assert_array_equal(loaded(np.ones(3, np.float32)).numpy(), [2.0, 2.0, 2.0])


@pytest.mark.rotating(2)
def test_entry_and_pool_without_a_function_are_compiled_again(cache: Path, tmp_path: Path) -> None:
    file = saved(tmp_path, lambda x: x + 1.0, weft.ones(3))
    twice(file, np.ones(3, np.float32))
    key = _shared_key()
    assert key is not None
    whole = Cache(cache).get(key)
    assert whole is not None
    end = 8 + int.from_bytes(whole[:8], "little")
    head = json.loads(whole[8:end])
    for name in ("weft_enter", "weft_wave"):
        fixed, exports, *rest = head["image"]
        fewer = {k: v for k, v in exports.items() if k != name}
        text = json.dumps({**head, "image": [fixed, fewer, *rest]}).encode()
        Cache(cache).put(key, len(text).to_bytes(8, "little") + text + whole[end:])
        code = "import sys, numpy, weft; print(weft.load_graph(sys.argv[1])(numpy.ones(3, 'f4')).tolist())"
        assert run_python(code, cache, file) == "[2.0, 2.0, 2.0]\n"


WORKER = """
import sys
import numpy as np
import weft
for _ in range(3):
    print(weft.load_graph(sys.argv[1])(np.load(sys.argv[2])).numpy().tobytes().hex())
"""


@pytest.mark.rotating(2)
def test_processes_that_start_together_agree(cache: Path, tmp_path: Path) -> None:
    file = saved(tmp_path)
    np.save(tmp_path / "x.npy", rows(2))
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "WEFT_CACHE_DIR": str(cache)}
    command = [sys.executable, "-c", WORKER, file, str(tmp_path / "x.npy")]
    workers = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(3)
    ]
    answers = {line for w in workers for line in w.communicate(timeout=120)[0].splitlines()}
    assert len(answers) == 1
    assert all(w.returncode == 0 for w in workers)


@pytest.mark.rotating(2)
@pytest.mark.parametrize("pause", [0.0, 0.01])
def test_process_ends_while_threads_of_the_pool_run(cache: Path, tmp_path: Path, pause: float) -> None:
    def f(x: Any) -> Any:
        return weft.tanh(x @ x) @ x  # enough to be shared out

    file = saved(tmp_path, f, weft.ones((256, 256)))
    twice(file, np.ones((256, 256), np.float32))
    code = f"""
import sys, time
import numpy as np
import weft
weft.set_num_threads(4)
loaded = weft.load_graph(sys.argv[1])
loaded(np.ones((256, 256), np.float32))
assert loaded._opened is None
time.sleep({pause})
"""
    for _ in range(4):
        run_python(code, cache, file)  # raises if the process ends by a signal


def test_child_of_a_fork_runs_it(cache: Path, tmp_path: Path) -> None:
    file = saved(tmp_path, lambda x: weft.tanh(x @ x), weft.ones((256, 256)))
    twice(file, np.ones((256, 256), np.float32))
    code = """
import os, sys
import numpy as np
import weft
loaded = weft.load_graph(sys.argv[1])
x = np.eye(256, dtype=np.float32)
expected = loaded(x).numpy()
child = os.fork()
if child == 0:
    os._exit(0 if np.array_equal(loaded(x).numpy(), expected) else 1)
assert os.waitpid(child, 0)[1] == 0
assert np.array_equal(loaded(x).numpy(), expected)
"""
    run_python(code, cache, file)


def test_threads_call_it_at_the_same_time(cache: Path, tmp_path: Path) -> None:
    file = saved(tmp_path, None, OPEN)
    twice(file, rows(3))
    loaded = weft.load_graph(file)
    expected = loaded(rows(3)).numpy()
    wrong: list[Any] = []

    def work() -> None:
        for _ in range(200):
            found = loaded(rows(3)).numpy()
            wrong.extend([found] * (not np.array_equal(found, expected)))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_entry_and_pool_are_loaded_once(cache: Path, tmp_path: Path) -> None:
    twice(saved(tmp_path), rows(2))
    before = dict(shared)
    twice(saved(tmp_path, lambda x: x - 1.0), rows(2))
    assert before == shared
