"""From what ``forward`` returned to the results of a call: each output is connected to the node as torch connects it.

An output is one of five: no tensor; a tensor without derivative; an input changed in place, whose history is rebased;
an input returned as it is, which becomes a view with the call as its history; a new tensor. Views that leave a custom
function are marked, because a later in-place change could not use the user's ``backward``.
"""

from __future__ import annotations

from typing import Any

from autojit.autograd.function_context import BackwardCFunction, part_of
from autojit.core.errors import DifferentiationError
from autojit.core.source import here
from autojit.core.user_warnings import warn
from autojit.dispatch.dispatch import attach_views
from autojit.functions.overridable import overrides
from autojit.history.recording import meta_of, wants_grad
from autojit.history.saved import connected
from autojit.history.view_rules import forbidden_view
from autojit.history.writes import rebase
from autojit.tensor import Tensor
from autojit.tensor.storage import CUSTOM_FUNCTION, MULTIPLE_VIEWS, NORMAL
from autojit.tensor.tensor import alias, storage_of, type_of


def connect(ctx: BackwardCFunction, arguments: list[Any], outputs: tuple[Any, ...], recorded: bool) -> list[Any]:
    """The results of a call, connected to ``ctx`` where they have a derivative and ``recorded`` says so.

    Raises:
        RuntimeError: what ``mark_dirty`` and ``mark_non_differentiable`` said does not fit the outputs.
    """
    if ctx._is_pure_view and (len(outputs) > 1 or sum([isinstance(a, Tensor) for a in arguments]) > 1):
        raise RuntimeError(
            "Pure view custom Function can only have one input Tensor and one output Tensor. Open an issue if you need "
            f"to support more. ({ctx.name()} has {len(arguments)} arguments and {len(outputs)} outputs)"
        )
    if recorded and len(outputs) == 1 and _is_new(outputs[0], arguments) and _is_unmarked(ctx):
        t = outputs[0]
        t._requires_grad, t._grad_fn, t._output_nr = True, ctx, 0
        ctx.out_metas = (meta_of(t),)
        return [t]
    parts = tuple([part_of(o) for o in outputs])
    results = _connect_parts(ctx, [part_of(a) for a in arguments], parts, recorded)
    forms = {k: o for k, (o, part) in enumerate(zip(outputs, parts, strict=True)) if o is not part}
    if forms:
        ctx.output_forms = {k: o._with_part(alias(parts[k])) for k, o in forms.items()}
    return [forms[k]._with_part(t) if k in forms else t for k, t in enumerate(results)]


def _is_new(o: Any, arguments: list[Any]) -> bool:
    """Whether an output is a plain differentiable tensor that ``forward`` made: the usual case, and the short way."""
    if type(o) is not Tensor or o._view is not None or not type_of(o).dtype.is_differentiable:
        return False
    for a in arguments:  # noqa: SIM110 (a loop is four times as fast as any)
        if a is o:
            return False
    return True


def _is_unmarked(ctx: BackwardCFunction) -> bool:
    return ctx.dirty_tensors is None and ctx.non_differentiable is None


def _connect_parts(
    ctx: BackwardCFunction, arguments: list[Any], outputs: tuple[Any, ...], recorded: bool
) -> list[Any]:  # fmt: skip
    given = {id(a) for a in arguments if isinstance(a, Tensor)}
    if _is_unmarked(ctx):
        return _connected(ctx, given, outputs, recorded, set(), set())
    dirty = _marked(ctx, "dirty_tensors", "mark_dirty can only accept variables")
    constant = _marked(ctx, "non_differentiable", "mark_non_differentiable only accepts variable arguments")
    if not dirty <= {id(o) for o in outputs}:
        raise RuntimeError(
            "Some elements marked as dirty during the forward method were not returned as output. The inputs that "
            "are modified inplace must all be outputs of the Function."
        )
    for t in ctx.dirty_tensors or ():
        storage_of(part_of(t)).bump(ctx.name(), here())
    if not dirty <= given:
        what = (
            "ctx.mark_dirty() received a tensor that was not an input. Only input Tensors that have been mutated "
            "should be passed to ctx.mark_dirty()."
        )
        if any(id(o) in dirty - given and _is_view(o) for o in outputs):
            raise RuntimeError(what)  # a view of a tensor that nobody outside knows: nothing there to change
        warn(what, UserWarning)
    return _connected(ctx, given, outputs, recorded, dirty, constant)


