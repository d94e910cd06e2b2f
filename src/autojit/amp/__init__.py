"""Mixed precision with torch.amp's names: ``autocast`` and ``GradScaler``."""

from __future__ import annotations

from autojit.amp.autocast_mode import autocast, custom_bwd, custom_fwd, is_autocast_available
from autojit.amp.grad_scaler import GradScaler

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd", "is_autocast_available"]
