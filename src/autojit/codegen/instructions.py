"""InstructionEmitter: scalar ops that are one LLVM instruction or a short straight-line sequence of them.

How to read it: constants and memory, arithmetic, integer division, comparisons and logic, choice, rounding, casts.
Every method appends lines to ``self.lines`` and returns the `Scalar` that holds the result. There are no branches and
no calls except intrinsics with vector instructions, so LLVM's loop vectoriser turns a loop over these lines into vector
code. Operands of binary methods may be Python numbers; they take the other operand's dtype. Operands must have one
dtype: promotion was decided by the type rules of the ops.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from autojit.codegen.scalar import Number, Scalar, is_half, literal, memory_type, register_type, suffix
from autojit.core.dtypes import DType, bfloat16, bool_, float16, float32, float64, int32, int64, uint32, uint64

Value = Scalar | Number

_FLOAT_PREDICATE = {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}


def _comparison(predicate: str) -> Callable[[InstructionEmitter, Value, Value], Scalar]:
    return lambda self, a, b: self.compare(predicate, a, b)


def _on_truths(opcode: str) -> Callable[[InstructionEmitter, Scalar, Scalar], Scalar]:
    return lambda self, a, b: self._binary(opcode, self.truth(a), self.truth(b))


def _on_bits(opcode: str) -> Callable[[InstructionEmitter, Value, Value], Scalar]:
    return lambda self, a, b: self._binary(opcode, *self._pair(a, b))


def _integral(name: str) -> Callable[[InstructionEmitter, Scalar], Scalar]:
    return lambda self, x: self.intrinsic(name, x) if x.dtype.kind == "float" else x


class InstructionEmitter(ABC):
    """Appends LLVM IR text to ``lines``, one basic block's worth, with fresh names ``%<prefix>0``, ``%<prefix>1``...

    Args:
        lines: the list to append to; a new one if absent.
        prefix: start of every name made here; blocks of one function need different prefixes.
        definitions (attribute): module-level texts by symbol that the emitted lines refer to.
        failures (attribute): int32 numbers, not 0 where a linked function failed; whoever emits loops reports them.
        flags: fast-math flags of float arithmetic. ``contract`` lets a multiply and an add become one FMA; the bodies
            of the mathematical functions use none, because their error bounds rest on each rounding.
    """

    def __init__(self, lines: list[str] | None = None, prefix: str = "v", flags: str = "contract ") -> None:
        self.lines: list[str] = [] if lines is None else lines
        self.prefix = prefix
        self.flags = flags
        self.definitions: dict[str, str] = {}
        self.failures: list[Scalar] = []
        self._count = 0

    @abstractmethod
    def call(self, name: str, *operands: Scalar) -> Scalar:
        """Apply the mathematical function ``name`` of `vector_math`."""

    @abstractmethod
    def table(self, name: str, row: Scalar, columns: int) -> tuple[Scalar, ...]:
        """Load one row of float64 constants of a table of `vector_math`; ``row`` is a uint64."""

    @abstractmethod
    def call_rarely(self, name: str, limit: float, *operands: Scalar) -> Scalar:
        """The function ``name`` of `vector_math` where |operands[0]| > limit, zero elsewhere: see `rare_calls`."""

    # ---- text ----------------------------------------------------------------------------------------------------

    def instruction(self, text: str, dtype: DType) -> Scalar:
        """Append ``%fresh = text``."""
        name = f"%{self.prefix}{self._count}"
        self._count += 1
        self.lines.append(f"  {name} = {text}")
        return Scalar(name, dtype)

    def intrinsic(self, name: str, *operands: Scalar, flags: str = "") -> Scalar:
        """Call ``llvm.<name>``, overloaded on the operands' common register type; ``flags`` are those of fast math."""
        dtype = operands[0].dtype
        kind = register_type(dtype)
        arguments = ", ".join(f"{kind} {x.text}" for x in operands)
        return self.instruction(f"call {flags}{kind} @llvm.{name}.{suffix(dtype)}({arguments})", dtype)

    def constant(self, value: Number, dtype: DType) -> Scalar:
        """A literal; floats are written exactly, by their bits."""
        return Scalar(literal(value, dtype), dtype)

    def zero(self, x: Scalar) -> Scalar:
        return self.constant(0, x.dtype)

    def one(self, x: Scalar) -> Scalar:
        return self.constant(1, x.dtype)

    def load(self, pointer: str, dtype: DType, attrs: str = "") -> Scalar:
        """Load one array element; ``attrs`` follows the instruction (``, align 4, !llvm.access.group !0``)."""
        if dtype.is_complex:
            return self.paired(*[self.load(place, dtype.to_real(), attrs) for place in self._parts(pointer, dtype)])
        stored = self.instruction(f"load {memory_type(dtype)}, ptr {pointer}{attrs}", dtype)
        return self.from_memory(stored)

    def store(self, value: Scalar, pointer: str, attrs: str = "") -> None:
        """Store one array element."""
        if value.dtype.is_complex:
            for part, place in zip(
                (self.real(value), self.imag(value)), self._parts(pointer, value.dtype), strict=True
            ):
                self.store(part, place, attrs)
            return
        stored = self._to_memory(value)
        self.lines.append(f"  store {memory_type(value.dtype)} {stored.text}, ptr {pointer}{attrs}")

    def _parts(self, pointer: str, dtype: DType) -> tuple[str, str]:
        """The addresses of both parts of a complex number. Pairs loaded as one would not be taken apart in vectors."""
        space = pointer.rpartition("%")[0]
        behind = self.instruction(f"getelementptr inbounds {memory_type(dtype.to_real())}, ptr {pointer}, i64 1", dtype)
        return pointer, space + behind.text

    def from_memory(self, stored: Scalar) -> Scalar:
        """What the bits of an array element say."""
        dtype = stored.dtype
        if dtype is bool_:
            return self.instruction(f"icmp ne i8 {stored.text}, 0", dtype)
        if dtype is float16:
            return self.instruction(f"fpext half {stored.text} to float", dtype)
        if dtype is bfloat16:
            wide = self.instruction(f"zext i16 {stored.text} to i32", uint32)
            return self.bitcast(self.shift_left(wide, 16), bfloat16)
        return stored

    def _to_memory(self, value: Scalar) -> Scalar:
        dtype = value.dtype
        if dtype is bool_:
            return self.instruction(f"zext i1 {value.text} to i8", dtype)
        if dtype is float16:
            return self.instruction(f"fptrunc float {value.text} to half", dtype)
        if dtype is bfloat16:
            high = self.shift_right(self.bitcast(value, uint32), 16)
            return self.instruction(f"trunc i32 {high.text} to i16", dtype)
        return value

    def rounded(self, x: Scalar, dtype: DType) -> Scalar:
        """Round a value computed in float32 to the half-precision dtype (nearest, ties to even)."""
        if dtype is float16:
            narrow = self.instruction(f"fptrunc float {x.text} to half", dtype)
            return self.instruction(f"fpext half {narrow.text} to float", dtype)
        if dtype is bfloat16:
            wide = Scalar(x.text, float32)
            bits = self.bitcast(wide, uint32)
            tie_to_even = self.bitwise_and(self.shift_right(bits, 16), 1)
            kept = self.bitwise_and(self.add(bits, self.add(tie_to_even, 0x7FFF)), 0xFFFF0000)
            # Adding to the bits of a NaN may carry into infinity or zero; a NaN keeps its upper, quietened bits.
            nan = self.bitwise_and(self.bitwise_or(bits, 0x00400000), 0xFFFF0000)
            return self.bitcast(self.select(self.isnan(wide), nan, kept), dtype)
        return Scalar(x.text, dtype)

    # ---- operands ------------------------------------------------------------------------------------------------

    def _pair(self, a: Value, b: Value) -> tuple[Scalar, Scalar]:
        if not isinstance(a, Scalar):
            assert isinstance(b, Scalar), "one operand must be a Scalar"
            return self.constant(a, b.dtype), b
        if not isinstance(b, Scalar):
            return a, self.constant(b, a.dtype)
        assert a.dtype is b.dtype, f"operands of {a.dtype} and {b.dtype}"
        return a, b

    def _binary(self, opcode: str, a: Scalar, b: Scalar) -> Scalar:
        dtype = a.dtype
        flags = self.flags if dtype.kind == "float" else ""
        x = self.instruction(f"{opcode} {flags}{register_type(dtype)} {a.text}, {b.text}", dtype)
        return self.rounded(x, dtype)

    # ---- parts of complex numbers --------------------------------------------------------------------------------

    def paired(self, re: Scalar, im: Scalar) -> Scalar:
        """The complex number of two floats."""
        dtype = re.dtype.to_complex()
        kind, part = register_type(dtype), register_type(re.dtype)
        half = self.instruction(f"insertvalue {kind} poison, {part} {re.text}, 0", dtype)
        return self.instruction(f"insertvalue {kind} {half.text}, {part} {im.text}, 1", dtype)

    def real(self, x: Scalar) -> Scalar:
        return self._part(x, 0)

    def imag(self, x: Scalar) -> Scalar:
        return self._part(x, 1)

    def _part(self, x: Scalar, number: int) -> Scalar:
        return self.instruction(f"extractvalue {register_type(x.dtype)} {x.text}, {number}", x.dtype.to_real())

    # ---- arithmetic ----------------------------------------------------------------------------------------------

    def add(self, a: Value, b: Value) -> Scalar:
        """a + b; integers wrap, bool is logical or."""
        a, b = self._pair(a, b)
        return self._binary({"float": "fadd", "bool": "or"}.get(a.dtype.kind, "add"), a, b)

    def sub(self, a: Value, b: Value) -> Scalar:
        """a - b; integers wrap. Of bools: exclusive or (the type rules refuse it, as torch does)."""
        a, b = self._pair(a, b)
        return self._binary({"float": "fsub", "bool": "xor"}.get(a.dtype.kind, "sub"), a, b)

    def mul(self, a: Value, b: Value) -> Scalar:
        """a * b; integers wrap, bool is logical and."""
        a, b = self._pair(a, b)
        return self._binary({"float": "fmul", "bool": "and"}.get(a.dtype.kind, "mul"), a, b)

    def div(self, a: Value, b: Value) -> Scalar:
        """True division of floats."""
        a, b = self._pair(a, b)
        assert a.dtype.kind == "float", f"true division of {a.dtype}; cast first"
        return self._binary("fdiv", a, b)

    def neg(self, x: Scalar) -> Scalar:
        if x.dtype.kind == "float":
            return self.instruction(f"fneg {register_type(x.dtype)} {x.text}", x.dtype)
        return self.sub(0, x)

    def abs(self, x: Scalar) -> Scalar:
        """|x|; the least integer stays itself."""
        if x.dtype.kind == "float":
            return self.intrinsic("fabs", x)
        if x.dtype.kind != "int":
            return x
        kind = register_type(x.dtype)
        return self.instruction(f"call {kind} @llvm.abs.{kind}({kind} {x.text}, i1 false)", x.dtype)

    def sign(self, x: Scalar) -> Scalar:
        """-1, 0 or 1; 0 of NaN."""
        if x.dtype.kind == "float":
            unit = self.intrinsic("copysign", self.one(x), x)
            return self.select(self.logical_or(self.isnan(x), self.eq(x, 0.0)), self.zero(x), unit)
        positive = self.select(self.gt(x, 0), self.one(x), self.zero(x))
        return self.select(self.lt(x, 0), self.constant(-1, x.dtype), positive)

    def fma(self, a: Scalar, b: Value, c: Value) -> Scalar:
        """a * b + c with one rounding, on every machine."""
        return self._fused("fma", a, b, c)

    def multiply_add(self, a: Scalar, b: Value, c: Value) -> Scalar:
        """a * b + c with one rounding where the machine has FMA, two where it has not."""
        return self._fused("fmuladd", a, b, c)

    def _fused(self, name: str, a: Scalar, b: Value, c: Value) -> Scalar:
        _, b = self._pair(a, b)
        _, c = self._pair(a, c)
        return self.rounded(self.intrinsic(name, a, b, c), a.dtype)

    def reciprocal(self, x: Scalar) -> Scalar:
        return self.div(1.0, x)

    def sqrt(self, x: Scalar) -> Scalar:
        """Correctly rounded; NaN below zero, -0 stays -0."""
        return self.rounded(self.intrinsic("sqrt", x), x.dtype)

    def rsqrt(self, x: Scalar) -> Scalar:
        """1/sqrt(x) within 1 ulp."""
        wide = Scalar(x.text, float32) if is_half(x.dtype) else x
        return self.rounded(self.div(1.0, self.sqrt(wide)), x.dtype)

    def copysign(self, magnitude: Value, sign: Value) -> Scalar:
        magnitude, sign = self._pair(magnitude, sign)
        return self.intrinsic("copysign", magnitude, sign)

    # ---- comparisons and logic -----------------------------------------------------------------------------------

    def compare(self, predicate: str, a: Value, b: Value) -> Scalar:
        """Compare by ``eq``, ``ne``, ``lt``, ``le``, ``gt`` or ``ge``; NaN is unequal to all and ordered with none."""
        a, b = self._pair(a, b)
        kind = register_type(a.dtype)
        if a.dtype.kind == "float":
            return self.instruction(f"fcmp {_FLOAT_PREDICATE[predicate]} {kind} {a.text}, {b.text}", bool_)
        signed = "s" if a.dtype.kind == "int" else "u"
        code = predicate if predicate in ("eq", "ne") else signed + predicate
        return self.instruction(f"icmp {code} {kind} {a.text}, {b.text}", bool_)

    eq, ne = _comparison("eq"), _comparison("ne")
    lt, le = _comparison("lt"), _comparison("le")
    gt, ge = _comparison("gt"), _comparison("ge")

    def isnan(self, x: Scalar) -> Scalar:
        if x.dtype.kind != "float":
            return self.constant(False, bool_)
        return self.instruction(f"fcmp uno {register_type(x.dtype)} {x.text}, {x.text}", bool_)

    def isinf(self, x: Scalar) -> Scalar:
        if x.dtype.kind != "float":
            return self.constant(False, bool_)
        return self.eq(self.abs(x), float("inf"))

    def isfinite(self, x: Scalar) -> Scalar:
        if x.dtype.kind != "float":
            return self.constant(True, bool_)
        return self.lt(self.abs(x), float("inf"))

    def truth(self, x: Scalar) -> Scalar:
        """Whether x is not zero; NaN is true."""
        return x if x.dtype is bool_ else self.ne(x, 0)

    logical_and, logical_or, logical_xor = _on_truths("and"), _on_truths("or"), _on_truths("xor")

    def logical_not(self, x: Scalar) -> Scalar:
        return self._binary("xor", self.truth(x), self.constant(True, bool_))

    bitwise_and, bitwise_or, bitwise_xor = _on_bits("and"), _on_bits("or"), _on_bits("xor")

    def bitwise_not(self, x: Scalar) -> Scalar:
        return self._binary("xor", x, self.constant(-1 if x.dtype.kind != "bool" else True, x.dtype))

    def shift_left(self, a: Value, b: Value) -> Scalar:
        """a << b; 0 when b is negative or not below the width, as NumPy has it."""
        a, b = self._pair(a, b)
        if b.is_literal:
            return self._binary("shl", a, b) if self._is_in_width(b) else self.zero(a)
        return self.select(self._in_width(b), self._binary("shl", a, b), self.zero(a))

    def shift_right(self, a: Value, b: Value) -> Scalar:
        """a >> b, arithmetic for signed a; a count out of range shifts everything but the sign out."""
        a, b = self._pair(a, b)
        if a.dtype.kind != "int":
            if b.is_literal:
                return self._binary("lshr", a, b) if self._is_in_width(b) else self.zero(a)
            return self.select(self._in_width(b), self._binary("lshr", a, b), self.zero(a))
        last = self.constant(8 * a.dtype.size_bytes - 1, b.dtype)
        if b.is_literal:
            return self._binary("ashr", a, b if self._is_in_width(b) else last)
        return self._binary("ashr", a, self.select(self._in_width(b), b, last))

    @staticmethod
    def _is_in_width(count: Scalar) -> bool:
        """Whether a literal is a count of bits that LLVM shifts by."""
        return 0 <= int(count.text) < 8 * count.dtype.size_bytes

    def _in_width(self, count: Scalar) -> Scalar:
        kind = register_type(count.dtype)
        return self.instruction(f"icmp ult {kind} {count.text}, {8 * count.dtype.size_bytes}", bool_)

    # ---- choice --------------------------------------------------------------------------------------------------

    def select(self, condition: Scalar, a: Value, b: Value) -> Scalar:
        a, b = self._pair(a, b)
        kind = register_type(a.dtype)
        return self.instruction(f"select i1 {self.truth(condition).text}, {kind} {a.text}, {kind} {b.text}", a.dtype)

    def maximum(self, a: Value, b: Value) -> Scalar:
        """The greater one; NaN if either is NaN. Of zeros of both signs either one."""
        return self._extremum("gt", *self._pair(a, b))

    def minimum(self, a: Value, b: Value) -> Scalar:
        """The lesser one; NaN if either is NaN. Of zeros of both signs either one."""
        return self._extremum("lt", *self._pair(a, b))

    def _extremum(self, wins: str, a: Scalar, b: Scalar) -> Scalar:
        if a.is_literal:
            a, b = b, a
        if b.is_literal and literal(float("nan"), float64) != b.text:
            return self.select(self.compare(wins, b, a), b, a)  # one min/max instruction; a NaN in a stays
        better = self.select(self.compare(wins, a, b), a, b)  # a NaN in b stays
        return self.select(self.isnan(a), a, better) if a.dtype.kind == "float" else better

    def fmax(self, a: Value, b: Value) -> Scalar:
        """The greater one; a NaN loses against a number."""
        return self._numeric_extremum("gt", *self._pair(a, b))

    def fmin(self, a: Value, b: Value) -> Scalar:
        """The lesser one; a NaN loses against a number."""
        return self._numeric_extremum("lt", *self._pair(a, b))

    def _numeric_extremum(self, wins: str, a: Scalar, b: Scalar) -> Scalar:
        better = self.select(self.compare(wins, a, b), a, b)
        return self.select(self.isnan(b), a, better) if a.dtype.kind == "float" else better

    # ---- rounding to integers ------------------------------------------------------------------------------------

    floor, ceil, trunc = _integral("floor"), _integral("ceil"), _integral("trunc")
    round = _integral("roundeven")  # to the nearest integer, ties to even

    # ---- casts ---------------------------------------------------------------------------------------------------

    def bitcast(self, x: Scalar, dtype: DType) -> Scalar:
        """The same bits as another dtype of the same register width."""
        source, target = register_type(x.dtype), register_type(dtype)
        if source == target:
            return Scalar(x.text, dtype)
        return self.instruction(f"bitcast {source} {x.text} to {target}", dtype)

    def cast(self, x: Scalar, dtype: DType) -> Scalar:
        """C's conversion: floats truncate towards zero, integers wrap, bool is ``!= 0``.

        A float that the integer cannot hold gives an unspecified integer (on x86 what the hardware and NumPy give).
        """
        if x.dtype is dtype:
            return x
        if dtype is bool_:
            return self.truth(x)
        if x.dtype is bool_:
            return self.select(x, self.constant(1, dtype), self.constant(0, dtype))
        if x.dtype.kind == "float":
            return self._float_to_float(x, dtype) if dtype.kind == "float" else self._float_to_integer(x, dtype)
        return self._integer_to_float(x, dtype) if dtype.kind == "float" else self._resize(x, dtype)

    def _float_to_float(self, x: Scalar, dtype: DType) -> Scalar:
        if dtype is float64:
            return self.instruction(f"fpext float {x.text} to double", dtype)
        if x.dtype is float64:
            x = self.instruction(f"fptrunc double {x.text} to float", float32)
        return self.rounded(x, dtype)

    def _float_to_integer(self, x: Scalar, dtype: DType) -> Scalar:
        if dtype is uint64:
            return self.convert("fptoui", x, dtype)
        # Narrow types go through int32 and unsigned 32 bits through int64, so that out-of-range values wrap as in C.
        via = int32 if dtype.size_bytes <= 2 or dtype is int32 else int64
        return self._resize(self.convert("fptosi", x, via), dtype)

    def convert(self, opcode: str, x: Scalar, dtype: DType) -> Scalar:
        """``fptosi`` or ``fptoui``; out of range some integer."""
        raw = self.instruction(f"{opcode} {register_type(x.dtype)} {x.text} to {register_type(dtype)}", dtype)
        return self.instruction(f"freeze {register_type(dtype)} {raw.text}", dtype)

    def _integer_to_float(self, x: Scalar, dtype: DType) -> Scalar:
        opcode = "sitofp" if x.dtype.kind == "int" else "uitofp"
        raw = self.instruction(f"{opcode} {register_type(x.dtype)} {x.text} to {register_type(dtype)}", dtype)
        return self.rounded(raw, dtype)

    def _resize(self, x: Scalar, dtype: DType) -> Scalar:
        if x.dtype.size_bytes == dtype.size_bytes:
            return Scalar(x.text, dtype)
        opcode = "sext" if x.dtype.kind == "int" else "zext"
        if dtype.size_bytes < x.dtype.size_bytes:
            opcode = "trunc"
        return self.instruction(f"{opcode} {register_type(x.dtype)} {x.text} to {register_type(dtype)}", dtype)
