"""Distribution: what all distributions share: shapes, checks of parameters and values, expanding, printing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Self

from autojit.autograd import grad
from autojit.core.errors import ArgumentError, UnsupportedError
from autojit.core.user_warnings import warn
from autojit.dispatch.requirements import require
from autojit.distributions import constraints
from autojit.distributions.constraints import Constraint
from autojit.distributions.parameters import derived, is_known
from autojit.functions.elementwise import exp
from autojit.tensor.size import Size
from autojit.tensor.state import grad_mode
from autojit.tensor.tensor import Tensor

Constraints = dict[str, Constraint]  # by the names of parameters


def _said(constraint: Any) -> str:
    """A constraint in an error: by its name alone where a bound of it is no plain number, as a captured step's is."""
    return repr(constraint) if _is_plain(constraint) else type(constraint).__name__.strip("_")


def _is_plain(part: Any) -> bool:
    if isinstance(part, Constraint):
        return all(map(_is_plain, vars(part).values()))
    return all(map(_is_plain, part)) if type(part) in (list, tuple) else type(part) in (int, float, bool)


class Distribution:
    """A family of probability distributions, one for each index of ``batch_shape``, over values of ``event_shape``.

    Parameters are checked against ``arg_constraints`` and values against ``support``; a captured step does it when it
    runs.
    """

    if TYPE_CHECKING:  # constants of most classes, and said of each object of others

        @property
        def has_rsample(self) -> bool: ...
        @property
        def has_enumerate_support(self) -> bool: ...

    else:
        has_rsample = False
        has_enumerate_support = False
    arg_constraints: ClassVar[Constraints] = {}
    _changes_itself: ClassVar[tuple[str, ...]] = ()  # what its methods assign; compiled steps compare the rest
    _validate_args: bool = __debug__  # of distributions that are not told

    def __init__(self, batch_shape: Any = (), event_shape: Any = (), validate_args: bool | None = None) -> None:
        self._batch_shape = Size(batch_shape)
        self._event_shape = Size(event_shape)
        self._validate_args = Distribution._validate_args if validate_args is None else validate_args
        if self._validate_args:
            self._check_parameters()

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        """Whether distributions made from now on check their arguments."""
        if value not in (True, False):
            raise ArgumentError("set_default_validate_args expects True or False")
        Distribution._validate_args = value

    def _check_parameters(self) -> None:
        if self.arg_constraints is Distribution.arg_constraints:
            self._warn_of_absent("arg_constraints", "`arg_constraints = {}`")
        for name, constraint in self.arg_constraints.items():
            is_computed = name not in self.__dict__ and isinstance(getattr(type(self), name, None), derived)
            value = None if is_computed else getattr(self, name, None)
            if constraints.is_dependent(constraint) or not isinstance(value, Tensor):
                continue
            if not is_known(value):
                said = (
                    f"Expected parameter {name} of {type(self).__name__} to satisfy the constraint {_said(constraint)}"
                )
            elif not constraint.check(value).all():
                said = (
                    f"Expected parameter {name} ({type(value).__name__} of shape {tuple(value.shape)}) of distribution "
                    f"{self!r} to satisfy the constraint {constraint!r}, but found invalid values:\n{value}"
                )
            else:
                continue
            require(value, constraint.check, said, _said(constraint), named=name, kind="argument")

    @property
    def batch_shape(self) -> Size:
        """The shape of the family of distributions."""
        return self._batch_shape

    @property
    def event_shape(self) -> Size:
        """The shape of one value of one distribution."""
        return self._event_shape

    @property
    def support(self) -> Any:
        """The constraint that values satisfy."""
        raise self._missing("support")

    @property
    def mean(self) -> Tensor:
        """The expected value."""
        raise self._missing("mean")

    @property
    def mode(self) -> Tensor:
        """The most probable value."""
        raise self._missing("mode")

    @property
    def variance(self) -> Tensor:
        """The variance."""
        raise self._missing("variance")

    @property
    def stddev(self) -> Tensor:
        """The standard deviation."""
        return self.variance.sqrt()

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Values drawn, without a derivative. Shape: ``sample_shape + batch_shape + event_shape``."""
        with grad_mode(False):
            return self.rsample(sample_shape)

    def sample_n(self, n: int) -> Tensor:
        """``n`` values drawn."""
        return self.sample(Size((n,)))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """Values drawn as differentiable functions of the parameters."""
        raise self._missing("rsample")

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the probability (density) of a value."""
        raise self._missing("log_prob")

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of a value at most this one."""
        raise self._missing("cdf")

    def icdf(self, value: Tensor) -> Tensor:
        """The value that ``cdf`` maps to this probability."""
        raise self._missing("icdf")

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """All values of a discrete distribution along a new first axis."""
        raise self._missing("enumerate_support")

    def entropy(self) -> Tensor:
        """The entropy in nats."""
        raise self._missing("entropy")

    def perplexity(self) -> Tensor:
        """The exponential of the entropy."""
        return exp(self.entropy())

    def expand(self, batch_shape: Any, _instance: Any = None) -> Self:
        """The same distributions with a larger batch shape; parameters become views."""
        batch = Size(batch_shape)
        made: Self = object.__new__(type(self)) if _instance is None else _instance
        known = len(self._batch_shape)
        for name, value in self.__dict__.items():
            if isinstance(value, Tensor):
                value = value.expand((*batch, *value.shape[known:]))
            elif isinstance(value, Distribution):
                value = value.expand((*batch, *value.batch_shape[known:]))
            made.__dict__[name] = value
        made._batch_shape = batch
        return made

    def _get_checked_instance(self, cls: type, _instance: Any = None) -> Any:
        """What ``expand`` of a subclass fills: a bare instance, or the one given.

        Raises:
            NotImplementedError: a subclass with another ``__init__`` has no ``expand`` of its own.
        """
        if _instance is None and type(self).__init__ is not cls.__init__:  # type: ignore[misc]
            raise UnsupportedError(
                f"Subclass {type(self).__name__} of {cls.__name__} that defines a custom __init__ method must also "
                "define a custom .expand() method."
            )
        return object.__new__(type(self)) if _instance is None else _instance

    def _enumerated(self, values: Tensor, expand: bool) -> Tensor:
        """Values along a first axis, for every distribution of a batch: with its axes, or with axes of extent 1."""
        values = values.reshape(values.shape[0], *[1] * len(self._batch_shape), *values.shape[1:])
        return values.expand(self._extended_shape(values.shape[:1])) if expand else values

    def _extended_shape(self, sample_shape: Any = ()) -> Size:
        return Size((*sample_shape, *self._batch_shape, *self._event_shape))

    def _validate_sample(self, value: Tensor, support: Constraint | None = None) -> None:
        """ValueError for a value of a wrong type or shape, or outside the support, which may be another one here."""
        if not self._validate_args:
            return
        if not isinstance(value, Tensor):
            raise ValueError("The value argument to log_prob must be a Tensor")
        count = len(self._event_shape)
        found = tuple(value.shape[value.ndim - count :])
        if found != self._event_shape:
            raise ValueError(
                f"The right-most size of value must match event_shape: {tuple(value.shape)} vs {self._event_shape}."
            )
        expected = self._extended_shape()
        for i, j in zip(reversed(value.shape), reversed(expected), strict=False):
            if 1 not in (i, j) and i != j:
                raise ValueError(
                    f"Value is not broadcastable with batch_shape+event_shape: {tuple(value.shape)} vs {expected}."
                )
        self._require_support(value, support)

    def _require_support(self, value: Tensor, support: Constraint | None) -> None:
        try:
            support = support or self.support
        except NotImplementedError:
            self._warn_of_absent("support", "`support`")
            return
        if support is None:
            return
        holds = support.check(value)
        if not is_known(holds):
            said = f"Expected value argument to be within the support ({_said(support)}) of {type(self).__name__}"
        elif not holds.all():
            said = (
                f"Expected value argument ({type(value).__name__} of shape {tuple(value.shape)}) to be within the "
                f"support ({support!r}) of the distribution {self!r}, but found invalid values:\n{value}"
            )
        else:
            return
        require(value, lambda _: holds, said, _said(support), named="value", kind="argument")

    def _warn_of_absent(self, what: str, fix: str) -> None:
        warn(
            f"{type(self)} does not define `{what}`, so that nothing is validated. Please set {fix} or initialize the "
            "distribution with `validate_args=False` to turn off validation."
        )

    def _missing(self, what: str) -> UnsupportedError:
        return UnsupportedError(f"{type(self).__name__} has no {what}")

    def __repr__(self) -> str:
        given = [name for name in self.arg_constraints if isinstance(self.__dict__.get(name), Tensor)]
        return f"{type(self).__name__}({', '.join(f'{name}: {self._shown(name)}' for name in given)})"

    def _shown(self, name: str) -> str:
        value = self.__dict__[name]
        return str(value.item() if value.numel() == 1 and is_known(value) else value.shape)


class _Located(Distribution):
    """A distribution whose mean and mode are its parameter ``loc``."""

    loc: Tensor

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc


class _GivenEither(Distribution):
    """A distribution that is given by ``probs`` or by ``logits``; the other follows."""

    if TYPE_CHECKING:

        @property
        def probs(self) -> Tensor: ...
        @property
        def logits(self) -> Tensor: ...

    @property
    def _given(self) -> Tensor:
        return self.probs if "probs" in self.__dict__ else self.logits

    @property
    def param_shape(self) -> Any:
        """The shape of the parameter given."""
        return self._given.shape


class ExponentialFamily(Distribution):
    """Distributions whose density is the exponential of a scalar product of parameters and statistics.

    A subclass that gives ``_natural_params``, ``_log_normalizer`` and ``_mean_carrier_measure`` has its entropy, and
    its divergence from another one of its class, from derivatives of the normaliser.

    Source: Nielsen and Nock, Entropies and cross-entropies of exponential families, ICIP 2010.
    """

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        raise self._missing("_natural_params")

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        raise self._missing("_log_normalizer")

    @property
    def _mean_carrier_measure(self) -> Any:
        raise self._missing("_mean_carrier_measure")

    def entropy(self) -> Tensor:
        """The entropy in nats."""
        normalizer, params, slopes = self._normalizer_with_slopes()
        products = [(p * g).reshape(*self._batch_shape, -1).sum(-1) for p, g in zip(params, slopes, strict=True)]
        found: Tensor = normalizer - self._mean_carrier_measure
        for product in products:
            found = found - product
        return found

    def _normalizer_with_slopes(self) -> tuple[Tensor, list[Tensor], Any]:
        """The log-normaliser, the natural parameters, and its derivatives by them."""
        with grad_mode(True):
            params = [p if p.requires_grad else p.detach().requires_grad_() for p in self._natural_params]
            normalizer = self._log_normalizer(*params)
            return normalizer, params, grad(normalizer.sum(), params, create_graph=True)
