"""Bounding gradients before an optimiser step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import autojit as aj
from autojit.core.user_warnings import warn
from autojit.tensor import Tensor


def _tensors(parameters: Tensor | Iterable[Tensor]) -> list[Tensor]:
    return [parameters] if isinstance(parameters, Tensor) else list(parameters)


def get_total_norm(
    tensors: Tensor | Iterable[Tensor],
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """The norm of all tensors taken as one vector. ``foreach`` is accepted and has no meaning here."""
    found = _tensors(tensors)
    if not found:
        return aj.tensor(0.0)
    norms = [aj.norm(tensor, float(norm_type)) for tensor in found]
    total = norms[0] if len(norms) == 1 else aj.norm(aj.stack(norms), float(norm_type))
    if error_if_nonfinite and not bool(aj.isfinite(total)):
        raise RuntimeError(
            f"The total norm of order {float(norm_type)} for gradients from `parameters` is non-finite, so it cannot "
            "be clipped. To disable this error and scale the gradients by the non-finite norm anyway, set "
            "`error_if_nonfinite=False`"
        )
    return total


def clip_grads_with_norm_(
    parameters: Tensor | Iterable[Tensor], max_norm: float, total_norm: Tensor, foreach: bool | None = None
) -> None:
    """Scale every gradient by min(1, max_norm / total_norm)."""
    scale = (float(max_norm) / (total_norm + 1e-6)).clamp(max=1.0)
    with aj.no_grad():
        for parameter in _tensors(parameters):
            if parameter.grad is not None:
                parameter.grad.mul_(scale)


def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Scale all gradients so that their joint norm is at most ``max_norm``; returns the norm before.

    Stays on tensors throughout (no branch on the norm), so it compiles into the step.
    """
    found = _tensors(parameters)
    if not found and isinstance(parameters, Iterator):
        warn("`parameters` is an empty generator, no gradient clipping will occur.", UserWarning)
    with aj.no_grad():
        grads = [parameter.grad for parameter in found if parameter.grad is not None]
        total = get_total_norm(grads, norm_type, error_if_nonfinite)
        clip_grads_with_norm_(found, max_norm, total)
    return total


def clip_grad_value_(parameters: Tensor | Iterable[Tensor], clip_value: float, foreach: bool | None = None) -> None:
    """Clamp every gradient to [-clip_value, clip_value]."""
    bound = float(clip_value)
    with aj.no_grad():
        for parameter in _tensors(parameters):
            if parameter.grad is not None:
                parameter.grad.clamp_(min=-bound, max=bound)


def clip_grad_norm(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """``clip_grad_norm_`` under its older name, with a warning that says so."""
    warn(
        "`torch.nn.utils.clip_grad_norm` is now deprecated in favor of `torch.nn.utils.clip_grad_norm_`.",
        FutureWarning,
    )
    return clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite, foreach)
