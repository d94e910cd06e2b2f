"""Code objects that report what they read: the same instructions with calls of hooks around those that look outside.

How to read: ``instrumented`` is the door; ``_SITES`` says for every kind of instruction that reads, writes or hands on
Python state what comes before, instead of and after it; ``code_assembly.py`` puts the pieces together.

A hook is called with what the instruction has on the stack (one object, or a tuple of several) and a constant. Which
hooks there are, and what they mean, is in ``read_hooks.py``; this module knows bytecode and nothing of guards.

Own assembler, not the ``bytecode`` package, which takes three times as long to read and write code that it leaves as it
is, and 30 ms to be imported (docs/design/recorded_reads.md): rewriting is part of the first compiled step.
"""

from __future__ import annotations

import opcode
import sys
from collections.abc import Callable, Mapping
from types import CodeType

from autojit.jit.code_assembly import OP, UNTOUCHED, Assembler, Instruction, Site, decoded, emit, op_bytes
from autojit.jit.consumers import CALLS, RETURNS, Consumers

_VERSION = sys.version_info[:2]
_NULL_FIRST = _VERSION < (3, 13)  # the stack of a call is (NULL, callable, arguments); later (callable, NULL, ...)
_CLOSURE = "LOAD_CLOSURE" if OP.get("LOAD_CLOSURE", 256) < 256 else "LOAD_FAST"  # from 256 on only compilers know it
UNPACKED, DROPPED, HELD, RETURNED = 1, 2, 4, 8  # of a call
_USES = {0: 0, CALLS: HELD, RETURNS: RETURNED}
_EXTRA_STACK = 6  # what the longest inserted sequence needs above the instruction's own operands


Hooks = Mapping[str, Callable[..., object]]
"""What instrumented code calls, by name (``read_hooks.py``)."""


class _Writer:
    """Makes sites for one code object, and collects the constants that they use."""

    def __init__(self, code: CodeType, hooks: Hooks, constants: list[object], is_nested: bool = False) -> None:
        self.code = code
        self.is_nested = is_nested
        self.hooks = hooks
        self.constants = constants
        self._place: dict[object, int] = {}
        self._called_at: set[int] = set()
        self.instructions = decoded(code)
        self.targets = {i.target for i in self.instructions}
        self.consumers = Consumers(self.instructions, self.targets)
        self.shows_variables = not _SHOWING.isdisjoint(code.co_names)
        kinds = len(code.co_varnames), len(code.co_cellvars), len(code.co_freevars)
        self.first_free = kinds[0] + kinds[1] - len(set(code.co_varnames) & set(code.co_cellvars))

    def constant(self, value: object) -> int:
        """The number of a constant."""
        key = id(value) if not isinstance(value, str) else value
        if key not in self._place:
            self._place[key] = len(self.constants)
            self.constants.append(value)
        return self._place[key]

    def call(self, hook: str, info: object = None) -> bytes:
        """Replace the top of the stack by ``hook(top, info)``."""
        load = op_bytes("LOAD_CONST", self.constant(self.hooks[hook]))
        null = op_bytes("PUSH_NULL")
        found = (load + null if _NULL_FIRST else null + load) + op_bytes("SWAP", 3)
        found += op_bytes("LOAD_CONST", self.constant(info))
        if _VERSION < (3, 12):
            found += op_bytes("PRECALL", 2)
        return found + op_bytes("CALL", 2)

    def gathered(self, count: int, hook: str, info: object = None) -> bytes:
        """Replace the ``count`` topmost objects by ``hook`` of their tuple."""
        return op_bytes("BUILD_TUPLE", count) + self.call(hook, info)

    def passed_on(self, count: int, hook: str, info: object = None) -> bytes:
        """Show the ``count`` topmost objects to ``hook``, which gives them (in reverse) or others for them."""
        return self.gathered(count, hook, info) + op_bytes("UNPACK_SEQUENCE", count)

    def site(self, place: int) -> Site:
        """What surrounds an instruction."""
        instruction = self.instructions[place]
        make = _SITES.get(instruction.op)
        return UNTOUCHED if make is None else make(self, instruction, place)

    def use(self, place: int) -> int:
        """HELD if what an instruction leaves goes into a call before anything else can look at it; RETURNED: or out."""
        return 0 if self.shows_variables else _USES[self.consumers.use(place)]

    def name(self, arg: int) -> str:
        return self.code.co_names[arg]


_SHOWING = frozenset(("locals", "vars", "dir", "eval", "exec"))
"""What lets code look at its local variables."""


