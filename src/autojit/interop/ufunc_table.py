"""What NumPy's and SciPy's ufuncs are in autojit: by name, functions of tensors of one dtype.

A function of a ufunc's name stands for that ufunc, also under its aliases.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import autojit as aj
from autojit.dispatch.declared import DECLARED, Numbers
from autojit.functions import FUNCTIONS, PLACES

Function = Callable[..., Any]


UFUNCS: dict[str, Function] = {}
"""By the name of a NumPy ufunc."""
NUMBERS: dict[str, Numbers] = {}
"""Which operand of arithmetic may be a Python number, where one may, by the name of the ufunc."""


def _enter_torchs() -> None:
    """Enter functions under ufuncs of their names, and those under others that they are declared to stand for."""
    declarations = list(DECLARED.values())
    pairs = [(name, name) for name in (*FUNCTIONS, *PLACES)]
    pairs += [(other, d.name) for d in declarations for other in d.numpy]
    for name, ours in pairs:
        ufunc = getattr(np, name, None)
        if isinstance(ufunc, np.ufunc):
            UFUNCS[ufunc.__name__] = getattr(aj, ours)
            d = DECLARED.get(UFUNCS[ufunc.__name__].__name__)
            NUMBERS[ufunc.__name__] = d.numbers if d is not None and d.wraps_around else "none"


_enter_torchs()


def _cbrt(x: Any) -> Any:
    size = aj.where(x == 0, 1, aj.abs(x))
    root = aj.exp(aj.log(size) / 3)
    root = root - (root - size / (root * root)) / 3  # one step of Newton's method takes the error of exp and log away
    root = aj.where(aj.isfinite(size), root, size)
    return aj.where(x == 0, aj.pow(aj.where(x == 0, x, 1), 1 / 3), aj.copysign(root, x))  # with an infinite slope at 0


def _modf(x: Any) -> Any:
    whole = aj.trunc(x)
    part = aj.where(aj.isinf(x), aj.zeros_like(x), x - whole)
    return aj.copysign(part, x), whole


def _spacing(x: Any) -> Any:
    x = x.detach()
    return aj.copysign(aj.nextafter(aj.abs(x), aj.full_like(x, aj.inf)) - aj.abs(x), x)


def _bit_count(x: Any) -> Any:
    bits = aj.abs(x)
    count = aj.zeros_like(x, dtype=aj.uint8)
    for place in range(8 * x.element_size()):
        count = count + ((bits >> place) & 1).to(aj.uint8)
    return count


_NUMPYS: dict[str, Function] = {  # which only NumPy has, or has otherwise
    "cbrt": _cbrt,
    "vecdot": lambda x, y: aj.sum(aj.conj(x) * y, -1, dtype=x.dtype),
    "matvec": lambda x, y: aj.matmul(x, y[..., None])[..., 0],
    "vecmat": lambda x, y: aj.matmul(aj.conj(x)[..., None, :], y)[..., 0, :],
    "divmod": lambda x, y: (aj.floor_divide(x, y), aj.remainder(x, y)),
    "modf": _modf,
    "spacing": _spacing,
    "bitwise_count": _bit_count,
    "ldexp": lambda x, exponent: aj.ldexp(x if x.dtype.category > 1 else x.to(aj.float64), exponent),
}
UFUNCS |= _NUMPYS
NUMBERS |= dict.fromkeys(_NUMPYS, "none")

SPECIAL: dict[str, Function] = {
    "loggamma": lambda x: aj.special.gammaln(x),
    "rel_entr": lambda x, y: aj.special.xlogy(x, x / y),
    "kl_div": lambda x, y: aj.special.xlogy(x, x / y) - x + y,
    "log_expit": lambda x: aj.nn.functional.logsigmoid(x),
    "huber": lambda delta, r: aj.where(aj.abs(r) <= delta, r * r / 2, delta * (aj.abs(r) - delta / 2)),
    "exprel": lambda x: aj.where(x == 0, aj.ones_like(x), aj.expm1(x) / aj.where(x == 0, aj.ones_like(x), x)),
    "cosdg": lambda x: aj.cos(aj.deg2rad(x)),
    "sindg": lambda x: aj.sin(aj.deg2rad(x)),
    "cbrt": _cbrt,
}
"""By the name of a ufunc of ``scipy.special``: what ``autojit.special`` has under no name of SciPy's."""


def special(name: str) -> Function | None:
    """What a ufunc of ``scipy.special`` is for tensors; None: nothing."""
    ours = aj.special.SCIPYS.get(name, name)
    return SPECIAL.get(name) or (getattr(aj.special, ours) if ours in aj.special.__all__ else None)
