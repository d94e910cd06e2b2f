"""Signal processing with torch.signal's names: windows."""

from autojit.signal import windows

__all__ = ["windows"]
