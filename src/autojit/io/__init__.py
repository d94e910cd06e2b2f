"""Saving and loading: torch's zip files and the safetensors format, never plain pickle."""

from __future__ import annotations

from autojit.io import safetensors
from autojit.io.load_errors import LoadError, UnsafeGlobalError
from autojit.io.safetensors import SafetensorsError
from autojit.io.saving import load, save

__all__ = ["LoadError", "SafetensorsError", "UnsafeGlobalError", "load", "safetensors", "save"]
