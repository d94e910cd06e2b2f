"""Compiled calls compared with eager ones.

``verify="first"`` compares the first run of every compiled step; ``"always"`` and ``n`` compare every call, or every
n-th, as the caller sees it: native entries, guards and rings take part. The function runs eagerly, everything it can
reach is put back (``reachable``), the compiled call runs on the same objects, and what both have left is compared part
by part. So the reference never shares memory with the step, hooks and optimisers run as they are, and random numbers
are drawn from the same states; clocks and items of iterators are fetched once, for both. What the function does
elsewhere (prints, files) happens twice. Numbers that differ are compared with eager runs that round at random: terms
that cancel leave nothing but rounding.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from autojit.core.device_array import Array, host_copy
from autojit.core.errors import TraceError
from autojit.core.late_interrupts import late_interrupts
from autojit.ir.op import Ndarray
from autojit.jit.assigned_places import carrying
from autojit.jit.draw_plans import Drawn
from autojit.jit.places import Location
from autojit.jit.pytree import Args, Kwargs
from autojit.jit.reachable import GENERATOR, RANDOM, Saved, Walk, world_of
from autojit.tensor.random_rounding import rounding_at_random
from autojit.tensor.state import guard_epoch, reference_only, set_inference, state
from autojit.tensor.tensor import StepGradient, Tensor, type_of

if TYPE_CHECKING:
    from autojit.jit.function import JitFunction
    from autojit.jit.step import CompiledStep

RELATIVE = {"float64": 1e-9, "float32": 1e-4, "float16": 2e-2, "bfloat16": 5e-2, "complex64": 1e-4, "complex128": 1e-9}

LEAST_SCALE = 1e-3
"""Terms of order one that cancel (the gradient of a bias before batch norm) leave some roundings of one, not of 0."""

SHAKES = 4
"""Eager runs that round at random, where numbers differ by more than their size explains."""

OF_ROUNDING = 8.0
"""How much farther off than those a compiled value may be: it rounds elsewhere, and sums in another order."""


def check_option(verify: object) -> None:
    """ValueError for what ``jit(verify=...)`` does not take."""
    if verify not in (None, "first", "always") and not (type(verify) is int and verify > 0):
        raise ValueError(f'jit: verify must be None, "first", "always" or a number of calls, not {verify!r}')


class Comparison:
    """Calls of a function compared with eager ones; of "always" and ``n``, the entry of the function."""

    def __init__(self, owner: JitFunction, verify: str | int | None) -> None:
        self.owner = owner
        self.verify = verify
        self.every = verify if isinstance(verify, int) else 1
        self.calls = 0
        self.is_due = False  # both under the owner's lock: whether the call that runs is to be compared,
        self.is_comparing = False  # and whether it is being compared

    def __call__(self, *args: object, **kwargs: object) -> Any:
        self.calls += 1
        if (self.calls - 1) % self.every:
            return self._compiled(*args, **kwargs)
        with self.owner._lock:
            self.is_due = True
            try:
                return self.owner._slow(*args, **kwargs)  # which finds the step, and what the call draws
            except TraceError:
                raise
            except Exception:
                if not self.is_due:
                    raise
                self.is_due = False  # it is compared from here: eager mode may raise the same
                return self._compared(self.owner.function, self._compiled, args, kwargs)
            finally:
                self.is_due = False

    def is_wanted(self, step: CompiledStep) -> bool:
        """Whether this run of the step is to be compared, and is not yet."""
        return not self.is_comparing and (self.is_due or (self.verify == "first" and step.calls == 0))

    def of_run(self, drawn: Drawn, args: Args, kwargs: Kwargs) -> Any:
        """A call whose step is known; both modes are given what has been drawn for it."""
        if self.verify == "first":
            self.calls = self.owner.counts.calls
        self.is_due = False
        self.owner.counts.calls -= 1  # what only found the step was not a call
        rebinding = self.owner.rebinding

        def given_draws(*args: object, **kwargs: object) -> Any:
            assert rebinding is not None
            entered = rebinding.values(drawn.copy(), args, kwargs)
            assert isinstance(entered, tuple), "what the step was found with is drawn already"
            return rebinding.store(rebinding(*entered, args, kwargs))

        def compiled(*args: object, **kwargs: object) -> Any:
            with carrying(drawn.copy(), self.owner.function):
                return self._compiled(*args, **kwargs)

        has_draws = rebinding is not None and drawn.plan is not None and drawn.plan.draws
        self.is_comparing = True
        try:
            return self._compared(given_draws if has_draws else self.owner.function, compiled, args, kwargs)
        finally:
            self.is_comparing = False

    def _compiled(self, *args: object, **kwargs: object) -> Any:
        entry = self.owner._installed[state.grad_enabled + 2 * state.inference]
        return self.owner._slow(*args, **kwargs) if entry is None else entry(*args, **kwargs)

    def _compared(self, function: Callable[..., Any], compiled: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
        """The result of the compiled call.

        Raises:
            TraceError: it differs from what eager execution gives and leaves; the message names where.
        """
        world = _World(world_of(self.owner.function, args, kwargs))
        epoch = int(guard_epoch[0])
        eager, error = world.reference(function, args, kwargs)
        if threading.active_count() == 1:
            guard_epoch[0] = epoch  # everything is as it was, so guards need no second look that would hide a fault
        result, raised = _outcome(compiled, args, kwargs)
        if isinstance(raised, TraceError):
            raise raised
        if type(raised) is not type(error):
            self._differ(
                "the call", f"{'another' if error else 'no'} error in eager mode", repr(error), repr(raised), raised
            )
        shaken = cache(lambda: world.shaken(function, args, kwargs, result))
        self._look_for_differences(eager, world.picture(result), shaken)
        if raised is not None:
            raise raised
        return result

    def _look_for_differences(
        self, eager: dict[str, Any], compiled: dict[str, Any], shaken: Callable[[], Sequence[dict[str, Any]]]
    ) -> None:
        for path, expected in eager.items():
            if path not in compiled:
                self._differ(path, "is there in eager mode only", _shown(expected), "nothing")
            found = compiled[path]
            for what, a in expected.items():
                b = found.get(what)
                if not (_agree(a, b) or (what == "value" and _is_rounding(a, b, path, shaken))):
                    self._differ(path, f"{what} differs from eager mode", _brief(a), _brief(b))
        more = next((path for path in compiled if path not in eager), None)
        if more is not None:
            self._differ(more, "is there in the compiled call only", "nothing", _shown(compiled[more]))

    def _differ(self, path: str, what: str, eager: str, compiled: str, cause: BaseException | None = None) -> None:
        facts = {"eager": eager, "compiled": compiled, "call": self.calls}
        raise TraceError(
            f"jit(verify={self.verify!r}): {path}: {what}", facts, "report it with the function: this is a defect"
        ) from cause


class _World:
    """What a function can reach before a call, kept so that reference runs leave it as it was."""

    def __init__(self, roots: list[tuple[str, Any]]) -> None:
        self.roots = roots
        self.saved, self.seeded, self.drawn = Saved(Walk(roots)), Saved(Walk(GENERATOR)), state.drawn
        self.draws = False
        self.versions = self.saved.versions() | self.seeded.versions()

    def reference(self, function: Callable[..., Any], args: Args, kwargs: Kwargs) -> tuple[dict[str, Any], Any]:
        """What the function gives and leaves in eager mode, and its error; everything is put back."""
        modes = state.grad_enabled, state.inference, state.detour
        try:
            state.detour = "eager"
            with late_interrupts.at_once(), reference_only():
                result, error = _outcome(function, args, kwargs)
            if not self.draws and (state.drawn != self.drawn or threading.active_count() == 1):
                self.draws = True
                self.roots += GENERATOR  # else whatever moved it on was another thread, which goes on from there
            picture = self.picture(result)
        finally:
            result = None  # whatever the reference made is gone when the step runs
            state.grad_enabled, inference, state.detour = modes
            set_inference(inference)
            self.put_back()
        return (picture if error is None else self.picture(None)), error  # a compiled call that raises changes nothing

    def put_back(self) -> None:
        """Everything is as it was before the call."""
        self.saved.restore()
        if state.drawn != self.drawn:
            self.seeded.restore()

    def picture(self, result: object) -> dict[str, Any]:
        """What can be reached now."""
        return _picture(self.roots, result, self.versions)

    def shaken(self, function: Callable[..., Any], args: Args, kwargs: Kwargs, result: object) -> list[dict[str, Any]]:
        """What eager runs give and leave that round at random, after the compiled call, whose traces stay."""
        after = _World([*self.roots, ("result", result)])
        try:
            self.put_back()
            found = []
            for seed in range(SHAKES):
                with rounding_at_random(np.random.default_rng(seed)):
                    found.append(self.reference(function, args, kwargs)[0])
        finally:
            after.saved.restore()
            after.seeded.restore()
        return found


def _is_rounding(eager: Any, compiled: Any, path: str, shaken: Callable[[], Sequence[dict[str, Any]]]) -> bool:
    """Whether an array of eager mode's differs by no more than what rounding at random makes of it."""
    if not _are_numbers(eager, compiled):
        return False
    others = [picture.get(path, {}).get("value") for picture in shaken()]
    if not all(_are_numbers(eager, other) for other in others):
        return False
    with np.errstate(all="ignore"):
        moved = max(float(np.max(np.abs(other - eager), initial=0.0)) for other in others)
        return bool(np.max(np.abs(compiled - eager), initial=0.0) <= OF_ROUNDING * moved)


