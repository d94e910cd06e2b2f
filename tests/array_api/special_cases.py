"""What the array API standard (2024.12) says of elementwise functions at zeros, infinities and NaN.

A row is ``operands -> result``. An operand is a class of numbers (`CLASSES`) or a number; a complex operand and a
complex result are two words, real part and imaginary part. In results ``0`` and ``oo`` have either sign, ``x`` and
``y`` are the operands, ``positive`` and ``negative`` tell the sign alone. Where the standard says "as if implemented
as", `tests/array_api/test_special_cases.py` has a law instead of rows. Source:
https://data-apis.org/array-api/2024.12/API_specification/elementwise_functions.html
"""

from __future__ import annotations

from math import inf, nan

_POSITIVE, _NEGATIVE = [1.0, 1.5, 3.0], [-1.0, -2.0, -2.5]
CLASSES: dict[str, list[float]] = {
    "nan": [nan], "+0": [0.0], "-0": [-0.0], "0": [0.0, -0.0], "inf": [inf], "-inf": [-inf], "oo": [inf, -inf],
    "pos": _POSITIVE, "neg": _NEGATIVE, "nonzero": [*_POSITIVE, *_NEGATIVE], "+fin": [0.0, *_POSITIVE],
    "fin": [0.0, -0.0, *_POSITIVE, *_NEGATIVE], ">0": [*_POSITIVE, inf], "<0": [*_NEGATIVE, -inf],
    ">1": [1.5, 3.0, inf], "<1": [0.5, 0.0, -0.0, *_NEGATIVE, -inf], "<-1": [-1.5, -3.0, -inf],
    "odd+": [1.0, 3.0], "odd-": [-1.0, -3.0], "even+": [2.0, 4.0, 0.5, inf], "even-": [-2.0, -4.0, -0.5, -inf],
    "fraction": [0.5, -1.5], "wide": [2.0, -3.5], "unit": [1.0, -1.0], "narrow": [0.5, -0.25, 0.0, -0.0],
    "num": [0.0, -0.0, *_POSITIVE, *_NEGATIVE, inf, -inf],
    "any": [0.0, -0.0, *_POSITIVE, *_NEGATIVE, inf, -inf, nan],
    "not1": [0.0, -0.0, 1.5, *_NEGATIVE, inf, -inf, nan], "not0": [*_POSITIVE, *_NEGATIVE, inf, -inf, nan],
}  # fmt: skip

_ODD_AT_ZERO = "nan -> nan, +0 -> +0, -0 -> -0"
_ROUNDED = f"{_ODD_AT_ZERO}, inf -> inf, -inf -> -inf, 3.0 -> x, -2.0 -> x"
_LOGARITHM = "nan -> nan, <0 -> nan, 0 -> -inf, 1.0 -> +0, inf -> inf"

