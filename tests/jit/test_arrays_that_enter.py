"""NumPy's arrays that enter a step are NumPy's inside it: what the function does with them gives what eager mode gives.

A table of methods, attributes, operators, items and functions, for arrays of several dtypes that enter in several
ways, each called eagerly and compiled with other values and other shapes: results with their types, dtypes and memory,
errors, and the arrays that were given must agree.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import gc
import math
import random
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit import nn
from autojit.nn import functional as F

Step = Callable[..., Any]

ROUNDS = ((2, 3), (2, 3), (4, 3), (5, 3))  # shapes, each with other values


def made(dtype: str, shape: tuple[int, ...], k: int) -> Any:
    """An array whose values differ from call to call; no zeros, some of them negative."""
    n = math.prod(shape)
    values = (np.arange(n) * 7 + 3 * k) % 11 - 4.0
    values[values == 0] = 5
    if dtype == "bool":
        return (values > 1).reshape(shape)
    if dtype == "uint8":
        values = abs(values)
    return (values / (4 if dtype.startswith("f") else 1)).reshape(shape).astype(dtype)


def alike(a: Any, b: Any) -> bool:
    """Whether two results are of the same types and hold the same."""
    if type(a) is not type(b):
        return False
    if isinstance(a, BaseException):
        return True
    if isinstance(a, aj.Tensor):
        return a.dtype is b.dtype and alike(a.numpy(), b.numpy())
    if isinstance(a, np.ndarray | np.generic):
        if (
            a.dtype != b.dtype
            or a.shape != b.shape
            or getattr(a, "flags", a).writeable != getattr(b, "flags", b).writeable
        ):
            return False
        if a.dtype.kind in "OUSVM":
            return a.tolist() == b.tolist()
        return bool(np.allclose(a, b, 1e-5 if a.dtype.itemsize < 8 else 1e-11, 1e-6, equal_nan=True))
    if isinstance(a, tuple | list):
        return len(a) == len(b) and all(map(alike, a, b))
    if dataclasses.is_dataclass(a):
        return alike(vars(a), vars(b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(map(alike, a.values(), b.values()))
    if isinstance(a, float):
        return math.isclose(a, b, rel_tol=1e-5, abs_tol=1e-7) or (math.isnan(a) and math.isnan(b))
    return bool(a == b)


def outcome(f: Step, *args: Any, **kwargs: Any) -> Any:
    """What a call gives, or raises."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return f(*args, **kwargs)
        except Exception as error:
            return error


def agree(step: Step, rounds: Callable[[], Any], jitted: Any = None) -> Any:
    """Call a function eagerly and compiled with each of these arguments; the compiled function."""
    jitted = jitted or aj.jit(step)
    for k, (args, others) in enumerate(zip(rounds(), rounds(), strict=True)):
        eager, compiled = outcome(step, *args), outcome(jitted, *others)
        assert alike(eager, compiled), (k, eager, compiled)
        assert alike(args, others), (k, "what was given", args, others)
        assert sharing(eager, args) == sharing(compiled, others), (k, "memory")
    return jitted


def sharing(result: Any, args: Any) -> list[bool]:
    """Which of the results show the memory of the arrays that were given."""
    results = result if isinstance(result, tuple | list) else [result]
    given = [a for a in args if isinstance(a, np.ndarray)]
    held = [r.numpy() if isinstance(r, aj.Tensor) else r for r in results]
    return [isinstance(r, np.ndarray) and any(np.shares_memory(r, a) for a in given) for r in held]


def arrays(*dtypes: str, shapes: Any = ROUNDS) -> Callable[[], list[tuple[Any, ...]]]:
    """Arguments of several calls, made anew at every time."""
    return lambda: [
        tuple(made(dtype, shape, k + j) for j, dtype in enumerate(dtypes)) for k, shape in enumerate(shapes)
    ]


