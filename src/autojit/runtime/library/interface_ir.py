"""The functions of a library in LLVM's text: making an instance, running it, its state in files.

The same for every library, so compiled once per machine; data comes by symbols (`SYMBOLS`), which the linker defines.
How to read: `interface_ir` lists the functions; `_write_run` is what a call costs.
"""

from __future__ import annotations

from autojit.codegen.cpu.plan.records import TapeWords
from autojit.codegen.cpu.plan.runner import STEP
from autojit.codegen.cpu.plan.sizes import SIZES
from autojit.codegen.module_text import ModuleText, Signature
from autojit.codegen.native_function import NativeFunction, body
from autojit.codegen.records import Field
from autojit.codegen.report_sites import ACCESS_SITE, FAILURE_SITE
from autojit.core.once import once
from autojit.runtime.library.instance_image import PAGE_BYTES
from autojit.runtime.library.interface import (
    OUT_OF_MEMORY_WORD,
    Code,
    Copy,
    Description,
    Guard,
    Instance,
    NumberRange,
    ReporterRow,
    StateRow,
    Variant,
)
from autojit.runtime.library.ready_ir import READY, write_ready

SYMBOLS = (
    "aj_description", "aj_words", "aj_of_instance", "aj_of_library", "aj_initial_state", "aj_variants",
    "aj_state_rows", "aj_state_header", "aj_tapes", "aj_reporters", "aj_texts", "aj_text_bytes", "aj_image",
)  # fmt: skip

FUNCTIONS = {
    name: f"aj_export_{name}"
    for name in (
        "abi_version", "create", "destroy", "run", "error_text", "error_position", "state", "save_state",
        "load_state", "reset_state", "set_threads", "threads", "memory_bytes", "manifest",
    )
}  # fmt: skip
"""By the name that follows the library's: the function behind it."""

_CREATE = Signature("aj_export_create", "ptr out", "i32")
_DESTROY = Signature("aj_export_destroy", "ptr self")
_RUN = Signature("aj_export_run", "ptr self, ptr arguments, ptr results", "i32")
_CHOOSE = Signature("aj_export_choose", "ptr self, ptr arguments, ptr refusal", "ptr")
_TRANSLATE = Signature("aj_export_translate", "ptr self, ptr variant", "i32")
_TEXT = Signature("aj_export_error_text", "i32 code", "ptr")
_STATE = Signature("aj_export_state", "ptr self", "ptr")
_SAVE = Signature("aj_export_save_state", "ptr self, ptr path", "i32")
_LOAD = Signature("aj_export_load_state", "ptr self, ptr path", "i32")
_RESET = Signature("aj_export_reset_state", "ptr self", "i32")
_BYTES = Signature("aj_export_memory_bytes", "ptr self", "i64")
_MAP = Signature("aj_export_map", "i64 bytes", "ptr")
GROW = Signature("aj_export_grow", "i64 bytes, i64 capacity, ptr table", "i64")
MAKE_ROOM = body("aj_export_make_room", "ptr tape")

_MMAP = Signature("mmap", "ptr at, i64 bytes, i32 protection, i32 flags, i32 file, i64 offset", "ptr")
_MUNMAP = Signature("munmap", "ptr at, i64 bytes", "i32")
_MADVISE = Signature("madvise", "ptr at, i64 bytes, i32 advice", "i32")
_OPEN = Signature("fopen", "ptr path, ptr mode", "ptr")
_READ = Signature("fread", "ptr to, i64 size, i64 count, ptr file", "i64")
_WRITE = Signature("fwrite", "ptr from, i64 size, i64 count, ptr file", "i64")
_CLOSE = Signature("fclose", "ptr file", "i32")
_SEEK = Signature("fseeko", "ptr file, i64 offset, i32 whence", "i32")
_TELL = Signature("ftello", "ptr file", "i64")
_RENAME = Signature("rename", "ptr from, ptr to", "i32")
_REMOVE = Signature("remove", "ptr path", "i32")
_ALLOCATE = Signature("malloc", "i64 bytes", "ptr")
_FREE = Signature("free", "ptr memory")
_COMPARE = Signature("memcmp", "ptr a, ptr b, i64 bytes", "i32")
_LENGTH = Signature("strlen", "ptr text", "i64")

