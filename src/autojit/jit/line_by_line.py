"""Why calls run line by line: what steps cannot do as eager mode does it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from autojit.tensor.tensor import Tensor, type_of

if TYPE_CHECKING:
    from autojit.jit.draws import Draw


class LineByLine(Exception):
    """A call is of a kind that steps cannot do: it runs line by line, which is noted. Nothing has been written yet.

    Where a capture was given up, ``asked`` tells which calls like it would be given up, too; ``limit``, how often that
    may happen for one kind of arguments until none is tried any more; ``drawn`` is what the capture has drawn.
    """

    text = ""  # of a class: what it says of the facts that it is given
    asked: Asking | None = None
    limit: int | None = None
    drawn: Sequence[tuple[Draw, Any]] = ()

    def __init__(self, *facts: object) -> None:
        shown = [type_of(fact) if isinstance(fact, Tensor) else fact for fact in facts]
        super().__init__(self.text.format(*shown) or "".join(map(str, facts)))

    def always(self) -> LineByLine:
        """The same, for all calls that would be captured."""
        self.asked = Always(self)
        return self


class BeingCompiled(LineByLine):
    """The step of a call is not ready yet."""

    text = "its step was being compiled beside: ran eagerly"


class Endless(LineByLine):
    """Every capture of a call finds another reason to begin again."""

    text = "captures of one call found ever new reasons to begin again: it ran line by line"


class GivenUp(BaseException):
    """A capture ends at once, for a reason to run line by line (no Exception: captured code must not catch it)."""

    def __init__(self, reason: LineByLine) -> None:
        super().__init__()
        self.reason = reason


class Asking(Protocol):
    """What says of a call whether its capture would be given up."""

    def check(self, leaves: Sequence[Any]) -> None: ...


class Always:
    """``Asking`` for functions whose captures are always given up."""

    def __init__(self, reason: LineByLine) -> None:
        self.reason = str(reason)

    def check(self, leaves: Sequence[Any]) -> None:
        raise LineByLine(self.reason)


class Overlap(LineByLine):
    """Arguments share memory that the step writes in a way that only NumPy knows."""

    text = "arguments share memory, with each other or with state, that is written: ran line by line"


class SharedWithArray(LineByLine):
    """An array from outside has memory of a tensor, and the step changes one of the two and uses the other."""

    text = (
        "{}, an array from outside, shares memory with a tensor, and the step changes one and uses the other: ran line "
        "by line (read the tensor instead, or keep a copy of the array)"
    )


class WideIntegers(LineByLine):
    """Whole numbers of the call, exact in Python, do not fit into 64 bits."""

    limit = 8
    text = (
        "an int that the function computes from numbers of the call needs more than 64 bits, or is asked of NaN: ran "
        "line by line (keep it small, h % 2**32, or compute it in an int64 tensor, which wraps around)"
    )


class Onward(LineByLine):
    """Backward goes on through ``what``, a history outside, to a leaf whose ``.grad`` the function uses afterwards or
    whose gradient it asks for, or through nodes that keep what the step changes.
    """

    text = "backward goes on through {}: ran line by line (compute the argument inside the step, or detach() it)"


class UnrecordedForm(LineByLine):
    """A tensor that requires gradients gets another form that its history does not show: ``role`` "an argument", or
    "a result that shares its memory".
    """

    text = (
        "{0} {1} that requires gradients gets another shape in place, and no history shows it: ran line by line "
        "(change the shape in grad mode, or use the out-of-place form)"
    )


class ViewsOfView(LineByLine):
    """An argument is a view, and views of it take part in a change of its history: they are views of its base, too."""

    text = (
        "an argument {} is a view of another tensor, and its history changes in place together with that of views of "
        "it: ran line by line (pass the base, or change a clone())"
    )


class WithoutHistory(LineByLine):
    """An argument is a view that requires gradients because its base does, and has no history of its own."""

    text = (
        "an argument {}, or the .grad of one, is a view whose base requires gradients, made where nothing is recorded, "
        "or its memory has changed since: ran line by line (pass its detach(), or make it in grad mode)"
    )


class OutOfHistory(LineByLine):
    """A step changes what an argument or a tensor outside is in its history, in a way that only eager mode can."""

    text = "a tensor {0} that has a history outside {1}: ran line by line"


class GivenOtherMemory(LineByLine):
    """A step lets a tensor look at other memory, which others look at as well, or leaves memory to others."""

    text = (
        "the step gives a tensor {} that it has not made other memory (x.data = y): ran line by line (x.data.copy_(y) "
        "changes the memory that it has)"
    )


class DrawsByValues(LineByLine):
    """What is drawn is known only while the function runs."""

    text = "what is drawn (random, next(), ...) depends on what the step computes: every call runs line by line"


class Uncompiled(LineByLine):
    """A function has done what no step of it can do, and does it again in all likelihood."""

    limit = 8


class MixedChanges(Uncompiled):
    """A container from outside is changed in ways that no step can repeat, or that it would put into another order."""

    text = (
        "the step changes {0}, which exists outside it, in ways that cannot be told apart or whose order counts ({1}): "
        "ran line by line"
    )


class LookedAt(Uncompiled):
    """A step assigns to items of an array from outside, and looks at the array."""

    text = (
        "the step assigns to items of an array that exists outside it and also looks at it, {0}, {1}: ran line by line "
        "(keep the numbers in a tensor)"
    )


class NewPlaces(LineByLine):
    """Whenever the function is captured it assigns to places that no capture has met before."""

    text = (
        "the function assigns to other places in every run (keys that are new objects or their ids, or objects that it "
        "makes and stores before it changes them): every call runs line by line"
    )


class CopiedArguments(LineByLine):
    """A step is given copies of lists, dictionaries and records, and does what only the caller's own can serve for."""

    limit: int | None = 1


