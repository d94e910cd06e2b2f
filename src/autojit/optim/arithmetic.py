"""Arithmetic shared by the optimisers, right for plain numbers (eager) and for 0-d tensors (traced) alike.

Eager in-place ops take numbers (``alpha=``) and make few passes over memory; a trace gets the same formula
as elementwise expressions, which the compiler fuses.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from typing import Any

import autojit as aj
from autojit.core.dtypes import HALVES, DType, float32
from autojit.core.source import SourceLocation
from autojit.optim.param_group import ParamGroup
from autojit.tensor import Tensor
from autojit.tensor.state import is_tracing, outside_trace, state
from autojit.tensor.tensor import type_of

Number = Tensor | float  # float, or a 0-d float64 Tensor while tracing


def sqrt(x: Number) -> Number:
    """Square root."""
    return x.sqrt() if isinstance(x, Tensor) else math.sqrt(x)


def axpy_(y: Tensor, x: Tensor, a: Number) -> Tensor:
    """y += a x."""
    if not isinstance(a, Tensor):
        return y.add_(x, alpha=a)
    return y.copy_(plus(y, x, a)) if type_of(y).dtype in HALVES else y.add_(x * a)


def plus(y: Tensor, x: Tensor, a: Number) -> Tensor:
    """y + a x; halves are rounded once, as by ``add`` with a number."""
    if not isinstance(a, Tensor):
        return y.add(x, alpha=a)
    dtype = type_of(y).dtype
    if dtype not in HALVES:
        return y + x * a
    return (y.to(float32) + x.to(float32) * a.to(float32)).to(dtype)


def addcmul_(y: Tensor, x1: Tensor, x2: Tensor, a: Number) -> Tensor:
    """y += a x1 x2."""
    return axpy_(y, x1 * x2, a)


def addcdiv_(y: Tensor, x1: Tensor, x2: Tensor, a: Number) -> Tensor:
    """y += a x1 / x2. A differentiable step keeps x1, which is state that the next step changes."""
    x1 = x1.clone() if state.grad_enabled else x1
    return axpy_(y, x1 / x2, a)


def lerp_(y: Tensor, x: Tensor, weight: Number) -> Tensor:
    """y += weight (x - y)."""
    return axpy_(y, x - y, weight)


def root(v: Tensor, divisor: Number, eps: Number) -> Tensor:
    """sqrt(v) / divisor + eps, in new memory; a differentiable step keeps the square root for its derivative."""
    found: Tensor = v.sqrt()
    if state.grad_enabled:
        return found / divisor + eps
    if isinstance(divisor, Tensor) or divisor != 1:
        found.div_(divisor)
    return found.add_(eps)


def advance(step: Tensor) -> Number:
    """Count one step in place; the new count as a float, or while tracing as a 0-d float64 tensor.

    A counter that parameters share is advanced by the first of them.
    """
    counts = {} if stepping.call is None else stepping.call.counts
    if id(step) not in counts:
        step.add_(1)
        counts[id(step)] = step, step.to(aj.float64) if is_tracing() else float(step.item())
    return counts[id(step)][1]


def shared(p: Tensor, group: ParamGroup, t: Number, name: str, make: Callable[[], Number]) -> Number:
    """A number that the parameters of a group with the same count ``t`` need: made by the first of them.

    While tracing it is a 0-d tensor in the dtype of ``p``, to which the parameter's arithmetic would cast it: beside
    halves in float32.
    """
    dtype = type_of(p).dtype if is_tracing() else None
    dtype = float32 if dtype in HALVES else dtype
    key = id(group), id(t), name, dtype
    numbers = {} if stepping.call is None else stepping.call.numbers
    if key not in numbers:
        made = make()
        # t is kept, so that its identity stays its own
        numbers[key] = t, made.to(dtype) if dtype is not None and isinstance(made, Tensor) else made
    return numbers[key][1]


def with_decay(grad: Tensor, p: Tensor, group: ParamGroup, weight_decay: Number) -> Tensor:
    """The gradient (negated under ``maximize``) plus ``weight_decay * p``; never changes the gradient itself."""
    if group.plain("maximize"):
        grad = -grad
    if not has(group, "weight_decay"):
        return grad
    return plus(grad, p, weight_decay)


def has(group: ParamGroup, name: str) -> bool:
    """Whether a hyper-parameter differs from zero: a branch a trace bakes in (ParamGroup guards it)."""
    value = group.plain(name)
    return isinstance(value, Tensor) or value != 0


class StepCall:
    """What the parameters of one call of ``step`` have in common: counters, advanced once, and numbers made of them."""

    def __init__(self) -> None:
        self.counter: Tensor | None = None  # of the parameters whose first step this is
        self.counts: dict[int, tuple[Tensor, Number]] = {}
        self.numbers: dict[tuple[int, int, str, DType | None], tuple[Number, Number]] = {}
        self.place: SourceLocation | None = None  # the user's line, once it was asked for
        self.parameter: Tensor | None = None  # whose turn it is; of a complex one, the algorithm sees its parts


class _Stepping(threading.local):
    """The optimiser whose ``step`` runs in this thread."""

    optimizer: Any = None
    call: StepCall | None = None
    skip: Tensor | None = None  # whether the step shall have changed nothing, in a capture that cannot know yet


stepping = _Stepping()


def lasting(make: Callable[[], Tensor]) -> Tensor:
    """State that outlives the step: a concrete tensor filled with one number, also when the first step is traced.

    If the optimiser was made in the traced function too, the state lasts as long as the optimiser.
    """
    trace, optimizer = state.trace, stepping.optimizer
    with outside_trace():
        made = make()
    if trace is not None and optimizer is not None and optimizer.is_made_in(trace):
        trace.lend(made, optimizer)
    return made


def zeros_like(p: Tensor) -> Tensor:
    """Zeros that outlive the step."""
    return full_like(p, 0)


def full_like(p: Tensor, value: float) -> Tensor:
    """State filled with ``value``, that outlives the step; a sparse parameter's has its places."""
    if p.layout is not aj.strided:
        sparse: Any = p
        return lasting(lambda: sparse.with_values(aj.full_like(sparse._values(), value)))
    kind = type_of(p)
    return lasting(lambda: aj.full(kind.shape, value, dtype=kind.dtype, device=kind.device))