DTYPES = ("float32", "float64", "int32", "int64", "uint8", "bool", "float16", "complex64", "uint32")
METHODS: dict[str, Step] = {
    "std": lambda a: a.std(),
    "std, axis": lambda a: a.std(0),
    "std, ddof": lambda a: a.std(axis=1, ddof=1),
    "var": lambda a: a.var(),
    "mean": lambda a: a.mean(),
    "mean, axes": lambda a: a.mean((0, 1), keepdims=True),
    "sum": lambda a: a.sum(),
    "sum, axis": lambda a: a.sum(axis=-1),
    "sum, dtype": lambda a: a.sum(dtype=np.float64),
    "prod": lambda a: a.prod(1),
    "min": lambda a: a.min(),
    "max, axis": lambda a: a.max(0),
    "argmin": lambda a: a.argmin(),
    "argmax, axis": lambda a: a.argmax(1),
    "any": lambda a: a.any(),
    "all, axis": lambda a: a.all(0),
    "cumsum": lambda a: a.cumsum(),
    "cumsum, axis": lambda a: a.cumsum(1),
    "cumprod": lambda a: a.cumprod(0),
    "clip": lambda a: a.clip(1, 3),
    "clip, floats": lambda a: a.clip(-0.5, 1.5),
    "round": lambda a: a.round(1),
    "repeat": lambda a: a.repeat(2),
    "repeat, axis": lambda a: a.repeat(2, axis=0),
    "nonzero": lambda a: a.nonzero(),
    "sort": lambda a: a.sort(),
    "sort, result": lambda a: (a.sort(), a.sum()),
    "argsort": lambda a: a.argsort(),
    "reshape": lambda a: a.reshape(-1),
    "reshape, sizes": lambda a: a.reshape(3, -1),
    "reshape, order": lambda a: a.reshape(-1, order="F"),
    "ravel": lambda a: a.ravel(),
    "flatten": lambda a: a.flatten(),
    "transpose": lambda a: a.transpose(),
    "transpose, axes": lambda a: a.transpose(1, 0),
    "swapaxes": lambda a: a.swapaxes(0, 1),
    "squeeze": lambda a: a[None].squeeze(0),
    "diagonal": lambda a: a[:2, :2].diagonal(),
    "trace": lambda a: a.trace(),
    "dot": lambda a: a.dot(a.T),
    "copy": lambda a: a.copy(),
    "astype": lambda a: a.astype(np.float64),
    "astype, same": lambda a: a.astype(a.dtype),
    "astype, no copy": lambda a: a.astype(a.dtype, copy=False),
    "astype, int": lambda a: a.astype(int),
    "astype, text": lambda a: a.astype("float32"),
    "view": lambda a: a.view(np.uint8),
    "tolist": lambda a: a.tolist(),
    "item": lambda a: a.sum().item(),
    "item, place": lambda a: a.item(1),
    "fill": lambda a: a.fill(2),
    "tobytes": lambda a: a.tobytes(),
    "searchsorted": lambda a: a.ravel().searchsorted(1),
    "take": lambda a: a.take([0, 2]),
    "choose": lambda a: a.put(0, 1),
    "conj": lambda a: a.conj(),
    "ptp": lambda a: a.ptp(),
    "dunder": lambda a: a.__add__(1),
    "bound": lambda a: (lambda f: f(0))(a.sum),
}
ATTRIBUTES: dict[str, Step] = {
    "shape": lambda a: a.shape,
    "unpacked": lambda a: list(a.shape),
    "size": lambda a: a.size,
    "size, computed with": lambda a: a.sum() / a.size,
    "ndim": lambda a: a.ndim,
    "dtype": lambda a: (a.dtype, a.dtype == np.float32, a.dtype.kind),
    "itemsize": lambda a: (a.itemsize, a.nbytes),
    "T": lambda a: a.T,
    "flat": lambda a: list(a.flat),
    "real": lambda a: a.real,
    "strides": lambda a: a.strides,
    "flags": lambda a: a.flags.c_contiguous,
    "base": lambda a: a.base is None,
    "class": lambda a: (a.__class__, type(a), type(a.sum()), type(a) is np.ndarray),
    "isinstance": lambda a: (isinstance(a, np.ndarray), isinstance(a, aj.Tensor), isinstance(a, tuple | np.ndarray)),
    "isinstance, scalar": lambda a: (isinstance(a.mean(), float), isinstance(a[0, 0], np.floating)),
    "hasattr": lambda a: (hasattr(a, "detach"), hasattr(a, "astype"), getattr(a, "device", None) is None),
    "of tensors": lambda a: a.detach(),
    "called like a tensor": lambda a: a.sum(dim=0),
    "len": lambda a: len(a),
    "callable": lambda a: callable(a),
    "shape, assigned": lambda a: setattr(a, "shape", (-1,)),
    "identity": lambda a: (a is a, a is None),
    "truth": lambda a: 1 if a else 0,
    "truth of one": lambda a: 1 if a.sum() > 2 else 0,
    "none": lambda a: a if a is not None else 0,
}
OPERATORS: dict[str, Step] = {
    "a + 1": lambda a: a + 1,
    "1 - a": lambda a: 1 - a,
    "a * 2.5": lambda a: a * 2.5,
    "a / 2": lambda a: a / 2,
    "2 / a": lambda a: 2 / a,
    "a // 2": lambda a: a // 2,
    "a // a": lambda a: a // a,
    "a % 3": lambda a: a % 3,
    "a % -2.5": lambda a: a % -2.5,
    "a ** 2": lambda a: a**2,
    "a ** 0.5": lambda a: abs(a) ** 0.5,
    "2 ** a": lambda a: 2**a,
    "a ** a": lambda a: a**a,
    "-a": lambda a: -a,
    "+a": lambda a: +a,
    "~a": lambda a: ~a,
    "abs": lambda a: abs(a),
    "round": lambda a: round(a),
    "divmod": lambda a: divmod(a, 2),
    "a @ a.T": lambda a: a @ a.T,
    "a & 1": lambda a: a & 1,
    "a | a": lambda a: a | a,
    "a << 1": lambda a: a << 1,
    "a > 1": lambda a: a > 1,
    "a == a": lambda a: a == a,
    "a != 2": lambda a: a != 2,
    "1 <= a": lambda a: 1 <= a,
    "a == None": lambda a: a == None,  # noqa: E711
    "a == text": lambda a: a == "b",
    "a < text": lambda a: a < "b",
    "a + list": lambda a: a + [1, 2, 3],
    "list + a": lambda a: [1, 2, 3] + a,
    "a * float64": lambda a: a * np.float64(2),
    "float32 * a": lambda a: np.float32(2) * a,
    "a + int8": lambda a: a + np.int8(1),
    "a + array": lambda a: a + np.arange(3),
    "array - a": lambda a: np.ones(3, np.float32) - a,
    "a * 0-d": lambda a: a * np.array(2.0),
    "a + big": lambda a: a + 300,
    "a + complex": lambda a: a + 1j,
    "a + True": lambda a: a + True,
    "standardised": lambda a: (a - a.mean()) / (a.std() + 1e-8),
    "scaled": lambda a: a / 255.0,
    "of scalars": lambda a: a[0, 0] * 2 + a[1, 1] / 3,
    "scalar ** 2": lambda a: a[0, 0] ** 2,
    "scalar comparison": lambda a: a[0, 0] > a[0, 1],
    "a += 1": lambda a: _added(a),
    "a *= a": lambda a: _squared(a),
    "text % a": lambda a: "%s" % a,  # noqa: UP031
    "text % scalar": lambda a: "%.3f" % a.mean(),  # noqa: UP031
    "f-string": lambda a: f"{a.sum():.2f} {a[0, 0]}",
    "str": lambda a: (str(a), repr(a[0, 0])),
}


def _added(a: Any) -> Any:
    b = a
    a += 1
    return a is b


def _squared(a: Any) -> Any:
    a *= a
    return a.sum()


def _assigned(a: Any, key: Any, value: Any) -> Any:
    a[key] = value
    return a