class AskedIdentity(CopiedArguments):
    """It asks which object one is."""

    text = (
        "the function asks which object a list, dictionary or record is that it is given ({}; is, id(), in, a key), or "
        "hands on one with numbers that is drawn or that it finds where it assigns: ran line by line"
    )


class GivenAndChanged(CopiedArguments):
    """It changes one that it finds outside, too."""

    limit = None
    text = (
        "a list, dictionary or record that the function finds outside and changes is an argument of the call, too: ran "
        "line by line"
    )


class ChangedArguments(CopiedArguments):
    """It changes one."""

    text = (
        "the function changes a list, dictionary or record that it is given as an argument: ran line by line (return "
        "what is to be stored, or let the function find the object outside)"
    )


class ChangesItself(ChangedArguments):
    """It changes arguments, which it may be given themselves; ``places``: their numbers and names."""

    text = (
        "the function changes a list, dictionary or record that it is given as an argument: ran line by line (give it "
        "the same one again, or return what is to be stored)"
    )
    places: Collection[int | str] = ()

    def settle(self) -> str:
        """Say that from now on it is given them themselves; what it has said before."""
        before = str(self)
        self.args = ("done after every call: what the function changes of its arguments",)
        return before


class InVain(LineByLine):
    """Captures of the function serve no second call, and so are made rarely (see ``payoff.py``)."""

    text = (
        "the last {} captures served no second call: ran line by line (give arguments of the same kinds, keep what the "
        "function reads, and decide by aj.cond and aj.where)"
    )


class ManyDigits(LineByLine):
    """Python asks for floats that are others in every call (see ``repeated_work.py``)."""

    limit = 2
    text = (
        "Python asks for the digits of {} floats, the last at {}, and no other call has the same: ran line by line "
        "(sort, choose and add up with tensors, or return the tensor and ask for its numbers outside)"
    )


class ManyDecisions(LineByLine):
    """Python decides often on what is made of values whose sizes come from data (see ``repeated_work.py``)."""

    limit = 2
    text = (
        "{} decisions on tensors, the last at {}, would compute again and again what comes before them, as its sizes "
        "depend on the data: ran line by line (keep the sizes and mask the elements, or repeat with aj.while_loop)"
    )


AS_PIECES = "and the closure as a step of its own"


class InPieces(LineByLine):
    """What the function calls runs a closure as often as its values say (see ``pieces.py``)."""

    limit = 4
    text = f"{{}} runs its closure as often as its values say: it ran line by line, {AS_PIECES}"


class LeftHooks(LineByLine):
    """A call leaves a hook on an argument, which has it from then on, one more of every call."""

    text = "a hook left on an argument: calls run line by line"


class RetainsGradient(LineByLine):
    """A result is to keep the gradient that a later pass finds for it."""

    text = "retain_grad() of a result: calls run line by line; call it outside the step"


class FlaggedBase(LineByLine):
    """A result is a view of a tensor outside, of which the call has changed whether it requires gradients."""

    text = "a view of a tensor whose requires_grad the step has changed is let out: calls run line by line"


class MadeLayers(LineByLine):
    """The function makes layers or parameters and keeps them, as lazy ones do: later calls find them."""

    text = (
        "the function puts layers into a module, or lets out parameters that it has made and computes with: ran line "
        "by line (calls that find them there are compiled)"
    )
