"""Attaching functions to Tensor: each is written once, and what it was ``declared`` to be is made of it here."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

from autojit.core.source import here
from autojit.core.wrapping import named
from autojit.dispatch import dispatch
from autojit.dispatch.declared import DECLARED, Declaration
from autojit.dispatch.inplace import check_writable, in_place, in_place_method
from autojit.dispatch.old_overloads import has_old_overloads
from autojit.functions import comparison as functions_comparison
from autojit.functions import (
    conversion,
    copying,
    exchange,
    indexing,
    layouts,
    legacy,
    memory,
    new_methods,
    operators,
    other_memory,
    overridable,
    random,
    shared_memory,
    storages,
)
from autojit.functions import counted as functions_counted
from autojit.functions import derived as functions_derived
from autojit.functions import elementwise as functions_elementwise
from autojit.functions import index_functions as functions_indexing
from autojit.functions import matrix as functions_matrix
from autojit.functions import order as functions_order
from autojit.functions import products as functions_products
from autojit.functions import reduction as functions_reduction
from autojit.functions import scatter as functions_scatter
from autojit.functions import shape as functions_shape
from autojit.functions import special as functions_special
from autojit.functions import statistics as functions_statistics
from autojit.functions import views as functions_views
from autojit.functions import writing as functions_writing
from autojit.functions.argument_errors import with_argument_errors
from autojit.functions.expected_shape import ExpectedShape
from autojit.functions.method_forms import has_axis, method_of, with_numpy_names
from autojit.functions.out_arguments import making_out, with_layout, with_out
from autojit.functions.refused_dtypes import refused_kinds
from autojit.history import gradients  # fmt: skip
from autojit.history.op_node import rename_node
from autojit.history.recording import refresh_view
from autojit.ir.op import Op, bind
from autojit.tensor.node import move_retained
from autojit.tensor.state import become, state
from autojit.tensor.storage import NORMAL, View
from autojit.tensor.tensor import Tensor, storage_chain, storage_of, type_of

FAMILIES = (  # whose functions are declared
    functions_elementwise, functions_comparison, functions_reduction, functions_order, functions_shape, functions_views,
    functions_products, functions_indexing, functions_special, functions_derived, functions_scatter, functions_writing,
    functions_statistics, functions_matrix, functions_counted, new_methods,
)  # fmt: skip


def _comparing(name: str, function: Callable[..., Any]) -> Callable[..., Tensor]:
    """In-place comparisons keep the tensor's dtype."""

    def compare(self: Tensor, *arguments: object) -> Tensor:
        return in_place(self, name, lambda x, *rest: function(x, *rest).to(type_of(x).dtype), arguments, {})

    return named(compare, name)


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

    def change(self: Tensor, *arguments: object, **options: object) -> Tensor:
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

    return named(change, name)


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


def _text(self: Tensor, *, tensor_contents: object = None) -> str:
    """The tensor as torch prints it; ``printing`` is imported when it is first needed."""
    from autojit.functions.printing import to_text

    return to_text(self)


def _taking_like(method: object, in_place_form: Any) -> Any:
    """The in-place form, which says that it takes what the method takes."""
    in_place_form.__wrapped__ = method
    return in_place_form


_IN_PLACE_FORMS = {"values": in_place_method, "comparison": _comparing, "shape": _shape_changing}


def public_function(d: Declaration) -> Callable[..., Any]:
    """The function as the package has it: with ``out``, NumPy's names, and errors that name arguments."""
    function: Callable[..., Any] = d.function
    if d.is_factory:
        return with_layout(function) if d.out is None else making_out(function, d.out)
    if d.out is not None:
        made = with_out(function, d.out)
    elif has_axis(function):
        made = with_numpy_names(function)
    else:
        return with_argument_errors(function)
    return with_argument_errors(made) if refused_kinds(function) else made


def public_forms(d: Declaration, methods: dict[str, Callable[..., Any]] | None = None) -> dict[str, Callable[..., Any]]:
    """What the package has of a function, by name: the function and the in-place forms, which its methods are, too."""
    methods = methods_of(d) if methods is None else methods
    in_place_forms = {n: with_argument_errors(f) for n, f in methods.items() if n not in d.names}
    forms = dict.fromkeys(d.names, public_function(d)) | in_place_forms
    for name, form in forms.items():
        as_public(form, name)
    return forms


def as_public(function: Any, name: str) -> Any:
    """A function under the name by which programs have it: pickles find it there, and by its module nothing else."""
    home = vars(sys.modules[function.__module__]) if type(function) is FunctionType else None
    if home is not None and function.__module__ != "autojit" and home.get(function.__qualname__) is not function:
        function.__module__, function.__qualname__ = "autojit", name
    return function


def methods_of(d: Declaration) -> dict[str, Callable[..., Any]]:
    """The method of a function and its in-place forms, by name."""
    if d.method is False:
        return {}
    if d.is_factory:
        return {d.name: with_layout(d.function)}
    has_numpy_names, is_refusing = has_axis(d.function), bool(refused_kinds(d.function))
    method = method_of(d.function if d.method is True else d.method)
    method = with_numpy_names(method) if has_numpy_names else method
    is_other = is_refusing or has_numpy_names or d.method is not True
    is_told = d.reads_numbers and not has_numpy_names
    method = with_argument_errors(method) if is_refusing or is_told or has_old_overloads(d.name) else method
    made = dict.fromkeys(d.names, method)
    if d.in_place:
        form = _IN_PLACE_FORMS[d.in_place]
        source = method if is_other and d.in_place != "shape" else d.function
        in_place_forms = {f"{name}_": _taking_like(method, form(f"{name}_", source)) for name in d.names}
        told = with_argument_errors if d.reads_numbers else lambda form: form
        made |= {name: told(form) for name, form in in_place_forms.items()}
    return made


_LOOKED_AT_FIRST = (  # an argument, before any op does: what it is not, or may be too, is said by the signature
    "cholesky_solve", "equal", "is_set_to", "map_", "random_", "reshape_as", "set_", "triangular_solve", "view_as",
)  # fmt: skip


def attach() -> dict[str, Callable[..., Any]]:
    """Give Tensor its methods; returns the functions for the public namespace."""
    public: dict[str, Callable[..., Any]] = {}
    attached: dict[str, Any] = {}
    for d in DECLARED.values():
        made = methods_of(d)
        attached |= made
        if d.is_function:
            public |= public_forms(d, made)
    attached |= {"__getitem__": method_of(indexing.getitem), "__setitem__": method_of(indexing.setitem)}
    attached |= {"__repr__": _text, "__str__": _text}
    for module in (
        conversion, dispatch, exchange, gradients, operators, random, memory, other_memory, shared_memory, copying,
        legacy, layouts, overridable, storages,
    ):  # fmt: skip
        attached |= {
            name: method if isinstance(method, classmethod) else method_of(method)
            for name, method in module.METHODS.items()
        }
    for name in _LOOKED_AT_FIRST:
        attached[name] = with_argument_errors(attached[name])
    for name, method in attached.items():
        setattr(Tensor, name, method)
    for name in gradients.PERMANENT:
        setattr(Tensor, name, gradients.permanent(name, vars(Tensor)[name]))
    return public
