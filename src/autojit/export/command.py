"""``python -m autojit export module:function``: a function or module as a library, from the command line."""

from __future__ import annotations

import argparse
import ast
import importlib
import re
import sys
from collections.abc import Sequence
from typing import Any

from autojit.core.dtypes import BY_NAME, DType
from autojit.core.errors import ArgumentError
from autojit.export.dimensions import Dim
from autojit.export.exporting import ExportedStep, export, step_of
from autojit.functions.factories import zeros
from autojit.io.safetensors import written_whole
from autojit.jit.function import JitFunction

_TENSOR = re.compile(r"(\w+)\[([^\]]*)\]")
_EXTENT = 3  # of an open size in the example that stands for all

HELP = """an argument: a dtype with extents, as float32[batch,784] (names are sizes left open), or a number or text of
Python; once per argument. Without any, the step that the module has run last"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``export``."""
    parser.add_argument("function", metavar="MODULE:FUNCTION", help="what to export, e.g. train:step or net:model")
    parser.add_argument("--example", action="append", default=[], metavar="ARGUMENT", help=HELP)
    parser.add_argument("--stablehlo", action="store_true", help="also PATH.mlir: StableHLO text, of inference alone")
    parser.add_argument("-o", "--output", metavar="PATH", help="the library, without its ending; default: FUNCTION")


def run(options: argparse.Namespace) -> int:
    """Write the files and print what they hold.

    Raises:
        ArgumentError: there is no such module or function, or an example is none.
        ExportError: it cannot be a library.
    """
    function, name = _named(options.function)
    path = options.output or name
    exported = _exported(function, options.example)
    written = exported.save(path)
    if options.stablehlo:
        with written_whole(f"{path}.mlir") as file:
            file.write(exported.stablehlo().encode())
        written.append(f"{path}.mlir")
    print(exported)
    print("\n".join(f"wrote {file}" for file in written))
    return 0


def _exported(function: Any, examples: Sequence[str]) -> ExportedStep:
    found = getattr(function, "_jitted", function)
    if not examples and isinstance(found, JitFunction) and found.newest is not None:
        return step_of(found, (), {})
    sizes: dict[str, Dim] = {}
    arguments = [_example(text, sizes) for text in examples]
    values = tuple(value for value, _ in arguments)
    return export(function, values, dynamic_shapes=tuple(axes for _, axes in arguments) if sizes else None)


def _named(text: str) -> tuple[Any, str]:
    """What ``module:function`` names, and its last name."""
    module, colon, names = text.partition(":")
    if not (module and colon and names):
        raise ArgumentError("export: not MODULE:FUNCTION", {"given": text}, "name a function, e.g. train:step")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        found: Any = importlib.import_module(module.removesuffix(".py").replace("/", "."))
        for name in names.split("."):
            found = getattr(found, name)
    except (ImportError, AttributeError) as error:
        raise ArgumentError("export: there is no such function", {"given": text, "reason": error}) from error
    return found, names.rpartition(".")[2]


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