REAL = {
    "abs": "nan -> nan, -0 -> +0, -inf -> inf",
    "acos": "nan -> nan, >1 -> nan, <-1 -> nan, 1.0 -> +0",
    "acosh": "nan -> nan, <1 -> nan, 1.0 -> +0, inf -> inf",
    "asin": f"{_ODD_AT_ZERO}, >1 -> nan, <-1 -> nan",
    "asinh": f"{_ODD_AT_ZERO}, inf -> inf, -inf -> -inf",
    "atan": f"{_ODD_AT_ZERO}, inf -> pi/2, -inf -> -pi/2",
    "atanh": f"{_ODD_AT_ZERO}, <-1 -> nan, >1 -> nan, -1.0 -> -inf, 1.0 -> inf",
    "ceil": _ROUNDED, "floor": _ROUNDED, "trunc": _ROUNDED, "round": f"{_ROUNDED}, 1.5 -> 2, -2.5 -> -2, 0.5 -> +0",
    "cos": "nan -> nan, 0 -> 1, oo -> nan",
    "cosh": "nan -> nan, 0 -> 1, oo -> inf",
    "exp": "nan -> nan, 0 -> 1, inf -> inf, -inf -> +0",
    "expm1": f"{_ODD_AT_ZERO}, inf -> inf, -inf -> -1",
    "isfinite": "oo -> False, nan -> False, fin -> True",
    "isinf": "oo -> True, nan -> False, fin -> False",
    "isnan": "nan -> True, num -> False",
    "log": _LOGARITHM, "log2": _LOGARITHM, "log10": _LOGARITHM,
    "log1p": f"{_ODD_AT_ZERO}, <-1 -> nan, -1.0 -> -inf, inf -> inf",
    "reciprocal": "nan -> nan, +0 -> inf, -0 -> -inf, inf -> +0, -inf -> -0",
    "sign": "<0 -> -1, 0 -> 0, >0 -> 1, nan -> nan",
    "signbit": "+0 -> False, -0 -> True, inf -> False, -inf -> True, pos -> False, neg -> True",
    "sin": f"{_ODD_AT_ZERO}, oo -> nan",
    "sinh": f"{_ODD_AT_ZERO}, inf -> inf, -inf -> -inf",
    "square": "nan -> nan, 0 -> +0, oo -> inf",
    "sqrt": f"{_ODD_AT_ZERO}, <0 -> nan, inf -> inf",
    "tan": f"{_ODD_AT_ZERO}, oo -> nan",
    "tanh": f"{_ODD_AT_ZERO}, inf -> 1, -inf -> -1",
}  # fmt: skip

_NAN = "nan any -> nan, any nan -> nan"
_QUOTIENT = f"""{_NAN}, oo oo -> nan, 0 0 -> nan, +0 >0 -> +0, -0 >0 -> -0, +0 <0 -> -0, -0 <0 -> +0, >0 +0 -> inf,
    >0 -0 -> -inf, <0 +0 -> -inf, <0 -0 -> inf, inf pos -> inf, inf neg -> -inf, -inf pos -> -inf, -inf neg -> inf,
    pos inf -> +0, neg -inf -> +0, pos pos -> positive, neg neg -> positive, pos neg -> negative, neg pos -> negative"""

