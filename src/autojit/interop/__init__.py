"""Other libraries' ways to tensors: NumPy's functions and programs, and objectives for SciPy."""

from __future__ import annotations

from autojit.interop.protocols import NumpyProtocols
from autojit.interop.rebinding import on_tensors
from autojit.interop.scipy_objective import ScipyObjective

__all__ = ["NumpyProtocols", "ScipyObjective", "on_tensors"]
