"""Arguments of a jitted call: their signature, and the traced stand-ins (shells) a capture gives the function.

Tensors and arrays become graph inputs, and so do numbers that change (``open_numbers.py``); everything else is baked in
and part of the signature. An argument whose memory the step also changes by another way (it is a parameter the step
updates, or overlaps another argument that is written) is *bound*: the capture treats it as state, and holds for this
very tensor.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from autojit.autograd.edges import zeros_of
from autojit.core.device import Device
from autojit.core.device_array import has_layout, packed
from autojit.core.dtypes import DType, dtype_of_numpy, float64, int64
from autojit.core.records import record
from autojit.core.types import Shape, TensorType
from autojit.core.wrapping import code_holder
from autojit.dispatch.dispatch import mark_inference
from autojit.functions.elementwise import add
from autojit.functions.memory import storage_offset
from autojit.history.gradients import hook_keys, hook_tables
from autojit.history.recording import lacks_history, wants_grad
from autojit.history.saved import accumulator_of
from autojit.ir.graph import Value
from autojit.ir.op import Ndarray
from autojit.jit.asked_attributes import attributes_in_signature
from autojit.jit.guards import is_value
from autojit.jit.line_by_line import WithoutHistory
from autojit.jit.numpy_arrays import TracedArray, arriving, followed
from autojit.jit.open_numbers import NumberClass, OpenLeaves, number_kind
from autojit.jit.pytree import Args, Kwargs, TreeSpec, flatten, leaves_of
from autojit.jit.trace import Trace
from autojit.jit.traced_number import TracedNumber
from autojit.ops.cotangent_masks import masking
from autojit.tensor.node import ZERO, LeafHooks, Node
from autojit.tensor.storage import INFERENCE_VIEW
from autojit.tensor.tensor import Tensor, alias, made_in_inference, type_of, wrap, wrap_value

GIVEN = ("tensor", "array")  # kinds of leaves that hold memory of the caller's
Key = tuple[tuple[Any, ...], tuple[Any, ...]]  # of a call: the modes that it runs in, and its signature
BAKED = (bool, int, float, complex, str, bytes, type(None), DType, Device)


class ArgumentNode(Node):
    """The history of an argument that is not a leaf: where the caller's own history begins.

    ``pending`` is the gradient that backward passes of the captured function have brought here; after the call it goes
    on through the caller's history. ``reward`` is one that the function has given to a sample.
    """

    reward: Tensor | None = None

    def __init__(self, leaf: Tensor, kind: TensorType) -> None:
        super().__init__()
        made_by = leaf._grad_fn
        assert made_by is not None
        self.made_by = made_by.name()
        self.takes_reward = made_by.takes_reward
        self.out_metas = [kind]
        self.pending: Tensor | None = None
        self.is_masked = False  # whether it may hold zeros of masked branches
        self.is_spent = False  # by a pass that keeps no graph: the caller's history is gone afterwards

    def release(self) -> None:
        self.is_spent = True

    def name(self) -> str:
        return self.made_by

    def run(self, grads: list[Any], wanted: tuple[bool, ...]) -> tuple[()]:
        grad = zeros_of((self, 0)) if grads[0] is ZERO else grads[0]
        if grad is not None:
            self.is_masked |= masking.is_on
            self.pending = grad if self.pending is None else add(self.pending, grad)
        return ()


@record(eq=False, frozen=False)
class ArgumentLeaf:
    """One leaf of the call's arguments.

    ``kind`` is "tensor" or "array" (``value`` and ``shell`` set), "number" (``value``, ``number`` and ``cell`` set),
    "twin" (the same tensor as leaf ``twin``), "bound" or "object" (``original`` is baked in).
    """

    kind: str
    original: Any = None
    value: Value | None = None
    shell: Tensor | None = None
    cell: Any = None  # 0-d float64 or int64 of an open number
    number: TracedNumber | TracedArray | None = None
    number_class: NumberClass | None = None
    twin: int = -1
    grad_value: Value | None = None  # the ``.grad`` the tensor had at the call
    grad_shell: Tensor | None = None
    grad_entry: Tensor | None = None  # ``grad_shell`` with the history it had at the start; None without one
    is_leaf: bool = True
    requires_grad: bool = False
    inference: bool = False  # made in inference mode
    tensor_type: type = Tensor
    entry: Tensor | None = None  # the shell with the history it had at the start; None without gradients
    node: Node | None = None  # of a leaf with hooks: the shell's, which lives as long as the capture

    def array(self, given: Any) -> Any:
        """The array of a call's argument as native code can address it; the cell of a number is native calls' own."""
        if self.cell is not None:
            return np.array(given, self.cell.dtype)
        return packed(given._array if isinstance(given, Tensor) else given)


def switched_on(arguments: Sequence[ArgumentLeaf]) -> list[int]:
    """The arguments that the function has let require gradients: from now on its results lead to them."""
    found = []
    for k, leaf in enumerate(arguments):
        shell = leaf.shell if leaf.kind == "tensor" and leaf.entry is None else None
        if shell is not None and shell._requires_grad and shell._grad_fn is None:
            leaf.entry = shell
            found.append(k)
    return found


def make_leaves(
    trace: Trace,
    leaves: Sequence[Any],
    open_numbers: OpenLeaves,
    bound: Collection[int],
    shapes: Mapping[int, Shape],
) -> list[ArgumentLeaf]:
    """Stand-ins for the leaves of a call; graph inputs are made in order. ``shapes``: of leaves with open sizes."""
    made: list[ArgumentLeaf] = []
    first: dict[int, int] = {}
    for k, leaf in enumerate(leaves):
        if k in bound:
            made.append(ArgumentLeaf("bound", leaf))
        elif isinstance(leaf, Tensor):
            if id(leaf) in first:
                made.append(ArgumentLeaf("twin", twin=first[id(leaf)]))
                continue
            first[id(leaf)] = k
            made.append(_tensor_leaf(trace, leaf, shapes.get(k)))
        elif isinstance(leaf, np.ndarray):
            found = _tensor_leaf(trace, arriving(leaf, shapes.get(k)), shapes.get(k))
            found.kind = "array"
            trace.arrays.append(found.shell)
            made.append(found)
        elif (known := open_numbers.class_of(k, leaf)) is not None:
            made.append(_number_leaf(trace, leaf, known))
        else:
            made.append(ArgumentLeaf("object", leaf))
    return made


def _number_leaf(trace: Trace, leaf: float | np.generic, known: NumberClass) -> ArgumentLeaf:
    dtype = dtype_of_numpy(leaf.dtype) if isinstance(leaf, np.generic) else float64 if known.kind is float else int64
    value = trace.builder.input(TensorType((), dtype))
    trace.number_inputs.add(value)
    cell = trace.known[value] = np.array(leaf, dtype.numpy)
    number: Any = TracedNumber(trace, wrap_value(value), known.kind, known.span)
    if isinstance(leaf, np.generic):
        number = followed(trace, wrap_value(value), leaf)
    return ArgumentLeaf("number", leaf, value, cell=cell, number=number, number_class=known)


def _tensor_leaf(trace: Trace, leaf: Tensor, shape: Shape | None) -> ArgumentLeaf:
    kind = type_of(leaf) if shape is None else type_of(leaf).with_shape(shape)
    value = trace.builder.input(kind)
    trace.known[value] = leaf._array
    shell = leaf._stand_in(wrap_value(value))
    shell._requires_grad = wants_grad(leaf)
    found = ArgumentLeaf("tensor", None, value, shell, is_leaf=leaf._grad_fn is None)
    found.requires_grad, found.tensor_type = shell._requires_grad, type(leaf)
    trace.give_tensor(shell, value, leaf, storage_offset(leaf))
    if leaf._view is not None and made_in_inference(leaf):
        found.inference = True
        mark_inference(shell)
    if shell._requires_grad:
        found.entry = _entry_of(trace, leaf, shell, kind)
    if found.is_leaf and any(hook_tables(leaf)):
        tables = (LeafHooks(table or ()) for table in hook_tables(leaf))  # copies; the node has those of the leaf's
        of_gradient, after_adding, of_node, after_node = tables
        shell._leaf_hooks, found.node = (of_gradient, after_adding), accumulator_of(shell)
        found.node.pre_hooks, found.node.post_hooks = of_node, after_node
    if leaf._grad is not None and found.is_leaf:  # also where the function lets it require gradients, and adds to it
        grad_kind = type_of(leaf._grad)
        found.grad_value = trace.builder.input(grad_kind if shape is None else grad_kind.with_shape(shape))
        trace.known[found.grad_value] = leaf._grad._array
        trace.give(found.grad_value, leaf._grad._array)
        found.grad_shell = shell._grad = wrap_value(found.grad_value)
        trace.gradients_given.append(found.grad_shell)
        if wants_grad(leaf._grad):
            found.grad_entry = _entry_of(trace, leaf._grad, found.grad_shell, grad_kind)
    return found


def _entry_of(trace: Trace, given: Tensor, shell: Tensor, kind: TensorType) -> Tensor:
    """A stand-in gets the history of the tensor that it stands for; what keeps that when the function changes it."""
    shell._requires_grad = True
    if given._grad_fn is None:
        return shell
    assert shell._value is not None
    entry = wrap_value(shell._value)
    entry._requires_grad = True
    shell._grad_fn = entry._grad_fn = ArgumentNode(given, kind)
    trace.onward.append(shell._grad_fn)
    return entry


def given_to_function(made: Sequence[ArgumentLeaf], leaves: Sequence[Any]) -> list[Any]:
    """What the function is called with during the capture."""
    shells = [made[leaf.twin].shell if leaf.kind == "twin" else leaf.shell for leaf in made]
    stand_ins = [shell if leaf.number is None else leaf.number for leaf, shell in zip(made, shells, strict=True)]
    return [given if x is None else x for x, given in zip(stand_ins, leaves, strict=True)]


def signature(
    leaves: Sequence[Any],
    tree: TreeSpec,
    open_numbers: OpenLeaves,
    shapes: Mapping[int, Shape],
    attributes: Collection[str] = (),
) -> tuple[Any, ...]:
    """What two calls must share to share a capture: structure, types, baked-in values, gradients in place.

    ``shapes``: of leaves some of whose sizes are left open; ``attributes``: of tensors, which the function asks for.

    Raises:
        WithoutHistory: a view requires gradients in a way that no stand-in shows.
    """
    first: dict[int, int] = {}
    parts: list[Any] = []
    for k, leaf in enumerate(leaves):
        if isinstance(leaf, Tensor):
            kind = type_of(leaf) if k not in shapes else type_of(leaf).with_shape(shapes[k])
            if leaf._view is not None and lacks_history(leaf):
                raise WithoutHistory(leaf)
            made = leaf._view is not None and made_in_inference(leaf)
            twin = first.setdefault(id(leaf), k)
            if wants_grad(leaf):
                hooks = () if leaf._grad_fn is not None else hook_keys(leaf)
                parts.append((kind, True, _gradient_there(leaf._grad), _history(leaf), type(leaf), twin, hooks, made))
            else:
                parts.append((kind, False, _gradient_there(leaf._grad), type(leaf), twin, made))
            parts[-1] += attributes_in_signature(leaf, attributes)
        elif k in shapes:
            parts.append(("array", shapes[k], *_plain_signature(leaf)[2:]))
        else:
            known = open_numbers.class_of(k, leaf)
            parts.append(_plain_signature(leaf) if known is None else known.name)
    return tree, tuple(parts)


def _history(leaf: Tensor) -> str:
    """What a step must know of how an argument was made."""
    node = leaf._grad_fn
    return "leaf" if node is None else "sample" if node.takes_reward else "made"


def _gradient_there(grad: Tensor | None) -> str:
    if grad is not None and lacks_history(grad):
        raise WithoutHistory(grad)
    return "" if grad is None else " with .grad that has a history" if wants_grad(grad) else " with .grad"


def _plain_signature(leaf: object) -> Any:
    if isinstance(leaf, np.ndarray):
        found = ("array", leaf.shape, leaf.dtype, *(() if type(leaf) is np.ndarray else (type(leaf),)))
        return (*found, "reversed") if min(leaf.strides, default=0) < 0 else found
    kind = number_kind(leaf)
    if kind is not None:
        return kind.__name__, repr(leaf)
    if isinstance(leaf, np.generic):
        return type(leaf), repr(leaf)
    if isinstance(leaf, BAKED) or is_value(leaf):
        return type(leaf), leaf
    return "object", id(leaf)


def leaf_names(function: Callable[..., Any], tree: TreeSpec) -> list[str]:
    """What messages call the leaves of a call: its parameters' names, numbered where one holds several."""
    args, kwargs = tree.children
    try:
        held = code_holder(function)
        names = list(inspect.signature(held).parameters)[int(held is not function) :]
    except (TypeError, ValueError):
        names = []
    names += [f"argument {k}" for k in range(len(names), len(args.children))]
    found: list[str] = []
    for name, child in (*zip(names, args.children, strict=False), *zip(kwargs.keys, kwargs.children, strict=True)):
        found += [name] if child.kind is None else [f"{name}[{k}]" for k in range(child.count)]
    return found


