"""Launching: find what starts processes here, SLURM's ``srun`` or an ``mpiexec``, and have it run a script.

Nothing else of starting is weft's own: the launcher places the processes, and ends all when one dies.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
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
    script: str, args: Sequence[str] = (), *, n: int, hosts: Sequence[str] = (), threads: int | None = None
) -> int:
    """Run a script on n ranks; gives what the launcher ended with.

    Args:
        script: a Python file.
        args: for the script.
        n: number of ranks; one is run without a launcher.
        hosts: where they run, by default here or where SLURM says.
        threads: of each rank, by default its share of the processors of this machine.
    """
    if not os.path.exists(script):
        raise ArgumentError("launch", f"the script must be a file, got {script}")
    share = threads or max(1, len(os.sched_getaffinity(0)) // (n if not hosts else -(-n // len(hosts))))
    ours = Settings.num_threads.variable
    env = {**os.environ, **dict.fromkeys((ours, "OMP_NUM_THREADS"), str(share))}
    begin = find_launcher().command(n, hosts) if n > 1 else []
    command = [*begin, sys.executable, "-m", "weft.parallel.run", script, *args]
    process = subprocess.Popen(command, env=env)
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:  # the ranks got it too, and end; so does the launcher then
            continue