ITEMS: dict[str, Step] = {
    "row": lambda a: a[0],
    "last": lambda a: a[-1],
    "element": lambda a: a[1, 2],
    "slice": lambda a: a[:1],
    "slices": lambda a: a[1:, ::2],
    "backwards": lambda a: a[::-1],
    "backwards, columns": lambda a: a[:, ::-1],
    "None": lambda a: a[None, :, None],
    "Ellipsis": lambda a: a[..., 0],
    "list": lambda a: a[[0, 1, 0]],
    "array": lambda a: a[np.array([1, 0])],
    "arrays": lambda a: a[np.array([1, 0]), np.array([0, 2])],
    "np int": lambda a: a[np.int64(1)],
    "mask": lambda a: a[a > 1],
    "mask of rows": lambda a: a[a[:, 0] > 1],
    "empty tuple": lambda a: a[()],
    "too far": lambda a: a[10],
    "too many": lambda a: a[0, 0, 0],
    "text": lambda a: a["x"],
    "own": lambda a: a[a.argmax(0)[0] % 2],
    "walked": lambda a: [row.sum() for row in a[:2]],
    "walked, all": lambda a: [row.sum() for row in a],
    "unpacked": lambda a: _unpacked(a[0]),
    "in": lambda a: 2 in a,
    "assigned": lambda a: _assigned(a, 0, 7),
    "assigned, mask": lambda a: _assigned(a, a > 1, 0),
    "of a list": lambda a: [1, 2, 3][int(a.argmin()) % 3],
    "of a list, without int": lambda a: [1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6][a.argmin()],
    "of a dictionary": lambda a: {0: "x"}.get(a.argmin(), "y"),
    "of a tensor": lambda a: aj.arange(20)[a.argmin()],
    "slice of a tensor": lambda a: aj.arange(20)[: a.argmax() + 1],
    "range": lambda a: list(range(a.argmax())),
}


def _unpacked(a: Any) -> Any:
    x, y, z = a
    return x + y, z


FUNCTIONS: dict[str, Step] = {
    "sum": lambda a: np.sum(a),
    "mean": lambda a: np.mean(a, axis=0),
    "std": lambda a: np.std(a),
    "sin": lambda a: np.sin(a),
    "sqrt, scalar": lambda a: np.sqrt(abs(a).sum()),
    "exp": lambda a: np.exp(a * 0.1),
    "log of negative": lambda a: np.log(a),
    "maximum": lambda a: np.maximum(a, 1),
    "multiply, float64": lambda a: np.multiply(a, np.float64(2)),
    "add.reduce": lambda a: np.add.reduce(a),
    "out": lambda a: np.add(a, 1, out=a),
    "where": lambda a: np.where(a > 1, a, 0),
    "where, one": lambda a: np.where(a > 1),
    "clip": lambda a: np.clip(a, 0, 2),
    "concatenate": lambda a: np.concatenate([a, a], axis=1),
    "stack": lambda a: np.stack([a[0], a[1]]),
    "vstack": lambda a: np.vstack([a, a[:1]]),
    "array of": lambda a: np.array([a[0], a[1]]),
    "array": lambda a: np.array(a),
    "asarray": lambda a: np.asarray(a),
    "asarray, dtype": lambda a: np.asarray(a, dtype=np.float32),
    "zeros_like": lambda a: np.zeros_like(a),
    "full": lambda a: np.full((2,), a[0, 0]),
    "dot": lambda a: np.dot(a, a.T),
    "einsum": lambda a: np.einsum("ij,kj->ik", a, a),
    "outer": lambda a: np.outer(a[0], a[1]),
    "norm": lambda a: np.linalg.norm(a, axis=1, keepdims=True),
    "flip": lambda a: np.flip(a, 0),
    "roll": lambda a: np.roll(a, 1, axis=1),
    "tile": lambda a: np.tile(a, (2, 1)),
    "pad": lambda a: np.pad(a, 1),
    "diff": lambda a: np.diff(a, axis=1),
    "sort": lambda a: np.sort(a, axis=0),
    "argsort": lambda a: np.argsort(a, axis=1),
    "unique": lambda a: np.unique(a),
    "nonzero": lambda a: np.nonzero(a),
    "median": lambda a: np.median(a),
    "percentile": lambda a: np.percentile(a, 30),
    "quantiles": lambda a: np.quantile(a, [0.2, 0.5], axis=0),
    "isnan": lambda a: np.isnan(a).any(),
    "allclose": lambda a: np.allclose(a, a),
    "array_equal": lambda a: np.array_equal(a, a + 1),
    "shape": lambda a: (np.shape(a), np.ndim(a), np.size(a)),
    "transpose": lambda a: np.transpose(a),
    "expand_dims": lambda a: np.expand_dims(a, 0),
    "cov": lambda a: np.cov(a.T),
    "float32": lambda a: np.float32(a.sum()),
    "float64": lambda a: np.float64(a),
    "broadcast_to": lambda a: np.broadcast_to(a, (2, *a.shape)),
    "split": lambda a: np.split(a, 3, axis=1),
    "meshgrid": lambda a: np.meshgrid(a[0], a[1]),
    "histogram": lambda a: np.histogram(a, 3),
    "bincount": lambda a: np.bincount(abs(a).astype(int).ravel()),
    "apply_along_axis": lambda a: np.apply_along_axis(lambda row: row.sum(), 1, a),
    "vectorize": lambda a: np.vectorize(lambda x: x + 1)(a),
    "copyto": lambda a: np.copyto(a, 0),
    "eye": lambda a: np.eye(a.shape[1]),
    "searchsorted": lambda a: np.searchsorted(np.arange(3), a[0]),
    "interp": lambda a: np.interp(a[0], [0, 1, 2], [3, 4, 5]),
}
PYTHON: dict[str, Step] = {
    "sum": lambda a: sum(a),
    "max": lambda a: max(a[0]),
    "sorted": lambda a: sorted(a[0]),
    "list": lambda a: list(a),
    "map": lambda a: list(map(np.sum, a)),
    "map, own": lambda a: [r.std() for r in map(_same, [a, a])],
    "zip": lambda a: [(x + y) for x, y in zip([a, a], [1, 2], strict=True)],
    "enumerate": lambda a: [k * x for k, x in enumerate([a, a])],
    "reversed": lambda a: list(reversed([a, a * 2])),
    "float": lambda a: float(a[0, 0]),
    "int": lambda a: int(a[0, 0]),
    "bool": lambda a: bool(a[0, 0]),
    "math": lambda a: math.sqrt(abs(a.sum())),
    "math, isnan": lambda a: math.isnan(a.sum()),
    "copy": lambda a: copy.deepcopy(a),
    "dictionary": lambda a: {"x": a, "y": a * 2}["y"],
    "of texts": lambda a: ", ".join(f"{x:.1f}" for x in a[0]),
    "caught": lambda a: _caught(a),
    "suppressed": lambda a: _suppressed(a),
    "chosen": lambda a: a.mean() if isinstance(a, np.ndarray) else aj.tensor(1.0),
    "tensor unless": lambda a: a if isinstance(a, aj.Tensor) else aj.tensor(a),
    "star": lambda a: (lambda *rows: len(rows))(*a[:2]),
}


