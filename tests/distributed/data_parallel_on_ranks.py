"""What holds of DistributedDataParallel on any number of ranks."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np

import autojit as aj
from autojit import distributed as dist
from autojit import nn
from autojit.nn.parallel import DistributedDataParallel as DDP

BATCH = 12  # divides by 1, 2, 3, 4
STEPS = int(os.environ.get("DDP_STEPS", "6"))
EQUAL = 1e-12  # relative, in float64: sums over ranks are taken in another order than sums over a batch


class Gpt(nn.Module):
    """A tiny language model: embeddings, causal attention, tied weights."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(11, 8), nn.Embedding(6, 8)
        self.attend = nn.MultiheadAttention(8, 2, bias=False, batch_first=True)
        self.norm = nn.LayerNorm(8)
        self.mlp = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))
        self.head = nn.Linear(8, 11, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, x: aj.Tensor) -> aj.Tensor:
        h = self.tokens(x) + self.places(aj.arange(x.shape[1]))
        mask = aj.full((x.shape[1], x.shape[1]), float("-inf"), dtype=h.dtype).triu(1)
        h = h + self.attend(h, h, h, attn_mask=mask, need_weights=False)[0]
        h = h + self.mlp(self.norm(h))
        return self.head(h).reshape(-1, 11)


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3))


def cnn() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(27, 4))


def batch(kind: str, k: int) -> tuple[aj.Tensor, aj.Tensor]:
    drawn = np.random.default_rng(k)
    if kind == "gpt":
        tokens = aj.tensor(drawn.integers(0, 11, (BATCH, 7)))
        return tokens[:, :-1], tokens[:, 1:]
    shape, classes = {"mlp": ((BATCH, 5), 3), "cnn": ((BATCH, 1, 8, 8), 4)}[kind]
    return aj.tensor(drawn.normal(size=shape)), aj.tensor(drawn.integers(0, classes, BATCH))


def own(t: aj.Tensor) -> aj.Tensor:
    """This rank's part of a batch."""
    each = t.shape[0] // dist.get_world_size()
    return t[dist.get_rank() * each : (dist.get_rank() + 1) * each]


def trained(model: nn.Module, kind: str, part: Callable[[aj.Tensor], aj.Tensor], is_compiled: bool) -> list[Any]:
    """The parameters after some steps on parts of the same batches."""
    model.train()
    optimizer = (
        aj.optim.AdamW(model.parameters(), lr=1e-3)
        if kind == "gpt"
        else aj.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    )
    loss_of = nn.CrossEntropyLoss()

    def step(x: aj.Tensor, y: aj.Tensor) -> aj.Tensor:
        optimizer.zero_grad()
        loss = loss_of(model(x), y.reshape(-1))
        loss.backward()
        optimizer.step()
        return loss.detach()

    run = aj.jit(step) if is_compiled else step
    for k in range(STEPS):
        x, y = batch(kind, k)
        run(part(x), part(y))
    if is_compiled:
        assert run.stats()["eager_calls"] == 0, run.stats()
    return [p.detach().numpy().copy() for p in model.parameters()]


MODELS: dict[str, Callable[[], nn.Module]] = {"mlp": mlp, "cnn": cnn, "gpt": Gpt}


def close(found: list[Any], expected: list[Any]) -> None:
    scale = max(np.abs(e).max() for e in expected)
    worst = max(np.abs(f - e).max() for f, e in zip(found, expected, strict=True))
    assert worst <= EQUAL * scale, worst / scale


@cache
def of_one_rank(kind: str) -> list[Any]:
    """The parameters of one rank that has whole batches."""
    aj.manual_seed(1)
    return trained(MODELS[kind]().double(), kind, lambda t: t, is_compiled=False)


def all_ranks_are_one_rank(kind: str, is_compiled: bool) -> None:
    aj.manual_seed(1 if dist.get_rank() == 0 else 2)  # the others get rank 0's parameters
    found = trained(DDP(MODELS[kind]().double(), bucket_cap_mb=0.0005), kind, own, is_compiled)
    close(found, of_one_rank(kind))
    every: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(every, [f.tobytes() for f in found])
    assert all(other == every[0] for other in every), "replicas differ"


for _kind in MODELS:  # check_mlp_by_line, check_mlp_compiled, check_cnn_by_line, ...
    globals()[f"check_{_kind}_by_line"] = partial(all_ranks_are_one_rank, _kind, False)
    globals()[f"check_{_kind}_compiled"] = partial(all_ranks_are_one_rank, _kind, True)


