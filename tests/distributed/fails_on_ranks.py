"""One rank fails in the way that is asked for; the others are in a collective."""

from __future__ import annotations

import datetime
import os
import signal
import sys
import time

import autojit as aj
from autojit import distributed as dist

how, victim = sys.argv[1], int(sys.argv[2])
is_victim = int(os.environ["RANK"]) == victim
if is_victim and how == "early":
    raise SystemError("before it has joined")
if is_victim and how == "kill-early":
    os.kill(os.getpid(), signal.SIGKILL)
dist.init_process_group(timeout=datetime.timedelta(seconds=3 if how == "stop" else 60))


@aj.jit
def step(x: aj.Tensor) -> aj.Tensor:
    y = x * 2
    dist.all_reduce(y)
    return y


x = aj.ones(1000)
for _ in range(3):
    step(x)
print(f"pid {os.getpid()}", flush=True)
dist.barrier()
began = time.monotonic()
if is_victim:
    if how == "raise":
        raise ValueError("only here")
    if how == "exit":
        sys.exit(3)
    os.kill(os.getpid(), signal.SIGKILL if how.startswith("kill") else signal.SIGSTOP)
try:
    for _ in range(3):
        if how == "kill-compiled":
            step(x)
        else:
            dist.all_reduce(x)
except dist.RankFailed as error:
    print(f"told of {error.ranks} on {error.hosts} after {time.monotonic() - began:.2f} s", flush=True)
    dist.abandon()
    sys.exit(7)
