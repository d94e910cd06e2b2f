"""Custom functions inside forward-mode levels and batches: where ``jvp``, ``vmap`` and ``generate_vmap_rule`` count.

How to read: ``call_in_layer`` takes the innermost layer off and calls the function below it. A forward-mode level then
asks the user's ``jvp`` for the tangents. A batch asks the user's ``vmap``, or, with ``generate_vmap_rule``, calls a
function derived from the user's (``_over_batch``) whose every method runs the user's on the elements of a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from autojit.autograd.forward_level import ForwardLevel, check_tangent
from autojit.autograd.function_context import FunctionCtx
from autojit.dispatch.batch_layer import BatchLayer
from autojit.dispatch.promotion import cast
from autojit.functions.shape import movedim
from autojit.tensor import Tensor
from autojit.tensor.state import below, state, with_layers
from autojit.tensor.tensor import storage_of, type_of


class VmapInfo(NamedTuple):
    """What ``vmap(info, in_dims, *args)`` of a custom function learns about the batch."""

    batch_size: int
    randomness: str


class Called(NamedTuple):
    """A call of a custom function: its ctx, its results, and whether ``forward`` returned a tuple."""

    ctx: Any
    results: list[Any]
    is_tuple: bool


def call_in_layer(
    cls: Any, arguments: Sequence[Any], options: dict[str, Any], call: Callable[..., Called]
) -> Called | None:
    """Call a custom function inside the innermost layer; ``call(cls, arguments, options)`` is the way to call one.

    None: the layer is there for the ops inside the function only, which is to be called as without a layer.
    """
    layer = state.layers[-1]
    if isinstance(layer, ForwardLevel):
        return _push(layer, cls, arguments, options, call)
    if isinstance(layer, BatchLayer):
        return _batch(layer, cls, arguments, options, call)
    found: Called | None = layer.call_function(cls, arguments, options, call)
    return found


def base_of(cls: Any) -> Any:
    """Function itself, whose methods a custom function has where it does not define them."""
    return next(c for c in cls.__mro__ if "is_base" in vars(c))


# -- forward mode


def _push(
    level: ForwardLevel, cls: Any, arguments: Sequence[Any], options: dict[str, Any], call: Callable[..., Called]
) -> Called:
    given = [*arguments, *options.values()]
    with below(level):
        x_dots = [level.tangent(a) if isinstance(a, Tensor) else None for a in given]
        called = call(cls, arguments, options)
        if x_dots.count(None) < len(x_dots):
            versions = [None if t is None else storage_of(t).version for t in x_dots]
            y_dots = _tangents(cls, called, given, x_dots)
            for number, (y, y_dot) in enumerate(zip(called.results, y_dots, strict=True)):
                _give(level, called.ctx, number, y, y_dot, list(zip(given, x_dots, versions, strict=True)))
    return called


def _tangents(cls: Any, called: Called, given: Sequence[Any], x_dots: Sequence[Any]) -> list[Any]:
    """What the user's ``jvp`` returns, one entry per output."""
    ctx = called.ctx
    passed = []
    for x, x_dot in zip(given, x_dots, strict=True):
        if x_dot is None and ctx.materialize_grads and isinstance(x, Tensor) and type_of(x).dtype.is_differentiable:
            x_dot = Tensor._literal_of(0, type_of(x)).clone()
        passed.append(x_dot)
    if ctx.saved_for_forward is None:
        ctx.saved_for_forward = ()  # what was saved for backward only is not for jvp to read
    found = cls.jvp(ctx, *passed)
    y_dots = list(found) if isinstance(found, tuple) else [found]
    if len(y_dots) != len(called.results):
        raise RuntimeError(
            f"Function's jvp returned an invalid number of forward gradients (expected {len(called.results)} but got "
            f"{len(y_dots)})"
        )
    for number, y_dot in enumerate(y_dots):
        if not (y_dot is None or isinstance(y_dot, Tensor)):
            raise RuntimeError(f"expected Variable or None (got {type(y_dot).__name__}) for grad output {number}.")
    return y_dots