_READ_WRITE, _PRIVATE_ANONYMOUS_NO_RESERVE, _HUGE_PAGES, _SEEK_END = 3, 0x4022, 14, 2
_HUGE_BYTES = 2 << 20
_FIRST_STEPS = 16  # of a tape
_SUFFIX_BYTES = 6

_TEXTS_OF_CODE = """
@aj_read_mode = private constant [3 x i8] c"rb\\00"
@aj_write_mode = private constant [3 x i8] c"wb\\00"
@aj_suffix = private constant [6 x i8] c".part\\00"
"""


@once
def interface_ir() -> str:
    """The whole module."""
    module = ModuleText()
    module.definitions["texts"] = _TEXTS_OF_CODE
    for symbol in SYMBOLS:
        module.definitions[symbol] = f"@{symbol} = external constant i8"
    define = NativeFunction.define
    define(module, READY, write_ready, linkage="internal")
    define(module, _MAP, _write_map, linkage="internal")
    define(module, GROW, _write_grow)
    define(module, MAKE_ROOM, _write_make_room)
    define(module, _CREATE, _write_create)
    define(module, _DESTROY, _write_destroy)
    define(module, _CHOOSE, _write_choose, linkage="internal")
    define(module, _TRANSLATE, _write_translate, linkage="internal")
    define(module, _RUN, _write_run)
    define(module, _TEXT, _write_text)
    define(module, _STATE, lambda f: f.ret(f.at(f.parameters[0], f.get("@aj_description", Description.state_pointers))))
    define(module, Signature("aj_export_error_position", "ptr self", "i64"), _write_position)
    define(module, _SAVE, _write_save)
    define(module, _LOAD, _write_load)
    define(module, _RESET, _write_reset)
    define(module, _BYTES, _write_bytes)
    return module.text()


def _described(f: NativeFunction, word: Field[int]) -> str:
    return f.get("@aj_description", word)


# -- memory


def _write_map(f: NativeFunction) -> None:
    """Zeroed memory, or null."""
    (size,) = f.parameters
    found = f.call(_MMAP, "null", size, _READ_WRITE, _PRIVATE_ANONYMOUS_NO_RESERVE, -1, 0)
    is_missing = f.test("eq", f.convert("ptrtoint", found, "ptr"), -1)
    f.return_when(is_missing, "null")
    with f.when(f.test("sge", size, _HUGE_BYTES)):
        f.call(_MADVISE, found, size, _HUGE_PAGES)
    f.ret(found)


def _write_grow(f: NativeFunction) -> None:
    """Memory for temporaries of open size in place of what was too small: the size program asks for it."""
    size, capacity, table = f.parameters
    place = f.element(table, "i64", capacity)
    old, old_bytes = f.load("ptr", f.at(place, 8)), f.load("i64", place)
    with f.when(f.is_set(old, "ptr")):
        f.call(_MUNMAP, old, old_bytes)
    rounded = f.round_up(f.add(size, f.binary("lshr", size, 2)), PAGE_BYTES)
    found = f.call(_MAP, rounded)
    is_missing = f.is_zero(found, "ptr")
    f.store("i64", f.choose(is_missing, 0, rounded), place)
    with f.when(is_missing):
        # the word before a table is the address of the step's error words
        error = f.load("ptr", f.element(table, "i64", -1))
        f.store("i64", OUT_OF_MEMORY_WORD, error)
    f.ret(f.convert("ptrtoint", found, "ptr"))