def _are_numbers(a: object, b: object) -> bool:
    if not isinstance(a, np.ndarray) or not isinstance(b, np.ndarray):
        return False
    return bool(a.shape == b.shape and a.dtype == b.dtype and str(a.dtype) in RELATIVE)


def _outcome(function: Callable[..., Any], args: Args, kwargs: Kwargs) -> tuple[Any, Exception | None]:
    try:
        return function(*args, **kwargs), None
    except Exception as error:
        return None, error


def _picture(roots: list[tuple[str, Any]], result: object, versions: dict[int, int]) -> dict[str, dict[str, Any]]:
    """What can be reached now, by path: facts with copies of all values."""
    walk = Walk([*roots, ("result", result)])
    picture: dict[str, dict[str, Any]] = {path: {"object": first} for path, first in walk.aliases}
    for part in walk.parts:
        value = part.value
        if isinstance(value, Tensor):
            picture[part.path] = _of_tensor(value, part.content, {} if part.path.endswith(".grad") else versions)
        elif isinstance(value, np.ndarray):
            picture[part.path] = {"value": part.content}
        elif isinstance(value, dict):
            keys = [key if isinstance(key, str | int) else type(key).__name__ for key in value]
            picture.setdefault(part.path, {})["keys"] = keys
        elif isinstance(value, RANDOM):
            picture[part.path] = {"state": pickle.dumps(part.content)}
        elif isinstance(value, tuple | list | set) or type(value).__name__ == "deque":
            picture[part.path] = {"type": type(value).__name__, "length": len(value)}
        elif not isinstance(value, Location) and type(value).__name__ != "cell":
            picture.setdefault(part.path, {})["value"] = value
    picture["gradient modes"] = {"value": (state.grad_enabled, state.inference)}
    return picture


