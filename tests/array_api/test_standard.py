"""The array API standard's namespace: names and signatures, dtypes, values as NumPy (which follows the standard)."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit import array_api as xp

UNARY = """
abs acos acosh asin asinh atan atanh bitwise_invert ceil conj cos cosh exp expm1 floor isfinite isinf isnan log log1p
log2 log10 logical_not negative positive reciprocal sign signbit sin sinh square sqrt tan tanh trunc real imag round
matrix_transpose nonzero unique_all unique_counts unique_inverse unique_values
"""
BINARY = """
add atan2 bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor copysign divide equal floor_divide
greater greater_equal hypot less less_equal logaddexp logical_and logical_or logical_xor maximum minimum multiply
nextafter not_equal pow remainder subtract matmul
"""
SIGNATURES = {  # of the standard's version 2024.12, without annotations
    **dict.fromkeys(UNARY.split(), "(x, /)"),
    **dict.fromkeys(BINARY.split(), "(x1, x2, /)"),
    **dict.fromkeys(
        ("all", "any", "argmax", "argmin", "count_nonzero", "max", "mean", "min"),
        "(x, /, *, axis=None, keepdims=False)",
    ),
    **dict.fromkeys(("sum", "prod"), "(x, /, *, axis=None, dtype=None, keepdims=False)"),
    **dict.fromkeys(("var", "std"), "(x, /, *, axis=None, correction=0.0, keepdims=False)"),
    **dict.fromkeys(("cumulative_sum", "cumulative_prod"), "(x, /, *, axis=None, dtype=None, include_initial=False)"),
    **dict.fromkeys(("sort", "argsort"), "(x, /, *, axis=-1, descending=False, stable=True)"),
    **dict.fromkeys(("empty", "ones", "zeros"), "(shape, *, dtype=None, device=None)"),
    **dict.fromkeys(("empty_like", "ones_like", "zeros_like"), "(x, /, *, dtype=None, device=None)"),
    "arange": "(start, /, stop=None, step=1, *, dtype=None, device=None)",
    "asarray": "(obj, /, *, dtype=None, device=None, copy=None)",
    "astype": "(x, dtype, /, *, copy=True, device=None)",
    "broadcast_arrays": "(*arrays)", "broadcast_to": "(x, /, shape)",
    "can_cast": "(from_, to, /)", "clip": "(x, /, min=None, max=None)", "concat": "(arrays, /, *, axis=0)",
    "diff": "(x, /, *, axis=-1, n=1, prepend=None, append=None)", "expand_dims": "(x, /, axis=0)",
    "eye": "(n_rows, n_cols=None, /, *, k=0, dtype=None, device=None)", "finfo": "(type, /)", "iinfo": "(type, /)",
    "flip": "(x, /, *, axis=None)", "from_dlpack": "(x, /, *, device=None, copy=None)",
    "full": "(shape, fill_value, *, dtype=None, device=None)",
    "full_like": "(x, /, fill_value, *, dtype=None, device=None)", "isdtype": "(dtype, kind)",
    "linspace": "(start, stop, /, num, *, dtype=None, device=None, endpoint=True)",
    "meshgrid": "(*arrays, indexing='xy')", "moveaxis": "(x, source, destination, /)",
    "permute_dims": "(x, /, axes)", "repeat": "(x, repeats, /, *, axis=None)",
    "reshape": "(x, /, shape, *, copy=None)", "result_type": "(*arrays_and_dtypes)",
    "roll": "(x, /, shift, *, axis=None)", "searchsorted": "(x1, x2, /, *, side='left', sorter=None)",
    "squeeze": "(x, /, axis)", "stack": "(arrays, /, *, axis=0)", "take": "(x, indices, /, *, axis=None)",
    "take_along_axis": "(x, indices, /, *, axis=-1)", "tensordot": "(x1, x2, /, *, axes=2)",
    "tile": "(x, repetitions, /)", "tril": "(x, /, *, k=0)", "triu": "(x, /, *, k=0)",
    "unstack": "(x, /, *, axis=0)", "vecdot": "(x1, x2, /, *, axis=-1)", "where": "(condition, x1, x2, /)",
    **{f"linalg.{name}": "(x, /)"
       for name in ("det", "eigh", "eigvalsh", "inv", "matrix_transpose", "slogdet", "svdvals")},
    **{f"linalg.{name}": "(x1, x2, /)" for name in ("matmul", "outer", "solve")},
    "linalg.cholesky": "(x, /, *, upper=False)", "linalg.cross": "(x1, x2, /, *, axis=-1)",
    "linalg.diagonal": "(x, /, *, offset=0)", "linalg.matrix_norm": "(x, /, *, keepdims=False, ord='fro')",
    "linalg.matrix_power": "(x, n, /)", "linalg.matrix_rank": "(x, /, *, rtol=None)",
    "linalg.pinv": "(x, /, *, rtol=None)", "linalg.qr": "(x, /, *, mode='reduced')",
    "linalg.svd": "(x, /, *, full_matrices=True)", "linalg.tensordot": "(x1, x2, /, *, axes=2)",
    "linalg.trace": "(x, /, *, offset=0, dtype=None)", "linalg.vecdot": "(x1, x2, /, *, axis=-1)",
    "linalg.vector_norm": "(x, /, *, axis=None, keepdims=False, ord=2)",
    **{f"fft.{name}": "(x, /, *, n=None, axis=-1, norm='backward')"
       for name in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")},
    **{f"fft.{name}": "(x, /, *, s=None, axes=None, norm='backward')" for name in ("fftn", "ifftn", "rfftn", "irfftn")},
    **{f"fft.{name}": "(x, /, *, axes=None)" for name in ("fftshift", "ifftshift")},
    **{f"fft.{name}": "(n, /, *, d=1.0, dtype=None, device=None)" for name in ("fftfreq", "rfftfreq")},
}  # fmt: skip
BOOLS, SIGNED, UNSIGNED = ["bool"], ["int8", "int16", "int32", "int64"], ["uint8", "uint16", "uint32", "uint64"]
REAL, COMPLEX = ["float32", "float64"], ["complex64", "complex128"]
EVERY = [*BOOLS, *SIGNED, *UNSIGNED, *REAL, *COMPLEX]


def lookup(name: str) -> Any:
    """A function by its name, which may lead through an extension."""
    found: Any = xp
    for part in name.split("."):
        found = getattr(found, part)
    return found


def values(dtype: str, shape: tuple[int, ...] = (3, 4)) -> Any:
    """Numbers of a dtype."""
    rng = np.random.default_rng(len(dtype))
    if dtype == "bool":
        return rng.random(shape) > 0.5
    if dtype in COMPLEX:
        return (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(dtype)
    return rng.normal(size=shape).astype(dtype) if dtype in REAL else rng.integers(1, 6, shape).astype(dtype)


@pytest.fixture(autouse=True)
def no_rounding_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        yield


@pytest.mark.parametrize("name", SIGNATURES)
def test_signatures_are_the_standards(name: str) -> None:
    parameters = [
        p.replace(annotation=inspect.Parameter.empty) for p in inspect.signature(lookup(name)).parameters.values()
    ]
    assert str(inspect.Signature(parameters)) == SIGNATURES[name]
    assert lookup(name).__doc__


def test_a_tensor_tells_its_namespace() -> None:
    x = aj.ones(2)
    assert x.__array_namespace__() is xp
    assert x.__array_namespace__(api_version="2023.12") is xp
    with pytest.raises(ValueError, match="2024"):
        x.__array_namespace__(api_version="1999.01")
    assert (xp.__array_api_version__, xp.newaxis, xp.pi) == ("2024.12", None, np.pi)
    assert {*EVERY, "sum", "linalg"} <= set(dir(xp))
    assert x.to_device("cpu") is x


def test_the_namespace_describes_itself() -> None:
    info = xp.__array_namespace_info__()
    assert info.capabilities()["boolean indexing"] is True
    assert info.default_device() == aj.device("cpu")
    assert info.devices() == [aj.device("cpu")]
    assert info.default_dtypes()["integral"] is aj.int64
    assert set(info.dtypes()) == set(EVERY)
    assert set(info.dtypes(kind="real floating")) == set(REAL)
    assert set(info.dtypes(kind=("bool", "signed integer"))) == {"bool", *SIGNED}


def check_same(found: Any, wanted: Any) -> None:
    """Dtype, shape and values."""
    assert found.dtype.numpy == np.asarray(wanted).dtype
    tolerance = 1e-5 if found.dtype.numpy in ("f4", "c8") else 1e-10
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", [n for n in UNARY.split() if "unique" not in n and n != "nonzero"])
@pytest.mark.parametrize("dtype", EVERY)
def test_functions_of_one_array(name: str, dtype: str) -> None:
    if dtype == "bool" and name in ("abs", "ceil", "floor", "trunc"):
        return  # of numbers only
    x = values(dtype)
    try:
        wanted = getattr(np, name)(x)
    except TypeError:
        return  # the standard does not define it for the dtype
    if np.asarray(wanted).dtype == np.float16 or (name == "imag" and dtype not in COMPLEX):
        return
    check_same(lookup(name)(aj.as_tensor(x)), wanted)


@pytest.mark.parametrize("name", [n for n in BINARY.split() if n != "matmul"])
@pytest.mark.parametrize("dtype", EVERY)
def test_functions_of_two_arrays(name: str, dtype: str) -> None:
    x, y = values(dtype), values(dtype)[::-1].copy()
    if dtype == "bool" and name in ("floor_divide", "remainder"):
        return  # not defined
    if dtype in COMPLEX and name in ("greater", "greater_equal", "less", "less_equal", "maximum", "minimum"):
        return  # complex numbers have no order
    try:
        wanted = getattr(np, name)(x, y)
    except TypeError:
        return
    if np.asarray(wanted).dtype != np.float16:
        check_same(lookup(name)(aj.as_tensor(x), aj.as_tensor(y)), wanted)
        check_same(lookup(name)(aj.as_tensor(x), True if dtype == "bool" else 2), getattr(np, name)(x, x.dtype.type(2)))


@pytest.mark.parametrize("name", ["all", "any", "max", "min", "mean", "sum", "prod", "var", "std", "argmax", "argmin"])
@pytest.mark.parametrize("dtype", EVERY)
def test_reductions(name: str, dtype: str) -> None:
    x = values(dtype)
    is_ordered = name in ("max", "min", "argmax", "argmin")
    if (is_ordered and dtype in COMPLEX) or (name in ("mean", "var", "std") and dtype not in REAL):
        return
    if dtype == "bool" and (is_ordered or name in ("sum", "prod")):
        return
    for axis in (None, 0, -1, *([] if "arg" in name else [(0, 1)])):
        for keepdims in (False, True):
            wanted = getattr(np, name)(x, axis=axis, keepdims=keepdims)
            check_same(lookup(name)(aj.as_tensor(x), axis=axis, keepdims=keepdims), wanted)


@pytest.mark.parametrize("a", EVERY)
@pytest.mark.parametrize("b", EVERY)
def test_promotion_depends_on_dtypes_alone(a: str, b: str) -> None:
    def kind(name: str) -> str:
        return "u" if name in UNSIGNED else "i" if name in SIGNED else "b" if name == "bool" else "f"

    if kind(a) != kind(b) and {kind(a), kind(b)} != {"i", "u"}:
        return  # left open
    x, y = aj.as_tensor(values(a)), aj.as_tensor(values(b, ()))
    if kind(a) != kind(b) and "uint64" in (a, b):
        with pytest.raises(RuntimeError, match="promotion"):
            xp.result_type(x, y)
        return
    wanted = np.promote_types(a, b)
    assert xp.result_type(x, y).numpy == wanted
    assert xp.multiply(x, y).dtype.numpy == wanted
    assert xp.where(x == x, x, y).dtype.numpy == wanted
    assert xp.can_cast(aj.as_tensor(values(a)), getattr(aj, b)) == (np.promote_types(a, b) == np.dtype(b))


def test_numbers_take_the_dtype_of_the_array() -> None:
    assert xp.result_type(aj.float32, 2.5) is aj.float32
    assert xp.result_type(aj.int8, 3) is aj.int8
    assert xp.result_type(aj.float64, 1j) is aj.complex128
    assert xp.add(1, aj.ones(2, dtype=aj.uint8)).dtype is aj.uint8
    with pytest.raises(ValueError, match="at least one"):
        xp.result_type(1, 2)


def test_kinds_of_dtypes() -> None:
    assert xp.isdtype(aj.uint8, "integral")
    assert xp.isdtype(aj.float32, ("bool", "real floating"))
    assert not xp.isdtype(aj.complex64, "real floating")
    assert xp.isdtype(aj.int8, aj.int8)
    with pytest.raises(ValueError, match="unknown kind"):
        xp.isdtype(aj.int8, "no kind")
    assert (xp.finfo(aj.complex64).bits, xp.finfo(aj.ones(1)).dtype) == (32, aj.float32)
    assert (xp.iinfo(aj.int8).max, xp.iinfo(aj.int8).bits) == (127, 8)


def test_making_arrays() -> None:
    assert xp.arange(3).tolist() == [0, 1, 2]
    assert xp.arange(5, 1).tolist() == []
    assert xp.linspace(0, 1, 4, endpoint=False).tolist() == [0.0, 0.25, 0.5, 0.75]
    assert xp.eye(2, 3, k=1).tolist() == [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    assert xp.asarray(2**63).dtype is aj.uint64
    assert xp.full(2, 3).dtype is aj.int64
    array = np.ones(2)
    assert xp.asarray(array).data_ptr() == array.ctypes.data
    assert xp.asarray(array, copy=True).data_ptr() != array.ctypes.data
    with pytest.raises(ValueError, match="copy"):
        xp.asarray([1.0], copy=False)
    with pytest.raises(OverflowError):
        xp.asarray(2**70)
    with pytest.raises(ValueError, match="indexing"):
        xp.meshgrid(xp.ones(2), indexing="no")


def test_errors_are_the_standards() -> None:
    x = aj.ones(2, 3)
    with pytest.raises(IndexError):
        xp.expand_dims(x, axis=5)
    with pytest.raises(ValueError, match="size not equal to one"):
        xp.squeeze(x, axis=0)
    with pytest.raises(ValueError, match="axis is needed"):
        xp.take(x, aj.tensor([0]))
    with pytest.raises(ValueError, match="without a copy"):
        xp.reshape(x.T, (6,), copy=False)
    with pytest.raises(TypeError, match="complex"):
        xp.imag(x)
    with pytest.raises(TypeError, match="complex"):
        xp.astype(aj.ones(1, dtype=aj.complex64), aj.float32)
    with pytest.raises(ValueError, match="three elements"):
        xp.linalg.cross(x.T, x.T)


def test_nan_are_different_from_each_other() -> None:
    found = xp.unique_all(aj.tensor([1.0, aj.nan, 1.0, aj.nan]))
    assert found.counts.tolist() == [2, 1, 1]
    assert found.inverse_indices.shape == (4,)


def standardised(x: Any) -> Any:
    """Written against the standard alone."""
    ns = x.__array_namespace__()
    centred = x - ns.mean(x, axis=0, keepdims=True)
    scaled = centred / ns.std(x, axis=0, correction=1)
    _, s, _ = ns.linalg.svd(scaled, full_matrices=False)
    return ns.sum(ns.exp(-s)) + ns.vecdot(ns.reshape(scaled, (-1,)), ns.reshape(ns.flip(scaled, axis=1), (-1,)))


def test_a_program_of_the_standard_differentiates_and_compiles() -> None:
    x = aj.tensor(values("float64", (5, 3)), requires_grad=True)
    assert float(standardised(x)) == pytest.approx(float(standardised(x.detach().numpy())))
    assert aj.autograd.gradcheck(standardised, (x,))
    compiled = aj.jit(lambda x: aj.autograd.grad(standardised(x), (x,))[0])
    np.testing.assert_allclose(compiled(x), aj.autograd.grad(standardised(x), (x,))[0], rtol=1e-8)


SCIKIT = """
import numpy as np, autojit as aj, sklearn
from sklearn.preprocessing import MinMaxScaler
x = aj.as_tensor(np.random.default_rng(0).normal(size=(20, 3)))
with sklearn.config_context(array_api_dispatch=True):
    found = MinMaxScaler().fit_transform(x)
