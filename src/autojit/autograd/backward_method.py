"""``Tensor.backward``."""

from __future__ import annotations

from typing import Any

from autojit.autograd import derivatives
from autojit.core.tracebacks import trim
from autojit.dispatch.declared import declared
from autojit.history.gradients import renamed
from autojit.tensor import Tensor


@declared(function=False)
def backward(
    self: Tensor,
    gradient: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Any = None,
    *,
    retain_variables: bool | None = None,
) -> None:
    """Add the derivative of this tensor to ``.grad`` of the leaves it depends on; see ``autograd.backward``."""
    retain_graph = renamed("retain_variables", retain_variables, "retain_graph", retain_graph)
    node = self._grad_fn
    try:
        is_whole = inputs is None and not create_graph and type(self) is Tensor and self._view is None
        if is_whole and node is not None and node.backward_alone(self._output_nr, gradient, bool(retain_graph)):
            return
        derivatives.backward(self, gradient, retain_graph, create_graph, inputs=inputs)
    except Exception as error:
        trim(error)
        raise
