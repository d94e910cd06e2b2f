"""What holds of optimisers and checkpoints that are divided among ranks."""

from __future__ import annotations

import gc
import json
import os
import shutil
import tempfile
import weakref
from pathlib import Path
from typing import Any

import autojit as aj
from autojit import distributed as dist
from autojit import nn
from autojit.nn.resharding import gathered
from tests.distributed.data_parallel_on_ranks import DDP, batch, close, mlp, own

ZeRO = dist.optim.ZeroRedundancyOptimizer


def folder() -> Path:
    """One that all ranks have."""
    found = [tempfile.mkdtemp(prefix="aj-checkpoint-")]
    dist.broadcast_object_list(found, 0)
    return Path(found[0])


def leave(path: Path) -> None:
    """No rank needs the folder any more."""
    dist.barrier()
    if dist.get_rank() == 0:
        shutil.rmtree(path)


def stepper(model: nn.Module, optimizer: Any, is_compiled: bool) -> Any:
    def step(x: aj.Tensor, y: aj.Tensor) -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    return aj.jit(step) if is_compiled else step


def run(step: Any, first: int, last: int) -> None:
    for k in range(first, last):
        x, y = batch("mlp", k)
        step(own(x), own(y))


def weights(model: nn.Module) -> list[Any]:
    return [p.detach().numpy().copy() for p in model.parameters()]


def check_divided_state_moves_as_whole_state() -> None:
    n = dist.get_world_size()
    for kind, options in ((aj.optim.AdamW, {"lr": 0.01}), (aj.optim.SGD, {"lr": 0.1, "momentum": 0.9})):
        for is_compiled in (False, True):
            found = []
            for makes in (lambda p, k, o: k(p, **o), lambda p, k, o: ZeRO(p, k, **o)):
                aj.manual_seed(5)
                model = DDP(mlp().double())
                optimizer = makes(model.parameters(), kind, options)
                scheduler = aj.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)
                step = stepper(model, optimizer, is_compiled)
                for k in range(6):
                    run(step, k, k + 1)
                    scheduler.step()
                found.append(weights(model))
            close(found[1], found[0])
            held = sum(t.numel() for values in optimizer.optim.state.values() for t in values.values() if t.ndim)
            whole = sum(p.numel() for p in model.parameters()) * (2 if kind is aj.optim.AdamW else 1)
            held_by_all = [None] * n
            dist.all_gather_object(held_by_all, held)
            assert sum(held_by_all) == whole
            assert max(held_by_all) < whole or n == 1


def check_divided_state_as_one_state_dict() -> None:
    me = dist.get_rank()
    aj.manual_seed(5)
    model = DDP(mlp().double())
    divided = ZeRO(model.parameters(), aj.optim.Adam, lr=0.01)
    run(stepper(model, divided, False), 0, 3)
    divided.consolidate_state_dict(to=0)
    if me == 0:
        whole = aj.optim.Adam(model.parameters(), lr=0.01)
        whole.load_state_dict(divided.state_dict())
        assert len(whole.state) == 4
    else:
        try:
            divided.state_dict()
        except RuntimeError as error:
            assert "consolidate" in str(error)
        else:
            raise AssertionError("there is no whole state here")


def check_a_checkpoint_gives_the_same_bits() -> None:
    path = folder() / "checkpoint"
    for is_compiled in (False, True):
        aj.manual_seed(5)
        model = DDP(mlp().double())
        optimizer = ZeRO(model.parameters(), aj.optim.AdamW, lr=0.01)
        step = stepper(model, optimizer, is_compiled)
        run(step, 0, 3)
        dist.checkpoint.save(
            {"model": model.state_dict(), "optim": optimizer.optim.state_dict(), "step": 3}, checkpoint_id=path
        )
        run(step, 3, 6)
        expected = weights(model)

        aj.manual_seed(6)
        again = DDP(mlp().double())
        state = {"model": again.state_dict(), "step": 0}
        dist.checkpoint.load(state, checkpoint_id=path)
        assert state["step"] == 3
        other = ZeRO(again.parameters(), aj.optim.AdamW, lr=0.5)
        other.load_state_dict(dist.checkpoint.read(path)["optim"])
        run(stepper(again, other, is_compiled), 3, 6)
        for a, b in zip(weights(again), expected, strict=True):
            assert a.tobytes() == b.tobytes()
    names = sorted(p.name for p in path.iterdir())
    assert len(names) == dist.get_world_size() + 1, names  # the files of the first one are gone
    try:
        dist.checkpoint.load({"other": aj.ones(1)}, checkpoint_id=path)
    except KeyError as error:
        assert "other" in str(error)
    else:
        raise AssertionError("a missing name is told")
    leave(path.parent)


