"""Anomaly mode: a failing or NaN-producing node reports the user's line of the forward op that made it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from autojit.tensor.node import Node
from autojit.tensor.state import state


def guarded(node: Node, grads: list[Any], wanted: tuple[bool, ...]) -> Sequence[Any]:
    """Run a node; under anomaly mode explain exceptions and refuse NaN results."""
    if not state.anomaly:
        return node.run(grads, wanted)
    try:
        results = node.run(grads, wanted)
    except Exception:
        _report(node)
        raise
    if state.anomaly_check_nan:
        for number, grad in enumerate(results):
            array = None if grad is None else grad._array
            if array is not None and array.dtype.kind in "fc" and np.isnan(array).any():
                _report(node)
                raise RuntimeError(
                    f"Function '{node.name()}' returned nan values in its {number}th output.\n"
                    f"  forward op  {node.source}"
                )
    return results


def _report(node: Node) -> None:
    where = node.source
    sys.stderr.write(
        f"Error detected in {node.name()}. Traceback of forward call that caused the error:\n"
        f'  File "{where.file}", line {where.line}, in {where.function}\n'
    )


class detect_anomaly:
    """Context manager: backward passes inside check for NaN and report the forward line of a failure."""

    def __init__(self, check_nan: bool = True) -> None:
        self.check_nan = check_nan
        self.before = (state.anomaly, state.anomaly_check_nan)

    def __enter__(self) -> None:
        self.before = (state.anomaly, state.anomaly_check_nan)
        state.anomaly, state.anomaly_check_nan = True, self.check_nan

    def __exit__(self, *exception: object) -> None:
        state.anomaly, state.anomaly_check_nan = self.before


class set_detect_anomaly:
    """Switch anomaly mode on or off: as a function, or as a context manager that restores it."""

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        self.before = (state.anomaly, state.anomaly_check_nan)
        state.anomaly, state.anomaly_check_nan = bool(mode), check_nan

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exception: object) -> None:
        state.anomaly, state.anomaly_check_nan = self.before


def is_anomaly_enabled() -> bool:
    """Whether anomaly mode is on in this thread."""
    return state.anomaly


def is_anomaly_check_nan_enabled() -> bool:
    """Whether anomaly mode looks for NaN."""
    return state.anomaly_check_nan
