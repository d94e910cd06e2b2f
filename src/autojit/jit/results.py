"""Results of a jitted call: from the compiled step's output tensors to what the function returns.

Every output leaf has a Place: an argument or outside tensor handed back, a result of the graph, a number, or a
constant; views are taken again at every call.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from autojit.autograd.function_context import BackwardCFunction
from autojit.core.device_array import host_copy
from autojit.core.dtypes import bfloat16
from autojit.core.sizes import is_symbolic
from autojit.dispatch.dispatch import apply, value_of
from autojit.ir.graph import Value
from autojit.jit.arguments import GIVEN, ArgumentLeaf
from autojit.jit.histories import has_history, history_of
from autojit.jit.line_by_line import MadeLayers, UnrecordedForm
from autojit.jit.made_objects import hands_on, put_together
from autojit.jit.pytree import TreeSpec
from autojit.jit.result_places import Place, base_of, of_sizes
from autojit.jit.severed_views import severed
from autojit.jit.spent_results import InnerNode, SpentNode
from autojit.jit.trace import Trace
from autojit.jit.traced_number import TracedNumber
from autojit.jit.views_of_results import Views, Way, way_of
from autojit.tensor.memory_orders import Order, order_of
from autojit.tensor.node import AccumulateGrad
from autojit.tensor.state import grad_mode, with_trace
from autojit.tensor.storage import CUSTOM_FUNCTION, INFERENCE, MULTIPLE_VIEWS, NO_GRAD, NORMAL, Storage, View
from autojit.tensor.tensor import Tensor, layout_of, made_in_inference, relative_chain, taken_back, type_of, wrap_value


class Results:
    """The layout of a step's results: ``values`` are graph outputs, ``places`` one per output leaf."""

    def __init__(self, trace: Trace, outputs: Sequence[Any], tree: TreeSpec, arguments: Sequence[ArgumentLeaf]) -> None:
        self.tree = tree
        self.values: list[Value] = []
        self.tensors: list[Tensor] = []  # the traced tensors behind ``values``
        self.orders: list[tuple[int, ...] | None] = []  # their axes in memory, the outermost first; None: row-major
        self.made_in_inference: set[int] = set()  # the numbers of those that were made in inference mode
        self._trace = trace
        self._position: dict[Value, int] = {}
        self._shells = {id(leaf.shell): k for k, leaf in enumerate(arguments) if leaf.shell is not None}
        self._shared = _shared_memory(outputs)
        self._note_gradients(outputs, arguments)
        self._spent: dict[int, SpentNode] = {}
        self._outside: dict[int, Tensor] = {}  # by id of their state: tensors that results show parts of
        seen: dict[int, int] = {}
        ways: dict[int, Way] = {}
        self.places: list[Place] = []
        for k, leaf in enumerate(outputs):
            if id(leaf) in seen and isinstance(leaf, Tensor | TracedNumber):
                self.places.append(Place("same", seen[id(leaf)]))
                continue
            seen[id(leaf)] = k
            place = self._place(leaf, arguments)
            place.is_stale, place.severed = _is_stale(leaf), severed(leaf)
            if place.kind == "result" and isinstance(leaf, Tensor) and leaf._grad is not None:
                at = next((j for j, other in enumerate(outputs) if other is leaf._grad), None)
                place.grad = self._place(leaf._grad, arguments) if at is None else Place("same", at)
            self.places.append(place)
            way = way_of(leaf, place.chain) if _is_live_view(place) else None
            if way is not None:
                ways[k] = way
        self.views = Views(ways)
        self.are_leaves_at_hand = all(map(_is_at_hand, self.places))
        self.is_plain = self.are_leaves_at_hand and _is_flat(tree) and all(p.kind != "number" for p in self.places)
        self._numbers = [(k, place.number) for k, place in enumerate(self.places) if place.kind == "number"]
        self.hands_on = hands_on(tree)
        self._put_together = put_together(tree)
        self._live_gradients: set[int] = set()

    def _note_gradients(self, outputs: Sequence[Any], arguments: Sequence[ArgumentLeaf]) -> None:
        """Which traced tensors are a leaf's ``.grad`` after the step, and which of these the results show."""
        found = [entry.current for entry in self._trace.grads.values()]
        found += [leaf.shell._grad for leaf in arguments if leaf.shell is not None]
        grads = {id(t): t for t in found if t is not None and t._array is None}
        self._gradients = grads.keys()
        results = [t for t in outputs if isinstance(t, Tensor)]
        self._shown = {id(t) for t in results} | {id(t._view.base) for t in results if t._view is not None}
        self._storages = {id(t._storage) for t in results}
        pairs = [(t, g) for t in results if t._storage is not None for g in grads.values() if t is not g]
        self._second = {id(t): g for t, g in pairs if _shows_memory(g, t._storage)}  # other handles of such a ``.grad``
        self._shown |= {id(g) for g in self._second.values()}

    def of_gradient(self, grad: Tensor, is_shared: bool = False) -> int | None:
        """The number of the graph output for a traced ``.grad`` that is another tensor at every call.

        That is one which the function returns as well, which several leaves have, which the caller can differentiate,
        which was made in inference mode (nobody may change it outside), or which is not in row-major order.
        None: nobody sees it but the leaf, which needs no tensor of its own.
        """
        is_live, is_shown = has_history(grad), id(grad) in self._shown
        with with_trace(self._trace):
            is_strided = not layout_of(grad).flags.c_contiguous
        if not (is_live or is_shown or is_shared or is_strided or made_in_inference(grad)):
            return None
        index, known = self._result(grad)
        if known and not (is_shown or is_shared):  # the same numbers as a result, in memory of its own
            index = self._again(grad)
        self.is_plain = self.are_leaves_at_hand = False
        if is_live:
            self._live_gradients.add(index)
        return index

    def _again(self, t: Tensor) -> int:
        """The number of one more graph output with the value of one that there is."""
        with with_trace(self._trace):
            order = self._order_of(value_of(t))
        self._add(value_of(t), t, order)
        return len(self.values) - 1

    def _add(self, value: Value, t: Tensor, order: Order) -> None:
        if made_in_inference(t):
            self.made_in_inference.add(len(self.values))
        self.orders.append(None if order is None or order[:1] == ("strides",) else order)
        self.values.append(value)
        self.tensors.append(t)

    def rename(self, renamed: Mapping[int, Tensor]) -> None:
        """Other tensors have taken the place of those that are shown as they are, by id."""
        for k, place in enumerate(self.places):
            if place.kind in ("constant", "detached") and id(place.what) in renamed:
                self.places[k] = replace(place, what=renamed[id(place.what)])

    def _place(self, leaf: object, arguments: Sequence[ArgumentLeaf]) -> Place:
        if isinstance(leaf, TracedNumber):
            return Place("number", self._result(leaf.tensor)[0], number=leaf.kind)
        if not isinstance(leaf, Tensor) or leaf._array is not None:
            return self._as_it_is(leaf)
        if id(leaf) in self._shells:
            k = self._shells[id(leaf)]
            if arguments[k].kind in GIVEN:
                return Place("argument", k)
        alias_of = self._argument_behind(leaf, arguments)
        if alias_of is not None:
            return alias_of
        view = leaf._view
        base = None if view is None else view.base
        # taken again after the call: not where the base looks at other memory (``.data``)
        if view is not None and base is not None and base._storage is leaf._storage and not _has_own_history(leaf):
            made = view.creation
            if id(base) in self._shells and arguments[self._shells[id(base)]].kind in GIVEN:
                return self._view_of_argument(self._shells[id(base)], leaf, arguments)
            behind = None if base._requires_grad else self._argument_behind(base, arguments)
            if behind is not None:
                return replace(behind, chain=(*behind.chain, *relative_chain(leaf)), creation=made)
            if base._array is not None:
                is_leaf = leaf._requires_grad and leaf._grad_fn is None
                return replace(self._as_it_is(base), chain=view.chain, creation=made, is_leaf=is_leaf)
            if self._is_shared(leaf) or id(base) in self._gradients or self._has_gaps(leaf):
                form = () if base._requires_grad or base._view is None else base._view.chain  # of a detached view
                index, known = self._result(_whole(leaf) if form else base)
                chain = (*form, *relative_chain(leaf))
                place = Place("result", index, chain=chain, aliases=known, creation=made)
                return self._with_history(place, base, arguments)
        elif view is not None and base is None and view.chain:
            storage = leaf._storage
            assert storage is not None
            entry = None if storage.array is None else self._trace.state.get(id(storage.array))
            if entry is not None and leaf._grad_fn is None:
                what, is_leaf = self._outside.setdefault(id(entry), entry.root_owner()), leaf._requires_grad
                place = Place("detached", what=what, chain=view.chain, creation=view.creation, is_leaf=is_leaf)
                place.is_counted_apart = storage is not what._storage
                return place
            if storage.value is not None and self._is_part(leaf):
                index, known = self._result(_whole(leaf))
                return Place("result", index, chain=view.chain, aliases=known, creation=view.creation or NO_GRAD)
        index, known = self._result(leaf)
        place = Place("result", index, aliases=known or id(leaf) in self._second)
        return self._with_history(place, leaf, arguments)

    def _view_of_argument(self, k: int, leaf: Tensor, arguments: Sequence[ArgumentLeaf]) -> Place:
        """A view that is taken again of the argument ``k``, whose flag may have been another when it was taken."""
        view, shell = leaf._view, arguments[k].shell
        assert view is not None and shell is not None
        flag, made = leaf._requires_grad, view.creation
        if leaf._grad_fn is None and (arguments[k].requires_grad or shell._requires_grad):
            made = (
                made if made == INFERENCE else NO_GRAD
            )  # what is taken again of a tensor that requires gradients would have a history
        return Place("argument", k, chain=relative_chain(leaf), creation=made, is_leaf=flag and leaf._grad_fn is None)

    def _as_it_is(self, leaf: Any) -> Place:
        """The place of what the graph does not compute: it itself, or another tensor that shows the memory it shows."""
        of = self._trace.origin(leaf) if type(leaf) is Tensor else leaf
        if of is leaf or leaf._grad is not None or leaf._leaf_hooks is not None or leaf.__dict__:
            return Place("constant", what=leaf)
        is_counted_apart = leaf._storage is not of._storage
        return Place("detached", what=of, is_leaf=leaf._requires_grad, is_counted_apart=is_counted_apart)

    def _with_history(self, place: Place, t: Tensor, arguments: Sequence[ArgumentLeaf]) -> Place:
        """The place of a result, with the history that ``t`` has now: one to differentiate, or what is left of it."""
        if not t._requires_grad:
            return place
        if t._grad_fn is None:
            place.is_leaf = True
            return place
        history = history_of([t])
        ends = [node for node in history if isinstance(node, AccumulateGrad)]
        place.ends = tuple([k for k, leaf in enumerate(arguments) if _ends_in(history, leaf)])
        outside = [(node, 0) for node in ends if self._is_outside(node.variable)]
        known = self._spent.get(place.index)
        if not has_history(t):
            place.spent = SpentNode(t._grad_fn, outside) if known is None else known
        elif (outside or place.ends) and any(self._is_made(node.variable) for node in ends):
            raise MadeLayers  # their gradients would have to be found through the compiled step
        elif not outside and not place.ends:
            is_seen = any(id(node.variable) in self._shown for node in ends)
            place.spent = InnerNode(t._grad_fn, is_seen) if known is None else known
        else:
            place.requires_grad, place.ends = True, ()
        if place.spent is not None:
            self._spent[place.index] = place.spent
        return place

    def _is_made(self, leaf: Tensor) -> bool:
        return leaf._array is None and id(leaf) not in self._shells and id(leaf._storage) in self._storages

    def _is_outside(self, leaf: Tensor) -> bool:
        return leaf._array is not None and not self._trace.has_begun(leaf)

    def _argument_behind(self, leaf: Tensor, arguments: Sequence[ArgumentLeaf]) -> Place | None:
        """Where a tensor without history shows an argument's memory (``detach``)."""
        view, storage = leaf._view, leaf._storage
        if view is None or view.base is not None or storage is None or leaf._grad_fn is not None:
            return None
        for k, given in enumerate(arguments):
            if given.kind in GIVEN and _shows_memory(given.shell, storage):
                assert given.shell is not None
                form = () if given.shell._view is None else given.shell._view.chain
                assert given.value is not None
                undone = taken_back(leaf, given.value.type, form) if form else ()
                chain, is_leaf = (*undone, *view.chain), leaf._requires_grad
                return Place("alias", k, chain=chain, creation=view.creation, is_leaf=is_leaf)
        return None

    def _is_shared(self, leaf: Tensor) -> bool:
        """Whether another result looks at the same memory."""
        return leaf._storage is not None and id(leaf._storage.memory) in self._shared

    def _is_part(self, leaf: Tensor) -> bool:
        """Whether a result with a form of its own is taken from all of its memory; UnrecordedForm where none may be."""
        if leaf._grad_fn is None:
            return self._is_shared(leaf) or self._has_gaps(leaf)
        if self._is_shared(leaf):
            raise UnrecordedForm("a result that shares its memory", leaf)
        return False

    def _has_gaps(self, leaf: Tensor) -> bool:
        """Whether a view is laid out otherwise than memory of its own: it is taken from the whole, as in eager mode."""
        with with_trace(self._trace):
            layout = layout_of(leaf)
        order = order_of(layout)
        if order is None:  # except for axes of size 1, where a size is not open that only happens to be 1
            is_known = layout.size > 0 and not any(map(is_symbolic, type_of(leaf).shape))
            return is_known and layout.strides != np.empty(layout.shape, layout.dtype).strides
        return order[:1] == ("strides",)

    def _result(self, leaf: Tensor) -> tuple[int, bool]:
        with with_trace(self._trace):
            value = value_of(leaf)
        known = value in self._position
        if not known:
            self._position[value] = len(self.values)
            with with_trace(self._trace):
                order = order_of(layout_of(leaf)) if leaf._view is not None else self._order_of(value)
            self._add(value, leaf, order)
        index = self._position[value]
        if has_history(leaf) and not has_history(self.tensors[index]):
            self.tensors[index] = leaf  # a detached one came first: derivatives go through this one
        return index, known

    def _order_of(self, value: Value) -> Order:
        stand_in = self._trace.order_of(value)
        return None if stand_in is None else order_of(stand_in)

    @property
    def spent(self) -> dict[int, SpentNode]:
        """What is left of histories, by the graph outputs that are shown with it first."""
        return {p.index: p.spent for p in self.places if p.spent is not None and not p.aliases and not p.ends}

    @property
    def live(self) -> set[int]:
        """The numbers of the graph outputs that the caller can differentiate."""
        places = [*self.places, *(p.grad for p in self.places if p.grad is not None)]
        return {p.index for p in places if p.requires_grad} | self._live_gradients

    def package(self, tensors: Sequence[Tensor], leaves: Sequence[Any], sizes: Mapping[str, int], given: object) -> Any:
        """The call's result, from one tensor per graph output, the leaves of its arguments ``given`` and open sizes."""
        places = [of_sizes(place, sizes) for place in self.places] if sizes else self.places
        views: dict[int, Tensor] = {}
        if self.views.taken:
            with grad_mode(True):
                views = self.views.take(lambda k: places[k].chain, lambda k: base_of(places[k], tensors, leaves))
        found: list[Any] = []
        for k, place in enumerate(places):
            found.append(self._leaf(place, tensors, leaves, found, views.get(k)))
        for place, t in zip(self.places, found, strict=True):
            if place.grad is not None and place.grad.kind == "same":
                t._grad, t._retains_grad = found[place.grad.index], True
        return self._put_together(found, given)

    def finish(self, found: Any, given: object) -> Any:
        """The call's result, from what native code gives where all leaves are at hand: them, or the only one."""
        leaves = found if self.tree.kind is not None else (found,)
        if self._numbers:
            leaves = list(leaves)
            for k, kind in self._numbers:
                leaves[k] = kind(_number(leaves[k]))
        return self._put_together(leaves, given)

    def _leaf(
        self, place: Place, tensors: Sequence[Tensor], leaves: Sequence[Any], found: list[Any], view: Any = None
    ) -> Any:
        """What an output leaf is; ``view`` where it is one that was taken already."""
        kind = place.kind
        if kind == "same":
            return found[place.index]
        if kind == "number":
            t = tensors[place.index]
            return place.number(_number(t))
        t = base_of(place, tensors, leaves) if view is None else view
        if place.chain:
            with grad_mode(place.creation not in (NO_GRAD, INFERENCE) and place.severed is None):
                for op in place.chain if view is None else ():
                    t = apply(op, t)
            if t._view is not None and t._view.base is not None:
                t._view.creation = place.creation
                t._view.version -= place.is_stale
                if place.severed is not None:
                    place.severed.end(t)
        if place.is_leaf:
            t._requires_grad = True
        if place.grad is not None and place.grad.kind != "same":
            t._grad, t._retains_grad = self._leaf(place.grad, tensors, leaves, found), True
        return t


