"""What ops that hold graphs reach through ``core.ports``: the transforms of this folder."""

from __future__ import annotations

from autojit.core.ports import ports
from autojit.transforms.adjoint import adjoint
from autojit.transforms.jvp import jvp
from autojit.transforms.vmap import vmap


class GraphTransforms:
    """The three transforms as one object (``core.ports.Transforms``)."""

    adjoint = staticmethod(adjoint)
    jvp = staticmethod(jvp)
    vmap = staticmethod(vmap)


ports.transforms = GraphTransforms()
