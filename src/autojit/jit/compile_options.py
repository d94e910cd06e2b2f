"""torch's options of a compiled function: ``fullgraph``, by which a call is one step or an error, and ``mode``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autojit.core.errors import TraceError, UsageError
from autojit.jit.line_by_line import BeingCompiled
from autojit.jit.outcomes import DrawnOtherwise, Eagerly, Outcome

if TYPE_CHECKING:
    from autojit.jit.function import JitFunction
    from autojit.jit.step import CompiledStep

MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


def check_mode(mode: str | None) -> None:
    """Torch's names of trades between compile time and speed; there is one here.

    Raises:
        RuntimeError: it is none of them.
    """
    if mode is not None and mode not in MODES:
        raise UsageError(f"Unrecognized mode={mode}, should be one of: {', '.join(MODES)}")


def expect_step(owner: JitFunction, outcome: Outcome) -> None:
    """With ``fullgraph`` no call runs line by line; nothing has been written yet.

    Raises:
        TraceError: it would; the message says why.
    """
    if not owner.fullgraph:
        return
    if isinstance(outcome, Eagerly) and not isinstance(outcome.reason, BeingCompiled):
        reason: object = outcome.reason
    elif isinstance(outcome, DrawnOtherwise):
        reason = owner.counts.reasons[-1] if owner.counts.reasons else "it draws or assigns what no step can be given"
    else:
        return
    raise TraceError(
        f"{owner.name}: fullgraph=True, but the call cannot be a step",
        {"function": owner.name, "reason": reason},
        "move that out of the function, or drop fullgraph=True: such calls run line by line then",
    )


def expect_one_part(owner: JitFunction, step: CompiledStep) -> None:
    """With ``fullgraph`` Python decides nothing between parts of a step, whose last part has not run yet.

    Raises:
        TraceError: it would; the message names the line.
    """
    if owner.fullgraph and step.trace.splits:
        split = step.trace.splits[0]
        raise TraceError(
            f"{owner.name}: fullgraph=True, but the function depends on values of its tensors, so it is in parts",
            {"function": owner.name, "decides on": split.value.type, "at": split.source},
            "write the choice with where() or aj.cond, or drop fullgraph=True: explain() shows all lines then",
        )
