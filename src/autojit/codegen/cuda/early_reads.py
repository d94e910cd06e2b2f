"""What a kernel may do before it waits for the kernels in front of it: PTX in two parts.

A kernel begins with instructions that every thread runs, one after the other. Those that only compute, and those that
read memory which is settled (`early_start`), go before the wait, with all that they need; the others stay in their
order behind it. The stretch ends where control parts or meets, where anything is written, or with an instruction that
is not known here. A branch out of the kernel may be passed, if its condition is known early.

What others have written since this processor last read it may be in its first cache as it was, so such reads go by the
second one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from autojit.core.records import record

_LINE = re.compile(r"^\t(?P<opcode>[a-z][\w.]*)\s+(?P<operands>[^@{}]*(?:\{[^}]*\}[^@{}]*)*);$")
_BRANCH = re.compile(r"^\t@!?(?P<condition>%p\d+) bra \t*(?P<label>\$\w+);$")
_REGISTER = re.compile(r"%[a-z]+\d+")
_PARAMETER = re.compile(r"\[\w+_param_(\d+)(?:\+\d+)?\]")
_LOAD = re.compile(r"^ld\.global(?:\.nc)?((?:\.v[24])?\.[a-z]\d+)$")
_COPY = re.compile(r"^cp\.async\.cg\.shared\.global$")
_COMPUTES = re.compile(
    r"^(abs|add|and|bfe|bfi|brev|clz|copysign|cvt|div|fma|fns|lop3|mad|max|min|mov|mul|neg|not|or|popc|prmt|rcp|rem|selp"
    r"|setp|shf|shl|shr|sub|xor)(?!.*\.cc)\."
)
"""Without those that leave a carry or take one."""
_COMMIT = "cp.async.commit_group"


@record
class Parted:
    """The lines of a kernel's body.

    Args:
        before: the wait.
        after: it, of the same stretch.
        rest: of the body.
        leaves: whether threads may leave the kernel before the wait.
    """

    before: tuple[str, ...]
    after: tuple[str, ...]
    rest: str
    leaves: bool


class _Stretch:
    """Instructions in their order, sorted into the two parts."""

    def __init__(self, settled: Sequence[int]) -> None:
        self._settled = frozenset(settled)
        self.before: list[str] = []
        self.after: list[str] = []
        self.leaves = False
        self._early: dict[str, int | None] = {}  # register -> the parameter that it is an address of, if it is
        self._defined: set[str] = set()

    def take(self, line: str, exits: frozenset[str]) -> bool:
        """Whether an instruction belongs to the stretch; it is in one of the parts then."""
        branch = _BRANCH.match(line)
        if branch is not None:
            if branch["label"] not in exits or branch["condition"] not in self._early:
                return False
            self.before.append(line)
            self.leaves = True
            return True
        if line.strip() == f"{_COMMIT};":
            self.after.append(line)
            return True
        found = _LINE.match(line)
        return found is not None and self._sorted(line, found["opcode"], found["operands"])

    def _sorted(self, line: str, opcode: str, operands: str) -> bool:
        registers, load, is_copy = _REGISTER.findall(operands), _LOAD.match(opcode), _COPY.match(opcode) is not None
        if _COMPUTES.match(opcode) or opcode.startswith("ld.param.") or load is not None:
            count = 1 if not operands.startswith("{") else operands.partition("}")[0].count("%")
            targets, sources = registers[:count], registers[count:]
        else:
            targets, sources = [], registers
        if not targets and not is_copy:  # not known here, or it sets a pointer to a thread's own memory
            return False
        if not self._defined.isdisjoint(targets):  # written twice: what loops carry
            return False
        self._defined.update(targets)
        is_early = all(source in self._early for source in sources)
        if load is not None:
            is_early = is_early and self._is_settled(operands.rpartition("[")[2])
            line = line.replace(opcode, f"ld.global.cg{load[1]}", 1) if is_early else line
        elif is_copy:
            is_early = is_early and self._is_settled(operands.split("[")[2])
        if is_early:
            self._early.update(dict.fromkeys(targets, self._address(opcode, operands, sources)))
        (self.before if is_early else self.after).append(line)
        return True

    def _address(self, opcode: str, operands: str, sources: Sequence[str]) -> int | None:
        """The parameter from which a result is counted, if it is an address."""
        parameter = _PARAMETER.search(operands)
        if opcode.startswith("ld.param."):
            return int(parameter[1]) if parameter is not None and opcode.endswith("64") else None
        found = {p for source in sources if (p := self._early[source]) is not None}
        is_sum = opcode.partition(".")[0] in ("add", "mad", "mov", "sub")
        return found.pop() if is_sum and len(found) == 1 else None

    def _is_settled(self, address: str) -> bool:
        """Whether memory is read that nobody may be writing."""
        register = _REGISTER.search(address)
        return register is not None and self._early.get(register[0]) in self._settled


def parted(body: str, settled: Sequence[int]) -> Parted:
    """What comes before the wait and what behind it.

    Args:
        body: of a kernel, behind its declarations.
        settled: the parameters that are addresses of memory which may be read at once.
    """
    exits, stretch = _exits(body), _Stretch(settled)
    lines = body.splitlines(keepends=True)
    taken = 0
    for line in lines:
        text = line.rstrip("\n")
        is_said = bool(text.strip()) and not text.lstrip().startswith("//")
        if is_said and not stretch.take(text, exits):
            break
        taken += 1
    before, after = ([f"{line}\n" for line in part] for part in (stretch.before, stretch.after))
    return Parted(tuple(before), tuple(after), "".join(lines[taken:]), stretch.leaves)


def _exits(body: str) -> frozenset[str]:
    """The labels behind which a kernel does nothing any more."""
    return frozenset(re.findall(r"^(\$\w+):[ \t]*(?://[^\n]*)?\n(?:[ \t]*(?://[^\n]*)?\n)*\tret;$", body, re.M))
