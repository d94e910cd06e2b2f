"""torch's names for recorded graphs of work; here a compiled step is one graph of the driver's by itself."""

from __future__ import annotations

from autojit.core.absent_class import WithoutInstances

__all__ = ["CUDAGraph", "graph"]


class CUDAGraph(WithoutInstances):
    """What libraries name in annotations; a step under ``aj.jit`` becomes a graph from its second call on."""

    what = "graphs that are recorded by hand"
    instead = "aj.jit(step)"


class graph(CUDAGraph):
    """A block that torch records by hand."""