REAL_PAIRS = {
    "add": f"""{_NAN}, inf -inf -> nan, -inf inf -> nan, inf inf -> inf, -inf -inf -> -inf, inf fin -> inf,
        -inf fin -> -inf, fin inf -> inf, fin -inf -> -inf, -0 -0 -> -0, -0 +0 -> +0, +0 -0 -> +0, +0 +0 -> +0,
        0 nonzero -> y, nonzero 0 -> x, 1.5 -1.5 -> +0""",
    "atan2": f"""{_NAN}, >0 0 -> pi/2, +0 >0 -> +0, +0 +0 -> +0, +0 -0 -> pi, +0 <0 -> pi, -0 >0 -> -0, -0 +0 -> -0,
        -0 -0 -> -pi, -0 <0 -> -pi, <0 0 -> -pi/2, pos inf -> +0, pos -inf -> pi, neg inf -> -0, neg -inf -> -pi,
        inf fin -> pi/2, -inf fin -> -pi/2, inf inf -> pi/4, inf -inf -> 3*pi/4, -inf inf -> -pi/4,
        -inf -inf -> -3*pi/4""",
    "copysign": "num <0 -> -|x|, num -0 -> -|x|, num +0 -> |x|, num >0 -> |x|, nan num -> nan",
    "divide": f"{_QUOTIENT}, pos -inf -> -0, neg inf -> -0",
    "equal": "nan any -> False, any nan -> False, inf inf -> True, -inf -inf -> True, 0 0 -> True, 1.5 1.5 -> True, "
    "inf -inf -> False, inf fin -> False, 1.5 1.0 -> False",
    "floor_divide": _QUOTIENT,  # of a number and an infinity of the other sign, -0 and -1 are both allowed
    "hypot": "oo any -> inf, any oo -> inf, 0 num -> |y|, num 0 -> |x|, fin nan -> nan, nan nan -> nan",
    "logaddexp": f"{_NAN}, inf num -> inf, num inf -> inf",
    "maximum": _NAN, "minimum": _NAN,
    "multiply": f"""{_NAN}, oo 0 -> nan, 0 oo -> nan, inf >0 -> inf, inf <0 -> -inf, -inf >0 -> -inf, -inf <0 -> inf,
        pos inf -> inf, neg inf -> -inf, pos -inf -> -inf, neg -inf -> inf, +0 pos -> +0, -0 pos -> -0, +0 neg -> -0,
        neg -0 -> +0, +0 +0 -> +0, -0 +0 -> -0, -0 -0 -> +0, pos pos -> positive, neg pos -> negative""",
    "nextafter": f"{_NAN}, -0 +0 -> +0, +0 -0 -> -0",
    "not_equal": "nan any -> True, any nan -> True, inf -inf -> True, 1.5 1.0 -> True, inf inf -> False, 0 0 -> False",
    "pow": """not1 nan -> nan, any 0 -> 1, nan not0 -> nan, wide inf -> inf, wide -inf -> +0, unit oo -> 1,
        1.0 num -> 1, narrow inf -> +0, narrow -inf -> inf,
        inf >0 -> inf, inf <0 -> +0, -inf odd+ -> -inf, -inf even+ -> inf,
        -inf odd- -> -0, -inf even- -> +0, +0 >0 -> +0, +0 <0 -> inf, -0 odd+ -> -0, -0 even+ -> +0, -0 odd- -> -inf,
        -0 even- -> inf, neg fraction -> nan""",
    "remainder": f"""{_NAN}, oo oo -> nan, 0 0 -> nan, 0 >0 -> +0, 0 <0 -> -0, >0 0 -> nan, <0 0 -> nan,
        oo nonzero -> nan, pos inf -> x, pos -inf -> y, neg inf -> y, neg -inf -> x""",
}  # fmt: skip

_NAN_ROWS = "nan fin -> nan nan, nan nan -> nan nan"
_COMPLEX_LOGARITHM = f"""fin inf -> inf pi/2, fin nan -> nan nan, -inf pos -> inf pi, inf pos -> inf +0,
    -inf inf -> inf 3*pi/4, inf inf -> inf pi/4, oo nan -> inf nan, {_NAN_ROWS}, nan inf -> inf nan"""

