"""The instruction set: what each instruction is in NumPy, as text over variables.

A handler writes one instruction of a block. What moves or converts values is in `moving_instructions`, what reads or
writes memory in `memory_instructions`, what a warp does together in `warp_operations`; jumps and barriers are the
machine's. An unknown instruction, or form of one, is an error
that names it.
"""

from __future__ import annotations

from collections.abc import Mapping

from autojit.runtime.gpu.emulator.block_code import BlockFunction, Handler, Translator
from autojit.runtime.gpu.emulator.findings import UnknownInstructionError
from autojit.runtime.gpu.emulator.memory_instructions import MEMORY_HANDLERS
from autojit.runtime.gpu.emulator.moving_instructions import MOVING_HANDLERS
from autojit.runtime.gpu.emulator.ptx_declarations import KINDS
from autojit.runtime.gpu.emulator.ptx_text import ENDS, SET_CONDITION, Block, Instruction, Module, Operand

_DIRECTED = frozenset({"rz", "rm", "rp", "rs"})
_COMPARISONS = {
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "lo": "<",
    "ls": "<=",
    "hi": ">",
    "hs": ">=",
}


def function_of(module: Module, block: Block) -> BlockFunction:
    """The Python function of a block."""
    return Translator(module, block, HANDLERS).function()


def refuse_unknown(module: Module) -> None:
    """Look at the name of every instruction; what forms of it are known shows when its block is first run.

    Raises:
        UnknownInstructionError: there is one that is not known.
    """
    for instruction in module.instructions:
        if instruction.opcode[0] not in HANDLERS and instruction.opcode[0] not in ENDS:
            raise UnknownInstructionError(instruction.text)


def _refuse_roundings(instruction: Instruction) -> None:
    if not _DIRECTED.isdisjoint(instruction.opcode):
        raise UnknownInstructionError(instruction.text, "a directed rounding")


def _typed(t: Translator, instruction: Instruction, template: str, count: int, *, wraps: bool = False) -> None:
    """An instruction whose operands and result have the type at its end, two of them where they are packed.

    ``wraps``: the bits of the result are the same with and without sign, so that registers need no other view.
    """
    opcode = instruction.opcode
    _refuse_roundings(instruction)
    packed = opcode[-1].endswith("x2")
    kind = KINDS[opcode[-1].removesuffix("x2")]
    if wraps:
        kind = kind.replace("i", "u")
    operands = instruction.operands[1 : 1 + count]
    if packed:
        _packed(t, instruction, kind, template, operands)
        return
    values = [t.get(operand, kind) for operand in operands]
    if "ftz" in opcode and kind == "f4":
        values = [t.emit(f"a.flushed({value})") for value in values]
    expression = template.format(*values)
    if all(value in t.constants for value in values):
        expression = f"np.full(n, {expression})"
    if "sat" in opcode and kind[0] in "fb":
        expression = f"a.saturated({expression})"
    if "relu" in opcode:
        expression = f"np.maximum({expression}, 0)"
    if "ftz" in opcode and kind == "f4":
        expression = f"a.flushed({expression})"
    t.put(instruction.operands[0], kind, expression)


def _packed(t: Translator, instruction: Instruction, kind: str, template: str, operands: tuple[Operand, ...]) -> None:
    """Two narrow floats in 32 bits: twice as many lanes."""
    values: list[str] = []
    for operand in operands:
        bits = t.get(operand, "u4")
        if bits in t.constants:
            bits = t.emit(f"np.full(n, {bits})")
        values.append(t.emit(f"c.widened({bits}.view('u2'))" if kind == "bf" else f"{bits}.view('f2')", False))
    result = template.format(*values)
    result = f"c.to_bfloat({result})" if kind == "bf" else result
    t.put(instruction.operands[0], "u4", f"np.ascontiguousarray({result}).view('u4')")


def _simple(template: str, count: int, floats: str = "") -> Handler:
    """A handler of one template, with another for floats."""

    def handler(t: Translator, instruction: Instruction) -> None:
        kind = KINDS.get(instruction.opcode[-1].removesuffix("x2"), "")
        _typed(t, instruction, floats if floats and kind[0] in "fb" else template, count)

    return handler


