"""``allow_mutation_on_saved_tensors``: in-place changes of saved tensors copy the old contents first.

What is saved inside the context is noted by its memory. Before an in-place change ``dispatch.inplace`` tells the
context, which copies the memory for the tensors that were saved from it and not copied yet.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from autojit.core.device_array import first_address
from autojit.dispatch.dispatch import value_of
from autojit.functions.elementwise import clone
from autojit.tensor import Tensor
from autojit.tensor.state import grad_mode, state
from autojit.tensor.tensor import alias, storage_of, type_of, wrap_value


class _Saved:
    """A saved tensor: the memory it was saved from until that is changed, then its copy.

    ``key`` says what it is in the context's ``tid_to_weakhandle``: the elements that it shows, at one version.
    """

    __slots__ = ("__weakref__", "contents", "key")

    def __init__(self, contents: Tensor, key: Any = None) -> None:
        self.contents: Tensor | None = contents
        self.key = key


class AllowedMutation:
    """The memory that was saved from in one context; ``clear`` forgets it.

    ``cloned`` has the copies made so far that something still needs, by saved tensor; ``tid_to_weakhandle`` the saved
    tensors whose memory is unchanged: what is saved twice is kept, and copied, once.
    """

    def __init__(self) -> None:
        self.is_open = True
        self.cloned: weakref.WeakKeyDictionary[_Saved, Tensor] = weakref.WeakKeyDictionary()
        self.tid_to_weakhandle: weakref.WeakValueDictionary[Any, _Saved] = weakref.WeakValueDictionary()
        self._of_memory: dict[int, weakref.WeakSet[_Saved]] = {}

    def clear(self) -> None:
        """Forget what was saved: backward through it is an error from now on."""
        for saved in (*self.tid_to_weakhandle.values(), *self.cloned):
            saved.contents = None
        self.cloned.clear()
        self.tid_to_weakhandle.clear()
        self._of_memory.clear()

    def pack(self, t: Tensor) -> _Saved:
        """The pack hook."""
        if state.trace is not None:
            return _Saved(wrap_value(value_of(t)))  # a capture's values never change
        storage, array = storage_of(t), t._array
        where = None if storage.array is t._array else (first_address(array), array.strides)
        key = (id(storage), storage.version, type_of(t), where)
        saved = self.tid_to_weakhandle.get(key)
        if saved is None:
            saved = self.tid_to_weakhandle[key] = _Saved(alias(t), key)
            self._of_memory.setdefault(id(storage.array), weakref.WeakSet()).add(saved)
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
                self.tid_to_weakhandle.pop(saved.key, None)
                if saved.contents is not None:
                    self.cloned[saved] = saved.contents = clone(saved.contents)


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
