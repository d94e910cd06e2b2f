"""Laws of the generated vector mathematics: accuracy against mpmath, special values, vector code, equal rounding."""

from __future__ import annotations

import importlib.util
import math
import re
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import scipy.special

from autojit.codegen import coefficients, quarter_turns
from autojit.codegen.emitter import Scalar, ScalarEmitter
from autojit.codegen.float_format import rough_inverse
from autojit.codegen.scalar import literal
from autojit.codegen.target import HostTarget, host_target
from autojit.compiler import compile
from autojit.core.dtypes import DType, float32, float64
from autojit.ir import parse_graph
from autojit.ops import special_reference
from autojit.runtime import llvm
from benchmarks.vector_math import CASES, Kernel, exact_reference, function_kernel, loop_text, sample, ulp_errors

FLOATS = (float32, float64)
POINTS = 240
RARE = ("sin", "cos", "tan", "fmod")  # functions with a branch per vector for rare operands

SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5, np.inf, -np.inf, np.nan, 1e-320, -1e-320])


def _lgamma(x: np.ndarray) -> np.ndarray:
    """C's, where SciPy's overflows at denormals."""
    at_pole = (x <= 0) & (np.floor(x) == x)
    return np.array([math.inf if pole else math.lgamma(v) for v, pole in zip(x.tolist(), at_pole, strict=True)])


NUMPY_LIKE = {
    "sigmoid": scipy.special.expit,
    "erf": scipy.special.erf,
    "erfc": scipy.special.erfc,
    "erfinv": lambda x: np.copysign(scipy.special.erfinv(x), x),
    "lgamma": _lgamma,
    "digamma": scipy.special.digamma,
    "rsqrt": lambda x: 1 / np.sqrt(x),
}


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", CASES)
def test_error_is_within_tolerance_at_edges_and_random_points(
    name: str, dtype: DType, rng: np.random.Generator
) -> None:
    case = CASES[name]
    operands = sample(case, dtype, POINTS, rng)
    got = function_kernel(name, dtype, case.arity)(*operands)
    errors = ulp_errors(got, exact_reference(case, operands), dtype)
    worst = int(np.argmax(errors))
    assert errors[worst] <= case.tolerance, [float(x[worst]) for x in operands]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.arity == 1])
def test_special_values_and_signs_of_zero_are_numpys(name: str, dtype: DType) -> None:
    reference = NUMPY_LIKE.get(name) or getattr(np, CASES[name].numpy_name)
    x = SPECIAL.astype(dtype.numpy)
    with np.errstate(all="ignore"):
        want = reference(x)
    got = function_kernel(name, dtype, 1)(x)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=0)
    zeros = (want == 0) & (x != -np.inf)
    np.testing.assert_array_equal(np.signbit(got[zeros]), np.signbit(want[zeros]))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize(("name", "reference"), [("pow", np.power), ("atan2", np.arctan2), ("hypot", np.hypot)])
def test_special_values_of_two_operands_are_numpys(name: str, reference: np.ufunc, dtype: DType) -> None:
    values = np.concatenate([SPECIAL, [3.0, -3.0, 2.5, 1e30, -1e30, 2.0**53 + 2, 4503599627370497.0]])
    x, y = (grid.ravel().astype(dtype.numpy) for grid in np.meshgrid(values, values))
    with np.errstate(all="ignore"):
        want = reference(x, y)
    got = function_kernel(name, dtype, 2)(x, y)
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=0)
    np.testing.assert_array_equal(np.signbit(got[want == 0]), np.signbit(want[want == 0]))


@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_large_arguments_are_reduced_exactly(name: str, rng: np.random.Generator) -> None:
    large = np.exp2(rng.uniform(29, 1023.9, 200))
    near_zeros = np.rint(np.exp2(rng.uniform(20, 52, 200))) * np.pi / 2
    x = np.concatenate([large, near_zeros, [6381956970095103.0 * 2.0**797, 2.0**1023]])
    errors = ulp_errors(function_kernel(name, float64, 1)(x), exact_reference(CASES[name], [x]), float64)
    assert errors.max() <= 2


@pytest.mark.parametrize("n", [1, 2, 3, 8])
def test_derivatives_of_digamma_are_close_everywhere(n: int, rng: np.random.Generator) -> None:
    x = np.concatenate([rng.uniform(0.01, 12, 500), rng.uniform(-6, 0, 500), [1e-8, 1e6, -1500.25, 0.0, -3.0, np.inf]])
    run = compile(parse_graph(f"(x: f64[{x.size}]) {{ y: f64[{x.size}] = polygamma[n={n}](x); return y }}"))
    (found,) = run.executable.run([x])
    assert run.lowered.fallbacks == ()
    with np.errstate(all="ignore"):
        expected = special_reference.polygamma(n, x)
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(found[~finite], expected[~finite])
    greatest = math.pi ** (n + 1) * math.factorial(n)  # of the reflection's terms between two poles
    np.testing.assert_allclose(found[finite], expected[finite], rtol=4e-15, atol=4e-16 * greatest)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_lgamma_and_digamma_left_of_zero_are_close_in_absolute_terms(dtype: DType, rng: np.random.Generator) -> None:
    x = -np.exp(rng.uniform(-20, 4, 150)).astype(dtype.numpy)
    for name in ("lgamma", "digamma"):
        want = exact_reference(CASES[name], [x])[0]
        got = function_kernel(name, dtype, 1)(x)
        np.testing.assert_allclose(got, want, rtol=2e-6 if dtype is float32 else 1e-11, atol=1e-12)


