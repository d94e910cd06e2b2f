"""``fuse``: batch norms of a model for evaluation, as part of the convolutions before them."""

from __future__ import annotations

import copy
from typing import Any

from autojit.fx._symbolic_trace import symbolic_trace
from autojit.fx.graph_module import GraphModule
from autojit.nn import BatchNorm1d, BatchNorm2d, BatchNorm3d, Conv1d, Conv2d, Conv3d, Linear, Module
from autojit.nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval

__all__ = ["fuse"]

_PAIRS = ((Conv1d, BatchNorm1d), (Conv2d, BatchNorm2d), (Conv3d, BatchNorm3d), (Linear, BatchNorm1d))


def fuse(model: Module, inplace: bool = False, no_trace: bool = False) -> GraphModule:
    """The model's graph without the batch norms that follow a convolution, or a linear layer, that nothing else reads.

    Args:
        inplace: change the model's own layers.
        no_trace: the model is a graph module already.

    Raises:
        UsageError: the model is in training.

    Example:
        >>> import autojit as aj
        >>> from autojit.fx.experimental.optimization import fuse
        >>> model = aj.nn.Sequential(aj.nn.Conv2d(1, 2, 3), aj.nn.BatchNorm2d(2), aj.nn.ReLU()).eval()
        >>> [type(layer).__name__ for layer in fuse(model).children()]
        ['Conv2d', 'ReLU']
    """
    fused = model if inplace else copy.deepcopy(model)
    module: Any = fused if no_trace and isinstance(fused, GraphModule) else symbolic_trace(fused)
    for node in module.graph.find_nodes(op="call_module"):
        before = node.args[0]
        if len(node.args) != 1 or getattr(before, "op", "") != "call_module" or len(before.users) > 1:
            continue
        layer, norm = (module.get_submodule(str(found.target)) for found in (before, node))
        if (type(layer), type(norm)) not in _PAIRS or not norm.track_running_stats or _is_shared(module, before):
            continue
        joined = (fuse_linear_bn_eval if type(layer) is Linear else fuse_conv_bn_eval)(layer, norm)
        parent, _, name = str(before.target).rpartition(".")
        setattr(module.get_submodule(parent), name, joined)
        node.replace_all_uses_with(before)
        module.graph.erase_node(node)
    module.delete_all_unused_submodules()
    module.recompile()
    return GraphModule(module, module.graph)


def _is_shared(module: GraphModule, call: Any) -> bool:
    """Whether the layer that a node calls is called elsewhere, too."""
    layer = module.get_submodule(str(call.target))
    calls = module.graph.find_nodes(op="call_module")
    return sum(module.get_submodule(str(node.target)) is layer for node in calls) > 1
