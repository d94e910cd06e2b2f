"""Transforms of parts of a tensor side by side, and the transform by a distribution function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from autojit.distributions import constraints
from autojit.distributions.parameters import sum_rightmost
from autojit.distributions.transform import Transform
from autojit.functions.shape import cat, stack
from autojit.tensor.tensor import Tensor


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise AssertionError(message)


class CatTransform(Transform):
    """Transforms side by side along an axis, each for a length of it, as ``cat`` joins tensors.

    Example:
        >>> import autojit as aj
        >>> from autojit.distributions.transforms import CatTransform, ExpTransform, identity_transform
        >>> CatTransform([ExpTransform(), identity_transform], lengths=[1, 2])(aj.zeros(3))
        tensor([1., 0., 0.])
    """

    def __init__(
        self, tseq: Sequence[Transform], dim: int = 0, lengths: Sequence[int] | None = None, cache_size: int = 0
    ) -> None:
        _require(all(isinstance(t, Transform) for t in tseq), "All elements of tseq must be Transform instances")
        super().__init__(cache_size)
        self.transforms = [t.with_cache(cache_size) for t in tseq] if cache_size else list(tseq)
        self.lengths = [1] * len(self.transforms) if lengths is None else list(lengths)
        _require(
            len(self.lengths) == len(self.transforms),
            f"lengths ({len(self.lengths)}) must match transforms ({len(self.transforms)})",
        )
        self.dim = dim

    @property
    def event_dim(self) -> int:
        """The axes of one value of the part that has most."""
        return max(t.event_dim for t in self.transforms)

    @property
    def length(self) -> int:
        """The extent of the axis."""
        return sum(self.lengths)

    @property
    def bijective(self) -> bool:
        return all(t.bijective for t in self.transforms)

    @property
    def domain(self) -> Any:
        return constraints.cat([t.domain for t in self.transforms], self.dim, self.lengths)

    @property
    def codomain(self) -> Any:
        return constraints.cat([t.codomain for t in self.transforms], self.dim, self.lengths)

    def _parts(self, x: Tensor) -> Sequence[Tensor]:
        _require(-x.ndim <= self.dim < x.ndim, f"dim {self.dim} out of range for tensor with {x.ndim} dimensions")
        found = x.shape[self.dim]
        _require(found == self.length, f"x.size({self.dim}) = {found} must equal length {self.length}")
        return x.split(self.lengths, self.dim)

    def _call(self, x: Tensor) -> Tensor:
        return cat([t(part) for t, part in zip(self.transforms, self._parts(x), strict=True)], self.dim)

    def _inverse(self, y: Tensor) -> Tensor:
        return cat([t.inv(part) for t, part in zip(self.transforms, self._parts(y), strict=True)], self.dim)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        parts = []
        for t, before, after in zip(self.transforms, self._parts(x), self._parts(y), strict=True):
            parts.append(sum_rightmost(t.log_abs_det_jacobian(before, after), self.event_dim - t.event_dim))
        axis = (self.dim - x.ndim if self.dim >= 0 else self.dim) + self.event_dim
        if axis < 0:
            return cat(parts, axis)
        total = parts[0]
        for part in parts[1:]:
            total = total + part
        return total

    def _settings(self) -> tuple[Any, ...]:
        return (*self.transforms, self.dim, tuple(self.lengths))


class StackTransform(Transform):
    """One transform for each index of an axis, as ``stack`` joins tensors."""

    def __init__(self, tseq: Sequence[Transform], dim: int = 0, cache_size: int = 0) -> None:
        _require(all(isinstance(t, Transform) for t in tseq), "All elements of tseq must be Transform instances")
        super().__init__(cache_size)
        self.transforms = [t.with_cache(cache_size) for t in tseq] if cache_size else list(tseq)
        self.dim = dim

    @property
    def bijective(self) -> bool:
        return all(t.bijective for t in self.transforms)

    @property
    def domain(self) -> Any:
        return constraints.stack([t.domain for t in self.transforms], self.dim)

    @property
    def codomain(self) -> Any:
        return constraints.stack([t.codomain for t in self.transforms], self.dim)

    def _parts(self, x: Tensor) -> Sequence[Tensor]:
        _require(-x.ndim <= self.dim < x.ndim, f"dim {self.dim} out of range for tensor with {x.ndim} dimensions")
        found, count = x.shape[self.dim], len(self.transforms)
        _require(found == count, f"x.size({self.dim}) = {found} must equal len(transforms) {count}")
        return x.unbind(self.dim)

    def _call(self, x: Tensor) -> Tensor:
        return stack([t(part) for t, part in zip(self.transforms, self._parts(x), strict=True)], self.dim)

    def _inverse(self, y: Tensor) -> Tensor:
        return stack([t.inv(part) for t, part in zip(self.transforms, self._parts(y), strict=True)], self.dim)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        pairs = zip(self.transforms, self._parts(x), self._parts(y), strict=True)
        return stack([t.log_abs_det_jacobian(before, after) for t, before, after in pairs], self.dim)

    def _settings(self) -> tuple[Any, ...]:
        return (*self.transforms, self.dim)


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

    def _settings(self) -> tuple[Any, ...]:
        return (id(self.distribution),)
