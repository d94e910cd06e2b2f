"""Recording: from an op applied to tensors that require gradients to a node of the history.

Which operands and results a rule reads is found once per op by a dry run of the rule with tracers; only those are kept,
of the others only shape and dtype. The same rules run later, eagerly or traced, in ``pull_back``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from autojit.core.errors import DifferentiationError
from autojit.core.source import here
from autojit.core.types import TensorType
from autojit.ir.builder import GraphBuilder, Tracer
from autojit.ir.op import Op
from autojit.tensor.node import (
    FREED,
    ZERO,
    AccumulateGrad,
    Edge,
    Meta,
    Node,
    backward_name,
    move_retained,
    next_sequence,
)
from autojit.tensor.node_arguments import argument_of, is_saved
from autojit.tensor.saved import (
    Packed,
    SavedTensor,
    TypeOnly,
    accumulator_of,
    changed_error,
    connected,
    freed_error,
    is_number,
    saved_places,
    type_only,
)
from autojit.tensor.state import state
from autojit.tensor.tensor import Tensor, made_in_inference, relative_chain, storage_of, type_of, wrap
from autojit.tensor.view_history import ViewChain
from autojit.tensor.view_rules import forbidden_view, inference_saved
from autojit.transforms.adjoint import accumulate

_PLANS: dict[Op, dict[Any, ResidualPlan | None]] = {}
_PLAN_LIMIT = 4096
_UNSAVED = ("parameter", "constant")  # what a node shows without having saved a tensor


class ResidualPlan(NamedTuple):
    """Which operands and results the VJP rule reads, per position, and the class of the node that runs it."""

    primals: tuple[bool, ...]
    results: tuple[bool, ...]
    node: type[OpNode]


class OpNode(Node):
    """One op of ``autojit.ops``: runs the op's own VJP rule on what the rule reads.

    ``primals`` holds, per operand, the tensor itself where the rule reads it, else only its meta; ``results`` holds
    detached shells of the results the rule reads. ``versions`` are the storages' versions at recording.
    """

    __slots__ = ("arguments", "mask", "op", "primals", "results", "versions")
    arguments: dict[str, Any]  # of the function that users called, where ``rename_node`` was told them
    op: Op
    mask: int
    primals: list[Any]
    results: list[Any]
    versions: Sequence[int]

    def __init__(self, sequence: int | None = None) -> None:
        self.pre_hooks = None
        self.post_hooks = None
        self.tensor_hooks = None
        self.retained = None
        self.sequence = next_sequence() if sequence is None else sequence

    def run(self, grads: list[Any], wanted: tuple[bool, ...]) -> Sequence[Any]:
        bars = [None if g is ZERO else g for g in grads]
        if not any([g is not None for g in bars]):
            nothing = ZERO if any(g is ZERO for g in grads) else None
            return [nothing] * len(self.edges)
        place = 0
        primals = []
        for entry in self.primals:
            primals.append(type_only(entry) if type(entry) is tuple else self._unpack(entry, place))
            place += 1
        results = []
        for number, entry in enumerate(self.results):
            results.append(type_only(entry) if type(entry) is tuple else self._unpack(entry, place + number, number))
        found = accumulate(self.op, primals, results, bars, wanted)
        for place, want in enumerate(wanted):
            if want and found[place] is None:
                found[place] = ZERO
        return found

    def _unpack(self, entry: Any, place: int, result: int = -1) -> Any:
        kind = type(entry)
        if kind is tuple or kind is TensorType:
            return type_only(entry)
        if entry is FREED:
            raise freed_error(self)
        if kind is Packed:
            return entry.unpack(self, result)
        if entry._storage is not None and entry._storage.version != self.versions[place]:
            raise changed_error(self, entry, self.versions[place], result)
        if result >= 0:
            return as_result(entry, self, result)
        if entry._grad_fn is None and not entry._requires_grad:
            self._check_not_detached(entry, place)
        return entry

    def _check_not_detached(self, t: Tensor, place: int) -> None:
        edge = self.edges[place]
        if edge is not None and type(edge[0]) is not AccumulateGrad:
            raise DifferentiationError(
                "Trying to use a saved tensor that has been detached in-place, i.e. with .detach_(). This is not "
                "supported, please use out-of-place `.detach()` instead",
                {"tensor": t, "needed by": f"{self.name()}  {self.source}"},
            )

    def release(self) -> None:
        for kept in (self.primals, self.results):
            for i, entry in enumerate(kept):
                kind = type(entry)
                if kind is not tuple and kind is not TensorType:
                    kept[i] = FREED

    def __getattr__(self, attribute: str) -> Any:
        is_raw = attribute.startswith("_raw_saved_")
        if is_raw or attribute.startswith("_saved_"):
            name = attribute[11 if is_raw else 7 :]
            shown = getattr(self, "arguments", {})
            if name in shown and (is_saved(shown[name]) or not is_raw):
                return argument_of(self, name, is_raw)
            found = saved_places(self.op, len(self.primals), len(self.results)).get(name)
            if found is not None and not (is_raw and found[0] in _UNSAVED):
                return self._raw(*found) if is_raw else self._saved(*found)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {attribute!r}")

    def __dir__(self) -> list[str]:
        places = saved_places(self.op, len(self.primals), len(self.results))
        shown = getattr(self, "arguments", {})
        raw = [f"_raw_saved_{name}" for name, (kind, _) in places.items() if kind not in _UNSAVED]
        raw += [f"_raw_saved_{name}" for name, value in shown.items() if is_saved(value)]
        return [*super().__dir__(), *(f"_saved_{name}" for name in {**places, **shown}), *raw]

    def _saved(self, kind: str, place: Any) -> Any:
        if kind == "parameter":
            return getattr(self.op, place)
        if kind == "constant":
            return place
        if kind == "primal":
            found = self._unpack(self.primals[place], place)
        else:
            found = self._unpack(self.results[place], len(self.primals) + place, place)
        return None if type(found) is TypeOnly else found

    def _raw(self, kind: str, place: int) -> SavedTensor:
        kept = self.primals if kind == "primal" else self.results
        result = -1 if kind == "primal" else place
        return SavedTensor.of(
            lambda: kept[place],
            lambda packed: kept.__setitem__(place, packed),
            lambda: self._saved(kind, place),
            result,
        )


class NotImplementedNode(OpNode):
    """An op whose derivative nobody has written down: reaching it in backward is an error."""

    __slots__ = ()

    def name(self) -> str:
        return "NotImplemented"

    def run(self, grads: list[Any], wanted: tuple[bool, ...]) -> Sequence[Any]:
        raise NotImplementedError(
            f"the derivative for '{self.op.name}' is not implemented: {type(self.op).vjp.not_differentiable}\n"  # type: ignore[attr-defined]
            f"  recorded  {self.source}\n  fix       detach() the result, or write a custom Function"
        )


_NODE_TYPES: dict[str, type[OpNode]] = {}


def node_type(name: str) -> type[OpNode]:
    """The class of op nodes that users see as ``name``: OpNode under torch's name for it."""
    found = _NODE_TYPES.get(name)
    if found is None:
        fields = {"__slots__": (), "__module__": __name__, "__doc__": OpNode.__doc__}
        found = _NODE_TYPES[name] = type(name, (OpNode,), fields)
    return found


