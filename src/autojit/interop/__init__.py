"""Other libraries' ways to arrays: NumPy's protocols, DLPack, torch's tensors."""

from __future__ import annotations

from autojit.interop.protocols import NumpyProtocols

__all__ = ["NumpyProtocols"]
