"""``torch.futures``: results that may not be there yet."""

from __future__ import annotations

from autojit.core.futures import Future as Future
from autojit.core.futures import collect_all as collect_all
from autojit.core.futures import wait_all as wait_all

__all__ = ["Future", "collect_all", "wait_all"]