def _give(level: ForwardLevel, ctx: Any, number: int, y: Any, y_dot: Any, given: Sequence[Any]) -> None:
    if not isinstance(y, Tensor):
        return
    if number in ctx.constants_of_call or not type_of(y).dtype.is_differentiable:
        if y_dot is not None:
            raise RuntimeError(
                f"Function's jvp returned a gradient at position {number}, but the corresponding forward output is not "
                "a differentiable Tensor. You should return None at that position instead."
            )
        level.detached(y)
        return
    if y_dot is None:
        y_dot = Tensor._literal_of(0, type_of(y)).clone()
    y_dot = cast(y_dot, type_of(y).dtype)
    check_tangent(y, y_dot)
    changed = next((entry for entry in given if entry[0] is y), None)  # an input is returned only if marked dirty
    if changed is not None:
        _, x_dot, version = changed
        if x_dot is None:
            level.give(y, y_dot)
        elif storage_of(y_dot) is not storage_of(x_dot) or storage_of(x_dot).version == version:
            raise RuntimeError(
                "An inplace custom Function is not modifying the forward mode gradients inplace. If the forward is "
                "modifying an input inplace, then the jvp function must modify the corresponding gradient inplace."
            )
        return
    for x, x_dot, _ in given:
        if x_dot is not None and _share_base(x, y):
            _check_same_view(x_dot, y_dot)
    level.set(y, level.laid_out_like(y, y_dot) if y._view is None or y._view.base is None else y_dot)


def _check_same_view(x_dot: Tensor, y_dot: Tensor) -> None:
    """Raise unless the tangent of a view is a view of the tangent of what it views."""
    fix = "Return the same view of the tangent (x_dot.view_as(x_dot) for an input as it is), or a clone() from forward."
    if y_dot is x_dot or y_dot._view is None or y_dot._view.base is None:
        raise RuntimeError(
            "A custom Function's forward is returning a view (or an input as-is) but the jvp is not returning a view. "
            + fix
        )
    if storage_of(y_dot) is not storage_of(x_dot):
        of_what = "the given" if x_dot._view is None or x_dot._view.base is None else "the same base as the given"
        raise RuntimeError(
            f"A custom Function is returning a view but the jvp is not returning a view of {of_what} grad input. {fix}"
        )


def _share_base(x: Tensor, y: Tensor) -> bool:
    base = None if y._view is None else y._view.base
    return base is not None and (base is x or (x._view is not None and x._view.base is base))


# -- batches


def _batch(
    layer: BatchLayer, cls: Any, arguments: Sequence[Any], options: dict[str, Any], call: Callable[..., Called]
) -> Called:
    given = [*arguments, *options.values()]
    args, flags = _mapped(lambda a: _full(layer, a), given), _mapped(lambda a: _is_batched(layer, a), given)
    with below(layer):
        if not any(_leaves(flags)):
            return call(cls, arguments, options)
        has_own = cls.vmap is not base_of(cls).vmap
        if has_own and cls.generate_vmap_rule:
            raise RuntimeError(
                f"You tried to vmap over {cls.__name__}, but it has both generate_vmap_rule=True and an overridden "
                "vmap staticmethod. Please set generate_vmap_rule=False or delete the overridden vmap staticmethod to "
                "avoid ambiguity."
            )
        if has_own:
            if any(isinstance(leaf, Tensor) for leaf in _leaves(options)):
                raise NotImplementedError(
                    f"vmap of {cls.__name__}: a vmap staticmethod is given no kwarg-only Tensor args; pass "
                    f"{', '.join(options)} by position"
                )
            return _with_rule(layer, cls, args[: len(arguments)], flags[: len(arguments)], options)
        if not cls.generate_vmap_rule:
            raise RuntimeError(
                f"You tried to vmap over {cls.__name__}, but it does not have vmap support. Please override and "
                "implement the vmap staticmethod or set generate_vmap_rule=True."
            )
        called = call(_over_batch(cls, layer, flags, tuple(options)), args, {})
        called.ctx.saved_for_forward = None  # jvp has run: from now on ``saved_tensors`` are those for backward
        batched = called.ctx.batched_results
        elements = [layer.element(y) if flag else y for y, flag in zip(called.results, batched, strict=True)]
        return Called(called.ctx.of_elements, elements, called.is_tuple)


