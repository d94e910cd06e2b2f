"""Make the coefficient tables of the vector mathematics: ``python -m tools.make_coefficients``.

Writes ``coefficients.py``, ``bessel_coefficients.py`` and ``quarter_turns.py`` of ``codegen``. Every polynomial is a
minimax fit by Remez's exchange algorithm in 50 digits, rounded to the dtype that evaluates it; the error before that
rounding stands beside each table as a power of two. Needs mpmath. ``--check`` only compares with the files on disk.
"""

from __future__ import annotations

import argparse
import sys
import textwrap
from pathlib import Path

import mpmath as mp
import numpy as np

from tools.bessel_fits import bessel_fits
from tools.minimax import Fit, Function, both, odd_tail, remez, series

CODEGEN = Path(__file__).resolve().parent.parent / "src" / "autojit" / "codegen"
LINE_LENGTH = 120


def exponential_fits() -> list[Fit]:
    half_ln2 = mp.log(2) / 2 * mp.mpf("1.0001")
    exp_tail = series(lambda r: (mp.expm1(r) - r) / r**2, lambda r: mp.mpf(1) / 2 + r / 6)
    ln2 = mp.log(2)
    exp2_tail = series(lambda r: (mp.power(2, r) - 1 - r * ln2) / r**2, lambda r: ln2**2 / 2 + r * ln2**3 / 6)
    cosh_tail = series(lambda z: (mp.cosh(mp.sqrt(z)) - 1) / z, lambda z: mp.mpf(1) / 2 + z / 24)
    sinh_tail = odd_tail(mp.sinh, mp.mpf(1) / 6, mp.mpf(1) / 120)
    tanh_tail = odd_tail(mp.tanh, -mp.mpf(1) / 3, mp.mpf(2) / 15)
    return [
        *both("EXP_TAIL", exp_tail, -half_ln2, half_ln2, (4, 10), lambda r: r * r),
        Fit("EXP_TAIL", "f40", exp_tail, -half_ln2, half_ln2, 6, lambda r: r * r),
        *both("EXP2_TAIL", exp2_tail, "-0.5", "0.5", (4, 9), lambda r: r * r),
        *both("COSH_TAIL", cosh_tail, 0, half_ln2**2, (2, 5), lambda z: z),
        *both("SINH_TAIL", sinh_tail, 0, half_ln2**2, (2, 4), lambda z: z),
        *both("TANH_TAIL", tanh_tail, 0, mp.mpf("0.5501") ** 2, (4, 9), lambda z: z),
    ]


def logarithm_fits() -> list[Fit]:
    low, high = mp.sqrt(mp.mpf("0.5")) - 1, mp.sqrt(2) - 1
    cubic = series(lambda f: (mp.log1p(f) - f + f * f / 2) / f**3, lambda f: mp.mpf(1) / 3 - f / 4, "1e-10")
    greatest = (high / (2 + high)) ** 2 * mp.mpf("1.0001")
    remainder = series(lambda z: (2 * mp.atanh(mp.sqrt(z)) / mp.sqrt(z) - 2) / z, lambda z: mp.mpf(2) / 3 + 2 * z / 5)
    pair = series(lambda z: (remainder(z) - mp.mpf(2) / 3) / z, lambda z: mp.mpf(2) / 5 + 2 * z / 7)
    return [
        Fit("LOG_TAIL", "f40", remainder, mp.mpf(0), greatest, 4, lambda z: z),
        Fit("LOG_PAIR_TAIL", "f64", pair, mp.mpf(0), greatest, 7, lambda z: z * z),
        Fit("LOG_TAIL", "f32", cubic, low, high, 8, lambda f: f * f),
        Fit("LOG_TAIL", "f64", remainder, mp.mpf(0), greatest, 6, lambda z: z),
    ]


