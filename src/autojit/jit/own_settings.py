"""Settings of autojit's that change no result, so that no step is for one value of them: only whoever asks is told.

Steps that ask compare what they were told before every call; steps that set run line by line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from autojit.core.source import here
from autojit.runtime.pool import get_num_threads, set_num_threads

if TYPE_CHECKING:
    from autojit.jit.observed_calls import ObservedCalls


def note_setting(observer: ObservedCalls, function: object) -> None:
    """A function of autojit's is about to be called."""
    if function is get_num_threads:
        observer.note(function, "asked", f"{function.__name__}()", function, function())
    elif function is set_num_threads:
        observer.refuse(f"the step calls {function.__name__}() at {here()}")
