"""Numba asked for the LLVM text of a function, and for the exceptions the function raises.

Numba is imported when the first function is compiled.
"""

from __future__ import annotations

import functools
import importlib
import pickle
import re
from collections.abc import Callable, Sequence
from typing import Any

from autojit.codegen.numba_text.module_text import Linked, ModuleText, linked, read_module
from autojit.codegen.numba_text.narrowing import narrowed
from autojit.codegen.numba_text.scalar_function import ScalarFunction, called_names, scalar_function
from autojit.codegen.numba_text.tangent_rules import is_mathematical
from autojit.core.dtypes import BY_NAME, DType, bfloat16, float16, float32
from autojit.core.errors import UnsupportedError, UsageError
from autojit.core.records import record
from autojit.jit.traced_math import plain_math
from autojit.runtime.loader import library_address

_RUN_TIME = ("NRT_",)  # of Numba: memory for arrays that a function makes for itself
_HELPERS = ("numba_frexp", "numba_ldexp", "numba_gamma")  # of Numba: plain C functions
_LLVM_TYPES = {
    "float64": "double", "float32": "float", "bool": "i8", "int8": "i8", "uint8": "i8", "int16": "i16",
    "uint16": "i16", "int32": "i32", "uint32": "i32", "int64": "i64", "uint64": "i64",
}  # fmt: skip


@record
class Compiled:
    """A function compiled for operands of certain dtypes.

    Args:
        code: its LLVM text.
        operands: the dtypes it takes; float32 stands for the halves.
        results: the dtypes it returns.
        returns_tuple: whether it returns a tuple.
        failures: the exceptions it raises, by number less one.
    """

    code: ScalarFunction
    operands: tuple[DType, ...]
    results: tuple[DType, ...]
    returns_tuple: bool
    failures: tuple[Exception, ...]


@functools.cache
def numba() -> Any:
    """The package Numba.

    Raises:
        UnsupportedError: it is not installed.
    """
    try:
        return importlib.import_module("numba")
    except ModuleNotFoundError as error:
        if error.name != "numba":
            raise
        raise UnsupportedError("op: Numba is not installed", fix="pip install 'autojit[numba]'") from None


def dispatcher_of(function: Any) -> Any:
    """The Numba function of a function: itself, what a ``numba.vectorize`` wraps, or a plain function compiled now."""
    package = numba()
    if isinstance(function, package.core.dispatcher.Dispatcher):
        return function
    wrapped = getattr(function, "_dispatcher", None)
    if wrapped is not None and hasattr(wrapped, "py_func"):
        return _plain(wrapped.py_func)
    return _plain(function)


@functools.lru_cache(maxsize=1024)
def _plain(function: Callable[..., Any]) -> Any:
    return numba().njit(function)


def compile_scalar(function: Any, dtypes: Sequence[DType], is_narrow: bool) -> Compiled:
    """The function for operands of these dtypes; with its own signature it decides what it takes.

    Raises:
        UsageError: Numba cannot compile it for them, or it returns something else than numbers.
        UnsupportedError: it does what cannot be linked: allocates memory, prints, calls Python.
    """
    dispatcher = dispatcher_of(function)
    name = dispatcher.py_func.__name__
    result = _compile_for(dispatcher, tuple(_numba_type(dtype) for dtype in dtypes), name)
    returned = result.signature.return_type
    types = numba().types
    members = tuple(returned.types) if isinstance(returned, types.BaseTuple) else (returned,)
    operands = tuple(_dtype(kind, name) for kind in result.signature.args)
    results = tuple(_dtype(kind, name) for kind in members)
    if not results:
        raise UsageError(f"op: {name} returns nothing", fix="return a number, or a tuple of numbers")
    module = read_module(result.library.get_llvm_str())
    code = scalar_function(
        linked(module, result.fndesc.llvm_func_name), tuple(_LLVM_TYPES[dtype.name] for dtype in results)
    )
    check_linkable(code.code, name)
    if is_narrow:
        code = narrowed(code)
        operands, results = (tuple(float32 if d.kind == "float" else d for d in kinds) for kinds in (operands, results))
    failures = tuple(_exception(module, failure) for failure in code.code.failures)
    return Compiled(code, operands, results, isinstance(returned, types.BaseTuple), failures)


@record
class CompiledArray:
    """A function over arrays compiled for certain dtypes and numbers of axes.

    Args:
        code: its LLVM text, or None where it calls what cannot be linked; a step then calls it through Python.
        dispatcher: the Numba function.
        n_results: how many arrays it fills.
        failures: the exceptions it raises, by number less one.
    """

    code: Linked | None
    dispatcher: Any
    n_results: int
    failures: tuple[Exception, ...]


