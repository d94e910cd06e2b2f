"""``python -m autojit export module:function``: a function or module as a library, from the command line."""

from __future__ import annotations

import argparse
import ast
import importlib
import os
import re
import sys
from collections.abc import Sequence
from typing import Any

from autojit.core.dtypes import BY_NAME, DType
from autojit.core.errors import ArgumentError
from autojit.export.dimensions import Dim
from autojit.export.exporting import ExportedStep, export, step_of
from autojit.functions.factories import zeros
from autojit.io.safetensors import load_file, written_whole
from autojit.jit.function import JitFunction
from autojit.nn.module import Module

_TENSOR = re.compile(r"(\w+)\[([^\]]*)\]")
_EXTENT = 3  # of an open size in the example that stands for all

HELP = """an argument: a dtype with extents, as float32[batch,784] (names are sizes left open), or a number or text of
Python; once per argument. Without any, the step that the module has run last"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``export``."""
    parser.add_argument(
        "function", metavar="MODULE:FUNCTION", help="what to export: train:step, net:model, net.py:Net(64, depth=2)"
    )
    parser.add_argument("--weights", metavar="FILE", help="a safetensors file that a module's parameters are read from")
    parser.add_argument("--eval", action="store_true", help="the module as model.eval() leaves it")
    parser.add_argument("--example", action="append", default=[], metavar="ARGUMENT", help=HELP)
    parser.add_argument(
        "--schedule-steps",
        type=int,
        metavar="N",
        help="for how many calls a step's learning rate schedules are written",
    )
    parser.add_argument("--stablehlo", action="store_true", help="also PATH.mlir: StableHLO text, of inference alone")
    parser.add_argument("-o", "--output", metavar="PATH", help="the library, without its ending; default: FUNCTION")


def run(options: argparse.Namespace) -> int:
    """Write the files and print what they hold.

    Raises:
        ArgumentError: there is no such module or function, or an example is none.
        ExportError: it cannot be a library.
    """
    function, name = _named(options.function)
    function = _prepared(function, options)
    path = options.output or name
    exported = _exported(function, options.example, options.schedule_steps)
    written = exported.save(path)
    if options.stablehlo:
        with written_whole(f"{path}.mlir") as file:
            file.write(exported.stablehlo().encode())
        written.append(f"{path}.mlir")
    print(exported)
    print("\n".join(f"wrote {file}" for file in written))
    return 0


def _exported(function: Any, examples: Sequence[str], schedule_steps: int | None) -> ExportedStep:
    found = getattr(function, "_jitted", function)
    if not examples and schedule_steps is None and isinstance(found, JitFunction) and found.newest is not None:
        return step_of(found, (), {})
    sizes: dict[str, Dim] = {}
    arguments = [_example(text, sizes) for text in examples]
    values = tuple(value for value, _ in arguments)
    shapes = tuple(axes for _, axes in arguments) if sizes else None
    return export(function, values, dynamic_shapes=shapes, schedule_steps=schedule_steps)


def _named(text: str) -> tuple[Any, str]:
    """What ``module:function`` names, or what ``module:Class(...)`` makes, and its last name."""
    module, colon, names = text.partition(":")
    names, is_call, _ = names.partition("(")
    if not (module and colon and names):
        raise ArgumentError("export: not MODULE:FUNCTION", {"given": text}, "name a function, e.g. train:step")
    folder, name = os.path.split(module)
    is_file = module.endswith(".py")
    if (place := folder if is_file else "") not in sys.path:  # as for ``python train.py``, and ``python -m train``
        sys.path.insert(0, place)
    try:
        found: Any = importlib.import_module(name.removesuffix(".py") if is_file else module.replace("/", "."))
        for part in names.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise ArgumentError("export: there is no such function", {"given": text, "reason": error}) from error
    if is_call:
        args, kwargs = _arguments(text.partition(":")[2])
        found = found(*args, **kwargs)
    return found, names.rpartition(".")[2]


def _arguments(call: str) -> tuple[list[Any], dict[str, Any]]:
    """The numbers and texts in the brackets of a call."""
    try:
        tree = ast.parse(call, mode="eval").body
        assert isinstance(tree, ast.Call)
        named = {str(word.arg): ast.literal_eval(word.value) for word in tree.keywords}
        return [ast.literal_eval(value) for value in tree.args], named
    except (AssertionError, ValueError, SyntaxError):
        raise ArgumentError(
            "export: the call is not understood", {"given": call}, "e.g. net:Net(64, depth=2)"
        ) from None


def _prepared(found: Any, options: argparse.Namespace) -> Any:
    """The module with the weights and in the mode that are asked for."""
    if not (options.weights or options.eval):
        return found
    if not isinstance(found, Module):
        raise ArgumentError("export: --weights and --eval are for modules", {"given": type(found).__name__})
    if options.weights:
        found.load_state_dict(load_file(options.weights))
    return found.eval() if options.eval else found


def _example(text: str, sizes: dict[str, Dim]) -> tuple[Any, dict[int, Dim] | None]:
    """The value that stands for an argument, and its open sizes."""
    found = _TENSOR.fullmatch(text.strip())
    dtype = BY_NAME.get(found[1]) if found else None
    if found is None or not isinstance(dtype, DType):
        try:
            return ast.literal_eval(text), None
        except (ValueError, SyntaxError):
            fix = "write it as float32[batch,784], or as a number or text of Python"
            raise ArgumentError("export: an example is not understood", {"given": text}, fix) from None
    shape: list[int] = []
    axes: dict[int, Dim] = {}
    for axis, extent in enumerate(part.strip() for part in found[2].split(",") if part.strip()):
        if extent.isdecimal():
            shape.append(int(extent))
            continue
        axes[axis] = sizes.setdefault(extent, Dim(extent))
        shape.append(_EXTENT + list(sizes).index(extent))
    return zeros(*shape, dtype=dtype, device="cpu"), axes or None
