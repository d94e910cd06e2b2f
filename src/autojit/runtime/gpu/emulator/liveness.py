"""Which registers are still read: what a block must keep for later ones."""

from __future__ import annotations

from autojit.runtime.gpu.emulator.ptx_text import Block, Module


def find_live_registers(module: Module) -> None:
    """Resolve calls, then find what each block reads and keeps: liveness, backwards until nothing changes."""
    returns: dict[str, list[int]] = {}
    for block in module.blocks:
        if block.end is not None and block.end.opcode[0] == "call":
            callee = str(block.end.operands[0])
            block.target = module.functions[callee].first
            returns.setdefault(callee, []).append(block.number + 1)
    following = [_following(block, returns, len(module.blocks)) for block in module.blocks]
    reads, defines = _reads_and_defines(module)
    live = list(reads)
    changed = True
    while changed:
        changed = False
        for number in range(len(live) - 1, -1, -1):
            after = 0
            for k in following[number]:
                after |= live[k]
            found = reads[number] | (after & ~defines[number])
            if found != live[number]:
                live[number], changed = found, True
    lasting = 0
    for block in module.blocks:
        block.live_in = live[block.number]
        after = 0
        for k in following[block.number]:
            after |= live[k]
        in_the_end = 0 if block.end is None else _bits(block.end.uses)
        block.keeps = defines[block.number] & (after | in_the_end)
        lasting |= block.live_in | block.keeps
    module.lasting = [register for register in range(len(module.registers)) if lasting >> register & 1]


def _following(block: Block, returns: dict[str, list[int]], count: int) -> list[int]:
    name = "" if block.end is None else block.end.opcode[0]
    onward = [block.number + 1] if block.number + 1 < count else []
    is_certain = block.end is None or block.end.predicate is None
    if name == "brx":
        return list(block.targets)
    if name == "bra":
        return [block.target] if is_certain else [block.target, *onward]
    if name in ("ret", "exit", "trap"):
        back = [] if block.function.is_kernel or name != "ret" else returns.get(block.function.name, [])
        return back if is_certain else [*back, *onward]
    return [block.target] if name == "call" else onward


def _reads_and_defines(module: Module) -> tuple[list[int], list[int]]:
    reads: list[int] = []
    defines: list[int] = []
    for block in module.blocks:
        read: set[int] = set()
        defined: set[int] = set()
        for instruction in block.instructions if block.end is None else [*block.instructions, block.end]:
            read |= instruction.uses - defined
            defined |= instruction.defines
        reads.append(_bits(read))
        defines.append(_bits(defined))
    return reads, defines


def _bits(numbers: frozenset[int] | set[int]) -> int:
    found = 0
    for number in numbers:
        found |= 1 << number
    return found
