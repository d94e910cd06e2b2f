"""Derivatives of functions as functions: jvp in forward mode; vjp, grad and jacrev in reverse mode.

How to read: forward mode runs the function once inside a level of its own (``forward_level.py``). Reverse mode runs it
on *fresh* inputs and asks the engine (``reverse.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from autojit.autograd.forward_level import make_dual, new_level, unpack_dual
from autojit.core.top_level import top_level
from autojit.core.wrapping import wraps
from autojit.func.arguments import JVP, check_real, chosen, outputs_of, pairs_of, replaced, with_aux
from autojit.func.batches import vmap
from autojit.func.reverse import fresh, own, pull_back
from autojit.functions.factories import eye, zeros_like
from autojit.functions.shape import stack
from autojit.jit.pytree import TreeSpec, flatten
from autojit.tensor import Tensor
from autojit.tensor.state import outside_inference, transform_mode
from autojit.tensor.tensor import type_of

Function = Callable[..., Any]
_VJP = "vjp(f, *primals)"


@top_level
def jvp(func: Function, primals: Any, tangents: Any, *, strict: bool = False, has_aux: bool = False) -> Any:
    """(output, Jacobian-vector product), in one run in forward mode.

    Args:
        func: takes the primals one by one; returns a nest of tensors, with ``has_aux`` also anything else.
        primals, tangents: tuples of nests of tensors with the same structure.

    Raises:
        RuntimeError: primals and tangents differ in structure or shape, or something else is among the tensors.

    Example:
        >>> import autojit as aj
        >>> aj.func.jvp(lambda x: x**2, (aj.tensor(3.0),), (aj.tensor(1.0),))
        (tensor(9.), tensor(6.))
    """
    leaves, directions, tree = pairs_of(primals, tangents)
    with outside_inference(), new_level() as level:
        duals = [make_dual(level, x, x_dot) for x, x_dot in zip(leaves, directions, strict=True)]
        found, aux = with_aux(JVP, func(*tree.unflatten(duals)), has_aux)
        outputs, output_tree = outputs_of(JVP, found)
        pairs = [unpack_dual(level, y) for y in outputs]
        if strict and any(t is None for _, t in pairs):
            raise RuntimeError(f"{JVP}: an output of f is independent of all inputs (strict=True)")
        products = [zeros_like(y) if t is None else t for y, t in pairs]
    both = output_tree.unflatten([y for y, _ in pairs]), output_tree.unflatten(products)
    return (*both, aux) if has_aux else both


def vjp(func: Function, *primals: Any, has_aux: bool = False) -> Any:
    """(output, function from cotangents of the output to those of the primals).

    The function takes a nest like the output and returns a tuple with one nest per primal; call it as often as needed.

    Example:
        >>> import autojit as aj
        >>> value, pull = aj.func.vjp(lambda x: x**2, aj.tensor(3.0))
        >>> pull(aj.tensor(1.0))
        (tensor(6.),)
    """
    leaves, tree = flatten(primals)
    with transform_mode() as is_recording:
        xs = [fresh(x, is_recording) for x in leaves]
        found, aux = with_aux(_VJP, func(*tree.unflatten(xs)), has_aux)
        outputs, output_tree = outputs_of(_VJP, found)
        value = output_tree.unflatten([own(y, xs, is_recording) for y in outputs])
        aux = _own_nest(aux, xs, is_recording)

    def pull(cotangents: Any) -> Any:
        bars, bar_tree = flatten(cotangents)
        if bar_tree != output_tree:
            raise RuntimeError(
                f"Expected pytree structure of cotangents to be the same as pytree structure of outputs to the "
                f"function. cotangents: {bar_tree}, primal output: {output_tree}"
            )
        with transform_mode() as is_recording:
            return tree.unflatten([own(g, xs, is_recording) for g in pull_back(outputs, xs, bars)])

    return (value, pull, aux) if has_aux else (value, pull)


def grad(func: Function, argnums: Any = 0, has_aux: bool = False) -> Function:
    """The gradient function of a scalar-valued function, with respect to the arguments ``argnums``.

    Raises:
        RuntimeError: the function does not return one Tensor with one element.

    Example:
        >>> import autojit as aj
        >>> aj.func.grad(aj.func.grad(lambda x: x**3))(aj.tensor(2.0))
        tensor(12.)
    """
    both = grad_and_value(func, argnums, has_aux)

    @wraps(func)
    def gradient(*args: Any, **kwargs: Any) -> Any:
        found, value = both(*args, **kwargs)
        return (found, value[1]) if has_aux else found

    return gradient


def grad_and_value(func: Function, argnums: Any = 0, has_aux: bool = False) -> Function:
    """Like ``grad``, but the function returned gives (gradient, value); with ``has_aux`` (gradient, (value, aux))."""

    @wraps(func)
    def both(*args: Any, **kwargs: Any) -> Any:
        wanted = chosen(args, argnums)
        leaves, tree = flatten(wanted)
        with transform_mode() as is_recording:
            xs = [fresh(x, is_recording) for x in leaves]
            found = func(*replaced(args, argnums, tree.unflatten(xs)), **kwargs)
            y, aux = with_aux("grad_and_value(f)(*args)", found, has_aux)
            if not isinstance(y, Tensor) or type_of(y).size != 1 or type_of(y).ndim:
                shown = type_of(y) if isinstance(y, Tensor) else type(y).__name__
                raise RuntimeError(
                    f"grad_and_value(f)(*args): Expected f(*args) to return a scalar tensor, got {shown}; sum it, or "
                    "use jacrev for the Jacobian"
                )
            grads = tree.unflatten([own(g, xs, is_recording) for g in pull_back([y], xs, [y.new_ones(())])])
            value = own(y, xs, is_recording)
            return grads, ((value, _own_nest(aux, xs, is_recording)) if has_aux else value)

    return both


def jacrev(
    func: Function,
    argnums: Any = 0,
    *,
    has_aux: bool = False,
    chunk_size: int | None = None,
    _preallocate_and_copy: bool = False,
) -> Function:
    """The Jacobian function, by reverse mode for all elements of the output at once.

    Per output and argument a tensor of shape ``output.shape + argument.shape``.

    Args:
        chunk_size: how many elements of the output to differentiate at once, with less memory; with 1 no ``vmap``
            is used, so the backward pass may have ops that batches do not.

    Raises:
        RuntimeError: an argument or an output is complex.

    Example:
        >>> import autojit as aj
        >>> aj.func.jacrev(aj.sin)(aj.tensor([0.0, 0.0]))
        tensor([[1., 0.],
                [0., 1.]])
    """
    if chunk_size is not None and chunk_size <= 0:
        raise ValueError(f"jacrev: `chunk_size` should be greater than 0. (got {chunk_size})")

    @wraps(func)
    def jacobian(*args: Any, **kwargs: Any) -> Any:
        wanted = chosen(args, argnums)

        def of_chosen(*xs: Any) -> Any:
            return func(*replaced(args, argnums, xs if isinstance(argnums, tuple | list) else xs[0]), **kwargs)

        primals = tuple(wanted) if isinstance(argnums, tuple | list) else (wanted,)
        check_real("jacrev", "inputs", flatten(primals)[0])
        value, pull, *aux = vjp(of_chosen, *primals, has_aux=has_aux)
        outputs, output_tree = flatten(value)
        check_real("jacrev", "outputs", outputs)
        blocks = []
        for k, y in enumerate(outputs):

            def row(bar: Tensor, k: int = k) -> Any:
                bars = [bar if j == k else zeros_like(o) for j, o in enumerate(outputs)]
                return pull(output_tree.unflatten(bars))

            t = type_of(y)
            basis = eye(t.size, dtype=t.dtype, device=t.device).reshape((t.size, *t.shape))
            leaves, tree = _rows(row, basis) if chunk_size == 1 else flatten(vmap(row, chunk_size=chunk_size)(basis))
            shaped = [g.reshape((*t.shape, *type_of(g).shape[1:])) for g in leaves]
            found = tree.unflatten(shaped)
            blocks.append(found if isinstance(argnums, tuple | list) else found[0])
        result = output_tree.unflatten(blocks)
        return (result, *aux) if has_aux else result

    return jacobian


def _rows(row: Function, basis: Tensor) -> tuple[list[Tensor], TreeSpec]:
    """What the function gives for every element along the first axis, one after the other, stacked; and the nest."""
    found = [flatten(row(bar)) for bar in basis] or [flatten(row(basis.new_zeros(basis.shape[1:])))]
    columns = [stack(list(column))[: len(basis)] for column in zip(*(leaves for leaves, _ in found), strict=True)]
    return columns, found[0][1]


class _Aux(NamedTuple):
    """What a function returned besides, and where in it there are tensors."""

    tree: TreeSpec
    leaves: list[Any]
    places: list[int]

    def with_tensors(self, tensors: list[Tensor]) -> Any:
        """The same with these tensors."""
        leaves = list(self.leaves)
        for place, t in zip(self.places, tensors, strict=True):
            leaves[place] = t
        return self.tree.unflatten(leaves)


def jacfwd(func: Function, argnums: Any = 0, has_aux: bool = False, *, randomness: str = "error") -> Function:
    """The Jacobian function, by forward mode for all elements of the argument at once.

    Args:
        randomness: as for ``vmap``.

    Example:
        >>> import autojit as aj
        >>> aj.func.jacfwd(aj.sin)(aj.tensor([0.0, 0.0]))
        tensor([[1., 0.],
                [0., 1.]])
    """

    @wraps(func)
    def jacobian(*args: Any, **kwargs: Any) -> Any:
        leaves, tree = flatten(chosen(args, argnums))
        check_real("jacfwd", "inputs", leaves)
        aux: list[Any] = []
        kept: list[_Aux] = []
        columns = []
        output_trees = []
        for k, x in enumerate(leaves):

            def push(x_dot: Tensor, k: int = k) -> Any:
                def along(moved: Tensor) -> Any:
                    given = tree.unflatten([moved if j == k else leaf for j, leaf in enumerate(leaves)])
                    return func(*replaced(args, argnums, given), **kwargs)

                _, product, *rest = jvp(along, (leaves[k],), (x_dot,), has_aux=has_aux)
                beside, beside_tree = flatten(rest)
                places = [i for i, t in enumerate(beside) if isinstance(t, Tensor)]
                kept[:] = [_Aux(beside_tree, beside, places)]
                return product, [beside[i] for i in places]

            t = type_of(x)
            basis = eye(t.size, dtype=t.dtype, device=t.device).reshape((t.size, *t.shape))
            product, beside = vmap(push, out_dims=-1, randomness=randomness)(basis)
            parts, output_tree = flatten(product)
            check_real("jacfwd", "outputs", parts)
            output_trees.append(output_tree)
            columns.append([p.reshape((*type_of(p).shape[:-1], *t.shape)) for p in parts])
            aux = kept[0].with_tensors([t.select(-1, 0) for t in beside])
        blocks = [tree.unflatten(list(row)) for row in zip(*columns, strict=True)]
        result = output_trees[0].unflatten(blocks)
        return (result, aux[0]) if has_aux else result

    return jacobian


def hessian(func: Function, argnums: Any = 0) -> Function:
    """The matrix of second derivatives of a scalar-valued function: forward mode over reverse mode.

    Example:
        >>> import autojit as aj
        >>> aj.func.hessian(lambda x: (x**3).sum())(aj.tensor([1.0, 2.0]))
        tensor([[ 6.,  0.],
                [ 0., 12.]])
    """
    return jacfwd(jacrev(func, argnums), argnums)


def _own_nest(found: Any, inputs: Sequence[Tensor], is_recording: bool) -> Any:
    """What a function returned besides, its tensors without histories of ours."""
    leaves, tree = flatten(found)
    return tree.unflatten([own(t, inputs, is_recording) if isinstance(t, Tensor) else t for t in leaves])
