"""A scalar function in LLVM text, ready to be linked: its operands, its results, whether it can fail.

Its ABI is Numba's: ``i32 f(ptr results, ptr failure, operands...)``. The results are written behind the first pointer,
each at its own offset; a status other than 0 says that there are none, and behind the second pointer is the number of
the failure. Every function here has this form, derivatives included.
"""

from __future__ import annotations

import re

from autojit.codegen.numba_text.module_text import Linked
from autojit.core.errors import UnsupportedError
from autojit.core.records import record

BYTES = {"double": 8, "float": 4, "i8": 1, "i16": 2, "i32": 4, "i64": 8, "i1": 1}
RESULTS, FAILURE, FIRST_OPERAND = 0, 1, 2  # parameters


@record
class ScalarFunction:
    """A linked function of scalars.

    Args:
        code: the function and what it calls.
        results: (offset in bytes, LLVM type in memory) of every result.
    """

    code: Linked
    results: tuple[tuple[int, str], ...]

    @property
    def symbol(self) -> str:
        return self.code.functions[0].name

    @property
    def operands(self) -> tuple[str, ...]:
        """LLVM types of the operands."""
        return tuple(kind for kind, _ in self.code.functions[0].parameters[FIRST_OPERAND:])

    @property
    def result_bytes(self) -> int:
        return max(offset + BYTES[kind] for offset, kind in self.results)

    @property
    def may_fail(self) -> bool:
        """Whether the status can be other than 0."""
        returned = [line for line in self.code.functions[0].lines() if line.startswith("ret ")]
        return any(line != "ret i32 0" for line in returned)


def result_layout(kinds: tuple[str, ...]) -> tuple[tuple[int, str], ...]:
    """Where the members of a struct are: each at the next multiple of its size."""
    places, offset = [], 0
    for kind in kinds:
        size = BYTES[kind]
        offset = -(-offset // size) * size
        places.append((offset, kind))
        offset += size
    return tuple(places)


def scalar_function(code: Linked, kinds: tuple[str, ...]) -> ScalarFunction:
    """A function whose results have these LLVM types in memory. UnsupportedError when its form is another."""
    root = code.functions[0]
    pointers = [kind for kind, _ in root.parameters[:FIRST_OPERAND]]
    operands = [kind for kind, _ in root.parameters[FIRST_OPERAND:]]
    if root.returns != "i32" or pointers != ["ptr", "ptr"] or any(kind not in BYTES for kind in operands):
        raise UnsupportedError("a linked function must map numbers to numbers", {"operands": ", ".join(operands)})
    return ScalarFunction(code, result_layout(kinds))


def called_names(code: Linked) -> set[str]:
    """Names without ``@`` that the functions refer to."""
    return {
        name for function in code.functions for line in function.lines() for name in re.findall(r"@([-\w$.]+)", line)
    }
