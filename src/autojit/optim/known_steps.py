"""Steps of eager mode that come again and again: compiled beside the loop, then one native call.

What `Optimizer.step` does to parameters and their state is some ten ops of NumPy's for each of them, and a training
loop without ``@aj.jit`` asks for the same in every round. An optimiser whose steps have moved the same parameters
``TIMES`` times becomes a compiled function of their gradients (``@aj.jit(background=True)``): the guards, the numbers
of groups and the places of the state are those of any captured step. Where somebody could see a step from inside, or
wants equal bits of equal calls, the ops run as ever. The design is that of known backward passes (`jit.known_passes`).
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from autojit.autograd.running import running
from autojit.dispatch.awaited_kernels import awaited
from autojit.jit.compiled_beside import is_compiling
from autojit.jit.eager_mode import by_steps_of_their_own
from autojit.jit.function import JitFunction
from autojit.jit.outside_passes import is_plain_now
from autojit.optim.arithmetic import StepCall, stepping
from autojit.tensor import Tensor
from autojit.tensor.state import grad_mode, is_tracing, state

if TYPE_CHECKING:
    from autojit.optim.optimizer import Moving, Optimizer

TIMES = 64
"""Steps of the same parameters before they are compiled. Of Adam on 4 parameters of 12,000 numbers: 25 ms for the
capture and 100 ms beside for its kernels (20 from the disk cache), 165 us a step before and 17 after.
"""

MOST_PARAMETERS = 512
"""A capture holds up the loop: of 4 parameters for 10 ms, of so many for half a second."""

MOST_BYTES = 1 << 25
"""Of parameters. A captured step and its state refer to each other: of an optimiser that is gone they stay until Python
looks for such cycles (`_make_way`).
"""

MOST_CAPTURES = 4
"""Of one set of parameters: more come of a program that changes every time what a step reads."""


LOOK = 32
"""Of so many calls half are to be native, else the ops are faster: a program that gives its parameters other memory in
every step (``p.data = ...``, as sharpness-aware minimisation does) took 1.8 ms a step instead of 0.8.
"""


class KnownSteps:
    """The steps of one optimiser: how often the same parameters moved, and the compiled function that moves them."""

    def __init__(self) -> None:
        self.moved: list[int] = []  # the parameters of the last step, by id
        self.times = 0
        self.native: JitFunction | None = None
        self.twin: Optimizer | None = None
        self.ran: list[None] = []  # whether the call in hand runs the ops
        self.calls = 0  # of the function, since the last look at how many were native
        self.served = 0  # native calls until then
        self.why = ""  # steps stay the ops', for good

    def take(self, optimizer: Optimizer, moving: Sequence[Moving]) -> bool:
        """Move parameters by a known step; False: that is for the ops to do."""
        if self.why or not _is_unwatched():
            return False
        moved = [id(p) for p, _, _, _ in moving]
        if moved != self.moved or not self._is_twin_of(optimizer):
            self.moved, self.times, self.native, self.twin = moved, 0, None, None
            self.calls = self.served = 0
        self.times += 1
        if self.times <= TIMES or not moving:
            return False
        for p, grad, _, _ in moving:
            if not _is_plain(p, grad):
                return False
        if self.native is None:
            self.why = _refusal(optimizer, moving)
            if self.why:
                return False
            _make_way()
            self.twin = _twin_of(optimizer)
            self.native = JitFunction(_moving(optimizer, moved, self.ran), background=True)
        elif self.native.newest is None and is_compiling(self.native):
            return False
        return self._called(self.native, [self.twin, *[grad for _, grad, _, _ in moving]])

    def __del__(self) -> None:
        if self.native is not None:
            _left.append(None)

    def _is_twin_of(self, optimizer: Optimizer) -> bool:
        """Whether the steps are those of the optimiser's present state and groups: loading makes others."""
        twin = self.twin
        if twin is None:
            return True
        mine, known = optimizer.__dict__, twin.__dict__
        return mine["state"] is known["state"] and mine["param_groups"] is known["param_groups"]

    def _called(self, native: JitFunction, given: Sequence[Any]) -> bool:
        before = stepping.optimizer, stepping.call
        stepping.optimizer = stepping.call = None  # as the captured function finds and leaves them
        self.ran.clear()
        try:
            with by_steps_of_their_own():
                native(*given)
        except Exception as error:
            if self.ran:
                raise  # by the ops, which have begun to move parameters; a captured step that fails has moved none
            self.why = f"raised {type(error).__name__}: {error}"
            return False
        finally:
            stepping.optimizer, stepping.call = before
        if native.counts.captures > MOST_CAPTURES:
            self.why = f"more than {MOST_CAPTURES} captures: the program changes what a step reads"
        self.calls += 1
        if self.calls == LOOK:
            self._look(native)
            if self.native is None:
                del native
                _make_way()  # the steps count as writers of the parameters, which each change of these asks
        return True

    def _look(self, native: JitFunction) -> None:
        """Leave steps to the ops where native code serves too few of them."""
        served = native.natives.total()
        if 2 * (served - self.served) < LOOK:
            self.why = f"of {LOOK} calls {served - self.served} were native: the program changes what a step reads"
            self.native = self.twin = None
            _left.append(None)
        self.calls, self.served = 0, served