def test_gamma_functions_are_accurate_around_their_zeros_and_where_ranges_meet(rng: np.random.Generator) -> None:
    meeting = np.array([0.75, 1.0, 1.4616321449683623, 2.0, 2.4, 3.0, 3.4, 4.0, 4.4, 5.0, 5.4, 6.0])
    near = meeting * (1 + np.exp(rng.uniform(-36, -3, (20, 1))) * rng.choice([-1.0, 1.0], (20, 1)))
    x = np.concatenate([near.ravel(), meeting, np.nextafter(meeting, 0), [2.5599833278516383e305, 5e-324]])
    for name in ("lgamma", "digamma"):
        errors = ulp_errors(function_kernel(name, float64, 1)(x), exact_reference(CASES[name], [x]), float64)
        assert errors.max() <= 1.7, (name, x[np.argmax(errors)])
    assert function_kernel("lgamma", float64, 1)(np.array([2.56e305]))[0] == math.inf


@pytest.mark.parametrize("name", ["exp", "log", "sin", "erfc", "pow", "tanh"])
def test_vector_and_scalar_code_round_alike(name: str, rng: np.random.Generator) -> None:
    case = CASES[name]
    operands = [np.exp(rng.normal(size=150) * 4).astype(np.float32) for _ in range(case.arity)]
    kernel = function_kernel(name, float32, case.arity)
    whole = kernel(*operands)
    for start in range(0, 150, 7):
        for length in (1, 5, 33):
            part = kernel(*(x[start : start + length].copy() for x in operands))
            np.testing.assert_array_equal(part, whole[start : start + length])


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_erf_and_its_derivative_share_one_exponential(dtype: DType) -> None:
    def both(emit: ScalarEmitter, x: Scalar) -> Scalar:
        return emit.mul(emit.erf(x), emit.exp(emit.neg(emit.mul(x, x))))

    optimised = llvm.optimised_ir(loop_text(both, [dtype]), host_target())
    vector_loop = optimised[optimised.index("vector.body:") : optimised.index("middle.block:")]
    assert vector_loop.count(literal(coefficients.EXP_TAIL[dtype.short][-1], dtype)) == 1


@pytest.mark.parametrize("vector_bytes", [32, 64])
def test_loops_vectorise_without_calls(vector_bytes: int) -> None:
    host = host_target()
    if not host.triple.startswith("x86_64") or host.vector_bytes < vector_bytes:
        pytest.skip("needs the vector instructions")
    target = host.using_all_of(vector_bytes)
    for name, case in CASES.items():
        for dtype in FLOATS:
            body = _kernel_assembly(_kernel(name, dtype, case.arity, target))
            assert ("zmm" if vector_bytes == 64 else "ymm") in body, f"{name} {dtype} is scalar"
            calls = len(re.findall(r"\bcallq?\b", body))
            assert calls == 0 or name in RARE, f"{name} {dtype} makes {calls} calls"


@pytest.mark.parametrize("name", ["erfcx", "ndtri", "bessel_i0e", "bessel_k1"])
def test_special_functions_vectorise_without_calls(name: str) -> None:
    host = host_target()
    if not host.triple.startswith("x86_64") or host.vector_bytes < 32:
        pytest.skip("needs the vector instructions")
    target = host.using_all_of(32)
    body = _kernel_assembly(Kernel(lambda emit, x: emit.call(name, x), [float32], float32, target))
    assert "ymm" in body
    assert not re.search(r"\bcallq?\b", body)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_a_rough_inverse_is_an_eighth_too_great_at_most(dtype: DType, rng: np.random.Generator) -> None:
    kernel = Kernel(lambda emit, x: rough_inverse(emit, x), [dtype], dtype)
    x = np.concatenate([np.exp2(rng.uniform(-100, 100, 500)), np.exp2(np.arange(-100, 100))]).astype(dtype.numpy)
    product = kernel(x) * x
    assert 1 <= product.min() <= product.max() <= 1.125
    assert np.isfinite(kernel(np.zeros(1, dtype.numpy)))[0]


def _kernel(name: str, dtype: DType, arity: int, target: HostTarget) -> Kernel:
    return function_kernel(name, dtype, arity, target)


def _kernel_assembly(kernel: Kernel) -> str:
    text = kernel.assembly()
    start = text.index("\nkernel:")
    return text[start : text.index("\n.Lfunc_end", start)]


def _tool() -> ModuleType:
    path = Path(__file__).parents[2] / "tools" / "make_coefficients.py"
    spec = importlib.util.spec_from_file_location("make_coefficients", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_tables_are_what_the_tool_makes() -> None:
    mp = pytest.importorskip("mpmath")
    tool = _tool()
    with mp.workdps(50):
        for fit in tool.exponential_fits()[:4]:
            made = tuple(tool.rounded(c, fit.dtype) for c in tool.remez(fit)[0])
            assert made == getattr(coefficients, fit.table)[fit.dtype], fit.table
        assert tuple(map(tuple, tool.turn_rows())) == quarter_turns.QUARTER_TURNS
