"""From a constraint to a transform of free numbers into it: ``biject_to`` one to one, ``transform_to`` any onto it."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

from autojit.core.errors import UnsupportedError
from autojit.distributions import constraints, transforms
from autojit.distributions.constraints import Constraint
from autojit.distributions.transforms import Transform

Factory = Callable[[Any], Transform]


class ConstraintRegistry:
    """Functions that make a transform for a constraint, by the constraint's class.

    Example:
        >>> import autojit as aj
        >>> aj.distributions.biject_to(aj.distributions.constraints.positive)
        ExpTransform()
    """

    def __init__(self) -> None:
        self._factories: dict[type, Factory] = {}

    def register(self, constraint: Any, factory: Factory | None = None) -> Any:
        """Use a function for a constraint's class; without it, a decorator.

        Raises:
            TypeError: what is registered is not a constraint.
        """
        if factory is None:
            return lambda given: self.register(constraint, given)
        kind = type(constraint) if isinstance(constraint, Constraint) else constraint
        if not isinstance(kind, type) or not issubclass(kind, Constraint):
            raise TypeError(f"Expected constraint to be either a Constraint subclass or instance, but got {constraint}")
        self._factories[kind] = factory
        return factory

    def __call__(self, constraint: Constraint) -> Transform:
        """The transform whose values satisfy a constraint.

        Raises:
            NotImplementedError: nothing is registered for its class.
        """
        factory = self._factories.get(type(constraint))
        if factory is None:
            raise UnsupportedError(f"Cannot transform {type(constraint).__name__} constraints")
        return factory(constraint)


def _from_bound(bound: Any, scale: float) -> Transform:
    """Numbers on one side of a bound."""
    if isinstance(bound, (int, float)) and bound == 0 and scale == 1:
        return transforms.ExpTransform()
    return transforms.ComposeTransform([transforms.ExpTransform(), transforms.AffineTransform(bound, scale)])


def _between(constraint: constraints.Interval) -> Transform:
    low, high = constraint.lower_bound, constraint.upper_bound
    bounds = [bound for bound in (low, high) if isinstance(bound, (int, float))]
    if any(abs(bound) == inf for bound in bounds):
        raise UnsupportedError("Cannot transform intervals without an end")
    if len(bounds) == 2 and (low, high) == (0, 1):
        return transforms.SigmoidTransform()
    return transforms.ComposeTransform([transforms.SigmoidTransform(), transforms.AffineTransform(low, high - low)])


def _registry(of_simplex: Factory) -> ConstraintRegistry:
    """Of all our constraints; vectors of probabilities alone can be reached in two ways."""
    to = ConstraintRegistry()
    to._factories |= {
        constraints.Real: lambda c: transforms.identity_transform,
        constraints.GreaterThan: lambda c: _from_bound(c.lower_bound, 1.0),
        constraints.GreaterThanEq: lambda c: _from_bound(c.lower_bound, 1.0),
        constraints.LessThan: lambda c: _from_bound(c.upper_bound, -1.0),
        constraints.Interval: _between,
        constraints.HalfOpenInterval: _between,
        constraints.LowerCholesky: lambda c: transforms.LowerCholeskyTransform(),
        constraints.PositiveDefinite: lambda c: transforms.PositiveDefiniteTransform(),
        constraints.PositiveSemidefinite: lambda c: transforms.PositiveDefiniteTransform(),
        constraints.CorrCholesky: lambda c: transforms.CorrCholeskyTransform(),
        constraints.Simplex: of_simplex,
        constraints.Independent: lambda c: transforms.IndependentTransform(
            to(c.base_constraint), c.reinterpreted_batch_ndims
        ),
        constraints.Cat: lambda c: transforms.CatTransform([to(part) for part in c.cseq], c.dim, c.lengths),
        constraints.Stack: lambda c: transforms.StackTransform([to(part) for part in c.cseq], c.dim),
    }
    return to


biject_to = _registry(lambda c: transforms.StickBreakingTransform())
transform_to = _registry(lambda c: transforms.SoftmaxTransform())
