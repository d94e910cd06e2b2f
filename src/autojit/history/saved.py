"""Saved tensors: what a node keeps for backward, as it was or in the form that saved-tensor hooks give it.

A node keeps the tensor itself, or a ``Packed`` when hooks were active (``saved_tensors_hooks``) or were set on one
saved tensor (``SavedTensor.register_hooks``). Both give back a tensor with the history of the one that was saved.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from autojit.core.errors import DifferentiationError
from autojit.core.once import first_use
from autojit.core.types import TensorType
from autojit.history.view_rules import op_of_node
from autojit.ir.op import Op
from autojit.ir.result_types import is_plain
from autojit.tensor.node import FREED, AccumulateGrad, Edge, Meta, Node, type_of_meta
from autojit.tensor.state import carry, grad_mode, state
from autojit.tensor.tensor import Tensor, alias, storage_of, type_of

PackHooks = tuple[Callable[[Tensor], Any], Callable[[Any], Tensor]]


def connected(t: Tensor, edge: Edge) -> Tensor:
    """An alias of ``t`` whose history is ``edge``."""
    made = alias(t)
    if state.layers:
        carry(t, made)
    made._requires_grad = True
    node, made._output_nr = edge
    if isinstance(node, AccumulateGrad):
        made._accumulator = weakref.ref(node)
    else:
        made._grad_fn = node
    return made


class Packed:
    """A saved tensor that went through saved-tensor hooks: what ``pack`` returned, and how to connect it again.

    Raises:
        RuntimeError: the pack hook changed its argument in place.
    """

    __slots__ = ("edge", "unpack_hook", "what")

    def __init__(self, t: Tensor, hooks: PackHooks, is_result: bool, edge: Edge | None = None) -> None:
        pack, self.unpack_hook = hooks
        self.edge = edge
        if edge is None and not is_result and t._requires_grad:
            self.edge = (accumulator_of(t) if t._grad_fn is None else t._grad_fn), t._output_nr
        storage = storage_of(t)
        before = storage.version
        with grad_mode(False):
            self.what = pack(t)
        if storage.version != before:
            raise DifferentiationError(
                "A saved tensor pack hook is modifying its input in place. Tensors provided as input to pack hook "
                "cannot be modified by in-place operations as this can lead to unexpected side-effects.",
                {"tensor": t},
                "compute a new tensor in the pack hook",
            )

    def unpack(self, node: Node, result: int) -> Tensor:
        """The tensor again; ``result`` is its number among the results of ``node``, or -1 for an operand."""
        return self._connected((node, result) if result >= 0 else self.edge)

    def unpack_operand(self) -> Tensor:
        """The tensor again, which was not a result of a node."""
        return self._connected(self.edge)

    def _connected(self, edge: Edge | None) -> Tensor:
        found = self.unpack_hook(self.what)
        if not isinstance(found, Tensor):
            raise TypeError(
                "Output of saved tensor unpack_hook expected to be a Tensor but got result of type "
                f"{type(found).__name__}"
            )
        if edge is None:
            return alias(found) if found._requires_grad else found
        return connected(found, edge)


def accumulator_of(leaf: Tensor) -> Node:
    """The leaf's AccumulateGrad node, made again if nobody kept it."""
    reference = leaf._accumulator
    node = None if reference is None else reference()
    if node is None:
        with first_use:
            node = None if leaf._accumulator is None else leaf._accumulator()
            if node is None:
                node = AccumulateGrad(leaf)
                leaf._accumulator = weakref.ref(node)
    return node