def trigonometric_fits() -> list[Fit]:
    quarter = (mp.pi / 4 * mp.mpf("1.0001")) ** 2
    cos_tail = series(lambda z: (mp.cos(mp.sqrt(z)) - 1 + z / 2) / z**2, lambda z: mp.mpf(1) / 24 - z / 720)
    third = mp.mpf(1) / 3
    atan_tail = odd_tail(mp.atan, -third, mp.mpf(1) / 5)
    return [
        Fit("ATAN_TAIL", "f40", atan_tail, mp.mpf(0), mp.mpf("0.41422") ** 2, 6, lambda z: z),
        *both("SIN_TAIL", odd_tail(mp.sin, -mp.mpf(1) / 6, mp.mpf(1) / 120), 0, quarter, (2, 5), lambda z: z),
        *both("COS_TAIL", cos_tail, 0, quarter, (2, 5), lambda z: z * z),
        *both("TAN_TAIL", odd_tail(mp.tan, third, mp.mpf(2) / 15), 0, quarter, (6, 14), lambda z: z),
        *both("ASIN_TAIL", odd_tail(mp.asin, mp.mpf(1) / 6, mp.mpf(3) / 40), 0, "0.25", (4, 11), lambda z: z),
        *both("ATAN_TAIL", atan_tail, 0, mp.mpf("0.41422") ** 2, (4, 10), lambda z: z),
    ]


def error_function_fits() -> list[Fit]:
    return [*erf_fits(), *erfc_fits()]


def erf_fits() -> list[Fit]:
    """erf(x)/x - 1 as a function of -x^2 below the split; erfcx beyond, until erf rounds to one."""
    slope = 2 / mp.sqrt(mp.pi)
    split = {"f32": mp.mpf("0.96"), "f64": mp.mpf(1)}
    centre = mp.mpf(3)
    near = series(lambda z: mp.erf(mp.sqrt(z)) / mp.sqrt(z) - 1, lambda z: slope - 1 - slope * z / 3, "1e-20")

    def erfcx(a: mp.mpf) -> mp.mpf:
        return mp.exp(a * a) * mp.erfc(a)

    def position(a: mp.mpf) -> mp.mpf:
        return (a - centre) / (a + centre)

    def argument(v: mp.mpf) -> mp.mpf:
        return centre * (1 + v) / (1 - v)

    return [
        *[
            Fit("ERF_NEAR", short, lambda v: near(-v), -(split[short] ** 2), mp.mpf(0), degree, lambda v: 1)
            for short, degree in (("f32", 5), ("f64", 11))
        ],
        Fit("ERF_FAR", "f32", erfcx, split["f32"], mp.mpf("3.93"), 7, lambda a: mp.exp(-a * a)),
        Fit(
            "ERF_FAR",
            "f64",
            lambda v: erfcx(argument(v)),
            position(split["f64"]),
            position(mp.mpf(6)),
            12,
            lambda v: mp.exp(-(argument(v) ** 2)),
        ),
    ]


def erfc_fits() -> list[Fit]:
    """(H - 1) / (1 + v) of `error_functions`, in v = (a - K)/(a + K)."""
    centre = {"f32": mp.mpf(3), "f64": mp.mpf(4)}
    last = {"f32": mp.mpf("10.1"), "f64": mp.mpf("27.3")}

    def scaled(short: str) -> Function:
        def function(v: mp.mpf) -> mp.mpf:
            a = centre[short] * (1 + v) / (1 - v)
            return ((1 + 2 * a) * mp.exp(a * a) * mp.erfc(a) - 1) / (1 + v)

        slope = (2 - 2 / mp.sqrt(mp.pi)) * centre[short] / 2
        return lambda v: function(v) if v > -1 else slope

    def whole(t: mp.mpf) -> mp.mpf:
        if t > mp.mpf("0.9999999"):
            return 2 / mp.sqrt(mp.pi) * (1 + (1 - t) / (4 * mp.mpf("3.75")))  # 1 + 1/2a
        a = mp.mpf("3.75") * (1 + t) / (1 - t)
        return (1 + 2 * a) * mp.exp(a * a) * mp.erfc(a)

    return [
        Fit("ERFCX_WHOLE", "f64", whole, mp.mpf(-1), mp.mpf(1), 26, _one),
    ] + [
        Fit("ERFCX", short, scaled(short), mp.mpf(-1), (last[short] - k) / (last[short] + k), degree, lambda v: 1 + v)
        for short, k, degree in (("f32", centre["f32"], 10), ("f64", centre["f64"], 23))
    ]


