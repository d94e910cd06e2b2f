"""``functorch.einops``: axes rearranged by a pattern."""

from __future__ import annotations

from autojit.func import rearrange

__all__ = ["rearrange"]
