"""Several processes learn to read handwritten digits, each from its own part of every batch.

    python -m autojit.launch -n 2 examples/data_parallel.py [--steps N] [--small] [--eager]

All ranks end with the same weights. Up to rounding, these are the weights of one process that sees whole batches. The
compiled step averages the gradients inside its one call. Without the launcher the group has one member.
"""

from __future__ import annotations

import time
from argparse import Namespace

import numpy as np
from _setup import digits, initialize, program

import autojit as aj
from autojit import distributed as dist
from autojit import nn
from autojit.nn import functional as F
from autojit.nn.parallel import DistributedDataParallel


@program("data parallel training on handwritten digits")
def main(o: Namespace) -> list[float]:
    width, batch, steps = (32, 48, 40) if o.small else (256, 192, 300)
    dist.init_process_group()
    rank, ranks = dist.get_rank(), dist.get_world_size()
    images, labels = digits()
    held_out = 360
    rng = np.random.default_rng(0)  # the same batches on all ranks

    network = nn.Sequential(nn.Flatten(), nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 10))
    model = DistributedDataParallel(initialize(network))
    optimizer = aj.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step(x: aj.Tensor, y: aj.Tensor) -> aj.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        told = loss.detach().clone()
        dist.all_reduce(told, dist.ReduceOp.AVG)
        return told

    run = step if o.eager else aj.jit(step)
    start = time.perf_counter()
    losses: list[float] = []
    for _ in range(o.steps or steps):
        chosen = rng.integers(0, len(labels) - held_out, batch)[rank::ranks]
        losses.append(run(aj.tensor(images[chosen]), aj.tensor(labels[chosen])).item())
    elapsed_s = time.perf_counter() - start

    with aj.no_grad():
        right = (network(aj.tensor(images[-held_out:])).argmax(1) == aj.tensor(labels[-held_out:])).float().mean()
    weights = aj.cat([p.detach().flatten() for p in network.parameters()])
    everybodys = [aj.empty_like(weights) for _ in range(ranks)]
    dist.all_gather(everybodys, weights)
    assert all(aj.equal(weights, other) for other in everybodys)
    dist.destroy_process_group()
    if rank == 0:
        print(f"{len(losses)} steps on {ranks} ranks in {elapsed_s:.1f} s; {right.item():.1%} of {held_out} are right")
    assert o.steps or right > (0.8 if o.small else 0.9)
    return losses


if __name__ == "__main__":
    main()
