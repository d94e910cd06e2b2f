"""The errors that a step can report, each with a code and a text."""

from __future__ import annotations

from collections.abc import Sequence

from autojit.codegen.lowered import Reporter
from autojit.codegen.report_sites import FAILURE_SITE
from autojit.runtime.failures import reported_error
from autojit.runtime.library.interface import TEXTS, Code, ReporterRow


class ErrorTexts:
    """Codes from ``Code.FIRST_OF_STEP`` on, in the order in which kernels can report."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.rows: list[ReporterRow] = []

    def add(self, reporters: Sequence[Reporter]) -> int:
        """The kernels of one more step; the number of the first."""
        first = len(self.rows)
        for reporter in reporters:
            self.rows.append(
                ReporterRow(
                    first_look_up=Code.FIRST_OF_STEP.value + len(self.texts),
                    first_failure=Code.FIRST_OF_STEP.value + len(self.texts) + len(reporter.lookups),
                )
            )
            sites = [*range(1, 1 + len(reporter.lookups))]
            sites += range(FAILURE_SITE, FAILURE_SITE + len(reporter.failing))
            self.texts += [_text(reporter, site) for site in sites]
        return first

    def words(self) -> tuple[list[int], bytes]:
        """By code, where its text begins; the last is of unknown codes. And the texts."""
        texts = [TEXTS[Code(code)] if code in TEXTS else "unknown error" for code in range(Code.FIRST_OF_STEP)]
        places: list[int] = []
        content = bytearray()
        for text in (*texts, *self.texts, "unknown error"):
            places.append(len(content))
            content += text.encode() + b"\0"
        return places, bytes(content)


def _text(reporter: Reporter, site: int) -> str:
    """One line: what is wrong, and the user's line."""
    error = reported_error(reporter, site, 0)
    return "; ".join(" ".join(line.split()) for line in str(error).splitlines())
