"""Errors that name the op, the operands, the place and the fix.

Every error derives from the exception type torch raises in the same situation, so ``except RuntimeError`` written for
torch keeps working.
"""

from __future__ import annotations

from collections.abc import Mapping


def explain_error(what: str, facts: Mapping[str, object] | None = None, fix: str = "") -> str:
    """Compose the message: one line of what, aligned facts, the fix."""
    rows = [(name, _fact(value)) for name, value in (facts or {}).items()]
    if fix:
        rows.append(("fix", fix))
    width = max((len(name) for name, _ in rows), default=0)
    return "\n".join([what, *(f"  {name:<{width}}  {text}" for name, text in rows)])


def _fact(value: object) -> str:
    described = getattr(value, "describe", None)
    return str(described()) if callable(described) else str(value)


class AutojitError(Exception):
    """Base of the errors below; never raised itself."""

    def __init__(self, what: str, facts: Mapping[str, object] | None = None, fix: str = "") -> None:
        super().__init__(explain_error(what, facts, fix))


class ShapeError(AutojitError, RuntimeError):
    """Shapes of operands do not fit together."""


class AxisError(AutojitError, IndexError):
    """An axis is out of range (torch raises IndexError)."""


class IndexOutOfRangeError(AutojitError, IndexError):
    """An index is out of range."""


class DTypeError(AutojitError, RuntimeError):
    """An op does not take the dtype."""


class DeviceError(AutojitError, RuntimeError):
    """Operands lie on different devices, or the device is absent."""


class ArgumentError(AutojitError, ValueError):
    """A parameter has an impossible value."""


class DifferentiationError(AutojitError, RuntimeError):
    """A derivative was asked for where there is none, or its graph is gone."""


class TraceError(AutojitError, RuntimeError):
    """The program under ``@aj.jit`` did something a trace cannot hold."""


class CompileError(AutojitError, RuntimeError):
    """Lowering failed; carries the op and the graph text for a report."""


class VerificationError(AutojitError, AssertionError):
    """A graph breaks an invariant of the IR: a defect of autojit itself."""
