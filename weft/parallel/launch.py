"""Launching: find what starts processes here, SLURM's ``srun`` or an ``mpiexec``, and have it run a script.

Nothing else of starting is weft's own: the launcher places the processes, and ends all when one dies. What is
done here is to start the script again with the ranks that are left; it goes on from what it saved.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from weft.base.records import NamedTuple
from weft.config import Settings
from weft.errors import ArgumentError, ParallelError


class Launcher(NamedTuple):
    """What starts processes.

    Attributes:
        kind: "srun", "hydra" (MPICH, Intel MPI) or "openmpi".
        path: of the program.
    """

    kind: str
    path: str

    def command(self, n: int, hosts: Sequence[str] = ()) -> list[str]:
        """The beginning of a command that starts n processes.

        >>> from weft.parallel.launch import Launcher
        >>> Launcher("hydra", "mpiexec").command(4, ["a", "b"])
        ['mpiexec', '-n', '4', '-hosts', 'a,b']
        """
        named = {"srun": "--nodelist", "hydra": "-hosts", "openmpi": "--host"}[self.kind]
        placed = [named, ",".join(hosts)] if hosts else []
        more = ["--map-by", ":OVERSUBSCRIBE"] if self.kind == "openmpi" and not hosts else []
        return [self.path, "-n", str(n), *placed, *more]


def find_launcher() -> Launcher:
    """What starts processes here: ``srun`` inside a job of SLURM, else an ``mpiexec``."""
    srun = shutil.which("srun")
    if srun is not None and "SLURM_JOB_ID" in os.environ:
        return Launcher("srun", srun)
    own = Path(sys.executable).parent / "mpiexec"
    path = str(own) if own.exists() else shutil.which("mpiexec")
    if path is None:
        message = "several processes need an mpiexec, and there is none beside this Python nor on the PATH"
        raise ParallelError("launch", message, hint="pip install 'weft[mpi]', or load the cluster's MPI")
    told = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
    return Launcher("openmpi" if "Open MPI" in told or "open-mpi" in told else "hydra", path)


def launch(
    script: str,
    args: Sequence[str] = (),
    *,
    n: int,
    hosts: Sequence[str] = (),
    threads: int | None = None,
    restarts: int = 0,
    pin: bool = True,
) -> int:
    """Run a script on n ranks; gives what the launcher ended with.

    Args:
        script: a Python file.
        args: for the script.
        n: number of ranks; one is run without a launcher.
        hosts: where they run, by default here or where SLURM says.
        threads: of each rank, by default its share of the processors of this machine.
        restarts: how often the script is started again after a rank failed, with those that are left.
        pin: whether each rank keeps to processors of its own, where there are enough.
    """
    if not os.path.exists(script):
        raise ArgumentError("launch", f"the script must be a file, got {script}")
    world = _World(n, tuple(hosts))
    for attempt in range(restarts + 1):
        with tempfile.TemporaryDirectory(prefix="weft-launch-") as notes:
            code, interrupted = _run([script, *args], world, threads, ["--pin"] * pin, notes)
            failed = len(os.listdir(notes))
        if code == 0 or interrupted or attempt == restarts:
            return code
        left = _left(world, failed)
        if left is None:
            return code
        message = f"weft launch: a rank failed; starting again on {left.n} of {world.n} ranks"
        sys.stderr.write(f"{message} (restart {attempt + 1} of {restarts})\n")
        world = left
    raise AssertionError("the last attempt returns")


class _World(NamedTuple):
    """How many ranks there are, and where."""

    n: int
    hosts: tuple[str, ...]

    @property
    def each(self) -> int:
        """The most ranks of a host, or of this machine."""
        return -(-self.n // len(self.hosts)) if self.hosts else self.n


def _run(
    script: list[str], world: _World, threads: int | None, options: list[str], notes: str
) -> tuple[int, bool]:
    """Run a script once; what the launcher ended with, and whether the user ended it."""
    share = threads or max(1, len(os.sched_getaffinity(0)) // world.each)
    ours = Settings.num_threads.variable
    env = {**os.environ, **dict.fromkeys((ours, "OMP_NUM_THREADS"), str(share))}
    begin = find_launcher().command(world.n, world.hosts) if world.n > 1 else []
    runner = [sys.executable, "-m", "weft.parallel.run", *options, "--notes", notes]
    process = subprocess.Popen([*begin, *runner, *script], env=env)
    interrupted = False
    while True:
        try:
            return process.wait(), interrupted
        except KeyboardInterrupt:  # the ranks got it too, and end; so does the launcher then
            interrupted = True


def _left(world: _World, failed: int) -> _World | None:
    """The ranks that are left; None if nobody is, or all failed alike, which another start would not mend.

    A rank that was killed leaves no note, so one at least is taken to be gone; a host that does not answer
    takes its ranks along. Of a power of two ranks a power of two goes on: it divides the shards of a batch.
    """
    if failed >= world.n:
        return None
    hosts = tuple(host for host in world.hosts if _answers(host))
    if len(hosts) < len(world.hosts):
        count = min(world.n - 1, world.each * len(hosts))
    else:
        count = world.n - max(1, failed)
    if world.n & (world.n - 1) == 0 and count > 0:
        count = 1 << (count.bit_length() - 1)
    return _World(count, hosts) if count > 0 else None


def _answers(host: str) -> bool:
    """Whether a host can be reached, in the way in which launchers reach it."""
    name = host.partition(":")[0]
    command = ["ssh", "-o", "BatchMode=yes", "-o", f"ConnectTimeout={_REACHED}", name, "true"]
    try:
        return subprocess.run(command, capture_output=True, timeout=2 * _REACHED, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


_REACHED = 5  # seconds in which a host must answer