def inverse_error_fits() -> list[Fit]:
    """erfinv(x)/x as a function of w = -log(1 - x^2), or of its root; arguments shifted to the middle of each range."""

    def of_w(w: mp.mpf) -> mp.mpf:
        with mp.workdps(70):
            if w < mp.mpf("1e-25"):
                return mp.sqrt(mp.pi) / 2
            x = mp.sqrt(-mp.expm1(-w))
            return _erfinv(x, w) / x

    def shifted(centre: str) -> Function:
        return lambda p: of_w((p + mp.mpf(centre)) ** 2)

    def beyond(v: mp.mpf) -> mp.mpf:
        return of_w(1 / (v + middle) ** 2) * (v + middle)

    half, middle = mp.mpf("3.125"), mp.mpf("0.1")
    low, high, narrow_low = mp.mpf("2.5"), mp.mpf("6.1"), mp.sqrt(5)
    return [
        Fit("ERFINV_CENTRE", "f64", lambda p: of_w(p + half), -half, half, 25, _one, paired=True),
        Fit("ERFINV_CENTRE", "f32", lambda p: of_w(p + 1), mp.mpf(-1), mp.mpf(4), 10, _one, paired=True),
        Fit("ERFINV_FAR", "f64", shifted("4.25"), low - mp.mpf("4.25"), high - mp.mpf("4.25"), 29, _one),
        Fit(
            "ERFINV_FAR", "f32", shifted("3.125"), narrow_low - mp.mpf("3.125"), mp.mpf("0.875"), 10, _one, paired=True
        ),
        Fit("ERFINV_BEYOND", "f64", beyond, 1 / mp.mpf("27.4") - middle, 1 / high - middle, 23, _one),
    ]


def _one(x: mp.mpf) -> mp.mpf:
    return mp.mpf(1)


def _erfinv(x: mp.mpf, w: mp.mpf) -> mp.mpf:
    """Newton's iteration on log erfc, which stays well conditioned in the tail."""
    complement = mp.exp(-w) / (1 + x)  # 1 - x
    y = mp.sqrt(mp.pi) / 2 * x if w < 1 else mp.sqrt(w) * mp.mpf("0.9") - mp.mpf("0.3")
    for _ in range(60):
        value = mp.erfc(y)
        step = (mp.log(value) - mp.log(complement)) * value * mp.exp(y * y) * mp.sqrt(mp.pi) / 2
        y += step
        if abs(step) < mp.mpf("1e-60") * abs(y):
            break
    return y