def _same(a: Any) -> Any:
    return a


def _caught(a: Any) -> Any:
    try:
        return a.unsqueeze(0)
    except AttributeError:
        return a.nonzero()


def _suppressed(a: Any) -> Any:
    with contextlib.suppress(Exception):
        return a.argsort()
    return None


WEIGHT = aj.tensor([0.5, -1.0, 2.0])
TENSORS: dict[str, Step] = {
    "a * w": lambda a: a * WEIGHT,
    "w * a": lambda a: WEIGHT * a,
    "w / a": lambda a: WEIGHT / a,
    "a - w": lambda a: a - WEIGHT,
    "w > a": lambda a: WEIGHT > a,
    "a @ w": lambda a: a.astype(np.float32) @ WEIGHT,
    "scalar * w": lambda a: a[0, 0] * WEIGHT,
    "w ** scalar": lambda a: abs(WEIGHT) ** a[0, 0],
    "mean - w": lambda a: a.mean() - WEIGHT,
    "tensor": lambda a: aj.tensor(a),
    "tensor of scalar": lambda a: aj.tensor(a[0, 0]),
    "tensor of scalars": lambda a: aj.tensor([a[0, 0], a[0, 1]]),
    "tensor, dtype": lambda a: aj.tensor(a, dtype=aj.float32),
    "as_tensor": lambda a: aj.as_tensor(a),
    "from_numpy": lambda a: aj.from_numpy(a),
    "from_numpy of computed": lambda a: aj.from_numpy(a * 2).sum(),
    "written through": lambda a: _written(a),
    "full": lambda a: aj.full((2,), a[0, 0]),
    "full, float64": lambda a: aj.full((2,), a.astype(np.float64)[0, 0]),
    "arange": lambda a: aj.arange(3) * a[0, 1],
    "clamp": lambda a: WEIGHT.clamp(a[0, 0], 10),
    "add": lambda a: aj.add(WEIGHT, a[0]),
    "where": lambda a: aj.where(WEIGHT > 0, WEIGHT, WEIGHT * a[0, 0]),
    "np.add": lambda a: np.add(a, WEIGHT),
    "np.multiply by scalar": lambda a: np.multiply(a[0, 0], WEIGHT),
    "linear": lambda a: F.linear(aj.tensor(a, dtype=aj.float32), WEIGHT[None]),
    "item": lambda a: _item_assigned(a),
    "standardised": lambda a: aj.tensor((a - a.mean(0)) / (a.std(0) + 1)),
    "in place": lambda a: aj.zeros(3).add_(aj.tensor(a[0], dtype=aj.float32)),
    "to": lambda a: WEIGHT.to(aj.from_numpy(a).dtype),
    "zeros": lambda a: aj.zeros(a.shape),
    "index": lambda a: WEIGHT[(abs(a) % 3).astype(int)],
}


def _written(a: Any) -> Any:
    t = aj.from_numpy(a)
    t += 1
    return t.sum(), a.sum()


def _item_assigned(a: Any) -> Any:
    t = aj.zeros(3)
    t[0] = a[0, 0]
    t[1:] = aj.as_tensor(a[0, 1:])
    return t


TABLES = {
    "method": METHODS, "attribute": ATTRIBUTES, "operator": OPERATORS, "item": ITEMS, "function": FUNCTIONS,
    "python": PYTHON, "tensor": TENSORS,
}  # fmt: skip
CASES = [(f"{table}: {name}", step) for table, steps in TABLES.items() for name, step in steps.items()]


@pytest.mark.parametrize(("name", "step"), CASES, ids=[name for name, _ in CASES])
def test_arrays_are_numpys(name: str, step: Step) -> None:
    """Whatever a function does with an array, it gives what eager mode gives, at every call."""
    agree(step, arrays("float32"))
    if name.startswith(("method", "operator")):
        agree(step, arrays("int32", shapes=((3, 3), (3, 3))))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "name", ["a / 2", "a // 2", "a * float64", "a + big", "a ** 2", "-a", "scaled", "a @ a.T", "~a"]
)
def test_dtypes_of_operators_are_numpys(dtype: str, name: str) -> None:
    agree(OPERATORS[name], arrays(dtype, shapes=((3, 3), (3, 3))))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["sum", "mean", "cumsum", "min", "argmax, axis", "astype", "std"])
def test_dtypes_of_methods_are_numpys(dtype: str, name: str) -> None:
    agree(METHODS[name], arrays(dtype, shapes=((3, 3), (3, 3))))


