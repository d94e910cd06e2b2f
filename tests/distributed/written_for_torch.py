"""A program for torch's DistributedDataParallel, as nanoGPT's: gradients of several small batches, then one step."""

from __future__ import annotations

import os
import sys

import torch
import torch.distributed as dist
from torch.distributed import destroy_process_group, init_process_group
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

init_process_group(backend="gloo")
rank, local_rank, world_size = (int(os.environ[name]) for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"))
assert (rank, world_size) == (dist.get_rank(), dist.get_world_size())
is_master = rank == 0
torch.manual_seed(1337 + rank)

accumulation = 4
assert accumulation % world_size == 0
accumulation //= world_size

model = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.GELU(), torch.nn.Linear(16, 2))
if "--compile" in sys.argv:
    model = torch.compile(model)
model = DDP(model)
raw_model = model.module
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

generator = torch.Generator().manual_seed(0)
inputs = torch.randn(64, 4, generator=generator)
labels = (inputs.sum(1) > 0).long()
data = TensorDataset(inputs, labels)
sampler = DistributedSampler(data, shuffle=True)
loader = DataLoader(data, batch_size=8, sampler=sampler)

first = last = None
for epoch in range(6):
    sampler.set_epoch(epoch)
    batches = list(loader)
    for start in range(0, len(batches), accumulation):
        for micro_step, (x, y) in enumerate(batches[start : start + accumulation]):
            model.require_backward_grad_sync = micro_step == accumulation - 1
            loss = torch.nn.functional.cross_entropy(model(x), y) / accumulation
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    last = loss.detach() * accumulation
    dist.all_reduce(last, op=dist.ReduceOp.AVG)
    first = last if first is None else first
    if is_master:
        print(f"epoch {epoch}: loss {last.item():.4f}")
assert last < first, (first, last)

weights = torch.cat([p.detach().reshape(-1) for p in raw_model.parameters()])
everybodys = [torch.empty_like(weights) for _ in range(world_size)]
dist.all_gather(everybodys, weights)
assert all(torch.equal(weights, w) for w in everybodys)
if is_master:
    torch.save({"model": raw_model.state_dict()}, sys.argv[1])
    print("saved")
destroy_process_group()
