"""Forms: the programs of fused groups, built once for all groups that do the same to other values.

Layers of a network and the updates of its parameters repeat. Two groups are of one form when their members, and what
the members read through, are the same ops wired in the same way on values of the same types; then one's program is the
other's with the values exchanged. A function that is captured again gives mostly the same groups: its captures have
one ``KnownForms``.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Any

from autojit.ir.graph import Node, Value
from autojit.schedule.groups import Group
from autojit.schedule.loops import LoopProgram, build_program
from autojit.schedule.refine import settle

MOST_FORMS = 2000  # kept for captures to come: some hundred bytes each, and texts that the process keeps anyway


class KnownForms(dict[Any, tuple[LoopProgram, list[Value]]]):
    """Programs by form, with the values they were built for; of one schedule, or of several with fixed sizes.

    Open sizes are compared by name alone, which means another size in another capture.
    """


class Forms:
    """The programs of one schedule by form; ``known`` has those of earlier ones as well."""

    def __init__(self, definitions: Mapping[Value, Node], inline: set[Value], known: KnownForms | None = None) -> None:
        self.definitions = definitions
        self.inline = inline
        self.known = KnownForms() if known is None else known

    def program(self, group: Group, stored: AbstractSet[Value]) -> LoopProgram:
        """The loops of a group that stores those of its values which are in ``stored``."""
        form, values = self._form(group, stored)
        found = self.known.get(form)
        if found is None:
            inline = self.inline | group.again
            built = build_program(group, [v for v in group.level if v in stored], self.definitions, inline)
            program = settle(built)
            if len(self.known) >= MOST_FORMS:
                self.known.clear()
            self.known[form] = program, values
            return program
        program, names = found
        return program.renamed(dict(zip(names, values, strict=True)), self.definitions)

    def _form(self, group: Group, stored: AbstractSet[Value]) -> tuple[Any, list[Value]]:
        """Everything a program depends on but the values themselves, which are numbered in the order of their use."""
        # The values themselves are left out, but not which of them are one: x * x is another program than x * y.
        definitions, inline, level = self.definitions, self.inline | group.again, group.level
        numbers: dict[Value, int] = {}
        parts: list[Any] = [group.shape, group.row_axes, group.prefix]

        def visit(value: Value) -> int:
            number = numbers.get(value)
            if number is not None:
                return number
            its_level = level.get(value)
            node = definitions.get(value) if its_level is not None or value in inline else None
            if node is None:
                parts.append(value.type)
            else:
                operands = tuple([visit(operand) for operand in node.inputs])
                parts.append((node.op, operands, value.type, its_level, value in stored))
            number = numbers[value] = len(numbers)
            return number

        for node in group.members:
            visit(node.outputs[0])
        return tuple(parts), list(numbers)
