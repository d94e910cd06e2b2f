"""Constraints: the sets that parameters and values of distributions are in; ``check`` says which elements are.

A constraint's ``event_dim`` is how many last axes make up one element of its set; ``check`` drops those axes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from autojit.core.errors import UnsupportedError, UsageError
from autojit.functions.comparison import isfinite, where
from autojit.functions.elementwise import abs as absolute
from autojit.functions.factories import eye
from autojit.functions.namespace import finfo
from autojit.functions.shape import cat as join
from autojit.functions.shape import stack as pile
from autojit.linalg import cholesky_ex, eigvalsh
from autojit.tensor.tensor import Tensor

__all__ = [
    "Constraint", "MixtureSameFamilyConstraint", "boolean", "cat", "corr_cholesky", "dependent", "dependent_property",
    "greater_than", "greater_than_eq", "half_open_interval", "independent", "integer_interval", "interval",
    "is_dependent", "less_than", "lower_cholesky", "lower_triangular", "multinomial", "nonnegative",
    "nonnegative_integer", "one_hot", "positive", "positive_definite", "positive_integer", "positive_semidefinite",
    "real", "real_vector", "simplex", "square", "stack", "symmetric", "unit_interval",
]  # fmt: skip

_SUM_TOLERANCE = 1e-6  # of probabilities that add up to 1, as torch has it


class Constraint:
    """A set of values. ``is_discrete``: whole numbers only; ``event_dim``: the axes of one element."""

    is_discrete = False
    event_dim = 0

    def check(self, value: Tensor) -> Tensor:
        """Which elements are in the set: bool, the shape without the last ``event_dim`` axes."""
        raise UnsupportedError(f"{type(self).__name__}.check is not defined")

    def __repr__(self) -> str:
        return type(self).__name__.lstrip("_") + "()"


class _Untold:
    """An attribute of a constraint that only some of its objects have."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: object, owner: type) -> NoReturn:
        raise NotImplementedError(f".{self._name} cannot be determined statically")


class Dependent(Constraint):
    """A set that other parameters decide; nothing can be checked before they are known.

    Asking for what is not told of all of these sets, ``is_discrete`` or ``event_dim``, is a NotImplementedError.
    """

    is_discrete: Any = _Untold()
    event_dim: Any = _Untold()

    def __init__(self, *, is_discrete: bool | None = None, event_dim: int | None = None) -> None:
        told = {"is_discrete": is_discrete, "event_dim": event_dim}
        vars(self).update({name: value for name, value in told.items() if value is not None})

    def check(self, value: Tensor) -> Tensor:
        """Always ValueError: the set is not known yet."""
        raise ValueError("Cannot determine validity of dependent constraint")


class DependentProperty(property, Dependent):
    """A property whose value is a constraint, and which stands for a dependent constraint on the class itself."""

    def __init__(
        self, fn: Callable[[Any], Any] | None = None, *, is_discrete: bool | None = None, event_dim: int | None = None
    ) -> None:
        property.__init__(self, fn)
        Dependent.__init__(self, is_discrete=is_discrete, event_dim=event_dim)

    def __call__(self, fn: Callable[[Any], Any]) -> DependentProperty:
        return DependentProperty(fn, **vars(self))


class Real(Constraint):
    """Every number but NaN."""

    def check(self, value: Tensor) -> Tensor:
        """False at NaN."""
        return value.eq(value)


class Boolean(Constraint):
    """0 and 1."""

    is_discrete = True

    def check(self, value: Tensor) -> Tensor:
        """True at 0 and 1."""
        return value.eq(0) | value.eq(1)


class OneHot(Constraint):
    """Vectors of one 1 and else 0."""

    is_discrete = True
    event_dim = 1

    def check(self, value: Tensor) -> Tensor:
        """True where the last axis holds 0 and 1 only, and adds up to 1."""
        is_boolean = (value.eq(0) | value.eq(1)).all(-1)
        return is_boolean & value.sum(-1).eq(1)


class Interval(Constraint):
    """Numbers between two bounds; either may be open, infinite, or a tensor."""

    def __init__(self, lower_bound: Tensor | float, upper_bound: Tensor | float) -> None:
        self.lower_bound = lower_bound
        self.upper_bound = upper_bound

    def check(self, value: Tensor) -> Tensor:
        """True from the lower to the upper bound."""
        return (self.lower_bound <= value) & (value <= self.upper_bound)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(lower_bound={self.lower_bound}, upper_bound={self.upper_bound})"


class HalfOpenInterval(Interval):
    """Numbers from a lower bound on, below an upper one."""

    def check(self, value: Tensor) -> Tensor:
        """True from the lower bound to below the upper one."""
        return (self.lower_bound <= value) & (value < self.upper_bound)


class IntegerInterval(Interval):
    """Whole numbers between two bounds, both included."""

    is_discrete = True

    def check(self, value: Tensor) -> Tensor:
        """True at whole numbers from the lower to the upper bound."""
        return (value % 1).eq(0) & super().check(value)


