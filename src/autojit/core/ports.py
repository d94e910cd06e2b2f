"""Ports: the few calls that go up the house, through a protocol instead of an import.

- ``Trace``: what ``jit`` offers to ``tensor`` while a step is being captured.
- ``Numpy``: what ``interop`` offers to NumPy's protocols on Tensor; imported when first used.
- ``Sparse``: what ``sparse`` offers to dispatch and to Tensor's methods; imported when first used.
- ``Transforms``: how ops that hold graphs (``cond``, ``scan``, ``while_loop``) ask for the derivatives of these.

``tensor`` talks to the active trace only through ``Trace``; types of higher layers are therefore left open here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from autojit.core.undivided_work import undivided

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Trace(Protocol):
    """A capture in progress, stored in ``tensor.state.state.trace`` of the capturing thread.

    Storages (``tensor.storage.Storage``) are the unit of state: a concrete tensor's storage holds its root array, and
    views and detached tensors share it. ``tensor`` replays chains of views itself.
    """

    def apply(self, op: Any, values: Sequence[Any], place: Any = None) -> tuple[Any, ...]:
        """Record one op on IR values; the results' IR values. ``op`` may be a source (no values).

        ``place`` is the user's line, where it is known already.
        """
        ...

    builder: Any
    """The ``ir.GraphBuilder`` of what is recorded."""
    recordings: dict[Any, Any]
    """What functions recorded, by function and types of operands (``dispatch.replay``)."""

    has_numbers: bool
    """Whether there are numbers of the step: stand-ins for Python's that change from call to call."""
    runs_often: bool
    """Whether this is the body of a loop or a branch: Python cannot decide on its values."""
    writes: int
    """How many in-place changes of concrete storages were recorded."""

    def lifted(self, array: Any, is_first: bool = False) -> Any:
        """The present (or the first) IR value of a root array; None if the capture has not met it."""
        ...

    def lift(self, storage: Any, owner: Any = None) -> Any:
        """The present IR value of a concrete storage's root array: a graph input, or what was written in this trace.

        ``owner`` is the tensor through which the storage was reached. Storages with the same array are the same state.
        """
        ...

    def in_place(self, storage: Any, value: Any) -> None:
        """The whole root of a concrete storage now has ``value``; it is written back after the step."""
        ...

    def note_refreshed(self, base: Any) -> None:
        """A view of a tensor got a new history because that has one."""
        ...

    def note_form(self, t: Any) -> bool:
        """A tensor that requires gradients got another form (``t_``) that its history does not show.

        True for an argument: no step does that, so the call is going to run line by line.
        """
        ...

    def asked_version(self, t: Any) -> None:
        """Python asks how often a tensor was changed: of one from outside, which has a past, no step knows it."""
        ...

    def cannot(self, why: str) -> None:
        """The function does what no step can, said as "the step ...": such calls run line by line."""
        ...

    def asked_memory(self, t: Any, what: str, always: bool = False) -> None:
        """Python asks for ``what`` of the memory behind a tensor, which a step does not know of arguments that show
        parts of memory outside, or ``always`` not: such calls run line by line.
        """
        ...

    def concretize(self, value: Any) -> NDArray[Any]:
        """The NumPy array of an IR value that Python control flow needs (``item``, ``bool``): splits the trace."""
        ...

    def note_steps(self, tensor: Any) -> None:
        """The function asks for the strides of a tensor."""
        ...

    def take(self, tensor: Any) -> NDArray[Any]:
        """``concretize`` for somebody who may keep or change the array, which shares the tensor's memory."""
        ...

    def shown(self, tensor: Any) -> Any:
        """The NumPy array of a tensor whose text is asked for; None where it is not known."""
        ...

    def item(self, value: Any) -> Any:
        """The number in an IR value of one element: a stand-in that splits the trace when Python needs its digits."""
        ...

    def size_number(self, of: int) -> Any:
        """An extent that the step leaves open, as a stand-in for a number that changes from call to call."""
        ...

    def size_value(self, of: int, dtype: Any) -> Any:
        """The IR value of such an extent, as a number of a dtype."""
        ...

    def true_positions(self, mask: Any) -> Any:
        """The IR value of the positions of a mask's true elements, row-major: a vector whose extent the step counts."""
        ...

    def size_of_number(self, number: Any, most: int | None, refusal: str) -> int:
        """The size that is the value of an int64 number, at most ``most``; ``refusal`` is said if it is negative."""
        ...

    def order_of(self, value: Any) -> Any:
        """An array whose strides are those the value has in eager mode; None for row-major order."""
        ...

    def set_order(self, value: Any, array: Any) -> None:
        """A value that nobody else has is laid out like an array; None: in row-major order."""
        ...

    def memory_of(self, storage: Any) -> Any:
        """An array that stands for the memory of a traced storage, always the same one."""
        ...

    def offset_of(self, storage: Any) -> int:
        """Where in the caller's storage a traced storage begins, in elements."""
        ...

    def keep_order(self, before: Any, value: Any, is_own: bool) -> Any:
        """The value of memory that held ``before`` and gets the numbers of ``value``."""
        ...

    def laid_as(self, wanted: Any, value: Any, is_own: bool = False) -> Any:
        """The value of memory laid out like an array (None: in row-major order) and gets the numbers of ``value``."""
        ...

    def note_pass(self, nodes: Any, targets: Any, accumulates: bool) -> None:
        """A pass of the step goes through ``nodes``; it gives the gradients of the edges ``targets`` alone (None: of
        all leaves), or adds them to ``.grad``.
        """
        ...

    def is_given(self, tensor: Any) -> bool:
        """Whether a traced tensor stands for an argument of the step, or for the ``.grad`` of one."""
        ...

    def leave_memory(self, tensor: Any) -> None:
        """A tensor from outside, or one that stands for an argument, is to look at other memory: the capture ends."""
        ...

    def note_change(self, storage: Any) -> None:
        """Memory has changed; an error if an array shows it, too."""
        ...

    def assigns(self, options: Any, name: str) -> bool:
        """An option of an optimiser is about to be assigned; False where that could not be done at every call."""
        ...

    def is_assigned(self, options: Any, name: str) -> bool:
        """Whether an option has the value that the step has given it, or takes as an argument."""
        ...

    def change_later(self, holders: Any, change: Any, *args: Any, **kwargs: Any) -> bool:
        """Make a call after every run, which changes ``holders`` (an optimiser, its groups, its schedule); False where
        that cannot be.
        """
        ...

    def begin(self, tensor: Any, of: Any = None) -> None:
        """A handle of a concrete tensor is made (``detach()``, ``.data``): its ``.grad`` ends with the step."""
        ...

    def note_flag(self, tensor: Any, flag: bool, wanted: bool) -> None:
        """A leaf is told whether it requires gradients (``wanted``); ``flag``: whether it did before."""
        ...

    def note_retained(self, tensor: Any) -> None:
        """The step lets a tensor that is not a leaf keep its gradient."""
        ...

    def note_detached(self, tensor: Any) -> None:
        """A tensor is about to lose its history in place: a concrete one has it again if the capture fails."""
        ...

    def has_begun(self, tensor: Any) -> bool:
        """Whether a concrete tensor was made during the capture."""
        ...

    def begin_with(self, array: Any) -> Any:
        """The IR value of an array that the function makes, and that nobody else has: the same at every call."""
        ...

    def begins(self, array: Any) -> bool:
        """Whether the function has made an array, so that every call makes one like it."""
        ...

    def begin_on(self, array: Any) -> Any:
        """A traced tensor that begins with what such an array holds; changes that the other would show are refused."""
        ...

    def lend(self, tensor: Any, owner: object) -> None:
        """Concrete memory, filled with one number, made during the capture for ``owner``: it lasts as long as that."""
        ...

    def follow(self, holder: Any, moved: frozenset[int] | None = None) -> None:
        """The function reads tensors that ``holder`` (an optimiser) keeps: at every call those that it keeps then.

        ``moved``: it updates these parameters, by id.
        """
        ...

    def begin_again(self) -> None:
        """Give this capture up and capture from the start: something outside was not as it has to be."""
        ...

    def read_grad(self, leaf: Any) -> Any:
        """``.grad`` of a concrete tensor as of this point of the trace (a Tensor or None)."""
        ...

    def note_touch(self, leaf: Any, grad: Any) -> None:
        """``.grad`` of a leaf, which may stand for an argument, is looked at or replaced."""
        ...

    def write_grad(self, leaf: Any, grad: Any) -> None:
        """``.grad`` of a concrete tensor becomes ``grad`` (a Tensor or None) as of this point of the trace."""
        ...


