"""Trains under elastic.run; a rank is killed in the middle of the first attempt. Prints the final weights' distance."""

from __future__ import annotations

import os
import signal
import sys

import numpy as np

import autojit as aj
from autojit import distributed as dist
from tests.distributed.data_parallel_on_ranks import DDP, batch, mlp, own
from tests.distributed.sharded_on_ranks import stepper

folder, victim, STEPS = sys.argv[1], int(sys.argv[2]), 12
number = int(os.environ["RANK"])


def train() -> list[np.ndarray]:
    aj.manual_seed(0)
    model = DDP(mlp().double())
    optimizer = aj.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    first = 0
    if os.path.exists(os.path.join(folder, "index.json")):
        found = dist.checkpoint.read(folder)
        model.load_state_dict(found["model"])
        optimizer.load_state_dict(found["optim"])
        first = found["step"]
        print(f"goes on at {first} with {dist.get_world_size()}", flush=True)
    step = stepper(model, optimizer, is_compiled=True)
    for k in range(first, STEPS):
        if number == victim and k == 7:
            os.kill(os.getpid(), signal.SIGKILL)
        x, y = batch("mlp", k)
        step(own(x), own(y))
        if k % 3 == 2:
            state = {"model": model.state_dict(), "optim": optimizer.state_dict(), "step": k + 1}
            dist.checkpoint.save(state, checkpoint_id=folder)
    return [p.detach().numpy() for p in model.parameters()]


found = aj.elastic.run(train)
aj.manual_seed(0)
alone = mlp().double()
expected = stepper(alone, aj.optim.SGD(alone.parameters(), lr=0.05, momentum=0.9), is_compiled=False)
for k in range(STEPS):
    expected(*batch("mlp", k))
apart = max(np.abs(f - p.detach().numpy()).max() for f, p in zip(found, alone.parameters(), strict=True))
print(f"rank {dist.get_rank()} of {dist.get_world_size()}: close {apart < 1e-12}", flush=True)
dist.destroy_process_group()
