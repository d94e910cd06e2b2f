"""Errors that Python raises for numbers: a division by zero, ``math.sqrt(-1.0)``.

A step asks whether a call is such a case. Of numbers among the arguments that is decided before a step is chosen. Of
what the step computes it would split the step at every division, so the step itself refuses: the error is raised when
it has run, and nothing has changed then. Where the function has changed something already, the step splits
nevertheless: what is written must wait for all that may fail, and the copies cost more than a split.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from autojit.dispatch.dispatch import value_of
from autojit.dispatch.requirements import require_bare
from autojit.tensor.state import grad_mode

if TYPE_CHECKING:
    from autojit.jit.trace import Trace
    from autojit.tensor.tensor import Tensor


def is_sure(trace: Trace, holds: Callable[[], Tensor], raises: Callable[[], object]) -> bool:
    """Whether what is asked holds in every call that the step serves; else whoever asks is to decide on it.

    ``holds``: of what the step computes; ``raises``: Python's error for what does not.
    """
    if trace.writes:
        return False
    with grad_mode(False):
        asked = holds()
        if asked._value is None or not trace.would_split(value_of(asked)):
            return False
        try:
            raises()
        except (ValueError, OverflowError, ZeroDivisionError) as error:
            require_bare(lambda: asked, str(error), _KINDS[type(error)])
            return True
    return False


_KINDS: dict[type[Any], str] = {ValueError: "value", OverflowError: "overflow", ZeroDivisionError: "zero"}
