"""What `fully_shard` saves for the backward pass: parts of parameters, of which the whole is made again there.

While a module runs, a `Region` is behind the saved-tensor hooks. It knows the whole parameters that were gathered in
the call; a saved tensor that is such a parameter, or a permutation of its axes, is kept as this rank's part of it. So
nobody holds the whole one between the two passes, and a rank needs the memory of its parts and of one layer. In a
captured step the second gather is an op of the step, recorded by the same code. Whatever else is saved goes the way
that it would go without the region.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from autojit.autograd.grad_mode import no_grad
from autojit.history.saved import changed_error
from autojit.nn.module import Module
from autojit.tensor import Tensor
from autojit.tensor.state import state
from autojit.tensor.storage import Storage
from autojit.tensor.tensor import storage_of

Gather = Callable[[Tensor], Tensor]


class _Unchanged:
    """A saved tensor that may not have changed when it is read; without its history, which has this one."""

    __slots__ = ("kept", "version")

    def __init__(self, t: Tensor) -> None:
        self.kept, self.version = t.detach() if t.requires_grad else t, storage_of(t).version

    def read(self) -> Tensor:
        if storage_of(self.kept).version != self.version:
            raise changed_error(None, self.kept, self.version)
        return self.kept


class _Whole:
    """A saved whole parameter: how to make it of its part."""

    __slots__ = ("axes", "gather", "part")

    def __init__(self, gather: Gather, part: Tensor, axes: Sequence[int]) -> None:
        self.gather, self.part, self.axes = gather, _Unchanged(part), axes

    def read(self) -> Tensor:
        with no_grad():
            whole = self.gather(self.part.read())
            return whole if list(self.axes) == sorted(self.axes) else whole.permute(*self.axes)


class _Passed:
    """What the hooks around the region have made of a saved tensor."""

    __slots__ = ("unpack", "what")

    def __init__(self, hooks: Any, t: Tensor) -> None:
        self.unpack, self.what = hooks[1], hooks[0](t)

    def read(self) -> Any:
        return self.unpack(self.what)


class Region:
    """One call of a module whose parameters are divided."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.around = state.recording_hooks
        self.wholes: list[tuple[Storage, Tensor, Gather, Tensor]] = []

    def pack(self, t: Tensor) -> _Unchanged | _Whole | _Passed:
        """What is kept of a saved tensor."""
        storage = storage_of(t)
        for known, whole, gather, part in self.wholes:
            axes = permutation(t, whole) if storage is known else None
            if axes is not None:
                return _Whole(gather, part, axes)
        return _Passed(self.around[-1], t) if self.around else _Unchanged(t)


def permutation(t: Tensor, whole: Tensor) -> list[int] | None:
    """The axes of a contiguous tensor in the order in which a view of all of it has them; None: it is another view."""
    if t.ndim != whole.ndim or t.storage_offset() != whole.storage_offset():
        return None
    steps, whole_steps = t.stride(), whole.stride()
    axes: list[int] = []
    for extent, step in zip(t.shape, steps, strict=True):
        fitting = [a for a in range(t.ndim) if a not in axes and (whole.shape[a], whole_steps[a]) == (extent, step)]
        if not fitting:
            return None
        axes.append(fitting[0])
    return axes


def gathered(whole: Tensor, gather: Gather, part: Tensor) -> Tensor:
    """Tell the module that runs now that a parameter is whole; the parameter."""
    for pack, _ in reversed(state.recording_hooks or ()):
        region = getattr(pack, "__self__", None)
        if isinstance(region, Region):
            region.wholes.append((storage_of(whole), whole.detach(), gather, part))
            break
    return whole


def _read(kept: Any) -> Any:
    return kept.read()


def _enter(module: Module, _args: Any) -> None:
    region = Region(module)
    state.recording_hooks = (*(state.recording_hooks or ()), (region.pack, _read))


def _leave(module: Module, _args: Any, _output: Any) -> None:
    for pack, _ in reversed(state.recording_hooks or ()):
        region = getattr(pack, "__self__", None)
        if isinstance(region, Region) and region.module is module:
            state.recording_hooks = region.around
            return


def reshard_after(module: Module) -> None:
    """Let calls of a module keep parts of the parameters that are gathered in them."""
    module.register_forward_pre_hook(_enter, prepend=True)
    module.register_forward_hook(_leave, always_call=True)
