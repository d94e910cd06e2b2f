"""Views made again: what a view function found out for one shape, layout and arguments is kept for the next call.

Which view ops a function applies, and what its node says, depends on the operand's shape, strides and dtype and on the
arguments alone. The first call takes the long way; later ones apply the kept ops and copy the node.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, NamedTuple

import numpy as np

from autojit.core.source import place_in_history
from autojit.core.tracebacks import trim
from autojit.core.types import TensorType
from autojit.dispatch.dispatch import attach_views
from autojit.history.op_node import OpNode
from autojit.history.recording import edge_of, has_history_of_today, new_node, require_unchanged, shows_grad
from autojit.history.saved import accumulator_of
from autojit.ir.op import Op
from autojit.ops.shape import Slice
from autojit.tensor.node import next_sequence
from autojit.tensor.state import computes_at_once, state
from autojit.tensor.storage import MULTIPLE_VIEWS
from autojit.tensor.tensor import Tensor, made_in_inference, storage_chain, type_of, wrap

_ndarray = np.ndarray
_LIMIT = 4096
_PLAIN = frozenset((int, str, type(None), type(Ellipsis)))


class Way(NamedTuple):
    """The view ops from the operand to the result, the result's type, and the fields of the node if one is recorded."""

    chain: tuple[Op, ...]
    spec: TensorType
    node: type[OpNode] | None
    op: Op | None
    mask: int
    primals: list[Any]
    results: list[Any]
    versions: Any
    metas: Any
    rules: dict[Any, Any] | None
    subscript: tuple[Any, ...] | None = None  # that shows an array at once what the ops do


class Ways(NamedTuple):
    """The views of several pieces, with their subscripts where they have any, and of one what their one node is."""

    pieces: tuple[tuple[tuple[Op, ...], TensorType, tuple[Any, ...] | None], ...]
    way: Way


_WAYS: dict[Any, Any] = {}  # a Way, or Ways


def _known(what: tuple[Any, ...], x: Tensor) -> tuple[Any, Any]:
    """(key, what is kept under it): see ``recall``."""
    array, view = x._array, x._view
    now = state.__dict__
    if type(array) is not _ndarray or now["observer"] is not None:
        return None, None
    if now["divert"] is not None and not computes_at_once():
        return None, None
    if view is None:
        recorded = now["grad_enabled"] and x._requires_grad
    elif made_in_inference(x):  # such views are not recorded
        return None, None
    else:
        recorded = now["grad_enabled"] and (has_history_of_today(x, view) or shows_grad(x))
    key = (what, array.shape, array.strides, array.dtype, recorded)
    try:
        way = _WAYS.get(key)
    except TypeError:  # arguments that cannot be hashed
        return None, None
    if way is not None:
        for a in what:  # True and 1.0 are equal to 1, and no places of axes
            if type(a) not in _PLAIN and not (isinstance(a, tuple) and is_constant(a)):
                return None, None
    return key, way


def recall(what: tuple[Any, ...], x: Tensor) -> tuple[Any, Tensor | None]:
    """(key, the view ``what`` of ``x``): no view when it must be made the long way, no key when it cannot be kept.

    ``what`` names a function and its arguments.
    """
    key, way = _known(what, x)
    if way is None:
        return key, None
    array = x._array
    if way.subscript is not None:
        array = array[way.subscript]
    else:
        for op in way.chain:
            array = op.eager(array)
    found = wrap(array)
    found._type = way.spec
    attach_views(way.chain, x, found)
    if key[-1]:
        found._grad_fn = _recorded(way, x)
        found._requires_grad = True
    return key, found


def recall_several(what: tuple[Any, ...], x: Tensor) -> tuple[Any, tuple[Tensor, ...] | None]:
    """The same for the pieces of ``x`` that a function gives as outputs of one node."""
    key, ways = _known(what, x)
    if ways is None:
        return key, None
    node = None
    if key[-1]:
        if edge_of(x) is None:  # its base alone has a history
            return None, None
        node = _recorded(ways.way, x)
    elif state.grad_enabled:
        require_unchanged(x)
    found: list[Tensor] = []
    for chain, spec, index in ways.pieces:
        array = x._array
        if index is not None:
            array = array[index]
        else:
            for op in chain:
                array = op.eager(array)
        piece = wrap(array)
        piece._type = spec
        attach_views(chain, x, piece)
        if state.grad_enabled and piece._view is not None:
            piece._view.creation = MULTIPLE_VIEWS
        if node is not None:
            piece._requires_grad, piece._grad_fn, piece._output_nr = True, node, len(found)
        found.append(piece)
    return key, tuple(found)


