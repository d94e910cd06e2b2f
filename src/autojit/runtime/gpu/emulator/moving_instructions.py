"""Instructions that move values: between registers, into and out of pairs, from type to type."""

from __future__ import annotations

from autojit.runtime.gpu.emulator.block_code import Handler, Translator
from autojit.runtime.gpu.emulator.ptx_declarations import KINDS
from autojit.runtime.gpu.emulator.ptx_text import Instruction, Operand

_WHOLE = {"rni": "np.rint", "rzi": "np.trunc", "rmi": "np.floor", "rpi": "np.ceil"}


def _move(t: Translator, instruction: Instruction) -> None:
    target, source = instruction.operands
    kind = KINDS[instruction.opcode[-1]].replace("bf", "u2")
    if isinstance(target, tuple):
        _unpack(t, target, t.get(source, f"u{kind[1]}"), int(kind[1]))
    elif isinstance(source, tuple):
        width = int(kind[1])
        part = width // len(source)
        terms = []
        for k, operand in enumerate(source):
            value = t.emit(f"{t.get(operand, f'u{part}')}.astype('u{width}')")
            terms.append(f"({value} << np.uint{8 * width}({8 * part * k}))")
        t.put(target, f"u{width}", f"{' | '.join(terms)} | np.zeros(n, 'u{width}')")
    else:
        t.put(target, kind, t.get(source, kind), False)


def _unpack(t: Translator, targets: tuple[Operand, ...], value: str, width: int) -> None:
    part = width // len(targets)
    for k, target in enumerate(targets):
        if target != "_":
            t.put(target, f"u{part}", f"({value} >> np.uint{8 * width}({8 * part * k})).astype('u{part}')")


def _pass(t: Translator, instruction: Instruction) -> None:
    """An argument or a result, from register to register."""
    targets, sources = instruction.operands
    assert isinstance(targets, tuple) and isinstance(sources, tuple)
    kind = KINDS[instruction.opcode[-1]].replace("bf", "u2")
    for target, source in zip(targets, sources):
        t.put(target, kind, t.get(source, kind), False)


def _convert(t: Translator, instruction: Instruction) -> None:
    opcode, operands = instruction.opcode, instruction.operands
    to, of = opcode[-2], opcode[-1]
    modifiers = frozenset(opcode[1:-2])
    rounding = next((word for word in ("rn", "rz", "rm", "rp") if word in modifiers), "rn")
    if to == "tf32":
        bits = f"c.to_tensor_float({t.get(operands[1], 'f4')}, {'rna' in modifiers})"
        t.put(operands[0], "u4", bits)
        return
    if to.endswith("x2"):
        _convert_pair(t, instruction, KINDS[to.removesuffix("x2")], rounding)
        return
    value = t.get(operands[1], KINDS[of])
    if value in t.constants:
        value = t.emit(f"np.full(n, {value})")
    if "ftz" in modifiers and of == "f32":
        value = t.emit(f"a.flushed({value})")
    _convert_one(t, operands[0], value, KINDS[to], KINDS[of], modifiers, rounding)


def _convert_one(
    t: Translator, target: Operand, value: str, to: str, of: str, modifiers: frozenset[str], rounding: str
) -> None:
    whole = next((name for word, name in _WHOLE.items() if word in modifiers), "")
    is_saturated = "sat" in modifiers
    from_float, to_float = of[0] in "fb", to[0] in "fb"
    if from_float and not to_float:
        t.put(target, to, f"c.to_integer({whole}({value}), {to!r})")
    elif not from_float and not to_float:
        t.put(target, to, f"c.clipped({value}, {to!r})" if is_saturated else f"{value}.astype({to!r})")
    elif not from_float:
        if to == "bf":
            t.put(target, "u2", f"c.to_bfloat({value}.astype('f8'), {rounding!r})")
        else:
            t.put(target, to, f"c.from_integer({value}, {to!r}, {rounding!r})")
    else:
        value = t.emit(f"{whole}({value})") if whole else value
        value = t.emit(f"np.maximum({value}, 0)") if "relu" in modifiers else value
        value = t.emit(f"a.saturated({value})") if is_saturated else value
        if to == "bf":
            t.put(target, "u2", f"c.to_bfloat({value}, {rounding!r})")
        elif (of != "bf" and int(to[1]) < int(of[1])) or (of == "bf" and to == "f2"):
            narrow = t.emit(f"c.narrowed({value}, {to!r}, {rounding!r})")
            t.put(target, to, f"a.flushed({narrow})" if "ftz" in modifiers and to == "f4" else f"{narrow}")
        else:
            t.put(target, to, f"{value}.astype({to!r})")


def _convert_pair(t: Translator, instruction: Instruction, kind: str, rounding: str) -> None:
    """Two floats into 32 bits, the first in the upper half."""
    halves = []
    for operand in instruction.operands[1:3]:
        value = t.get(operand, KINDS[instruction.opcode[-1]])
        if value in t.constants:
            value = t.emit(f"np.full(n, {value})")
        if "relu" in instruction.opcode:
            value = t.emit(f"np.maximum({value}, 0)")
        if kind == "bf":
            halves.append(t.emit(f"c.to_bfloat({value}, {rounding!r}).astype('u4')"))
        else:
            halves.append(t.emit(f"c.narrowed({value}, 'f2', {rounding!r}).view('u2').astype('u4')"))
    t.put(instruction.operands[0], "u4", f"({halves[0]} << np.uint32(16)) | {halves[1]}")


MOVING_HANDLERS: dict[str, Handler] = {"cvt": _convert, "mov": _move, "pass": _pass}
