"""Optimizer: parameter groups, per-parameter state, and the walk over both that every algorithm shares.

An algorithm defines ``_update(p, grad, state, group)`` for one parameter; ``step`` does the rest.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from copy import deepcopy
from itertools import chain
from typing import Any, Self

import autojit as aj
from autojit.core.device import CPU
from autojit.core.errors import UsageError
from autojit.core.layout import strided
from autojit.core.user_warnings import warn
from autojit.nn.hooks import RemovableHandle, add_hook
from autojit.optim.arithmetic import StepCall, part_all, part_counters, step_counter, stepping, zeros_like
from autojit.optim.counted import OptimizerState, ParameterState, ParamGroups, count_change, own
from autojit.optim.given import check_parameter, check_saved, fill, groups_of, listed, refuse
from autojit.optim.given import required as required
from autojit.optim.kept_state import kept_state
from autojit.optim.known_steps import KnownSteps
from autojit.optim.notebook import to_html
from autojit.optim.param_group import ParamGroup
from autojit.optim.replayed_updates import update
from autojit.optim.step_hooks import ALL_STEP_POST_HOOKS, ALL_STEP_PRE_HOOKS, with_hooks
from autojit.optim.step_hooks import register_optimizer_step_post_hook as register_optimizer_step_post_hook
from autojit.optim.step_hooks import register_optimizer_step_pre_hook as register_optimizer_step_pre_hook
from autojit.tensor import Tensor
from autojit.tensor.state import bump_guard_epoch, outside_trace
from autojit.tensor.state import state as now_of_thread
from autojit.tensor.tensor import storage_of, type_of

Closure = Callable[[], Any]
Params = Iterable[Any]  # tensors, dicts, or (name, tensor) pairs
ParamsT = Params  # torch's name of it
Moving = tuple[Tensor, Tensor, dict[str, Any], ParamGroup]  # a parameter, its gradient, its state, its group


class Optimizer:
    """Base of all optimisers; torch.optim.Optimizer's interface.

    Args:
        params: tensors, (name, tensor) pairs, or dicts with ``params`` and options of a group.
        defaults: options of groups that do not set them.
    """

    _hooks_of_all = (ALL_STEP_PRE_HOOKS, ALL_STEP_POST_HOOKS)

    OptimizerPreHook = Callable[["Optimizer", tuple[Any, ...], dict[str, Any]], "tuple[Any, dict[str, Any]] | None"]
    OptimizerPostHook = Callable[["Optimizer", tuple[Any, ...], dict[str, Any]], None]
    profile_hook_step = staticmethod(with_hooks)
    _keeps_numbers = False  # whether its state is more than tensors, so that it is not part of compiled steps

    _step_calls: int
    _is_captured: bool
    _known_steps: KnownSteps

    def __new__(cls, *given: object, **named: object) -> Self:
        """One whose class need not call ``__init__``, as those around another optimiser do not."""
        made = super().__new__(cls)
        made._make_hooks()
        return made

    def __init__(self, params: Params, defaults: dict[str, Any]) -> None:
        self.defaults = defaults
        self._make_hooks()
        self.state = defaultdict(dict)
        self.param_groups = ParamGroups()
        groups = groups_of(params)
        if not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        for group in groups:
            self.add_param_group(group)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        step = cls.__dict__.get("step")
        if step is not None and not hasattr(step, "_has_step_hooks"):
            cls.step = with_hooks(step)  # type: ignore[method-assign]

    @property
    def state(self) -> defaultdict[Any, dict[str, Any]]:
        """What is kept by parameter; loaded state may have keys of its own."""
        found: defaultdict[Any, dict[str, Any]] = own(self, "state")
        trace = now_of_thread.trace
        if trace is not None:
            trace.follow(self)
        elif stepping.optimizer is None and type(found) is OptimizerState and not found.is_parted:
            part_all(found)
        return found

    @state.setter
    def state(self, state: Any) -> None:
        count_change(self._made_in, "state")
        self.__dict__["state"] = OptimizerState(state) if self._is_followed else state

    @property
    def param_groups(self) -> list[ParamGroup]:
        """The groups of parameters, each a dictionary with ``params`` and options."""
        found: list[ParamGroup] = own(self, "param_groups")
        return found

    @param_groups.setter
    def param_groups(self, groups: Any) -> None:
        count_change(self._made_in, "groups")
        known = ParamGroups(groups)
        for old, new in zip(self.__dict__.get("param_groups", ()), known, strict=False):
            new.take_over(old)
        self.__dict__["param_groups"] = known

    @property
    def _is_followed(self) -> bool:
        """Whether its algorithm is autojit's own, whose state compiled steps follow by its place."""
        cls = type(self)
        return not cls._keeps_numbers and all(
            method.__module__.startswith("autojit.") for method in (cls.step, cls._begin, cls._update)
        )

    def _make_hooks(self) -> None:
        self._step_pre_hooks: dict[int, Callable[..., Any]] = {}
        self._step_post_hooks: dict[int, Callable[..., Any]] = {}
        self._state_hooks: dict[str, dict[int, Callable[..., Any]]] = defaultdict(OrderedDict)
        # how often step ran: schedulers warn when it never did; compiled steps run unseen and are not counted. A class
        # around another optimiser may answer for that one
        self.__dict__.update(_step_calls=0, _is_captured=False, _known_steps=KnownSteps())
        trace = now_of_thread.trace
        self._made_in = None if trace is None else weakref.ref(trace)

    def is_made_in(self, trace: Any) -> bool:
        """Whether the optimiser was made during this capture, and may be gone when it ends."""
        return self._made_in is not None and self._made_in() is trace

    def __getstate__(self) -> dict[str, Any]:
        hooks = ("_step_pre_hooks", "_step_post_hooks", "_state_hooks", "_step_calls", "_is_captured", "_made_in")
        own, kind = (*hooks, "_known_steps"), type(self)
        kept = {name: value for name, value in self.__dict__.items() if name not in own}
        # a method that somebody has replaced on this object (a wrapped ``step``) is none of a copy's
        return {name: value for name, value in kept.items() if not (callable(value) and hasattr(kind, name))}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._make_hooks()
        self.__dict__.update(state)
        self.state, self.param_groups = state["state"], state["param_groups"]

    def __repr__(self) -> str:
        text = f"{type(self).__name__} ("
        for place, group in enumerate(self.param_groups):
            text += f"\nParameter Group {place}\n"
            text += "".join(f"    {name}: {group[name]}\n" for name in sorted(group) if name != "params")
        return text + ")"

    _repr_html_ = to_html

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group of parameters with its own options; ValueError when a parameter is in a group already."""
        if not isinstance(param_group, dict):
            raise TypeError(f"param_group must be a dict, but got {type(param_group)}")
        group = ParamGroup(param_group)
        params = listed(dict.__getitem__(group, "params"))
        if any(isinstance(p, tuple) for p in params):
            if not all(isinstance(p, tuple) for p in params):
                raise ValueError("all optimizer params should be with/without names. Some param names are missing")
            dict.__setitem__(group, "param_names", [name for name, _ in params])
            params = [p for _, p in params]
        for p in params:
            check_parameter(p, bool(self.defaults.get("differentiable")))
        dict.__setitem__(group, "params", params)
        fill(group, self.defaults)
        if len({id(p) for p in params}) != len(params):
            warn(
                "optimizer contains a parameter group with duplicate parameters; in future, this will cause an error; "
                "see github.com/pytorch/pytorch/issues/40967 for more information",
            )
        if any(("param_names" in group) != ("param_names" in other) for other in self.param_groups):
            raise ValueError(
                "all optimizer param groups should be with/without names. cannot add param group "
                f"{'with' if 'param_names' in group else 'without'} names to the optimizer"
            )
        known = {id(p) for other in self.param_groups for p in other["params"]}
        refuse(any(id(p) in known for p in params), "some parameters appear in more than one parameter group")
        self.param_groups.append(group)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget (or, with ``set_to_none=False``, zero) the gradients."""
        for group in self.param_groups:
            for p in group["params"]:
                if set_to_none:
                    p.grad = None  # written without reading: a trace needs no old gradient
                elif p.grad is not None:
                    (p.grad.requires_grad_(False) if p.grad.grad_fn is None else p.grad.detach_()).zero_()

    vars(zero_grad)["reads_parameters_alone"] = True  # compiled steps may call it after a schedule

    def step(self, closure: Closure | None = None) -> Any:
        """Update all parameters from their gradients; ``closure`` recomputes the loss first, which is returned."""
        loss = None
        if closure is not None:
            with aj.enable_grad():
                loss = closure()
        with aj.set_grad_enabled(bool(self.defaults.get("differentiable", False))):
            moving: list[Moving] = []
            for group in self.param_groups:
                for p in group["params"]:
                    grad = p.grad
                    if grad is not None:
                        self._accept(grad)
                        moving.append((p, grad, self.state[p], group))
            if not self._known_steps.take(self, moving):
                self._move_all(moving)
        return loss

    step = with_hooks(step)

    def _move_all(self, moving: Sequence[Moving]) -> None:
        """Move parameters along their gradients."""
        self._make_ready(moving)
        before = self._before_update([p for p, *_ in moving])
        for p, grad, known, group in _in_turn(moving):
            if type_of(p).dtype.is_complex:
                self._update(aj.view_as_real(p), aj.view_as_real(grad), _in_parts(known), group)
            else:
                update(self, p, grad, known, group)
        for skip, t, version, old in before:
            if storage_of(t).version != version:
                t.copy_(aj.where(skip.to(t.device), old, t))

    takes_sparse = False  # whether ``_update`` knows sparse gradients
    _zeros: tuple[str, ...] = ()  # state that begins as zeros in the likeness of the parameter

    def _before_update(self, params: Sequence[Tensor]) -> list[tuple[Tensor, Tensor, int, Tensor]]:
        """Where ``stepping.skip`` says of the call whether it shall have changed nothing: that, and what it may change.

        Of each tensor its version and its value.
        """
        skip, stepping.skip = stepping.skip, None
        if skip is None:
            return []
        watched = {id(t): t for t in (*params, *self.followed()[0].values())}
        return [(skip, t, storage_of(t).version, t.clone()) for t in watched.values()]

    @property
    def can_be_skipped(self) -> bool:
        """Whether all that ``step`` changes is what `step` puts back: dense parameters and tensors of its state."""
        if not self._is_followed or type(self).step is not Optimizer.step or self.defaults.get("differentiable"):
            return False
        gradients = [p.grad for group in self.param_groups for p in group["params"]]
        return all(gradient is None or gradient.layout is strided for gradient in gradients)

    def step_unless(self, skip: Tensor, *args: Any, **kwargs: Any) -> Any:
        """``step``, which has changed nothing if ``skip`` is true, without asking whether it is."""
        stepping.skip = skip
        try:
            return self.step(*args, **kwargs)
        finally:
            stepping.skip = None

    def _accept(self, grad: Tensor) -> None:
        """Raise what a gradient is refused with."""
        if grad.layout is not strided and not self.takes_sparse:
            raise UsageError(
                f"{type(self).__name__} does not support sparse gradients, please consider SparseAdam instead",
                {"gradient": grad},
                "use SparseAdam, SGD or Adagrad for this parameter, or a layer with sparse=False",
            )

    def _make_ready(self, moving: Sequence[Moving]) -> None:
        """Before parameters move: all of them have state, and share no counter with those that rest."""
        moved = {id(p) for p, *_ in moving}
        state, trace = self.__dict__["state"], now_of_thread.trace
        if trace is not None and self._is_followed:
            trace.follow(self, frozenset(moved))
        # those that are in no group any more, too: they may come back
        resting = [known for p, known in state.items() if id(p) not in moved and isinstance(p, Tensor)]
        if any(resting):
            part_counters([known for _, _, known, _ in moving], resting)
        for p, grad, known, group in _in_turn(moving):
            if type_of(p).dtype.is_complex:
                self._begin_complex(p, grad, known, group)
            else:
                self._begin(p, grad, known, group)

    def _begin_complex(self, p: Tensor, grad: Tensor, state: dict[str, Any], group: ParamGroup) -> None:
        """Real and imaginary parts are parameters of their own; the state keeps complex tensors, as torch's."""
        parts = _in_parts(state)
        self._begin(aj.view_as_real(p), aj.view_as_real(grad), parts, group)
        with outside_trace():
            for name in parts.keys() - state.keys():
                part = parts[name]
                is_of_parts = isinstance(part, Tensor) and part.shape == (*p.shape, 2)
                state[name] = aj.view_as_complex(part) if is_of_parts else part

    def _begin(self, p: Tensor, grad: Tensor, state: dict[str, Any], group: ParamGroup) -> None:
        """Make what ``state`` lacks: everything at the first step of ``p``, by default a counter and ``_zeros``."""
        if self._zeros and not state:
            state["step"] = step_counter()
            for name in self._zeros:
                state[name] = zeros_like(p)

    def _begin_at_once(self) -> None:
        """Make all state with the optimiser, as its own: if a step makes the optimiser, every call begins anew."""
        before, stepping.optimizer = stepping.optimizer, self
        try:
            for group in self.param_groups:
                for p in group["params"]:
                    self._begin(p, p, self.state[p], group)
        finally:
            stepping.optimizer = before

    def _update(self, p: Tensor, grad: Tensor, state: dict[str, Any], group: ParamGroup) -> None:
        """Change ``p`` and ``state`` in place by one step along ``grad``."""
        raise NotImplementedError(f"{type(self).__name__} defines neither step nor _update")

    def _guard_snapshot(self, assigned: Collection[Any] = ()) -> tuple[Any, ...]:
        """What a trace of ``step`` baked in: parameters, what slots do not carry of each group, its hooks."""
        groups = [(tuple(map(id, g["params"])), g.baked_state(self.defaults, assigned)) for g in self.param_groups]
        return (*groups, tuple(self._step_pre_hooks), tuple(self._step_post_hooks))

    def followed(self) -> tuple[dict[Any, Tensor], dict[Any, Any]]:
        """What compiled steps read by its place: tensors (state, numbers of groups), and what else there is of state.

        Places are positions of parameters, since which parameters there are is guarded.
        """
        tensors: dict[Any, Tensor] = {}
        others: dict[Any, Any] = {}
        state = self.__dict__["state"]
        for k, group in enumerate(self.param_groups):
            tensors.update({(k, *slot): t for slot, t in group._slots.items()})
            for place, p in enumerate(group["params"] if self._is_followed else ()):
                for name, value in state.get(p, {}).items():
                    (tensors if isinstance(value, Tensor) else others)[k, place, name] = value
        return tensors, others

    def kept(self) -> Callable[[], None]:
        """How to put back what it keeps now, if what is begun for a compiled step is discarded."""
        return kept_state(self)

    def catch_up(self, slots: Iterable[Any], moves: Iterable[frozenset[int]]) -> None:
        """Have the places that a compiled step found when it was captured, as ``step`` would make them now.

        ``moves``: the parameters (by id) of its calls of ``step``.
        """
        for k, name, place in slots:
            if k < len(self.param_groups) and name in self.param_groups[k] and isinstance(name, str):
                self.param_groups[k].slot(name, place)
        before = stepping.optimizer, stepping.call
        for moved in moves:
            stepping.optimizer, stepping.call = self, StepCall()
            try:
                with aj.no_grad():
                    groups = [(p, group) for group in self.param_groups for p in group["params"] if id(p) in moved]
                    self._make_ready([(p, p, self.state[p], group) for p, group in groups])
            finally:
                stepping.optimizer, stepping.call = before

    # ---- saving and loading

    def state_dict(self) -> dict[str, Any]:
        """State and groups with parameters replaced by numbers, as torch's: ``{"state": ..., "param_groups": ...}``."""
        for hook in self._state_hooks["state_dict_pre"].values():
            hook(self)
        numbers: dict[int, int] = {}
        groups = []
        for group in self.param_groups:
            for p in group["params"]:
                numbers.setdefault(id(p), len(numbers))
            packed = {name: group[name] for name in group if name != "params"}
            packed["params"] = [numbers[id(p)] for p in group["params"]]
            groups.append(packed)
        state = {
            (numbers[id(p)] if isinstance(p, Tensor) else p): dict(value) if type(value) is ParameterState else value
            for p, value in self.__dict__["state"].items()
            if value
        }
        found: dict[str, Any] = {"state": state, "param_groups": groups}
        for hook in self._state_hooks["state_dict_post"].values():
            replaced = hook(self, found)
            found = found if replaced is None else replaced
        return found

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over state and options of a ``state_dict``; ValueError when its groups do not match.

        Tensors are copied, and cast to the dtype of their parameter and moved to its device (``step`` excepted).
        """
        count_change(self._made_in, "state")
        state_dict = dict(state_dict)
        for hook in self._state_hooks["load_state_dict_pre"].values():
            replaced = hook(self, state_dict)
            state_dict = state_dict if replaced is None else replaced
        saved_groups = state_dict["param_groups"]
        check_saved(self.param_groups, saved_groups)
        numbers = chain.from_iterable(group["params"] for group in saved_groups)
        params = chain.from_iterable(group["params"] for group in self.param_groups)
        by_number = dict(zip(numbers, params, strict=True))
        state: defaultdict[Any, dict[str, Any]] = defaultdict(dict)
        copies: dict[Any, Tensor] = {}  # one tensor for two parameters stays one: counters are shared
        for number, value in state_dict["state"].items():
            p = by_number.get(number)
            state[number if p is None else p] = _copied(value, p, copies)
        self.state = state
        for group, saved in zip(self.param_groups, saved_groups, strict=True):
            group.update({name: deepcopy(value) for name, value in saved.items() if name != "params"})
        bump_guard_epoch()
        for hook in self._state_hooks["load_state_dict_post"].values():
            hook(self)

    # ---- hooks

    def register_step_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call ``hook(optimizer, args, kwargs)`` before every step; it may return new ``(args, kwargs)``."""
        return add_hook(self._step_pre_hooks, hook)

    def register_step_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call ``hook(optimizer, args, kwargs)`` after every step."""
        return add_hook(self._step_post_hooks, hook)

    def register_state_dict_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call ``hook(optimizer)`` before ``state_dict``."""
        return add_hook(self._state_hooks["state_dict_pre"], hook, prepend)

    def register_state_dict_post_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call ``hook(optimizer, state_dict)`` after ``state_dict``; it may return another one."""
        return add_hook(self._state_hooks["state_dict_post"], hook, prepend)

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call ``hook(optimizer, state_dict)`` before ``load_state_dict``; it may return another one."""
        return add_hook(self._state_hooks["load_state_dict_pre"], hook, prepend)

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call ``hook(optimizer)`` after ``load_state_dict``."""
        return add_hook(self._state_hooks["load_state_dict_post"], hook, prepend)


def _in_turn(moving: Iterable[Moving]) -> Iterator[Moving]:
    for item in moving:
        if stepping.call is not None:
            stepping.call.parameter = item[0]
        yield item


def _in_parts(state: dict[str, Any]) -> dict[str, Any]:
    return {k: aj.view_as_real(v) if isinstance(v, Tensor) and v.is_complex() else v for k, v in state.items()}


def _copied(value: Any, p: Tensor | None, copies: dict[Any, Tensor], name: str = "") -> Any:
    """A copy of loaded state: tensors in the dtype and on the device of their parameter, counters on the CPU."""
    if isinstance(value, Tensor):
        is_counter = name == "step"
        dtype = p.dtype if p is not None and not is_counter and p.is_floating_point() else value.dtype
        place = CPU if is_counter else value.device if p is None else p.device
        if (id(value), dtype, place) not in copies:
            with aj.no_grad():
                copies[id(value), dtype, place] = value.detach().clone().to(place, dtype)
        return copies[id(value), dtype, place]
    if isinstance(value, dict):
        return {key: _copied(item, p, copies, str(key)) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_copied(item, p, copies) for item in value)
    return deepcopy(value)
