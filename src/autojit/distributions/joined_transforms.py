"""Transforms of parts of a tensor side by side, and the transform by a distribution function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from operator import add
from typing import Any, ClassVar

from autojit.distributions import constraints
from autojit.distributions.parameters import sum_rightmost
from autojit.distributions.transform import Transform
from autojit.functions.shape import cat, stack
from autojit.tensor.tensor import Tensor


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise AssertionError(message)


class _Joined(Transform):
    """Transforms of the parts of a tensor along an axis; a subclass says how parts are taken and joined."""

    _distinct_by: ClassVar[tuple[str, ...]] = ("transforms", "dim")
    _joined: Callable[[list[Tensor], int], Tensor]

    def __init__(self, tseq: Sequence[Transform], dim: int, cache_size: int) -> None:
        _require(all(isinstance(t, Transform) for t in tseq), "All elements of tseq must be Transform instances")
        super().__init__(cache_size)
        self.transforms = [t.with_cache(cache_size) for t in tseq] if cache_size else list(tseq)
        self.dim = dim

    @property
    def bijective(self) -> bool:
        return all(t.bijective for t in self.transforms)

    @property
    def domain(self) -> Any:
        return self._constraint([t.domain for t in self.transforms])

    @property
    def codomain(self) -> Any:
        return self._constraint([t.codomain for t in self.transforms])

    def _constraint(self, parts: list[Any]) -> Any:
        raise NotImplementedError

    def _parts(self, x: Tensor) -> Sequence[Tensor]:
        raise NotImplementedError

    def _extent(self, x: Tensor, wanted: int, what: str) -> None:
        """AssertionError unless the axis has an extent."""
        _require(-x.ndim <= self.dim < x.ndim, f"dim {self.dim} out of range for tensor with {x.ndim} dimensions")
        found = x.shape[self.dim]
        _require(found == wanted, f"x.size({self.dim}) = {found} must equal {what} {wanted}")

    def _call(self, x: Tensor) -> Tensor:
        return self._joined([t(part) for t, part in zip(self.transforms, self._parts(x), strict=True)], self.dim)

    def _inverse(self, y: Tensor) -> Tensor:
        return self._joined([t.inv(part) for t, part in zip(self.transforms, self._parts(y), strict=True)], self.dim)


class CatTransform(_Joined):
    """Transforms side by side along an axis, each for a length of it, as ``cat`` joins tensors.

    Example:
        >>> import autojit as aj
        >>> from autojit.distributions.transforms import CatTransform, ExpTransform, identity_transform
        >>> CatTransform([ExpTransform(), identity_transform], lengths=[1, 2])(aj.zeros(3))
        tensor([1., 0., 0.])
    """

    _distinct_by = ("transforms", "dim", "lengths")
    _joined = staticmethod(cat)

    def __init__(
        self, tseq: Sequence[Transform], dim: int = 0, lengths: Sequence[int] | None = None, cache_size: int = 0
    ) -> None:
        super().__init__(tseq, dim, cache_size)
        self.lengths = [1] * len(self.transforms) if lengths is None else list(lengths)
        _require(
            len(self.lengths) == len(self.transforms),
            f"lengths ({len(self.lengths)}) must match transforms ({len(self.transforms)})",
        )

    @property
    def event_dim(self) -> int:
        """The axes of one value of the part that has most."""
        return max(t.event_dim for t in self.transforms)

    @property
    def length(self) -> int:
        """The extent of the axis."""
        return sum(self.lengths)

    def _constraint(self, parts: list[Any]) -> Any:
        return constraints.cat(parts, self.dim, self.lengths)

    def _parts(self, x: Tensor) -> Sequence[Tensor]:
        self._extent(x, self.length, "length")
        return x.split(self.lengths, self.dim)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        parts = []
        for t, before, after in zip(self.transforms, self._parts(x), self._parts(y), strict=True):
            parts.append(sum_rightmost(t.log_abs_det_jacobian(before, after), self.event_dim - t.event_dim))
        axis = (self.dim - x.ndim if self.dim >= 0 else self.dim) + self.event_dim
        return cat(parts, axis) if axis < 0 else reduce(add, parts)


class StackTransform(_Joined):
    """One transform for each index of an axis, as ``stack`` joins tensors."""

    _joined = staticmethod(stack)

    def __init__(self, tseq: Sequence[Transform], dim: int = 0, cache_size: int = 0) -> None:
        super().__init__(tseq, dim, cache_size)

    def _constraint(self, parts: list[Any]) -> Any:
        return constraints.stack(parts, self.dim)

    def _parts(self, x: Tensor) -> Sequence[Tensor]:
        self._extent(x, len(self.transforms), "len(transforms)")
        return x.unbind(self.dim)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        pairs = zip(self.transforms, self._parts(x), self._parts(y), strict=True)
        return stack([t.log_abs_det_jacobian(before, after) for t, before, after in pairs], self.dim)


class CumulativeDistributionTransform(Transform):
    """Values to their probabilities: the distribution function of a distribution.

    Example:
        >>> import autojit as aj
        >>> from autojit.distributions import CumulativeDistributionTransform, Normal
        >>> CumulativeDistributionTransform(Normal(0.0, 1.0))(aj.tensor(0.0))
        tensor(0.5000)
    """

    bijective = True
    codomain = constraints.unit_interval
    _distinct_by = ("distribution",)

    def __init__(self, distribution: Any, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.distribution = distribution

    @property
    def sign(self) -> int:
        return 1

    @property
    def domain(self) -> Any:
        return self.distribution.support

    def _call(self, x: Tensor) -> Tensor:
        cdf: Callable[[Tensor], Tensor] = self.distribution.cdf
        return cdf(x)

    def _inverse(self, y: Tensor) -> Tensor:
        icdf: Callable[[Tensor], Tensor] = self.distribution.icdf
        return icdf(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        log_prob: Callable[[Tensor], Tensor] = self.distribution.log_prob
        return log_prob(x)
