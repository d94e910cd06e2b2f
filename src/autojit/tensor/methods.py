"""Attaching functions to Tensor: each is defined once as a function and serves as a method too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from autojit.core.errors import UsageError
from autojit.core.source import here
from autojit.ir.op import Op, bind
from autojit.tensor import (
    conversion,
    copying,
    dispatch,
    exchange,
    factories,
    functions_counted,
    functions_derived,
    functions_elementwise,
    functions_indexing,
    functions_matrix,
    functions_reduction,
    functions_scatter,
    functions_shape,
    functions_special,
    functions_statistics,
    functions_views,
    gradients,
    indexing,
    layouts,
    legacy,
    memory,
    operators,
    other_memory,
    random,
    removed,
)  # fmt: skip
from autojit.tensor.argument_errors import with_argument_errors
from autojit.tensor.expected_shape import ExpectedShape
from autojit.tensor.inplace import check_writable, copy_into, in_place, in_place_method
from autojit.tensor.method_forms import has_axis, method_of, with_numpy_names
from autojit.tensor.node import move_retained
from autojit.tensor.op_node import rename_node
from autojit.tensor.out_arguments import NAMES as WITH_OUT
from autojit.tensor.out_arguments import with_layout, with_out
from autojit.tensor.recording import refresh_view
from autojit.tensor.refused_dtypes import REFUSED
from autojit.tensor.state import become, state
from autojit.tensor.storage import NORMAL, View
from autojit.tensor.tensor import Tensor, is_scalar_number, storage_chain, storage_of, type_of

FAMILIES = (
    functions_elementwise, functions_reduction, functions_shape, functions_views, functions_indexing, functions_special,
    functions_derived, functions_scatter, functions_statistics, functions_matrix, functions_counted,
)  # fmt: skip

ALIASES = {
    "subtract": "sub", "multiply": "mul", "divide": "div", "true_divide": "div", "negative": "neg", "absolute": "abs",
    "arcsin": "asin", "arccos": "acos", "arctan": "atan", "arcsinh": "asinh", "arccosh": "acosh", "arctanh": "atanh",
    "arctan2": "atan2", "greater": "gt", "greater_equal": "ge", "less": "lt", "less_equal": "le", "not_equal": "ne",
    "clip": "clamp", "fix": "trunc", "concat": "cat", "concatenate": "cat", "swapdims": "transpose",
    "moveaxis": "movedim", "ger": "outer", "row_stack": "vstack", "conj_physical": "conj",
}  # fmt: skip

ONLY_FUNCTIONS = {
    "cat", "stack", "hstack", "vstack", "meshgrid", "einsum", "broadcast_tensors", "broadcast_shapes", "complex",
    "polar", "tensordot", "tril_indices", "triu_indices", "atleast_1d", "atleast_2d",
    "one_hot_like", "broadcastable_sum", "real", "imag", "concat", "concatenate", "row_stack", "neg_op",
    "sign_op", "square_op", "sizes_of", "vander", "view_as_real", "view_as_complex", "chain_matmul", "block_diag",
    "axes_of", "extent", "true_positions",
    "cartesian_prod", "combinations", "dstack", "atleast_3d", "trapezoid", "trapz", "cdist", "pdist",
    "column_stack", "cumulative_trapezoid", "gradient", "lobpcg", "nuclear_norm", "pca_lowrank", "svd_lowrank",
}  # fmt: skip
ONLY_METHODS = {
    "view", "view_as", "reshape_as", "expand", "expand_as", "repeat", "sum_to_size", "neg_op", "sign_op", "square_op",
    "broadcastable_sum", "one_hot_like", "sizes_of", "axes_of",
    "true_positions", "extent",
}  # fmt: skip

IN_PLACE = (
    "add", "sub", "mul", "div", "floor_divide", "remainder", "fmod", "pow", "neg", "abs", "sign", "exp", "exp2",
    "expm1",
    "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "sigmoid", "sin", "cos", "tan", "asin", "acos", "atan",
    "sinh", "cosh",
    "tanh", "asinh", "acosh", "atanh", "reciprocal", "square", "relu", "floor", "ceil", "trunc", "frac", "round",
    "clamp",
    "clamp_min", "clamp_max", "lerp", "addcmul", "addcdiv", "atan2", "hypot", "copysign", "nextafter", "eq", "ne",
    "lt", "le",
    "gt", "ge", "logical_and", "logical_or", "logical_xor", "logical_not", "bitwise_and", "bitwise_or", "bitwise_xor",
    "bitwise_not", "bitwise_left_shift", "bitwise_right_shift", "masked_fill", "masked_scatter", "index_add",
    "index_copy",
    "index_fill", "index_put", "put", "scatter", "scatter_add", "tril", "triu", "cumsum", "cumprod", "addmm", "addmv",
    "addr",
    "baddbmm", "nan_to_num", "xlogy", "heaviside", "logit", "erf", "erfc", "erfinv", "lgamma", "digamma", "subtract",
    "multiply", "divide", "negative", "absolute", "clip", "fix", "true_divide", "arccos", "arcsin", "arctan", "arccosh",
    "arcsinh", "arctanh", "arctan2", "greater", "greater_equal", "less", "less_equal", "not_equal", "sgn", "deg2rad",
    "rad2deg", "sinc", "ldexp", "float_power", "renorm", "mvlgamma", "polygamma", "addbmm", "conj_physical",
    "igamma", "igammac", "scatter_reduce", "index_reduce",
)  # fmt: skip
COMPARING = (
    "eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor", "logical_not", "greater",
    "greater_equal", "less", "less_equal", "not_equal",
)  # fmt: skip


def functions() -> dict[str, Callable[..., Any]]:
    """Every public function of the families by name, aliases included."""
    found: dict[str, Callable[..., Any]] = {}
    for family in FAMILIES:
        for name, value in vars(family).items():
            is_own = getattr(value, "__module__", "").startswith("autojit.tensor.functions")
            if callable(value) and is_own and not name.startswith("_") and not isinstance(value, type):
                found[name] = value
    found |= {alias: found[name] for alias, name in ALIASES.items() if name in found}
    return found


def fill_(self: Tensor, value: Any) -> Tensor:
    """Every element becomes ``value`` (a number or a 0-d tensor)."""
    if not is_scalar_number(value) and type_of(value).ndim:
        raise UsageError(
            f"fill_ only supports 0-dimension value tensor but got tensor with {type_of(value).ndim} dimensions."
        )
    if is_scalar_number(value):
        value = self._literal(value, type_of(self).with_shape(()))
    return copy_into(self, value, "fill_")


def zero_(self: Tensor) -> Tensor:
    """Every element becomes 0."""
    return copy_into(self, self._literal(0, type_of(self).with_shape(())), "zero_")


def copy_(self: Tensor, other: Any, non_blocking: bool = False) -> Tensor:
    """The elements of ``other``, converted and broadcast."""
    return copy_into(self, other if isinstance(other, Tensor) else factories.as_tensor(other), "copy_")


def fill_diagonal_(self: Tensor, fill_value: Any, wrap: bool = False) -> Tensor:
    """Every element of the main diagonal becomes ``fill_value``; ``wrap`` goes on below a tall matrix's square."""
    shape = type_of(self).shape
    if len(shape) < 2 or (len(shape) > 2 and len(set(shape)) > 1):
        raise UsageError(
            "dimensions must larger than 1" if len(shape) < 2 else "all dimensions of input must be of equal length",
            {"input": self},
        )
    if len(shape) > 2:
        self[(factories.arange(shape[0]),) * len(shape)] = fill_value
        return self
    for start in range(0, shape[0] if wrap else 1, shape[1] + 1):
        self[start:].diagonal().fill_(fill_value)
    return self