assert isinstance(found, aj.Tensor)
np.testing.assert_allclose(found, MinMaxScaler().fit_transform(x.numpy()))
"""


def test_scikit_learn_computes_with_tensors() -> None:
    pytest.importorskip("sklearn")
    environment = {**os.environ, "SCIPY_ARRAY_API": "1", "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    subprocess.run([sys.executable, "-c", SCIKIT], env=environment, check=True, timeout=600)


def test_special_values_are_the_standards() -> None:
    inf, nan = float("inf"), float("nan")
    for x, y, wanted in ((inf, 2.0, inf), (-inf, 2.0, -inf), (inf, -1.0, -inf), (inf, inf, nan), (1.0, -inf, -1.0)):
        found = float(xp.floor_divide(xp.asarray(x), xp.asarray(y)))
        assert found == wanted or (wanted != wanted and found != found)
    assert bool(xp.isnan(xp.sign(xp.asarray(nan)))) and float(xp.sign(xp.asarray(-2.0))) == -1
    for z, real, imaginary in (
        (complex(inf, 0), inf, 0.0), (complex(-inf, inf), -1.0, 0.0), (complex(-inf, nan), -1.0, 0.0),
        (complex(inf, inf), inf, nan), (complex(inf, nan), inf, nan), (complex(nan, 0), nan, 0.0),
        (complex(1, inf), nan, nan), (complex(-inf, 4), -1.0, 0.0),
    ):  # fmt: skip
        part = complex(xp.expm1(xp.asarray(z, dtype=xp.complex128)))
        for got, want in ((part.real, real), (part.imag, imaginary)):
            assert got == want or (want != want and got != got), (z, part)


def test_lists_of_arrays_are_lists() -> None:
    a = xp.asarray([1.0, 2.0])
    assert type(xp.meshgrid(a, a)) is list and type(xp.broadcast_arrays(a, xp.ones((3, 2)))) is list
