"""Greatest common divisors and least common multiples of integers; no derivative. Calls of NumPy in compiled steps."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from autojit.core.dtypes import DType
from autojit.ir.op import not_differentiable
from autojit.ops.elementwise_base import Binary, binary
from autojit.ops.samples import Samples, ramp

__all__ = ["Gcd", "Lcm", "gcd", "lcm"]


class _OfIntegers(Binary, abstract=True):
    """A function of two integers."""

    accepts: ClassVar[tuple[str, ...]] = ("uint", "int")
    is_cheap: ClassVar[bool] = False
    vjp = jvp = not_differentiable("integers have no derivative")

    @classmethod
    def samples(cls, dtype: DType) -> Samples:
        if dtype.kind not in ("uint", "int"):
            return []
        return [(cls(), (ramp((2, 3), dtype), ramp((3,), dtype))), (cls(), (ramp((0, 3), dtype), ramp((), dtype)))]


class Gcd(_OfIntegers):
    """The greatest common divisor, not negative; ``gcd(0, x)`` is ``abs(x)``."""

    ufunc = np.gcd


class Lcm(_OfIntegers):
    """The least common multiple, not negative."""

    ufunc = np.lcm


gcd = binary(Gcd())
lcm = binary(Lcm())