def check_a_checkpoint_of_other_ranks() -> None:
    """As left by 5 ranks: each has names of its own, and one that all have."""
    path = folder() / "checkpoint"
    if dist.get_rank() == 0:
        files = {}
        for rank in range(5):
            own_part = {json.dumps(["parts", rank]): aj.full((2,), float(rank)), json.dumps(["list", [rank]]): rank}
            path.mkdir(exist_ok=True)
            aj.io.archive.save_archive(own_part, path / f"x-{rank}.safetensors")
            files |= dict.fromkeys(own_part, f"x-{rank}.safetensors")
        (path / "index.json").write_text(json.dumps({"format": 1, "ranks": 5, "files": files}))
    dist.barrier()
    found = dist.checkpoint.read(path)
    assert {k: t.tolist() for k, t in found["parts"].items()} == {k: [k, k] for k in range(5)}
    assert found["list"] == list(range(5))
    some = {"parts": {3: aj.zeros(2)}}
    dist.checkpoint.load(some, checkpoint_id=path)
    assert some["parts"][3].tolist() == [3, 3]
    leave(path.parent)


def check_a_rank_that_cannot_write_is_told_by_all() -> None:
    path = folder()
    (path / "file").write_text("no folder")
    before = {"x": aj.ones(2)}
    dist.checkpoint.save(before, checkpoint_id=path / "good")
    target = path / "good" if dist.get_rank() else path / "file"
    try:
        dist.checkpoint.save({"x": aj.zeros(2)}, checkpoint_id=target)
    except RuntimeError as error:
        assert "rank 0" in str(error)
    else:
        raise AssertionError("rank 0 could not write")
    if dist.get_world_size() > 1:
        try:
            dist.checkpoint.save({"x": aj.full((2,), float(dist.get_rank()))}, checkpoint_id=path / "good")
        except RuntimeError as error:
            assert "different tensors under one name" in str(error)
        else:
            raise AssertionError("one rank's tensor was taken for all")
    assert dist.checkpoint.read(path / "good")["x"].tolist() == [1, 1]
    assert os.path.exists(path / "good" / "index.json")
    leave(path)


class Tied(nn.Module):
    """A layer whose weight another one has, too."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.out = nn.Linear(5, 5), nn.Linear(5, 5, bias=False), nn.Linear(5, 3)
        self.two.weight = self.one.weight

    def forward(self, x: aj.Tensor) -> aj.Tensor:
        return self.out(self.two(self.one(x).tanh()))


def check_sharded_parameters_are_whole_ones_in_parts() -> None:
    n = dist.get_world_size()
    for is_compiled in (False, True):
        aj.manual_seed(5)
        whole = Tied().double()
        reference = DDP(whole)
        aj.manual_seed(5 if dist.get_rank() == 0 else 7)
        sharded = dist.fsdp.fully_shard(Tied().double())
        steps = [stepper(m, aj.optim.AdamW(m.parameters(), lr=0.01), is_compiled) for m in (reference, sharded)]
        for step in steps:
            run(step, 0, 4)
        expected, found = whole.state_dict(), sharded.state_dict()
        assert sorted(found) == sorted(expected)
        close([found[k].numpy() for k in expected], [t.numpy() for t in expected.values()])
        held = sum(p.numel() for p in sharded.parameters())
        total = sum(p.numel() for p in whole.parameters())
        assert held <= total / n + len(list(sharded.parameters()))
        other = dist.fsdp.fully_shard(Tied().double())
        other.load_state_dict(found)
        x = aj.randn(2, 5, dtype=aj.float64)
        assert aj.equal(other(x), sharded(x))


class Deep(nn.Module):
    """Layers of one size, the last one's weight used once more, transposed."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(5, 48)
        self.layers = nn.ModuleList([nn.Linear(48, 48) for _ in range(6)])
        self.out = nn.Linear(48, 3)

    def forward(self, x: aj.Tensor) -> aj.Tensor:
        x = self.first(x)
        for layer in self.layers:
            x = layer(x).tanh()
        return self.out(x @ self.layers[-1].weight)