def difference_from(known: Sequence[Key], key: Key, names: Sequence[str]) -> str:
    """How a call's key, modes and signature, differs from the one captured last."""
    modes, new = key
    if modes[-1]:
        return "arguments share memory with what the step changes"
    old = next((o for m, o in reversed(known) if m[:-1] == modes[:-1] and o[0] == new[0]), known[-1][1])
    return "gradient mode changed" if old == new else describe_difference(old, new, names)


def describe_difference(old: tuple[Any, ...], new: tuple[Any, ...], names: Sequence[str]) -> str:
    """How a call's signature differs from another."""
    if old[0] != new[0]:
        return "arguments: structure changed (number, nesting or keywords)"
    for k, (a, b) in enumerate(zip(old[1], new[1], strict=True)):
        if a != b:
            name = names[k] if k < len(names) else f"leaf {k}"
            return f"argument {name}: {_shown(a)} -> {_shown(b)}"
    return "gradient mode changed"


def _shown(part: str | tuple[Any, ...]) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part[0], TensorType):
        more = f"{' requires_grad' if part[1] else ''}{part[2]}"
        more += "".join(f" {name}={value!r}" for name, value in part[8 if part[1] else 6 :])
        return f"{part[0]}{more}"
    if part[0] == "object":
        return "another object"
    if part[0] == "array":
        return f"array {part[2]}{list(part[1])}"
    return repr(part[1]) if not isinstance(part[0], str) else str(part[1])


