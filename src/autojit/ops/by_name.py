"""Ops applied by name: for rules whose modules would otherwise import each other in circles."""

from __future__ import annotations

from typing import Any

from autojit.ir.op import Op, bind


def apply(name: str, *operands: Any, **parameters: Any) -> Any:
    """Bind the registered op ``name`` with static ``parameters``: ``apply("sum", x, axes=(0,))``."""
    return bind(Op.registry[name](**parameters), *operands)


def source(name: str, like: Any, **parameters: Any) -> Any:
    """An op without operands, computed or recorded where the operand ``like`` is."""
    return like._bind(Op.registry[name](**{"device": like.spec.device, **parameters}), ())
