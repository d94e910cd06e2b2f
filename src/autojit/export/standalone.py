"""A step that autojit has exported, called from Python by NumPy and ctypes alone.

This file is a module of its own: a copy of it is beside every exported library and needs neither autojit nor LLVM::

    import step_numpy

    step = step_numpy.load()  # the library beside it, step.so
    loss = step(x, y)  # NumPy arrays, or what NumPy makes arrays of
    step.state["model.weight"]  # the state in place; ``state_dict`` copies it
"""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

ABI_VERSION = 1
_MOST_SHOWN = 6  # tensors of the state
_SUFFIX = "_numpy.py"  # of the copy beside a library: Python would take ``step.so`` for the module ``step``


class StepError(RuntimeError):
    """What a library answers a call with; ``code`` is its number."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class Step:
    """An instance of an exported step: the library's function with state of its own.

    Args:
        path: of the ``.so`` file, or without its ending.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        name = os.path.abspath(os.fspath(path))
        name = name if name.endswith(".so") else f"{name}.so"
        self._handle = ctypes.c_void_p()
        self._library = ctypes.CDLL(name)
        text = self._library.autojit_manifest
        text.restype = ctypes.c_char_p
        self.manifest: dict[str, Any] = json.loads(text().decode())
        if self.manifest["abi_version"] != ABI_VERSION:
            raise StepError(f"{name}: ABI version {self.manifest['abi_version']}, this file reads {ABI_VERSION}", -1)
        pointer = ctypes.c_void_p
        self._run = self._function("run", ctypes.c_int, pointer, pointer, pointer)
        self._check(self._function("create", ctypes.c_int, pointer)(ctypes.byref(self._handle)))
        self._sizes: dict[str, int] = {}
        self.state = self._state()

    # -- calling

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The function's results for these arguments: arrays and numbers, nested as the function nests them flat.

        Raises:
            TypeError: other arguments, or one of another dtype.
            ValueError: an argument of another shape.
            StepError: what the step itself reports; state is then as before.
        """
        arrays = self._arguments(args, kwargs)
        results = [self._result(field) for field in self.manifest["results"]]
        pointers = [a.ctypes.data for a in arrays]
        sizes = [self._sizes[size["name"]] for size in self.manifest["sizes"]]
        given = (ctypes.c_int64 * (len(pointers) + len(sizes) + 1))(*pointers, *sizes)
        n_counted = len(self.manifest["counted"])
        taken = (ctypes.c_int64 * (len(results) + n_counted + 1))(*(r.ctypes.data for r in results))
        self._check(self._run(self._handle, given, taken))
        counted = taken[len(results) : len(results) + n_counted]
        self._sizes.update(zip(self.manifest["counted"], counted, strict=True))
        shown = [self._shown(a, field) for a, field in zip(results, self.manifest["results"], strict=True)]
        return self._returned(shown, arrays)

    def _arguments(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        fields = self.manifest["arguments"]
        given = self._given([leaf for arg in args for leaf in _leaves(arg)], kwargs)
        names = [field["name"] for field in fields]
        arrays = [self._array(given[name], field) for name, field in zip(names, fields, strict=True)]
        for size in self.manifest["sizes"]:
            self._sizes[size["name"]] = arrays[size["argument"]].shape[size["axis"]]
        for array, field in zip(arrays, fields, strict=True):
            wanted = tuple(_value(extent, self._sizes) for extent in field["shape"])
            if array.shape != wanted:
                raise ValueError(f"{field['name']}: shape {list(array.shape)}, not {list(wanted)}")
        return arrays

    def _given(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments by name. What the step was captured for may be given again or left out."""
        leaves, called = self.manifest["leaves"], f"{self.manifest['name']}()"
        every = [leaf["name"] for leaf in leaves]
        needed = [leaf["name"] for leaf in leaves if "argument" in leaf]
        named = {key: leaf for name, value in kwargs.items() for key, leaf in _named(name, value)}
        order = needed if len(args) + len(named) == len(needed) else every
        given = dict(zip(order, args, strict=False))
        if len(args) > len(order) or set(named) - set(every) or set(named) & set(given):
            raise TypeError(f"{called} takes {', '.join(every) or 'no arguments'}")
        given.update(named)
        missing = [name for name in needed if name not in given]
        if missing:
            raise TypeError(f"{called} is missing {', '.join(missing)}")
        for leaf in leaves:
            if "argument" in leaf or leaf["name"] not in given:
                continue
            value = given[leaf["name"]]
            is_other = value is not given[every[leaf["same"]]] if "same" in leaf else value != leaf["fixed"]
            if "same" in leaf and is_other:
                raise ValueError(f"{called}: {leaf['name']} is the same tensor as {every[leaf['same']]} in this step")
            if "same" not in leaf and leaf["is_plain"] and is_other:
                raise ValueError(f"{called} was captured with {leaf['fixed']!r} as {leaf['name']}")
        return given

    def _array(self, value: Any, field: Mapping[str, Any]) -> Any:
        dtype = _dtype(field["dtype"])
        if field["number"]:
            if isinstance(value, bool) or not isinstance(value, int | float | np.generic):
                raise TypeError(f"{field['name']}: a number, not {type(value).__name__}")
            return np.array(value, dtype)
        array = np.ascontiguousarray(value)
        if array.dtype != dtype:
            raise TypeError(f"{field['name']}: dtype {array.dtype}, not {field['dtype']}")
        if array.ndim != len(field["shape"]):
            array = array.reshape(np.shape(value))  # NumPy gives arrays of no dimension one
        if array.ndim != len(field["shape"]):
            raise ValueError(f"{field['name']}: {array.ndim} dimensions, not {len(field['shape'])}")
        return array

    def _result(self, field: Mapping[str, Any]) -> Any:
        if field["most"] is not None:
            return np.empty(_value(field["most"], self._sizes), _dtype(field["dtype"]))
        shape = [_value(extent, self._sizes) for extent in field["shape"]]
        order = field["order"] or range(len(shape))
        return np.empty([shape[axis] for axis in order], _dtype(field["dtype"]))

    def _shown(self, array: Any, field: Mapping[str, Any]) -> Any:
        """A result in its shape: counted sizes are known now, axes are in the function's order."""
        shape = [_value(extent, self._sizes) for extent in field["shape"]]
        order = list(field["order"] or range(len(shape)))
        if field["most"] is not None:
            array = array[: int(np.prod(shape, dtype=np.int64))].reshape([shape[axis] for axis in order])
        array = array.transpose(np.argsort(order)) if order != sorted(order) else array
        return array.item() if field["number"] else array

    def _returned(self, results: Sequence[Any], arguments: Sequence[Any]) -> Any:
        leaves = []
        for output in self.manifest["outputs"]:
            if "result" in output:
                leaves.append(results[output["result"]])
            else:
                leaves.append(arguments[output["argument"]] if "argument" in output else output["constant"])
        kind, keys = self.manifest["returns"]["kind"], self.manifest["returns"]["keys"]
        if kind == "value":
            return leaves[0]
        return dict(zip(keys, leaves, strict=True)) if kind == "dict" else tuple(leaves)

    # -- state

    def _state(self) -> dict[str, Any]:
        tensors = self.manifest["state"]
        address = self._function("state", ctypes.c_void_p, ctypes.c_void_p)(self._handle)
        pointers = (ctypes.c_void_p * len(tensors)).from_address(address) if tensors else ()
        found = {}
        for tensor, pointer in zip(tensors, pointers, strict=True):
            dtype = _dtype(tensor["dtype"])
            size = int(np.prod(tensor["shape"], dtype=np.int64)) * dtype.itemsize
            memory: Any = (ctypes.c_uint8 * size).from_address(pointer)
            memory.owner = self  # a view keeps the instance
            found[tensor["name"]] = np.frombuffer(memory, np.uint8).view(dtype).reshape(tensor["shape"])
        return found

    def state_dict(self) -> dict[str, Any]:
        """Copies of parameters, buffers, what optimisers keep, generators; no gradients."""
        kept = {tensor["name"] for tensor in self.manifest["state"] if not tensor["is_output"]}
        return {name: array.copy() for name, array in self.state.items() if name in kept}

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True) -> tuple[list[str], list[str]]:
        """Take over values by name; (missing names, unexpected names).

        Raises:
            RuntimeError: names are missing or unexpected and ``strict``, or shapes differ; nothing has changed then.
        """
        own = self.state_dict()
        missing = [name for name in own if name not in state_dict]
        unexpected = [name for name in state_dict if name not in own]
        if strict and (missing or unexpected):
            raise RuntimeError(f"load_state_dict: missing {missing}, unexpected {unexpected}")
        taken = {name: np.asarray(value) for name, value in state_dict.items() if name in own}
        for name, value in taken.items():
            if value.shape != own[name].shape:
                raise RuntimeError(f"load_state_dict: {name} has shape {value.shape}, not {own[name].shape}")
        for name, value in taken.items():
            self.state[name][...] = value
        return missing, unexpected

    def save_state(self, path: str | os.PathLike[str]) -> None:
        """Write the state to a safetensors file."""
        self._check(self._file("save_state", path))

    def load_state(self, path: str | os.PathLike[str]) -> None:
        """Take over what `save_state` has written."""
        self._check(self._file("load_state", path))

    def reset_state(self) -> None:
        """The state as it was exported."""
        self._check(self._function("reset_state", ctypes.c_int, ctypes.c_void_p)(self._handle))

    def _file(self, name: str, path: str | os.PathLike[str]) -> int:
        function = self._function(name, ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)
        return int(function(self._handle, os.fsencode(path)))

    # -- the rest

    @property
    def num_threads(self) -> int:
        """Threads that instances of this library use together; results do not depend on it."""
        return int(self._function("threads", ctypes.c_int)())

    def set_num_threads(self, num: int) -> None:
        """Let instances of this library use ``num`` threads."""
        self._check(self._function("set_threads", ctypes.c_int, ctypes.c_int)(num))

    @property
    def memory_bytes(self) -> int:
        """Address space of the instance."""
        return int(self._function("memory_bytes", ctypes.c_int64, ctypes.c_void_p)(self._handle))

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self._function("destroy", None, ctypes.c_void_p)(self._handle)
            self._handle = ctypes.c_void_p()

    def __repr__(self) -> str:
        return described(self.manifest)

    def _function(self, name: str, returns: Any, *arguments: Any) -> Any:
        function = self._library[f"{self.manifest['name']}_{name}"]  # a new object each time, which nobody else changes
        function.restype, function.argtypes = returns, arguments
        return function

    def _check(self, code: int) -> None:
        if code:
            text = self._function("error_text", ctypes.c_char_p, ctypes.c_int)(code)
            raise StepError(f"{self.manifest['name']}: {text.decode()}", code)


