"""Forward mode: dual tensors, whose tangents every op carries along (torch.autograd.forward_ad)."""

from __future__ import annotations

from typing import Any, NamedTuple

from autojit.autograd import forward_level
from autojit.autograd.forward_level import ForwardLevel, levels
from autojit.autograd.grad_mode import F, _DecoratorContextManager, _Switch
from autojit.tensor import Tensor
from autojit.tensor.state import set_layers, state
from autojit.tensor.tensor import type_of

__all__ = ["UnpackedDualTensor", "dual_level", "enter_dual_level", "exit_dual_level", "make_dual", "unpack_dual"]


class UnpackedDualTensor(NamedTuple):
    """What ``unpack_dual`` returns: the primal, and the tangent or None."""

    primal: Tensor
    tangent: Tensor | None


def __getattr__(name: str) -> Any:
    """``_current_level``: the number of the innermost level, -1 outside of all."""
    if name == "_current_level":
        return len(levels()) - 1
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def enter_dual_level() -> int:
    """Enter a level on this thread; its number, for ``exit_dual_level``. Prefer ``with dual_level():``.

    Raises:
        RuntimeError: a level is entered already.
    """
    if levels():
        raise RuntimeError("Nested forward mode AD is not supported at the moment")
    set_layers((*state.layers, ForwardLevel()))  # on top, so that inside a batch tangents alone can be batched
    return 0


def exit_dual_level(*, level: int | None = None) -> None:
    """Leave the level; its tangents are gone.

    Raises:
        RuntimeError: the level is not the one that was entered last.
    """
    entered = levels()
    if level is not None and level != len(entered) - 1:
        raise RuntimeError(
            "Trying to exit a forward AD level that was not the last one that was created. This is not supported."
        )
    if not entered:
        raise RuntimeError("Dual level must be a positive number: no forward AD level is entered.")
    forward_level.leave_level(entered[-1])


class dual_level(_DecoratorContextManager):
    """A level for forward mode: inside, dual tensors can be made; at the end their tangents are gone.

    Example:
        >>> import autojit as aj
        >>> from autojit.autograd import forward_ad
        >>> with forward_ad.dual_level():
        ...     x = forward_ad.make_dual(aj.tensor([1.0, 2.0]), aj.tensor([1.0, 0.0]))
        ...     forward_ad.unpack_dual(x**2).tangent
        tensor([2., 0.])
    """

    def __enter__(self) -> int:
        return enter_dual_level()

    def __exit__(self, *exception: object) -> None:
        exit_dual_level()


def _level(number: int | None) -> ForwardLevel | None:
    entered = levels()
    if number is None:
        return entered[-1] if entered else None
    return entered[number] if 0 <= number < len(entered) else None


def make_dual(tensor: Tensor, tangent: Tensor, *, level: int | None = None) -> Tensor:
    """A view of ``tensor`` that carries ``tangent`` through all ops up to the end of the level.

    The tangent itself is kept where its memory layout is the primal's, and is changed by in-place operations on the
    dual tensor.

    Raises:
        RuntimeError: no level is entered, the sizes differ, or ``tensor`` or ``tangent`` has a tangent already.
        ValueError: primal or tangent is neither floating nor complex.
    """
    entered = _level(level)
    if entered is None:
        raise RuntimeError(
            "Trying to create a dual Tensor for forward AD but no level exists, make sure to enter_dual_level() first."
        )
    for what, t in (("primal", tensor), ("tangent", tangent)):
        if not isinstance(t, Tensor):
            raise TypeError(f"make_dual: the {what} must be a Tensor, not {type(t).__name__}")
        if not type_of(t).dtype.is_differentiable:
            raise ValueError(f"Expected {what} to be floating point or complex, but got: {type_of(t).dtype}")
    if forward_level.unpack_dual(entered, tensor)[1] is not None:
        raise RuntimeError(
            f"Making a dual Tensor based on a Tensor that already has a forward gradient at the same level "
            f"{level or 0} is not supported."
        )
    if forward_level.unpack_dual(entered, tangent)[1] is not None:
        raise RuntimeError(
            f"Setting a forward grad that itself has a forward gradient at the same level{level or 0} is not supported."
        )
    return forward_level.make_dual(entered, tensor, tangent)


def unpack_dual(tensor: Tensor, *, level: int | None = None) -> UnpackedDualTensor:
    """The primal (a view without tangent) and the tangent; None for the tangent of a tensor that is not dual.

    Outside of all levels the tensor itself is returned with None: that is how forward mode is switched off.

    Example:
        >>> import autojit as aj
        >>> aj.autograd.forward_ad.unpack_dual(aj.tensor(1.0))
        UnpackedDualTensor(primal=tensor(1.), tangent=None)
    """
    if not isinstance(tensor, Tensor):
        raise TypeError(f"unpack_dual: argument 'tensor' must be Tensor, not {type(tensor).__name__}")
    entered = _level(level)
    if entered is None:
        return UnpackedDualTensor(tensor, None)
    return UnpackedDualTensor(*forward_level.unpack_dual(entered, tensor))


class _set_fwd_grad_enabled(_Switch):
    """Tangents are (or are not) carried along inside; takes effect at once, also when it decorates."""

    _holder = state
    _flag = "forward_enabled"

    def __call__(self, orig_func: F) -> F:
        return _DecoratorContextManager.__call__(self, orig_func)


def _is_fwd_grad_enabled() -> bool:
    """Whether tangents are carried along."""
    return state.forward_enabled