def check_gradients_add_up_without_sync() -> None:
    n = dist.get_world_size()
    for is_compiled in (False, True):
        aj.manual_seed(1)
        model = DDP(mlp().double())

        def pass_over(x: aj.Tensor, model: DDP = model) -> None:
            model(x).square().mean().backward()

        run = aj.jit(pass_over) if is_compiled else pass_over
        parts = [aj.tensor(np.random.default_rng(100 * k + dist.get_rank()).normal(size=(4, 5))) for k in range(3)]
        for _ in range(2):
            model.zero_grad()
            with model.no_sync():
                run(parts[0])
                alone = model.module[0].weight.grad.clone()
                run(parts[1])
            run(parts[2])
            reference = mlp().double()
            reference.load_state_dict(model.module.state_dict())
            for rank in range(n):
                for k in range(3):
                    x = aj.tensor(np.random.default_rng(100 * k + rank).normal(size=(4, 5)))
                    (reference(x).square().mean() / n).backward()
            for p, q in zip(model.parameters(), reference.parameters(), strict=True):
                assert aj.allclose(p.grad, q.grad, rtol=1e-12, atol=1e-14)
        own_part = mlp().double()
        own_part.load_state_dict(model.module.state_dict())
        own_part(parts[0]).square().mean().backward()
        assert aj.allclose(alone, own_part[0].weight.grad, rtol=1e-12, atol=1e-14)


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.never = nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2)

    def forward(self, x: aj.Tensor, takes_two: bool) -> aj.Tensor:
        return self.two(x) if takes_two else self.one(x)


def check_unused_parameters() -> None:
    n, me = dist.get_world_size(), dist.get_rank()
    aj.manual_seed(3)
    model = DDP(Branches().double(), find_unused_parameters=True)
    x = aj.full((1, 2), me + 1.0, dtype=aj.float64)
    for _ in range(2):
        model.zero_grad()
        model(x, takes_two=me == n - 1).sum().backward()
        assert model.module.never.weight.grad is None
        expected_two, expected_one = n / n, sum(range(1, n)) / n
        assert np.allclose(model.module.two.weight.grad, expected_two, rtol=1e-14)
        if n > 1:
            assert np.allclose(model.module.one.weight.grad, expected_one, rtol=1e-14)
    strict = DDP(Branches().double())
    strict(x, takes_two=False).sum().backward()
    try:
        strict(x, takes_two=False)
    except RuntimeError as error:
        assert "Expected to have finished reduction" in str(error)
        assert "never.weight" in str(error)
    else:
        raise AssertionError("parameters without gradient were not told")


def check_ranks_with_fewer_batches_take_part_with_zeros() -> None:
    n, me = dist.get_world_size(), dist.get_rank()

    def given(rank: int, k: int) -> aj.Tensor:
        return aj.tensor(np.random.default_rng(100 * k + rank).normal(size=(4, 5)))

    def stepper(model: nn.Module, is_compiled: bool) -> Any:
        optimizer = aj.optim.SGD(model.parameters(), lr=0.1)

        def step(x: aj.Tensor) -> None:
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()

        return aj.jit(step) if is_compiled else step

    counts = [n - rank for rank in range(n)]  # the last rank has one batch, the first n
    for by_all in (True, False):
        aj.manual_seed(1)
        reference = mlp().double()
        optimizer = aj.optim.SGD(reference.parameters(), lr=0.1)
        for k in range(n):
            optimizer.zero_grad()
            active = [rank for rank in range(n) if k < counts[rank]]
            for rank in active:
                (reference(given(rank, k)).square().mean() / (n if by_all else len(active))).backward()
            optimizer.step()
        for is_compiled in (False, True):
            aj.manual_seed(1)
            model = DDP(mlp().double(), bucket_cap_mb=0.0001)
            step = stepper(model, is_compiled)
            with model.join(divide_by_initial_world_size=by_all):
                for k in range(counts[me]):
                    step(given(me, k))
            close(
                [p.detach().numpy() for p in model.parameters()], [p.detach().numpy() for p in reference.parameters()]
            )
            step(given(me, 0))  # and as before
    for is_compiled in (False, True):
        model = DDP(nn.Sequential(nn.Linear(5, 3), nn.BatchNorm1d(3)).double(), find_unused_parameters=not is_compiled)
        step = stepper(model, is_compiled)
        with model.join():
            for k in range(1 + (n - me) % n):  # the first rank has none after the first
                step(given(me, k))
        every: list[Any] = [None] * n
        dist.all_gather_object(every, [t.numpy().tobytes() for t in model.module.state_dict().values()])
        assert all(e == every[0] for e in every)
        assert model.module[1].num_batches_tracked == n
    try:
        with model.join(throw_on_early_termination=True):
            for k in range(counts[me]):
                model(given(me, k)).sum().backward()
    except RuntimeError as error:
        assert "exhausted inputs" in str(error)
    else:
        assert n == 1


