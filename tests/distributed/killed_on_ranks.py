"""Trains under elastic.run while one rank after the other is killed, at a random moment of what it does then.

    python -m autojit.launch -n 4 --elastic tests/distributed/killed_on_ranks.py folder seed

Every survivor says of each kill who was named, how long after it it was told, and when its first step was done again.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time

import autojit as aj
from autojit import distributed as dist
from autojit import nn

folder, seed = sys.argv[1], int(sys.argv[2])
me, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
drawn = random.Random(seed)
PHASES = ("eager", "compiled", "checkpoint", "alone")
victims = drawn.sample(range(size), size)[: size - 1]  # by their first numbers, in their order
phases = [PHASES[(seed + k) % len(PHASES)] for k in range(size - 1)]
delays_s = [drawn.uniform(0.0, 0.05) for _ in victims]
kills: list[float] = []  # what this rank was told of, and when


def died_at(number: int) -> float:
    """When a victim was about to be killed: the clock is one for the whole machine."""
    with open(os.path.join(folder, f"kill{number}"), encoding="utf-8") as file:
        return float(file.read())


def kill(number: int) -> None:
    time.sleep(delays_s[number])
    path = os.path.join(folder, f"kill{number}")
    with open(path + "~", "w", encoding="utf-8") as file:
        file.write(repr(time.monotonic()))
    os.rename(path + "~", path)
    os.kill(os.getpid(), signal.SIGKILL)


def train() -> None:
    """Steps until the next victim is dead; the last rank is left alone and comes to the end."""
    aj.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(nn.Linear(64, 64))
    optimizer = aj.optim.SGD(model.parameters(), lr=1e-3)
    checkpoint = os.path.join(folder, "checkpoint")
    if os.path.exists(os.path.join(checkpoint, "index.json")):
        model.load_state_dict(dist.checkpoint.read(checkpoint)["model"])

    def step(x: aj.Tensor) -> aj.Tensor:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    number = len(kills)
    phase = phases[number] if number < len(victims) else "eager"
    run = aj.jit(step) if phase == "compiled" else step
    x = aj.full((8, 64), 1.0 + dist.get_rank())
    run(x)
    if kills:
        print(f"kill {number - 1}: again after {time.monotonic() - kills[-1]:.3f} s", flush=True)
    dist.checkpoint.save({"model": model.state_dict()}, checkpoint_id=checkpoint)
    if number == len(victims):
        return
    if victims[number] == me:
        threading.Thread(target=kill, args=(number,), daemon=True).start()
    while True:
        if phase == "checkpoint":
            dist.checkpoint.save({"model": model.state_dict()}, checkpoint_id=checkpoint)
        elif phase == "alone" and victims[number] == me:
            time.sleep(1)  # the others wait for it
        else:
            run(x)


def attempt() -> None:
    try:
        train()
    except dist.RankFailed as error:
        number, now = len(kills), time.monotonic()
        began = died_at(number)
        kills.append(began)
        named = f"{error.ranks} on {error.hosts}"
        print(f"kill {number} ({phases[number]}): told of {named} after {now - began:.3f} s", flush=True)
        raise


aj.elastic.run(attempt, max_failures=size)
print(f"the last of {dist.get_world_size()}", flush=True)
dist.destroy_process_group()