def _write_make_room(f: NativeFunction) -> None:
    """Room on a tape: a loop asks for it. Behind the tape's words are its bytes and where errors are reported."""
    tape, steps, _ = f.parameters
    record, capacity = f.get(tape, TapeWords.record_bytes), f.get(tape, TapeWords.capacity)
    answers = f.add(f.get(tape, TapeWords.answers), 1)
    f.put(tape, TapeWords.answers, answers)
    f.return_when(f.either(f.is_zero(record), f.test("sle", steps, capacity)))
    wanted = f.most(f.most(steps, f.mul(capacity, 2)), _FIRST_STEPS)
    size = f.round_up(f.mul(wanted, record), PAGE_BYTES)
    bytes_at = f.after(TapeWords, tape)
    old, old_bytes = f.convert("inttoptr", f.get(tape, TapeWords.address), "i64", "ptr"), f.load("i64", bytes_at)
    found = f.call(_MAP, size)
    with f.when(f.is_zero(found, "ptr")):
        f.store("i64", OUT_OF_MEMORY_WORD, f.load("ptr", f.at(bytes_at, 8)))
        f.ret()
    with f.when(f.is_set(old, "ptr")):
        f.copy_bytes(found, old, f.mul(capacity, record))
        f.call(_MUNMAP, old, old_bytes)
    f.put(tape, TapeWords.address, f.convert("ptrtoint", found, "ptr"))
    f.put(tape, TapeWords.capacity, f.quotient(size, record))
    f.store("i64", size, bytes_at)


def _write_create(f: NativeFunction) -> None:
    """An instance: one mapping, the words copied and moved to where it is, the state as it was exported."""
    (out,) = f.parameters
    f.return_when(f.is_zero(out, "ptr"), Code.NULL_POINTER.value)
    f.store("ptr", "null", out)
    status = f.call(READY)
    f.return_when(f.is_set(status, "i32"), status)
    size = _described(f, Description.instance_bytes)
    is_large = f.test("sge", size, _HUGE_BYTES)
    mapped = f.add(size, f.choose(is_large, _HUGE_BYTES, 0))
    mapping = f.call(_MAP, mapped)
    f.return_when(f.is_zero(mapping, "ptr"), Code.OUT_OF_MEMORY.value)
    start = f.convert("ptrtoint", mapping, "ptr")
    aligned = f.choose(is_large, f.round_up(start, _HUGE_BYTES), start)
    self = f.convert("inttoptr", aligned, "i64", "ptr")
    f.copy_bytes(self, "@aj_words", _described(f, Description.words_bytes))
    library = f.convert("ptrtoint", "@aj_image", "ptr")
    for count, places, base in (
        (Description.n_of_instance, "@aj_of_instance", aligned),
        (Description.n_of_library, "@aj_of_library", library),
    ):
        with f.loop(0, _described(f, count)) as k:
            word = f.at(self, f.load("i64", f.element(places, "i64", k)))
            f.store("i64", f.add(f.load("i64", word), base), word)
    f.put(self, Instance.mapping, start)
    f.put(self, Instance.mapping_bytes, mapped)
    f.call(_RESET, self)
    f.store("ptr", self, out)
    f.ret(Code.OK.value)


def _write_reset(f: NativeFunction) -> None:
    """The state as it was exported."""
    (self,) = f.parameters
    f.return_when(f.is_zero(self, "ptr"), Code.NULL_POINTER.value)
    state = f.at(self, _described(f, Description.state))
    f.copy_bytes(state, "@aj_initial_state", _described(f, Description.state_bytes))
    f.ret(Code.OK.value)


def _write_destroy(f: NativeFunction) -> None:
    """Give everything back."""
    (self,) = f.parameters
    f.return_when(f.is_zero(self, "ptr"))
    with f.loop(0, _described(f, Description.n_variants)) as v:
        variant = f.item(Variant, "@aj_variants", v)
        rooms = f.at(self, f.get(variant, Variant.rooms))
        with f.loop(0, f.get(variant, Variant.n_rooms)) as k:
            place = f.at(self, f.load("i64", f.element(rooms, "i64", k)))
            memory = f.load("ptr", f.at(place, 8))
            with f.when(f.is_set(memory, "ptr")):
                f.call(_MUNMAP, memory, f.load("i64", place))
    with f.loop(0, _described(f, Description.n_tapes)) as k:
        tape = f.at(self, f.load("i64", f.element("@aj_tapes", "i64", k)))
        memory = f.convert("inttoptr", f.get(tape, TapeWords.address), "i64", "ptr")
        with f.when(f.is_set(memory, "ptr")):
            f.call(_MUNMAP, memory, f.load("i64", f.after(TapeWords, tape)))
    mapping = f.convert("inttoptr", f.get(self, Instance.mapping), "i64", "ptr")
    f.call(_MUNMAP, mapping, f.get(self, Instance.mapping_bytes))


