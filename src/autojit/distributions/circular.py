"""Angles: the von Mises distribution."""

from __future__ import annotations

from math import log as log_of
from math import pi
from typing import Any, ClassVar

from autojit.core.dtypes import float64
from autojit.distributions import constraints
from autojit.distributions.distribution import Constraints, _Located
from autojit.distributions.gamma_sampling import first_accepted
from autojit.distributions.parameters import broadcast_all
from autojit.functions.comparison import clamp, where
from autojit.functions.elementwise import acos, cos, log, sign, sqrt
from autojit.functions.random import rand
from autojit.special import i0e, i1e
from autojit.tensor.state import grad_mode
from autojit.tensor.tensor import Tensor

_PROPOSALS = 30  # each is accepted with probability 0.66 or more, so none of 30 is in fewer than one of 10^14 numbers


class VonMises(_Located):
    """Angles around ``loc``, density falling as exp(concentration cos(angle - loc)). Units: radians.

    ``mean`` and ``variance`` are the circular ones.

    Example:
        >>> import autojit as aj
        >>> aj.distributions.VonMises(aj.tensor(0.0), aj.tensor(1.0)).log_prob(aj.tensor(0.0))
        tensor(-1.0738)
    """

    arg_constraints: ClassVar[Constraints] = {"loc": constraints.real, "concentration": constraints.positive}
    support = constraints.real

    def __init__(self, loc: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self.loc, self.concentration = broadcast_all(loc, concentration)
        super().__init__(self.loc.shape, validate_args=validate_args)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        k = self.concentration
        return k * (cos(value - self.loc) - 1) - log_of(2 * pi) - log(i0e(k))

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """The first of a fixed number of proposals that is accepted; in float64.

        Source: Best and Fisher, Applied Statistics 28(2), 1979.
        """
        with grad_mode(False):
            k, loc = self.concentration.to(float64), self.loc.to(float64)
            tau = 1 + sqrt(1 + 4 * k**2)
            rho = (tau - sqrt(2 * tau)) / (2 * k)
            r = where(k < 1e-5, 1 / k + k, (1 + rho**2) / (2 * rho))  # the Taylor series keeps digits of small k
            shape = (3, _PROPOSALS, *self._extended_shape(sample_shape))
            u1, u2, u3 = rand(shape, dtype=float64, device=k.device).unbind()
            z = cos(pi * u1)
            f = clamp((1 + r * z) / (r + z), min=-1.0, max=1.0)
            c = k * (r - f)
            accepted = (c * (2 - c) - u2 > 0) | (log(c / clamp(u2, min=1e-300)) + 1 - c >= 0)
            angle = first_accepted(sign(u3 - 0.5) * acos(f), accepted, f[0] * 0)
            return ((angle + pi + loc) % (2 * pi) - pi).to(self.loc.dtype)

    @property
    def variance(self) -> Tensor:
        return 1 - i1e(self.concentration) / i0e(self.concentration)
