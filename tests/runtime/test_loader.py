"""Loading objects: the linker of `elf`, the pages of `code_memory`, the names of `loader`."""

from __future__ import annotations

import ctypes
import gc
from pathlib import Path

import numpy as np
import pytest

from autojit.core.errors import CompileError
from autojit.runtime.code_memory import PAGE_BYTES, REGION_BYTES, _merged, allocate_pages, mapped_code_bytes
from autojit.runtime.elf import ElfObject
from autojit.runtime.loader import LoadedObject, library_address, load, load_with_llvm

from .programs import compiled

CALLER = """
@factor = internal global double 3.0
@table = internal constant [2 x ptr] [ptr @plain, ptr @twice]
declare double @outside(double)
declare double @fmod(double, double)
define double @plain(double %x) nounwind { ret double %x }
define internal double @twice(double %x) nounwind noinline {
  %y = fmul double %x, 2.0
  ret double %y
}
define double @through_data(double %x) nounwind {
  %f = load volatile double, ptr @factor
  %g = fadd double %f, 1.0
  store volatile double %g, ptr @factor
  %y = fmul double %x, %f
  ret double %y
}
define double @through_table(double %x, i64 %i) nounwind {
  %at = getelementptr ptr, ptr @table, i64 %i
  %f = load volatile ptr, ptr %at
  %y = call double %f(double %x)
  ret double %y
}
define double @through_import(double %x) nounwind {
  %y = call double @outside(double %x)
  %z = fadd double %y, 0.5
  ret double %z
}
define ptr @address_of_import() nounwind { ret ptr @outside }
define double @through_libm(double %x) nounwind {
  %z = call double @fmod(double %x, double 3.0)
  ret double %z
}
"""
UNARY = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)


@UNARY
def outside(x: float) -> float:
    return 10.0 * x


OUTSIDE = ctypes.cast(outside, ctypes.c_void_p).value or 0


def call(code: LoadedObject, symbol: str, x: float) -> float:
    return float(UNARY(code.address(symbol))(x))


@pytest.fixture(params=["elf", "llvm"])
def caller(request: pytest.FixtureRequest) -> LoadedObject:
    content = compiled(CALLER)
    return (
        load(content, {"outside": OUTSIDE}) if request.param == "elf" else load_with_llvm(content, {"outside": OUTSIDE})
    )


def test_every_kind_of_reference_resolves(caller: LoadedObject) -> None:
    assert [call(caller, "through_data", 2.0) for _ in range(2)] == [6.0, 8.0]
    indexed = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double, ctypes.c_int64)(caller.address("through_table"))
    assert [indexed(5.0, 0), indexed(5.0, 1)] == [5.0, 10.0]
    assert call(caller, "through_import", 2.0) == 20.5
    assert call(caller, "through_libm", 7.5) == 1.5
    assert ctypes.CFUNCTYPE(ctypes.c_void_p)(caller.address("address_of_import"))() == OUTSIDE


def test_internal_names_and_strangers_are_not_exported(caller: LoadedObject) -> None:
    for name in ("twice", "factor", "nonsense"):
        with pytest.raises(CompileError):
            caller.address(name)


def test_a_name_nobody_defines_is_an_error_that_frees_its_pages() -> None:
    gc.collect()
    before = mapped_code_bytes()
    with pytest.raises(CompileError, match="outside"):
        load(compiled(CALLER))
    assert mapped_code_bytes() == before


def test_every_load_has_its_own_data() -> None:
    one, two = (load(compiled(CALLER), {"outside": OUTSIDE}) for _ in range(2))
    assert [call(code, "through_data", 1.0) for code in (one, two, one)] == [3.0, 3.0, 4.0]


def test_code_lives_as_long_as_its_handle() -> None:
    gc.collect()
    before = mapped_code_bytes()
    code = load(compiled(CALLER), {"outside": OUTSIDE})
    assert mapped_code_bytes() > before
    del code
    gc.collect()
    assert mapped_code_bytes() == before


def test_thousands_of_objects_cost_few_mappings() -> None:
    content = compiled("define void @nothing() nounwind { ret void }")
    before = len(Path("/proc/self/maps").read_text().splitlines())
    kept = [load(content) for _ in range(1000)]
    assert len(Path("/proc/self/maps").read_text().splitlines()) - before < 50
    assert len({code.address("nothing") for code in kept}) == 1000


def test_no_code_page_is_writable_and_executable() -> None:
    code = load(compiled(CALLER), {"outside": OUTSIDE})
    address = code.address("plain")
    for line in Path("/proc/self/maps").read_text().splitlines():
        start, end = (int(text, 16) for text in line.split()[0].split("-"))
        if start <= address < end:
            assert line.split()[1] == "r-xp"
            return
    raise AssertionError("the code is not mapped")


def test_pages_given_back_are_joined_and_reused() -> None:
    gc.collect()
    before = mapped_code_bytes()
    for _ in range(100):  # 100 times a third of a region: without joining and reuse the regions would pile up
        runs = [allocate_pages(REGION_BYTES // 12) for _ in range(4)]
        assert len({run.address for run in runs}) == 4
        for run in runs:
            run.release()
    assert mapped_code_bytes() == before
    assert _merged([(0, 4), (4, 4), (12, 4), (16, 8)]) == [(0, 8), (12, 12)]


@pytest.mark.parametrize("rounds", [1500, pytest.param(50_000, marks=pytest.mark.slow)])
def test_a_damaged_object_is_an_error_never_a_crash(rng: np.random.Generator, rounds: int) -> None:
    sound = compiled(CALLER)
    outcomes = {"linked": 0, "refused": 0}
    for _ in range(rounds):
        changed = bytearray(sound)
        for _ in range(int(rng.integers(1, 6))):
            changed[int(rng.integers(len(changed)))] = int(rng.integers(256))
        cut = int(rng.integers(len(changed))) if rng.random() < 0.2 else len(changed)
        try:
            parsed = ElfObject(bytes(changed[:cut]), PAGE_BYTES)
            if parsed.size_bytes < 1 << 24:
                parsed.link(1 << 40, lambda name: OUTSIDE)
            outcomes["linked"] += 1
        except CompileError:
            outcomes["refused"] += 1
    assert outcomes["refused"] > 200


def test_library_functions_are_found() -> None:
    assert library_address("memset") != 0
    assert library_address("surely_no_such_function") == 0