def _write_bytes(f: NativeFunction) -> None:
    """The memory of an instance: its block, and what has grown beside it."""
    (self,) = f.parameters
    total = f.local("i64", 8)
    f.return_when(f.is_zero(self, "ptr"), 0)
    f.store("i64", _described(f, Description.instance_bytes), total)
    with f.loop(0, _described(f, Description.n_variants)) as v:
        variant = f.item(Variant, "@aj_variants", v)
        rooms = f.at(self, f.get(variant, Variant.rooms))
        with f.loop(0, f.get(variant, Variant.n_rooms)) as k:
            room = f.load("i64", f.at(self, f.load("i64", f.element(rooms, "i64", k))))
            f.store("i64", f.add(f.load("i64", total), room), total)
    with f.loop(0, _described(f, Description.n_tapes)) as k:
        tape = f.at(self, f.load("i64", f.element("@aj_tapes", "i64", k)))
        f.store("i64", f.add(f.load("i64", total), f.load("i64", f.after(TapeWords, tape))), total)
    f.ret(f.load("i64", total))


# -- running


def _write_run(f: NativeFunction) -> None:
    """One call: addresses into the table, sizes, the plan; what went wrong as a code."""
    self, arguments, results = f.parameters
    refusal = f.local("i32", 8)
    missing = f.either(f.is_zero(self, "ptr"), f.either(f.is_zero(arguments, "ptr"), f.is_zero(results, "ptr")))
    f.return_when(missing, Code.NULL_POINTER.value)
    n_arguments, n_results = _described(f, Description.n_arguments), _described(f, Description.n_results)
    for count, pointers in ((n_arguments, arguments), (n_results, results)):
        with f.loop(0, count) as k:
            f.return_when(f.is_zero(f.load("ptr", f.element(pointers, "ptr", k)), "ptr"), Code.NULL_POINTER.value)
    busy = f.place_of(self, Instance.is_busy)
    _, is_mine = f.exchange(busy, 0, 1, "acquire monotonic")
    f.return_unless(is_mine, Code.BUSY.value)
    variant = f.call(_CHOOSE, self, arguments, refusal)
    with f.when(f.is_zero(variant, "ptr")):
        f.store("i64", 0, busy, "release")
        f.ret(f.load("i32", refusal))
    table = f.at(self, f.get(variant, Variant.table))
    f.copy_bytes(f.at(table, f.get(variant, Variant.first_argument)), arguments, f.mul(n_arguments, 8))
    f.copy_bytes(f.at(table, f.get(variant, Variant.first_result)), results, f.mul(n_results, 8))
    sizes, given = f.at(self, f.get(variant, Variant.sizes)), f.element(arguments, "i64", n_arguments)
    symbols = f.at(self, f.get(variant, Variant.symbols))
    n_symbols = f.get(variant, Variant.n_symbols)
    with f.loop(0, n_symbols) as k:
        value = f.load("i64", f.element(given, "i64", f.load("i64", f.element(symbols, "i64", k))))
        f.store("i64", value, f.element(sizes, "i64", k))
    f.call(STEP, table)
    counted = f.element(results, "i64", n_results)
    f.copy_bytes(counted, f.element(sizes, "i64", n_symbols), f.mul(f.get(variant, Variant.n_counted), 8))
    error = f.at(self, _described(f, Description.error))
    with f.when(f.is_set(f.load("i64", error))):
        before = f.at(self, f.get(variant, Variant.before))
        with f.loop(0, n_symbols) as k:  # the next call works everything out
            f.store("i64", -1, f.element(before, "i64", k))
        code = f.call(_TRANSLATE, self, variant)
        f.store("i64", 0, busy, "release")
        f.ret(code)
    copies = f.at(self, f.get(variant, Variant.copies))
    with f.loop(0, f.get(variant, Variant.n_copies)) as k:
        row = f.item(Copy, copies, k)
        source = f.load("ptr", f.element(table, "ptr", f.get(row, Copy.source)))
        f.copy_bytes(f.get(row, Copy.target), source, f.get(row, Copy.bytes))
    f.store("i64", 0, busy, "release")
    f.ret(Code.OK.value)