def check_buffers_are_those_of_rank_0() -> None:
    me = dist.get_rank()
    for is_compiled in (False, True):
        model = DDP(nn.Sequential(nn.BatchNorm1d(3)).double())
        run = aj.jit(model) if is_compiled else model
        for k in range(3):
            run(aj.tensor(np.random.default_rng(10 * k + me).normal(size=(4, 3)) + me))
        model.eval()
        run(aj.zeros(2, 3, dtype=aj.float64))
        every: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(every, model.module[0].running_mean.tolist())
        assert all(e == every[0] for e in every)
        assert model.module[0].num_batches_tracked == 3


def check_hooks_take_the_averages_place() -> None:
    n, me = dist.get_world_size(), dist.get_rank()
    model = DDP(nn.Linear(2, 1, bias=False).double())
    seen = []

    def hook(state: list[int], bucket: dist.GradBucket) -> Any:
        state.append(bucket.index())
        return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda f: f.value()[0] * 10)

    for made, tolerance in ((dist.algorithms.ddp_comm_hooks.default_hooks.bf16_compress_hook, 0.01),
                            (dist.algorithms.ddp_comm_hooks.default_hooks.allreduce_hook, 0.0)):  # fmt: skip
        other = DDP(nn.Linear(2, 1, bias=False).double())
        other.register_comm_hook(None, made)
        other(aj.full((1, 2), float(me), dtype=aj.float64)).sum().backward()
        assert abs(other.module.weight.grad[0, 0].item() - sum(range(n)) / n) <= tolerance
    model.register_comm_hook(seen, hook)
    model(aj.full((1, 2), float(me), dtype=aj.float64)).sum().backward()
    assert model.module.weight.grad.tolist() == [[10.0 * sum(range(n))] * 2]
    assert seen == [0]


def check_buckets_are_begun_while_the_backward_pass_computes() -> None:
    """In the order of the pass, and none is waited for before all are; in a step there are products in between."""
    told: list[str] = []

    class Told(dist.Future):
        def __init__(self, number: int, of: dist.Future) -> None:
            self.number, self.of = number, of
            told.append(f"begun {number}")

        def wait(self) -> Any:
            told.append(f"ended {self.number}")
            return self.of.wait()

    def hook(state: Any, bucket: dist.GradBucket) -> Any:
        return Told(bucket.index(), dist.all_reduce(bucket.buffer(), async_op=True).get_future())

    layers = [nn.Linear(6, 6, bias=False) for _ in range(3)]
    model = DDP(nn.Sequential(*layers).double(), bucket_cap_mb=0.0001)
    run = aj.jit(lambda x: model(x).square().mean().backward())
    x = aj.ones(2, 6, dtype=aj.float64)
    run(x)
    if dist.get_world_size() > 1:
        lines = [line for line in run.show("schedule").split("\n") if line[:3].strip().isdigit()]
        kinds = "".join({"all_reduce": "b", "wait": "e", "matmul": "m"}.get(line.split()[1], "") for line in lines)
        backward = kinds[kinds.index("b") :]
        assert backward.count("b") == backward.count("e") == 3, kinds
        assert "m" in backward[: backward.rindex("b")], kinds
        assert backward.endswith("eee"), kinds
    model.zero_grad()
    model.register_comm_hook(None, hook)
    model(x).square().mean().backward()
    assert told == [f"{what} {number}" for what in ("begun", "ended") for number in range(3)]


def check_a_compiled_forward_pass_alone() -> None:
    n, me = dist.get_world_size(), dist.get_rank()
    model = DDP(nn.Linear(2, 1, bias=False).double())
    run = aj.jit(model)
    for k in range(1, 4):
        model.zero_grad()
        run(aj.full((1, 2), float(me * k), dtype=aj.float64)).sum().backward()
        assert model.module.weight.grad.tolist() == [[k * sum(range(n)) / n] * 2], (k, model.module.weight.grad)


def check_what_is_refused() -> None:
    me = dist.get_rank()
    for call, kind, text in (
        (lambda: DDP(nn.Linear(2, 2 + me)), RuntimeError, "same model"),
        (lambda: DDP(nn.ReLU()), RuntimeError, "is not needed"),
        (lambda: DDP(nn.Linear(1, 1), device_ids=[0]), ValueError, "device_ids"),
        (lambda: DDP(nn.LazyLinear(1)), RuntimeError, "uninitialized"),
    ):
        if dist.get_world_size() == 1 and text == "same model":
            continue
        try:
            call()
        except kind as error:
            assert text in str(error)
        else:
            raise AssertionError(text)


def check_state_dicts() -> None:
    model = DDP(mlp())
    names = [f"module.{name}" for name in mlp().state_dict()]
    assert list(model.state_dict()) == names
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.module.load_state_dict(mlp().state_dict())