def _mapped(change: Callable[[Any], Any], value: Any) -> Any:
    """A nest of lists, tuples and dicts with every leaf changed."""
    if type(value) in (list, tuple):
        return type(value)(_mapped(change, part) for part in value)
    if type(value) is dict:
        return {key: _mapped(change, part) for key, part in value.items()}
    return change(value)


def _leaves(value: Any) -> list[Any]:
    """The leaves of such a nest."""
    found: list[Any] = []
    _mapped(found.append, value)
    return found


def _with_rule(
    layer: BatchLayer, cls: Any, args: Sequence[Any], flags: Sequence[Any], options: dict[str, Any]
) -> Called:
    """The results of the user's ``vmap``, with the batch axis brought to the front."""
    in_dims = _mapped(lambda is_batched: 0 if is_batched else None, tuple(flags))
    randomness = "error" if layer.randomness == "refused" else layer.randomness
    returned = cls.vmap(VmapInfo(layer.size, randomness), in_dims, *args, **options)
    if not isinstance(returned, tuple) or len(returned) != 2:
        got = f"{len(returned)} returns" if isinstance(returned, tuple) else f"a {type(returned).__name__}"
        raise RuntimeError(
            f"Expected the vmap staticmethod of {cls.__name__} to have two returns, an output and out_dims of the same "
            f"structure. Got {got} instead"
        )
    output, dims = returned
    is_tuple = isinstance(output, tuple)
    outputs = list(output) if is_tuple else [output]
    if dims is None or isinstance(dims, int):
        places = [dims] * len(outputs)
    elif is_tuple and isinstance(dims, tuple | list) and len(dims) == len(outputs):
        places = list(dims)
    else:
        raise RuntimeError(
            f"The vmap staticmethod of {cls.__name__} returned an incompatible (output, out_dims) tuple: "
            f"out_dims={dims} for {f'{len(outputs)} outputs' if is_tuple else 'one output'}; give one per output"
        )
    results = [
        y if dim is None or not isinstance(y, Tensor) else layer.element(y if dim == 0 else movedim(y, dim, 0))
        for y, dim in zip(outputs, places, strict=True)
    ]
    return Called(_ElementCtx(cls), results, is_tuple)


class _ElementCtx(FunctionCtx):
    """The ctx that the user's methods see when they run on the elements of a batch."""

    constants_of_call: frozenset[int] = frozenset()

    def __init__(self, cls: Any) -> None:
        self._forward_cls = cls
        self.saved_tensors: tuple[Any, ...] = ()
        self.needs_input_grad: tuple[bool, ...] = ()