def _write_choose(f: NativeFunction) -> None:
    """The step for the sizes and numbers of a call; null, and why."""
    self, arguments, refusal = f.parameters
    n_sizes, n_arguments = _described(f, Description.n_sizes), _described(f, Description.n_arguments)
    given = f.element(arguments, "i64", n_arguments)
    f.store("i32", Code.SIZE.value, refusal)
    with f.loop(0, n_sizes) as k:  # -1 is what programs remember before the first call
        f.return_when(f.test("slt", f.load("i64", f.element(given, "i64", k)), 0), "null")
    with f.loop(0, _described(f, Description.n_variants)) as v:
        following = f.junction(stem="following")
        variant = f.item(Variant, "@aj_variants", v)
        program, table = (f.at(self, f.get(variant, word)) for word in (Variant.guard_program, Variant.guard_table))
        with f.when(f.is_set(f.get(variant, Variant.n_guards))):
            f.copy_bytes(table, given, f.mul(n_sizes, 8))
            f.call(SIZES, program, 0, 0)
            guards = f.at(self, f.get(variant, Variant.guards))
            with f.loop(0, f.get(variant, Variant.n_guards)) as k:
                guard = f.item(Guard, guards, k)
                value = f.load("i64", f.element(table, "i64", f.get(guard, Guard.place)))
                is_less = f.is_set(f.get(guard, Guard.is_less))
                found = f.choose(is_less, f.test("slt", value, 0), f.is_zero(value), "i1")
                holds = f.test("eq", f.convert("zext", found, "i1"), f.get(guard, Guard.outcome))
                f.go_unless(holds, following)
        ranges = f.at(self, f.get(variant, Variant.ranges))
        refused = f.junction(stem="refused")
        with f.loop(0, f.get(variant, Variant.n_ranges)) as k:
            row = f.item(NumberRange, ranges, k)
            given = f.load("ptr", f.element(arguments, "ptr", f.get(row, NumberRange.argument)))
            place = f.get(row, NumberRange.place)
            number = f.load("i64", f.choose(f.is_zero(place, "ptr"), given, place, "ptr"))
            f.go_when(f.test("slt", number, f.get(row, NumberRange.least)), refused)
            f.go_when(f.test("sgt", number, f.get(row, NumberRange.most)), refused)
        f.ret(variant)
        f.begin(refused)
        f.store("i32", Code.NUMBER.value, refusal)
        f.go(following)
        f.begin(following)
    f.ret("null")


def _write_translate(f: NativeFunction) -> None:
    """What a failed run has reported, as a code; the words are clear again."""
    self, variant = f.parameters
    error = f.at(self, _described(f, Description.error))
    word, position = f.load("i64", error), f.load("i64", f.at(error, 8))
    f.store("i64", 0, error)
    f.store("i64", 0, f.at(error, 8))
    f.put(self, Instance.position, position)
    f.return_when(f.test("eq", word, OUT_OF_MEMORY_WORD), Code.OUT_OF_MEMORY.value)
    number = f.add(f.binary("lshr", word, 32), f.get(variant, Variant.first_reporter))
    reporter = f.item(ReporterRow, "@aj_reporters", number)
    site = f.binary("and", word, 0xFFFFFFFF)
    is_look_up = f.test("ult", site, FAILURE_SITE)
    looked = f.add(f.get(reporter, ReporterRow.first_look_up), f.sub(site, 1))
    failed = f.add(f.get(reporter, ReporterRow.first_failure), f.sub(site, FAILURE_SITE))
    code = f.choose(f.test("ult", site, ACCESS_SITE), f.choose(is_look_up, looked, failed), -1)
    f.ret(f.convert("trunc", code, "i64", "i32"))


def _write_text(f: NativeFunction) -> None:
    """What a code means."""
    code = f.convert("sext", f.parameters[0], "i32")
    count = _described(f, Description.n_texts)
    is_known = f.both(f.test("sge", code, 0), f.test("slt", code, f.add(count, Code.FIRST_OF_STEP.value)))
    place = f.choose(is_known, code, f.add(count, Code.FIRST_OF_STEP.value))
    f.ret(f.at("@aj_text_bytes", f.load("i64", f.element("@aj_texts", "i64", place))))


