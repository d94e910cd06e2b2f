"""Whatever Python asks about sizes that are open, and however it uses the answer: every later size gets its own answer.

A table of questions (operators, conversions, functions of Python's and NumPy's C code, containers, text, tensors made
of sizes alone, errors) times the ways to use an answer; random programs put several into one function. Sizes: equal and
unequal pairs, powers of two, one above 100, and 0 and 1, which have steps of their own.
"""

from __future__ import annotations

import functools
import itertools
import json
import math
import operator
import random
import struct
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj

Question = Callable[[aj.Tensor, aj.Tensor], Any]


@functools.cache
def _remembered(n: int) -> int:
    return 3 * n + 1


def _caught(attempt: Callable[[], Any]) -> float:
    """1.0 when an attempt succeeds, as when shapes fit."""
    try:
        attempt()
    except (RuntimeError, ValueError, IndexError, TypeError):
        return 0.0
    return 1.0


def _counted(n: int) -> int:
    count = 0
    while count < n:
        count += 1
    return count


def _matched(n: int) -> int:
    match n:
        case 4:
            return 40
        case 8 | 200:
            return 80
    return 0


QUESTIONS: dict[str, Question] = {
    # Python's operators and conversions
    "len": lambda x, y: len(x),
    "len > 100": lambda x, y: len(x) > 100,
    "len < len": lambda x, y: len(x) < len(y),
    "size > 100": lambda x, y: x.shape[0] > 100,
    "size == size": lambda x, y: x.shape[0] == y.shape[0],
    "shape == shape": lambda x, y: x.shape == y.shape,
    "shape == (8,)": lambda x, y: x.shape == (8,),
    "shape in": lambda x, y: x.shape in [(4,), (8,)],
    "int": lambda x, y: int(x.shape[0]),
    "float": lambda x, y: float(x.shape[0]),
    "complex": lambda x, y: complex(x.shape[0]).real,
    "bool": lambda x, y: bool(x.shape[0] - 5),
    "index": lambda x, y: operator.index(x.size(0)),
    "n & 1": lambda x, y: x.shape[0] & 1,
    "n & (n-1)": lambda x, y: x.shape[0] & (x.shape[0] - 1),
    "n & 12": lambda x, y: x.shape[0] & 12,
    "7 & n": lambda x, y: 7 & x.shape[0],
    "n | 1": lambda x, y: x.shape[0] | 1,
    "n ^ 5": lambda x, y: x.shape[0] ^ 5,
    "~n": lambda x, y: ~x.shape[0],
    "n >> 3": lambda x, y: x.shape[0] >> 3,
    "n << 2": lambda x, y: x.shape[0] << 2,
    "1 << n % 5": lambda x, y: 1 << x.shape[0] % 5,
    "2 ** (n % 7)": lambda x, y: 2 ** (x.shape[0] % 7),
    "n ** 2": lambda x, y: x.shape[0] ** 2,
    "n ** 0.5": lambda x, y: x.shape[0] ** 0.5,
    "n ** m": lambda x, y: (x.shape[0] % 5) ** (y.shape[0] % 5),
    "pow(n, 3, 7)": lambda x, y: pow(x.shape[0], 3, 7),
    "0.9 ** n": lambda x, y: 0.9 ** x.shape[0],
    "n / 2": lambda x, y: x.shape[0] / 2,
    "int(n / 2)": lambda x, y: int(x.shape[0] / 2),
    "n // 3": lambda x, y: x.shape[0] // 3,
    "n // 2.5": lambda x, y: x.shape[0] // 2.5,
    "n % 3": lambda x, y: x.shape[0] % 3,
    "-n % 4": lambda x, y: -x.shape[0] % 4,
    "100 // m": lambda x, y: 100 // (y.shape[0] + 1),
    "divmod": lambda x, y: divmod(x.shape[0], 3)[1],
    "abs": lambda x, y: abs(x.shape[0] - 7),
    "min": lambda x, y: min(x.shape[0], 16),
    "max": lambda x, y: max(x.shape[0], y.shape[0], 7),
    "sorted": lambda x, y: sorted([x.shape[0], 7, y.shape[0]])[1],
    "round": lambda x, y: round(x.shape[0]),
    "round(n, -1)": lambda x, y: round(x.shape[0], -1),
    "bit_length": lambda x, y: x.shape[0].bit_length(),
    "bit_count": lambda x, y: x.shape[0].bit_count(),
    "to_bytes": lambda x, y: x.shape[0].to_bytes(4, "little")[0],
    "as_integer_ratio": lambda x, y: x.shape[0].as_integer_ratio()[0],
    "real": lambda x, y: x.shape[0].real + x.shape[0].imag + x.shape[0].denominator,
    "isinstance": lambda x, y: isinstance(x.shape[0], int),
    "hash": lambda x, y: hash(x.shape[0]) % 7,
    "n in (4, 8)": lambda x, y: x.shape[0] in (4, 8),
    "match": lambda x, y: _matched(x.shape[0]),
    "chained": lambda x, y: 4 < x.shape[0] <= y.shape[0],
    # loops and containers
    "range": lambda x, y: len(range(x.shape[0])),
    "any of range": lambda x, y: any(k > 100 for k in range(x.shape[0])),
    "while": lambda x, y: _counted(x.shape[0]),
    "list * n": lambda x, y: len([0] * x.shape[0]),
    "str * n": lambda x, y: len("ab" * x.shape[0]),
    "bytes": lambda x, y: len(bytes(x.shape[0])),
    "slice": lambda x, y: len("abcdefghijkl"[: x.shape[0]]),
    "list[n % 3]": lambda x, y: [5, 6, 7][x.shape[0] % 3],
    "islice": lambda x, y: sum(itertools.islice(itertools.count(), x.shape[0])),
    "deque": lambda x, y: len(deque(range(300), x.shape[0])),
    "set": lambda x, y: x.shape[0] in {4, 8},
    "two in a set": lambda x, y: len({x.shape[0], y.shape[0]}),
    "dict": lambda x, y: {4: 2.0}.get(x.shape[0], 1.0),
    "dict of shapes": lambda x, y: {(4,): 2.0}.get(tuple(x.shape), 1.0),
    "dict of Sizes": lambda x, y: {aj.Size([8]): 2.0}.get(x.shape, 1.0),
    "Counter": lambda x, y: Counter([x.shape[0], 4])[4],
    "list.index": lambda x, y: [4, 8, x.shape[0]].index(x.shape[0]),
    "list.count": lambda x, y: [4, 8].count(x.shape[0]),
    "lru_cache": lambda x, y: _remembered(x.shape[0]),
    "rows": lambda x, y: len(list(x)),
    "row numbers": lambda x, y: sum(k for k, _ in enumerate(x)),
    "zip": lambda x, y: len(list(zip(x, range(6)))),
    # text
    "str": lambda x, y: len(str(x.shape[0])),
    "repr": lambda x, y: len(repr(x.shape[0])),
    "f-string": lambda x, y: len(f"{x.shape[0]}"),
    "width": lambda x, y: f"{x.shape[0]:5d}".count(" "),
    "percent": lambda x, y: len("%d" % x.shape[0]),  # noqa: UP031
    "text of a shape": lambda x, y: len(str(x.shape)),
    "repr of a shape": lambda x, y: len(repr(x.shape)),
    "shape in an f-string": lambda x, y: len(f"{x.shape}"),
    "text of a tuple": lambda x, y: len(str(tuple(x.shape))),
    "json": lambda x, y: len(json.dumps({"n": x.shape[0]})),
    "hex": lambda x, y: len(hex(x.shape[0])),
    "chr": lambda x, y: ord(chr(x.shape[0])),
    # functions of math and NumPy
    "log2 > 5": lambda x, y: math.log2(x.shape[0] + 1) > 5,
    "ceil of log2": lambda x, y: math.ceil(math.log2(x.shape[0] + 1)),
    "sqrt": lambda x, y: math.sqrt(x.shape[0]),
    "isqrt": lambda x, y: math.isqrt(x.shape[0]),
    "gcd": lambda x, y: math.gcd(x.shape[0], 12),
    "comb": lambda x, y: math.comb(x.shape[0] % 9, 2),
    "prod": lambda x, y: math.prod(x.shape),
    "floor": lambda x, y: math.floor(x.shape[0] * 0.3),
    "struct": lambda x, y: struct.pack("<i", x.shape[0])[0],
    "np.log": lambda x, y: float(np.log(x.shape[0] + 1)),
    "np.sqrt": lambda x, y: float(np.sqrt(x.shape[0])),
    "np.prod": lambda x, y: int(np.prod(x.shape)),
    "np.array": lambda x, y: int(np.array(x.shape).max()),
    "np.int64": lambda x, y: int(np.int64(x.shape[0])),
    "np.ones": lambda x, y: float(np.ones(x.shape[0]).sum()),
    "np.zeros of a shape": lambda x, y: np.zeros(x.shape).size,
    "np.arange": lambda x, y: int(np.arange(x.shape[0]).sum()),
    "n * np.int64": lambda x, y: x.shape[0] * np.int64(2),
    "np.int64 * n": lambda x, y: np.int64(2) * x.shape[0],
    "n < np.int64": lambda x, y: x.shape[0] < np.int64(100),
    "n * np.float32": lambda x, y: float(x.shape[0] * np.float32(2.0)),
    "array * n": lambda x, y: float((np.arange(3) * x.shape[0]).sum()),
    "np.add": lambda x, y: int(np.add(x.shape[0], 2)),
    # values of tensors that hang on sizes alone
    "ones": lambda x, y: bool(aj.ones(x.shape[0]).sum() > 100),
    "ones_like": lambda x, y: bool(aj.ones_like(x).sum() > 100),
    "arange": lambda x, y: aj.arange(x.shape[0] + 1)[-1].item() > 50,
    "eye": lambda x, y: bool(aj.eye(x.shape[0]).sum() > 50),
    "tril": lambda x, y: bool(aj.ones(x.shape[0], 3).tril().sum() > 11),
    "full": lambda x, y: aj.full((2,), x.shape[0]).sum().item(),
    "tensor of a size": lambda x, y: aj.tensor(x.shape[0]).item(),
    "tensor of a shape": lambda x, y: aj.tensor(x.shape).tolist()[0],
    "argmax": lambda x, y: aj.arange(x.shape[0] + 1).argmax().item(),
    "nonzero": lambda x, y: len(aj.ones(x.shape[0]).nonzero()),
    "tolist": lambda x, y: len(aj.ones(x.shape[0]).tolist()),
    "numpy": lambda x, y: float(aj.ones(x.shape[0]).numpy().sum()),
    "text of a value": lambda x, y: len(str(aj.ones(x.shape[0]).sum().item())),
    "mask of places": lambda x, y: len(x[aj.arange(x.shape[0]) % 2 == 0]),
    "rows of places": lambda x, y: sum(range(x[aj.arange(x.shape[0]) % 3 == 0].shape[0])),
    "length of a mask": lambda x, y: len(x[x > 3]),
    "range of a mask": lambda x, y: sum(range(len(x[x > 3]))),
    "numel": lambda x, y: x.numel() > 100,
    "nbytes": lambda x, y: x.nbytes > 100,
    "dim": lambda x, y: x[None].ndim,
    "size()": lambda x, y: sum(x.size()),
    # autojit's own questions
    "equal": lambda x, y: aj.equal(x, aj.arange(8.0) + 1),
    "equal sizes": lambda x, y: aj.equal(x, y),
    "is_same_size": lambda x, y: x.is_same_size(y),
    "add": lambda x, y: _caught(lambda: x + y),
    "matmul": lambda x, y: _caught(lambda: x @ y),
    "dot": lambda x, y: _caught(lambda: aj.dot(x, aj.ones(8))),
    "einsum": lambda x, y: _caught(lambda: aj.einsum("i,i->", x, y)),
    "linear": lambda x, y: _caught(lambda: aj.nn.functional.linear(x, aj.ones(2, 8))),
    "expand": lambda x, y: _caught(lambda: x.expand(8)),
    "expand_as": lambda x, y: _caught(lambda: x.expand_as(y)),
    "copy_": lambda x, y: _caught(lambda: aj.zeros(8).copy_(x)),
    "reshape": lambda x, y: _caught(lambda: x.reshape(2, 4)),
    "reshape to rows": lambda x, y: _caught(lambda: x.reshape(-1, 4)),
    "split": lambda x, y: _caught(lambda: x.split([4, 4])),
    "split in fours": lambda x, y: len(x.split(4)),
    "chunk": lambda x, y: len(x.chunk(3)),
    "unflatten": lambda x, y: _caught(lambda: x.unflatten(0, (2, 4))),
    "unfold": lambda x, y: _caught(lambda: x.unfold(0, 6, 1)),
    "element": lambda x, y: _caught(lambda: x[6]),
    "narrow": lambda x, y: _caught(lambda: x.narrow(0, 3, 4)),
    "setitem": lambda x, y: _caught(lambda: operator.setitem(aj.zeros(8), slice(None), x)),
    "mask of a length": lambda x, y: _caught(lambda: x[aj.ones(8) > 0]),
    "stack": lambda x, y: _caught(lambda: aj.stack([x, y])),
    "gather": lambda x, y: _caught(lambda: y.gather(0, aj.zeros(x.shape[0], dtype=aj.int64))),
    "where": lambda x, y: _caught(lambda: aj.where(x > 0, y, 0.0)),
    "broadcast_shapes": lambda x, y: _caught(lambda: aj.broadcast_shapes(x.shape, y.shape)),
}  # fmt: skip