Maker = Callable[["_Writer", Instruction, int], Site]
"""What makes the site of an instruction, given its place among the others."""


def _as_callable() -> bytes:
    """The value on top becomes the callable of a call that follows."""
    return op_bytes("PUSH_NULL") + (op_bytes("SWAP", 2) if _NULL_FIRST else b"")


def _load_attribute(w: _Writer, i: Instruction, place: int) -> Site:
    has_flag = _VERSION >= (3, 12)
    name = w.name(i.arg >> 1 if has_flag else i.arg)
    found = w.call("attribute", name)
    return Site(found + (_as_callable() if has_flag and i.arg & 1 else b""), False)


def _load_super(w: _Writer, i: Instruction, place: int) -> Site:
    found = w.gathered(3, "super_attribute", w.name(i.arg >> 2))
    return Site(found + (_as_callable() if i.arg & 1 else b""), False)


def _load_global(w: _Writer, i: Instruction, place: int) -> Site:
    call = w.call("global_", w.name(i.arg >> 1))
    if _NULL_FIRST or not i.arg & 1:
        return Site(after=call)
    return Site(emit(i.op, i.arg & ~1) + call + op_bytes("PUSH_NULL"), False)


def _of_cell(hook: str, is_stored: bool = False) -> Maker:
    """The value of a variable of an enclosing function and its cell are shown to a hook."""

    def site(w: _Writer, i: Instruction, place: int) -> Site:
        number = i.arg - w.first_free
        if number < 0:
            return UNTOUCHED
        shown = op_bytes(_CLOSURE, i.arg) + w.gathered(2, hook, w.code.co_freevars[number])
        return Site(shown) if is_stored else Site(after=shown)

    return site


def _instead(count: int, hook: str, is_pushed: bool = True, is_named: bool = False) -> Maker:
    """An instruction done by a hook that gets ``count`` operands."""

    def site(w: _Writer, i: Instruction, place: int) -> Site:
        name = w.name(i.arg) if is_named else None
        call = w.gathered(count, hook, name) if count > 1 else w.call(hook, name)
        return Site(call if is_pushed else call + op_bytes("POP_TOP"), False)

    return site


def _before(hook: str, is_named: bool = False) -> Maker:
    """The topmost operand is shown to a hook."""
    return lambda w, i, place: Site(w.call(hook, w.name(i.arg) if is_named else None))


def _before_two(hook: str) -> Maker:
    return lambda w, i, place: Site(w.passed_on(2, hook))


def _after(hook: str) -> Maker:
    """What an instruction has found by a name is shown to a hook."""
    return lambda w, i, place: Site(after=w.call(hook, w.name(i.arg)))


def _copied(place_on_stack: int, hook: str, is_named: bool = False) -> Maker:
    """An object on the stack is shown to a hook, and stays there."""

    def site(w: _Writer, i: Instruction, place: int) -> Site:
        call = w.call(hook, w.name(i.arg) if is_named else None)
        return Site(op_bytes("COPY", place_on_stack) + call + op_bytes("POP_TOP"))

    return site


_DECIDED = frozenset(OP[name] for name in ("COMPARE_OP", "CONTAINS_OP", "IS_OP", "UNARY_NOT", "LOAD_CONST"))


def _truth(w: _Writer, i: Instruction, place: int) -> Site:
    is_reached_otherwise = i.start in w.targets
    if place and not is_reached_otherwise and w.instructions[place - 1].op in _DECIDED:
        return UNTOUCHED  # a bool, mostly
    return Site(w.call("truth"))


def _binary(w: _Writer, i: Instruction, place: int) -> Site:
    if i.arg == _SUBSCRIPT:
        return Site(w.gathered(2, "item"), False)
    if i.arg == _REMAINDER and (use := w.use(place)):
        return Site(w.gathered(2, "operator_held", use), False)
    if i.arg in _IN_PLACE:
        return Site(w.passed_on(2, "in_place", _IN_PLACE[i.arg]))
    return Site(w.passed_on(2, "two"))


_OPERATORS: list[tuple[str, str]] = opcode._nb_ops  # type: ignore[attr-defined]


def _operator(symbol: str) -> int:
    """The argument of BINARY_OP for an operator, or -1."""
    names = [known for _, known in _OPERATORS]
    return names.index(symbol) if symbol in names else -1


_SUBSCRIPT, _REMAINDER = _operator("[]"), _operator("%")  # the first from 3.14 on
_METHODS = {"+=": "__iadd__", "*=": "__imul__", "|=": "__ior__", "&=": "__iand__", "-=": "__isub__", "^=": "__ixor__"}
_IN_PLACE = {k: _METHODS.get(s, "") for k, (_, s) in enumerate(_OPERATORS) if s[-1] == "="}


