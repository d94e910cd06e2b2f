"""The plan of a step written into the image of an instance: `runtime.plan` writes it, this says where things are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from autojit.codegen.cpu.plan.records import TapeWords
from autojit.codegen.lowered import Callback, Reporter, Tape, Word
from autojit.core.device import Device
from autojit.core.errors import UsageError
from autojit.core.foreign_functions import ForeignFunction
from autojit.core.types import TensorType
from autojit.runtime.library.instance_image import Address, InstanceImage
from autojit.runtime.library.library_code import LibraryCode
from autojit.runtime.plan_memory import PlanMemory
from autojit.runtime.size_program import SizeProgram

ERROR_WORDS = 8  # those of `Failures`, whole cache lines


class ImagedMemory(PlanMemory):
    """Words in an image instead of this process. Error words are those of the whole instance.

    Args:
        error: where the error words are.
        workers: threads that scratch is laid out for.
        tapes: where the words of tapes are, which grows.
    """

    def __init__(
        self,
        reporters: Sequence[Reporter],
        image: InstanceImage,
        code: LibraryCode,
        error: Address,
        workers: int,
        tapes: list[Address],
    ) -> None:
        super().__init__(reporters)
        self.image = image
        self.code = code
        self._error = error
        self._workers = workers
        self._tapes = tapes
        self._known: dict[Word | Tape, Address] = {}

    @property
    def workers(self) -> int:
        return self._workers

    @property
    def error(self) -> int:
        return self._error

    def zeros(self, count: int) -> tuple[Any, int]:
        return self.image.zeros(count)

    def arena(self, size_bytes: int) -> Any:
        return SimpleNamespace(address=self.image.arena(size_bytes), size_bytes=size_bytes)

    def size_program(
        self,
        inputs: Sequence[TensorType],
        counted: Sequence[str],
        caught: Callable[[BaseException], None],
        make_arena: Callable[[Device, int], Any],
    ) -> SizeProgram:
        return ImagedSizes(self, inputs, counted)

    def builtin(self, name: str) -> int:
        return self.code.builtin(name)

    def kernel(self, text: str, symbol: str) -> int:
        return self.code.kernel(text, symbol)

    def group(self, name: str) -> int:
        raise UsageError(
            f"export: the step works together with the processes of group {name!r}, which a library has not"
        )

    def foreign(self, function: ForeignFunction) -> int:
        if function.types:
            raise UsageError(f"export: {function.name} is a function of NumPy, which a library does without")
        return self.code.stub(function.name)

    def call(self, callback: Callback, context: int, sizes: SizeProgram | None) -> int:
        raise UsageError(f"export: {callback.kernel.node.op.shown_name} is computed by Python")

    def word(self, symbol: Word) -> int:
        found = self._known.get(symbol)
        if found is None:
            found = self._known[symbol] = self.image.words([symbol.initial])[1]
        return found

    def tape(self, symbol: Tape) -> int:
        found = self._known.get(symbol)
        if found is None:
            make_room = self.code.function("aj_export_make_room")
            words = TapeWords(address=0, capacity=0, record_bytes=symbol.record_bytes, make_room=make_room, answers=0)
            found = self._known[symbol] = self.image.words([*words, 0, self._error])[1]
            self._tapes.append(found)
        return found

    def watch_signals(self) -> bool:
        return False


class ImagedSizes(SizeProgram):
    """A size program in an image. The word before its table says where errors are reported."""

    def __init__(self, memory: ImagedMemory, inputs: Sequence[TensorType], counted: Sequence[str]) -> None:
        self._memory_of_plan = memory
        super().__init__(inputs, counted, _never)

    def _words(self, values: Sequence[int]) -> tuple[Any, int]:
        return self._memory_of_plan.image.words(values)

    def _table(self, values: Sequence[int]) -> tuple[Any, int]:
        block, address = self._words([self._memory_of_plan.error, *values])
        self.place = address + 8
        return block, self.place

    def _set(self, address: int, value: int) -> None:
        self._memory_of_plan.image.put_at(address, value)

    def _grower(self) -> int:
        return self._memory_of_plan.code.function("aj_export_grow")

    @property
    def before(self) -> int:
        """Where the symbols of the call before are."""
        return self._before

    def rooms(self) -> list[int]:
        """Where the capacities of growing memory are; its address is in the word behind each."""
        return [self.place + 8 * capacity for capacity, _ in self._memory.values()]


def _never(error: BaseException) -> None:
    raise error