def apply_(self: Tensor, callable: Callable[[Any], Any]) -> Tensor:
    """Replace every element by what a Python function makes of it; not recorded, only for tensors without gradient."""
    if self.requires_grad:
        raise UsageError("Can't call apply_() on Variable that requires grad. Use var.detach().apply_() instead.")
    values = [callable(v) for v in self.reshape(-1).tolist()]
    return copy_into(self, factories.tensor(values, dtype=type_of(self).dtype).reshape(type_of(self).shape), "apply_")


def map_(self: Tensor, other: Tensor, callable: Callable[[Any, Any], Any]) -> Tensor:
    """Replace every element by what a Python function makes of it and the element of another tensor."""
    if self.requires_grad or other.requires_grad:
        raise UsageError("Can't call map_() on Variable that requires grad. Use var.detach().map_() instead.")
    both = zip(self.reshape(-1).tolist(), other.expand(type_of(self).shape).reshape(-1).tolist(), strict=True)
    values = [callable(a, b) for a, b in both]
    return copy_into(self, factories.tensor(values, dtype=type_of(self).dtype).reshape(type_of(self).shape), "map_")


def where_method(self: Tensor, condition: Tensor, other: Any) -> Tensor:
    """This tensor's elements where the condition holds, else ``other``."""
    found: Tensor = functions_elementwise.where(condition, self, other)
    return found


def polygamma_method(self: Tensor, n: int) -> Tensor:
    """The n-th derivative of ``digamma``."""
    return functions_special.polygamma(n, self)


def _comparing(name: str, function: Callable[..., Any]) -> Callable[..., Tensor]:
    """In-place comparisons keep the tensor's dtype."""

    def compare(self: Tensor, *arguments: Any) -> Tensor:
        return in_place(self, name, lambda x, *rest: function(x, *rest).to(type_of(x).dtype), arguments, {})

    compare.__name__ = compare.__qualname__ = name
    return compare


_NAMES_IN_PLACE = {"SqueezeBackward0": "SqueezeBackward3", "SqueezeBackward1": "SqueezeBackward4"}


def take_form(x: Tensor, chain: Sequence[Op], name: str, is_followed: bool = False) -> None:
    """Let a tensor become the views ``chain`` of itself; ``is_followed``: by a history that goes with its new form."""

    def shown(x: Tensor) -> Any:
        for op in chain:
            x = bind(op, x)
        return x

    _shape_changing(name, shown, is_followed)(x)


