"""Records of words: what Python writes by name is where native code looks for it."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from autojit.codegen.cpu.plan import records as plan_records
from autojit.codegen.module_text import ModuleText, Signature
from autojit.codegen.native_function import NativeFunction
from autojit.codegen.records import HalfWord, Pointer, Record, Word, field
from autojit.runtime import entry_records, gate, pool_ir
from autojit.runtime.host import cached_host_target
from autojit.runtime.llvm import compile_to_object
from autojit.runtime.loader import LoadedObject, load

MODULES = (plan_records, entry_records, pool_ir)
CLASSES = [found for module in MODULES for found in vars(module).values() if isinstance(found, type)]
RECORDS = [record for record in dict.fromkeys(CLASSES) if issubclass(record, Record) and record.fields]


class Triple(Record[int]):
    first: Word
    second: Pointer
    third: Word = field(default=7)


class Apart(Record[int], apart=128):
    first: Word
    second: HalfWord


def test_the_records_are_known() -> None:
    assert len(RECORDS) > 30


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.__name__)
def test_writer_and_offsets_agree(record: type[Record[int]]) -> None:
    values = {name: 100 + k for k, name in enumerate(record.fields)}
    words = record(**values)
    apart = record.size_bytes // len(record.fields)
    for name, word in record.fields.items():
        assert getattr(record, name) is word
        assert getattr(words, name) == words[word.place] == values[name]
        assert word.offset_bytes == apart * word.place
    assert len(words) == len(record.fields)


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.__name__)
def test_a_missing_and_an_unknown_field_are_errors(record: type[Record[int]]) -> None:
    values = dict.fromkeys(record.fields, 0)
    with pytest.raises(TypeError, match=r"unknown ones: \['no_such_word'\]"):
        record(**values, no_such_word=0)
    required = [name for name in values if name not in record._defaults]
    with pytest.raises(TypeError, match=rf"missing fields: \['{required[0]}'\]"):
        record(**{name: 0 for name in values if name != required[0]})


def compiled(module: ModuleText) -> LoadedObject:
    return load(compile_to_object(module.text(), cached_host_target(), 1, 0))


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.__name__)
def test_native_code_reads_each_word_by_its_name(record: type[Record[int]]) -> None:
    module = ModuleText()
    for name, word in record.fields.items():
        f = NativeFunction(module, Signature(f"get_{name}", "ptr record", "i64"))
        value = f.get("%record", word)
        if word.kind != "i64":
            value = f.convert("ptrtoint" if word.kind == "ptr" else "zext", value, word.kind)
        f.ret(value)
        f.finish()
    code = compiled(module)
    memory = np.zeros(record.size_bytes // 8, np.int64)
    for word, value in zip(record.fields.values(), record(**{name: 100 + k for k, name in enumerate(record.fields)})):
        memory[word.offset_bytes // 8] = value
    for k, name in enumerate(record.fields):
        get = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(code.address(f"get_{name}"))
        assert get(memory.ctypes.data) == 100 + k


def test_native_code_writes_a_word_and_leaves_its_neighbours() -> None:
    module = ModuleText()
    f = NativeFunction(module, Signature("put", "ptr records, i64 position"))
    f.put(f.item(Triple, "%records", "%position"), Triple.third, 5)
    f.finish()
    memory = np.zeros((3, 3), np.int64)
    code = compiled(module)
    put = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(code.address("put"))
    put(memory.ctypes.data, 1)
    assert memory.tolist() == [[0, 0, 0], [0, 0, 5], [0, 0, 0]]


def test_a_field_may_be_left_out_where_it_says_so() -> None:
    assert Triple(second=2, first=1) == (1, 2, 7)
    assert Triple(second=2, first=1, third=3) == (1, 2, 3)


def test_a_record_is_changed_by_making_another() -> None:
    record = Triple(first=1, second=2)
    assert record.but(second=5) == (1, 5, 7)
    with pytest.raises(TypeError, match="unknown"):
        record.but(fourth=1)  # type: ignore[call-arg]
    with pytest.raises(AttributeError, match="second"):
        record.second = 3


def test_a_gate_has_the_words_that_native_code_looks_at() -> None:
    assert len(entry_records.GateWords.fields) == gate.GATE_WORDS


def test_words_may_be_far_apart() -> None:
    assert (Apart.first.offset_bytes, Apart.second.offset_bytes, Apart.size_bytes) == (0, 128, 256)