def _call_shown(w: _Writer, count: int, kind: int) -> bytes:
    """Show callable and arguments of a call, which are on the stack, to the hook."""
    if _NULL_FIRST:
        return w.passed_on(count + 1, "called", kind)
    # (callable, NULL or self, arguments): the callable is copied up and, shown, put back
    found = op_bytes("BUILD_TUPLE", count) + op_bytes("COPY", 3) + op_bytes("SWAP", 2) + op_bytes("BUILD_TUPLE", 2)
    found += w.call("called_apart", kind) + op_bytes("UNPACK_SEQUENCE", 2)
    return found + op_bytes("SWAP", 4) + op_bytes("POP_TOP") + op_bytes("UNPACK_SEQUENCE", count)


def _call(w: _Writer, i: Instruction, place: int) -> Site:
    """Before the instruction that names the keywords: what it says counts for the next call."""
    name = opcode.opname[i.op]
    if name == "KW_NAMES":
        rest = (x for x in w.instructions[place + 1 :] if x.op in _CALLS)
        w._called_at.add(place + 1)
        return Site(_call_shown(w, next(rest).arg, _use_of(w, place)))
    if place in w._called_at or (name == "CALL" and "PRECALL" in OP):
        return UNTOUCHED
    count = i.arg + (name == "CALL_KW")  # whose topmost operand names the keywords
    return Site(_call_shown(w, count, _use_of(w, place)))


def _use_of(w: _Writer, place: int) -> int:
    """DROPPED if the result of the call that is under way is not used: a statement of its own."""
    for k in range(place, len(w.instructions) - 1):
        if w.instructions[k].op in _DONE_CALLS:
            return DROPPED if w.instructions[k + 1].op == OP["POP_TOP"] else w.use(k)
    return 0


_CALLS = frozenset(OP[name] for name in ("CALL", "PRECALL") if name in OP)
_DONE_CALLS = frozenset(OP[name] for name in ("CALL", "CALL_KW", "CALL_FUNCTION_EX") if name in OP)


def _call_unpacked(w: _Writer, i: Instruction, place: int) -> Site:
    if _VERSION < (3, 14):
        return Site(_call_shown(w, 1 + (i.arg & 1), UNPACKED | _use_of(w, place)))
    if w.instructions[place - 1].op == OP["PUSH_NULL"]:
        return UNTOUCHED  # shown already, before nothing was put in the place of the keywords
    return Site(_call_shown(w, 2, UNPACKED | _use_of(w, place)))


def _begin(w: _Writer, i: Instruction, place: int) -> Site:
    if i.arg & 3 or w.is_nested:  # it goes on after a ``yield`` or ``await``; made by code that has told
        return UNTOUCHED
    return Site(after=op_bytes("LOAD_CONST", w.constant(None)) + w.call("began", w.code) + op_bytes("POP_TOP"))


def _null(w: _Writer, i: Instruction, place: int) -> Site:
    if w.instructions[place + 1].op != OP["CALL_FUNCTION_EX"]:
        return UNTOUCHED
    return Site(_call_shown(w, 1, UNPACKED | _use_of(w, place)))


