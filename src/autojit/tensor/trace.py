"""Trace: what ``jit`` offers to tensors while a step is being captured.

They talk to the active trace only through this protocol.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence
    from contextlib import AbstractContextManager

    from numpy.typing import NDArray

    from autojit.core.device_array import Array
    from autojit.core.dtypes import DType
    from autojit.core.program_parts import Parts
    from autojit.core.source import SourceLocation
    from autojit.core.types import TensorType
    from autojit.ir.builder import GraphBuilder
    from autojit.ir.graph import Value
    from autojit.ir.op import Op
    from autojit.tensor.node import Edge, Node
    from autojit.tensor.storage import Storage
    from autojit.tensor.tensor import Tensor


class Trace(Protocol):
    """A capture in progress, stored in ``state.trace`` of the capturing thread.

    Storages (``storage.Storage``) are the unit of state: a concrete tensor's storage holds its root array, and
    views and detached tensors share it. ``tensor`` replays chains of views itself.
    """

    def apply(self, op: Op, values: Sequence[Value], place: SourceLocation | None = None) -> tuple[Value, ...]:
        """Record one op on IR values; the results' IR values. ``op`` may be a source (no values).

        ``place`` is the user's line, where it is known already.
        """

    parts: Parts
    """The modules whose calls were met."""
    builder: GraphBuilder
    """The ``ir.GraphBuilder`` of what is recorded."""
    recordings: dict[Any, Any]
    """What functions recorded, by function and types of operands (``dispatch.replay``)."""

    has_numbers: bool
    """Whether there are numbers of the step: stand-ins for Python's that change from call to call."""
    runs_often: bool
    """Whether this is the body of a loop or a branch: Python cannot decide on its values."""
    writes: int
    """How many in-place changes of concrete storages were recorded."""

    def again(self, after: Value) -> AbstractContextManager[None]:
        """A checkpointed function runs again inside, for the sake of ``after``, which must be there already."""

    def lifted(self, array: Array, is_first: bool = False) -> Value | None:
        """The present (or the first) IR value of a root array; None if the capture has not met it."""

    def lift(self, storage: Storage, owner: Tensor | None = None) -> Value:
        """The present IR value of a concrete storage's root array: a graph input, or what was written in this trace.

        ``owner`` is the tensor through which the storage was reached. Storages with the same array are the same state.
        """

    def in_place(self, storage: Storage, value: Value) -> None:
        """The whole root of a concrete storage now has ``value``; it is written back after the step."""

    def note_refreshed(self, base: Tensor) -> None:
        """A view of a tensor got a new history because that has one."""

    def note_form(self, t: Tensor) -> bool:
        """A tensor that requires gradients got another form (``t_``) that its history does not show.

        True for an argument: no step does that, so the call is going to run line by line.
        """

    def asked_version(self, t: Tensor) -> None:
        """Python asks how often a tensor was changed: of one from outside, which has a past, no step knows it."""

    def cannot(self, why: str) -> None:
        """The function does what no step can, said as "the step ...": such calls run line by line."""

    def asked_memory(self, t: Tensor, what: str, always: bool = False) -> None:
        """Python asks for ``what`` of the memory behind a tensor, which a step does not know of arguments that show
        parts of memory outside, or ``always`` not: such calls run line by line.
        """

    def concretize(self, value: Value) -> NDArray[Any]:
        """The NumPy array of an IR value that Python control flow needs (``item``, ``bool``): splits the trace."""

    def note_steps(self, tensor: Tensor) -> None:
        """The function asks for the strides of a tensor."""

    def take(self, tensor: Tensor) -> NDArray[Any]:
        """``concretize`` for somebody who may keep or change the array, which shares the tensor's memory."""

    def shown(self, tensor: Tensor) -> Any:
        """The NumPy array of a tensor whose text is asked for; None where it is not known."""

    def stays_in_a_list(self, kind: TensorType) -> bool:
        """Whether the numbers of a tensor stay numbers of the step when Python gets a list of them."""

    def item(self, value: Value) -> Any:
        """The number in an IR value of one element: a stand-in that splits the trace when Python needs its digits."""

    def size_number(self, of: int) -> Any:
        """An extent that the step leaves open, as a stand-in for a number that changes from call to call."""

    def size_value(self, of: int, dtype: DType) -> Value:
        """The IR value of such an extent, as a number of a dtype."""

    def true_positions(self, mask: Value) -> Value:
        """The IR value of the positions of a mask's true elements, row-major: a vector whose extent the step counts."""

    def size_of_number(self, number: Value, most: int | None, refusal: str) -> int:
        """The size that is the value of an int64 number, at most ``most``; ``refusal`` is said if it is negative."""

    def order_of(self, value: Value) -> NDArray[Any] | None:
        """An array whose strides are those the value has in eager mode; None for row-major order."""

    def set_order(self, value: Value, array: NDArray[Any] | None) -> None:
        """A value that nobody else has is laid out like an array; None: in row-major order."""

    def memory_of(self, storage: Storage) -> Any:
        """An array that stands for the memory of a traced storage, always the same one."""

    def offset_of(self, storage: Storage) -> int:
        """Where in the caller's storage a traced storage begins, in elements."""

    def laid_as(self, wanted: NDArray[Any] | None, value: Value, is_own: bool = False) -> Value:
        """The value of memory laid out like an array (None: in row-major order) and gets the numbers of ``value``."""

    def note_pass(self, nodes: Collection[Node], targets: Iterable[Edge] | None, accumulates: bool) -> None:
        """A pass of the step goes through ``nodes``; it gives the gradients of the edges ``targets`` alone (None: of
        all leaves), or adds them to ``.grad``.
        """

    def is_given(self, tensor: Tensor) -> bool:
        """Whether a traced tensor stands for an argument of the step, or for the ``.grad`` of one."""

    def give_memory(self, tensor: Tensor, other: Tensor) -> None:
        """A tensor from outside, or one that stands for an argument, is to look at the memory of another one; the
        capture ends where that cannot be written to the memory that it has.
        """

    def note_change(self, storage: Storage) -> None:
        """Memory has changed; an error if an array shows it, too."""

    def assigns(self, options: dict[str, Any], name: str) -> bool:
        """An option of an optimiser is about to be assigned; False where that could not be done at every call."""

    def is_assigned(self, options: dict[str, Any], name: str) -> bool:
        """Whether an option has the value that the step has given it, or takes as an argument."""

    def change_later(
        self, holders: Sequence[object], change: Callable[..., object], *args: object, **kwargs: object
    ) -> bool:
        """Make a call after every run, which changes ``holders`` (an optimiser, its groups, its schedule); False where
        that cannot be.
        """

    def begin(self, tensor: Tensor, of: Tensor | None = None) -> None:
        """A handle of a concrete tensor is made (``detach()``, ``.data``): its ``.grad`` ends with the step."""

    def note_flag(self, tensor: Tensor, flag: bool, wanted: bool) -> None:
        """A leaf is told whether it requires gradients (``wanted``); ``flag``: whether it did before."""

    def note_retained(self, tensor: Tensor) -> None:
        """The step lets a tensor that is not a leaf keep its gradient."""

    def note_detached(self, tensor: Tensor) -> None:
        """A tensor is about to lose its history in place: a concrete one has it again if the capture fails."""

    def has_begun(self, tensor: Tensor) -> bool:
        """Whether a concrete tensor was made during the capture."""

    def begin_with(self, array: Array) -> Value:
        """The IR value of an array that the function makes, and that nobody else has: the same at every call."""

    def begins(self, array: Array) -> bool:
        """Whether the function has made an array, so that every call makes one like it."""

    def begin_on(self, array: Array) -> Tensor:
        """A traced tensor that begins with what such an array holds; changes that the other would show are refused."""

    def lend(self, tensor: Tensor, owner: object) -> None:
        """Concrete memory, filled with one number, made during the capture for ``owner``: it lasts as long as that."""

    def follow(self, holder: object, moved: frozenset[int] | None = None) -> None:
        """The function reads tensors that ``holder`` (an optimiser) keeps: at every call those that it keeps then.

        ``moved``: it updates these parameters, by id.
        """

    def begin_again(self) -> None:
        """Give this capture up and capture from the start: something outside was not as it has to be."""

    def read_grad(self, leaf: Tensor) -> Tensor | None:
        """``.grad`` of a concrete tensor as of this point of the trace (a Tensor or None)."""

    def note_touch(self, leaf: Tensor, grad: Tensor | None) -> None:
        """``.grad`` of a leaf, which may stand for an argument, is looked at or replaced."""

    def write_grad(self, leaf: Tensor, grad: Tensor | None) -> None:
        """``.grad`` of a concrete tensor becomes ``grad`` (a Tensor or None) as of this point of the trace."""