def rename_node(t: Tensor, name: str, **arguments: Any) -> Tensor:
    """Let the node of a fresh result be called after the function that the user called; returns ``t``.

    ``arguments`` are what the node shows as ``_saved_<name>``: plain values, a tensor, ``KeptBy`` or a tuple of them.
    """
    node = t._grad_fn
    if isinstance(node, OpNode):
        node.__class__ = node_type(name)
        if arguments:
            node.arguments = arguments
    return t


def as_result(shell: Tensor, node: Node, number: int) -> Tensor:
    """A saved result as an operand of a rule: connected to its node again when a graph of the derivative is wanted."""
    return connected(shell, (node, number)) if state.grad_enabled else shell


def residual_plan(op: Op, operands: Sequence[Tensor], mask: int) -> ResidualPlan | None:
    """What the rule of ``op`` reads for the operands in ``mask``; None when nothing can be differentiated.

    Kept per op, mask, dtype and shapes. A rule may choose what it reads by which extents are 0, 1 or more, not by their
    exact sizes, so a dry run is needed only once per such pattern.
    """
    first = operands[0]._array
    if first is not None and state.trace is None:  # in a capture some operands may hold no array
        key: Any = (mask, first.dtype, *[t._array.shape for t in operands])
    else:
        key = (mask, *[type_of(t) for t in operands])
    plans = op.__dict__.get("_plans")
    if plans is None:
        plans = _plans_of(op)
    return plans[key] if key in plans else _new_plan(op, operands, mask, plans, key)


