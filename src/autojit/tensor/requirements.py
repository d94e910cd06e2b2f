"""What functions ask of their operands' elements, also where these cannot be looked at yet.

A captured step records the condition and raises when it runs, with the error of eager mode; so does a batch.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from autojit.ops.requirements import KINDS, Require
from autojit.tensor.dispatch import apply
from autojit.tensor.state import state
from autojit.tensor.tensor import Tensor


def is_known(x: Tensor) -> bool:
    """Whether the elements can be looked at: outside of captured steps and of layers."""
    return state.divert is None and type(x._array) is np.ndarray


def require(holds: Callable[[], Tensor], refusal: str, kind: str = "usage") -> None:
    """The error ``KINDS[kind](refusal)`` unless every element of ``holds()`` is true: now, or when the step runs.

    Functions that can look at their operands say more about what is wrong, and do not get here.
    """
    condition = holds()
    if is_known(condition):
        if not condition.all():
            raise KINDS[kind](refusal)
        return
    apply(Require(refusal, kind), condition.all())