def _is_live_view(place: Place) -> bool:
    """Whether the caller may differentiate a view that is taken after the call."""
    if not place.chain or place.is_leaf or place.is_stale or place.severed:
        return False
    if place.creation not in (NORMAL, MULTIPLE_VIEWS):
        return False
    return place.kind in ("argument", "constant") or (place.kind == "result" and place.requires_grad)


def _is_stale(leaf: object) -> bool:
    if not isinstance(leaf, Tensor) or leaf._array is not None:
        return False
    view, storage = leaf._view, leaf._storage
    if view is None or view.base is None or storage is None:
        return False
    return bool(view.creation) and view.version != storage.version


def _shows_memory(t: Tensor | None, storage: Storage | None) -> bool:
    return storage is not None and t is not None and t._storage is not None and t._storage.memory is storage.memory


def _has_own_history(view: Tensor) -> bool:
    """Whether a view left a custom function, whose derivative taking the view again would lose."""
    assert view._view is not None
    node = view._grad_fn if view._view.creation in (CUSTOM_FUNCTION, MULTIPLE_VIEWS) else None
    while node is not None and node is not view._view.base_fn:
        if isinstance(node, BackwardCFunction):
            return True
        following = node.next_functions
        node = following[0][0] if following else None
    return False


def _ends_in(history: set[Any], leaf: ArgumentLeaf) -> bool:
    """Whether a history leads to an argument."""
    if leaf.shell is None or leaf.entry is None:
        return False
    node, kept = leaf.entry._grad_fn, leaf.shell._accumulator
    return (kept and kept() if node is None else node) in history


