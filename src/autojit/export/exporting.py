"""From a function to files: which of its steps a library gets, and what is written.

How to read: `export` and `save` are torch's, `write` is what ``step.export`` calls, `ExportedStep` what both make.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from autojit.core.errors import ArgumentError
from autojit.core.ports import ports
from autojit.core.sizes import is_symbolic
from autojit.export import standalone
from autojit.export.captured_parts import Parts, called, parts_of
from autojit.export.dimensions import Dim, Dims, axes_of, with_extent
from autojit.export.header import header_of
from autojit.export.library import Library
from autojit.export.names import identifier
from autojit.export.refusals import ExportError, check_function, check_results, check_step, require_platform
from autojit.export.stablehlo import stablehlo_text
from autojit.io.safetensors import written_whole
from autojit.jit.function import JitFunction
from autojit.jit.guards import broken_guard
from autojit.jit.memory_budget import looked_for
from autojit.jit.pytree import flatten
from autojit.jit.step import CompiledStep
from autojit.optim.lr_tables import tabulated

Path = str | os.PathLike[str]


class ExportedStep:
    """A step that can leave the process: its library, header and description.

    ``print`` shows the signature, the sizes it is for and its state; ``save(path)`` writes the files.
    """

    def __init__(self, function: JitFunction, steps: Sequence[Parts], dims: Dims | None = None) -> None:
        self._function, self._steps, self._dims = function, steps, dims or {}
        self._made: Library | None = Library(identifier(function.name, set()), function, steps, self._dims)
        self.manifest: dict[str, Any] = self._made.manifest()

    def _library(self, name: str) -> Library:
        """One to be written, which can be done once."""
        made, self._made = self._made or Library("", self._function, self._steps, self._dims), None
        made.name = identifier(name, set())
        return made

    def save(self, path: Path) -> list[str]:
        """Write ``path.so``, ``path.h``, ``path.json`` and ``path_numpy.py``; their paths.

        The names of the library's functions begin with the last part of the path. Each file appears whole: a library
        that a process has loaded stays what it is.
        """
        stem = os.fspath(path)
        stem = stem.removesuffix(".so")
        library = self._library(os.path.basename(stem))
        texts: dict[str, Iterable[bytes | memoryview]] = {
            ".so": library.content(),
            ".h": [header_of(library).encode()],
            ".json": [json.dumps(library.manifest(), indent=1).encode()],
        }
        for suffix, pieces in texts.items():
            with written_whole(stem + suffix) as file:
                file.writelines(pieces)
        beside = f"{stem}_numpy.py"
        with written_whole(beside) as file, open(standalone.__file__, "rb") as source:
            shutil.copyfileobj(source, file)
        return [*(stem + suffix for suffix in texts), beside]

    def stablehlo(self) -> str:
        """The function as StableHLO text, which XLA reads: for steps that change nothing.

        State is constants of the text. Indices out of range are not refused there. Open sizes are ``?`` in types, and
        a comment in front says for which the text is: XLA compiles it for the sizes of a call.

        Raises:
            ExportError: the step changes tensors, counts a size itself, or an op has no counterpart.
        """
        steps = self.manifest["steps"] if self.manifest["sizes"] else [()]
        return stablehlo_text(self._steps[0].step, identifier(self._function.name, set()), steps[0])

    def __str__(self) -> str:
        return standalone.described(self.manifest)

    __repr__ = __str__


def export(
    function: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    schedule_steps: int | None = None,
) -> ExportedStep:
    """The step of a function or module for arguments like these, to be saved as a library. Nothing runs.

    Args:
        function: what to export; one that ``aj.jit`` has made keeps its steps.
        args: positional arguments, as examples.
        kwargs: arguments by name, as examples.
        dynamic_shapes: sizes to leave open, as torch takes them: by argument (a dictionary by name, or in order), a
            dictionary from axes to `Dim`. One `Dim` in several places is one size.
        schedule_steps: for functions that call ``schedule.step()``: for how many calls the library gets what the
            schedule will set. A call beyond them is an error of the library.

    Raises:
        TraceError: the call would run line by line.
        ExportError: something in the step needs Python, or a device; the message names op and line.

    Example:
        >>> import autojit as aj
        >>> model = aj.nn.Linear(3, 2)
        >>> batch = aj.export.Dim("batch")
        >>> print(aj.export.export(model, (aj.ones(4, 3),), dynamic_shapes=({0: batch},)))
        Linear(input: float32[batch, 3]) -> result: float32[batch, 2]
          state  weight: float32[2, 3], bias: float32[2]
          sizes  batch >= 2; batch == 1; batch == 0
    """
    require_platform()
    if isinstance(args, str | bytes) or not isinstance(args, Sequence):
        raise ArgumentError("export: args is a tuple of example arguments", {"args": type(args).__name__})
    is_own = dynamic_shapes is not None or schedule_steps is not None
    jitted, given = _fresh(function) if is_own else _jitted(function), dict(kwargs or {})
    with tabulated(schedule_steps or 0):
        if dynamic_shapes is None:
            return ExportedStep(jitted, _served(jitted, looked_for(jitted, args, given).step))
        return ExportedStep(jitted, *_opened(jitted, tuple(args), given, dynamic_shapes))


def save(exported: ExportedStep, path: Path) -> list[str]:
    """Write the files of an exported step; see `ExportedStep.save`."""
    return exported.save(path)


def load(path: Path) -> standalone.Step:
    """An instance of the exported step in a file, called with NumPy arrays; see `standalone`."""
    return standalone.load(path)


def write(function: JitFunction, path: Path, args: Sequence[Any], kwargs: dict[str, Any]) -> ExportedStep:
    """What ``step.export(path, ...)`` does: for these arguments, or for the calls so far."""
    exported = step_of(function, args, kwargs)
    exported.save(path)
    return exported


def step_of(function: JitFunction, args: Sequence[Any], kwargs: Mapping[str, Any]) -> ExportedStep:
    """The step for these arguments, or without any the one captured last."""
    require_platform()
    found = looked_for(function, args, kwargs).step if args or kwargs else function.last_step()
    return ExportedStep(function, _served(function, found))


def _jitted(function: Any) -> JitFunction:
    """The jitted function behind what a user has."""
    found = getattr(function, "_jitted", function)
    if isinstance(found, JitFunction):
        return found
    step = getattr(type(function), "_step", None)
    if step is not None and isinstance(made := _jitted(step(function)), JitFunction):
        return made
    return _fresh(function)


def _fresh(function: Any) -> JitFunction:
    """A jitted function of its own."""
    found = getattr(function, "_jitted", function)
    found = getattr(found, "_orig_mod", found)
    if not callable(found):
        raise ArgumentError("export: not a function", {"function": type(found).__name__})
    return JitFunction(found.function if isinstance(found, JitFunction) else found)


def _served(function: JitFunction, first: CompiledStep) -> list[Parts]:
    """The step, and those for other sizes of the same arguments that still hold; the most general first.

    Raises:
        ExportError: the step cannot be exported.
    """
    check_function(function)
    mine = _checked(function, first)
    others = [step for step in _of_same_modes(function, first) if step is not first]
    found = [mine, *(parts for step in others if (parts := _fitting(function, step, first)) is not None)]
    return sorted(found, key=lambda parts: -len(parts.step.segment.executable.symbols))


def _checked(function: JitFunction, step: CompiledStep) -> Parts:
    """A step's parts; ExportError where it cannot be exported."""
    check_step(step)
    parts = parts_of(function, step)
    check_results(parts.places, parts.first_leaf)
    return parts