USES: dict[str, Callable[[aj.Tensor, Any], Any]] = {
    "factor": lambda x, answer: x.sum() * answer,
    "branch": lambda x, answer: x.sum() * 2 if answer > 3 else x.sum() - 1,
    "attribute": lambda x, answer: x.sum() + float(str(float(answer))),
}

# (n, m): some that the first captures take for general, then others; pairs that are equal and pairs that are not
SIZES = ((5, 5), (6, 6), (8, 3), (200, 8), (8, 8), (4, 200), (1, 5), (0, 0), (16, 4), (4, 4), (9, 1), (130, 129))


def _operands(n: int, m: int) -> tuple[aj.Tensor, aj.Tensor]:
    return aj.arange(float(n)) + 1, aj.arange(float(m)) + 1


def check(function: Callable[[aj.Tensor, aj.Tensor], aj.Tensor], sizes: Any) -> None:
    """Eager and compiled agree at every call, in values or in that both raise."""
    compiled = aj.jit(function)
    for n, m in sizes:
        expected: Any
        try:
            expected = function(*_operands(n, m)).tolist()
        except Exception as error:
            with pytest.raises(type(error)):
                compiled(*_operands(n, m))
            continue
        found = compiled(*_operands(n, m)).tolist()
        assert found == pytest.approx(expected, rel=1e-5, abs=1e-5), (n, m, compiled.explain())