def _recorded(way: Way, x: Tensor) -> OpNode:
    """A new node of a view of ``x``, called by who is called by a view function."""
    assert way.node is not None
    assert way.op is not None
    view = x._view
    if view is None or has_history_of_today(x, view):
        fn = x._grad_fn
        edges: list[Any] = [(accumulator_of(x) if fn is None else fn, x._output_nr)]
    else:
        if view.creation:  # how it was made and what became of its memory is not in the key
            require_unchanged(x)
        edges = [edge_of(x)]  # before the number is taken: a view's node, made again after a write, has a lower one
    node: OpNode = new_node(way.node)
    node.sequence, node.place = next_sequence(), place_in_history(3)
    node.op, node.mask, node.edges, node.rules = way.op, way.mask, edges, way.rules
    node.primals, node.results = way.primals, way.results
    node.versions, node.out_metas = way.versions, way.metas
    return node


def keep(key: tuple[Any, ...] | None, x: Tensor, found: Tensor, index: object = None) -> None:
    """Keep how ``found`` was made from ``x``, where it is a view whose node holds types only.

    ``index`` is the subscript of constants that it was made by, if it was.
    """
    if key is None or found is x or found._view is None or found._storage is not x._storage:
        return
    if not is_constant(key[0]):
        return
    chain = storage_chain(found)[len(storage_chain(x)) :]
    if not chain:
        return
    way = _way_of(chain, x, found, key[-1])
    if way is not None and not found._output_nr:
        _keep(key, way if index is None else way._replace(subscript=_subscript(x._array, found._array, index)))


def keep_several(key: tuple[Any, ...] | None, x: Tensor, pieces: tuple[Tensor, ...]) -> None:
    """``keep`` of the pieces of a tensor, which are outputs of one node if they are recorded."""
    if key is None or not pieces or not is_constant(key[0]):
        return
    before = len(storage_chain(x))
    found = []
    for piece in pieces:
        chain = storage_chain(piece)[before:]
        if piece._view is None or piece._storage is not x._storage or not chain:
            return
        found.append((chain, type_of(piece), _subscript_of(chain, x._array, piece._array)))
    way = _way_of((), x, pieces[0], key[-1])
    if way is not None:
        _keep(key, Ways(tuple(found), way))


def _subscript_of(chain: tuple[Op, ...], array: Any, found: Any) -> tuple[Any, ...] | None:
    """The same for a slice, of which a reshape may have dropped an axis."""
    first = chain[0]
    if not isinstance(first, Slice) or len(chain) > 2 or (len(chain) == 2 and chain[1].name != "reshape"):
        return None
    whole: list[Any] = list(map(slice, first.starts, first.stops, first.steps))
    tries = [whole]
    if len(chain) == 2:
        single = [k for k in range(len(whole)) if first.stops[k] - first.starts[k] == 1]
        tries = [[*whole[:k], first.starts[k], *whole[k + 1 :]] for k in single]
    places = [_subscript(array, found, tuple(place)) for place in tries]
    return next((place for place in places if place is not None), None)


def _subscript(array: Any, found: Any, index: object) -> tuple[Any, ...] | None:
    """What NumPy takes for a subscript, where that shows what was found: with an ellipsis, which gives no numbers."""
    place = index if isinstance(index, tuple) else (index,)
    if Ellipsis not in place:
        place = (*place, ...)
    seen = array[place]
    is_same = seen.shape == found.shape and seen.strides == found.strides and seen.ctypes.data == found.ctypes.data
    return place if is_same else None


def _way_of(chain: tuple[Op, ...], x: Tensor, found: Tensor, is_recorded: bool) -> Way | None:
    """What is kept of a view, and of its node if it is recorded; None where the node is of another kind."""
    if not is_recorded:
        return Way(chain, type_of(found), None, None, 0, [], [], (), (), None)
    node = found._grad_fn
    if not isinstance(node, OpNode) or list(node.edges) != [edge_of(x)]:
        return None
    if not all(isinstance(entry, tuple | TensorType) for entry in (*node.primals, *node.results)):
        return None
    kept = (node.primals, node.results, node.versions, node.out_metas)
    return Way(chain, type_of(found), type(node), node.op, node.mask, *kept, node.rules)


def _keep(key: tuple[Any, ...], way: Way | Ways) -> None:
    if len(_WAYS) >= _LIMIT:
        _WAYS.clear()
    _WAYS[key] = way


def is_constant(arguments: tuple[Any, ...]) -> bool:
    """Whether a tuple holds only names, ints, None, Ellipsis and such tuples, which stay equal: what a key may hold."""
    for a in arguments:  # noqa: SIM110  (every view pays for it: a generator takes three times as long)
        if type(a) not in _PLAIN and not (isinstance(a, tuple) and is_constant(a)):
            return False
    return True


def remembered(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The view function ``function(input, *arguments)`` with its ways kept."""
    name = function.__name__

    @wraps(function)
    def view(input: Tensor, *arguments: Any, **options: Any) -> Tensor:
        try:
            if options:
                return function(input, *arguments, **options)
            key, found = recall((name, arguments), input)
            if found is None:
                found = function(input, *arguments)
                keep(key, input, found)
            return found
        except Exception as error:
            trim(error)
            raise

    return view