class SavedTensor:
    """One saved tensor of a node (``grad_fn._raw_saved_self``), on which hooks of its own can be set.

    Example:
        >>> import autojit as aj
        >>> x = aj.tensor(3.0, requires_grad=True)
        >>> y = x * x
        >>> y.grad_fn._raw_saved_self.register_hooks(lambda t: -t, lambda t: -t)
        >>> y.grad_fn._saved_self
        tensor(3., requires_grad=True)
    """

    __slots__ = ("_get", "_result", "_set", "_unpack")
    _get: Callable[[], Any]
    _set: Callable[[Any], None]
    _unpack: Callable[[], Any]
    _result: int

    def __init__(self) -> None:
        raise RuntimeError("Trying to create a SavedTensor object from Python is forbidden.")

    @classmethod
    def of(
        cls, get: Callable[[], Any], set: Callable[[Any], None], unpack: Callable[[], Any], result: int = -1
    ) -> SavedTensor:
        """The saved tensor that ``get`` reads and ``set`` replaces; ``result`` is -1 for an operand of the node.

        ``get`` gives a Tensor, a ``Packed``, FREED, or anything else when no tensor was saved; ``unpack`` gives the
        tensor as backward sees it.
        """
        made = object.__new__(cls)
        made._get, made._set, made._unpack, made._result = get, set, unpack, result
        return made

    @classmethod
    def alone(cls, t: Tensor, is_output: bool) -> SavedTensor:
        """``t`` saved by no node, through the saved-tensor hooks that are active now."""
        hooks = state.recording_hooks
        version = storage_of(t).version
        has_node = is_output and t._grad_fn is not None
        kept: Any = Packed(t, hooks[-1], is_output) if hooks else t.detach() if has_node else t

        def put(packed: object) -> None:
            nonlocal kept
            kept = packed

        def unpack() -> Any:
            if type(kept) is Packed:
                return kept.unpack_operand()
            if storage_of(kept).version != version:
                raise changed_error(None, kept, version)
            return kept

        return cls.of(lambda: kept, put, unpack, 0 if is_output else -1)

    @property
    def data(self) -> Any:
        """What is kept: what the pack hook returned, or the tensor (detached where it is a result).

        None where no tensor was saved, or it was freed.
        """
        kept = self._get()
        if type(kept) is Packed:
            return kept.what
        return kept if isinstance(kept, Tensor) else None

    @property
    def unpack_hook(self) -> Any:
        """The function that gives the tensor back, or None."""
        kept = self._get()
        return kept.unpack_hook if type(kept) is Packed else None

    def unpack(self) -> Any:
        """The tensor as backward sees it, or None where none was saved.

        Raises:
            RuntimeError: it was freed, or changed in place since.
        """
        return self._unpack()

    def register_hooks(self, *hooks: Any) -> None:
        """Pack the tensor now with the first of two functions; the second gives it back in backward.

        Raises:
            TypeError: not two functions.
            RuntimeError: there is no tensor, it was freed, it has hooks already, or ``pack`` changed it in place.
        """
        if len(hooks) != 2 or not all(map(callable, hooks)):
            raise TypeError(
                "register_hooks(): incompatible function arguments. Expected (pack_hook: Callable[[Tensor], Any], "
                f"unpack_hook: Callable[[Any], Tensor]), got ({', '.join(type(h).__name__ for h in hooks)})"
            )
        kept = self._get()
        if kept is FREED:
            raise DifferentiationError(
                "Calling register_hooks on a saved tensor after it has been freed. Saved intermediate values of the "
                "graph are freed when you call .backward() or autograd.grad().",
                fix="Specify retain_graph=True if you need to access saved tensors after calling backward.",
            )
        if type(kept) is Packed:
            raise RuntimeError(
                "Calling register_hooks on a saved tensor whose hooks have already been set. Hint: only one pair of "
                "hooks is allowed at a time."
            )
        if not isinstance(kept, Tensor):
            raise RuntimeError("Calling register_hooks on a saved tensor with value None is forbidden")
        self._set(Packed(kept, (hooks[0], hooks[1]), self._result >= 0))


NUMBERS: dict[Any, Tensor] = {}
"""Python numbers that became 0-d constants; they are shared, and no saved-tensor hook sees them."""


def is_number(t: Tensor) -> bool:
    """Whether a tensor stands for a Python number in the user's program."""
    array = t._array
    if array is None:
        return "is_number" in t.__dict__
    return array.ndim == 0 and any(t is kept for kept in NUMBERS.values())


