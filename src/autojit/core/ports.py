"""Ports: the few calls that go up the house, through a protocol instead of an import.

- ``Numpy``: what ``interop`` offers to NumPy's protocols on Tensor; imported when first used.
- ``Sparse``: what ``sparse`` offers to dispatch and to Tensor's methods; imported when first used.
- ``Passes``: how nodes of ops ask for native code that does a backward pass which has come often; as ``Numpy``.
- ``Export``: what writes the step of a jitted function to a library; imported when first used.
- ``Transforms``: how ops that hold graphs (``cond``, ``scan``, ``while_loop``) ask for the derivatives of these.

The sixth, what ``jit`` offers while a step is being captured, is ``tensor.trace.Trace``. Types of higher layers are
left open here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from autojit.core.undivided_work import undivided

if TYPE_CHECKING:
    import numpy as np

    from autojit.core.layout import Layout


class Sparse(Protocol):
    """Sparse tensors, as ``autojit.sparse`` makes them and computes with them."""

    def apply(self, op: Any, operands: Sequence[Any]) -> Any:
        """Apply an op some of whose operands are sparse."""

    def to_sparse(
        self,
        x: Any,
        sparse_dim: int | None = None,
        *,
        layout: Layout | None = None,
        blocksize: tuple[int, int] | None = None,
        dense_dim: int | None = None,
    ) -> Any:
        """The elements of a dense tensor that are not zero."""

    def to_sparse_csr(self, x: Any, dense_dim: int | None = None) -> Any:
        """The elements of a dense matrix that are not zero, kept by rows."""

    def masked(self, x: Any, mask: Any) -> Any:
        """The elements of ``x`` at the places of a sparse tensor."""

    def make(self, indices: Any, values: Any, shape: tuple[int, ...]) -> Any:
        """A sparse tensor of parts that fit each other."""


class Transforms(Protocol):
    """The transforms of graphs, as ``autojit.transforms`` defines them."""

    def adjoint(self, graph: Any, wrt: Sequence[int] | None = None, is_masked: bool | None = None) -> Any:
        """Inputs, then a cotangent per differentiable output, to the cotangents of inputs."""

    def jvp(self, graph: Any, wrt: Sequence[int] | None = None) -> Any:
        """Inputs, then tangents, to outputs, then their tangents."""

    def vmap(self, graph: Any, batched: Sequence[bool], size: int, leading: Sequence[bool] | None = None) -> Any:
        """The graph over a batch."""


class Passes(Protocol):
    """Backward passes of eager histories as native calls, as ``autojit.jit`` compiles them."""

    def backward(self, root: Any, number: int, keep: bool) -> bool:
        """Do a pass that adds to ``.grad`` of all leaves; False: the engine has to do it."""

    def asked(self, root: Any, number: int, inputs: Sequence[Any], keep: bool) -> tuple[Any, ...] | None:
        """The gradients by some leaves; None: the engine has to do it."""


class Numpy(Protocol):
    """NumPy's functions over tensors, as ``autojit.interop`` computes them."""

    def ufunc(self, ufunc: np.ufunc, method: str, inputs: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """What ``__array_ufunc__`` is asked."""

    def function(
        self, function: Callable[..., Any], types: Iterable[type], arguments: tuple[Any, ...], options: dict[str, Any]
    ) -> Any:
        """What ``__array_function__`` is asked."""

    def form(self, function: object) -> Callable[..., Any] | None:
        """What stands for a function of NumPy's, or for a ufunc's loop over operands of its dtypes; None: nothing."""


class Export(Protocol):
    """Libraries, as ``autojit.export`` writes them."""

    def write(self, function: Any, path: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Write the step for a call of a jitted function, or without arguments the last one, next to a path."""


class Ports:
    """Filled in by the higher layers when they are imported, which is at the latest when one of them is asked for."""

    export: Export
    numpy: Numpy
    sparse: Sparse
    transforms: Transforms
    passes: Passes

    def __getattr__(self, name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(name)
        with undivided:
            import_module(_HOMES[name])
        return vars(self)[name]


_HOMES = {
    "export": "autojit.export.exporting",
    "numpy": "autojit.interop",
    "passes": "autojit.jit.known_passes",
    "sparse": "autojit.sparse",
    "transforms": "autojit.transforms.port",
}
ports = Ports()
