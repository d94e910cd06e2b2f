"""``check(make, *arguments)``: a user's own step, called with arguments of other sizes, layouts and identities.

The step is made again for each mode, so it may hold any state. Variants of the arguments that the step refuses eagerly
are left out; the others are called one after the other, eagerly and compiled, and all that can be seen is compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

import autojit as aj
from autojit.testing.fuzz.running import run
from autojit.testing.fuzz.showing import report
from autojit.testing.fuzz.verdicts import judge
from autojit.testing.fuzz.watching import Watch, tensors_in

Make = Callable[[Callable[..., Any]], Callable[..., Any]]
Variant = Callable[[], tuple[Any, ...]]
OTHER_SIZES = (2, 5, 1, 0, 12)  # in the place of the first extent that the tensors share


def check(make: Make, *arguments: Any) -> int:
    """Assert that a step gives compiled what it gives eagerly, for many variants of its arguments.

    Args:
        make: takes ``jit`` and returns the step: ``jit(function)``, with whatever model and state it uses, made again.
        arguments: of one call: tensors (in any nest), arrays, numbers.

    Returns:
        How many variants were compared: other sizes of the first axis, transposed, strided and shifted layouts, one
        tensor in the place of two, gradients wanted and not, other numbers.

    Raises:
        AssertionError: the modes differ; the message shows where, and what each gave.

    Example:
        >>> import autojit as aj
        >>> def make(jit):
        ...     w = aj.ones(3, 2, requires_grad=True)
        ...     return jit(lambda x: ((x @ w).sum(), x @ w))
        >>> check(make, aj.ones(4, 3)) > 5
        True
    """
    variants = [variant for variant in _variants(arguments) if _runs(make, variant)]
    dtypes = [t.dtype.name for t in tensors_in(arguments) if t.dtype.is_floating_point or t.dtype.is_complex]
    coarsest = next((d for d in ("bfloat16", "float16", "float32", "complex64") if d in dtypes), "float32")

    def program(jit: Callable[..., Any], see: Watch) -> None:
        step = make(jit)
        for variant in (*variants, *variants[:2]):
            see.call(step, *variant())

    verdict = judge(program, coarsest)
    if verdict.is_finding or verdict.kind == "broken":
        raise AssertionError(f"eager and compiled calls differ: {report(verdict)}")
    return len(variants)


def _runs(make: Make, variant: Variant) -> bool:
    """Whether the step takes a variant eagerly."""
    seen = run(lambda jit, see: see.call(make(jit), *variant()), "eager")
    return seen.error is None and seen.broken is None


def _variants(arguments: Sequence[Any]) -> Iterator[Variant]:
    """Makers of arguments: each call gives fresh tensors."""
    tensors = tensors_in(arguments)

    def of(change: Callable[[aj.Tensor], aj.Tensor]) -> Variant:
        return lambda: tuple(_mapped(a, change) for a in arguments)

    yield of(_copied)
    extent = tensors[0].shape[0] if tensors and tensors[0].dim() else None
    for size in OTHER_SIZES if extent is not None else ():
        yield of(lambda t, size=size: _resized(t, extent, size))  # type: ignore[misc]
    for layout in (_transposed, _strided, _shifted):
        yield of(layout)
    yield of(lambda t: _copied(t, wants_grad=True))
    yield of(lambda t: _copied(t, wants_grad=False))
    yield of(_changed)
    if len(tensors) > 1 and tensors[0].shape == tensors[1].shape:
        yield lambda: _shared(tuple(_mapped(a, _copied) for a in arguments))


def _mapped(value: Any, change: Callable[[aj.Tensor], aj.Tensor]) -> Any:
    """A nest with its tensors changed, arrays copied."""
    if isinstance(value, aj.Tensor):
        return change(value)
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, dict):
        return {k: _mapped(v, change) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_mapped(v, change) for v in value)
    return value


def _as_given(made: aj.Tensor, like: aj.Tensor, wants_grad: bool | None = None) -> aj.Tensor:
    wanted = like.requires_grad if wants_grad is None else wants_grad and like.dtype.is_floating_point
    found: aj.Tensor = made.detach().requires_grad_(wanted)
    return found


def _copied(t: aj.Tensor, wants_grad: bool | None = None) -> aj.Tensor:
    return _as_given(t.detach().clone(), t, wants_grad)


def _changed(t: aj.Tensor) -> aj.Tensor:
    made = t.detach() * 0.5 - 0.25 if t.dtype.is_floating_point else t.detach().clone()
    return _as_given(made.to(t.dtype), t)


def _resized(t: aj.Tensor, extent: Any, size: int) -> aj.Tensor:
    """Another number of rows: the given ones, repeated or cut off."""
    if not t.dim() or t.shape[0] != extent or not extent:
        return _copied(t)
    rows = [k % extent for k in range(size)]
    return _as_given(t.detach()[aj.tensor(rows, dtype=aj.int64)], t)


def _transposed(t: aj.Tensor) -> aj.Tensor:
    return _as_given(t.detach().transpose(0, -1).contiguous().transpose(0, -1), t) if t.dim() > 1 else _copied(t)


def _strided(t: aj.Tensor) -> aj.Tensor:
    return _as_given(aj.stack([t.detach(), t.detach()], -1)[..., 0], t)


def _shifted(t: aj.Tensor) -> aj.Tensor:
    return _as_given(aj.stack([t.detach(), t.detach()])[1], t)


def _shared(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """The first tensor in the place of the second."""
    first, second = tensors_in(arguments)[:2]
    return tuple(_mapped(a, lambda t: first if t is second else t) for a in arguments)