def _plans_of(op: Op) -> dict[Any, ResidualPlan | None]:
    plans = _PLANS.get(op)
    if plans is None:
        if len(_PLANS) >= _PLAN_LIMIT:
            _PLANS.clear()
        plans = _PLANS[op] = {}
    object.__setattr__(op, "_plans", plans)
    return plans


def _new_plan(
    op: Op, operands: Sequence[Tensor], mask: int, plans: dict[Any, ResidualPlan | None], key: Any
) -> ResidualPlan | None:
    types = [type_of(t) for t in operands]
    pattern = (mask, types[0].dtype, "pattern", *[tuple([min(n, 2) for n in t.shape]) for t in types])
    if len(plans) >= _PLAN_LIMIT:
        plans.clear()
    if pattern not in plans:
        plans[pattern] = _dry_run(op, types, mask)
    plans[key] = plans[pattern]
    return plans[key]


def _dry_run(op: Op, types: Sequence[TensorType], mask: int) -> ResidualPlan | None:
    if not op.is_differentiable:
        is_missing = type(op).vjp.is_missing  # type: ignore[attr-defined]
        return ResidualPlan((False,) * len(types), (False,) * op.n_outputs, NotImplementedNode) if is_missing else None
    builder = GraphBuilder()
    result_types = op.result_type(*types)
    result_types = (result_types,) if op.n_outputs == 1 else tuple(result_types)
    if not any(t.dtype.is_differentiable for t in result_types):
        return None
    if op.reads_operands:
        return ResidualPlan((True,) * len(types), (False,) * len(result_types), node_type(backward_name(op.name)))
    primals = [builder.tracer(builder.input(t)) for t in types]
    results = [builder.tracer(builder.input(t)) for t in result_types]
    bars = [builder.tracer(builder.input(t)) if t.dtype.is_differentiable else None for t in result_types]
    wanted = tuple(bool(mask >> i & 1) for i in range(len(types)))
    cotangents = accumulate(op, primals, results, bars, wanted)
    read = {v for node in builder.nodes for v in node.inputs}
    read.update(c.value for c in cotangents if isinstance(c, Tracer))
    return ResidualPlan(
        tuple(p.value in read for p in primals),
        tuple(r.value in read for r in results),
        node_type(backward_name(op.name)),
    )


def wants_grad(t: Tensor) -> bool:
    """Whether gradients flow into ``t``, also through writes to the base it looks at."""
    view = t._view
    if view is not None and view.base is not None and view.base._grad_fn is not view.base_fn:
        refresh_view(t)
    return t._requires_grad


def shows_grad(t: Tensor) -> bool:
    """What ``t.requires_grad`` says: also True for a view that was not recorded but whose base requires gradients."""
    if wants_grad(t):
        return True
    base = t._view.base if t._view is not None else None
    return base is not None and base._requires_grad and type_of(t).dtype.is_differentiable


def wants_any(operands: Sequence[Tensor]) -> bool:
    """Whether any operand says that it requires gradients; every view among them is brought up to date."""
    found = False
    for t in operands:
        view = t._view
        if view is None:
            found = t._requires_grad or found
            continue
        found = shows_grad(t) or found
        if view.creation:
            require_unchanged(t)
    return found


