"""Parameters as one vector and back."""

from __future__ import annotations

from collections.abc import Iterable

import autojit as aj
from autojit.tensor import Tensor


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """All elements one after the other. Differentiable."""
    return aj.cat([parameter.reshape(-1) for parameter in parameters])


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Set the data of the parameters to consecutive parts of ``vec``."""
    if not isinstance(vec, Tensor):
        raise TypeError(f"expected torch.Tensor, but got: {type(vec).__name__}")
    start = 0
    for parameter in parameters:
        size = parameter.numel()
        parameter.data = vec[start : start + size].detach().view_as(parameter)
        start += size
