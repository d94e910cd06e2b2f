"""Several passes in order, over and over until none changes anything, with checks in between."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Sequence
from typing import Any

from autojit.core.errors import UsageError
from autojit.core.wrapping import wraps
from autojit.fx.graph_module import GraphModule
from autojit.fx.passes.infra.pass_base import PassResult

__all__ = ["PassManager", "pass_result_wrapper", "this_before_that_pass_constraint"]

Pass = Callable[[GraphModule], "PassResult | None"]
Constraint = Callable[[Any, Any], bool]
logger = logging.getLogger(__name__)


def pass_result_wrapper(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A function that changes a module, as a pass that says it did."""

    @wraps(fn)
    def called(graph_module: GraphModule) -> PassResult:
        result = fn(graph_module)
        if isinstance(result, PassResult):
            return result
        return PassResult(graph_module if result is None else result, modified=True)

    if not inspect.isfunction(fn):
        called.__name__ = type(fn).__name__
    return called


def this_before_that_pass_constraint(this: Pass, that: Pass) -> Constraint:
    """A constraint: where both are run, ``this`` is before ``that``."""
    return lambda a, b: not (a == that and b == this)


class PassManager:
    """Runs passes.

    Args:
        passes: what is run, in order.
        constraints: functions of two passes, true if the first may be before the second.
        steps: how often all are run; less if nothing changes any more.
        run_checks_after_each_pass: call what ``add_checks`` was given after each pass, not only after each step.
        suppress_check_failures: log what a check finds, and go on.

    Example:
        >>> import autojit as aj
        >>> from autojit.fx.passes.infra.pass_manager import PassManager, pass_result_wrapper
        >>> def without_dead_code(module):
        ...     module.graph.eliminate_dead_code()
        >>> traced = aj.fx.symbolic_trace(lambda x: [aj.sin(x), x + 1][1])
        >>> result = PassManager([pass_result_wrapper(without_dead_code)])(traced)
        >>> [node.name for node in result.graph_module.graph.nodes]
        ['x', 'add', 'output']
    """

    def __init__(
        self,
        passes: Sequence[Pass] | None = None,
        constraints: Sequence[Constraint] | None = None,
        steps: int | None = None,
        run_checks_after_each_pass: bool = False,
        suppress_check_failures: bool = False,
    ) -> None:
        self.passes: list[Pass] = list(passes or ())
        self.constraints: list[Constraint] = list(constraints or ())
        self.steps = steps or 1
        self.run_checks_after_each_pass = run_checks_after_each_pass
        self.suppress_check_failures = suppress_check_failures
        self._check: Callable[[Any], object] | None = None

    def add_pass(self, _pass: Pass) -> None:
        """Run one more, last."""
        self.passes.append(_pass)

    def add_constraint(self, constraint: Constraint) -> None:
        """Keep one more constraint; the passes are in order before they are run next."""
        self.constraints.append(constraint)

    def validate_constraints(self) -> None:
        """Raises RuntimeError if the passes' order is against a constraint."""
        for place, before in enumerate(self.passes):
            for after in self.passes[place + 1 :]:
                if not self._may_follow(before, after):
                    raise UsageError("pass schedule constraint violated", {"before": before, "after": after},
                                     "solve_constraints()")  # fmt: skip

    def _may_follow(self, before: Pass, after: Pass) -> bool:
        return all(constraint(before, after) for constraint in self.constraints)

    def solve_constraints(self) -> None:
        """Put the passes into an order that keeps all constraints, otherwise as they are."""
        left, ordered = list(self.passes), []
        while left:
            first = next((a for a in left if all(b is a or self._may_follow(a, b) for b in left)), None)
            if first is None:
                raise UsageError("Circular dependency detected within the following passes", {"passes": left})
            left.remove(first)
            ordered.append(first)
        self.passes = ordered

    def add_checks(self, check: Callable[[Any], object]) -> None:
        """Check modules with a function of one argument, which raises if it finds something."""
        parameters = list(inspect.signature(check).parameters)
        if len(parameters) != 1:
            raise TypeError("PassManager check function should only take in one variable, a module")
        self._check = check

    def check(self, module: Any) -> None:
        """Look at a module with what ``add_checks`` was given."""
        if self._check is not None:
            self._check(module)

    def __call__(self, module: GraphModule) -> PassResult:
        """The module after the passes."""
        self.solve_constraints()
        self._checked(module, "before the passes")
        changed = False
        for _ in range(self.steps):
            changed_now = False
            for one in self.passes:
                name = getattr(one, "__name__", type(one).__name__)
                try:
                    result = one(module)
                except Exception as error:
                    error.add_note(f"An error occurred when running the '{name}' pass")
                    raise
                if not isinstance(result, PassResult):
                    raise TypeError(f"The result of the pass {name} should be type PassResult. Please wrap it with "
                                    "pass_result_wrapper()")  # fmt: skip
                module, changed_now = result.graph_module, changed_now or result.modified
                module.recompile()
                if self.run_checks_after_each_pass:
                    self._checked(module, f"after the pass {name}")
            self._checked(module, "after the passes")
            changed = changed or changed_now
            if not changed_now:
                break
        return PassResult(module, changed)

    def _checked(self, module: Any, when: str) -> None:
        try:
            self.check(module)
        except Exception:
            if not self.suppress_check_failures:
                raise
            logger.exception("a check failed %s", when)