def gamma_fits() -> list[Fit]:
    """Around 1.5 in v = (u - c)/(u + c), which puts the poles 0, -1, ... at |v| >= 1; beyond, in 1 over u^2."""

    def of_argument(function: Function, centre: float) -> Function:
        return lambda v: function(mp.mpf(centre) * (1 + v) / (1 - v))

    def position(u: str, centre: float) -> mp.mpf:
        return (mp.mpf(u) - centre) / (mp.mpf(u) + centre)

    def lgamma_middle(u: mp.mpf) -> mp.mpf:
        if abs(u - 1) < mp.mpf("1e-20"):
            return mp.euler  # lgamma(u) ~ -euler (u - 1)
        if abs(u - 2) < mp.mpf("1e-20"):
            return 1 - mp.euler
        return mp.loggamma(u) / ((u - 1) * (u - 2))

    def lgamma_series(z: mp.mpf) -> mp.mpf:
        if z < mp.mpf("1e-9"):
            return mp.mpf(1) / 12 - z / 360
        t = 1 / mp.sqrt(z)
        return (mp.loggamma(t) - (t - mp.mpf(1) / 2) * mp.log(t) + t - mp.log(2 * mp.pi) / 2) * t

    def digamma_series(z: mp.mpf) -> mp.mpf:
        if z < mp.mpf("1e-9"):
            return mp.mpf(1) / 12 - z / 120
        u = 1 / mp.sqrt(z)
        return (mp.log(u) - 1 / (2 * u) - mp.digamma(u)) / z

    def digamma_middle(u: mp.mpf) -> mp.mpf:
        return mp.digamma(u) / (u - digamma_root())

    last = mp.mpf(1) / 36
    sinc_tail = series(lambda z: (mp.sincpi(mp.sqrt(z)) - 1) / z, lambda z: -(mp.pi**2) / 6 + z * mp.pi**4 / 120)
    cot_tail = series(lambda z: (_pi_cot(mp.sqrt(z)) - 1) / z, lambda z: -(mp.pi**2) / 3 - z * mp.pi**4 / 45)
    c, d = 1.34375, 1.75
    return [
        Fit(
            "LGAMMA_MIDDLE",
            "f64",
            of_argument(lgamma_middle, c),
            position("0.75", c),
            position("2.4001", c),
            19,
            lambda v: 1,
            paired=True,
        ),
        Fit(
            "LGAMMA_MIDDLE", "f40", of_argument(lgamma_middle, c), position("0.75", c), position("2.4001", c), 12, _one
        ),
        Fit("LGAMMA_ASYMPTOTIC", "f40", lgamma_series, mp.mpf(0), last, 2, lambda z: mp.sqrt(z) + mp.mpf("1e-3")),
        Fit("SINC_TAIL", "f40", sinc_tail, mp.mpf(0), mp.mpf("0.25"), 5, lambda z: z),
        Fit("LGAMMA_ASYMPTOTIC", "f64", lgamma_series, mp.mpf(0), last, 6, lambda z: mp.sqrt(z) + mp.mpf("1e-3")),
        Fit(
            "DIGAMMA_MIDDLE",
            "f64",
            of_argument(digamma_middle, d),
            position("1", d),
            position("3", d),
            20,
            lambda v: 1,
            paired=True,
        ),
        Fit("DIGAMMA_ASYMPTOTIC", "f64", digamma_series, mp.mpf(0), last, 6, lambda z: z + mp.mpf("1e-4")),
        Fit("SINC_TAIL", "f64", sinc_tail, mp.mpf(0), mp.mpf("0.25"), 7, lambda z: z),
        Fit("COT_TAIL", "f64", cot_tail, mp.mpf(0), mp.mpf("0.25"), 15, lambda z: z),
    ]


def _pi_cot(r: mp.mpf) -> mp.mpf:
    """pi r cot(pi r)."""
    return mp.pi * r * mp.cospi(r) / mp.sinpi(r)


def digamma_root() -> mp.mpf:
    """The positive zero of digamma."""
    return mp.findroot(mp.digamma, mp.mpf("1.4616321449683623"))


def all_fits() -> list[Fit]:
    groups = (
        exponential_fits,
        logarithm_fits,
        trigonometric_fits,
        error_function_fits,
        inverse_error_fits,
        gamma_fits,
    )
    return [fit for group in groups for fit in group()]


def rounded(value: mp.mpf, dtype: str) -> float:
    """The float nearest to value; of float32 as the float64 of the same value."""
    nearest = float(value)
    return float(np.float32(nearest)) if dtype == "f32" else nearest


def coefficients_source(subject: str, fits: list[Fit], constants: list[str]) -> str:
    """A module of tables: of fits, and of constants that are lines already."""
    lines = [
        f'"""Minimax polynomials of the {subject}; ``X[dtype.short][k]`` belongs to the k-th power.',
        "",
        "Written by ``python -m tools.make_coefficients``; do not edit. The script says what each table approximates.",
        '"""',
        "",
        "from __future__ import annotations",
        "",
        "# fmt: off",
    ]
    tables: dict[str, list[Fit]] = {}
    for fit in fits:
        tables.setdefault(fit.table, []).append(fit)
    for table, of_table in tables.items():
        lines += ["", f"{table}: dict[str, tuple[float, ...]] = {{"]
        for fit in of_table:
            coefficients, error = remez(fit)
            lines += [f'    "{fit.dtype}": (  # error 2^{mp.nstr(mp.log(error, 2), 3)}']
            lines += _wrapped([repr(rounded(c, fit.dtype)) for c in coefficients], "        ")
            lines += ["    ),"]
            if fit.paired:
                lines += [f'    "{fit.dtype}_low": ({split_constant(coefficients[0], 2, fit.dtype, None)[1]!r},),']
        lines += ["}"]
    return "\n".join([*lines, *constants]) + "\n"


