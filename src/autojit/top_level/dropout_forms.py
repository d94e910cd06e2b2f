"""Dropout under torch's top-level names: probability and ``train`` must be given; in place with an underscore."""

from __future__ import annotations

from collections.abc import Callable

from autojit.core.errors import ShapeError
from autojit.core.sizes import seems_equal
from autojit.core.wrapping import named
from autojit.dispatch.declared import declared
from autojit.functions.random import rand
from autojit.nn import functional as F
from autojit.tensor import Tensor
from autojit.tensor.tensor import type_of


def _form(name: str) -> Callable[[Tensor, float, bool], Tensor]:
    plain = name.removesuffix("_")
    dropping, options = getattr(F, plain), {"inplace": True} if plain != name else {}

    def form(input: Tensor, p: float, train: bool) -> Tensor:
        found: Tensor = dropping(input, p, train, **options)
        return found

    told = f"``nn.functional.{name}``, whose last two arguments must be given."
    return declared(method=False)(named(form, name, f"``{plain}`` in place." if options else told))


dropout, dropout_ = _form("dropout"), _form("dropout_")
alpha_dropout, alpha_dropout_ = _form("alpha_dropout"), _form("alpha_dropout_")
feature_alpha_dropout, feature_alpha_dropout_ = _form("feature_alpha_dropout"), _form("feature_alpha_dropout_")


@declared(method=False)
def feature_dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """Zero whole channels (axis 1) of ``f[n, c, ..]`` with probability ``p``.

    Raises:
        RuntimeError: the operand has fewer than two axes.

    Example:
        >>> import autojit as aj
        >>> aj.feature_dropout(aj.ones(1, 2, 3), 0.0, True).sum()
        tensor(6.)
    """
    spec = type_of(input)
    if not train or p == 0 or seems_equal(spec.size, 0):
        return input
    if spec.ndim < 2:
        raise ShapeError("Feature dropout requires at least 2 dimensions in the input", {"input": input})
    mask = rand(*spec.shape[:2], *[1] * (spec.ndim - 2), device=spec.device) >= p
    return input * mask * (0.0 if p == 1 else 1.0 / (1.0 - p))


@declared(method=False)
def feature_dropout_(input: Tensor, p: float, train: bool) -> Tensor:
    """``feature_dropout`` in place."""
    return input.copy_(feature_dropout(input, p, train))