def _shared_memory(outputs: Sequence[Any]) -> set[int]:
    """The ids of the memory that several output leaves look at."""
    storages = {id(o): o._storage for o in outputs if isinstance(o, Tensor) and o._storage is not None}
    counts = Counter(id(storage.memory) for storage in storages.values())
    return {memory for memory, count in counts.items() if count > 1}


def _whole(leaf: Tensor) -> Tensor:
    """All of the memory that a traced tensor looks at."""
    storage = leaf._storage
    if storage is None or storage.value is None:
        raise UnrecordedForm("a result that shows memory from outside in another form", leaf)
    whole = wrap_value(storage.value)
    whole._storage, whole._view = storage, View(None, (), None, storage)
    return whole


def _is_flat(tree: TreeSpec) -> bool:
    """Whether the native entry point can make a result of its leaves: one leaf or a flat tuple of them."""
    return tree.kind is None or (tree.kind is tuple and all(child.kind is None for child in tree.children))


def _is_at_hand(place: Place) -> bool:
    """Whether native code has a leaf: a tensor that is nothing else, the element of one, or what is always the same."""
    if place.chain or place.aliases or place.grad is not None or place.ends or place.is_leaf:
        return False
    return place.kind in ("result", "number") or (place.kind == "constant" and not is_symbolic(place.what))


def _number(t: Tensor) -> Any:
    """The only element of a tensor."""
    array = host_copy(t._array)
    return array.item() if type_of(t).dtype is not bfloat16 else float(array)
