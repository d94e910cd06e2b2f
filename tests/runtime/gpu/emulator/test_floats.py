"""Floats are rounded as the standard says, in every type and direction: against fractions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction

import numpy as np
import pytest

from tests.runtime.gpu.emulator.emulation import elementwise
from tests.runtime.gpu.emulator.exact import as_bits, as_floats, floats, rounded, same, to_whole

NAMES = {"f2": "f16", "bf": "bf16", "f4": "f32", "f8": "f64"}
COUNT = 128


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Special values are meant."""
    with np.errstate(all="ignore"):
        yield


def run(instructions: str, kind: str, *operands: np.ndarray, result: str = "") -> np.ndarray:
    """Doubles of what instructions make of doubles."""
    found = elementwise(instructions, [as_bits(x, kind) for x in operands], _bits(result or kind))
    return as_floats(found, result or kind)


def _bits(kind: str) -> str:
    return "u2" if kind == "bf" else f"u{kind[1]}"


def exactly(function: Callable[..., Fraction], kind: str, *operands: np.ndarray) -> list[Fraction | float]:
    """The rounded results of a function of fractions; of others, what doubles say."""
    found: list[Fraction | float] = []
    for values in zip(*operands):
        numbers = [float(v) for v in values]
        if not all(math.isfinite(v) for v in numbers):
            found.append(float(function(*(np.float64(v) for v in numbers))))
            continue
        exact = function(*(Fraction(v) for v in numbers))
        sign = float(function(*(np.float64(v) for v in numbers)))  # of a zero
        found.append(rounded(exact, kind) if exact else math.copysign(0.0, sign))
    return found


@pytest.mark.parametrize("kind", NAMES)
@pytest.mark.parametrize("word", ["add", "sub", "mul"])
def test_sums_and_products_are_rounded_once(word: str, kind: str) -> None:
    x, y = floats(kind, COUNT), floats(kind, COUNT, 1)[::-1].copy()
    function = {"add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b}[word]
    same(run(f"{word}.rn.{NAMES[kind]} %y, %x0, %x1;", kind, x, y), exactly(function, kind, x, y))


@pytest.mark.parametrize("kind", NAMES)
def test_a_fused_multiply_add_is_rounded_once(kind: str) -> None:
    x, y = floats(kind, COUNT), floats(kind, COUNT, 1)[::-1].copy()
    near = as_floats(as_bits(-(x * y), kind), kind)  # so that the digits of the product count
    for z in (near, floats(kind, COUNT, 2)):
        got = run(f"fma.rn.{NAMES[kind]} %y, %x0, %x1, %x2;", kind, x, y, z)
        finite = np.isfinite(x) & np.isfinite(y) & np.isfinite(z)
        wanted = [
            rounded(Fraction(a) * Fraction(b) + Fraction(c), kind) for a, b, c in zip(x[finite], y[finite], z[finite])
        ]
        np.testing.assert_array_equal(got[finite], np.array([float(v) for v in wanted]))


@pytest.mark.parametrize("kind", ["f4", "f8"])
def test_quotients_and_roots_are_rounded_once(kind: str) -> None:
    x, y = floats(kind, COUNT), floats(kind, COUNT, 1)[::-1].copy()
    native = as_bits(x, kind).view(kind), as_bits(y, kind).view(kind)
    np.testing.assert_array_equal(run(f"div.rn.{NAMES[kind]} %y, %x0, %x1;", kind, x, y), native[0] / native[1])
    np.testing.assert_array_equal(run(f"sqrt.rn.{NAMES[kind]} %y, %x0;", kind, x), np.sqrt(native[0]))
    np.testing.assert_array_equal(run(f"rcp.rn.{NAMES[kind]} %y, %x0;", kind, x), 1 / native[0])


@pytest.mark.parametrize("kind", NAMES)
@pytest.mark.parametrize("word", ["min", "max", "min.NaN", "max.NaN"])
def test_extrema_order_zeros_and_treat_nan_as_they_say(word: str, kind: str) -> None:
    special = np.array([0.0, -0.0, 1.0, -2.0, math.inf, -math.inf, math.nan])
    x, y = (v.reshape(-1) for v in np.meshgrid(special, special))

    def chosen(a: float, b: float) -> float:
        if math.isnan(a) or math.isnan(b):
            return math.nan if word.endswith("NaN") else b if math.isnan(a) else a
        ordered = sorted((a, b), key=lambda v: (v, math.copysign(1, v)))
        return ordered[0] if word.startswith("min") else ordered[1]

    same(run(f"{word}.{NAMES[kind]} %y, %x0, %x1;", kind, x, y), [chosen(a, b) for a, b in zip(x, y)])


COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a < b or a > b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "num": lambda a, b: not (math.isnan(a) or math.isnan(b)),
}


