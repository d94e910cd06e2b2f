"""What the native interface of a library reads: records of words, codes of errors, the version of all that.

The interface (`interface_ir`) is the same code in every library; what differs is data, and the names under which its
functions are known outside. Offsets are bytes from the beginning of an instance.
"""

from __future__ import annotations

from enum import IntEnum

from autojit.codegen.records import Pointer, Record, Word

ABI_VERSION = 1
"""Counts up when a structure or function of the C interface changes its meaning."""

OUT_OF_MEMORY_WORD = -2
"""In the error word of a step: memory for temporaries of open size was not there."""


class Code(IntEnum):
    """What functions of a library return."""

    OK = 0
    NULL_POINTER = 1
    BUSY = 2
    SIZE = 3
    OUT_OF_MEMORY = 4
    PROCESSOR = 5
    FILE = 6
    STATE_FILE = 7
    THREADS = 8
    NUMBER = 9
    FIRST_OF_STEP = 32


TEXTS = {
    Code.OK: "no error",
    Code.NULL_POINTER: "a pointer is NULL",
    Code.BUSY: "the instance is running in another thread",
    Code.SIZE: "the library holds no step for these sizes: the manifest lists for which it does",
    Code.OUT_OF_MEMORY: "no memory",
    Code.PROCESSOR: "the library was compiled for a processor with other instructions",
    Code.FILE: "a file cannot be read or written",
    Code.STATE_FILE: "the file holds another state: other names, dtypes or shapes, or another order",
    Code.THREADS: "impossible number of threads",
    Code.NUMBER: "a number is outside of the range that the step was captured for",
}


class Instance(Record[int]):
    """The beginning of every instance."""

    mapping: Word  # what was mapped: address and bytes
    mapping_bytes: Word
    is_busy: Word
    position: Word  # of the element that the last failed run was refused for


class Description(Record[int]):
    """A library's numbers."""

    instance_bytes: Word
    words_bytes: Word  # of it that are copied
    n_of_instance: Word  # words to which its address is added
    n_of_library: Word  # and to which the library's is
    state: Word  # where state begins
    state_bytes: Word
    error: Word  # where the step's error words are
    n_arguments: Word
    n_results: Word
    n_sizes: Word
    n_counted: Word
    n_variants: Word
    n_tensors: Word  # of the state
    state_pointers: Word  # where their addresses are
    header_bytes: Word  # of a file with the state
    file_bytes: Word
    n_tapes: Word
    n_reporters: Word
    n_texts: Word  # of errors that only this step has
    most_threads: Word
    leaf1_ecx: Word  # bits that CPUID must have
    leaf7_ebx: Word
    leaf7_ecx: Word
    leaf7_edx: Word
    leaf7_1_eax: Word
    extended_ecx: Word
    xcr0: Word


class Variant(Record[int]):
    """One captured step of a library: which calls it is for, and where its words are."""

    table: Word  # of the addresses of arguments and results
    first_argument: Word  # bytes in the table
    first_result: Word
    sizes: Word  # of the size program; 0 where it has none
    n_symbols: Word
    symbols: Word  # which sizes of the call they are; offset
    n_counted: Word
    before: Word  # the symbols in the call before
    rooms: Word  # where the capacities of memory of open size are: offsets of words, the address follows
    n_rooms: Word
    guard_program: Word  # 0 where nothing is asked
    guard_table: Word
    guards: Word
    n_guards: Word
    ranges: Word
    n_ranges: Word
    copies: Word  # what becomes state when a run has succeeded
    n_copies: Word
    first_reporter: Word  # of its kernels that report, among those of all steps


class Guard(Record[int]):
    """A condition on the sizes of a call: ``table[place] relation 0`` is ``outcome``."""

    place: Word
    is_less: Word  # 1: "<", 0: "=="
    outcome: Word


class NumberRange(Record[int]):
    """A number, and the range of its 64 bits."""

    argument: Word  # which argument it is
    place: Pointer  # where it is, if it is state; else 0
    least: Word
    most: Word


class Copy(Record[int]):
    """A result that becomes state: its entry of the table, where it goes, how many bytes it has."""

    source: Word
    target: Pointer
    bytes: Word


class StateRow(Record[int]):
    """A tensor of the state in the order of a file: bytes from where state begins."""

    offset: Word
    bytes: Word


class ReporterRow(Record[int]):
    """The codes of the errors that a kernel reports."""

    first_look_up: Word
    first_failure: Word
