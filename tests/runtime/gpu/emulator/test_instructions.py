"""Each instruction is what NVIDIA's documents say, over many values: against NumPy and Python's whole numbers."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

from autojit.core.errors import CompileError
from autojit.runtime.gpu.emulator.findings import UnknownInstructionError
from tests.runtime.gpu.emulator.emulation import device, elementwise, entry, launch

WIDTHS = (16, 32, 64)


def integers(width: int, is_signed: bool, seed: int = 0) -> np.ndarray:
    """Random ones of every size, and the ends of the range."""
    chance = np.random.default_rng(seed)
    bits = chance.integers(0, 2**63, 120, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    bits >>= chance.integers(0, 64, 120, dtype=np.uint64)
    ends = np.array([0, 1, 2, 2 ** (width - 1) - 1, 2 ** (width - 1), 2**width - 1, 2**width - 2, 3], np.uint64)
    return np.concatenate([bits, ends]).astype(f"u{width // 8}").view(f"{'i' if is_signed else 'u'}{width // 8}")


def wrapped(value: int, like: np.ndarray) -> int:
    width = 8 * like.dtype.itemsize
    value %= 1 << width
    return value - (1 << width) if like.dtype.kind == "i" and value >> (width - 1) else value


def cut_quotient(x: int, y: int) -> int:
    return abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)


BINARY: dict[str, Callable[[int, int, int], int]] = {
    "add.{t}": lambda x, y, w: x + y,
    "sub.{t}": lambda x, y, w: x - y,
    "mul.lo.{t}": lambda x, y, w: x * y,
    "mul.hi.{t}": lambda x, y, w: (x * y) >> w,
    "min.{t}": lambda x, y, w: min(x, y),
    "max.{t}": lambda x, y, w: max(x, y),
    "div.{t}": lambda x, y, w: cut_quotient(x, y),
    "rem.{t}": lambda x, y, w: x - y * cut_quotient(x, y),
    "and.b{w}": lambda x, y, w: x & y,
    "or.b{w}": lambda x, y, w: x | y,
    "xor.b{w}": lambda x, y, w: x ^ y,
}


@pytest.mark.parametrize("is_signed", [False, True])
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", BINARY)
def test_integer_arithmetic_is_that_of_whole_numbers(name: str, width: int, is_signed: bool) -> None:
    x, y = integers(width, is_signed), integers(width, is_signed, 1)[::-1].copy()
    y[y == 0] = 7
    opcode = name.format(t=f"{'s' if is_signed else 'u'}{width}", w=width)
    found = elementwise(f"{opcode} %y, %x0, %x1;", [x, y], x.dtype.str[1:])
    assert [int(v) for v in found] == [wrapped(BINARY[name](int(a), int(b), width), x) for a, b in zip(x, y)]


def signed(value: int, width: int) -> int:
    value %= 1 << width
    return value - (1 << width) if value >> (width - 1) else value


@pytest.mark.parametrize("is_signed", [False, True])
@pytest.mark.parametrize("width", [16, 32])
def test_wide_products_lose_nothing(width: int, is_signed: bool) -> None:
    x, y = integers(width, is_signed), integers(width, is_signed, 1)[::-1].copy()
    letter, kind = ("s", "i") if is_signed else ("u", "u")
    wide = f"{kind}{width // 4}"
    got = elementwise(f"mul.wide.{letter}{width} %y, %x0, %x1;", [x, y], wide)
    assert [int(v) for v in got] == [int(a) * int(b) for a, b in zip(x, y)]
    z = integers(2 * width, is_signed, 2)
    got = elementwise(f"mad.wide.{letter}{width} %y, %x0, %x1, %x2;", [x, y, z], wide)
    assert [int(v) for v in got] == [wrapped(int(a) * int(b) + int(c), z) for a, b, c in zip(x, y, z)]


@pytest.mark.parametrize("width", WIDTHS)
def test_a_sum_of_a_product_wraps(width: int) -> None:
    x, y, z = (integers(width, True, seed) for seed in range(3))
    got = elementwise(f"mad.lo.s{width} %y, %x0, %x1, %x2;", [x, y, z], x.dtype.str[1:])
    assert [int(v) for v in got] == [wrapped(int(a) * int(b) + int(c), x) for a, b, c in zip(x, y, z)]


@pytest.mark.parametrize(("word", "sign"), [("add", 1), ("sub", -1)])
@pytest.mark.parametrize("width", [32, 64])
def test_carries_make_one_long_number(width: int, word: str, sign: int) -> None:
    parts = [integers(width, False, seed) for seed in range(4)]
    whole = (
        [int(a) + (int(b) << width) for a, b in zip(*parts[:2])],
        [int(a) + (int(b) << width) for a, b in zip(*parts[2:])],
    )
    temporary = "%r20" if width == 32 else "%rd22"
    low = elementwise(f"{word}.cc.u{width} %y, %x0, %x2;", parts, f"u{width // 8}")
    high = elementwise(
        f"{word}.cc.u{width} {temporary}, %x0, %x2; {word}c.u{width} %y, %x1, %x3;", parts, f"u{width // 8}"
    )
    got = [int(a) + (int(b) << width) for a, b in zip(low, high)]
    assert got == [(a + sign * b) % (1 << 2 * width) for a, b in zip(*whole)]


def test_clipped_sums_stay_in_the_range() -> None:
    x, y = integers(32, True), integers(32, True, 1)[::-1].copy()
    for word, sign in (("add", 1), ("sub", -1)):
        got = elementwise(f"{word}.sat.s32 %y, %x0, %x1;", [x, y], "i4")
        assert [int(v) for v in got] == [min(max(int(a) + sign * int(b), -(2**31)), 2**31 - 1) for a, b in zip(x, y)]


@pytest.mark.parametrize("width", WIDTHS)
def test_shifts_by_more_than_the_width_leave_zeros_or_the_sign(width: int) -> None:
    x = integers(width, False)
    count = np.resize(np.array([0, 1, 5, width - 1, width, width + 1, 255, 2**31], "u4"), len(x))
    kind = f"u{width // 8}"
    left = elementwise(f"shl.b{width} %y, %x0, %x1;", [x, count], kind)
    assert [int(v) for v in left] == [(int(a) << min(int(n), width)) % (1 << width) for a, n in zip(x, count)]
    right = elementwise(f"shr.u{width} %y, %x0, %x1;", [x, count], kind)
    assert [int(v) for v in right] == [int(a) >> min(int(n), width) for a, n in zip(x, count)]
    with_sign = elementwise(f"shr.s{width} %y, %x0, %x1;", [x, count], kind)
    wanted = [(signed(int(a), width) >> min(int(n), width)) % (1 << width) for a, n in zip(x, count)]
    assert [int(v) for v in with_sign] == wanted


def test_funnel_shifts_take_32_bits_of_64() -> None:
    low, high = integers(32, False), integers(32, False, 1)
    count = np.resize(np.array([0, 1, 7, 31, 32, 33, 63, 64, 200], "u4"), len(low))
    both = [int(a) | int(b) << 32 for a, b in zip(low, high)]
    for side in "lr":
        for mode in ("wrap", "clamp"):
            got = elementwise(f"shf.{side}.{mode}.b32 %y, %x0, %x1, %x2;", [low, high, count], "u4")
            distances = [int(n) & 31 if mode == "wrap" else min(int(n), 32) for n in count]
            wanted = [v << n >> 32 if side == "l" else v >> n for v, n in zip(both, distances)]
            assert [int(v) for v in got] == [v % 2**32 for v in wanted]


@pytest.mark.parametrize("width", [32, 64])
def test_fields_are_cut_out_and_put_in(width: int) -> None:
    x, y = integers(width, False), integers(width, False, 1)
    position = np.resize(np.array([0, 1, 8, width - 1, width, 200, 31], "u4"), len(x))
    length = np.resize(np.array([0, 1, 8, 16, width, width - 1, 255, 3], "u4"), len(x))
    kind = f"u{width // 8}"
    got = elementwise(f"bfe.u{width} %y, %x0, %x1, %x2;", [x, position, length], kind)
    assert [int(v) for v in got] == [int(a) >> int(p) & ((1 << int(n)) - 1) for a, p, n in zip(x, position, length)]
    got = elementwise(f"bfe.s{width} %y, %x0, %x1, %x2;", [x, position, length], kind)

    def with_sign(value: int, begin: int, count: int) -> int:
        last = min(begin + count - 1, width - 1)
        sign = value >> last & 1 if count else 0
        field = [value >> begin + k & 1 if k < count and begin + k < width else sign for k in range(width)]
        return sum(bit << k for k, bit in enumerate(field))

    assert [int(v) for v in got] == [with_sign(int(a), int(p), int(n)) for a, p, n in zip(x, position, length)]
    got = elementwise(f"bfi.b{width} %y, %x0, %x1, %x2, %x3;", [x, y, position, length], kind)

    def put(value: int, into: int, begin: int, count: int) -> int:
        mask = ((1 << count) - 1) << begin
        return (into & ~mask | value << begin & mask) % (1 << width)

    assert [int(v) for v in got] == [put(int(a), int(b), int(p), int(n)) for a, b, p, n in zip(x, y, position, length)]


def test_bytes_are_permuted_or_become_their_sign() -> None:
    x, y = integers(32, False), integers(32, False, 1)
    selector = np.random.default_rng(2).integers(0, 2**16, len(x), dtype=np.uint32)
    got = elementwise("prmt.b32 %y, %x0, %x1, %x2;", [x, y, selector], "u4")

    def permuted(both: int, choice: int) -> int:
        found = 0
        for k in range(4):
            nibble = choice >> 4 * k & 15
            byte = both >> 8 * (nibble & 7) & 255
            found |= (byte if nibble < 8 else 255 * (byte >> 7)) << 8 * k
        return found

    assert [int(v) for v in got] == [permuted(int(a) | int(b) << 32, int(s)) for a, b, s in zip(x, y, selector)]


@pytest.mark.parametrize("width", [32, 64])
def test_bits_are_counted_found_and_reversed(width: int) -> None:
    x = integers(width, False)
    words = {
        f"popc.b{width}": (lambda v: v.bit_count(), "u4"),
        f"clz.b{width}": (lambda v: width - v.bit_length(), "u4"),
        f"bfind.u{width}": (lambda v: (v.bit_length() - 1) % 2**32, "u4"),
        f"brev.b{width}": (lambda v: int(f"{v:0{width}b}"[::-1], 2), f"u{width // 8}"),
        f"not.b{width}": (lambda v: ~v % (1 << width), f"u{width // 8}"),
        f"neg.s{width}": (lambda v: -v % (1 << width), f"u{width // 8}"),
        f"abs.s{width}": (lambda v: abs(signed(v, width)) % (1 << width), f"u{width // 8}"),
        f"cnot.b{width}": (lambda v: int(v == 0), f"u{width // 8}"),
    }
    for opcode, (function, kind) in words.items():
        got = elementwise(f"{opcode} %y, %x0;", [x], kind)
        assert [int(v) for v in got] == [function(int(v)) for v in x], opcode


@pytest.mark.parametrize("table", [0x00, 0x80, 0x96, 0xE8, 0xCA, 0xFF, 0x1B])
def test_three_bits_become_what_the_table_says(table: int) -> None:
    x, y, z = (integers(32, False, seed) for seed in range(3))
    got = elementwise(f"lop3.b32 %y, %x0, %x1, %x2, {table:#x};", [x, y, z], "u4")

    def looked_up(a: int, b: int, c: int) -> int:
        return sum((table >> (4 * (a >> k & 1) + 2 * (b >> k & 1) + (c >> k & 1)) & 1) << k for k in range(32))

    assert [int(v) for v in got] == [looked_up(int(a), int(b), int(c)) for a, b, c in zip(x, y, z)]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("letter", "us")
def test_integers_are_compared_with_or_without_sign(letter: str, width: int) -> None:
    x = integers(width, letter == "s")
    y = np.where(np.arange(len(x)) % 3 == 0, x, x[::-1])
    functions = {"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater}
    for word, function in {**functions, "ge": np.greater_equal}.items():
        got = elementwise(f"setp.{word}.{letter}{width} %p1, %x0, %x1; selp.b32 %y, 1, 0, %p1;", [x, y], "u4")
        np.testing.assert_array_equal(got.astype(bool), function(x, y))


@pytest.mark.parametrize("target", [8, 16, 32, 64])
@pytest.mark.parametrize("source", [8, 16, 32, 64])
@pytest.mark.parametrize("letters", ["uu", "us", "su", "ss"])
def test_integers_are_cut_or_filled_by_the_sign_of_what_they_were(letters: str, source: int, target: int) -> None:
    x = integers(source, letters[1] == "s")
    got = elementwise(f"cvt.{letters[0]}{target}.{letters[1]}{source} %y, %x0;", [x], f"u{target // 8}")
    assert [int(v) for v in got] == [int(v) % (1 << target) for v in x]


@pytest.mark.parametrize("source", [32, 64])
@pytest.mark.parametrize("target", ["u8", "s8", "u16", "s16", "u32", "s32"])
def test_clipping_conversions_stay_in_the_range(target: str, source: int) -> None:
    x = integers(source, True)
    width = int(target[1:])
    low, high = (0, 2**width - 1) if target[0] == "u" else (-(2 ** (width - 1)), 2 ** (width - 1) - 1)
    got = elementwise(f"cvt.sat.{target}.s{source} %y, %x0;", [x], f"{'i' if target[0] == 's' else 'u'}{width // 8}")
    assert [int(v) for v in got] == [min(max(int(v), low), high) for v in x]


def test_bytes_are_loaded_with_the_sign_that_the_load_says() -> None:
    x = integers(8, False)
    assert [int(v) for v in elementwise("ld.global.s8 %y, [%rd20];", [x], "i4")] == [signed(int(v), 8) for v in x]
    assert [int(v) for v in elementwise("ld.global.u8 %y, [%rd20];", [x], "u4")] == [int(v) for v in x]


def test_words_are_packed_and_unpacked() -> None:
    x, y = integers(32, False), integers(32, False, 1)
    got = elementwise("mov.b64 %y, {%x0, %x1};", [x, y], "u8")
    assert [int(v) for v in got] == [int(a) | int(b) << 32 for a, b in zip(x, y)]
    wide = integers(64, False)
    np.testing.assert_array_equal(elementwise("mov.b64 {_, %y}, %x0;", [wide], "u4"), wide >> np.uint64(32))
    np.testing.assert_array_equal(elementwise("mov.b64 {%y, %r20}, %x0;", [wide], "u4"), wide.astype("u4"))
    halves = integers(16, False)
    got = elementwise("mov.b32 %y, {%x0, %x0};", [halves], "u4")
    np.testing.assert_array_equal(got, halves.astype("u4") * np.uint32(0x10001))


def test_a_predicate_keeps_what_was_there_where_it_fails() -> None:
    x, y = integers(32, True), integers(32, True, 1)
    got = elementwise("setp.lt.s32 %p1, %x0, %x1; mov.b32 %y, %x0; @%p1 add.s32 %y, %x1, 1;", [x, y], "i4")
    np.testing.assert_array_equal(got, np.where(x < y, y + np.int32(1), x))
    got = elementwise("setp.lt.s32 %p1, %x0, %x1; mov.b32 %y, 7; @!%p1 mov.b32 %y, %x1;", [x, y], "i4")
    np.testing.assert_array_equal(got, np.where(x < y, 7, y))


def test_predicates_are_combined() -> None:
    x, y = integers(32, True), integers(32, True, 1)
    text = """
        setp.lt.s32 %p1, %x0, %x1; setp.gt.s32 %p2, %x0, 0; and.pred %p3, %p1, %p2; or.pred %p4, %p1, %p2;
        xor.pred %p5, %p3, %p4; not.pred %p6, %p5; setp.eq.and.s32 %p7, %x1, 0, !%p1; mov.pred %p8, -1;
        selp.b32 %r20, 1, 0, %p6; selp.b32 %r21, 2, 0, %p7; selp.b32 %r22, 4, 0, %p8;
        or.b32 %y, %r20, %r21; or.b32 %y, %y, %r22;
    """
    p1, p2 = x < y, x > 0
    p5 = (p1 & p2) ^ (p1 | p2)
    wanted = np.where(~p5, 1, 0) + np.where((y == 0) & ~p1, 2, 0) + 4
    np.testing.assert_array_equal(elementwise(text, [x, y], "u4"), wanted)


def test_a_comparison_may_give_words() -> None:
    x = integers(32, True)
    np.testing.assert_array_equal(elementwise("set.gt.u32.s32 %y, %x0, 5;", [x], "u4"), np.where(x > 5, 2**32 - 1, 0))
    np.testing.assert_array_equal(elementwise("set.gt.f32.s32 %y, %x0, 5;", [x], "f4"), np.where(x > 5, 1.0, 0.0))


@pytest.mark.parametrize(
    "text",
    [
        "frobnicate.b32 %r1, %r2;",
        "add.rz.f32 %r1, %r2, %r3;",
        "tcgen05.fence::before_thread_sync;",
        "cp.async.bulk.commit_group;",
        "cvt.rn.satfinite.e4m3x2.f32 %rs1, %r2, %r3;",
        "prmt.b32.f4e %r1, %r2, %r3, %r4;",
        "mov.b128 %rd1, %rd2;",
        "@%p1 bar.sync 0;",
        "tex.1d.v4.f32.f32 {%r1, %r2, %r3, %r4}, [%rd1, {%r5}];",
    ],
)
def test_an_unknown_instruction_is_an_error_that_names_it(text: str) -> None:
    driver = device()
    body = f"    mov.b32 %r2, 1; mov.b32 %r3, 1; mov.b32 %r4, 1; setp.eq.s32 %p1, %r2, 1; mov.b64 %rd2, 1;\n{text}"
    with pytest.raises(UnknownInstructionError, match=re.escape(text.split()[-1].rstrip(";"))):
        launch(driver, entry(body))


def test_an_instruction_of_an_unknown_name_is_refused_before_anything_runs() -> None:
    with pytest.raises(UnknownInstructionError, match="frobnicate"):
        device().assemble(entry("bra $end; frobnicate.b32 %r1, %r2; $end:"), "sm_90")


def test_a_text_without_a_kernel_is_refused() -> None:
    for text in ("", ".version 8.0\n.target sm_90\n", "no PTX at all", ".visible .entry k() { ret;"):
        with pytest.raises(CompileError):
            device().assemble(text, "sm_90")