class Sparse(Protocol):
    """Sparse tensors, as ``autojit.sparse`` makes them and computes with them."""

    def apply(self, op: Any, operands: Sequence[Any]) -> Any:
        """Apply an op some of whose operands are sparse."""
        ...

    def to_sparse(
        self, x: Any, sparse_dim: Any = None, *, layout: Any = None, blocksize: Any = None, dense_dim: Any = None
    ) -> Any:
        """The elements of a dense tensor that are not zero."""
        ...

    def to_sparse_csr(self, x: Any, dense_dim: int | None = None) -> Any:
        """The elements of a dense matrix that are not zero, kept by rows."""
        ...

    def masked(self, x: Any, mask: Any) -> Any:
        """The elements of ``x`` at the places of a sparse tensor."""
        ...

    def make(self, indices: Any, values: Any, shape: tuple[int, ...]) -> Any:
        """A sparse tensor of parts that fit each other."""
        ...


class Transforms(Protocol):
    """The transforms of graphs, as ``autojit.transforms`` defines them."""

    def adjoint(self, graph: Any, wrt: Sequence[int] | None = None, is_masked: bool | None = None) -> Any:
        """Inputs, then a cotangent per differentiable output, to the cotangents of inputs."""
        ...

    def jvp(self, graph: Any, wrt: Sequence[int] | None = None) -> Any:
        """Inputs, then tangents, to outputs, then their tangents."""
        ...

    def vmap(self, graph: Any, batched: Sequence[bool], size: int, leading: Sequence[bool] | None = None) -> Any:
        """The graph over a batch."""
        ...


class Numpy(Protocol):
    """NumPy's functions over tensors, as ``autojit.interop`` computes them."""

    def ufunc(self, ufunc: Any, method: str, inputs: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """What ``__array_ufunc__`` is asked."""
        ...

    def function(
        self, function: Callable[..., Any], types: Any, arguments: tuple[Any, ...], options: dict[str, Any]
    ) -> Any:
        """What ``__array_function__`` is asked."""
        ...

    def form(self, function: Any) -> Callable[..., Any] | None:
        """What stands for a function of NumPy's, or for a ufunc's loop over operands of its dtypes; None: nothing."""
        ...


class Ports:
    """Filled in by the higher layers when they are imported, which is at the latest when one of them is asked for."""

    numpy: Numpy
    sparse: Sparse
    transforms: Transforms

    def __getattr__(self, name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(name)
        with undivided:
            import_module(_HOMES[name])
        return vars(self)[name]


_HOMES = {"numpy": "autojit.interop", "sparse": "autojit.sparse", "transforms": "autojit.transforms.port"}
ports = Ports()
