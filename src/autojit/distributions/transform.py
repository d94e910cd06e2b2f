"""Transform: an invertible function of values, its inverse and combinations, and how much they stretch volume.

``domain`` and ``codomain`` are constraints; their ``event_dim`` says how many last axes one value takes, and
``log_abs_det_jacobian`` has the shape without them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from math import prod
from operator import add
from typing import TYPE_CHECKING, Any, ClassVar

from autojit.core.errors import UnsupportedError
from autojit.distributions import constraints
from autojit.distributions.parameters import is_known, sum_rightmost
from autojit.functions.factories import zeros_like
from autojit.tensor.size import Size
from autojit.tensor.tensor import Tensor


class Transform:
    """An invertible function: ``t(x)``, ``t.inv(y)``, ``t.log_abs_det_jacobian(x, y)``; ``sign`` if it is monotonic."""

    if TYPE_CHECKING:  # a constant of most classes

        @property
        def bijective(self) -> bool: ...

    else:
        bijective = False
    _changes_itself: ClassVar[tuple[str, ...]] = ("_last",)  # what its methods assign; compiled steps compare the rest
    _distinct_by: ClassVar[tuple[str, ...] | None] = None  # what distinguishes two of one class; None: being another
    domain: Any = constraints.real
    codomain: Any = constraints.real

    def __init__(self, cache_size: int = 0) -> None:
        if cache_size not in (0, 1):
            raise ValueError("cache_size must be 0 or 1")
        self._cache_size = cache_size
        self._last: tuple[Tensor, Tensor] | None = None

    @property
    def event_dim(self) -> int:
        """How many last axes one value takes, where that is the same on both sides."""
        if self.domain.event_dim != self.codomain.event_dim:
            raise ValueError("Please use either .domain.event_dim or .codomain.event_dim")
        return int(self.domain.event_dim)

    @property
    def sign(self) -> Tensor | int:
        """+1 for an increasing, -1 for a decreasing function."""
        raise UnsupportedError(f"{type(self).__name__} is not monotonic")

    @property
    def inv(self) -> Transform:
        """The inverse transform."""
        return _InverseTransform(self)

    def with_cache(self, cache_size: int = 1) -> Transform:
        """The same transform, which with 1 gives back the very x it made the last y of."""
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__)
        Transform.__init__(made, cache_size)
        return made

    def __call__(self, x: Tensor) -> Tensor:
        if self._last is not None and self._last[0] is x:
            return self._last[1]
        y = self._call(x)
        if self._cache_size:
            self._last = (x, y)
        return y

    def _inv_call(self, y: Tensor) -> Tensor:
        if self._last is not None and self._last[1] is y:
            return self._last[0]
        x = self._inverse(y)
        if self._cache_size:
            self._last = (x, y)
        return x

    def _call(self, x: Tensor) -> Tensor:
        raise UnsupportedError(f"{type(self).__name__} has no forward function")

    def _inverse(self, y: Tensor) -> Tensor:
        raise UnsupportedError(f"{type(self).__name__} has no inverse")

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """log |dy/dx| of a value and its image."""
        raise UnsupportedError(f"{type(self).__name__} has no log_abs_det_jacobian")

    def forward_shape(self, shape: Any) -> Size:
        """The shape of the image of values of a shape."""
        return Size(shape)

    def inverse_shape(self, shape: Any) -> Size:
        """The shape of what maps to values of a shape."""
        return Size(shape)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Transform) or type(self) is not type(other):
            return False
        names = self._distinct_by
        return names is not None and all(_is_same(getattr(self, name), getattr(other, name)) for name in names)

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


def _is_same(ours: Any, theirs: Any) -> bool:
    """Whether two settings are equal; tensors by their numbers, where these are known."""
    if ours is theirs:
        return True
    if isinstance(ours, Tensor) or isinstance(theirs, Tensor):
        equal = ours == theirs
        return is_known(equal) and bool(equal.all())
    return bool(ours == theirs)


class _InverseTransform(Transform):
    """A transform backwards."""

    bijective: bool
    _distinct_by = ("_of",)

    def __init__(self, transform: Transform) -> None:
        super().__init__()
        self._of = transform
        self.bijective = transform.bijective

    @property
    def domain(self) -> Any:
        return self._of.codomain

    @property
    def codomain(self) -> Any:
        return self._of.domain

    @property
    def sign(self) -> Tensor | int:
        return self._of.sign

    @property
    def inv(self) -> Transform:
        return self._of

    def with_cache(self, cache_size: int = 1) -> Transform:
        return self._of.with_cache(cache_size).inv

    def __call__(self, x: Tensor) -> Tensor:
        return self._of._inv_call(x)

    def _inv_call(self, y: Tensor) -> Tensor:
        return self._of(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -self._of.log_abs_det_jacobian(y, x)

    def forward_shape(self, shape: Any) -> Size:
        return self._of.inverse_shape(shape)

    def inverse_shape(self, shape: Any) -> Size:
        return self._of.forward_shape(shape)

    def __repr__(self) -> str:
        return f"{self._of!r}.inv"


class ComposeTransform(Transform):
    """Transforms one after another, the first of the list first."""

    _distinct_by = ("parts",)

    def __init__(self, parts: Sequence[Transform], cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.parts = [part.with_cache(cache_size) for part in parts] if cache_size else list(parts)

    @property
    def bijective(self) -> bool:
        return all(part.bijective for part in self.parts)

    @property
    def sign(self) -> Tensor | int:
        return prod((part.sign for part in self.parts), start=1)

    @property
    def domain(self) -> Any:
        return self._widened("domain", self.parts)

    @property
    def codomain(self) -> Any:
        return self._widened("codomain", self.parts[::-1])

    def _widened(self, side: str, parts: list[Transform]) -> Any:
        """The first part's constraint, taking as many axes as the part that takes most."""
        if not parts:
            return constraints.real
        other = "codomain" if side == "domain" else "domain"
        axes = getattr(parts[-1], other).event_dim
        for part in reversed(parts):
            axes = max(
                axes + getattr(part, side).event_dim - getattr(part, other).event_dim, getattr(part, side).event_dim
            )
        found = getattr(parts[0], side)
        return constraints.independent(found, axes - found.event_dim) if axes > found.event_dim else found

    @property
    def inv(self) -> Transform:
        return ComposeTransform([part.inv for part in reversed(self.parts)])

    def with_cache(self, cache_size: int = 1) -> Transform:
        return ComposeTransform([part.with_cache(cache_size) for part in self.parts], cache_size)

    def __call__(self, x: Tensor) -> Tensor:
        for part in self.parts:
            x = part(x)
        return x

    def _inv_call(self, y: Tensor) -> Tensor:
        for part in reversed(self.parts):
            y = part._inv_call(y)
        return y

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        if not self.parts:
            return zeros_like(x)
        values = [x]
        for part in self.parts[:-1]:
            values.append(part(values[-1]))
        values.append(y)
        axes = self.domain.event_dim
        stretches = []
        for part, before, after in zip(self.parts, values[:-1], values[1:], strict=True):
            stretches.append(sum_rightmost(part.log_abs_det_jacobian(before, after), axes - part.domain.event_dim))
            axes += part.codomain.event_dim - part.domain.event_dim
        return 0 + reduce(add, stretches)

    def forward_shape(self, shape: Any) -> Size:
        for part in self.parts:
            shape = part.forward_shape(shape)
        return Size(shape)

    def inverse_shape(self, shape: Any) -> Size:
        for part in reversed(self.parts):
            shape = part.inverse_shape(shape)
        return Size(shape)

    def __repr__(self) -> str:
        return f"ComposeTransform({self.parts!r})"


identity_transform = ComposeTransform([])


class IndependentTransform(Transform):
    """A transform whose last batch axes belong to the value."""

    bijective: bool
    _distinct_by = ("base_transform", "reinterpreted_batch_ndims")

    def __init__(self, base_transform: Transform, reinterpreted_batch_ndims: int, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.base_transform = base_transform.with_cache(cache_size)
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims
        self.bijective = base_transform.bijective
        self.domain = constraints.independent(base_transform.domain, reinterpreted_batch_ndims)
        self.codomain = constraints.independent(base_transform.codomain, reinterpreted_batch_ndims)

    @property
    def sign(self) -> Tensor | int:
        return self.base_transform.sign

    def _call(self, x: Tensor) -> Tensor:
        return self.base_transform(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return self.base_transform._inv_call(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return sum_rightmost(self.base_transform.log_abs_det_jacobian(x, y), self.reinterpreted_batch_ndims)

    def forward_shape(self, shape: Any) -> Size:
        return self.base_transform.forward_shape(shape)

    def inverse_shape(self, shape: Any) -> Size:
        return self.base_transform.inverse_shape(shape)
