"""What the text of a graph begins and ends with: how a function takes its arguments, and what it makes of its result.

A `CodeGen` given to ``graph.set_codegen`` says so; ``process_inputs`` and ``process_outputs`` do the same for who runs
the nodes one by one. ``PyTreeCodeGen`` takes structures apart, of graphs that were traced for such.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, NamedTuple

from autojit.fx import _pytree as fx_pytree
from autojit.jit import pytree as trees
from autojit.utils import _pytree as pytree

__all__ = ["CodeGen", "PyTreeCodeGen", "PyTreeInfo"]


class CodeGen:
    r"""A function of the graph's arguments that returns its result; a subclass says otherwise.

    Example:
        >>> import autojit as aj
        >>> class OneList(aj.fx.CodeGen):
        ...     def gen_fn_def(self, free_vars, maybe_return_annotation):
        ...         return f"def forward(self, values):\n    {', '.join(free_vars)} = values"
        ...
        ...     def process_inputs(self, *args):
        ...         return args[0]
        >>> traced = aj.fx.symbolic_trace(lambda x, y: x + y)
        >>> traced.graph.set_codegen(OneList())
        >>> _ = traced.recompile()
        >>> traced([1, 2]), aj.fx.Interpreter(traced).run([1, 2])
        (3, 3)
    """

    def gen_fn_def(self, free_vars: list[str], maybe_return_annotation: str) -> str:
        """The first lines of the function, to the colon or further; ``free_vars`` are the graph's arguments."""
        if not free_vars or free_vars[0] != "self":
            free_vars.insert(0, "self")
        return f"def forward({', '.join(free_vars)}){maybe_return_annotation}:"

    def generate_output(self, output_args: Any, *, repr_fn: Callable[[Any], str] = repr) -> str:
        """The statement that returns; ``repr_fn`` writes an argument."""
        return f"return {repr_fn(output_args)}"

    def process_inputs(self, *args: Any) -> Any:
        """The graph's arguments, of the function's."""
        return args

    def process_outputs(self, outputs: Any) -> Any:
        """The function's result, of the graph's."""
        return outputs

    def additional_globals(self) -> list[tuple[str, Any]]:
        """The names that the lines of this generator need, and what they are."""
        return []


class PyTreeInfo(NamedTuple):
    """The function's arguments by name, and the structures of all of them and of the result."""

    orig_args: list[str]
    in_spec: trees.TreeSpec
    out_spec: trees.TreeSpec | None


class PyTreeCodeGen(CodeGen):
    """Takes the arguments apart, and puts the result together."""

    def __init__(self, pytree_info: PyTreeInfo) -> None:
        self.pytree_info = pytree_info

    def __deepcopy__(self, memo: dict[int, Any]) -> PyTreeCodeGen:
        return copy.copy(self)  # structures never change

    def gen_fn_def(self, free_vars: list[str], maybe_return_annotation: str) -> str:
        """``forward`` of the original arguments, and the line that takes them apart."""
        given = self.pytree_info.orig_args
        head = super().gen_fn_def([*given], maybe_return_annotation)
        names = [*(["self"] if given[:1] == ["self"] else []), *(text.partition("=")[0].strip() for text in free_vars)]
        if not names:
            return head
        values = ", ".join(name.lstrip("*") for name in given)
        targets = ", ".join(name.lstrip("*") for name in names)
        return f"{head}\n    {targets}, = fx_pytree.tree_flatten_spec([{values}], self._in_spec)"

    def generate_output(self, output_args: Any, *, repr_fn: Callable[[Any], str] = repr) -> str:
        """The result in its structure."""
        if self.pytree_info.out_spec is None:
            return super().generate_output(output_args, repr_fn=repr_fn)
        return f"return pytree.tree_unflatten({repr_fn(output_args)}, self._out_spec)"

    def process_inputs(self, *args: Any) -> Any:
        """The leaves of the arguments."""
        own = self.pytree_info.orig_args[:1] == ["self"]
        pairs = zip(args, self.pytree_info.in_spec.children[own:], strict=False)
        return [leaf for value, spec in pairs for leaf in fx_pytree.tree_flatten_spec(value, spec)]

    def process_outputs(self, outputs: Any) -> Any:
        """The result in its structure."""
        spec = self.pytree_info.out_spec
        if spec is None:
            return outputs
        return pytree.tree_unflatten(outputs if isinstance(outputs, list | tuple) else [outputs], spec)

    def additional_globals(self) -> list[tuple[str, Any]]:
        """The two modules that take apart and put together."""
        return [("fx_pytree", fx_pytree), ("pytree", pytree)]