def load(path: str | os.PathLike[str] | None = None) -> Step:
    """An instance of the exported step in a file: ``step.so``, or without the ending; by default the one beside."""
    return Step(__file__.removesuffix(_SUFFIX) if path is None else path)


def _dtype(name: str) -> Any:
    """NumPy's dtype; where it has none, the one of ``ml_dtypes``, or the bits where that is missing."""
    try:
        return np.dtype(name)
    except TypeError:
        pass
    try:
        import ml_dtypes
    except ImportError:
        return np.dtype(np.uint16 if name == "bfloat16" else np.uint8)
    return np.dtype(getattr(ml_dtypes, name))


_OPERATORS: dict[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "min": min,
    "max": max,
}


def _value(extent: Any, sizes: Mapping[str, int]) -> int:
    """An extent: a number, or an expression with its operators behind their operands."""
    if isinstance(extent, int):
        return extent
    stack: list[int] = []
    for token in extent:
        if isinstance(token, int):
            stack.append(token)
        elif token in _OPERATORS:
            right, left = stack.pop(), stack.pop()
            stack.append(_OPERATORS[token](left, right))
        else:
            stack.append(sizes[token])
    return stack.pop()


def _leaves(value: Any) -> list[Any]:
    """What a nest of tuples, lists and dictionaries holds, in order."""
    if isinstance(value, dict):
        return [leaf for item in value.values() for leaf in _leaves(item)]
    if isinstance(value, tuple | list):
        return [leaf for item in value for leaf in _leaves(item)]
    return [value]