class GreaterThan(Constraint):
    """Numbers above a bound."""

    def __init__(self, lower_bound: Tensor | float) -> None:
        self.lower_bound = lower_bound

    def check(self, value: Tensor) -> Tensor:
        """True above the bound."""
        return self.lower_bound < value

    def __repr__(self) -> str:
        return f"{type(self).__name__}(lower_bound={self.lower_bound})"


class GreaterThanEq(GreaterThan):
    """Numbers from a bound on."""

    def check(self, value: Tensor) -> Tensor:
        """True from the bound on."""
        return self.lower_bound <= value


class IntegerGreaterThan(GreaterThan):
    """Whole numbers from a bound on."""

    is_discrete = True

    def check(self, value: Tensor) -> Tensor:
        """True at whole numbers from the bound on."""
        return (value % 1).eq(0) & (value >= self.lower_bound)


class LessThan(Constraint):
    """Numbers below a bound."""

    def __init__(self, upper_bound: Tensor | float) -> None:
        self.upper_bound = upper_bound

    def check(self, value: Tensor) -> Tensor:
        """True below the bound."""
        return value < self.upper_bound

    def __repr__(self) -> str:
        return f"{type(self).__name__}(upper_bound={self.upper_bound})"


class Simplex(Constraint):
    """Vectors of probabilities that add up to 1."""

    event_dim = 1

    def check(self, value: Tensor) -> Tensor:
        """True where the last axis has no negative element and adds up to 1."""
        return (value >= 0).all(-1) & (absolute(value.sum(-1) - 1) < _SUM_TOLERANCE)


class Multinomial(Constraint):
    """Vectors of counts that add up to at most a number."""

    is_discrete = True
    event_dim = 1

    def __init__(self, upper_bound: Tensor | float) -> None:
        self.upper_bound = upper_bound

    def check(self, value: Tensor) -> Tensor:
        """True where no count is negative and their sum is within the bound."""
        return (value >= 0).all(-1) & (value.sum(-1) <= self.upper_bound)


class LowerTriangular(Constraint):
    """Square matrices with zeros above the diagonal."""

    event_dim = 2

    def check(self, value: Tensor) -> Tensor:
        """True where everything above the diagonal is 0."""
        return value.tril().eq(value).flatten(-2).all(-1)


class LowerCholesky(LowerTriangular):
    """Lower triangular matrices with a positive diagonal."""

    def check(self, value: Tensor) -> Tensor:
        """True at lower triangles whose diagonal is positive."""
        is_positive = (value.diagonal(dim1=-2, dim2=-1) > 0).all(-1)
        return super().check(value) & is_positive


class CorrCholesky(LowerCholesky):
    """Lower triangular matrices with a positive diagonal and rows of length 1."""

    def check(self, value: Tensor) -> Tensor:
        """True at such triangles whose rows have length 1 up to rounding."""
        tolerance = 10 * value.shape[-1] * finfo(value.dtype).eps  # as torch has it
        length = (value.detach() ** 2).sum(-1).sqrt()
        return super().check(value) & (absolute(length - 1) <= tolerance).all(-1)


class Square(Constraint):
    """Square matrices."""

    event_dim = 2

    def check(self, value: Tensor) -> Tensor:
        """True everywhere when the last two axes are of one length."""
        return value.new_full(value.shape[:-2], value.shape[-2] == value.shape[-1], dtype=value.eq(value).dtype)


class Symmetric(Square):
    """Matrices equal to their transposes, up to rounding."""

    def check(self, value: Tensor) -> Tensor:
        """True where a matrix is close to its transpose."""
        if value.shape[-2] != value.shape[-1]:
            return super().check(value)
        gap = absolute(value - value.mT)
        return (gap <= 1e-6 + 1e-5 * absolute(value.mT)).flatten(-2).all(-1)

    def _holds_too(self, value: Tensor, question: Callable[[Tensor], Tensor]) -> Tensor:
        """Where a matrix is symmetric and something holds of all its eigenvalues."""
        found = Symmetric.check(self, value)
        return found & question(eigvalsh(_where(found, value))).all(-1) if _is_square(value) else found


class PositiveSemidefinite(Symmetric):
    """Symmetric matrices without negative eigenvalues."""

    def check(self, value: Tensor) -> Tensor:
        """True where a matrix is symmetric and no eigenvalue is negative."""
        return self._holds_too(value, lambda eigenvalues: eigenvalues >= 0)


class PositiveDefinite(Symmetric):
    """Symmetric matrices whose eigenvalues are all positive."""

    def check(self, value: Tensor) -> Tensor:
        """True where a matrix is symmetric and has a Cholesky factor."""
        found = Symmetric.check(self, value)
        return found & cholesky_ex(_where(found, value)).info.eq(0) if _is_square(value) else found


def _is_square(matrix: Tensor) -> bool:
    return matrix.shape[-2] == matrix.shape[-1]


def _where(is_valid: Tensor, matrix: Tensor) -> Tensor:
    """The matrices that are valid, and unit matrices in place of others, which may hold NaN."""
    return where(is_valid[..., None, None], matrix, eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device))