@pytest.mark.parametrize("name", QUESTIONS)
def test_every_size_gets_its_own_answer(name: str) -> None:
    rng = random.Random(name)
    use = rng.choice([*USES])
    question = QUESTIONS[name]
    sizes = (*SIZES[:5], *rng.sample(SIZES[5:], 3))
    check(lambda x, y: USES[use](x, question(x, y)), sizes)


def _program(rng: random.Random) -> Callable[[aj.Tensor, aj.Tensor], aj.Tensor]:
    """A function that asks several questions of its arguments, of their parts and of what it computes."""
    steps = [(rng.choice([*QUESTIONS.values()]), rng.choice([*USES.values()]), rng.randrange(5)) for _ in range(3)]

    def function(x: aj.Tensor, y: aj.Tensor) -> aj.Tensor:
        total = x.sum() + y.sum()
        for question, use, what in steps:
            a, b = ((x, y), (y, x), (aj.cat([x, y]), x), (x[::2], y), (x[1:], y[x.shape[0] % 2 :]))[what]
            total = total * 0.5 + use(a, question(a, b)) * 0.01
        return total

    return function


@pytest.mark.parametrize("seed", range(12))
def test_random_programs_that_ask_about_sizes(seed: int) -> None:
    rng = random.Random(f"sizes {seed}")
    check(_program(rng), [rng.choice(SIZES) for _ in range(5)])