COMPLEX = {
    "abs": "oo any -> inf, any oo -> inf, 0 num -> |b|, num 0 -> |a|, nan fin -> nan, fin nan -> nan, nan nan -> nan",
    "acos": f"""0 +0 -> pi/2 -0, 0 nan -> pi/2 nan, fin inf -> pi/2 -inf, nonzero nan -> nan nan, -inf pos -> pi -inf,
        inf pos -> +0 -inf, -inf inf -> 3*pi/4 -inf, inf inf -> pi/4 -inf, oo nan -> nan oo, {_NAN_ROWS},
        nan inf -> nan -inf""",
    "acosh": f"""0 +0 -> +0 pi/2, fin inf -> inf pi/2, nonzero nan -> nan nan, -inf pos -> inf pi, inf pos -> inf +0,
        -inf inf -> inf 3*pi/4, inf inf -> inf pi/4, oo nan -> inf nan, {_NAN_ROWS}, nan inf -> inf nan""",
    "asinh": """+0 +0 -> +0 +0, pos inf -> inf pi/2, fin nan -> nan nan, inf pos -> inf +0, inf inf -> inf pi/4,
        nan +0 -> nan +0, nan nonzero -> nan nan, nan inf -> oo nan, nan nan -> nan nan""",
    "atanh": f"""+0 +0 -> +0 +0, +0 nan -> +0 nan, 1.0 +0 -> inf +0, pos inf -> +0 pi/2, nonzero nan -> nan nan,
        inf pos -> +0 pi/2, inf inf -> +0 pi/2, inf nan -> +0 nan, {_NAN_ROWS}, nan inf -> 0 pi/2""",
    "cosh": """+0 +0 -> 1 +0, +0 inf -> nan 0, +0 nan -> nan 0, nonzero inf -> nan nan, nonzero nan -> nan nan,
        inf +0 -> inf +0, inf 1.0 -> inf inf, inf -2.0 -> -inf -inf, inf inf -> oo nan, inf nan -> inf nan,
        nan 0 -> nan 0, nan nonzero -> nan nan, nan nan -> nan nan""",
    "exp": """0 +0 -> 1 +0, fin inf -> nan nan, fin nan -> nan nan, inf +0 -> inf +0, -inf +0 -> +0 +0,
        -inf 1.0 -> +0 +0, -inf -2.0 -> -0 -0, inf 1.0 -> inf inf, inf -2.0 -> -inf -inf, -inf inf -> 0 0,
        inf inf -> oo nan, -inf nan -> 0 0, inf nan -> oo nan, nan +0 -> nan +0, nan not0 -> nan nan""",
    "expm1": """0 +0 -> 0 +0, fin inf -> nan nan, fin nan -> nan nan, inf +0 -> inf +0, -inf +0 -> -1 +0,
        -inf 1.0 -> -1 +0, -inf -2.0 -> -1 -0, inf 1.0 -> inf inf, inf -2.0 -> -inf -inf, -inf inf -> -1 0,
        inf inf -> oo nan, -inf nan -> -1 0, inf nan -> oo nan, nan +0 -> nan +0, nan not0 -> nan nan""",
    "isfinite": "nan any -> False, any nan -> False, oo any -> False, any oo -> False, fin fin -> True",
    "isinf": "oo any -> True, any oo -> True, nan nan -> False, fin nan -> False, nan fin -> False, fin fin -> False",
    "isnan": "nan any -> True, any nan -> True, num num -> False",
    "log": f"-0 +0 -> -inf pi, +0 +0 -> -inf +0, {_COMPLEX_LOGARITHM}",
    "log1p": f"-1.0 +0 -> -inf +0, {_COMPLEX_LOGARITHM}",
    "round": "1.5 -2.5 -> 2 -2, nan inf -> nan inf, -inf -0 -> -inf -0, 0.5 nan -> +0 nan",
    "sign": "0 0 -> 0 0, nan any -> nan nan, any nan -> nan nan, pos 0 -> 1 0, neg 0 -> -1 0, 0 pos -> 0 1",
    "sinh": """+0 +0 -> +0 +0, +0 inf -> 0 nan, +0 nan -> 0 nan, pos inf -> nan nan, pos nan -> nan nan,
        inf +0 -> inf +0, inf 1.0 -> inf inf, inf 3.0 -> -inf inf, inf inf -> oo nan, inf nan -> oo nan,
        nan +0 -> nan +0, nan nonzero -> nan nan, nan nan -> nan nan""",
    # Of sqrt(-inf + bj) and sqrt(inf + bj) the standard's text has the values of each other; these are C99's.
    "sqrt": """0 +0 -> +0 +0, any inf -> inf inf, fin nan -> nan nan, -inf pos -> +0 inf, inf pos -> inf +0,
        -inf nan -> nan oo, inf nan -> inf nan, nan fin -> nan nan, nan nan -> nan nan""",
    "tanh": """+0 +0 -> +0 +0, nonzero inf -> nan nan, nonzero nan -> nan nan, inf pos -> 1 0, inf inf -> 1 0,
        inf nan -> 1 0, nan +0 -> nan +0, nan nonzero -> nan nan, nan nan -> nan nan""",  # at +0 + inf j: C's
}  # fmt: skip