def constants_source() -> list[str]:
    """Irrational constants in parts: full float32 or float64 parts, or a short first part for exact products."""
    with mp.workdps(100):
        pi, ln2 = +mp.pi, mp.log(2)
        tables = {
            "HALF_PI": (pi / 2, 3, None),
            "DIGAMMA_ROOT": (digamma_root(), 2, None),
            "LN2": (ln2, 2, None),
            "LOG2_E": (1 / ln2, 2, None),
            "LOG10_E": (1 / mp.log(10), 2, None),
            "LN2_SHORT": (ln2, 2, (15, 40)),
            "LOG10_2": (ln2 / mp.log(10), 2, (15, 40)),
        }
        lines = []
        for name, (value, count, short) in tables.items():
            rows = [
                f'    "{dtype}": {tuple(split_constant(value, count, dtype, short and short[i]))},'
                for i, dtype in enumerate(("f32", "f64"))
            ]
            lines += ["", f"{name}: dict[str, tuple[float, ...]] = {{", *rows, "}"]
        return lines


def split_constant(value: mp.mpf, count: int, dtype: str, first_bits: int | None) -> list[float]:
    """Parts of the dtype that add up to the value; the first one cut to ``first_bits`` fraction bits if given."""
    parts: list[float] = []
    for _ in range(count):
        part = rounded(value, dtype)
        if first_bits is not None and not parts:
            part = float(mp.floor(value * 2**first_bits) / 2**first_bits)
        parts.append(part)
        value -= part
    return parts


def _wrapped(items: list[str], indent: str) -> list[str]:
    return textwrap.wrap(", ".join(items) + ",", LINE_LENGTH, initial_indent=indent, subsequent_indent=indent)


FIRST_EXPONENT = 52
STEP_BITS = 3
LAST_EXPONENT = 1023
PARTS = 4


def turn_rows() -> list[list[float]]:
    """(2^(j << STEP_BITS) * 2/pi modulo 4) in parts that add up to 200 bits."""
    rows = []
    with mp.workprec(1400):
        two_over_pi = 2 / mp.pi
        for j in range(((LAST_EXPONENT - FIRST_EXPONENT) >> STEP_BITS) + 1):
            rest = mp.fmod(two_over_pi * mp.mpf(2) ** (j << STEP_BITS), 4)
            rows.append(_parts(rest, PARTS))
    return rows


def _parts(value: mp.mpf, count: int) -> list[float]:
    parts = []
    for _ in range(count):
        parts.append(float(value))
        value -= parts[-1]
    return parts


def quarter_turns_source() -> str:
    lines = [
        '"""2/pi modulo 4 at many scales, for the reduction of large arguments in `trigonometry`.',
        "",
        "Written by ``python -m tools.make_coefficients``; do not edit. Row j, in four parts, serves the float64",
        "exponents from FIRST_FIELD - 1023 + (j << STEP_BITS); row 0 serves all below too. From row 1 on x is so",
        "large that x * 2^-(j << STEP_BITS) is an integer, hence multiples of 4 may be dropped.",
        '"""',
        "",
        "from __future__ import annotations",
        "",
        "# fmt: off",
        f"FIRST_FIELD = {FIRST_EXPONENT + 1023}",
        f"STEP_BITS = {STEP_BITS}",
        "",
        "QUARTER_TURNS: tuple[tuple[float, ...], ...] = (",
        *(f"    ({', '.join(map(repr, row))})," for row in turn_rows()),
        ")",
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare with the files on disk, write nothing")
    check = parser.parse_args().check
    mp.mp.dps = 50
    stale = 0
    texts = {
        "coefficients.py": coefficients_source("vector mathematics", all_fits(), constants_source()),
        "bessel_coefficients.py": coefficients_source("Bessel functions", bessel_fits(), []),
        "quarter_turns.py": quarter_turns_source(),
    }
    for name, text in texts.items():
        path = CODEGEN / name
        if check:
            stale += path.read_text() != text
        else:
            path.write_text(text)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