def compile_array(
    function: Any, operands: Sequence[tuple[DType, int]], results: Sequence[tuple[DType, int]]
) -> CompiledArray:
    """The function for operands and results of these (dtype, number of axes).

    Raises:
        UsageError: Numba cannot compile it for them.
    """
    dispatcher = dispatcher_of(function)
    name = dispatcher.py_func.__name__
    array = numba().types.Array
    kinds = [_exact_type(dtype) if ndim == 0 else array(_exact_type(dtype), ndim, "C") for dtype, ndim in operands]
    kinds += [array(_exact_type(dtype), ndim, "C") for dtype, ndim in results]
    result = _compile_for(dispatcher, tuple(kinds), name)
    module = read_module(result.library.get_llvm_str())
    try:
        code = linked(module, result.fndesc.llvm_func_name)
        check_linkable(code, name, allowed=_RUN_TIME)
        failures = tuple(_exception(module, failure) for failure in code.failures)
    except UnsupportedError:
        return CompiledArray(None, dispatcher, len(results), ())
    return CompiledArray(code, dispatcher, len(results), failures)


def _exact_type(dtype: DType) -> Any:
    if dtype in (float16, bfloat16):
        raise UnsupportedError("op: Numba has no arrays of this dtype", {"operand": dtype}, "use float32")
    return _numba_type(dtype)


def _compile_for(dispatcher: Any, kinds: tuple[Any, ...], name: str) -> Any:
    """The compile result for operands of Numba's types, from the dispatcher's own table when it is there."""
    package = numba()
    errors = package.core.errors
    if not dispatcher._can_compile:
        fitting = [args for args in dispatcher.overloads if len(args) == len(kinds)]
        kinds = kinds if kinds in fitting or not fitting else fitting[0]
    try:
        if kinds not in dispatcher.overloads:
            with plain_math():
                dispatcher.compile(kinds)
        found = dispatcher.overloads[kinds]
    except (errors.NumbaError, TypeError, KeyError) as error:
        raise UsageError(
            f"op: Numba cannot compile {name} for ({', '.join(str(k) for k in kinds)})",
            {"Numba says": str(error).strip()},
            "see numba.pydata.org for what a compiled function may do",
        ) from error
    if found.objectmode:
        raise UsageError(f"op: Numba compiled {name} in object mode", fix="use numba.njit")
    if f"@{found.fndesc.llvm_func_name}(" in found.library.get_llvm_str():
        return found
    fresh = package.njit(dispatcher.py_func, **_options(dispatcher))  # the text of what came from Numba's cache is lost
    with plain_math():
        fresh.compile(kinds)
    return fresh.overloads[kinds]


def _options(dispatcher: Any) -> dict[str, Any]:
    """The options a function was compiled with that change what it computes."""
    return {
        key: value
        for key, value in dispatcher.targetoptions.items()
        if key in ("fastmath", "error_model", "boundscheck")
    }


def _numba_type(dtype: DType) -> Any:
    types = numba().types
    if dtype in (float16, bfloat16):
        return types.float32
    if dtype.name == "bool":
        return types.boolean
    if dtype.is_complex:
        raise UnsupportedError("op: linked functions take real numbers", {"operand": dtype}, "pass .real and .imag")
    return getattr(types, dtype.name)


def _dtype(kind: Any, name: str) -> DType:
    """autojit's dtype of a Numba type."""
    types = numba().types
    kind = types.unliteral(kind)
    found = BY_NAME.get("bool" if isinstance(kind, types.Boolean) else str(kind))
    if found is None or found.name not in _LLVM_TYPES:
        raise UsageError(
            f"op: {name} takes or returns {kind}",
            fix="a function of numbers returns numbers; one of whole arrays is made an op by aj.op(f, out=...)",
        )
    return found


def check_linkable(code: Linked, name: str, allowed: tuple[str, ...] = ()) -> None:
    """UnsupportedError when the function calls what is not there: Python, or Numba's run time unless allowed."""
    for called in sorted(called_names(code)):
        if called.startswith(("llvm.", "aj.op.", *_HELPERS, *allowed)) or is_mathematical(called):
            continue
        if called.startswith(("Py", "_Py", "NRT", "numba", "_ZN")) or not library_address(called):
            raise UnsupportedError(
                f"op: {name} cannot be linked into a kernel",
                {"it calls": called},
                "compute with numbers and tuples of numbers only: no arrays, strings, printing, and no recursion "
                "through other functions",
            )


def _exception(module: ModuleText, failure: str) -> Exception:
    """The exception that Numba describes by a pickle in the module's text."""
    text = module.globals[failure.replace("picklebuf", "pickledata")]
    found = re.search(r'c"(.*)"', text)
    assert found is not None, text
    data = re.sub(
        rb"\\(\\|[0-9A-Fa-f]{2})",  # LLVM writes a backslash as two
        lambda escaped: escaped.group(1) if escaped.group(1) == b"\\" else bytes([int(escaped.group(1), 16)]),
        found.group(1).encode("latin-1"),
    )
    described = pickle.loads(data)
    kind, arguments = described[0], described[1]
    error: Exception = kind(*(arguments or ()))
    return error