_left: list[None] = []  # one for each optimiser that is gone and had known steps


def _make_way() -> None:
    """Before steps are compiled, let go of those of optimisers that are gone, and of what they have moved."""
    if _left and gc.isenabled():  # else collecting is the user's
        _left.clear()
        gc.collect()


def _refusal(optimizer: Optimizer, moving: Sequence[Moving]) -> str:
    """Why steps are never compiled; empty where they may be."""
    if len(moving) > MOST_PARAMETERS:
        return f"more than {MOST_PARAMETERS} parameters"
    if sum([p._array.nbytes for p, _, _, _ in moving]) > MOST_BYTES:
        return f"parameters of more than {MOST_BYTES} bytes"
    return "" if optimizer.can_be_skipped else "the algorithm is not autojit's own, or it is differentiable"


def _moving(optimizer: Optimizer, moved: Sequence[int], ran: list[None]) -> Callable[..., None]:
    """A step as a function of the optimiser, whose options are guarded so, and of gradients of these parameters.

    ``ran`` is told of calls that run the ops.
    """
    everywhere = [id(p) for group in optimizer.param_groups for p in group["params"]]
    places = tuple([everywhere.index(p) for p in moved])

    def step(twin: Optimizer, *grads: Tensor) -> None:
        if not is_tracing():
            ran.append(None)
        owned = [(p, group) for group in twin.param_groups for p in group["params"]]
        stepping.optimizer, stepping.call = twin, StepCall()
        try:
            with grad_mode(False):
                members = [owned[place] for place in places]
                twin._move_all([(p, g, twin.state[p], group) for (p, group), g in zip(members, grads, strict=True)])
        finally:
            stepping.optimizer = stepping.call = None

    return step


def _twin_of(optimizer: Optimizer) -> Optimizer:
    """An optimiser with the same parameters, options and state, by which steps know them.

    What is captured keeps it alive. If that were the optimiser itself, which keeps its steps, both would stay until
    Python looks for cycles, and the parameters with them.
    """
    made = type(optimizer).__new__(type(optimizer))
    made.__dict__.update(optimizer.__getstate__())
    return made


def _is_unwatched() -> bool:
    """Whether nothing sees what the thread does, and nobody compares equal calls."""
    now = state.__dict__
    return (
        is_plain_now()
        and stepping.skip is None
        and not running.depth
        and not (awaited.at_once or awaited.is_settled)
        and not (now["grad_enabled"] or now["inference"] or now["reference"] or now["mutation"] is not None)
    )


def _is_plain(p: Tensor, grad: Tensor) -> bool:
    """Whether a parameter and its gradient are memory of floats that NumPy has, in the same order."""
    array, slope = p._array, grad._array
    return (
        type(grad) is Tensor
        and type(array) is type(slope) is np.ndarray
        and array.dtype is slope.dtype
        and array.dtype.char in "fd"
        and array.strides == slope.strides
        and p._view is None
    )


__all__ = ["LOOK", "TIMES", "KnownSteps"]
