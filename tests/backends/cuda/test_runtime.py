"""The runtime beneath: what is missing, memory, streams, modules and their cache, failures of the driver."""

from __future__ import annotations

import gc
import inspect
import os
import re
import stat
import sys
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import weft
from tests.backends.cuda.standin import OUT_OF_MEMORY, RaceError, StandIn, standing_in
from weft.backends.cuda import driver
from weft.backends.cuda.array import new_array
from weft.backends.cuda.card import card
from weft.backends.cuda.copies import gather_text, to_device
from weft.backends.cuda.memory import Pinned
from weft.backends.cuda.modules import forget_modules, load_module, load_modules
from weft.backends.cuda.turning import turn_text
from weft.backends.llvm.cache import set_cache_directory
from weft.base.dtypes import float32
from weft.errors import DeviceError, DeviceMemoryError, GraphError

pytestmark = pytest.mark.filterwarnings("ignore:.*has no kernel for cuda:RuntimeWarning")
PTX = ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry one(.param .u64 p0)\n{ ret; }\n"


# What is missing


class NoLibrary(StandIn):
    def cuInit(self, flags: int) -> int:  # noqa: N802
        raise RuntimeError("Failed to dlopen libcuda.so.1")


class NoDevice(StandIn):
    def cuInit(self, flags: int) -> int:  # noqa: N802
        return 100


NEEDING: list[Any] = [
    lambda: weft.ones(2, device="cuda"),
    lambda: weft.ones(2).to("cuda"),
    lambda: weft.ones(2).cuda(),
    lambda: weft.nn.Linear(2, 2).to("cuda"),
    lambda: weft.nn.Linear(2, 2, device="cuda"),
    lambda: weft.default_device("cuda"),
    lambda: weft.cuda.synchronize(),
    lambda: weft.cuda.memory_allocated(),
    lambda: weft.cuda.max_memory_allocated(),
    lambda: weft.cuda.get_device_name(),
    lambda: weft.cuda.current_stream(),
    lambda: weft.cuda.Stream(),
    lambda: weft.cuda.Event().record(),
]