@pytest.mark.slow
@pytest.mark.parametrize("part", range(40))
def test_many_random_programs_that_ask_about_sizes(part: int) -> None:
    for seed in range(25):
        rng = random.Random(f"many sizes {part} {seed}")
        check(_program(rng), [rng.choice(SIZES) for _ in range(8)])


@pytest.mark.slow
@pytest.mark.parametrize("name", QUESTIONS)
def test_every_answer_in_every_use(name: str) -> None:
    for use in USES.values():
        check(lambda x, y, use=use: use(x, QUESTIONS[name](x, y)), SIZES)


KEPT_OPEN: dict[str, Callable[[int], Any]] = {
    "float": float,
    "int": int,
    "float of a sum": lambda n: float(n + 1),
    "int of half": lambda n: int(n // 2),
    "square root": lambda n: n**0.5,
    "mean": lambda n: 1 / float(n),
}


@pytest.mark.parametrize("name", KEPT_OPEN)
def test_numbers_made_of_a_size_leave_it_open(name: str) -> None:
    step = aj.jit(lambda x: x * KEPT_OPEN[name](x.shape[0]))
    for n in range(3, 12):
        assert step(aj.ones(n)).tolist() == pytest.approx([KEPT_OPEN[name](n)] * n)
    assert step.stats()["captures"] <= 3


KINDS: dict[str, Callable[[aj.Tensor, Any], Any]] = {
    "type of a size": lambda x, k: type(x.shape[0]) is int,
    "type of a sum of sizes": lambda x, k: type(x.shape[0] + x.numel()) is int,
    "type of a quotient": lambda x, k: type(x.shape[0] / 2) is float,
    "type of a number": lambda x, k: type(k) is int,
    "type of what is made of a number": lambda x, k: type(k * 0.5) is float,
    "type of an item": lambda x, k: type(x.sum().item()) is float,
    "name of a type": lambda x, k: type(k).__name__ == "int" and k.__class__ is int,
    "table of types": lambda x, k: {int: True, float: False}[type(k)],
    "no bool": lambda x, k: type(k) is not bool and not isinstance(x.shape[0], bool),
}


@pytest.mark.parametrize("name", KINDS)
def test_numbers_and_sizes_are_of_the_types_that_they_are_of_in_eager_mode(name: str) -> None:
    step = aj.jit(lambda x, k: x * 2 if KINDS[name](x, k) else x)
    for k in range(3, 12):
        assert step(aj.ones(k), k).tolist() == [2.0] * k
