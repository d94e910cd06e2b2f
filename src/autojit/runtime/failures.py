"""What goes wrong while a step runs, and how it reaches the caller: native code only leaves words behind.

A kernel that meets a bad index writes two words (see ``codegen.kernel_function``); an op that is called back keeps its
exception here, because none may cross native code.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from autojit.codegen.cpu.plan.records import INTERRUPTED
from autojit.codegen.lowered import Reporter
from autojit.codegen.report_sites import ACCESS_SITE, FAILURE_SITE
from autojit.core.errors import AutojitError, CompileError, IndexOutOfRangeError
from autojit.runtime.group_words import settle
from autojit.runtime.interrupts import ERROR_WORDS, EXCEPTION_WORDS, raise_again

if TYPE_CHECKING:
    from autojit.ir.graph import Node
    from autojit.runtime.diagnosis import Diagnosis


class Failures:
    """The report of one step's calls; ``address`` is that of a word which is not 0 when there is something to raise.

    Args:
        reporters: whose words native code writes, by the number in the upper half of the first word.
    """

    def __init__(self, reporters: Sequence[Reporter] = ()) -> None:
        self._words = np.zeros(len(ERROR_WORDS) + len(EXCEPTION_WORDS), np.int64)
        self._raised: list[BaseException] = []
        self._reporters = reporters
        self.diagnosis: Diagnosis | None = None  # of the step, once it is bound to memory
        self.address = int(self._words.ctypes.data)

    def caught(self, error: BaseException) -> None:
        """An op that was called back has raised: kept until the call has ended; the plan runner leaves out the rest."""
        self._raised.append(error)
        self._words[0] = 1

    def check(self) -> None:
        """A call has ended: raise what it met."""
        if self._words[0]:
            self.raise_errors()

    def clear(self) -> None:
        """Forget what a call left that did not end."""
        self._words[:] = 0
        self._raised.clear()

    def raise_errors(self) -> None:
        """Raise what the last call met: a bad index, an access outside a buffer (when checked), an op's own error."""
        word, position, *exception = (int(w) for w in self._words)
        self._words[:] = 0
        settle()
        if any(exception):
            raise_again(exception)
        if self._raised:
            failure = self._raised[0]
            self._raised.clear()
            if isinstance(failure, MemoryError) and self.diagnosis is not None:
                raise self.diagnosis.out_of_memory(failure) from None
            raise failure
        if word == 0:
            return
        if word == INTERRUPTED:
            raise KeyboardInterrupt("during a compiled step")
        site = word & 0xFFFFFFFF
        raise reported_error(self._reporters[word >> 32], site, position, self.diagnosis)


def reported_error(reporter: Reporter, site: int, position: int, diagnosis: Diagnosis | None = None) -> BaseException:
    """The error behind a kernel's report (see ``codegen.kernel_function``), with the value where it can be found."""
    if site < ACCESS_SITE:
        nodes = _failed_nodes(reporter, site)
        node = nodes[0] if len(nodes) == 1 else None
        if diagnosis is not None:
            for possible in nodes:
                known = diagnosis.error_of(possible)
                if known is not None:
                    return told(*known)
        failure: BaseException
        if site >= FAILURE_SITE:
            op: Any = reporter.failing[site - FAILURE_SITE]
            failure = op.failure(position)
        else:
            lookup = reporter.lookups[site - 1]
            operand = lookup.inputs[0].type
            failure = IndexOutOfRangeError(
                f"{lookup.op.name}: an index is out of bounds for {operand}", {"indexed": operand}
            )
        if isinstance(failure, AutojitError) and node is not None:
            return failure.found_at(node.source, node.op.shown_name)
        return failure
    facts = {
        "ops": ", ".join(dict.fromkeys(n.op.name for n in reporter.nodes)),
        "at": ", ".join(dict.fromkeys(str(n.source) for n in reporter.nodes)),
        "access": f"{site - ACCESS_SITE} at position {position}",
    }
    return CompileError("out of bounds", facts, "this is a defect of autojit: report it with the graph text")


def told(error: Exception, node: Node) -> Exception:
    """The error of a node that the reference has found, with the user's words for it."""
    if not isinstance(error, AutojitError):
        return error
    indexed = {"indexed": node.inputs[0].type} if node.op.looks_up else {}
    return error.with_facts(indexed).found_at(node.source, node.op.shown_name)


def _failed_nodes(reporter: Reporter, site: int) -> list[Node]:
    """The nodes behind a site: several where a kernel has them of one op."""
    if site < FAILURE_SITE:
        return [reporter.lookups[site - 1]]
    op = reporter.failing[site - FAILURE_SITE]
    return [node for node in reporter.nodes if node.op == op]
