"""Ops applied by name: for rules whose modules would otherwise import each other in circles."""

from __future__ import annotations

from typing import Any

from autojit.ir.op import O, Op, bind


def apply(name: str, operand: O, *others: Any, **parameters: Any) -> O:
    """Bind the registered op ``name`` with static ``parameters``: ``apply("sum", x, axes=(0,))``."""
    return bind(Op.registry[name](**parameters), operand, *others)