@pytest.mark.parametrize("pair", [("float32", "float64"), ("int32", "int64"), ("int32", "float32"), ("uint8", "int32")])
@pytest.mark.parametrize("shapes", ["alike", "scalar", "0-d"])
def test_two_arrays_meet_as_numpys_do(pair: tuple[str, str], shapes: str) -> None:
    """The dtype follows NumPy's rules, in which a 0-d array and a scalar count as much as any other."""
    steps: dict[str, Step] = {
        "alike": lambda a, b: (a + b, a * b, a > b, np.maximum(a, b), np.where(a > b, a, b)),
        "scalar": lambda a, b: (a + b[0, 0], b[0, 0] / a, a[0, 0] + b[0, 0]),
        "0-d": lambda a, b: (a + b, b - a),
    }
    rounds = arrays(*pair)
    alone = lambda: [(a, np.array(b[0, 0])) for a, b in rounds()]
    agree(steps[shapes], alone if shapes == "0-d" else rounds)


# ---- ways to enter


@dataclasses.dataclass
class Batch:
    """Arrays as fields."""

    x: Any
    y: Any


class Standardised(nn.Module):
    """A layer of the user's that takes arrays."""

    def forward(self, x: Any) -> Any:
        return aj.tensor((x - x.mean(0)) / (x.std(0) + 1)), isinstance(x, np.ndarray)


def matrix(a: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return np.asmatrix(a)


WAYS: dict[str, tuple[Step, Callable[[Any], tuple[Any, ...]]]] = {
    "a list": (lambda d: (d[0].std(), d[1][0] / 2), lambda a: ([a, (a,)],)),
    "a dictionary": (lambda d: (d["x"].std(), list(d)), lambda a: ({"x": a},)),
    "a dataclass": (lambda b: (b.x.repeat(2), b.y.var()), lambda a: (Batch(a, a * 2),)),
    "twice": (lambda a, b: (a is b, a + b), lambda a: (a, a)),
    "a layer": (Standardised(), lambda a: (a,)),
    "transposed": (lambda a: (a * 2, a.reshape(-1), a.sum(0)), lambda a: (a.T,)),
    "Fortran's order": (lambda a: (a * 2, a.ravel(), a.T), lambda a: (np.asfortranarray(a),)),
    "every other": (lambda a: (a * 2, a.reshape(-1), a[1:]), lambda a: (a[:, ::2],)),
    "backwards": (lambda a: (a * 2, a.sum(0)), lambda a: (a[::-1],)),
    "read-only": (lambda a: (a * 2, a.std()), lambda a: (np.broadcast_to(a, (2, *a.shape)),)),
    "of another machine": (lambda a: (a * 2, a.std(), a.dtype), lambda a: (a.astype(">f4"),)),
    "0-d": (lambda a: (a * 2, a.item(), a[()]), lambda a: (a.sum(keepdims=True).reshape(()),)),
    "empty": (lambda a: (a.sum(), a * 2), lambda a: (a[:0],)),
    "a matrix": (lambda a: a * a, lambda a: (matrix(a[:2, :2]),)),
    "masked": (lambda a: a.mean(), lambda a: (np.ma.masked_greater(a, 0.5),)),
    "records": (lambda a: a["x"] * 2, lambda a: (np.rec.fromarrays([a[0], a[1]], names="x,y"),)),
    "objects": (lambda a, b: (a.tolist(), b.std()), lambda a: (np.array([1, "x"], object), a)),
    "texts": (lambda a: [str(x) for x in a], lambda a: (np.array(["a", f"{a[0, 0]}"]),)),
    "dates": (lambda a: a + np.timedelta64(1, "D"), lambda a: (np.array(["2020-01-01"], "M8[D]"),)),
    "beside a number": (lambda a, s: (a * s, a.clip(0, s), s - a, aj.full((2,), s)), lambda a: (a, float(a[0, 0]) + 3)),
    "beside an int": (lambda a, s: (a.astype(int) * s, a + s), lambda a: (a, int(a[0, 0] * 4))),
    "beside a tensor": (lambda a, t: (a.std() * t, t + a, a * 2), lambda a: (a, aj.tensor(a))),
}


@pytest.mark.parametrize("way", WAYS)
def test_ways_to_enter(way: str) -> None:
    step, given = WAYS[way]
    agree(step, lambda: [given(a) for (a,) in arrays("float32")()])


def _drawing(kind: str) -> Step:
    rng, shared = np.random.default_rng(3), np.random.RandomState(3)
    items = iter([made("float32", (2, 3), k) for k in range(30)])
    steps: dict[str, Step] = {
        "next": lambda x: (lambda a: (a.std(), a / 2, x * a, isinstance(a, np.ndarray)))(next(items)),
        "next, only NumPy": lambda x: (lambda a: (a.sort(), a, x * a))(next(items)),
        "normal": lambda x: (lambda a: (a.std(), a.repeat(2), a.var(0), x * a))(rng.normal(size=(2, 3))),
        "integers": lambda x: (lambda a: (a / 2, a.max(), x * a))(rng.integers(1, 9, 3)),
        "shared": lambda x: (lambda a: (a * np.float64(2), a.T))(shared.rand(2, 3).astype(np.float32)),
        "only NumPy": lambda x: (lambda a: (a[::-1], x * a[0]))(rng.normal(size=3)),
        "of another": lambda x: (lambda a: (rng.choice(a), rng.normal(a)))(rng.integers(1, 9, 3)),
    }
    return steps[kind]


@pytest.mark.parametrize(
    "kind", ["next", "next, only NumPy", "normal", "integers", "shared", "only NumPy", "of another"]
)
def test_arrays_that_are_drawn(kind: str) -> None:
    """What is drawn is an array, and what is drawn for a call that then runs line by line is not drawn again."""
    eager, jitted = _drawing(kind), aj.jit(_drawing(kind))
    for k in range(4):
        x = aj.full((3,), k + 1.0)
        a, b = eager(x), jitted(x)
        assert alike(a, b), (k, a, b)


def test_what_is_stored_are_arrays() -> None:
    def program(jit: Callable[[Step], Step]) -> Any:
        held: dict[str, Any] = {"last": None, "all": [], "best": np.float32(-9)}

        def step(a: Any) -> Any:
            held["last"] = a * 2
            held["best"] = a.max()
            held["all"].append(a.mean(0))
            return a.sum()

        jitted = jit(step)
        results = [jitted(a) for (a,) in arrays("float32")()]
        return results, held

    assert alike(program(lambda f: f), program(aj.jit))


def test_another_state_outside_is_followed_by_calls_that_run_line_by_line() -> None:
    mode = {"backwards": True}
    step = lambda a: a[::-1] * 2 if mode["backwards"] else a * 2
    jitted = aj.jit(step)
    for backwards in (True, True, False, False, True, False):
        mode["backwards"] = backwards
        agree(step, arrays("float32"), jitted)
    assert jitted.stats()["native_calls"] > 0


# ---- what stays fast, and what is told


EVERYDAY: dict[str, Step] = {
    "a * w": TENSORS["a * w"],
    "tensor": lambda a: aj.tensor(a) * WEIGHT,
    "from_numpy": lambda a: aj.from_numpy(a) @ WEIGHT,
    "linear": lambda a: F.linear(a, WEIGHT[None]),
    "layer": nn.Linear(3, 2).requires_grad_(False),
    "standardised": OPERATORS["standardised"],
    "reduced": lambda a: (a.sum(0), a.max(), np.sqrt(abs(a)).mean()),
    "number": lambda a: float(a.mean()),
}


@pytest.mark.parametrize("name", EVERYDAY)
def test_everyday_steps_are_one_native_call(name: str) -> None:
    jitted = aj.jit(EVERYDAY[name])
    for k in range(6):
        jitted(made("float32", (4, 3), k))
    stats = jitted.stats()
    assert (stats["captures"], stats["native_calls"], stats["splits"]) == (1, 5, 0)


def test_sizes_stay_open() -> None:
    step = lambda a: (a - a.mean(0)) / a.shape[0] + a.size
    jitted = agree(step, arrays("float32", shapes=[(n, 3) for n in (2, 5, 7, 9, 300, 4)]))
    assert jitted.stats()["captures"] == 2


def test_what_runs_line_by_line_is_told_with_the_line() -> None:
    jitted = agree(METHODS["sort"], arrays("float32"))
    assert jitted.stats()["captures"] == 0
    told = jitted.explain()
    assert ".sort of a NumPy array" in told
    assert "test_arrays_that_enter.py" in told


def test_a_step_keeps_no_array() -> None:
    step = aj.jit(lambda a: (a * 2, a.std(), a[0], aj.tensor(a)))
    array = made("float32", (2, 3), 0)
    step(array)
    owner = weakref.ref(array)
    del array
    gc.collect()
    assert owner() is None


def test_a_tensor_is_no_array_and_an_array_no_tensor() -> None:
    jitted = aj.jit(lambda a: a.sum(dim=0))
    with pytest.raises(TypeError):
        jitted(made("float32", (2, 3), 0))
    assert jitted(aj.ones(2, 3)).tolist() == [2.0, 2.0, 2.0]
    with pytest.raises(AttributeError, match=r"'numpy.ndarray' object has no attribute 'detach'"):
        aj.jit(lambda a: a.detach())(made("float32", (2, 3), 0))


# ---- values that the first call does not have


_SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 2.5, -2.5, 0.5, -0.5, 7.0, 1e30])
UNARY = "sign sqrt exp log log1p expm1 floor ceil trunc rint square reciprocal isnan isinf signbit arctan tanh cbrt"
BINARY = (
    "add subtract multiply divide floor_divide remainder fmod power fmax fmin hypot arctan2 copysign heaviside "
    "float_power logaddexp nextafter equal less logical_and logical_xor"
)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", [*UNARY.split(), *BINARY.split()])
def test_zeros_infinities_and_nans_come_after_the_capture(name: str, dtype: str) -> None:
    ufunc = getattr(np, name)
    n = len(_SPECIAL)
    special = np.repeat(_SPECIAL, n).astype(dtype), np.tile(_SPECIAL, n).astype(dtype)
    plain = (np.arange(n * n) % 13 + 1).astype(dtype) / 4, (np.arange(n * n) % 7 + 1).astype(dtype) / 2
    count = ufunc.nin
    step: Step = lambda *arrays: ufunc(*arrays)
    compiled = aj.jit(step)
    with np.errstate(all="ignore"):
        for given in (plain, special, plain):
            eager, found = step(*given[:count]), compiled(*given[:count])
            assert alike(eager, found)
            if eager.dtype.kind == "f":
                np.testing.assert_array_equal(np.signbit(eager[eager == 0]), np.signbit(found[eager == 0]))


