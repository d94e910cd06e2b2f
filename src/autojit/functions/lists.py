"""Functions of lists of tensors (``_foreach_add_``, ``_foreach_exp``, ...): an ordinary function applied in turn.

``_foreach_f`` is made from the function ``f``, ``_foreach_f_`` from the method ``f_``. Every argument that is a list
has one entry per tensor; any other is the same for all tensors. Results are a tuple; in place, the list that is given.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from autojit.core.errors import UsageError
from autojit.core.wrapping import named
from autojit.dispatch.declared import DECLARED
from autojit.dispatch.promotion import Operand
from autojit.history.op_node import rename_node
from autojit.tensor.state import as_given
from autojit.tensor.tensor import Tensor

_WITH_FACTOR = ("addcmul", "addcdiv")  # whose factor comes third here, and by its name in the plain function

_BY_PLACE = (
    "other", "scalar", "exponent", "ord", "src", "tensor1", "tensors1", "tensor2", "weight", "weights", "scalars",
)  # fmt: skip
"""Arguments that are given by name though the plain function may call them otherwise, in the order of their places."""


def functions_of_lists(functions: dict[str, Callable[..., Any]]) -> dict[str, Callable[..., Any]]:
    """The functions of lists by name.

    Example:
        >>> import autojit as aj
        >>> weights = [aj.tensor(1.0), aj.tensor([2.0, 3.0])]
        >>> aj._foreach_mul_(weights, 2) is weights
        True
        >>> aj._foreach_add(weights, [aj.tensor(1.0), aj.tensor(10.0)])
        (tensor(3.), tensor([14., 16.]))
    """
    found: dict[str, Callable[..., Any]] = {}
    for d in DECLARED.values():
        if d.lists:
            name = f"_foreach_{d.name}"
            if d.lists is not True:
                extreme = _extreme(functions[d.name], functions[d.lists], d.name)
                found[name] = _of_lists(name, extreme)
                found[f"{name}_"] = _in_place(f"{name}_", _written_over(extreme))
            elif not d.name.endswith("_"):
                found[name] = _of_lists(name, functions[d.name])
            in_place = d.name if d.name.endswith("_") else f"{d.name}_"
            if hasattr(Tensor, in_place):
                found[f"_foreach_{in_place}"] = _in_place(f"_foreach_{in_place}", getattr(Tensor, in_place))
    return found


def _of_lists(name: str, function: Callable[..., Any]) -> Callable[..., tuple[Any, ...]]:
    plain = name.removeprefix("_foreach_")
    node = f"Foreach{plain.title().replace('_', '')}Backward1"  # of a function with a list of numbers

    def of_lists(self: Sequence[Tensor] | Operand, *arguments: object, **options: object) -> tuple[Any, ...]:
        arguments = (*arguments, *[options.pop(option) for option in _BY_PLACE if option in options])
        given = _by_tensor(name, (self, *arguments))
        if plain.rstrip("_") in _WITH_FACTOR and len(arguments) == 3:
            results = tuple([as_given(function, *each, value=factor, **options) for *each, factor in given])
        else:
            results = tuple([as_given(function, *each, **options) for each in given])
        second: Any = arguments[0] if arguments else None
        has_numbers = len(arguments) == 1 and isinstance(second, list | tuple) and not isinstance(second[0], Tensor)
        if has_numbers and not name.endswith("_"):
            for y in results:
                rename_node(y, node, scalars=tuple(second))
        return results

    return named(of_lists, name, f"``{plain}`` of every tensor of a list; the results in a tuple.")


def _extreme(of_tensors: Callable[..., Any], of_number: Callable[..., Any], name: str) -> Callable[..., Any]:
    """The larger (smaller) of each element and those of a tensor, or a number."""

    def extreme(x: Tensor, other: Operand) -> Any:
        if isinstance(other, Tensor):
            return of_tensors(x, other)
        return rename_node(of_number(x, other), f"Foreach{name.title()}Backward0", scalar=other)

    return extreme


def _written_over(function: Callable[..., Any]) -> Callable[..., Any]:
    """The method in place of a function that has none of its own."""
    return lambda x, *arguments: x.copy_(function(x, *arguments))


def _in_place(name: str, method: Callable[..., Any]) -> Callable[..., Sequence[Tensor]]:
    run = _of_lists(name, method)

    def change_lists(self: Sequence[Tensor], *arguments: object, **options: object) -> Sequence[Tensor]:
        run(self, *arguments, **options)
        return self

    return named(change_lists, name, f"``{name.removeprefix('_foreach_')}`` on every tensor of a list.")


def _by_tensor(name: str, arguments: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """The arguments of each call."""
    tensors = arguments[0]
    if name == "_foreach_pow" and not isinstance(tensors, list | tuple):  # of one base
        tensors = arguments[1] if len(arguments) > 1 else None
    if not isinstance(tensors, list | tuple) or not tensors:
        raise UsageError(f"{name}: Tensor list must have at least one tensor.")
    columns = []
    for place, given in enumerate(arguments):
        if place == 3 and isinstance(given, Tensor) and given.ndim == 1:
            given = given.tolist()  # numbers in a tensor
        if isinstance(given, list | tuple):
            if len(given) != len(tensors):
                are_tensors = bool(given) and isinstance(given[0], Tensor)
                raise UsageError(
                    f"{name}: Tensor lists must have the same number of tensors, got {len(tensors)} and {len(given)}"
                    if are_tensors
                    else f"{name}: Tensor list must have same number of elements as scalar list."
                )
            columns.append(list(given))
        else:
            columns.append([given] * len(tensors))
    return list(zip(*columns, strict=True))
