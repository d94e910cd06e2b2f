"""What ops that hold graphs reach through ``core.ports``: the transforms of this folder."""

from __future__ import annotations

from autojit.core.ports import ports
from autojit.transforms.adjoint import adjoint
from autojit.transforms.batch import vmap
from autojit.transforms.jvp import jvp


class GraphTransforms:
    """The three transforms as one object (``core.ports.Transforms``)."""

    adjoint = staticmethod(adjoint)
    jvp = staticmethod(jvp)
    vmap = staticmethod(vmap)


ports.transforms = GraphTransforms()
