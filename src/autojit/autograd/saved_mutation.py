"""``allow_mutation_on_saved_tensors``: in-place changes of saved tensors copy the old contents first.

What is saved inside the context is noted by its memory. Before an in-place change ``tensor.inplace`` tells the context,
which copies the memory for the tensors that were saved from it and not copied yet.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from autojit.tensor import Tensor
from autojit.tensor.dispatch import value_of
from autojit.tensor.functions_elementwise import clone
from autojit.tensor.state import grad_mode, state
from autojit.tensor.tensor import alias, storage_of, wrap_value


class _Saved:
    """A saved tensor: the memory it was saved from until that is changed, then its copy."""

    __slots__ = ("__weakref__", "contents", "context")

    def __init__(self, contents: Tensor, context: AllowedMutation) -> None:
        self.contents: Tensor | None = contents
        self.context = context


class AllowedMutation:
    """The memory that was saved from in one context; ``clear`` forgets it."""

    def __init__(self) -> None:
        self.is_open = True
        self._of_memory: dict[int, weakref.WeakSet[_Saved]] = {}

    def clear(self) -> None:
        """Forget what was saved: backward through it is an error from now on."""
        for kept in self._of_memory.values():
            for saved in tuple(kept):
                saved.contents = None
        self._of_memory.clear()

    def pack(self, t: Tensor) -> _Saved:
        """The pack hook."""
        if state.trace is not None:
            return _Saved(wrap_value(value_of(t)), self)  # a capture's values never change
        saved = _Saved(alias(t), self)
        self._of_memory.setdefault(id(storage_of(t).array), weakref.WeakSet()).add(saved)
        return saved

    def unpack(self, saved: _Saved) -> Tensor:
        """The unpack hook."""
        if not self.is_open or saved.contents is None:
            raise AssertionError(
                "Trying to backward outside of the 'allow_mutation_on_saved_tensors' context in which the graph was "
                "originally recorded."
            )
        return saved.contents

    def before_change(self, t: Tensor) -> None:
        """``t`` is about to be written to."""
        kept = self._of_memory.pop(id(storage_of(t).array), None)
        if kept is None:
            return
        with grad_mode(False):
            for saved in tuple(kept):
                if saved.contents is not None:
                    saved.contents = clone(saved.contents)


@contextmanager
def allow_mutation_on_saved_tensors() -> Iterator[AllowedMutation]:
    """Context manager: tensors saved for backward may be changed in place; their old contents are copied first.

    The backward pass must run inside the context as well.

    Raises:
        RuntimeError: the contexts are nested.
        AssertionError: backward through what was saved inside, after the context has ended.

    Example:
        >>> import autojit as aj
        >>> with allow_mutation_on_saved_tensors():
        ...     a = aj.ones(2, requires_grad=True)
        ...     b = a.clone()
        ...     y = b.sin()
        ...     _ = b.sin_()
        ...     y.sum().backward()
        >>> a.grad
        tensor([0.5403, 0.5403])
    """
    if state.mutation is not None:
        raise RuntimeError("allow_mutation_on_saved_tensors contexts cannot be nested")
    context: Any = AllowedMutation()
    state.mutation = context
    state.recording_hooks = (*(state.recording_hooks or ()), (context.pack, context.unpack))
    try:
        yield context
    finally:
        context.clear()
        context.is_open = False
        state.mutation = None
        state.recording_hooks = state.recording_hooks[:-1] or None
