"""torch's module of this name: the functions of ``control_flow``."""

from __future__ import annotations

from autojit.control_flow import associative_scan, cond, scan, while_loop

__all__ = ["associative_scan", "cond", "scan", "while_loop"]