def _sites() -> dict[int, Maker]:
    by_name: dict[str, Maker] = {
        "LOAD_ATTR": _load_attribute,
        "LOAD_METHOD": lambda w, i, place: Site(w.call("attribute", w.name(i.arg)) + _as_callable(), False),
        "LOAD_SUPER_ATTR": _load_super,
        "LOAD_GLOBAL": _load_global,
        "LOAD_NAME": _after("global_"),
        "LOAD_DEREF": _of_cell("cell"),
        "LOAD_CLASSDEREF": _of_cell("class_cell"),  # of 3.11: a class body reads a variable of an enclosing function
        "LOAD_FROM_DICT_OR_DEREF": _of_cell("class_cell"),  # of 3.12 and later
        "LOAD_FROM_DICT_OR_GLOBALS": _after("class_global"),
        "STORE_DEREF": _of_cell("set_cell", is_stored=True),
        "STORE_ATTR": _instead(2, "set_attribute", False, is_named=True),
        "DELETE_ATTR": _instead(1, "delete_attribute", False, is_named=True),
        "STORE_GLOBAL": _before("set_global", is_named=True),
        "IMPORT_FROM": _copied(1, "attribute", is_named=True),
        "IMPORT_NAME": _after("imported"),
        "MATCH_CLASS": _copied(3, "matched"),
        "BINARY_SUBSCR": _instead(2, "item"),
        "STORE_SUBSCR": _instead(3, "set_item", False),
        "DELETE_SUBSCR": _instead(2, "delete_item", False),
        "BINARY_SLICE": _instead(3, "item"),
        "STORE_SLICE": _instead(4, "set_item", False),
        "BINARY_OP": _binary,
        "COMPARE_OP": _before_two("two"),
        "CALL_INTRINSIC_1": lambda w, i, place: Site(w.call("operand")) if i.arg == _POSITIVE else UNTOUCHED,
        "CONTAINS_OP": _before_two("contains"),
        "IS_OP": _before_two("identified"),
        "CALL_FUNCTION_EX": _call_unpacked,
        "BUILD_STRING": lambda w, i, place: Site(w.gathered(i.arg, "joined"), False) if w.use(place) else UNTOUCHED,
        "RESUME": _begin,
        **dict.fromkeys(("UNARY_NEGATIVE", "UNARY_INVERT", "UNARY_POSITIVE"), _before("operand")),
        **dict.fromkeys(("KW_NAMES", "PRECALL", "CALL", "CALL_KW"), _call),
        **dict.fromkeys(("TO_BOOL", "UNARY_NOT"), _truth),
        **dict.fromkeys(("BEFORE_WITH", "LOAD_SPECIAL"), _entered),
        **dict.fromkeys(_WALKING, _before("iterated")),
        **dict.fromkeys(("FORMAT_VALUE", "FORMAT_SIMPLE", "FORMAT_WITH_SPEC", "CONVERT_VALUE"), _format),
    }
    if _VERSION >= (3, 14):
        by_name["PUSH_NULL"] = _null
    if "TO_BOOL" not in OP:
        by_name |= dict.fromkeys((n for n in OP if "JUMP" in n and ("IF_TRUE" in n or "IF_FALSE" in n)), _truth)
    return {OP[name]: site for name, site in by_name.items() if name in OP}


_WALKING = (
    "GET_ITER", "UNPACK_SEQUENCE", "UNPACK_EX", "LIST_EXTEND", "SET_UPDATE", "DICT_UPDATE", "DICT_MERGE",
    "GET_YIELD_FROM_ITER", "MATCH_MAPPING", "MATCH_SEQUENCE", "GET_LEN",
)  # fmt: skip


def _entered(w: _Writer, i: Instruction, place: int) -> Site:
    """Before BEFORE_WITH, or the first of what newer versions have for it: the look-up of ``__exit__``."""
    if opcode.opname[i.op] == "LOAD_SPECIAL" and w.instructions[place - 1].op != OP["COPY"]:
        return UNTOUCHED
    return Site(w.call("entered", i.start * 2))


def _format(w: _Writer, i: Instruction, place: int) -> Site:
    name = opcode.opname[i.op]
    has_format = name == "FORMAT_WITH_SPEC" or (name == "FORMAT_VALUE" and bool(i.arg & 4))  # above the value
    conversion = i.arg & 3 if name in ("FORMAT_VALUE", "CONVERT_VALUE") else 0
    info = (conversion, has_format, w.use(place))
    return Site(w.gathered(2, "formatted", info) if has_format else w.call("formatted", info), False)


_POSITIVE = 5  # the argument of CALL_INTRINSIC_1 for ``+x``, from 3.12 on
_SITES = _sites()


def instrumented(code: CodeType, hooks: Hooks, is_nested: bool = False) -> CodeType:
    """The same code, which calls ``hooks`` wherever it reads or writes what is not its own, and when it begins.

    Time O(instructions). Names, lines, columns and the flow of control are as before.
    """
    constants = [instrumented(c, hooks, True) if isinstance(c, CodeType) else c for c in code.co_consts]
    writer = _Writer(code, hooks, constants, is_nested)
    sites = [writer.site(k) for k in range(len(writer.instructions))]
    made = Assembler(code, writer.instructions, sites)
    return code.replace(
        co_code=made.text(),
        co_consts=(*constants, code, _MARK),
        co_linetable=made.lines(),
        co_exceptiontable=made.exceptions(),
        co_stacksize=code.co_stacksize + _EXTRA_STACK,
    )


def is_instrumented(code: CodeType) -> bool:
    """Whether ``instrumented`` made this code."""
    return bool(code.co_consts) and code.co_consts[-1] is _MARK


def as_written(code: CodeType) -> CodeType:
    """The code that ``instrumented`` made this one of, or the code itself."""
    return code.co_consts[-2] if is_instrumented(code) else code


_MARK = object()
