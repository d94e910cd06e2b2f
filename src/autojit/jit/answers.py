"""What a compiled function tells about itself: counters, reasons, stages, memory, times, a page to look at."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from autojit.core.errors import TraceError
from autojit.core.html import table
from autojit.jit.captures import Captures, nodes_of
from autojit.jit.exported import export
from autojit.jit.memory_budget import measured
from autojit.jit.report import explain_function, memory_of, statistics
from autojit.jit.stages import show_stage
from autojit.jit.step import CompiledStep
from autojit.jit.timing import KERNELS_EVERY, Timing

if TYPE_CHECKING:
    import os

    from autojit.jit.arguments import Key
    from autojit.jit.function import JitFunction
    from autojit.jit.view.page import View


class Stats(dict[str, Any]):
    """Counters, which notebooks show as a table."""

    def _repr_html_(self) -> str:
        return table([(name, f"{value:.3g}" if isinstance(value, float) else value) for name, value in self.items()])


class Answers:
    """The part of a `JitFunction` that runs nothing."""

    name: str
    roots: dict[Key, Captures]
    newest: CompiledStep | None

    def stats(self) -> dict[str, Any]:
        """Counters: captures, calls through Python, native calls, splits, fallbacks (ops called back), seconds."""
        return Stats(statistics(self._whole))

    def _repr_html_(self) -> str:
        return explain_function(self._whole)._repr_html_()

    def explain(self, verbose: bool = False) -> str:
        """One screen: what was captured, how it is called, what it reads, why it was captured again; or every guard."""
        return explain_function(self._whole, verbose)

    def show(self, stage: str = "captured") -> str:
        """The text of a stage of the last captured step.

        Args:
            stage: "captured" (what the function recorded, with lines and modules), "adjoint" (of that, what its
                backward passes recorded), "optimised" (after all passes), "schedule" (kernels and memory), "llvm"
                (their code), "asm" (as assembly) or "ptx" (for devices).

        Raises:
            ArgumentError: there is no such stage.
        """
        return show_stage(self.last_step(), stage)

    def memory(self, *args: object, **kwargs: object) -> dict[str, int]:
        """Bytes of the step for these arguments, which does not run; without any, of the last step, for its last sizes.

        ``arena_bytes`` are temporaries, ``scratch_bytes`` what kernels need besides, ``state_bytes`` parameters and
        other state, ``result_bytes`` what is returned.

        Raises:
            TraceError: no step serves the call.
        """
        return measured(self._whole, args, kwargs) if args or kwargs else memory_of(self.last_step())

    def timing(self, kernels_every: int = KERNELS_EVERY) -> Timing:
        """A block in which calls are timed: ``with step.timing() as timing``.

        ``print(timing)`` gives percentiles, and what each kind of kernel took; ``explain()`` and ``view()`` show them
        from then on. In the block a call takes some 0.7 us longer; one of ``kernels_every`` calls runs kernel by kernel
        and is not among the calls' times. Outside of blocks nothing is measured.

        Example:
            >>> import autojit as aj
            >>> double = aj.jit(lambda x: x * 2)
            >>> with double.timing() as timing:
            ...     for _ in range(20):
            ...         _ = double(aj.ones(3))
            >>> sorted(timing.percentiles()), timing.captures
            ([50, 90, 99], 1)
        """
        return Timing(self._whole, kernels_every)

    def view(self, path: str | os.PathLike[str] | None = None, *, assembly: bool = True) -> View:
        """A page about the last captured step, in one HTML file that needs no network.

        It shows the graph and its adjoint by module and line, the kernels with what they fuse, memory over time, times
        (measured, if `timing` was used before; else the compiler's estimates), and the text of every stage.

        Args:
            path: the file to write. Without one it is a temporary file, and at a terminal's prompt it is opened in the
                web browser.
            assembly: whether the page has the kernels' assembly, for which LLVM works some milliseconds per kernel.

        Returns:
            the page: its path where one is wanted, and what notebooks show inline.

        Raises:
            TraceError: the function has not been called yet.
            ArgumentError: the path is a folder.
        """
        from autojit.jit.view.page import view  # seldom needed, and json and webbrowser with it

        return view(self._whole, path, assembly)

    export = export

    def steps(self) -> list[CompiledStep]:
        """Every captured step."""
        return [n for root in tuple(self.roots.values()) for n in nodes_of(root.branch) if isinstance(n, CompiledStep)]

    def last_step(self) -> CompiledStep:
        """The step captured last."""
        if self.newest is None:
            raise TraceError(f"jit: {self.name} has not been called yet")
        return self.newest

    @property
    def _whole(self) -> JitFunction:
        return cast("JitFunction", self)