def _write_position(f: NativeFunction) -> None:
    f.ret(f.get(f.parameters[0], Instance.position))


# -- state in files


def _write_save(f: NativeFunction) -> None:
    """The state as a safetensors file, which appears whole or not at all."""
    self, path = f.parameters
    f.return_when(f.either(f.is_zero(self, "ptr"), f.is_zero(path, "ptr")), Code.NULL_POINTER.value)
    length = f.call(_LENGTH, path)
    temporary = f.call(_ALLOCATE, f.add(length, _SUFFIX_BYTES))
    f.return_when(f.is_zero(temporary, "ptr"), Code.OUT_OF_MEMORY.value)
    f.copy_bytes(temporary, path, length)
    f.copy_bytes(f.at(temporary, length), "@aj_suffix", _SUFFIX_BYTES)
    failed, unopened = f.junction(stem="failed"), f.junction(stem="unopened")
    file = f.call(_OPEN, temporary, "@aj_write_mode")
    f.go_when(f.is_zero(file, "ptr"), unopened)
    unwritten = f.junction(stem="unwritten")
    size = _described(f, Description.header_bytes)
    f.go_when(f.test("ne", f.call(_WRITE, "@aj_state_header", 1, size, file), size), unwritten)
    state = f.at(self, _described(f, Description.state))
    with f.loop(0, _described(f, Description.n_tensors)) as k:
        row = f.item(StateRow, "@aj_state_rows", k)
        size = f.get(row, StateRow.bytes)
        done = f.call(_WRITE, f.at(state, f.get(row, StateRow.offset)), 1, size, file)
        f.go_when(f.test("ne", done, size), unwritten)
    f.go_when(f.is_set(f.call(_CLOSE, file), "i32"), failed)
    f.go_when(f.is_set(f.call(_RENAME, temporary, path), "i32"), failed)
    f.call(_FREE, temporary)
    f.ret(Code.OK.value)
    f.begin(unwritten)
    f.call(_CLOSE, file)
    f.go(failed)
    f.begin(failed)
    f.call(_REMOVE, temporary)
    f.go(unopened)
    f.begin(unopened)
    f.call(_FREE, temporary)
    f.ret(Code.FILE.value)


def _write_load(f: NativeFunction) -> None:
    """State from a file that `save` or another writer has written; a file that does not fit changes nothing."""
    self, path = f.parameters
    f.return_when(f.either(f.is_zero(self, "ptr"), f.is_zero(path, "ptr")), Code.NULL_POINTER.value)
    size = _described(f, Description.header_bytes)
    header = f.call(_ALLOCATE, size)
    f.return_when(f.is_zero(header, "ptr"), Code.OUT_OF_MEMORY.value)
    refused, leave = f.junction("i32", stem="refused"), f.junction("i32", stem="leave")
    file = f.call(_OPEN, path, "@aj_read_mode")
    f.go_when(f.is_zero(file, "ptr"), leave, Code.FILE.value)
    f.go_when(f.is_set(f.call(_SEEK, file, 0, _SEEK_END), "i32"), refused, Code.FILE.value)
    length = f.call(_TELL, file)
    f.go_when(f.test("ne", length, _described(f, Description.file_bytes)), refused, Code.STATE_FILE.value)
    f.call(_SEEK, file, 0, 0)
    f.go_when(f.test("ne", f.call(_READ, header, 1, size, file), size), refused, Code.FILE.value)
    differs = f.is_set(f.call(_COMPARE, header, "@aj_state_header", size), "i32")
    f.go_when(differs, refused, Code.STATE_FILE.value)
    state = f.at(self, _described(f, Description.state))
    with f.loop(0, _described(f, Description.n_tensors)) as k:
        row = f.item(StateRow, "@aj_state_rows", k)
        wanted = f.get(row, StateRow.bytes)
        done = f.call(_READ, f.at(state, f.get(row, StateRow.offset)), 1, wanted, file)
        f.go_when(f.test("ne", done, wanted), refused, Code.FILE.value)
    f.go(refused, Code.OK.value)
    (code,) = f.begin(refused)
    f.call(_CLOSE, file)
    f.go(leave, code)
    (code,) = f.begin(leave)
    f.call(_FREE, header)
    f.ret(code)
