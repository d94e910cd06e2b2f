"""How precise products of float32 have to be, for the whole process: what users set by torch's names for it."""

from __future__ import annotations

from autojit.core.epoch import note_switch

PRECISIONS = ("highest", "high", "medium")
_precision = "highest"


def product_precision() -> str:
    """What was set last."""
    return _precision


def set_product_precision(precision: str) -> None:
    """One of `PRECISIONS`. What was captured before is captured again."""
    global _precision
    assert precision in PRECISIONS, "callers refuse others"
    before, _precision = _precision, precision
    note_switch("float32 matmul precision", precision, before, set_product_precision)


def may_round_operands() -> bool:
    """Whether operands of products may be rounded to 11 bits, where a device multiplies such faster."""
    return _precision != "highest"
