"""Averages gradients over the ranks while the backward pass runs: bucket by bucket, in one order on all ranks.

A parameter is ready when its gradient has been added to ``.grad``. The sum of a bucket is begun when all of its
parameters are ready and those of all buckets before it have been begun, so every rank makes the same calls in the same
order, whatever order its own backward pass has. All are waited for at the end of the backward pass. In a captured step
these calls become ops of the step, by the very same code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import autojit as aj
from autojit.autograd.grad_mode import no_grad
from autojit.core.errors import UnsupportedError, UsageError
from autojit.core.layout import strided
from autojit.distributed.buckets import FIRST_BUCKET_MB, GradBucket, assigned, flattened, taken_apart
from autojit.distributed.collectives import all_reduce
from autojit.distributed.groups import ProcessGroup
from autojit.distributed.work import Work
from autojit.jit.pytree import flatten
from autojit.nn.parameter import Parameter
from autojit.tensor import Tensor
from autojit.tensor.node import AccumulateGrad, Node
from autojit.tensor.state import state

CommHook = Callable[[Any, GradBucket], Any]

_UNFINISHED = (
    "Expected to have finished reduction in the prior iteration before starting a new one. This error indicates that "
    "your module has parameters that were not used in producing loss."
)


class Reducer:
    """The gradients of some parameters.

    Args:
        parameters: by name, in the module's order; they are expected to be ready in the opposite one.
        bucket_mb: how large buckets are; the first one is smaller.
        finds_unused: whether parameters that a pass does not use are looked for.
    """

    def __init__(
        self, parameters: dict[str, Parameter], group: ProcessGroup, bucket_mb: Sequence[float], finds_unused: bool
    ) -> None:
        self.group = group
        self.names = list(reversed(parameters))
        self.parameters = [parameters[name] for name in self.names]
        self.finds_unused = finds_unused
        limits = bucket_mb if len(bucket_mb) > 1 else [min(FIRST_BUCKET_MB, bucket_mb[0]), *bucket_mb]
        self.buckets = assigned(self.parameters, limits)
        self.bucket_of = {place: number for number, bucket in enumerate(self.buckets) for place in bucket}
        self.hook: tuple[Any, CommHook] | None = None
        self.is_expected = self.has_begun = False
        self.trace: Any = None  # in which the present pass was begun
        self.was_captured = False  # a step has the forward pass and not the backward pass: nobody tells that it ran
        self.divisor: Any = group.size()
        self.is_wanted: Callable[[], bool] = lambda: True
        self.left: set[int] = set()
        self.unused: set[int] = set()
        self.next = 0
        self.begun: list[tuple[int, Any]] = []  # buckets that are being combined, and what to wait for
        self.handles = [
            p.register_post_accumulate_grad_hook(self._hook_of(place)) for place, p in enumerate(self.parameters)
        ]

    def _hook_of(self, place: int) -> Callable[[Tensor], None]:
        def gradient_is_ready(_leaf: Tensor) -> None:
            self.ready(place)

        return gradient_is_ready

    # -- one pass

    def begin(self, outputs: Any) -> None:
        """A forward pass has made ``outputs``; its backward pass will average the gradients.

        Raises:
            UsageError: the last one has not reached all parameters.
        """
        if self.is_expected and self.has_begun and self.trace is state.trace:
            missing = [self.names[k] for k in sorted(self.left)]
            self.is_expected = False
            raise UsageError(
                _UNFINISHED,
                {"without gradient": ", ".join(reversed(missing)), "rank": self.group.rank()},
                "pass find_unused_parameters=True, and let all outputs of forward take part in the loss",
            )
        self._restart()
        self.trace, self.was_captured = state.trace, state.trace is not None
        self.unused = self._without_gradient(outputs) if self.finds_unused else set()

    def _restart(self) -> None:
        self.is_expected, self.has_begun = True, False
        self.left, self.next = set(range(len(self.parameters))), 0
        begun, self.begun = self.begun, []
        if self.trace is state.trace is None:  # of a pass that was given up: their memory is in use
            for _, made in begun:
                _waited(made)

    def skip(self) -> None:
        """The backward pass of the present forward pass is this rank's own."""
        self.is_expected = False

    def _without_gradient(self, outputs: Any) -> set[int]:
        """The parameters that no output depends on."""
        tensors = [leaf for leaf in flatten(outputs)[0] if isinstance(leaf, Tensor)]
        used = {id(leaf) for leaf in _leaves_behind(tensors)}
        return {k for k, p in enumerate(self.parameters) if id(p) not in used}

    def ready(self, place: int) -> None:
        """The gradient of a parameter has arrived; reduce what is complete."""
        if not self.is_expected:
            if not self.was_captured or state.trace is not None or not self.is_wanted():
                return
            self._restart()
        if place not in self.left:
            self.is_expected = False
            raise UsageError(
                "Expected to mark a variable ready only once.",
                {"parameter": self.names[place]},
                "do not run parts of the module again in the backward pass (reentrant checkpoints), or share their "
                "parameters between them",
            )
        self.has_begun = True
        self.left.discard(place)
        self.left -= self.unused
        while self.next < len(self.buckets) and self.left.isdisjoint(self.buckets[self.next]):
            number = self.next
            self.next += 1
            with self._for_bucket(number):
                self._begin(number, [self._gradient(self.parameters[k]) for k in self.buckets[number]])
        if self.next == len(self.buckets):
            begun, self.begun = self.begun, []
            for number, made in begun:
                with self._for_bucket(number):
                    self._finish(number, _waited(made))
            self.is_expected, self.divisor = False, self.group.size()
            self.was_captured = self.was_captured and state.trace is not self.trace

    @contextmanager
    def _for_bucket(self, number: int, more: str = "") -> Iterator[None]:
        with no_grad(), self.group.for_purpose(f"bucket {number} of DistributedDataParallel{more}"):
            yield

    def _begin(self, number: int, gradients: Sequence[Tensor]) -> None:
        """Begin to combine what this rank has of a bucket."""
        parameters = [self.parameters[k] for k in self.buckets[number]]
        vector = flattened(gradients)
        if self.hook is None:
            if _may_overflow(vector):
                vector = vector / self.divisor
            elif len(gradients) == 1:
                vector = vector.clone()  # it is combined in place, and the gradient is not the sum if that fails
            made: Any = all_reduce(vector, group=self.group, async_op=True)
        else:
            is_last = number == len(self.buckets) - 1
            made = self.hook[1](self.hook[0], GradBucket(number, vector, parameters, is_last))
        self.begun.append((number, made))

    def _finish(self, number: int, vector: Tensor) -> None:
        """Give the parameters of a bucket what all ranks have combined."""
        bucket = self.buckets[number]
        parameters = [self.parameters[k] for k in bucket]
        is_used = self._used_anywhere(bucket) if self.finds_unused else [True] * len(bucket)
        is_sum = self.hook is None and not _may_overflow(vector)
        for p, found, used in zip(parameters, taken_apart(vector, parameters), is_used, strict=True):
            if not used:
                continue
            average = found / self.divisor if is_sum else found  # of this shape, so that the optimiser's kernel does it
            if p.grad is None:
                p.grad = average.clone()
            else:
                p.grad.copy_(average)

    def _gradient(self, p: Parameter) -> Tensor:
        """What a parameter contributes: zeros, where this rank has not used it."""
        if p.grad is None:
            return aj.zeros_like(p)
        if p.grad.layout is not strided:
            raise UnsupportedError(
                "DistributedDataParallel: gradients are dense", {"parameter": p}, "make the embedding with sparse=False"
            )
        return p.grad

    def follow(self) -> None:
        """Make the calls of other ranks' backward pass, without a part in the averages."""
        for number, bucket in enumerate(self.buckets):
            with self._for_bucket(number, ", without a batch"):
                self._begin(number, [aj.zeros_like(self.parameters[k]) for k in bucket])
        begun, self.begun = self.begun, []
        for number, made in begun:
            with self._for_bucket(number, ", without a batch"):
                _waited(made)
                if self.finds_unused:
                    self._used_anywhere([], len(self.buckets[number]))

    def _used_anywhere(self, bucket: Sequence[int], unused: int = 0) -> list[bool]:
        is_used = [k not in self.unused for k in bucket] + [False] * unused
        used = aj.tensor(is_used, dtype=aj.int32, device=self.parameters[0].device)
        all_reduce(used, "max", self.group)
        return [bool(flag) for flag in used.tolist()]


def _may_overflow(vector: Tensor) -> bool:
    """Whether sums over ranks may be too large where their average is not: halves, which torch divides first, too."""
    return vector.element_size() < 4


def _waited(made: Any) -> Tensor:
    """The vector that a hook gives, at once or in the future, or that a collective fills."""
    if isinstance(made, Work):
        made.wait()
        made = made.result()
    made = made.wait() if hasattr(made, "wait") else made
    found: Tensor = made[0] if isinstance(made, list | tuple) else made
    return found


def _leaves_behind(tensors: Sequence[Tensor]) -> Iterator[Tensor]:
    """The leaves that a backward pass from these tensors reaches."""
    seen: set[int] = set()
    nodes: list[Node] = []
    for t in tensors:
        if t.grad_fn is not None:
            nodes.append(t.grad_fn)
        elif t.requires_grad:
            yield t
    while nodes:
        node = nodes.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if type(node) is AccumulateGrad:
            yield node.variable
        nodes += [child for child, _ in node.next_functions if child is not None]
