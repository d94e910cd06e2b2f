"""Words of records are loaded by name, from where the record has them."""

from __future__ import annotations

import ctypes

import llvmlite.binding as llvm
import pytest

from autojit.codegen.cpu.plan_ir import PLAN
from autojit.codegen.words import with_words

RECORDS = {"pair": ("first", "second", "third")}


@pytest.mark.parametrize("word", RECORDS["pair"])
def test_a_word_is_where_its_record_has_it(word: str) -> None:
    text = with_words(f"define i64 @get(ptr %p) {{\n  %x = word pair.{word} of %p\n  ret i64 %x\n}}\n", RECORDS)
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine()
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(text), machine)
    get = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(engine.get_function_address("get"))
    values = (ctypes.c_int64 * 3)(10, 11, 12)
    assert get(ctypes.addressof(values)) == 10 + RECORDS["pair"].index(word)


def test_a_word_that_a_record_does_not_have_is_an_error() -> None:
    with pytest.raises(ValueError, match="tuple"):
        with_words("  %x = word pair.fourth of %p\n", RECORDS)
    with pytest.raises(KeyError):
        with_words("  %x = pointer plans.error of %p\n", {"plan": PLAN})