def _sum(sign: str, clipped: str) -> Handler:
    """Sums and differences: wrapped, clipped, with a carry out."""

    def handler(t: Translator, instruction: Instruction) -> None:
        opcode = instruction.opcode
        kind = KINDS.get(opcode[-1], "")
        is_clipped = "sat" in opcode and kind == "i4"
        if "cc" in opcode or opcode[0] in ("addc", "subc"):
            _with_carry(t, instruction, sign)
            return
        _typed(t, instruction, clipped if is_clipped else f"{{0}} {sign} {{1}}", 2, wraps=not is_clipped)

    return handler


def _with_carry(t: Translator, instruction: Instruction, sign: str) -> None:
    """A part of a longer number: the carry goes from one instruction to the next."""
    opcode = instruction.opcode
    kind = KINDS[opcode[-1]].replace("i", "u")
    carry = t.module.passed("", "carry", 0, "?")
    x, y = (t.get(operand, kind) for operand in instruction.operands[1:3])
    given = f"{t.get(carry, '?')}.astype({kind!r})" if opcode[0][-1] == "c" else f"np.zeros(n, {kind!r})"
    before = t.emit(given)
    total = t.emit(f"{x} {sign} {y}")
    result = t.emit(f"{total} {sign} {before}")
    out = f"({total} < {x}) | ({result} < {total})" if sign == "+" else f"({x} < {y}) | ({total} < {before})"
    overflow = t.emit(out)
    t.put(instruction.operands[0], kind, result)
    if "cc" in opcode:
        t.put(carry, "?", overflow, False)


def _multiply(t: Translator, instruction: Instruction) -> None:
    _product(t, instruction, None)


def _multiply_add(t: Translator, instruction: Instruction) -> None:
    if KINDS[instruction.opcode[-1]][0] == "f":
        _fused(t, instruction)
        return
    _product(t, instruction, instruction.operands[3])


def _product(t: Translator, instruction: Instruction, addend: Operand | None) -> None:
    opcode = instruction.opcode
    kind = KINDS[opcode[-1].removesuffix("x2")]
    if "wide" not in opcode:
        product = "a.high_half({0}, {1})" if "hi" in opcode else "{0} * {1}"
        count = 2 if addend is None else 3
        _typed(t, instruction, product if addend is None else product + " + {2}", count, wraps="hi" not in opcode)
        return
    wide = f"{kind[0]}{2 * int(kind[1])}"
    x, y = (t.get(operand, kind) for operand in instruction.operands[1:3])
    product = f"{x}.astype({wide!r}) * {y}.astype({wide!r})"
    if addend is not None:
        product += f" + {t.get(addend, wide)}"
    t.put(instruction.operands[0], wide, product)


def _fused(t: Translator, instruction: Instruction) -> None:
    kind = KINDS[instruction.opcode[-1].removesuffix("x2")]
    name = {"f2": "fused_half", "bf": "fused_bfloat"}.get(kind, "fused")
    _typed(t, instruction, f"f.{name}({{0}}, {{1}}, {{2}})", 3)


def _extremum(floats: str, floats_or_nan: str, integers: str) -> Handler:
    def handler(t: Translator, instruction: Instruction) -> None:
        if "xorsign" in instruction.opcode or len(instruction.operands) != 3:
            raise UnknownInstructionError(instruction.text)
        kind = KINDS[instruction.opcode[-1].removesuffix("x2")]
        name = integers if kind[0] in "ui" else floats_or_nan if "NaN" in instruction.opcode else floats
        _typed(t, instruction, f"{name}({{0}}, {{1}})", 2)

    return handler


def _shift(name: str) -> Handler:
    def handler(t: Translator, instruction: Instruction) -> None:
        kind = KINDS[instruction.opcode[-1]]
        value, count = t.get(instruction.operands[1], kind), t.get(instruction.operands[2], "u4")
        t.put(instruction.operands[0], kind, f"a.{name}({value}, {count})")

    return handler


def _funnel(t: Translator, instruction: Instruction) -> None:
    low, high, count = (t.get(operand, "u4") for operand in instruction.operands[1:4])
    opcode = instruction.opcode
    t.put(instruction.operands[0], "u4", f"a.funnel({low}, {high}, {count}, {opcode[1] == 'l'}, {'wrap' in opcode})")