@pytest.mark.parametrize(
    ("api", "what", "hint"),
    [
        (None, "the package cuda-bindings is not installed", "pip install 'weft[cuda]'"),
        (NoLibrary(), "this machine has no driver of NVIDIA", "install NVIDIA's driver"),
        (NoDevice(), "the driver of NVIDIA does not start", "a GPU of NVIDIA is needed"),
    ],
)
def test_what_is_missing_is_said_with_what_helps(
    api: StandIn | None, what: str, hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver.found.forget()
    if api is None:
        monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    else:
        driver.found.use(api)
    try:
        assert not weft.cuda.is_available()
        assert weft.cuda.device_count() == 0
        assert what in weft.cuda.why_not()
        assert hint in weft.cuda.why_not()
        assert weft.device("cuda").type == "cuda"  # a name is not a device
        for call in NEEDING:
            with pytest.raises(DeviceError, match=f"a CUDA device must be there, but {what}") as found:
                call()
            assert hint in str(found.value)
        weft.cuda.empty_cache()
    finally:
        driver.found.forget()


def test_import_of_weft_loads_nothing_of_devices() -> None:
    import subprocess

    code = "import sys, weft; weft.ones(2) + 1; print([m for m in sys.modules if 'cuda' in m])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_a_forked_process_says_that_devices_are_not_for_it(api: StandIn) -> None:
    weft.ones(2, device="cuda")
    driver.found.forked = True  # what the child of a fork sets
    with pytest.raises(DeviceError, match=r"forked from one that used them(.|\n)*spawn"):
        weft.ones(2, device="cuda")


def test_stand_in_has_the_functions_of_the_bindings_and_their_parameters() -> None:
    real = pytest.importorskip("cuda.bindings.driver", reason="cuda-bindings is not installed")
    for name, function in inspect.getmembers(StandIn, inspect.isfunction):
        if name.startswith("cu") and name not in ("code",):
            signature = real.__dict__[name].__doc__.split("\n")[0]
            taken = signature[signature.index("(") + 1 : -1]
            count = len(re.sub(r"\[[^]]*\]", "", taken).split(",")) if taken else 0
            own = list(inspect.signature(function).parameters.values())[1:]
            if not any(p.kind is p.VAR_POSITIONAL for p in own):
                assert len(own) == count, signature


# Memory


def test_memory_is_counted_and_used_again(api: StandIn) -> None:
    assert weft.cuda.memory_allocated() == 0
    x = weft.ones(1000, device="cuda")
    assert weft.cuda.memory_allocated() == 4096
    view, pointer = x[10:20], x._data.pointer
    del x
    gc.collect()
    assert weft.cuda.memory_allocated() == 4096  # the view lives in it
    del view
    assert weft.cuda.memory_allocated() == 0
    y = weft.zeros(1024, device="cuda")
    assert y._data.pointer == pointer
    assert weft.cuda.max_memory_allocated() == 4096
    big = weft.zeros(1 << 20, device="cuda")
    del big
    assert weft.cuda.max_memory_allocated() == 4096 + (4 << 20)
    weft.cuda.reset_peak_memory_stats()
    assert weft.cuda.max_memory_allocated() == 4096
    del y
    assert api.used == weft.cuda.memory_reserved() == 4096
    weft.cuda.empty_cache()
    assert api.used == 0
    assert not api.live


def test_out_of_memory_is_an_error_after_which_all_goes_on() -> None:
    with standing_in(memory=1 << 20) as api:
        small = [weft.zeros(1 << 16, device="cuda") for _ in range(3)]  # 256 KiB each
        del small[0]
        with pytest.raises(
            DeviceMemoryError, match=r"1\.0 MiB must be left on cuda:0, got .* hold 512\.0 KiB"
        ):
            weft.zeros(1 << 18, device="cuda")
        assert issubclass(DeviceMemoryError, MemoryError)
        assert api.names().count("cuMemPoolTrimTo") == 1  # what nobody held was given back first
        x = weft.zeros(100_000, device="cuda")  # as that made room
        assert weft.cuda.memory_allocated() == 2 * (256 << 10) + 782 * 512
        assert x.sum().item() == 0.0


def test_pinned_memory_is_given_back(api: StandIn) -> None:
    pinned = Pinned(card(), 64)
    np.frombuffer(pinned.buffer(), np.uint8)[:] = 3
    assert len(api.pinned) == 1
    del pinned
    gc.collect()
    assert not api.pinned


def test_ten_thousand_ops_leave_nothing(api: StandIn) -> None:
    x = weft.ones(8, device="cuda")
    for _ in range(500):
        x = (x[::2].clone().reshape(2, 2).T.clone()).reshape(4).expand((2, 4)).reshape(8)
    assert weft.cuda.memory_allocated() == 512
    assert api.used < 16 * 512


# Streams


def test_streams_wait_for_each_other_by_themselves(api: StandIn) -> None:
    side = weft.cuda.Stream()
    x = weft.arange(8.0, device="cuda")
    with side:
        assert weft.cuda.current_stream() is side
        y = x[::2].clone()  # reads what the first stream wrote
    assert weft.cuda.current_stream() is not side
    z = y[::-1].clone()  # and the other way round
    assert z.tolist() == [6.0, 4.0, 2.0, 0.0]
    with weft.cuda.stream(side), weft.cuda.Stream() as third:
        assert weft.cuda.current_stream() is third
        w = x.clone()
    del x, y  # memory goes back after all who read it: the stand-in would say
    again = weft.zeros(8, device="cuda")
    assert again.tolist() == [0.0] * 8
    assert w.tolist() == [float(i) for i in range(8)]
    assert side.query()
    side.synchronize()


def test_streams_that_are_gone_leave_no_memory_behind(api: StandIn) -> None:
    x = weft.ones(1000, device="cuda")

    for _ in range(100):
        with weft.cuda.Stream():
            y = x[::2].clone()
        y = y[::2].clone()
    gc.collect()
    left = api.names().count("cuStreamCreate") - api.names().count("cuStreamDestroy")
    assert left <= 10  # the last ones that have read x are known
    assert api.used <= left * 4096
    del x, y
    gc.collect()
    weft.cuda.empty_cache()
    assert api.used == 0


def test_stand_in_finds_streams_that_do_not_wait(api: StandIn) -> None:
    on = card()
    x = new_array(on, (4,), float32)
    api.cuMemsetD8Async(x.pointer, 0, 16, on.stream.handle)
    with pytest.raises(RaceError):
        api.cuMemsetD8Async(x.pointer, 0, 16, weft.cuda.Stream().handle)


def test_events_mark_places_and_tell_times(api: StandIn) -> None:
    start, end = weft.cuda.Event(), weft.cuda.Event()
    assert start.query()
    start.record()
    weft.ones(2, device="cuda")
    end.record()
    end.synchronize()
    assert end.query()
    assert start.elapsed_time(end) == 0.25
    with pytest.raises(DeviceError, match="both events must be recorded"):
        start.elapsed_time(weft.cuda.Event())


def test_each_thread_has_its_own_current_stream(api: StandIn) -> None:
    found: list[Any] = []

    def work() -> None:
        found.append(weft.cuda.current_stream())
        found.append(weft.ones(3, device="cuda").tolist())

    with weft.cuda.Stream() as side:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert found[0] is not side
    assert found[1] == [1.0, 1.0, 1.0]


# Modules


def test_machine_code_is_kept_on_disk_by_the_rules_of_the_cache(api: StandIn, tmp_path: Path) -> None:
    directory = tmp_path / "cache"
    set_cache_directory(directory)
    load_module(card(), PTX)
    assert api.names().count("cuLinkComplete") == 1
    (file,) = directory.iterdir()
    assert not file.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    forget_modules()
    load_module(card(), PTX)
    assert api.names().count("cuLinkComplete") == 1  # from disk
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    forget_modules()
    load_module(card(), PTX)
    assert api.names().count("cuLinkComplete") == 2  # damaged, so linked again
    os.chmod(directory, 0o777)  # which must not be trusted
    set_cache_directory(tmp_path / "cache")
    forget_modules()
    weft.backends.llvm.cache.default_cache()._trusted.clear()  # type: ignore[attr-defined]
    load_module(card(), PTX)
    assert api.names().count("cuLinkComplete") == 3


def test_modules_are_linked_side_by_side_and_once(api: StandIn) -> None:
    texts = [PTX.replace("one", f"kernel{i}") for i in range(5)]
    modules = load_modules(card(), [*texts, texts[0]])
    assert modules[0] is modules[5]
    assert api.names().count("cuLinkComplete") == 5
    assert modules[3].function("kernel3") is modules[3].function("kernel3")
    with pytest.raises(DeviceError, match="cuModuleGetFunction must succeed, got error 500"):
        modules[0].function("other")


def test_ptx_that_the_driver_does_not_take_is_an_error(api: StandIn) -> None:
    with pytest.raises(GraphError, match="the driver must take the PTX of weft, got: CUDA_ERROR_1"):
        load_module(card(), "no kernel here")
    assert not api.linked


def test_every_return_code_is_looked_at(api: StandIn) -> None:
    x = to_device(np.ones(3, np.float32), card())
    api.fail["cuMemcpyDtoHAsync"] = 700
    with pytest.raises(
        DeviceError, match=r"cuMemcpyDtoHAsync must succeed, got error 700(.|\n)*start it again"
    ):
        x.to_host()
    api.fail = {"cuStreamCreate": OUT_OF_MEMORY}
    with pytest.raises(DeviceMemoryError, match="cuStreamCreate"):
        weft.cuda.Stream()


# The PTX that weft writes by itself


def ptxas() -> str | None:
    """The assembler, from the path or from a package of NVIDIA."""
    import shutil
    import sysconfig

    found = shutil.which("ptxas")
    places = Path(sysconfig.get_paths()["purelib"]).glob("nvidia/*/bin/ptxas")
    return found or next(map(str, places), None) or os.environ.get("WEFT_PTXAS")


@pytest.mark.rotating(2)
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90", "sm_100"])
def test_kernels_for_copies_assemble(architecture: str, tmp_path: Path) -> None:
    import subprocess

    assembler = ptxas()
    if assembler is None:
        pytest.skip("ptxas is not there: pip install nvidia-cuda-nvcc")
    for width in (1, 2, 4, 8):
        for rank in (1, 4):
            file = tmp_path / f"{rank}_{width}.ptx"
            file.write_text(gather_text(rank, width))
            command = [assembler, f"-arch={architecture}", str(file), "-o", os.devnull]
            done = subprocess.run(command, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
        file.write_text(turn_text(width))
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


def test_module_of_bindings_is_what_the_driver_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    package, api = ModuleType("cuda.bindings"), StandIn()
    monkeypatch.setitem(sys.modules, "cuda", ModuleType("cuda"))
    monkeypatch.setitem(sys.modules, "cuda.bindings", package)
    monkeypatch.setattr(package, "driver", api, raising=False)
    driver.found.forget()
    try:
        assert weft.cuda.is_available()
        assert driver.the_driver("test").api is api
    finally:
        driver.found.forget()


def test_doctor_describes_the_cards_and_tries_them(api: StandIn, capsys: pytest.CaptureFixture[str]) -> None:
    from weft.cli import main

    assert main(["doctor"]) == 0
    told = capsys.readouterr().out
    for text in (
        "driver            for CUDA 13.0",
        "Stand-in, sm_90",
        "self-test cuda:0  copied, computed and",
    ):
        assert text in told
