"""Instructions that read, write or order memory, or ask about addresses."""

from __future__ import annotations

import numpy as np

from autojit.runtime.gpu.emulator.block_code import (
    LOCAL_WINDOW,
    PARAMETER_WINDOW,
    SHARED_WINDOW,
    Handler,
    Translator,
)
from autojit.runtime.gpu.emulator.findings import UnknownInstructionError
from autojit.runtime.gpu.emulator.ptx_declarations import KINDS
from autojit.runtime.gpu.emulator.ptx_text import Address, Instruction, Operand

_SPACES = ("param", "global", "shared", "local", "const")
_WINDOWS = {"shared": SHARED_WINDOW, "local": LOCAL_WINDOW, "param": PARAMETER_WINDOW}
_ATOMIC = frozenset({"add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec"})


def _space(opcode: tuple[str, ...]) -> str:
    for word in opcode[1:]:
        space = word.partition("::")[0]
        if space in _SPACES:
            return space
    return "generic"


def _bits_kind(opcode: tuple[str, ...]) -> str:
    return KINDS[opcode[-1]].replace("bf", "u2")


def _order(opcode: tuple[str, ...]) -> str:
    """How an access orders others: by acquire or release, not at all but without tearing, or nothing of that."""
    for word in ("acquire", "release", "relaxed", "volatile"):
        if word in opcode:
            return word
    return "constant" if "nc" in opcode else ""


def _parts(operand: Operand) -> tuple[Operand, ...]:
    return operand if isinstance(operand, tuple) else (operand,)


def _lanes(t: Translator) -> str:
    return "M.lanes(ix)" if t.mask is None else f"M.lanes(ix, {t.mask})"


def _load(t: Translator, instruction: Instruction) -> None:
    opcode = instruction.opcode
    kind, targets = _bits_kind(opcode), _parts(instruction.operands[0])
    place = instruction.operands[1]
    space = _space(opcode)
    is_fixed = isinstance(place, Address) and isinstance(place.base, str)
    if space == "param" and is_fixed and isinstance(place, Address) and place.base in t.block.function.parameters:
        begin = t.block.function.parameters[str(place.base)][0] + place.offset
        for k, target in enumerate(targets):
            t.put(target, kind, f"M.parameter({t.fixed(begin + k * int(kind[1]))}, {kind!r}, n)")
        return
    address = t.address(place)
    call = f"M.load({_lanes(t)}, {space!r}, {address}, {kind!r}, {len(targets)}, {t.fixed(instruction.number)}"
    call += f", {_order(opcode)!r})"
    if len(targets) == 1:
        t.put(targets[0], kind, f"{call}[0]")
        return
    values = t.emit(call, False)
    for k, target in enumerate(targets):
        if target != "_":
            t.put(target, kind, f"{values}[{k}]")


def _store(t: Translator, instruction: Instruction) -> None:
    opcode = instruction.opcode
    kind, sources = _bits_kind(opcode), _parts(instruction.operands[1])
    values = ", ".join(t.get(source, kind) for source in sources)
    call = f"M.store({_lanes(t)}, {_space(opcode)!r}, {t.address(instruction.operands[0])}, ({values},), {kind!r}"
    t.statement(f"{call}, {t.fixed(instruction.number)}, {_order(opcode)!r})")


def _atomic(t: Translator, instruction: Instruction) -> None:
    opcode, operands = instruction.opcode, list(instruction.operands)
    target = operands.pop(0) if opcode[0] == "atom" else "_"
    operation = next((word for word in opcode if word in _ATOMIC), "")
    kind = KINDS[opcode[-1].removesuffix("x2")]
    count = len(_parts(operands[1]))
    packed = 2 if opcode[-1].endswith("x2") else 1
    if not operation or (count > 1 and target != "_"):
        raise UnknownInstructionError(instruction.text, "an atomic of this form")
    stored = kind if kind != "bf" else "u2"
    word = f"u{packed * int(stored[1])}"
    values = ", ".join(f"({', '.join(t.get(part, word) for part in _parts(operand))},)" for operand in operands[1:])
    how = f"{operation!r}, {kind!r}, {packed}"
    order = next((word for word in ("acq_rel", "acquire", "release", "relaxed") if word in opcode), "relaxed")
    call = f"M.atomic({_lanes(t)}, {_space(opcode)!r}, {t.address(operands[0])}, ({values},), {how}"
    call += f", {t.fixed(instruction.number)}, {order!r})"
    if target == "_":
        t.statement(call)
    else:
        t.put(target, word, call)


def _copy(t: Translator, instruction: Instruction) -> None:
    """``cp.async``: what is copied is there when its group was waited for."""
    opcode, operands = instruction.opcode, instruction.operands
    if "bulk" in opcode or opcode[1] != "async" or "mbarrier" in opcode:
        raise UnknownInstructionError(instruction.text)
    if "commit_group" in opcode:
        t.statement("M.copies.commit(ix)")
    elif "wait_group" in opcode:
        t.statement(f"M.copies.wait(ix, {int(str(operands[0]), 0)})")
    elif "wait_all" in opcode:
        t.statement("M.copies.commit(ix); M.copies.wait(ix, 0)")
    else:
        size = int(str(operands[2]), 0)
        filled = t.get(operands[3], "u4") if len(operands) > 3 else "None"
        places = f"{t.address(operands[0])}, {t.address(operands[1])}"
        t.statement(f"M.copies.start({_lanes(t)}, {places}, {size}, {filled}, {t.fixed(instruction.number)})")


def _to_space(t: Translator, instruction: Instruction) -> None:
    """Between an address in its own space and a generic one."""
    window = _WINDOWS.get(_space(instruction.opcode), 0)
    address = t.get(instruction.operands[1], "u8")
    if window == 0:
        t.put(instruction.operands[0], "u8", address, False)
        return
    constant = t.constant(np.uint64(window))
    sign = "-" if "to" in instruction.opcode else "+"
    if address in t.constants:
        address = t.emit(f"np.full(n, {address})")
    t.put(instruction.operands[0], "u8", f"{address} {sign} {constant}")


def _is_in_space(t: Translator, instruction: Instruction) -> None:
    address = t.get(instruction.operands[1], "u8")
    window = np.uint64(_WINDOWS.get(_space(instruction.opcode), 0))
    t.put(instruction.operands[0], "?", f"({address} >> np.uint64(56)) == np.uint64({window >> np.uint64(56)})")


def _fence(t: Translator, instruction: Instruction) -> None:
    t.statement(f"M.fence(ix, {'cta' in instruction.opcode})")


def _active(t: Translator, instruction: Instruction) -> None:
    t.put(instruction.operands[0], "u4", "W.active(ix)")


MEMORY_HANDLERS: dict[str, Handler] = {
    "activemask": _active,
    "atom": _atomic,
    "cp": _copy,
    "cvta": _to_space,
    "fence": _fence,
    "isspacep": _is_in_space,
    "ld": _load,
    "ldu": _load,
    "membar": _fence,
    "red": _atomic,
    "st": _store,
}