@pytest.mark.parametrize("dtype", ["int32", "int64", "int8", "uint8", "bool"])
@pytest.mark.parametrize(
    "name",
    [
        "a + a", "a * 3", "a // 3", "a % 3", "a % a", "abs", "sum", "cumsum", "scalars", "max", "clip",
        "clip, in range", "equal", "less",
    ],
)  # fmt: skip
def test_the_least_and_the_greatest_come_after_the_capture(name: str, dtype: str) -> None:
    steps: dict[str, Step] = {
        "a + a": lambda a: a + a,
        "a * 3": lambda a: a * 3,
        "a // 3": lambda a: a // 3,
        "a % 3": lambda a: a % 3,
        "a % a": lambda a: a % a,
        "abs": lambda a: abs(a),
        "sum": lambda a: (a.sum(), a.prod()),
        "cumsum": lambda a: a.cumsum(),
        "scalars": lambda a: (a[0] + a[1], a[2] > a[1], a.any(), a.all()),
        "max": lambda a: (a.max(), a.argmax(), a.argmin(), np.median(a), np.percentile(a, 30)),
        "clip": lambda a: a.clip(-1, 1),
        "clip, in range": lambda a: np.clip(a, 0, 100),
        "equal": lambda a: a == -1,
        "less": lambda a: a < 300,
    }
    least, most = (0, 1) if dtype == "bool" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    given = ([1, 2, 3], [least, most, 0], [0, 0, most], [1, 0, 0], [most, most, least])
    with np.errstate(all="ignore"):
        agree(steps[name], lambda: [(np.array(values).astype(dtype),) for values in given])


