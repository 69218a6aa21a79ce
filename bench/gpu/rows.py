"""All rows, in the order of the table."""

from __future__ import annotations

from bench.gpu.decode import DECODE
from bench.gpu.kernels import KERNELS
from bench.gpu.loops import LOOPS
from bench.gpu.networks import NETWORKS
from bench.gpu.row import Row
from bench.gpu.steps import GPT

ROWS: list[Row] = [GPT[0], *NETWORKS, *KERNELS, *LOOPS, *DECODE, *GPT[1:]]
