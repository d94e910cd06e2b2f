"""When a view may not be written to: torch's rules for views made in another mode, several at a time, or by users."""

from __future__ import annotations

import re

from autojit.core.errors import DifferentiationError, UsageError
from autojit.tensor.storage import CUSTOM_FUNCTION, INFERENCE, MULTIPLE_VIEWS, NO_GRAD
from autojit.tensor.tensor import Tensor

_WHY = {
    MULTIPLE_VIEWS: "This view is the output of a function that returns multiple views. Such functions do not allow "
    "the output views to be modified inplace.",
    CUSTOM_FUNCTION: "This view was created inside a custom Function (or because an input was returned as-is), whose "
    "own backward the history of the write would bypass.",
    NO_GRAD: "Given that this use case is ambiguous and error-prone, it is forbidden: make the view and write to it "
    "both inside the no_grad block (the write is not recorded) or both outside (it is).",
    INFERENCE: "Given that this use case is ambiguous and error-prone, it is forbidden: make the view and write to it "
    "both inside the inference_mode block (the write is not recorded) or both outside (it is).",
}
_FIX = {
    MULTIPLE_VIEWS: "use the out-of-place form, or index the tensor for each view",
    CUSTOM_FUNCTION: "return a clone() of the output from the Function",
    NO_GRAD: "create the view and write to it both inside the no_grad block, or both outside",
    INFERENCE: "create the view and write to it both inside the inference_mode block, or both outside",
}


def forbidden_view(x: Tensor, method: str, indirectly: bool = False) -> DifferentiationError:
    """The error for a write to view ``x``, or (``indirectly``) for asking its history after its base was written to."""
    view = x._view
    assert view is not None
    how = "its base or another view of its base has been modified" if indirectly else "is being modified"
    made = None if x._grad_fn is None else f"Output {x._output_nr} of {op_of_node(x._grad_fn.name())}"
    facts: dict[str, object] = {"method": method, "view": x} if method else {}
    if made is not None and view.creation not in (NO_GRAD, INFERENCE):
        assert x._grad_fn is not None
        what = f"{made} is a view and {how} inplace."
        node = f"Output {x._output_nr} of {x._grad_fn.name()}"
        facts["node"] = f"{node} is a view and {how} inplace. {_WHY[view.creation]}"
    else:
        start = "A view was" if made is None else f"{made} is a view of a view which was"
        if view.creation == INFERENCE:
            what = f"{start} created in inference mode and {how} inplace in normal mode."
        else:
            what = f"{start} created in no_grad mode and {how} inplace with grad mode enabled."
    return DifferentiationError(f"{what} {_WHY[view.creation]}", facts, _FIX[view.creation])


def op_of_node(name: str) -> str:
    """What a node's name says of the op: ``Exp`` for ``ExpBackward0``, ``MyFunction`` for ``MyFunctionBackward``."""
    return re.sub(r"Backward\d*$", "", name)


def leaf_written(x: Tensor, method: str) -> DifferentiationError:
    """The error for a recorded write to a leaf that requires gradients."""
    return DifferentiationError(
        "a leaf Variable that requires grad is being used in an in-place operation.",
        {"method": method, "leaf": x},
        "use the out-of-place form, or wrap the update in `with no_grad():`",
    )


def view_of_leaf_written(x: Tensor, base: Tensor, method: str) -> DifferentiationError:
    """The error for a recorded write to a view of such a leaf."""
    return DifferentiationError(
        "a view of a leaf Variable that requires grad is being used in an in-place operation.",
        {"method": method, "view": x, "leaf": base},
        "wrap the update in `with no_grad():`, or write to a clone()",
    )


def inference_written(x: Tensor, method: str) -> UsageError:
    """The error for a write, outside inference mode, to a tensor that was made in it."""
    return UsageError(
        "Inplace update to inference tensor outside InferenceMode is not allowed.",
        {"method": method, "tensor": x},
        "clone() it first: the copy is a normal tensor",
    )


def inference_saved(x: Tensor, op: str) -> DifferentiationError:
    """The error for an op whose derivative needs a tensor that was made in inference mode."""
    return DifferentiationError(
        "Inference tensors cannot be saved for backward. Please do not use Tensors created in inference mode in "
        "computation tracked by autograd.",
        {"op": op, "tensor": x},
        "clone() it first: the copy is a normal tensor",
    )