class Packed(NamedTuple):
    """A call's arguments with copies in row-major order of the tensors in any other order."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    originals: list[Tensor]
    places: list[int]  # of these leaves


def copied_for(given: Tensor, array: Ndarray) -> Tensor:
    """A tensor that the native entry point takes for ``given``, with other memory."""
    made = alias(wrap(array), type(given))
    made._storage, made._requires_grad = None, given._requires_grad
    made._view = INFERENCE_VIEW if given._view is not None and made_in_inference(given) else None
    if _base_requires_grad(given):
        made._view = given._view  # for which the entry point refuses it
    return made


def _base_requires_grad(t: Tensor) -> bool:
    """Whether a tensor is a view whose own flag does not say all about its history."""
    base = None if t._view is None else t._view.base
    return base is not None and base._requires_grad


def in_row_major(args: Args, kwargs: Kwargs) -> Packed | None:
    """The arguments in row-major order; None where all are, or where one that is not takes part in differentiation."""
    leaves, tree = flatten((args, kwargs))
    originals: list[Tensor] = []
    places: list[int] = []
    copies: dict[int, Tensor] = {}  # one tensor given twice stays one
    for k, leaf in enumerate(leaves):
        if type(leaf) is not Tensor or not has_layout(leaf._array) or leaf._array.flags.c_contiguous:
            continue
        if leaf._requires_grad or leaf._grad_fn is not None or _base_requires_grad(leaf):
            return None
        originals.append(leaf)
        places.append(k)
        if id(leaf) not in copies:
            copies[id(leaf)] = wrap(packed(leaf._array))
        leaves[k] = copies[id(leaf)]
    if not originals:
        return None
    packed_args, packed_kwargs = tree.unflatten(leaves)
    return Packed(packed_args, packed_kwargs, originals, places)


def with_tensors(args: Args, kwargs: Kwargs) -> tuple[Args, Kwargs]:
    """The arguments as a step shows them to the function: arrays as tensors on their memory, all else as it is."""
    return tuple(map(_with_tensors, args)), {key: _with_tensors(value) for key, value in kwargs.items()}


def _with_tensors(value: object) -> Any:
    if not any(isinstance(leaf, np.ndarray) for leaf in leaves_of(value)):
        return value
    leaves, tree = flatten(value)
    return tree.unflatten([wrap(leaf) if isinstance(leaf, np.ndarray) else leaf for leaf in leaves])