def _named(name: str, value: Any) -> list[tuple[str, Any]]:
    """An argument that is given by name, leaf by leaf."""
    if not isinstance(value, dict | tuple | list):
        return [(name, value)]
    return [(f"{name}[{k}]", leaf) for k, leaf in enumerate(_leaves(value))]


def described(manifest: Mapping[str, Any]) -> str:
    """The signature of a library, its state, and the sizes that it is for."""
    arguments = ", ".join(_shown_field(field) for field in manifest["arguments"])
    results = ", ".join(_shown_field(field) for field in manifest["results"])
    lines = [f"{manifest['name']}({arguments}) -> {results or 'nothing'}"]
    if manifest["state"]:
        shown = [_shown_field(tensor) for tensor in manifest["state"]]
        more = [f"... {len(shown) - _MOST_SHOWN} more"] if len(shown) > _MOST_SHOWN else []
        lines.append(f"  state  {', '.join([*shown[:_MOST_SHOWN], *more])}")
    if manifest["sizes"]:
        lines.append(f"  sizes  {'; '.join(' and '.join(step) for step in manifest['steps'])}")
    return "\n".join(lines)


def _shown_field(field: Mapping[str, Any]) -> str:
    shape = ", ".join(str(extent) if isinstance(extent, int) else _infix(extent) for extent in field["shape"])
    return f"{field['name']}: {field['dtype']}[{shape}]"


def _infix(tokens: Sequence[Any]) -> str:
    stack: list[str] = []
    for token in tokens:
        if token in _OPERATORS:
            right, left = stack.pop(), stack.pop()
            stack.append(right if token == "*" and left == "1" else f"({left} {token} {right})")
        else:
            stack.append(str(token))
    return stack.pop()
