"""The calls of a program's step: arguments of many sizes, layouts and kinds, which may share memory."""

from __future__ import annotations

import random
from typing import NamedTuple

SIZES = (3, 3, 3, 5, 5, 2, 4, 7, 1, 0, 9, 12)
LAYOUTS = (
    "sample({s}, {n}, 4, dtype={d})", "sample({s}, {n}, 4, dtype={d})", "sample({s}, {n}, 4, dtype={d})", "sample({s}, 4, {n}, dtype={d}).T",
    "sample({s}, {n}, 8, dtype={d})[:, ::2]", "sample({s}, {n} + 2, 4, dtype={d})[1:-1]", "sample({s}, {n}, 4, dtype={d}, kind='ties')",
    "sample({s}, 1, 4, dtype={d}).expand({n}, 4)", "sample({s}, 2 * {n}, 4, dtype={d})[::2]", "sample({s}, {n}, 4, dtype={d}).flip(0)", "base[:{n}]", "base[1:{n} + 1]",
    "aj.from_numpy(buffer[:{n}])", "sample({s}, {n}, 5, dtype={d})[:, 1:]",
)  # fmt: skip
VALUES = {  # by the kind of a parameter that is no tensor
    "number": ("2.0", "0.5", "1.5", "-1.0", "3.0"), "whole": ("1", "2", "3", "2", "5", "7", "4"), "flag": ("True", "False"), "word": ("'a'", "'bb'"),
    "array": ("sample_array({s}, 4)", "sample_array({s}, 4, kind='ties').astype(np.float32)"),
    "scalar": ("np.float64(1.5)", "np.float64(2.0)", "np.float64(0.5)", "np.float32(2.5)", "np.int64(3)", "1.5"),
    "nest": ("{'v': 2.0, 'l': [1.0]}", "{'v': 1.5, 'l': [1.0, 2.0]}", "{'l': [], 'v': 3}", "{'v': 0.5, 'l': [1.0]}"),
}  # fmt: skip


class Parameter(NamedTuple):
    """A parameter of the step."""

    name: str
    kind: str  # "tensor", "same" (a tensor of the first one's size), "number", "flag", "word", "array", "whole", "scalar" (NumPy's), "nest"


def argument(
    rng: random.Random, parameter: Parameter, n: int, dtype: str, previous: list[str], wants_grad: bool
) -> str:
    """An expression for one argument of a call."""
    seed = rng.randint(1, 9)
    if parameter.kind in VALUES:
        return rng.choice(VALUES[parameter.kind]).replace("{s}", str(seed))
    layout = LAYOUTS[0] if rng.random() < 0.5 else rng.choice(LAYOUTS)
    if previous and rng.random() < 0.15:
        return rng.choice(previous)  # the same object again
    text = layout.format(s=seed, n=n, d=dtype)
    if wants_grad and rng.random() < 0.85:
        return f"{text}.requires_grad_()" if layout in LAYOUTS[:3] else f"{text}.detach().requires_grad_()"
    return text