@pytest.mark.parametrize("kind", NAMES)
@pytest.mark.parametrize("word", [*COMPARISONS, "equ", "neu", "ltu", "leu", "gtu", "geu", "nan"])
def test_comparisons_say_what_nan_is_to_them(word: str, kind: str) -> None:
    x = floats(kind, COUNT)
    y = np.where(np.arange(COUNT) % 3 == 0, x, floats(kind, COUNT, 1))
    got = elementwise(
        f"setp.{word}.{NAMES[kind]} %p1, %x0, %x1; selp.b32 %y, 1, 0, %p1;", [as_bits(x, kind), as_bits(y, kind)], "u4"
    )

    def truth(a: float, b: float) -> bool:
        if word == "nan":
            return math.isnan(a) or math.isnan(b)
        if word in COMPARISONS:
            return COMPARISONS[word](a, b)
        return math.isnan(a) or math.isnan(b) or COMPARISONS[word[:-1]](a, b)

    assert got.astype(bool).tolist() == [truth(a, b) for a, b in zip(x, y)]


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize(("wide", "narrow"), [("f8", "f4"), ("f4", "f2"), ("f8", "f2"), ("f4", "bf")])
def test_narrowing_rounds_in_every_direction(wide: str, narrow: str, mode: str) -> None:
    x = floats(wide, COUNT)
    middle = floats(narrow, COUNT, 3) * (1 + 2.0 ** -(13 if wide == "f8" else 9))
    for values in (x, as_floats(as_bits(middle, wide), wide)):
        got = run(f"cvt.{mode}.{NAMES[narrow]}.{NAMES[wide]} %y, %x0;", wide, values, result=narrow)
        wanted = [rounded(Fraction(float(v)), narrow, mode) if math.isfinite(v) else float(v) for v in values]
        np.testing.assert_array_equal(got, np.array([float(v) for v in wanted]))


@pytest.mark.parametrize(("narrow", "wide"), [("f4", "f8"), ("f2", "f4"), ("f2", "f8"), ("bf", "f4")])
def test_widening_is_exact(narrow: str, wide: str) -> None:
    x = floats(narrow, COUNT)
    np.testing.assert_array_equal(run(f"cvt.{NAMES[wide]}.{NAMES[narrow]} %y, %x0;", narrow, x, result=wide), x)


@pytest.mark.parametrize("mode", ["rni", "rzi", "rmi", "rpi"])
@pytest.mark.parametrize("kind", ["f2", "f4", "f8"])
def test_rounding_to_whole_numbers_keeps_the_type(kind: str, mode: str) -> None:
    x = floats(kind, COUNT)
    got = run(f"cvt.{mode}.{NAMES[kind]}.{NAMES[kind]} %y, %x0;", kind, x)
    np.testing.assert_array_equal(got, [float(to_whole(v, mode)) if math.isfinite(v) else v for v in x])


@pytest.mark.parametrize("mode", ["rni", "rzi", "rmi", "rpi"])
@pytest.mark.parametrize("target", ["s16", "u16", "s32", "u32", "s64", "u64"])
@pytest.mark.parametrize("kind", ["f2", "f4", "f8"])
def test_floats_become_integers_at_most_at_the_ends_of_their_range(kind: str, target: str, mode: str) -> None:
    width = int(target[1:])
    least, most = (-(2 ** (width - 1)), 2 ** (width - 1) - 1) if target[0] == "s" else (0, 2**width - 1)
    edges = np.array([least - 0.5, least, most, most + 0.5, 2.0**31, 2.0**32, 2.0**63, 2.0**64, -(2.0**63)])
    edges = as_floats(as_bits(edges, kind), kind)
    x = np.concatenate([floats(kind, COUNT), edges, floats(kind, 64, 4) * 0 + 2.5])
    bits = as_bits(x, kind)
    got = elementwise(
        f"cvt.{mode}.{target}.{NAMES[kind]} %y, %x0;", [bits], f"{'i' if target[0] == 's' else 'u'}{width // 8}"
    )
    unknown = 0
    if kind == "f8" or width == 64:  # the table of cvt in NVIDIA's PTX ISA
        unknown = least if target[0] == "s" else 1 << (width - 1)

    def whole(value: float) -> int:
        if math.isnan(value):
            return unknown
        if math.isinf(value):
            return most if value > 0 else least
        return min(max(to_whole(value, mode), least), most)

    assert [int(v) for v in got] == [whole(float(v)) for v in x]


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize("kind", ["f2", "f4", "f8"])
@pytest.mark.parametrize("source", ["s32", "u32", "s64", "u64"])
def test_integers_become_floats_in_every_direction(source: str, kind: str, mode: str) -> None:
    width = int(source[1:])
    chance = np.random.default_rng(0)
    bits = chance.integers(0, 2**63, 100, dtype=np.uint64) >> chance.integers(0, 63, 100, dtype=np.uint64)
    ends = np.array([0, 1, 2**31, 2**32 - 1, 2**53 + 1, 2**63, 2**64 - 1, 2**64 - 1025, 65520, 65519], np.uint64)
    x = np.concatenate([bits, ends]).astype(f"u{width // 8}").view(f"{'i' if source[0] == 's' else 'u'}{width // 8}")
    got = as_floats(elementwise(f"cvt.{mode}.{NAMES[kind]}.{source} %y, %x0;", [x], _bits(kind)), kind)
    np.testing.assert_array_equal(got, [float(rounded(Fraction(int(v)), kind, mode)) for v in x])


