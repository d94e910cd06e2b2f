"""What packages call as they are imported, to tell parts of torch that autojit does not have what to do with them.

Nothing asks for it afterwards, so that such a package runs in all that it does without these parts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from autojit.functions.printing import PrintOptions, body
from autojit.nn import Module
from autojit.tensor import Tensor

F = TypeVar("F", bound=Callable[..., Any])

symbolics: dict[tuple[str, int], Callable[..., Any]] = {}
"""Functions for an export to ONNX, by operator and version."""


def register_custom_op_symbolic(symbolic_name: str, symbolic_fn: Callable[..., Any], opset_version: int) -> None:
    """Remember how an operator would be written for ONNX."""
    symbolics[symbolic_name, opset_version] = symbolic_fn


def parse_args(*arg_descriptors: str) -> Callable[[F], F]:
    """Decorates a function for ONNX; it stays as it is."""
    return lambda fn: fn


class QuantStub(Module):
    """Marks where numbers would be quantised; in floating point, as in torch before a conversion, they stay."""

    def __init__(self, qconfig: object = None) -> None:
        super().__init__()
        self.qconfig = qconfig

    def forward(self, x: Any) -> Any:
        """The argument."""
        return x


class DeQuantStub(QuantStub):
    """Marks where they would be numbers again."""


def _tensor_str(self: Tensor, indent: int) -> str:
    """The numbers of a tensor as it prints them."""
    return body(self.detach().numpy(), indent)


KNOWN: dict[str, Any] = {
    "_tensor_str.PRINT_OPTS": PrintOptions,
    "_tensor_str._tensor_str": _tensor_str,
    "onnx.is_in_onnx_export": lambda: False,
    "onnx.register_custom_op_symbolic": register_custom_op_symbolic,
    "onnx.symbolic_helper.parse_args": parse_args,
    "ao.quantization.QuantStub": QuantStub,
    "ao.quantization.DeQuantStub": DeQuantStub,
}
"""By torch's names."""