def _is_view(t: Tensor) -> bool:
    return t._view is not None and t._view.base is not None


def _marked(ctx: BackwardCFunction, attribute: str, what: str) -> set[int]:
    found = ctx._tuple_of(attribute)
    for place, t in enumerate(found):
        if not isinstance(t, Tensor):
            raise RuntimeError(f"{what}, but argument {place} is of type {type(t).__name__}")
    return {id(part_of(t)) for t in found}


def _connected(
    ctx: BackwardCFunction, given: set[int], outputs: tuple[Any, ...], recorded: bool, dirty: set[int],
    constant: set[int],
) -> list[Any]:  # fmt: skip
    ctx.constants_of_call = frozenset(k for k, o in enumerate(outputs) if id(o) in constant)
    results: list[Any] = []
    for number, o in enumerate(outputs):
        if not isinstance(o, Tensor):
            results.append(o)
            continue
        has_derivative = recorded and id(o) not in constant and type_of(o).dtype.is_differentiable
        t = o
        if not has_derivative:
            if id(o) not in dirty or wants_grad(o):
                t = _without_history(o, id(o) in given)
        elif id(o) in dirty:
            _check_dirty(ctx, o, len(outputs))
            rebase(o, connected(o, (ctx, number)))
            if o._grad_fn is ctx:
                o._output_nr = number
        else:
            t = _view_of_input(o) if id(o) in given else o
            t._requires_grad, t._grad_fn, t._output_nr = True, ctx, number
        results.append(t)
    if recorded:
        _finish(ctx, results, given & dirty)
    return results


def _finish(ctx: BackwardCFunction, results: list[Any], rebased: set[int]) -> None:
    ctx.out_metas = [meta_of(t) if isinstance(t, Tensor) else None for t in results]
    several = sum(isinstance(t, Tensor) and t._grad_fn is ctx for t in results) > 1
    for t in results:
        view = t._view if isinstance(t, Tensor) and id(t) not in rebased else None
        if view is not None and view.base is not None:
            view.creation = NORMAL if ctx._is_pure_view else MULTIPLE_VIEWS if several else CUSTOM_FUNCTION
            view.base_fn = view.base._grad_fn


def _view_of_input(x: Tensor) -> Tensor:
    made = alias(x, type(x) if overrides(type(x)) else Tensor)  # as a class makes of the view that torch takes
    attach_views((), x, made)
    return made


def _without_history(o: Tensor, is_input: bool) -> Tensor:
    """An output without derivative; a tensor that ``forward`` made itself loses the history it has."""
    if is_input:
        o = alias(o) if wants_grad(o) else _view_of_input(o)
    if o._view is not None and o._view.base is not None:
        o._view.creation = CUSTOM_FUNCTION
    elif not is_input and wants_grad(o):
        o._requires_grad, o._grad_fn, o._output_nr, o._accumulator = False, None, 0, None
    return o


def _check_dirty(ctx: BackwardCFunction, x: Tensor, count: int) -> None:
    view = x._view
    if view is None or view.base is None:
        if x._requires_grad and x._grad_fn is None:
            raise DifferentiationError(
                "a leaf Variable that requires grad has been used in an in-place operation.",
                {"function": ctx.name(), "leaf": x},
                "give the function a clone() of the leaf",
            )
        return
    if count > 1:
        raise RuntimeError(
            "If your Function modifies inplace an input that is a view of another Tensor, your Function cannot return "
            "more than one Tensor. Give it a clone() of the view, or split it into two Functions, one of which changes "
            "the view and returns nothing else."
        )
    if view.creation:
        raise forbidden_view(x, "mark_dirty")
    if view.base._requires_grad and view.base._grad_fn is None:
        raise DifferentiationError(
            "a view of a leaf Variable that requires grad is being used in an in-place operation.",
            {"function": ctx.name(), "view": x, "leaf": view.base},
            "give the function a clone() of the view",
        )