class TypeOnly:
    """Stands for an operand whose values the rule does not read."""

    __slots__ = ("spec",)
    is_type_only: ClassVar[bool] = True

    def __init__(self, spec: TensorType) -> None:
        self.spec = spec

    def _literal(self, value: object, type: TensorType) -> Any:
        return Tensor._literal_of(value, type)

    def _bind(self, op: Op, operands: Sequence[Any]) -> Any:
        if not operands:
            return Tensor._apply(op)
        raise AssertionError(f"a derivative rule reads an operand of {op.name} that was not kept")


_TYPES_ONLY: dict[Meta, TypeOnly] = {}
_TYPES_LIMIT = 4096


def type_only(meta: Meta) -> TypeOnly:
    """What stands for an operand of which a node kept its meta entry alone."""
    if not isinstance(meta, tuple):
        return TypeOnly(meta)
    found = _TYPES_ONLY.get(meta)
    if found is None:
        if len(_TYPES_ONLY) >= _TYPES_LIMIT:
            _TYPES_ONLY.clear()
        found = _TYPES_ONLY[meta] = TypeOnly(type_of_meta(meta))
    return found


def saved_places(op: Op, operands: int, results: int) -> dict[str, tuple[str, Any]]:
    """Where ``grad_fn._saved_<name>`` is found, by torch's name: a primal, a result, a parameter or a constant."""
    return (_known_places if is_plain(op) else _places)(op, operands, results)


def _places(op: Op, operands: int, results: int) -> dict[str, tuple[str, Any]]:
    found: dict[str, tuple[str, Any]] = {
        op.parameter_names.get(name, name): ("parameter", name) for name, _ in op.parameters()
    }
    found |= {name: ("constant", value) for name, value in op.node_constants.items()}
    default = ("self", "other") if operands <= 2 else tuple(f"tensor{k}" for k in range(operands))
    for place, name in enumerate((op.operand_names or default)[:operands]):
        found[name] = ("primal", place)
    names = ("result",) if results == 1 else tuple(f"result{k}" for k in range(results))
    for place, name in enumerate((op.result_names or names)[:results]):
        found[name] = ("result", place)
    return found


_known_places = functools.lru_cache(maxsize=4096)(_places)


def freed_error(node: Node) -> RuntimeError:
    """What torch raises on a second backward."""
    return DifferentiationError(
        "Trying to backward through the graph a second time (or directly access saved tensors after they have already "
        "been freed). Saved intermediate values of the graph are freed when you call .backward() or autograd.grad().",
        {"op": node.name(), "recorded": node.source},
        "Specify retain_graph=True if you need to backward through the graph a second time or if you need to access "
        "saved tensors after calling backward.",
    )


def changed_error(node: Node | None, t: Tensor, expected: int, result: int = -1) -> RuntimeError:
    """What torch raises when a saved tensor (a ``result`` of the node, or an operand) was changed in place."""
    storage = t._storage
    assert storage is not None
    kind = f"{t.type()} {list(type_of(t).shape)}"
    maker = t._grad_fn if result < 0 else node
    number = t._output_nr if result < 0 else result
    made_by = "" if maker is None else f", which is output {number} of {op_of_node(maker.name())},"
    return DifferentiationError(
        "one of the variables needed for gradient computation has been modified by an inplace operation: "
        f"[{kind}]{made_by} is at version {storage.version}; expected version {expected} instead.",
        {
            "needed by": "SavedTensor.unpack" if node is None else f"{node.name()}  {node.source}",
            "changed by": f"{storage.counter.changed_by}  {storage.counter.changed_at}",
        },
        "use the out-of-place form, or clone() the tensor before changing it",
    )


def changed_unseen_error(node: Node, t: Tensor) -> RuntimeError:
    """What a compiled function's node raises when memory that its derivative needs was changed through ``x.data``."""
    return DifferentiationError(
        "a tensor needed for the gradient of a compiled function has been modified through .data: "
        f"[{t.type()} {list(type_of(t).shape)}]",
        {"needed by": f"{node.name()}  {node.source}"},
        "call backward before the change, or inside the compiled function",
    )