def test_tensor_float_keeps_ten_digits_and_ties_go_away_from_zero() -> None:
    x = floats("f4", COUNT)
    got = run("cvt.rna.tf32.f32 %y, %x0;", "f4", x)
    finite = np.isfinite(x)
    scale = 2.0 ** (np.floor(np.log2(np.maximum(np.abs(x[finite]), 2.0**-126))) - 10)
    wanted = (np.sign(x[finite]) * np.floor(np.abs(x[finite]) / scale + 0.5) * scale).astype("f4")
    np.testing.assert_array_equal(got[finite], wanted)
    np.testing.assert_array_equal(got[~finite], x[~finite])


@pytest.mark.parametrize("kind", ["f2", "bf"])
def test_pairs_of_narrow_floats_are_two_lanes(kind: str) -> None:
    halves = [floats(kind, COUNT, seed) for seed in range(4)]
    pack = [as_bits(a, kind).astype("u4") | as_bits(b, kind).astype("u4") << 16 for a, b in (halves[:2], halves[2:])]
    for word in ("add.rn", "mul.rn", "max"):
        got = elementwise(f"{word}.{NAMES[kind]}x2 %y, %x0, %x1;", pack, "u4")
        for part, (a, b) in enumerate(((halves[0], halves[2]), (halves[1], halves[3]))):
            alone = elementwise(f"{word}.{NAMES[kind]} %y, %x0, %x1;", [as_bits(a, kind), as_bits(b, kind)], "u2")
            both = as_floats((got >> 16 * part).astype("u2"), kind), as_floats(alone, kind)
            np.testing.assert_array_equal(*both)


def test_two_floats_become_a_pair_the_first_above() -> None:
    x, y = floats("f4", COUNT), floats("f4", COUNT, 1)
    for kind in ("f2", "bf"):
        got = elementwise(f"cvt.rn.{NAMES[kind]}x2.f32 %y, %x0, %x1;", [as_bits(v, "f4") for v in (x, y)], "u4")
        for part, values in enumerate((y, x)):
            alone = run(f"cvt.rn.{NAMES[kind]}.f32 %y, %x0;", "f4", values, result=kind)
            np.testing.assert_array_equal(as_floats((got >> 16 * part).astype("u2"), kind), alone)


@pytest.mark.parametrize("name", ["ex2", "lg2", "sin", "cos", "tanh", "rsqrt", "rcp", "sqrt"])
def test_approximate_functions_are_near(name: str) -> None:
    x = np.abs(np.random.default_rng(0).normal(size=COUNT)).astype("f4").astype("f8") + 0.125
    functions = {
        "ex2": np.exp2,
        "lg2": np.log2,
        "sin": np.sin,
        "cos": np.cos,
        "tanh": np.tanh,
        "rsqrt": lambda v: 1 / np.sqrt(v),
        "rcp": lambda v: 1 / v,
        "sqrt": np.sqrt,
    }
    x = as_floats(as_bits(x, "f4"), "f4")
    np.testing.assert_allclose(
        run(f"{name}.approx.f32 %y, %x0;", "f4", x), functions[name](x), rtol=2**-21, atol=2**-22
    )


def test_flushing_takes_numbers_below_the_normal_ones_for_zeros() -> None:
    x = np.array([2.0**-127, -(2.0**-130), 2.0**-126, -(2.0**-126), 1.0])
    np.testing.assert_array_equal(run("add.ftz.f32 %y, %x0, %x0;", "f4", x), [0, 0, 2.0**-125, -(2.0**-125), 2])
    np.testing.assert_array_equal(run("mul.ftz.f32 %y, %x0, 0f3F000000;", "f4", x), [0, 0, 0, 0, 0.5])
    np.testing.assert_array_equal(run("add.sat.f32 %y, %x0, 0f3F000000;", "f4", x), [0.5, 0.5, 0.5, 0.5, 1.0])


@pytest.mark.parametrize("kind", ["f4", "f8"])
def test_signs_are_bits(kind: str) -> None:
    x, y = floats(kind, COUNT), floats(kind, COUNT, 1)
    name = NAMES[kind]
    np.testing.assert_array_equal(run(f"neg.{name} %y, %x0;", kind, x), -x)
    np.testing.assert_array_equal(run(f"abs.{name} %y, %x0;", kind, x), np.abs(x))
    np.testing.assert_array_equal(run(f"copysign.{name} %y, %x0, %x1;", kind, x, y), np.copysign(y, x))
    for word, test in (("finite", np.isfinite), ("infinite", np.isinf), ("notanumber", np.isnan)):
        got = elementwise(f"testp.{word}.{name} %p1, %x0; selp.b32 %y, 1, 0, %p1;", [as_bits(x, kind)], "u4")
        np.testing.assert_array_equal(got.astype(bool), test(x))
