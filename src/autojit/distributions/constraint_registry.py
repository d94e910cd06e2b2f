"""From a constraint to a transform of free numbers into it: ``biject_to`` one to one, ``transform_to`` any onto it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
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


biject_to = ConstraintRegistry()
transform_to = ConstraintRegistry()


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


def _of_elements(registry: ConstraintRegistry, constraint: constraints.Independent) -> Transform:
    return transforms.IndependentTransform(registry(constraint.base_constraint), constraint.reinterpreted_batch_ndims)


def _of_parts(registry: ConstraintRegistry, constraint: constraints.Cat) -> Transform:
    return transforms.CatTransform([registry(part) for part in constraint.cseq], constraint.dim, constraint.lengths)


def _of_indices(registry: ConstraintRegistry, constraint: constraints.Stack) -> Transform:
    return transforms.StackTransform([registry(part) for part in constraint.cseq], constraint.dim)


for _registry in (biject_to, transform_to):
    _registry.register(constraints.Real, lambda constraint: transforms.identity_transform)
    for _above in (constraints.GreaterThan, constraints.GreaterThanEq):
        _registry.register(_above, lambda constraint: _from_bound(constraint.lower_bound, 1.0))
    _registry.register(constraints.LessThan, lambda constraint: _from_bound(constraint.upper_bound, -1.0))
    for _bounded in (constraints.Interval, constraints.HalfOpenInterval):
        _registry.register(_bounded, _between)
    _registry.register(constraints.LowerCholesky, lambda constraint: transforms.LowerCholeskyTransform())
    _registry.register(constraints.Independent, partial(_of_elements, _registry))
    for _definite in (constraints.PositiveDefinite, constraints.PositiveSemidefinite):
        _registry.register(_definite, lambda constraint: transforms.PositiveDefiniteTransform())
    _registry.register(constraints.CorrCholesky, lambda constraint: transforms.CorrCholeskyTransform())
    _registry.register(constraints.Cat, partial(_of_parts, _registry))
    _registry.register(constraints.Stack, partial(_of_indices, _registry))
biject_to.register(constraints.Simplex, lambda constraint: transforms.StickBreakingTransform())
transform_to.register(constraints.Simplex, lambda constraint: transforms.SoftmaxTransform())
