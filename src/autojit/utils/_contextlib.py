"""Bases of context managers that also decorate; where PyTorch keeps them."""

from __future__ import annotations

from autojit.autograd.grad_mode import _DecoratorContextManager, _NoParamDecoratorContextManager

__all__ = ["_DecoratorContextManager", "_NoParamDecoratorContextManager"]