def _of_same_modes(function: JitFunction, first: CompiledStep) -> list[CompiledStep]:
    found: list[tuple[Any, list[CompiledStep]]] = []
    for (modes, _), root in tuple(function.roots.items()):
        found.append((modes[:-1], [node for node in root.branch if isinstance(node, CompiledStep)]))
    mine = [modes for modes, steps in found if first in steps]
    return [step for modes, steps in found for step in steps if modes in mine]


def _fitting(function: JitFunction, step: CompiledStep, first: CompiledStep) -> Parts | None:
    """A step that takes the same arguments and gives the same results, if nothing has changed since its capture."""
    if _kinds(step) != _kinds(first) or broken_guard(step.capture.guards) is not None:
        return None
    try:
        return _checked(function, step)
    except ExportError:
        return None


def _kinds(step: CompiledStep) -> Any:
    """What steps of one library have in common."""
    values = [(v.type.dtype, v.type.ndim) for v in step.capture.inputs]
    leaves = [(leaf.kind, id(leaf.original) if leaf.kind == "object" else None) for leaf in step.capture.arguments]
    results = [(v.type.dtype, v.type.ndim) for v in step.results.values]
    places = [(place.kind, place.index) for place in step.results.places]
    orders = [None if step.call is not None else order for order in step.results.orders]
    counted = len(step.segment.executable.counted)
    return step.capture.argument_tree, values, leaves, step.results.tree, results, places, orders, counted


def _opened(
    function: JitFunction, args: tuple[Any, ...], kwargs: dict[str, Any], shapes: Any
) -> tuple[list[Parts], Dims]:
    """Steps that leave sizes open, and which: for all from 2 on, and for 1 and 0, of which broadcasting hangs, their
    own.
    """
    leaves, tree = flatten((args, kwargs))
    axes = axes_of(called(function.function), args, kwargs, shapes)
    for places in axes.values():
        function.open_sizes.open(tree, places)
    first = looked_for(function, args, kwargs).step
    for dim, places in axes.items():
        for extent in (1, 0):
            if dim.min <= extent:
                changed, by_name = tree.unflatten(with_extent(leaves, places, extent))
                _capture_if_possible(function, changed, by_name)
    steps = _served(function, first)
    values = [k for k, leaf in enumerate(steps[0].leaves) if leaf.value is not None]
    dims = {(values.index(k), axis): dim for dim, places in axes.items() for k, axis in places}
    for (k, axis), dim in dims.items():
        if not is_symbolic(steps[0].inputs[k].type.shape[axis]):
            reason = next(iter(function.counts.reasons[-1:]), "the function assigns values of its own")
            raise ExportError(f"export: the size {dim.name} cannot stay open", {"because": reason})
    return steps, dims


def _capture_if_possible(function: JitFunction, args: Iterable[Any], kwargs: dict[str, Any]) -> None:
    """A step for one more size; a function that refuses it, as many do empty tensors, has none."""
    try:
        with np.errstate(all="ignore"):
            looked_for(function, tuple(args), kwargs)
    except (ValueError, RuntimeError, TypeError, IndexError):
        return


class _Exporting:
    """What ``jit`` reaches through ``core.ports``."""

    write = staticmethod(write)


ports.export = _Exporting()

__all__ = ["Dim", "ExportError", "ExportedStep", "export", "load", "save"]