def test_a_global_array_under_a_unary_operator_is_followed() -> None:
    at = {"array": np.arange(3.0)}
    array = at["array"]
    step = lambda x: (x * 1, -array, +array)
    compiled = aj.jit(step)
    for k in range(3):
        array[0] = k
        assert alike(step(aj.ones(3)), compiled(aj.ones(3)))


# ---- scalars of NumPy's that enter by themselves


SCALARS: dict[str, Step] = {
    "arithmetic": lambda x, s: (s * 2, 1 / s, s + s, -s, abs(s), s**2, s > 1.6, s == s),
    "with tensors": lambda x, s: (x * s, s - x, aj.full((2,), s), x.clamp(max=s), aj.add(x, s), aj.tensor(s)),
    "with arrays": lambda x, s: (np.arange(3, dtype=np.float32) * s, np.full(2, s), np.float32(s)),
    "kinds": lambda x, s: (type(s), isinstance(s, float), isinstance(s, np.generic), s.dtype, s.ndim, s.shape),
    "Python's": lambda x, s: (float(s), int(s), bool(s), max(s, 1), min(s, 2), round(s), str(s), f"{s:.1f}", s),
    "functions": lambda x, s: (np.sqrt(s), math.sqrt(s), np.exp(-s) * x, np.maximum(s, 2)),
    "decides": lambda x, s: x * 2 if s > 2 else x,
    "kept": lambda x, s: [s, {"s": s}, (s * 1,)],
}
COUNTS: dict[str, Step] = {
    "indexes": lambda x, k: ([5, 6, 7, 8, 9, 10][k], x[k % 3], "abcdef"[k], (1, 2, 3, 4, 5, 6)[:k]),
    "counts": lambda x, k: (list(range(k)), x[:k], aj.zeros(k), np.zeros(k), aj.arange(k)),
    "keys": lambda x, k: ({0: "a", 1: "b"}.get(k, "c"), {3: x}.get(k), k in (1, 2), k in {1: 2}),
    "divided": lambda x, k: (k / 2, k // 2, k % 2, divmod(k, 2), x * k),
}


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.int64, np.int32, np.uint8, np.float16, np.longdouble])
@pytest.mark.parametrize("name", SCALARS)
def test_scalars_are_numpys(name: str, kind: Any) -> None:
    agree(SCALARS[name], lambda: [(aj.ones(3), kind(k + 1.5)) for k in (0, 1, 2, 0, 5)])


@pytest.mark.parametrize("kind", [np.int64, np.int32])
@pytest.mark.parametrize("name", COUNTS)
def test_whole_scalars_are_numpys(name: str, kind: Any) -> None:
    agree(COUNTS[name], lambda: [(aj.arange(3.0), kind(k)) for k in (0, 1, 2, 3, 4, 5, 2)])


EXTENTS: dict[str, Step] = {
    "zeros": lambda x, k: aj.zeros(2, k),
    "arange": lambda x, k: aj.arange(k),
    "arange by steps": lambda x, k: aj.arange(k, 4 * k, k),
    "linspace": lambda x, k: aj.linspace(0, 1, k),
    "eye": lambda x, k: aj.eye(k),
    "rand": lambda x, k: aj.rand(k),
    "expand": lambda x, k: x.expand(k, 3),
    "repeat": lambda x, k: x.repeat(k),
    "reshape": lambda x, k: x.reshape(k, 1),
    "slice": lambda x, k: x[:k],
    "pad": lambda x, k: aj.nn.functional.pad(x, (k, k)),
}


@pytest.mark.parametrize("name", EXTENTS)
def test_extents_are_plain_numbers(name: str) -> None:
    """NumPy's overflow, and code is made from them."""
    step = aj.jit(EXTENTS[name])
    for k in (3, 3, 3):
        step(aj.arange(3.0), np.int32(k))
    assert "np." not in step.show("graph")


def test_numbers_of_python_and_of_numpy_take_turns() -> None:
    step = lambda x, s: (x * s, s * 2, isinstance(s, np.generic))
    given = (1.5, np.float64(2.5), 3.5, np.float64(4.5), np.float32(5.5), 6.5, np.float64(7.5), 2, np.int64(3), True)
    jitted = agree(step, lambda: [(aj.ones(3), s) for s in (*given, *given)])
    for k in range(3):
        agree(step, lambda k=k: [(aj.ones(3), np.float64(k + 0.25)), (aj.ones(3), k + 0.25)], jitted)


def test_scalars_of_numpy_are_one_native_call() -> None:
    jitted = aj.jit(lambda x, s: (x * s, s * 2))
    for k in range(6):
        jitted(aj.ones(3), np.float64(k + 0.5))
    assert (jitted.stats()["captures"], jitted.stats()["native_calls"]) == (2, 4)


def test_scalars_that_are_drawn() -> None:
    def program() -> Step:
        rng = np.random.default_rng(0)

        def step(x: Any) -> Any:
            k, u = rng.integers(1, 4), rng.random(dtype=np.float32)
            return k, u, k * 2, x * k + u, x[:k], [1, 2, 3, 4][k]

        return step

    eager, jitted = program(), aj.jit(program())
    for _ in range(6):
        assert alike(eager(aj.arange(5.0)), jitted(aj.arange(5.0)))


def test_arrays_and_scalars_that_a_step_keeps_from_call_to_call() -> None:
    def program(jit: Callable[[Step], Step]) -> Any:
        held = {"mean": np.zeros(3, np.float32), "best": np.float32(-9), "calls": np.int64(0)}

        def step(a: Any) -> Any:
            held["mean"] = 0.9 * held["mean"] + 0.1 * a.mean(0)
            held["best"] = max(held["best"], a.max())
            held["calls"] += 1
            return held["mean"], held["calls"]

        jitted = jit(step)
        seen = []
        for (a,) in arrays("float32")():
            seen.append((jitted(a), dict(held)))
        held["mean"] = np.ones(3, np.float32)
        return seen, jitted(made("float32", (2, 3), 9)), held

    assert alike(program(lambda f: f), program(aj.jit))