def _of_tensor(t: Tensor, content: Array | None, versions: dict[int, int]) -> dict[str, Any]:
    """What a caller can see of a tensor."""
    content = None if content is None else host_copy(content)
    facts: dict[str, Any] = {
        "class": "Tensor" if isinstance(t, StepGradient) else type(t).__name__,
        "type": str(type_of(t)),
        "requires_grad": t._requires_grad,
        "is_leaf": t._grad_fn is None,
    }
    if content is not None:
        facts["value"] = content
        facts["strides"] = tuple(
            step for step, extent in zip(t._array.strides, t._array.shape, strict=True) if extent > 1 and content.size
        )
    if id(t) in versions:
        facts["changes"] = (0 if t._storage is None else t._storage.version) - versions[id(t)]
    return facts


def _agree(a: object, b: object) -> bool:
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        if a.shape != b.shape or a.dtype != b.dtype:
            return False
        if a.dtype.kind not in "fcV" and str(a.dtype) not in RELATIVE:
            return bool(np.array_equal(a, b))
        return is_close(a, b, LEAST_SCALE)
    if isinstance(a, float) and isinstance(b, float):
        return is_close(np.array(a, np.float32), np.array(b, np.float32))  # it may come of a float32 value
    return type(a) is type(b) and bool(a == b)


def _brief(value: object) -> str:
    text = repr(value).replace("\n", " ")
    return text if len(text) <= 200 else text[:197] + "..."


def _shown(facts: dict[str, Any]) -> str:
    return _brief(facts.get("type", facts.get("value", facts)))


def is_close(eager: Ndarray, compiled: Ndarray, least_scale: float = 1e-30) -> bool:
    """Whether two arrays of one type agree to rounding: relative to the largest finite element, or ``least_scale``."""
    tolerance = RELATIVE.get(str(eager.dtype), 0.0)
    wide = np.complex128 if eager.dtype.kind == "c" else np.float64
    a, b = eager.astype(wide), compiled.astype(wide)
    scale = max(float(np.max(np.abs(a), initial=0.0, where=np.isfinite(a))), least_scale)
    return bool(np.allclose(a, b, rtol=tolerance, atol=tolerance * scale, equal_nan=True))
