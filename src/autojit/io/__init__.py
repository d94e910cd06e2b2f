"""Saving and loading: the safetensors format, never pickle."""

from __future__ import annotations

from autojit.io import safetensors
from autojit.io.archive import load, save
from autojit.io.safetensors import SafetensorsError

__all__ = ["SafetensorsError", "load", "safetensors", "save"]