def _field(t: Translator, instruction: Instruction) -> None:
    kind = KINDS[instruction.opcode[-1]]
    value = t.get(instruction.operands[1], kind)
    position, length = (t.get(operand, "u4") for operand in instruction.operands[2:4])
    t.put(instruction.operands[0], kind, f"a.field({value}, {position}, {length})")


def _insert(t: Translator, instruction: Instruction) -> None:
    kind = KINDS[instruction.opcode[-1]].replace("i", "u")
    x, y = (t.get(operand, kind) for operand in instruction.operands[1:3])
    position, length = (t.get(operand, "u4") for operand in instruction.operands[3:5])
    t.put(instruction.operands[0], kind, f"a.inserted({x}, {y}, {position}, {length})")


def _permute(t: Translator, instruction: Instruction) -> None:
    if instruction.opcode[1:] != ("b32",):
        raise UnknownInstructionError(instruction.text, "a mode of prmt")
    x, y, selector = (t.get(operand, "u4") for operand in instruction.operands[1:4])
    t.put(instruction.operands[0], "u4", f"a.permuted({x}, {y}, {selector})")


def _any_logic(t: Translator, instruction: Instruction) -> None:
    x, y, z = (t.get(operand, "u4") for operand in instruction.operands[1:4])
    table = int(str(instruction.operands[4]), 0)
    t.put(instruction.operands[0], "u4", f"a.any_logic({x}, {y}, {z}, {table})")


def _count(expression: str) -> Handler:
    """How many bits, or where: a result of 32 bits."""

    def handler(t: Translator, instruction: Instruction) -> None:
        if "shiftamt" in instruction.opcode:
            raise UnknownInstructionError(instruction.text)
        value = t.get(instruction.operands[1], KINDS[instruction.opcode[-1]])
        t.put(instruction.operands[0], "u4", expression.format(value))

    return handler


def _set_predicate(t: Translator, instruction: Instruction) -> None:
    opcode, operands = instruction.opcode, instruction.operands
    kind = KINDS[opcode[-1]]
    x, y = (t.get(operand, kind) for operand in operands[1:3])
    if "ftz" in opcode:
        x, y = t.emit(f"a.flushed({x})"), t.emit(f"a.flushed({y})")
    truth = _comparison(opcode[1], x, y, kind[0] in "fb")
    for word, sign in (("and", "&"), ("or", "|"), ("xor", "^")):
        if word in opcode[2:-1]:
            truth = f"({truth}) {sign} {t.get(operands[3], '?')}"
    if isinstance(operands[0], tuple):
        raise UnknownInstructionError(instruction.text, "two results")
    t.put(operands[0], "?", truth)


def _comparison(word: str, x: str, y: str, are_floats: bool) -> str:
    if word == "num":
        return f"~(np.isnan({x}) | np.isnan({y}))"
    if word == "nan":
        return f"np.isnan({x}) | np.isnan({y})"
    if not are_floats:
        return f"{x} {_COMPARISONS[word]} {y}"
    if word in ("equ", "neu", "ltu", "leu", "gtu", "geu"):
        return f"({x} {_COMPARISONS[word[:-1]]} {y}) | np.isnan({x}) | np.isnan({y})"
    if word == "ne":
        return f"({x} < {y}) | ({x} > {y})"
    return f"{x} {_COMPARISONS[word]} {y}"


def _set(t: Translator, instruction: Instruction) -> None:
    """A truth value as all ones, or as 1.0."""
    opcode, operands = instruction.opcode, instruction.operands
    kind = KINDS[opcode[-1]]
    x, y = (t.get(operand, kind) for operand in operands[1:3])
    truth = _comparison(opcode[1], x, y, kind[0] in "fb")
    if opcode[-2] == "f32":
        t.put(operands[0], "f4", f"({truth}).astype('f4')")
    else:
        t.put(operands[0], "u4", f"(-({truth}).astype('i4')).view('u4')")


def _select(t: Translator, instruction: Instruction) -> None:
    kind = KINDS[instruction.opcode[-1]].replace("bf", "u2")
    x, y = (t.get(operand, kind) for operand in instruction.operands[1:3])
    t.put(instruction.operands[0], kind, f"np.where({t.get(instruction.operands[3], '?')}, {x}, {y})")


