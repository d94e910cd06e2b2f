"""Other libraries' ways to tensors: NumPy's functions, and objectives for SciPy.

``import autojit.interop`` is needed for ``ScipyObjective`` only; NumPy's functions find tensors by themselves.
"""

from __future__ import annotations

from autojit.interop.protocols import NumpyProtocols
from autojit.interop.scipy_objective import ScipyObjective

__all__ = ["NumpyProtocols", "ScipyObjective"]