def check_whole_parameters_are_gathered_again() -> None:
    made: dict[bool, int] = {}
    for is_compiled in (False, True):
        found = []
        for again in (False, True):
            aj.manual_seed(5)
            model = dist.fsdp.fully_shard(Deep().double(), reshard_after_forward=again)
            step = stepper(model, aj.optim.SGD(model.parameters(), lr=0.1), is_compiled)
            run(step, 0, 3)
            found.append([w.tobytes() for w in weights(model)])
            if is_compiled:
                made[again] = step.memory()["arena_bytes"]
        assert found[0] == found[1]
    assert made[True] <= made[False] - 48 * 48 * 8, made  # what else is live at the peak takes what is left


def check_no_whole_parameter_is_kept_between_the_passes() -> None:
    kept: list[weakref.ref[Any]] = []
    model = dist.fsdp.fully_shard(Deep())
    for child in model.modules():
        if hasattr(child, "whole"):
            gather = child.whole
            child.gather = lambda part, gather=gather: _noted(gather(part), kept)
            child.forward = lambda part, child=child: gathered(child.gather(part), child.gather, part)
    gc.disable()  # nobody but the collector would find what keeps itself
    out = model(own(batch("mlp", 0)[0]).float())
    loss, saved = out.square().sum(), weakref.ref(out.grad_fn)
    gc.enable()
    assert len(kept) == 17
    assert [w() for w in kept] == [None] * 17
    with aj.no_grad():
        next(model.parameters()).add_(1)
        last = model.layers[-1].parametrizations.weight.original
    loss.backward(retain_graph=True)  # the first layer's weight is not needed
    with aj.no_grad():
        last.mul_(1)
    try:
        loss.backward()
    except RuntimeError as error:
        assert "modified by an inplace operation" in str(error)
    else:
        raise AssertionError("a parameter that has changed was gathered again")
    gc.disable()
    del out, loss
    gc.enable()
    assert saved() is None


def _noted(whole: aj.Tensor, kept: list[weakref.ref[Any]]) -> aj.Tensor:
    if aj.is_grad_enabled():
        kept.append(weakref.ref(whole._array.base if whole._array.base is not None else whole._array))
    return whole


def check_divided_layers_compute_what_whole_ones_do() -> None:
    from autojit.distributed.tensor.parallel import (
        ColwiseParallel,
        Replicate,
        RowwiseParallel,
        Shard,
        parallelize_module,
    )  # fmt: skip

    n = dist.get_world_size()
    mesh = dist.init_device_mesh("cpu", (n,))

    def make() -> nn.Module:
        return nn.Sequential(nn.Linear(5, 4 * n), nn.Tanh(), nn.Linear(4 * n, 2 * n), nn.Linear(2 * n, 3))

    plan = {
        "0": ColwiseParallel(), "2": RowwiseParallel(),
        "3": RowwiseParallel(input_layouts=Replicate()),
    }  # fmt: skip
    for is_compiled in (False, True):
        aj.manual_seed(5)
        whole = make().double()
        aj.manual_seed(5 if dist.get_rank() == 0 else 7)
        divided = parallelize_module(make().double(), mesh, plan)
        assert divided[0].weight.shape == (4, 5)
        steps = [stepper(m, aj.optim.SGD(m.parameters(), lr=0.1, momentum=0.9), is_compiled) for m in (whole, divided)]
        for k in range(4):
            x, y = batch("mlp", k)
            for step in steps:
                step(x, y)
        expected, found = whole.state_dict(), divided.state_dict()
        close([found[k].numpy() for k in expected], [t.numpy() for t in expected.values()])
        divided.load_state_dict(expected)
        aj.manual_seed(9)  # whole inputs are the same on all ranks
        x = aj.randn(2, 5, dtype=aj.float64)
        assert aj.allclose(divided(x), whole(x), rtol=1e-12)
    aj.manual_seed(5)
    layer = nn.Linear(5, 2 * n).double()
    x = aj.randn(3, 5, dtype=aj.float64, requires_grad=True)
    expected = layer(x)
    (slope,) = aj.autograd.grad(expected.square().sum(), x)
    gathered = parallelize_module(layer, mesh, ColwiseParallel(output_layouts=Replicate()))(x)
    assert aj.allclose(gathered, expected, rtol=1e-12)
    assert aj.allclose(aj.autograd.grad(gathered.square().sum(), x)[0], slope, rtol=1e-12)
    assert Shard(0) == Shard(0)