class Independent(Constraint):
    """A constraint of elements, required of all along the last axes at once."""

    def __init__(self, base_constraint: Constraint, reinterpreted_batch_ndims: int) -> None:
        self.base_constraint = base_constraint
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims
        self.is_discrete = base_constraint.is_discrete
        self.event_dim = base_constraint.event_dim + reinterpreted_batch_ndims

    def check(self, value: Tensor) -> Tensor:
        """True where every element of the last axes satisfies the constraint."""
        valid = self.base_constraint.check(value)
        if valid.ndim < self.reinterpreted_batch_ndims:
            raise ValueError(f"Expected value.dim() >= {self.event_dim} but got {value.ndim}")
        count = self.reinterpreted_batch_ndims
        return valid.reshape(*valid.shape[: valid.ndim - count], -1).all(-1)

    def __repr__(self) -> str:
        return f"IndependentConstraint({self.base_constraint!r}, {self.reinterpreted_batch_ndims})"


class Cat(Constraint):
    """Constraints side by side along an axis, each for a length of it."""

    def __init__(self, cseq: Sequence[Constraint], dim: int = 0, lengths: Sequence[int] | None = None) -> None:
        self.cseq = list(cseq)
        self.dim = dim
        self.lengths = [1] * len(self.cseq) if lengths is None else list(lengths)
        self.is_discrete = any(c.is_discrete for c in self.cseq)
        self.event_dim = max(c.event_dim for c in self.cseq)

    def check(self, value: Tensor) -> Tensor:
        """Each part by its own constraint, side by side again."""
        parts = value.split(self.lengths, self.dim)
        return join([c.check(part) for c, part in zip(self.cseq, parts, strict=True)], self.dim)


class Stack(Constraint):
    """Constraints of the elements along an axis."""

    def __init__(self, cseq: Sequence[Constraint], dim: int = 0) -> None:
        self.cseq = list(cseq)
        self.dim = dim
        self.is_discrete = any(c.is_discrete for c in self.cseq)
        axis = max(c.event_dim for c in self.cseq)
        self.event_dim = axis + 1 if axis + dim < 0 else axis

    def check(self, value: Tensor) -> Tensor:
        """Each element by its own constraint, stacked again."""
        if value.shape[self.dim] != len(self.cseq):
            raise UsageError(f"stack of {len(self.cseq)} constraints: axis {self.dim} is {value.shape[self.dim]} long")
        return pile([c.check(part) for c, part in zip(self.cseq, value.unbind(self.dim), strict=True)], self.dim)


class MixtureSameFamilyConstraint(Constraint):
    """The constraint of a mixture's components on values without the axis of the components."""

    def __init__(self, base_constraint: Constraint) -> None:
        if not isinstance(base_constraint, Constraint):
            raise AssertionError(f"base_constraint must be a Constraint, got {type(base_constraint).__name__}")
        self.base_constraint = base_constraint
        self.is_discrete = base_constraint.is_discrete
        self.event_dim = base_constraint.event_dim

    def check(self, value: Tensor) -> Tensor:
        """True where all components allow the value."""
        if value.ndim < self.event_dim:
            raise ValueError(f"Expected value.dim() >= {self.event_dim} but got {value.ndim}")
        valid = self.base_constraint.check(value.unsqueeze(-1 - self.event_dim))
        kept = value.ndim - self.event_dim
        return valid.reshape(*valid.shape[:kept], -1).all(-1)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_constraint!r})"


class Finite(Constraint):
    """Numbers that are neither infinite nor NaN."""

    def check(self, value: Tensor) -> Tensor:
        """False at infinities and NaN."""
        return isfinite(value)


def is_dependent(constraint: Any) -> bool:
    """Whether other parameters decide the set.

    Example:
        >>> import autojit as aj
        >>> from autojit.distributions import constraints
        >>> constraints.is_dependent(constraints.dependent), constraints.is_dependent(constraints.real)
        (True, False)
    """
    return isinstance(constraint, Dependent)


dependent = Dependent()
dependent_property = DependentProperty
boolean = Boolean()
one_hot = OneHot()
nonnegative_integer = IntegerGreaterThan(0)
positive_integer = IntegerGreaterThan(1)
integer_interval = IntegerInterval
real = Real()
real_vector = Independent(real, 1)
positive = GreaterThan(0.0)
nonnegative = GreaterThanEq(0.0)
greater_than = GreaterThan
greater_than_eq = GreaterThanEq
less_than = LessThan
multinomial = Multinomial
unit_interval = Interval(0.0, 1.0)
interval = Interval
half_open_interval = HalfOpenInterval
simplex = Simplex()
lower_triangular = LowerTriangular()
lower_cholesky = LowerCholesky()
square = Square()
symmetric = Symmetric()
positive_semidefinite = PositiveSemidefinite()
positive_definite = PositiveDefinite()
corr_cholesky = CorrCholesky()
independent = Independent
cat = Cat
stack = Stack

# The classes as torch calls them, too: ``_Real``, ``_IndependentConstraint``.
for _name, _kind in tuple(globals().items()):
    if isinstance(_kind, type) and issubclass(_kind, Constraint):
        globals().update({f"_{_name}": _kind, f"_{_name}Constraint": _kind})