def _shape_changing(name: str, function: Callable[..., Any], is_followed: bool = False) -> Callable[..., Tensor]:
    """``unsqueeze_`` and its like: the tensor itself becomes the view."""

    def change(self: Tensor, *arguments: Any, **options: Any) -> Tensor:
        check_writable(self, name)
        if state.trace is not None and self._array is not None and not state.trace.has_begun(self):
            state.trace.cannot(f"the step gives a tensor that exists outside it another shape by {name}()")
        before, storage = self._view, storage_of(self)
        seen = function(self, *arguments, **options)
        if seen._grad_fn is not None and seen is not self:
            found = type(seen._grad_fn).__name__
            rename_node(seen, _NAMES_IN_PLACE.get(found, found.replace("Backward0", "Backward1")))
        if state.layers:
            become(self, seen)
        if seen._view is not None and seen._view.base is self:
            self._view = View(None, storage_chain(seen), None, storage)
        else:
            self._view = seen._view
        if self._view is not None:
            self._view.creation = NORMAL if before is None else before.creation
        if seen._grad_fn is not None:
            move_retained(self, seen._grad_fn)
        for slot in ("_array", "_value", "_type"):
            setattr(self, slot, getattr(seen, slot))
        if seen._grad_fn is not None:
            self._grad_fn, self._output_nr = seen._grad_fn, seen._output_nr
        elif self._requires_grad and seen is not self and not is_followed:
            _leave_unrecorded(self)
        storage.bump(name, here())
        if self._view is not None:
            self._view.value_changes = storage.changes
        return self

    change.__name__ = change.__qualname__ = name
    return change


def _leave_unrecorded(x: Tensor) -> None:
    """A tensor with a history has got another form that nobody recorded.

    A view finds its history from its base, as its version has changed; others keep theirs.
    """
    view = x._view
    if view is not None and view.base is not None and not view.creation:
        if x._grad_fn is not None:
            refresh_view(x)
        return
    is_noted = state.trace is not None and state.trace.note_form(x)
    if x._grad_fn is not None and not is_noted:
        x._grad_fn.register_prehook(ExpectedShape(x._grad_fn, x._output_nr))


def _text(self: Tensor, *, tensor_contents: Any = None) -> str:
    """The tensor as torch prints it; ``printing`` is imported when it is first needed."""
    from autojit.tensor.printing import to_text

    return to_text(self)


def _method(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    method = method_of(function, name)
    method = with_numpy_names(method) if has_axis(method) else method
    return with_argument_errors(method) if name in REFUSED else method


def _function(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    if name in WITH_OUT:
        made = with_out(function)
    elif has_axis(function):
        made = with_numpy_names(function)
    else:
        return with_argument_errors(function)
    return with_argument_errors(made) if name in REFUSED else made


def _taking_like(method: Any, in_place_form: Any) -> Any:
    """The in-place form, which says that it takes what the method takes."""
    in_place_form.__wrapped__ = method
    return in_place_form


def attach() -> dict[str, Callable[..., Any]]:
    """Give Tensor its methods; returns the functions for the public namespace."""
    found = functions()
    methods: dict[str, Any] = {n: _method(n, f) for n, f in found.items() if n not in ONLY_FUNCTIONS}
    methods["polygamma"] = polygamma_method
    for name in IN_PLACE:
        if name in found:
            maker = _comparing if name in COMPARING else in_place_method
            source = methods[name] if name in REFUSED or name == "polygamma" or has_axis(found[name]) else found[name]
            methods[f"{name}_"] = _taking_like(methods[name], maker(f"{name}_", source))
    for name in ("squeeze", "unsqueeze", "transpose", "t", "swapaxes", "swapdims", "as_strided"):
        methods[f"{name}_"] = _taking_like(methods[name], _shape_changing(f"{name}_", found[name]))
    methods |= {"fill_": fill_, "zero_": zero_, "copy_": copy_, "where": where_method}
    methods |= {"fill_diagonal_": fill_diagonal_, "apply_": apply_, "map_": map_}
    methods |= {"__getitem__": indexing.getitem, "__setitem__": indexing.setitem}
    methods |= {"__repr__": _text, "__str__": _text}
    for module in (
        conversion,
        dispatch,
        exchange,
        factories,
        gradients,
        operators,
        random,
        removed,
        memory,
        other_memory,
        copying,
        legacy,
        layouts,
    ):
        methods |= module.METHODS
    methods |= {n: with_layout(f) for n, f in methods.items() if n.startswith("new_")}
    for name, method in methods.items():
        setattr(Tensor, name, method_of(method))
    for name in gradients.PERMANENT:
        setattr(Tensor, name, gradients.permanent(name, vars(Tensor)[name]))
    public = {n: _function(n, f) for n, f in found.items() if n not in ONLY_METHODS}
    in_place_functions = {n: f for n, f in methods.items() if n.endswith("_") and not n.startswith("_")}
    return {**public, **{n: f for n, f in in_place_functions.items() if n.removesuffix("_") in public or n == "zero_"}}
