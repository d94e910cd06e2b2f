"""What a checkpointed function finds when it runs again: random numbers of the first run, a capture that knows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from autojit.amp.autocast_mode import set_mode
from autojit.autograd.running import current_walk
from autojit.dispatch.dispatch import value_of
from autojit.functions.random import get_rng_state, set_rng_state
from autojit.tensor import Tensor
from autojit.tensor.state import Precision, state


def apart_from_the_first(grads: Sequence[Any] | None = None) -> AbstractContextManager[Any]:
    """A step computes again, once ``grads`` are there (those of the node that is running), what runs inside."""
    trace, walk = state.trace, current_walk()
    if grads is None:
        grads = () if walk is None else walk.grads
    arrived = [g for g in grads if isinstance(g, Tensor)]
    return nullcontext() if trace is None or not arrived else trace.again(value_of(arrived[0]))


@contextmanager
def same_precision(mode: Precision | None) -> Iterator[None]:
    """Cast inside as in a block of autocast that was open before (``state.autocast`` of then)."""
    before = state.autocast
    set_mode(mode)
    try:
        yield
    finally:
        set_mode(before)


@contextmanager
def random_numbers(numbers: Tensor | None) -> Iterator[None]:
    """Draw as from the generator state ``numbers`` inside, and go on as before afterwards."""
    if numbers is None:
        yield
        return
    before = get_rng_state()
    set_rng_state(numbers)
    try:
        yield
    finally:
        set_rng_state(before)
