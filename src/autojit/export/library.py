"""A library of one function: image, code and tables put together, and the texts that describe it.

How to read: `Library` collects; `content` is the shared object, `manifest` what it is as data.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from autojit.codegen.records import Record
from autojit.export.captured_parts import Parts
from autojit.export.dimensions import Dims
from autojit.export.names import names_of_arrays
from autojit.export.signature import Field, Signature, postfix, signature_of
from autojit.export.step_state import StepState
from autojit.export.variants import MOST_THREADS, VariantWriter, Written
from autojit.jit.function import JitFunction
from autojit.runtime.library.error_texts import ErrorTexts
from autojit.runtime.library.instance_image import InstanceImage
from autojit.runtime.library.interface import ABI_VERSION, TEXTS, Code, Description, Instance, StateRow
from autojit.runtime.library.interface_ir import FUNCTIONS
from autojit.runtime.library.library_code import LibraryCode
from autojit.runtime.library.plan_writer import ERROR_WORDS
from autojit.runtime.library.processor import described, wanted_bits
from autojit.runtime.library.shared_object import shared_object
from autojit.version import __version__

MANIFEST = "autojit_manifest"
"""A name that every library has: who loads one finds all others by what it returns."""


class Library:
    """A function's steps as a library.

    Args:
        name: what the names of its functions begin with.
        function: whose steps they are; state is named as it reaches it.
        steps: for different sizes, the most general first.
        dims: how the user calls open sizes.
    """

    def __init__(self, name: str, function: JitFunction, steps: Sequence[Parts], dims: Dims) -> None:
        self.name = name
        self.function = function
        self.steps = steps
        self.signature: Signature = signature_of(steps, dims)
        self.image = InstanceImage()
        self.image.words([0] * len(Instance.fields))
        self.error = self.image.zeros(ERROR_WORDS)[1]
        self.state = StepState(self.image, names_of_arrays(function))
        self.code = LibraryCode()
        self.errors = ErrorTexts()
        self.writer = VariantWriter(self.image, self.code, self.error, self.state, self.signature.sizes)
        self.written: list[Written] = []
        for parts in steps:
            first = self.errors.add(parts.step.segment.compiled.lowered.reporters)
            self.written.append(self.writer.write(parts, first))
        self.pointers = self.image.words(tensor.place for tensor in self.state.tensors)[1]

    def content(self) -> Iterator[bytes | memoryview]:
        """The bytes of the shared object, piece by piece: state may be large."""
        linker, finished = self.code.linker, self.image.finish()
        header, file_bytes = self.state.header()
        kept = self.state.kept()
        places, texts = self.errors.words()
        numbers = Description(
            instance_bytes=finished.size_bytes,
            words_bytes=len(finished.words),
            n_of_instance=len(finished.of_instance) // 8,
            n_of_library=len(finished.of_library) // 8,
            state=finished.state,
            state_bytes=self.state.size_bytes,
            error=int(self.error),
            n_arguments=len(self.signature.arguments),
            n_results=len(self.signature.results),
            n_sizes=len(self.signature.sizes),
            n_counted=len(self.signature.counted),
            n_variants=len(self.written),
            n_tensors=len(kept),
            state_pointers=int(self.pointers),
            header_bytes=len(header),
            file_bytes=file_bytes,
            n_tapes=len(self.writer.tapes),
            n_reporters=len(self.errors.rows),
            n_texts=len(self.errors.texts),
            most_threads=MOST_THREADS,
            **wanted_bits(),
        )
        define = linker.define
        define("aj_description", _bytes([numbers]))
        define("aj_words", finished.words)
        define("aj_of_instance", finished.of_instance)
        define("aj_of_library", finished.of_library)
        define("aj_variants", _bytes(written.words for written in self.written))
        define("aj_state_rows", _bytes(StateRow(offset=int(t.place), bytes=t.size_bytes) for t in kept))
        define("aj_state_header", header)
        define("aj_tapes", _words(map(int, self.writer.tapes)))
        define("aj_reporters", _bytes(self.errors.rows))
        define("aj_texts", _words(places))
        define("aj_text_bytes", texts)
        define("aj_manifest", json.dumps(self.manifest()).encode() + b"\0")
        linker.define_last("aj_initial_state", self.state.size_bytes)
        linker.define_beginning("aj_image")
        exported = {f"{self.name}_{name}": symbol for name, symbol in FUNCTIONS.items()}
        exported[MANIFEST] = FUNCTIONS["manifest"]
        before, behind = shared_object(linker, exported, f"{self.name}.so")
        yield before
        yield from self.state.initial()
        yield behind

    def manifest(self) -> dict[str, Any]:
        """What the library is: names, dtypes, shapes, codes of errors, what it was compiled for."""
        signature = self.signature
        return {
            "name": self.name,
            "abi_version": ABI_VERSION,
            "made_by": f"autojit {__version__}",
            "target": described(),
            "most_threads": MOST_THREADS,
            "arguments": [self._field(field) for field in signature.arguments],
            "leaves": signature.leaves,
            "sizes": [{"name": size.name, "argument": size.argument, "axis": size.axis} for size in signature.sizes],
            "results": [self._field(field) for field in signature.results],
            "counted": signature.counted,
            "outputs": signature.outputs,
            "returns": signature.returns,
            "state": [
                {
                    "name": t.name,
                    "field": t.field,
                    "dtype": t.dtype.name,
                    "shape": list(t.shape),
                    "is_output": t.is_output,
                }
                for t in self.state.tensors
            ],
            "steps": [written.conditions for written in self.written],
            "errors": {
                **{str(code.value): text for code, text in TEXTS.items()},
                **{str(Code.FIRST_OF_STEP.value + k): text for k, text in enumerate(self.errors.texts)},
            },
        }

    def _field(self, field: Field) -> dict[str, Any]:
        renamed = self.writer.renamed(self.steps[0])
        return {
            "name": field.name,
            "field": field.field,
            "dtype": field.dtype.name,
            "shape": [postfix(extent, renamed) for extent in field.shape],
            "order": None if field.order is None else list(field.order),
            "number": field.number,
            "most": None if field.most is None else postfix(field.most, renamed),
        }


def _bytes(records: Iterable[Record[int]]) -> bytes:
    return _words(word for record in records for word in record)


def _words(values: Iterable[int]) -> bytes:
    return b"".join((int(value) & 0xFFFFFFFFFFFFFFFF).to_bytes(8, "little") for value in values)
