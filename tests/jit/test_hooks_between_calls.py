"""Hooks of every kind, registered or removed between calls or within the step: as in eager mode, or refused by name."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import autojit as aj
from autojit import nn
from autojit.core.errors import TraceError
from autojit.jit.snapshots import Snapshot
from autojit.nn import hooks as of_modules
from autojit.optim import optimizer as of_optimisers

Wrap = Callable[..., Any]
Body = Callable[[Any, Any], Any]  # (world, gradient or output) -> what stands for it, or None
ARGUMENT = ("argument", "argument, added", "node of an argument", "node of an argument, before")


def _one(replaced: Any) -> Any:
    return None if replaced is None else (replaced,)


def _node(world: Any, leaf: aj.Tensor) -> Any:
    found = leaf.expand_as(leaf).grad_fn.next_functions[0][0]
    world.kept.append(found)  # nobody else does
    return found


KINDS: dict[str, Callable[[Any, Body], Any]] = {
    "forward": lambda w, f: w.layer.register_forward_hook(lambda m, i, o: f(w, o)),
    "forward, with kwargs": lambda w, f: w.layer.register_forward_hook(lambda m, i, k, o: f(w, o), with_kwargs=True),
    "before forward": lambda w, f: w.layer.register_forward_pre_hook(lambda m, i: _one(f(w, i[0]))),
    "backward": lambda w, f: w.layer.register_full_backward_hook(lambda m, i, o: _one(f(w, i[0]))),
    "before backward": lambda w, f: w.layer.register_full_backward_pre_hook(lambda m, o: _one(f(w, o[0]))),
    "all forward": lambda w, f: of_modules.register_module_forward_hook(
        lambda m, i, o: f(w, o) if m is w.layer else None
    ),
    "before all forward": lambda w, f: of_modules.register_module_forward_pre_hook(
        lambda m, i: _one(f(w, i[0])) if m is w.layer else None
    ),
    "all backward": lambda w, f: of_modules.register_module_full_backward_hook(
        lambda m, i, o: _one(f(w, i[0])) if m is w.layer else None
    ),
    "leaf": lambda w, f: w.leaf.register_hook(lambda g: f(w, g)),
    "leaf, added": lambda w, f: w.leaf.register_post_accumulate_grad_hook(lambda p: _nothing(f(w, p.grad))),
    "node of a leaf": lambda w, f: _node(w, w.leaf).register_hook(lambda i, o: _nothing(f(w, o[0]))),
    "node of a leaf, before": lambda w, f: _node(w, w.leaf).register_prehook(lambda o: _one(f(w, o[0]))),
    "several": lambda w, f: aj.autograd.graph.register_multi_grad_hook(
        [w.leaf, w.layer.weight], lambda grads: _nothing(f(w, grads[0]))
    ),
    "before a step": lambda w, f: w.opt.register_step_pre_hook(lambda o, a, k: _nothing(f(w, w.leaf))),
    "after a step": lambda w, f: w.opt.register_step_post_hook(lambda o, a, k: _nothing(f(w, w.leaf))),
    "before all steps": lambda w, f: of_optimisers.register_optimizer_step_pre_hook(
        lambda o, a, k: _nothing(f(w, w.leaf))
    ),
    "after all steps": lambda w, f: of_optimisers.register_optimizer_step_post_hook(
        lambda o, a, k: _nothing(f(w, w.leaf))
    ),
    "history": lambda w, f: w.made.register_hook(lambda g: f(w, g)),
    "node of a history": lambda w, f: w.made.grad_fn.register_hook(lambda i, o: _changed(f(w, i[0]), i)),
    "node of a history, before": lambda w, f: w.made.grad_fn.register_prehook(lambda o: _one(f(w, o[0]))),
    "leaf of a history": lambda w, f: w.far.register_hook(lambda g: f(w, g)),
    "argument": lambda w, f: w.given.register_hook(lambda g: f(w, g)),
    "argument, added": lambda w, f: w.given.register_post_accumulate_grad_hook(lambda p: _nothing(f(w, p.grad))),
    "node of an argument": lambda w, f: _node(w, w.given).register_hook(lambda i, o: _nothing(f(w, o[0]))),
    "node of an argument, before": lambda w, f: _node(w, w.given).register_prehook(lambda o: _one(f(w, o[0]))),
}


def _nothing(value: Any) -> None:
    pass


def _changed(first: Any, all_of_them: tuple[Any, ...]) -> Any:
    return None if first is None else (first, *all_of_them[1:])


BODIES: dict[str, Body] = {
    "replaces": lambda w, t: t * w.factor,
    "counts": lambda w, t: _nothing(w.log.append(len(w.log))),
    "tells": lambda w, t: _nothing(w.log.append(round(t.detach().sum().item(), 9))),
}


@pytest.fixture(autouse=True)
def _no_hooks_of_all() -> Iterator[None]:
    yield
    for table in (of_modules.everywhere, *of_optimisers.Optimizer._hooks_of_all):
        table.clear()


def _world() -> SimpleNamespace:
    aj.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).double()
    leaf, far, given = (aj.ones(3, dtype=aj.float64, requires_grad=True) for _ in range(3))
    return SimpleNamespace(
        model=model, layer=model[0], opt=aj.optim.SGD(model.parameters(), lr=0.1, momentum=0.5), leaf=leaf, far=far,
        given=given, made=far * 2, factor=1.5, log=[], kept=[], handle=None,
    )  # fmt: skip


def _train(world: Any, x: aj.Tensor, given: aj.Tensor) -> aj.Tensor:
    world.opt.zero_grad()
    for t in (world.leaf, world.far, given):
        t.grad = None
    loss = (world.model(x * world.leaf * world.made + given) ** 2).mean()
    loss.backward(retain_graph=True)
    world.opt.step()
    return loss


def _shown(world: Any, loss: aj.Tensor) -> list[Any]:
    tensors = [loss, *world.model.parameters(), world.leaf.grad, world.far.grad, world.given.grad]
    return [*(round(t.detach().double().sum().item(), 9) for t in tensors), list(world.log)]


def _run(
    wrap: Wrap, step: Callable[..., aj.Tensor], begin: Callable[[Any], None], between: Callable[[Any, int], None]
) -> list[Any]:
    world = _world()
    begin(world)
    run, seen = wrap(lambda x, given: step(world, x, given)), []
    for k in range(7):
        x = aj.arange(6.0, dtype=aj.float64).reshape(2, 3) / 6 + k % 3
        seen.append(_shown(world, run(x, world.given)))
        between(world, k)
    if isinstance(world.handle, aj.autograd.graph.RemovableHandle | of_modules.RemovableHandle):
        world.handle.remove()
    return seen


def _eager(step: Any) -> Any:
    return step


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_hook_runs_from_the_call_after_its_registration_to_its_removal(kind: str, body: str) -> None:
    def between(world: Any, k: int) -> None:
        if k == 1:
            world.handle = KINDS[kind](world, BODIES[body])
        if k == 3:
            world.factor = 0.5
        if k == 4:
            world.handle.remove()

    runs = [_run(wrap, _train, lambda world: None, between) for wrap in (_eager, aj.jit)]
    assert runs[1] == runs[0]


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_hook_that_a_step_registers_and_removes_runs_at_every_call(kind: str, body: str) -> None:
    def step(world: Any, x: aj.Tensor, given: aj.Tensor) -> aj.Tensor:
        handle = KINDS[kind](world if kind not in ARGUMENT else _with(world, given), BODIES[body])
        loss = _train(world, x, given)
        handle.remove()
        return loss

    runs = [_run(wrap, step, lambda world: None, lambda world, k: None) for wrap in (_eager, aj.jit)]
    assert runs[1] == runs[0]


def _with(world: Any, given: aj.Tensor) -> SimpleNamespace:
    return SimpleNamespace(**{**vars(world), "given": given})


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ARGUMENT])
def test_a_hook_that_a_step_leaves_is_refused_and_is_not_there_afterwards(kind: str, body: str) -> None:
    worlds: list[Any] = []

    def step(world: Any, x: aj.Tensor, given: aj.Tensor) -> aj.Tensor:
        KINDS[kind](world, BODIES[body])
        return _train(world, x, given)

    with pytest.raises(TraceError, match="registers a hook on something that exists outside"):
        _run(aj.jit, step, worlds.append, lambda world, k: None)
    world, before = worlds[0], _world()
    x = aj.ones(2, 3, dtype=aj.float64)
    assert _shown(world, _train(world, x, world.given)) == _shown(before, _train(before, x, before.given))


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_step_that_removes_a_hook_from_outside_is_refused_and_it_is_there_afterwards(kind: str, body: str) -> None:
    worlds: list[Any] = []

    def begin(world: Any) -> None:
        worlds.append(world)
        world.handle = KINDS[kind](world, BODIES[body])

    def step(world: Any, x: aj.Tensor, given: aj.Tensor) -> aj.Tensor:
        world.handle.remove()
        return _train(world, x, given)

    with pytest.raises(TraceError, match="removes a hook that exists outside"):
        _run(aj.jit, step, begin, lambda world, k: None)
    shown, x = [], aj.ones(2, 3, dtype=aj.float64)
    for world in (worlds[0], _world()):
        world.handle = world.handle or KINDS[kind](world, BODIES[body])
        shown.append(_shown(world, _train(world, x, world.given)))
        world.handle.remove()
    assert shown[0] == shown[1]


@pytest.mark.parametrize("method", ["step", "zero_grad"])
def test_a_method_that_an_optimiser_is_given_is_the_one_that_is_called(method: str) -> None:
    def between(world: Any, k: int) -> None:
        if k == 2:
            setattr(world.opt, method, lambda *given: None)
        if k == 4:
            delattr(world.opt, method)

    runs = [_run(wrap, _train, lambda world: None, between) for wrap in (_eager, aj.jit)]
    assert runs[1] == runs[0]


def test_what_another_thread_registers_and_sets_while_a_capture_goes_on_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    world, leave, dtype = _world(), Snapshot.leave, aj.get_default_dtype()
    handles: list[Any] = []

    def register() -> None:
        for kind in ("all forward", "before all forward", "before all steps", "after all steps", "forward", "leaf"):
            handles.append(KINDS[kind](world, BODIES["counts"]))
        aj.set_default_dtype(aj.float64)

    def leave_later(snapshot: Snapshot, trace: Any) -> None:
        if not handles:
            thread = threading.Thread(target=register)
            thread.start()
            thread.join()
        leave(snapshot, trace)

    monkeypatch.setattr(Snapshot, "leave", leave_later)
    assert aj.jit(lambda x: x * 2)(aj.ones(2, dtype=aj.float32)).tolist() == [2.0, 2.0]
    monkeypatch.undo()
    now = aj.get_default_dtype()
    aj.set_default_dtype(dtype)
    assert now is aj.float64 and len(handles) == 6
    _train(world, aj.ones(2, 3, dtype=aj.float64), world.given)
    assert world.log == [*range(6)]
