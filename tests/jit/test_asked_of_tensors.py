"""What a step asks of tensors from outside besides their values is a read like any other."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import autojit as aj
from autojit import nn
from tests.covering import covering

QUESTIONS: dict[str, Callable[[aj.Tensor], Any]] = {
    "requires_grad": lambda t: t.requires_grad,
    "is_leaf": lambda t: t.is_leaf,
    "grad_fn": lambda t: t.grad_fn is None,
    "grad": lambda t: t.is_leaf and t.grad is None,
    "shape": lambda t: tuple(t.shape),
    "size": lambda t: t.size(0),
    "len": len,
    "ndim": lambda t: t.ndim,
    "numel": lambda t: t.numel(),
    "dtype": lambda t: t.dtype is aj.float64,
    "element_size": lambda t: t.element_size(),
    "is_floating_point": lambda t: t.is_floating_point(),
    "stride": lambda t: t.stride(),
    "is_contiguous": lambda t: t.is_contiguous(),
    "storage_offset": lambda t: t.storage_offset(),
    "shape of its transpose": lambda t: tuple(t.mT.shape) if t.ndim > 1 else (),
    "layout of its transpose": lambda t: t.ndim > 1 and t.mT.is_contiguous(),
    "shape of its data": lambda t: tuple(t.data.shape),
    "history of its data": lambda t: t.detach().requires_grad,
    "is_same_size": lambda t: t.is_same_size(aj.ones(2, 3)),
    "promotion": lambda t: aj.result_type(t, aj.tensor(1, dtype=aj.int32)) is aj.float64,
    "like it": lambda t: tuple(aj.zeros_like(t).shape),
    "a name": lambda t: getattr(t, "tag", None),
    "whether there is a name": lambda t: hasattr(t, "tag"),
    "is_set_to": lambda t: t.is_set_to(t),
}


def _silently(change: Callable[[aj.Tensor], Any]) -> Callable[[aj.Tensor], None]:
    def run(t: aj.Tensor) -> None:
        with aj.no_grad():
            change(t)

    return run


CHANGES: dict[str, Callable[[aj.Tensor], Any]] = {
    "frozen": lambda t: t.requires_grad_(False),
    "thawed": lambda t: t.requires_grad_(True),
    "detached": lambda t: t.detach_(),
    "given a history": lambda t: t.mul_(aj.ones(1, requires_grad=True)),
    "other data": lambda t: setattr(t, "data", aj.ones(3, 2)),
    "data of another dtype": lambda t: setattr(t, "data", aj.ones(2, 3, dtype=aj.float64)),
    "data that lies otherwise": lambda t: setattr(t, "data", t.data.mT.contiguous().mT),
    "transposed": _silently(lambda t: t.t_()),
    "unsqueezed": _silently(lambda t: t.unsqueeze_(0)),
    "given a gradient": lambda t: setattr(t, "grad", aj.ones_like(t)),
    "written": _silently(lambda t: t.add_(1)),
    "named": lambda t: setattr(t, "tag", 5),
}


def _linear() -> aj.Tensor:
    return nn.Linear(3, 2).weight


KINDS: dict[str, Callable[[], aj.Tensor]] = {
    "leaf": lambda: aj.arange(6.0).reshape(2, 3).requires_grad_(),
    "data": lambda: aj.arange(6.0).reshape(2, 3),
    "result": lambda: aj.ones(2, 3, requires_grad=True) * 2,
    "view": lambda: aj.arange(12.0).reshape(4, 3)[1:3],
    "parameter": _linear,
}


@covering("kind, change", KINDS, CHANGES, every=2)
def test_every_question_is_answered_as_it_is_now(kind: str, change: str) -> None:
    """All questions at once, and each alone: a step that asks one thing reads nothing else."""
    asked = {**{name: (name,) for name in QUESTIONS}, "all": tuple(QUESTIONS)}
    for name, names in asked.items():
        world = SimpleNamespace(t=KINDS[kind]())

        def step(x: aj.Tensor, world: Any = world, names: tuple[str, ...] = names) -> Any:
            return x * 2, [QUESTIONS[n](world.t) for n in names]

        compiled = aj.jit(step)
        for k in range(3):
            if k == 1:
                try:
                    CHANGES[change](world.t)
                except RuntimeError:  # not for every kind
                    break
            assert compiled(aj.ones(1))[1] == step(aj.ones(1))[1], name