def test_scalars_are_keys() -> None:
    step = lambda a: ({a[0, 0]: 1}, {5.0: 2}.get(a[0, 1]), len({a[0, 0], a[0, 0]}), sorted({a[0, 0], a[0, 1]}))
    agree(step, arrays("float32"))
    agree(lambda a: {a: 1}, arrays("float32"))


def test_an_array_from_outside_is_followed_beside_one_that_enters() -> None:
    """Also one that is too large to be compared before every call."""
    weights = np.ones((1200, 1000), np.float32)
    step = lambda a: a * weights + np.float32(1)
    compiled = aj.jit(step)
    for k in range(4):
        weights[:] = k
        given = np.full(1000, k + 1, np.float32)
        assert np.array_equal(step(given), compiled(given))
    assert compiled.stats()["captures"] == 1


def test_prints_show_arrays(capsys: Any) -> None:
    def step(a: Any) -> None:
        print("rows", a[0], a.mean(), f"{a.sum():.2f} {a.shape}")

    compiled = aj.jit(step)
    for (a,) in arrays("float32")():
        step(a)
        eager = capsys.readouterr().out
        compiled(a)
        assert capsys.readouterr().out == eager


@pytest.mark.parametrize("option", ["first", "always"])
def test_arrays_are_verified(option: str) -> None:
    for step in (OPERATORS["standardised"], METHODS["sort"], TENSORS["written through"], _added):
        agree(step, arrays("float32"), aj.jit(step, verify=option))


def test_the_same_result_twice_is_one_array() -> None:
    def step(a: Any) -> Any:
        b = a * 2
        return b, b, a

    compiled = aj.jit(step)
    for (a,) in arrays("float32")():
        first, second, given = compiled(a)
        assert first is second
        assert given is a


def test_everything_is_open_from_the_first_call_on() -> None:
    compiled = agree(OPERATORS["standardised"], arrays("float32"), aj.jit(OPERATORS["standardised"], dynamic=True))
    assert compiled.stats()["captures"] == 1


def test_numbers_of_a_step_meet_scalars_of_numpy() -> None:
    """What Python's number and NumPy's scalar give is NumPy's."""
    single, double, small = np.float32(1.5), np.float64(2.5), np.int8(3)

    def step(x: Any, s: Any) -> Any:
        total = x.sum().item()
        return total * single, double - total, s + small, single**s, x * (total * single), s > double, total / np.log(2)

    jitted = agree(step, lambda: [(aj.ones(3) * k, k + 0.5) for k in (1, 2, 3, 4)])
    assert jitted.stats()["captures"] == 2


def _drawn_by_values(v: Any, seen: list[Any]) -> None:
    if float(v[1]) > 0:
        random.random()


def _looked_at(v: Any, seen: list[Any]) -> None:
    seen.append(len(str(v * 2)))


LINE_BY_LINE: dict[str, Callable[[Any, list[Any]], None]] = {
    "draws by values": _drawn_by_values,
    "texts looked at": _looked_at,
    "nothing": lambda v, seen: None,
}
ASKED: dict[str, Callable[[Any], Any]] = {
    "isinstance": lambda a: isinstance(a, np.ndarray),
    "type": lambda a: type(a) is np.ndarray,
    "method": lambda a: a.std() > 0.5,
    "dtype": lambda a: a.dtype == np.float64,
}


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("why", LINE_BY_LINE)
def test_calls_that_run_line_by_line_are_given_the_arrays(why: str, asked: str) -> None:
    def step(x: Any, array: Any, seen: list[Any]) -> Any:
        y = x * (2 if ASKED[asked](array) else 3)
        LINE_BY_LINE[why](x, seen)
        return y

    compiled = aj.jit(lambda x, array: step(x, array, []))
    for k in range(5):
        array = np.arange(3.0) * k
        assert compiled(aj.ones(2), array).tolist() == step(aj.ones(2), array, []).tolist()


FORMS: dict[str, Callable[[Any], Any]] = {
    "plain": lambda a: a,
    "reversed": lambda a: a[::-1],
    "big-endian": lambda a: a.astype(">f8"),
    "every other one": lambda a: np.repeat(a, 2)[::2],
    "columns reversed": lambda a: np.stack([a, a])[:, ::-1],
    "transposed": lambda a: np.stack([a, a]).T,
    "empty": lambda a: a[:0][::-1],
}
MAKERS: dict[str, Callable[[Any], Any]] = {
    "from_numpy": lambda n: aj.from_numpy(n) * 2,
    "of a part": lambda n: aj.from_numpy(n[1:]) * 2,
    "of what is computed": lambda n: aj.from_numpy(n + 1) * 2,
    "of what is reversed": lambda n: aj.from_numpy(n[::-1]) * 2,
    "as_tensor": lambda n: aj.as_tensor(n) * 2,
    "asarray": lambda n: aj.asarray(n) * 2,
    "tensor": lambda n: aj.tensor(n) * 2,
    "from_dlpack": lambda n: aj.from_dlpack(n) * 2,
}


@pytest.mark.parametrize("name", MAKERS)
def test_tensors_are_made_of_the_arrays_that_eager_mode_takes(name: str) -> None:
    make = MAKERS[name]

    def outcome(function: Any, array: Any) -> Any:
        try:
            return function(array).tolist()
        except Exception as error:
            return type(error), str(error).split("\n")[0]

    step = aj.jit(make)
    for extent in (3, 5, 4):
        for form in (*FORMS, *FORMS):
            array = FORMS[form](np.arange(float(extent)))
            assert outcome(step, array) == outcome(make, array), (form, extent)