def require_unchanged(t: Tensor) -> None:
    """Raise torch's error when a view whose writes are not recorded shows memory that has changed since it was made."""
    view, storage = t._view, t._storage
    if view is None or view.base is None or storage is None or view.version == storage.version:
        return
    if view.creation and view.base._requires_grad:
        raise forbidden_view(t, "", indirectly=True)


def edge_of(t: Tensor) -> Edge | None:
    """Where the gradient of ``t`` goes: its node, or its accumulator; None when it needs none."""
    if not wants_grad(t):
        return None
    node = t._grad_fn
    if node is None:
        node = accumulator_of(t)
    return node, t._output_nr


def record(op: Op, operands: Sequence[Tensor], results: Sequence[Tensor]) -> None:
    """Make the results' node if the op can be differentiated with respect to an operand that requires gradients."""
    mask = 0
    edges: list[Edge | None] = []
    for place, t in enumerate(operands):
        if t._requires_grad:
            fn = t._grad_fn
            edges.append((accumulator_of(t) if fn is None else fn, t._output_nr))
            mask |= 1 << place
        else:
            edges.append(None)
    plan = residual_plan(op, operands, mask)
    if plan is None:
        return
    node = plan.node()
    node.op = op
    node.mask = mask
    node.edges = edges
    node.source = here(True)
    hooks = state.recording_hooks
    versions: list[int] = []
    primals: list[Any] = []
    for t, keep in zip(operands, plan.primals):
        if keep:
            storage = t._storage
            if made_in_inference(t):
                raise inference_saved(t, op.name)
            primals.append(t if hooks is None or is_number(t) else Packed(t, hooks[-1], False))
            versions.append(0 if storage is None else storage.version)
        else:
            primals.append(meta_of(t))
            versions.append(0)
    kept: list[Any] = []
    metas: list[Meta] = []
    for number, t in enumerate(results):
        meta = meta_of(t)
        metas.append(meta)
        if len(results) == 1 or type_of(t).dtype.is_differentiable:
            t._requires_grad = True
            t._grad_fn = node
            t._output_nr = number
        if plan.results[number]:
            kept.append(_shell(t) if hooks is None else Packed(t, hooks[-1], True))
            versions.append(storage_of(t).version)
        else:
            kept.append(meta)
            versions.append(0)
    node.primals = primals
    node.results = kept
    node.versions = versions
    node.out_metas = metas


def record_pair(op: Op, x: Tensor, y: Tensor, result: Tensor) -> None:
    """``record`` for two concrete operands and one result, written out: this is what small eager ops pay."""
    x_fn, y_fn = x._grad_fn, y._grad_fn
    x_edge = y_edge = None
    mask = 0
    if x._requires_grad:
        x_edge = (accumulator_of(x) if x_fn is None else x_fn, x._output_nr)
        mask = 1
    if y._requires_grad:
        y_edge = (accumulator_of(y) if y_fn is None else y_fn, y._output_nr)
        mask += 2
    a, b = x._array, y._array
    x_meta, y_meta = (a.shape, a.dtype), (b.shape, b.dtype)
    plans = op.__dict__.get("_plans")
    if plans is None:
        plans = _plans_of(op)
    key = (mask, x_meta, y_meta)
    plan = plans[key] if key in plans else _new_plan(op, (x, y), mask, plans, key)
    if plan is None:
        return
    (keep_x, keep_y), (keep_result,), make = plan
    x_storage, y_storage = x._storage, y._storage
    node = make()
    node.op = op
    node.mask = mask
    node.edges = (x_edge, y_edge)
    node.primals = [x if keep_x else x_meta, y if keep_y else y_meta]
    node.versions = (
        0 if x_storage is None else x_storage.version, 0 if y_storage is None else y_storage.version, 0
    )  # fmt: skip
    _connect(node, result, keep_result)


