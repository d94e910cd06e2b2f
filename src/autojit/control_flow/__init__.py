"""Structured control flow: branches and loops on tensors that stay one compiled step."""

from autojit.control_flow.associative import associative_scan
from autojit.control_flow.conditions import cond
from autojit.control_flow.loops import scan, while_loop

__all__ = ["associative_scan", "cond", "scan", "while_loop"]
