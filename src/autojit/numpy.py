"""NumPy's namespace for programs that differentiate: ``import autojit.numpy as np``.

NumPy's own functions find tensors among their arguments by themselves. What they cannot know is that ``np.zeros(3)``
will be filled with parts of a tensor: here the functions that make arrays from nothing make tensors, with NumPy's
dtypes. All other names are NumPy's.

Example:
    >>> import autojit as aj
    >>> import autojit.numpy as np
    >>> def energy(x):
    ...     force = np.zeros(len(x))
    ...     force[1:] = x[1:] - x[:-1]
    ...     return np.sum(force**2)
    >>> aj.func.grad(energy)(np.array([0.0, 1.0, 3.0]))
    tensor([-2., -2.,  4.], dtype=autojit.float64)
"""

from __future__ import annotations

import numpy as _numpy

from autojit.core.lazy_modules import LazyNames as _LazyNames
from autojit.interop.numpy_creation import MAKERS as _MAKERS

globals().update(_MAKERS)
__getattr__ = _LazyNames(__name__, others="numpy")


def __dir__() -> list[str]:
    return dir(_numpy)