def _test(t: Translator, instruction: Instruction) -> None:
    value = t.get(instruction.operands[1], KINDS[instruction.opcode[-1]])
    tests: Mapping[str, str] = {
        "finite": "np.isfinite({0})",
        "infinite": "np.isinf({0})",
        "number": "~np.isnan({0})",
        "notanumber": "np.isnan({0})",
        "normal": "np.isfinite({0}) & (np.abs({0}) >= np.finfo({0}.dtype).tiny)",
        "subnormal": "({0} != 0) & (np.abs({0}) < np.finfo({0}.dtype).tiny)",
    }
    t.put(instruction.operands[0], "?", tests[instruction.opcode[1]].format(value))


def _function(name: str) -> Handler:
    """A function of a single float that hardware approximates: computed in double, so nearer than hardware's."""

    def handler(t: Translator, instruction: Instruction) -> None:
        kind = KINDS[instruction.opcode[-1].removesuffix("x2")]
        if kind == "f8":
            _typed(t, instruction, name, 1)
        elif kind == "f4":
            _typed(t, instruction, name.replace("{0}", "{0}.astype('f8')").join(("(", ").astype('f4')")), 1)
        else:
            _typed(t, instruction, f"({name})", 1)

    return handler


def _nothing(t: Translator, instruction: Instruction) -> None:
    """What only hardware notices."""


def _of_dependent_grids(t: Translator, instruction: Instruction) -> None:
    """To wait for the launches in front; to let those behind start says nothing here, where none does at once."""
    if "wait" in instruction.opcode:
        t.statement("M.waited(ix)")


def _set_condition(t: Translator, instruction: Instruction) -> None:
    """The driver's function that says whether a part of a graph runs."""
    handle, value = (t.get(operand, kind) for operand, kind in zip(instruction.operands, ("u8", "u4"), strict=True))
    lanes = "M.lanes(ix)" if t.mask is None else f"M.lanes(ix, {t.mask})"
    t.statement(f"W.set_condition({lanes}, {handle}, {value}, {t.fixed(instruction.number)})")


HANDLERS: dict[str, Handler] = {
    **MEMORY_HANDLERS,
    **MOVING_HANDLERS,
    "abs": _simple("np.abs({0})", 1),
    "add": _sum("+", "a.clipped_sum({0}, {1})"),
    "addc": _sum("+", ""),
    "and": _simple("{0} & {1}", 2),
    "bfe": _field,
    "bfi": _insert,
    "bfind": _count("a.first_one({0})"),
    "brev": _simple("a.reversed_bits({0})", 1),
    "clz": _count("a.leading_zeros({0})"),
    "cnot": _simple("({0} == 0).astype({0}.dtype)", 1),
    "copysign": _simple("np.copysign({1}, {0})", 2),
    "cos": _function("np.cos({0})"),
    "div": _simple("a.divided({0}, {1})", 2, floats="{0} / {1}"),
    "ex2": _function("np.exp2({0})"),
    "fma": _fused,
    "griddepcontrol": _of_dependent_grids,
    "lg2": _function("np.log2({0})"),
    "lop3": _any_logic,
    "mad": _multiply_add,
    "max": _extremum("a.greatest", "a.greatest_or_nan", "np.maximum"),
    "min": _extremum("a.least", "a.least_or_nan", "np.minimum"),
    "mul": _multiply,
    "nanosleep": _nothing,
    "neg": _simple("-{0}", 1),
    "not": _simple("~{0}", 1),
    "or": _simple("{0} | {1}", 2),
    "popc": _count("np.bitwise_count({0}).astype('u4')"),
    "prefetch": _nothing,
    "prefetchu": _nothing,
    "prmt": _permute,
    "rcp": _simple("1 / {0}", 1),
    "rem": _simple("a.remainder({0}, {1})", 2),
    "rsqrt": _function("1 / np.sqrt({0})"),
    "selp": _select,
    "set": _set,
    "setp": _set_predicate,
    "shf": _funnel,
    "shl": _shift("shifted_left"),
    "shr": _shift("shifted_right"),
    SET_CONDITION: _set_condition,
    "sin": _function("np.sin({0})"),
    "sqrt": _simple("np.sqrt({0})", 1),
    "sub": _sum("-", "a.clipped_difference({0}, {1})"),
    "subc": _sum("-", ""),
    "tanh": _function("np.tanh({0})"),
    "testp": _test,
    "xor": _simple("{0} ^ {1}", 2),
}
