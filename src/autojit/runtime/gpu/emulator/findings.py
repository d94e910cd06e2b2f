"""What the emulated device finds wrong with a kernel: one exception, with all that is known of the place."""

from __future__ import annotations

from typing import Literal

from autojit.core.errors import CompileError, DeviceError

FindingKind = Literal[
    "out of bounds",
    "use after release",
    "misaligned",
    "uninitialised read",
    "race within a block",
    "race between blocks",
    "read-only memory written",
    "divergent barrier",
    "lane missing at a warp operation",
    "deadlock",
    "missing edge",
    "missing wait",
    "endless body",
    "early start",
    "wrong handle",
    "trap",
]

# CUresult of the kinds that hardware would notice itself; it goes on, or fails somehow, after the others.
RESULT_CODES: dict[FindingKind, int] = {
    "out of bounds": 700,
    "use after release": 700,
    "misaligned": 716,
    "deadlock": 702,
}
LAUNCH_FAILED = 719


class EmulatedFault(DeviceError):
    """A kernel did what it must not do.

    Attributes:
        kind: what is wrong.
        function: number of the kernel, as `EmulatedDriver.function` gave it; 0 outside kernels.
        kernel: its name.
        block: of the thread, counted through the grid with x fastest; None where no single thread is to blame.
        thread: within the block, counted likewise.
        instruction: text of the instruction.
        address: where it read or wrote.
    """

    general_fix = "kernels are autojit's own: report it, with what show('ptx') prints"
    fix_of_waits = "let one stream wait for the other: stream.wait_stream(other), or record an event and wait for it"

    def __init__(
        self,
        kind: FindingKind,
        detail: str = "",
        *,
        kernel: str = "",
        function: int = 0,
        block: int | None = None,
        thread: int | None = None,
        instruction: str = "",
        address: int | None = None,
    ) -> None:
        self.kind: FindingKind = kind
        self.function, self.kernel = function, kernel
        self.block, self.thread = block, thread
        self.instruction, self.address = instruction, address
        known = {
            "kernel": kernel or None,
            "block": block,
            "thread": thread,
            "instruction": instruction or None,
            "address": None if address is None else f"{address:#x}",
        }
        facts = {name: value for name, value in known.items() if value is not None}
        text = f"emulated device: {kind}{': ' if detail else ''}{detail}"
        super().__init__(text, facts=facts, fix=self.fix_of_waits if kind == "missing wait" else "")

    @property
    def result_code(self) -> int:
        """The CUresult that stands for it."""
        return RESULT_CODES.get(self.kind, LAUNCH_FAILED)


class UnknownInstructionError(CompileError):
    """A PTX text has an instruction, or a form of one, that the emulated device does not know."""

    def __init__(self, instruction: str, why: str = "") -> None:
        super().__init__(
            "emulated device: unknown instruction",
            facts={"instruction": instruction, **({"why": why} if why else {})},
            fix="write the kernel without it, or add it to autojit.runtime.gpu.emulator.instructions",
        )
