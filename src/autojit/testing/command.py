"""``python -m autojit gradcheck module:function``: check a function's derivatives from the command line."""

from __future__ import annotations

import argparse
import importlib
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import autojit as aj
from autojit.core.errors import ArgumentError
from autojit.testing.gradients import MODES, assert_gradients
from autojit.testing.samples import make_tensor

DEFAULT_SHAPE = (2, 3)
DTYPES = ("float64", "complex128")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``gradcheck``."""
    parser.add_argument("function", metavar="MODULE:FUNCTION", help="what to check, e.g. mypackage.losses:huber")
    parser.add_argument("--order", type=int, default=2, metavar="N", help="highest order of derivative; default: 2")
    parser.add_argument(
        "--mode", type=_modes, default=MODES, metavar="M[,M]", help="eager, jit, or both; default: both"
    )
    source = parser.add_mutually_exclusive_group()
    source.add_argument(
        "--inputs", metavar="[MODULE:]CALLABLE", help="returns the inputs, a tensor or a tuple; no arguments"
    )
    source.add_argument(
        "--shape", type=_shape, action="append", metavar="M,N,...",
        help="shape of an input, once per input ('' for a scalar); default: 2,3 per parameter without default",
    )  # fmt: skip
    parser.add_argument("--dtype", choices=DTYPES, default=DTYPES[0], help="of generated inputs; default: float64")
    parser.add_argument("--low", type=float, default=-2.0, help="least generated value; default: -2")
    parser.add_argument("--high", type=float, default=2.0, help="end of the generated values; default: 2")
    parser.add_argument("--seed", type=int, default=0, help="of the generated values; default: 0")
    parser.add_argument("--eps", type=float, default=1e-6, help="step of the finite differences; default: 1e-6")
    parser.add_argument("--atol", type=float, default=1e-5, help="absolute tolerance; default: 1e-5")
    parser.add_argument("--rtol", type=float, default=1e-3, help="relative tolerance; default: 1e-3")
    parser.add_argument("--fast", action="store_true", help="compare along random directions instead of all entries")


def _modes(text: str) -> tuple[str, ...]:
    modes = tuple(text.split(","))
    if not all(mode in MODES for mode in modes):
        raise argparse.ArgumentTypeError(f"{text!r}: modes are {' and '.join(MODES)}")
    return modes


def _shape(text: str) -> tuple[int, ...]:
    parts = [part for part in text.split(",") if part]
    if not all(part.isdigit() for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r} is not a shape such as 3,4")
    return tuple(int(part) for part in parts)


def run(options: argparse.Namespace) -> int:
    """Check; the process's exit status: 0 when every derivative is right, 1 when one is wrong.

    Raises:
        ArgumentError: there is no such function, or it cannot be called with the inputs.
    """
    if options.order < 1:
        raise ArgumentError("gradcheck: the order is 1 or more", {"--order": options.order})
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    function = _find(options.function)
    aj.manual_seed(options.seed)
    inputs = _inputs(function, options)
    _try(function, inputs, options.function)
    try:
        for mode in options.mode:
            assert_gradients(
                function, inputs, options.order, (mode,), eps=options.eps, atol=options.atol, rtol=options.rtol,
                fast_mode=options.fast,
            )  # fmt: skip
            print(f"{options.function}: derivatives of order 1 to {options.order} are right ({mode})")
    except AssertionError as error:
        print(f"{options.function}: {error}", file=sys.stderr)
        return 1
    except ValueError as error:
        raise ArgumentError(f"gradcheck: {error}") from error
    return 0


def _find(name: str, module: str = "") -> Callable[..., Any]:
    """The callable ``module:attribute.attribute`` names."""
    path, colon, attribute = name.rpartition(":")
    if not colon and not module:
        raise ArgumentError("gradcheck: say where the function is", {"given": name}, "write module:function")
    path = path or module
    try:
        found: Any = importlib.import_module(path)
    except ModuleNotFoundError as error:
        if error.name is None or not path.startswith(error.name):
            raise
        raise ArgumentError(
            f"gradcheck: there is no module {error.name!r}", {"searched": Path.cwd()}, "run it where the module is"
        ) from None
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise ArgumentError(f"gradcheck: {path!r} has no {attribute!r}", {"module": found})
        found = getattr(found, part)
    if not callable(found):
        raise ArgumentError(f"gradcheck: {name} is not callable", {"it is": type(found).__name__})
    function: Callable[..., Any] = found
    return function


def _inputs(function: Callable[..., Any], options: argparse.Namespace) -> tuple[Any, ...]:
    if options.inputs is not None:
        given = _find(options.inputs, options.function.partition(":")[0])()
        return (given,) if isinstance(given, aj.Tensor) else tuple(given)
    shapes = options.shape
    if shapes is None:
        shapes = [DEFAULT_SHAPE] * _parameter_count(function)
    dtype = getattr(aj, options.dtype)
    return tuple(make_tensor(s, dtype=dtype, low=options.low, high=options.high, requires_grad=True) for s in shapes)


def _parameter_count(function: Callable[..., Any]) -> int:
    """How many tensors the function takes, going by its signature."""
    try:
        parameters = inspect.signature(function, eval_str=True).parameters.values()
    except (ValueError, NameError) as error:
        raise ArgumentError(f"gradcheck: the signature cannot be read: {error}", fix="give --shape") from None
    count = 0
    for p in parameters:
        if p.default is not p.empty or p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            continue
        if p.kind is p.KEYWORD_ONLY or p.annotation not in (p.empty, aj.Tensor, Any):
            raise ArgumentError(
                "gradcheck: a parameter is no tensor", {"parameter": p}, "give --inputs, a callable that makes them"
            )
        count += 1
    if not count:
        raise ArgumentError("gradcheck: the function takes no tensors", fix="give --shape or --inputs")
    return count


def _try(function: Callable[..., Any], inputs: tuple[Any, ...], name: str) -> None:
    """Call once, so that a function that cannot take the inputs is told from wrong gradients."""
    try:
        found = function(*inputs)
    except Exception as error:
        shown = ", ".join(str(x.spec) if isinstance(x, aj.Tensor) else repr(x) for x in inputs)
        raise ArgumentError(
            f"gradcheck: {name}({shown}) raised {type(error).__name__}: {error}", fix="give fitting --shape or --inputs"
        ) from error
    outputs = found if isinstance(found, tuple | list) else (found,)
    if not any(isinstance(y, aj.Tensor) for y in outputs):
        raise ArgumentError(f"gradcheck: {name} returned no tensor", {"returned": type(found).__name__})