def step_counter() -> Tensor:
    """torch's ``state["step"]``: a 0-d tensor of `scalar_dtype`. Parameters whose first step is the same share one,
    until somebody looks at the state; where that is not noticed, of a user's own algorithm, they share none.
    """
    call, optimizer = stepping.call, stepping.optimizer
    if call is None or optimizer is None or not hasattr(optimizer.__dict__.get("state"), "is_parted"):
        return new_counter()
    if call.counter is None:
        call.counter = new_counter()
    else:
        _note_shared()
    return call.counter


def new_counter() -> Tensor:
    """A counter that nobody shares."""
    return lasting(lambda: aj.zeros((), dtype=scalar_dtype(), device="cpu"))


def scalar_dtype() -> DType:
    """That of the counters of a state: float32, or float64 where that is the default, as in torch."""
    return aj.float64 if aj.get_default_dtype() is aj.float64 else aj.float32


def part_counters(moving: Sequence[dict[str, Any]], resting: Sequence[dict[str, Any]]) -> None:
    """Before a step: parameters that take none of it (they have no gradient) get counters of their own.

    That is done once, with what the counters hold when a call begins; a compiled step finds them parted.
    """
    advanced = {id(known.get("step")) for known in moving}
    parted: dict[int, Tensor] = {}
    for known in resting:
        step = known.get("step")
        if not isinstance(step, Tensor) or id(step) not in advanced:
            continue
        if id(step) not in parted:
            with outside_trace():
                parted[id(step)] = step.detach().clone()
        else:
            _note_shared()
        known["step"] = parted[id(step)]
    trace = state.trace
    if trace is not None and parted and any(_has_changed(known["step"], trace) for known in moving if known):
        trace.begin_again()  # it has counted for those that now rest, too


def part_all(state: Any) -> None:
    """Before somebody looks at an optimiser's state: every parameter has a counter of its own, which may be written to,
    or taken to another optimiser.
    """
    state.is_parted = True
    seen: set[int] = set()
    for known in state.values():
        step = known.get("step") if isinstance(known, dict) else None
        if isinstance(step, Tensor):
            if id(step) in seen:
                known["step"] = step.detach().clone()
            seen.add(id(step))


def _note_shared() -> None:
    optimizer = stepping.optimizer
    if optimizer is not None and hasattr(optimizer.__dict__["state"], "is_parted"):
        optimizer.__dict__["state"].is_parted = False


def _has_changed(step: Any, trace: Any) -> bool:
    array = step._array if isinstance(step, Tensor) else None
    return array is not None and trace.lifted(array) is not trace.lifted(array, is_first=True)