def _over_batch(cls: Any, layer: BatchLayer, flags: Sequence[Any], names: tuple[str, ...]) -> Any:
    """The function of whole batches whose every method runs that of ``cls`` on the elements."""
    base = base_of(cls)
    takes_context = cls.setup_context is base.setup_context
    count = len(flags) - len(names)

    def forward(ctx: Any, *args: Any) -> Any:
        inner = ctx.of_elements = _ElementCtx(cls)
        inner.needs_input_grad = ctx.needs_input_grad
        with with_layers((*state.layers, layer)):
            given = _elements(layer, args, flags)
            arguments, options = given[:count], dict(zip(names, given[count:], strict=True))
            output = cls.forward(*((inner,) if takes_context else ()), *arguments, **options)
            if not takes_context:
                cls.setup_context(inner, arguments, output)
        if inner.dirty_tensors:
            raise RuntimeError(
                f"vmap: {cls.__name__} changes an input in place, which generate_vmap_rule does not cover; override "
                "the vmap staticmethod"
            )
        outputs = output if isinstance(output, tuple) else (output,)
        ctx.batched_results = [_is_batched(layer, y) for y in outputs]
        ctx.set_materialize_grads(inner.materialize_grads)
        ctx.mark_non_differentiable(*[_full(layer, y) for y in inner.non_differentiable or ()])
        saved, inner.saved_tensors = inner.to_save or (), tuple(inner.saved_for_forward or ())
        ctx.kept = [_is_batched(layer, t) for t in saved]
        ctx.save_for_backward(*[_full(layer, t) for t in saved])
        ctx.kept_for_forward = [_is_batched(layer, t) for t in inner.saved_tensors]
        ctx.save_for_forward(*[_full(layer, t) for t in inner.saved_tensors])
        inner.constants_of_call = frozenset(
            k for k, y in enumerate(outputs) if any(y is c for c in inner.non_differentiable or ())
        )
        results = tuple(_full(layer, y) for y in outputs)
        return results if isinstance(output, tuple) else results[0]

    def backward(ctx: Any, *bars: Any) -> Any:
        inner, saved = ctx.of_elements, ctx.saved_tensors
        new = BatchLayer(layer.size)
        with with_layers((*state.layers, new)):
            inner.saved_tensors = _elements(new, saved, ctx.kept)
            found = cls.user_backward()(inner, *_elements(new, bars, ctx.batched_results))
        results = list(found) if isinstance(found, tuple) else [found]
        given = [*flags, *[True] * len(results)]
        return tuple(_returned(new, x_bar, flag) for x_bar, flag in zip(results, given, strict=False))

    def jvp(ctx: Any, *x_dots: Any) -> Any:
        inner, saved = ctx.of_elements, ctx.saved_tensors
        new = BatchLayer(layer.size)
        with with_layers((*state.layers, new)):
            inner.saved_tensors = _elements(new, saved, ctx.kept_for_forward)
            found = cls.jvp(inner, *_elements(new, x_dots, flags))
        y_dots = found if isinstance(found, tuple) else (found,)
        results = [
            t if t is None or not flag else new.repeated(t) for t, flag in zip(y_dots, ctx.batched_results, strict=True)
        ]
        return tuple(results) if isinstance(found, tuple) else results[0]

    methods = {"forward": staticmethod(forward), "backward": staticmethod(backward), "jvp": staticmethod(jvp)}
    return type(cls)(cls.__name__, (base,), methods)


def _is_batched(layer: BatchLayer, t: object) -> bool:
    return isinstance(t, Tensor) and layer.full(t) is not None


def _full(layer: BatchLayer, t: Any) -> Any:
    return layer.full(t) if _is_batched(layer, t) else t


def _elements(layer: BatchLayer, values: Sequence[Any], flags: Sequence[Any]) -> tuple[Any, ...]:
    """The values, of the tensors that are flagged and there the elements along their first axis."""
    return tuple(_element(layer, value, flag) for value, flag in zip(values, flags, strict=True))


def _element(layer: BatchLayer, value: Any, flag: Any) -> Any:
    if value is None or flag is False:
        return value
    if isinstance(flag, dict):
        return {key: _element(layer, part, flag[key]) for key, part in value.items()}
    return layer.element(value) if flag is True else type(value)(_elements(layer, value, flag))


def _returned(layer: BatchLayer, x_bar: Any, is_batched: bool) -> Any:
    """The gradient of one input for the whole batch: the sum over it where the input is the same for all elements."""
    if not isinstance(x_bar, Tensor):
        return x_bar
    if is_batched:
        return layer.repeated(x_bar)
    full = layer.full(x_bar)
    return x_bar * layer.size if full is None else full.sum(0)