def record_several(op: Op, operands: Sequence[Tensor], result: Tensor) -> None:
    """``record`` for concrete operands, none made in inference mode, and one result."""
    mask, bit = 0, 1
    edges: list[Edge | None] = []
    metas: list[Meta] = []
    for t in operands:
        array = t._array
        metas.append((array.shape, array.dtype))
        if t._requires_grad:
            fn = t._grad_fn
            edges.append((accumulator_of(t) if fn is None else fn, t._output_nr))
            mask += bit
        else:
            edges.append(None)
        bit += bit
    plans = op.__dict__.get("_plans")
    if plans is None:
        plans = _plans_of(op)
    key = (mask, *metas)
    plan = plans[key] if key in plans else _new_plan(op, operands, mask, plans, key)
    if plan is None:
        return
    node = plan[2]()
    node.op = op
    node.mask = mask
    node.edges = edges
    node.primals = [t if keep else meta for t, keep, meta in zip(operands, plan[0], metas)]
    node.versions = [0 if t._storage is None else t._storage.version for t in operands]
    node.versions.append(0)
    _connect(node, result, plan[1][0])


def record_single(op: Op, x: Tensor, result: Tensor) -> None:
    """``record`` for one concrete operand that requires gradients and one result."""
    fn, a, storage = x._grad_fn, x._array, x._storage
    meta = (a.shape, a.dtype)
    plans = op.__dict__.get("_plans")
    if plans is None:
        plans = _plans_of(op)
    key = (1, meta)
    plan = plans[key] if key in plans else _new_plan(op, (x,), 1, plans, key)
    if plan is None:
        return
    node = plan[2]()
    node.op = op
    node.mask = 1
    node.edges = ((accumulator_of(x) if fn is None else fn, x._output_nr),)
    node.primals = [x if plan[0][0] else meta]
    node.versions = (0 if storage is None else storage.version, 0)
    _connect(node, result, plan[1][0])


def _connect(node: OpNode, result: Tensor, keep_result: bool) -> None:
    out = result._array
    meta = (out.shape, out.dtype)
    node.source = here(True)
    node.results = [_shell(result) if keep_result else meta]
    node.out_metas = (meta,)
    result._requires_grad = True
    result._grad_fn = node


def _shell(t: Tensor) -> Tensor:
    """A fresh result without its history, sharing its storage: what a node may keep of its own results."""
    made = wrap(t._array)
    made._value, made._type, made._storage = t._value, t._type, storage_of(t)
    return made


def meta_of(t: Tensor) -> Meta:
    """The tensor's type, as cheaply as possible."""
    found = t._type
    if found is not None:
        return found
    array = t._array
    return (array.shape, array.dtype) if array is not None else type_of(t)


def symbolic_node(
    op: Op,
    edges: list[Edge | None],
    metas: Sequence[TensorType],
    label: str | None = None,
    instead_of: Node | None = None,
) -> OpNode:
    """A node for an op that was not computed and whose rule reads types only (views, view_update).

    It takes the number of the node that it is made ``instead_of``.
    """
    node = node_type(label or backward_name(op.name))(None if instead_of is None else instead_of.sequence)
    node.op = op
    node.mask = sum(1 << i for i, e in enumerate(edges) if e is not None)
    node.edges = edges
    node.source = here(True)
    result = op.result_type(*metas)
    results = [result] if op.n_outputs == 1 else list(result)
    node.primals = list(metas)
    node.results = list(results)
    node.versions = [0] * (len(metas) + len(results))
    node.out_metas = results
    if instead_of is None and state.observer is not None:
        state.observer.made(node)
    return node


def refresh_view(t: Tensor) -> None:
    """Make the history of a view anew after its base's history changed."""
    view = t._view
    assert view is not None and view.base is not None
    base = view.base
    edge = edge_of(base)
    if edge is None:
        view.base_fn = base._grad_fn
        return
    if view.creation:
        raise forbidden_view(t, "", indirectly=True)
    view.base_fn = base._grad_fn
    chain = relative_chain(t)
    name = backward_name(chain[-1].name) if state.view_replay and chain else "AsStridedBackward0"
    node = symbolic_node(ViewChain(chain), [edge], [type_of(base)], name)
    move_retained(t, node)
    t._requires_grad, t._grad_fn, t._output_nr = True, node, 0
