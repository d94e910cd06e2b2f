"""Errors that a captured function catches itself: ``try: L = cholesky(K)``, ``except RuntimeError: add jitter``.

A factorisation of a compiled step fails while the step runs, when the ``try`` around it has long ended. So where code
of the user's would catch the error, the step asks beforehand whether the factorisation fails, which splits it as an
``if`` does, and the error is raised during the capture.
"""

from __future__ import annotations

import dis
import functools
import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

from autojit.core.source import is_own
from autojit.ops.failed_matrices import LinAlgError
from autojit.tensor.state import grad_mode, state
from autojit.tensor.tensor import Tensor

_CAPTURING = "JitFunction._trace"  # the frame below which nothing is the captured function's


def refuse_where_caught(failures: Callable[[], Tensor], message: str) -> None:
    """While a step is captured, inside a ``try`` of the user's: the error of a factorisation that fails.

    Args:
        failures: gives a tensor that is true for every matrix that cannot be factorised.
        message: what the error says.

    Raises:
        LinAlgError: there is such a matrix.
    """
    if state.trace is None or state.layers or not _is_in_try(sys._getframe(2)):
        return
    with grad_mode(False):
        has_failed = bool(failures().any())
    if has_failed:
        raise LinAlgError(message)


def _is_in_try(frame: FrameType | None) -> bool:
    while frame is not None and frame.f_code.co_qualname != _CAPTURING:
        if not is_own(frame.f_code) and _catches(frame.f_code, frame.f_lasti):
            return True
        frame = frame.f_back
    return False


@functools.lru_cache(maxsize=1024)
def _catches(code: CodeType, instruction: int) -> bool:
    """Whether an error at an instruction comes to an ``except`` or a ``finally`` of the same code."""
    listing: Any = dis.Bytecode(code)
    names = {i.offset: i.opname for i in listing}
    offsets = sorted(names)
    place = instruction
    for _ in range(len(offsets)):
        handler = next((e.target for e in listing.exception_entries if e.start <= place < e.end), None)
        if handler is None:
            return False
        following = offsets[offsets.index(handler) + 1]
        if names[handler] == "PUSH_EXC_INFO" and names[following] != "WITH_EXCEPT_START":
            return True
        place = handler  # a ``with`` block: its own handler may be inside a ``try``
    return False
