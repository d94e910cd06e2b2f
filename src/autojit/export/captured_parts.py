"""What of a captured step is the user's: arguments and results; and what Python keeps between its calls.

A function that assigns to attributes (``self.steps += 1``) has steps that take these values as arguments and leave
them as results (`jit.assigned_places`). In a library they are state: read where they are, and written when a run has
succeeded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from autojit.core.device_array import packed
from autojit.core.records import record
from autojit.export.refusals import ExportError
from autojit.ir.graph import Value
from autojit.jit.arguments import ArgumentLeaf, leaf_names
from autojit.jit.function import JitFunction
from autojit.jit.pytree import TreeSpec, flatten
from autojit.jit.result_places import Place
from autojit.jit.step import CompiledStep
from autojit.nn.module import Module
from autojit.tensor.tensor import Tensor

_FIX = "keep what changes in a tensor of fixed shape and dtype, or return it"


@record(eq=False)
class Assigned:
    """A value that the function assigns: its name, where the step reads it, its present array, what becomes of it.

    ``result``: the number of the graph output that is its next value; None: it stays.
    """

    name: str
    value: Value
    array: Any
    result: int | None


@record(eq=False)
class Parts:
    """A step with its user's view.

    Attributes:
        leaves, names: of the arguments.
        first_input: graph inputs before those of the arguments.
        tree, places: of the results.
        n_results: graph outputs that are results.
        assigned: what Python keeps between calls.
    """

    step: CompiledStep
    leaves: Sequence[ArgumentLeaf]
    names: Sequence[str]
    first_leaf: int
    first_input: int
    tree: TreeSpec
    places: Sequence[Place]
    n_results: int
    assigned: Sequence[Assigned]

    @property
    def inputs(self) -> Sequence[Value]:
        """The graph inputs of the arguments."""
        return self.step.capture.inputs[self.first_input :]


def parts_of(function: JitFunction, step: CompiledStep) -> Parts:
    """The parts of a step.

    Raises:
        ExportError: what the function assigns is no state of a library.
    """
    rebinding, arguments = function.rebinding, step.capture.arguments
    tree, results = step.capture.argument_tree, step.results
    if rebinding is None:
        names = leaf_names(called(function.function), tree)
        return _made(step, arguments, names, 0, results.tree, results.places, ())
    first = rebinding.first_argument(tree)
    every = rebinding.leaf_names(tree)
    result, values, calls = results.tree.children
    if calls.count:
        fix = f"of a schedule: aj.export.export(function, args, schedule_steps=1000); else {_FIX}"
        raise ExportError("export: the function does something in Python after the step", {}, fix)
    places = results.places[result.count : result.count + values.count]
    held = flatten(tuple(location.read() for location in rebinding.locations))[0]
    if not len(places) == len(held) == first:
        raise ExportError("export: the function assigns values of other structure than it finds", {}, _FIX)
    assigned = [
        found
        for k, (place, now) in enumerate(zip(places, held, strict=True))
        if (found := _assigned(step, k, every[k], place, now)) is not None
    ]
    return _made(step, arguments[first:], every[first:], first, result, results.places[: result.count], assigned)


def called(function: Any) -> Any:
    """What has the names of a function's arguments: of a module, its ``forward``."""
    return function.forward if isinstance(function, Module) else function


def _made(
    step: CompiledStep,
    leaves: Sequence[ArgumentLeaf],
    names: Sequence[str],
    first_leaf: int,
    tree: TreeSpec,
    places: Sequence[Place],
    assigned: Sequence[Assigned],
) -> Parts:
    first_input = sum(leaf.value is not None for leaf in step.capture.arguments[:first_leaf])
    n_results = 1 + max((place.index for place in places if place.kind in ("result", "number")), default=-1)
    return Parts(step, leaves, names, first_leaf, first_input, tree, places, n_results, assigned)


def _assigned(step: CompiledStep, k: int, name: str, place: Place, now: Any) -> Assigned | None:
    """What becomes of the value of leaf ``k``; None where it is no tensor or number, and stays what it is."""
    leaf = step.capture.arguments[k]
    while place.kind == "same":
        place = step.results.places[place.index]
    if leaf.value is None:
        if place.kind == "constant" and place.what is leaf.original:
            return None
        raise ExportError(f"export: the function assigns {name}, whose value is Python's", {}, _FIX)
    array = np.array(packed(now._array) if isinstance(now, Tensor) else now, leaf.value.type.dtype.numpy)
    if place.kind == "argument" and place.index == k and not place.chain:
        return Assigned(name, leaf.value, array, None)
    results = step.results
    is_result = place.kind in ("result", "number") and not place.chain and results.orders[place.index] is None
    if not is_result or results.values[place.index].type != leaf.value.type:
        facts = {"before": leaf.value.type, "after": results.values[place.index].type if is_result else place.kind}
        raise ExportError(f"export: the function assigns {name} a value of another form", facts, _FIX)
    return Assigned(name, leaf.value, array, place.index)
