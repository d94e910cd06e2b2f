"""Where a value goes that an instruction leaves on the stack, as far as that can be told from the code.

``print(f"{x:.3f}", y)`` leaves a text, which waits on the stack until the call takes it: nothing in between can look at
it. ``Consumers`` follows a value through a stretch of code without jumps to the instruction that takes it.
"""

from __future__ import annotations

import opcode
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet

from autojit.jit.code_assembly import OP, Instruction

_NAME = opcode.opname
FARTHEST = 64
"""Instructions that a value is followed through at most."""


_HAS_METHODS = "LOAD_METHOD" not in OP or OP["LOAD_METHOD"] > 255
_FIXED = {  # (what instructions take from the stack, what they leave there)
    (0, 0): "NOP RESUME CACHE PRECALL KW_NAMES",
    (0, 1): "LOAD_CONST LOAD_FAST LOAD_FAST_CHECK LOAD_DEREF LOAD_NAME LOAD_FAST_BORROW LOAD_SMALL_INT PUSH_NULL "
    "LOAD_CLOSURE",
    (0, 2): "LOAD_FAST_LOAD_FAST LOAD_FAST_BORROW_LOAD_FAST_BORROW",
    (1, 0): "RETURN_VALUE STORE_FAST POP_TOP",
    (1, 1): "UNARY_NEGATIVE UNARY_NOT UNARY_INVERT TO_BOOL FORMAT_SIMPLE CONVERT_VALUE STORE_FAST_LOAD_FAST",
    (1, 2): "LOAD_METHOD",
    (2, 0): "STORE_FAST_STORE_FAST",
    (2, 1): "BINARY_OP COMPARE_OP BINARY_SUBSCR IS_OP CONTAINS_OP FORMAT_WITH_SPEC",
    (3, 1): "BINARY_SLICE",
}
_BY_ARGUMENT: dict[str, Callable[[int], tuple[int, int]]] = {
    "LOAD_GLOBAL": lambda arg: (0, 1 + (arg & 1)),
    "LOAD_ATTR": lambda arg: (1, 1 + (arg & 1 if _HAS_METHODS else 0)),
    **dict.fromkeys(("BUILD_SLICE", "BUILD_TUPLE", "BUILD_LIST", "BUILD_STRING"), lambda arg: (arg, 1)),
    "BUILD_MAP": lambda arg: (2 * arg, 1),
    "BUILD_CONST_KEY_MAP": lambda arg: (arg + 1, 1),
    "FORMAT_VALUE": lambda arg: (2 if arg & 4 else 1, 1),
    "CALL": lambda arg: (arg + 2, 1),
    "CALL_KW": lambda arg: (arg + 3, 1),
}


def _effect(instruction: Instruction) -> tuple[int, int] | None:
    """What an instruction takes from the stack and leaves there; None: that is not known here."""
    name = _NAME[instruction.op]
    return _BY_ARGUMENT[name](instruction.arg) if name in _BY_ARGUMENT else _EFFECTS.get(name)


_EFFECTS = {name: effect for effect, names in _FIXED.items() for name in names.split()}


class Consumers:
    """Follows values through the instructions of one code object; ``targets`` are the places that jumps lead to."""

    def __init__(self, instructions: Sequence[Instruction], targets: AbstractSet[int]) -> None:
        self.instructions = instructions
        self.targets = targets
        self._variables: dict[int, int] = {}  # what is done with local variables, as ``use`` says

    def of(self, place: int, above: int = 0) -> tuple[int, int] | None:
        """(place of the instruction that takes what the one at ``place`` leaves, how many things are above it then).

        ``above``: how many things it leaves above it. None where that depends on the course of the program, or is an
        instruction that is not followed.
        """
        for k in range(place + 1, min(place + FARTHEST, len(self.instructions))):
            instruction = self.instructions[k]
            effect = _effect(instruction)
            if effect is None or instruction.start in self.targets:
                return None
            pops, pushes = effect
            if pops > above:
                return k, above
            above += pushes - pops
        return None

    def use(self, place: int, above: int = 0) -> int:
        """What becomes of what an instruction leaves, perhaps as a part of a text: CALLS, RETURNS or 0, something else.

        It may wait in a local variable until then.
        """
        found = self.of(place, above)
        if found is None:
            return 0
        k, above = found
        name, arg = _NAME[self.instructions[k].op], self.instructions[k].arg
        if name in _TEXTS:
            form_is_above = name == "FORMAT_WITH_SPEC" or (name == "FORMAT_VALUE" and bool(arg & 4))
            is_part = name == "BUILD_STRING" or above == int(form_is_above)
            return self.use(k) if is_part else 0
        if name == "STORE_FAST":
            return self._waits(arg)
        if name in _PAIRS:  # which store the topmost value under the first name
            return self._waits(arg & 15 if above else arg >> 4)
        if name in _NESTS and not (name == "BUILD_MAP" and above % 2):  # a key is looked at
            return RETURNS * (self.use(k) == RETURNS)
        if name == "RETURN_VALUE":
            return RETURNS
        return CALLS * (above < arg if name == "CALL" else name == "CALL_KW" and 0 < above <= arg)

    def _waits(self, variable: int) -> int:
        known = self._variables.get(variable)
        if known is None:
            self._variables[variable] = CALLS  # a text that goes into itself goes where it goes
            uses = [self._only_waits(k, variable) for k in range(len(self.instructions))]
            known = 0 if 0 in uses else max(uses)
            if known != CALLS:  # what was found while it was taken for one that waits is to be found again
                self._variables = {v: k for v, k in self._variables.items() if not k}
            self._variables[variable] = known
        return known

    def _only_waits(self, place: int, variable: int) -> int:
        """What an instruction does with a variable: what ``use`` says, if it is about that, else CALLS."""
        name, arg = _NAME[self.instructions[place].op], self.instructions[place].arg
        if name in _PAIRS:
            first, second = arg >> 4, arg & 15
            loads = [] if name == "STORE_FAST_STORE_FAST" else [(second, 0)]
            loads += [(first, 1)] if name.startswith("LOAD") else []
            uses = [self.use(place, above) for loaded, above in loads if loaded == variable]
            return 0 if 0 in uses else max(uses, default=CALLS)
        if arg != variable or name not in _LOADS:
            return CALLS * (arg != variable or name not in _ELSEWHERE)
        return self.use(place)


CALLS, RETURNS = 1, 2
"""It becomes an argument of calls alone; or else what the function returns, a part of that, or such an argument."""
_NESTS = frozenset(("BUILD_TUPLE", "BUILD_LIST", "BUILD_MAP", "BUILD_CONST_KEY_MAP"))
_LOADS = frozenset(("LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_BORROW"))
_PAIRS = frozenset((
    "LOAD_FAST_LOAD_FAST", "LOAD_FAST_BORROW_LOAD_FAST_BORROW", "STORE_FAST_LOAD_FAST", "STORE_FAST_STORE_FAST",
))  # fmt: skip
_ELSEWHERE = frozenset(("LOAD_FAST_AND_CLEAR", "MAKE_CELL", "LOAD_CLOSURE", "STORE_FAST_MAYBE_NULL"))
_TEXTS = frozenset(("BUILD_STRING", "FORMAT_VALUE", "FORMAT_SIMPLE", "FORMAT_WITH_SPEC", "CONVERT_VALUE"))
