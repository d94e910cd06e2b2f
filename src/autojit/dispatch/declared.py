"""What is said of a function that torch has: in which forms it exists, said once, where it is defined.

``declared`` notes it and gives the function back as it is; the public function, the method, the in-place form, the form
of lists and ``out=`` are made from these notes (``methods.py``, ``lists.py``, ``out_arguments.py``). Functions that few
programs call are in modules imported when one of their names is first used: ``functions/index.py`` is written from
their notes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypeVar

from autojit.core.wrapping import named

F = TypeVar("F", bound=Callable[..., Any])
InPlace = Literal["", "values", "comparison", "shape"]
Numbers = Literal["either", "both", "second", "none"]


class Out(NamedTuple):
    """What a function asks of ``out=`` besides that it can hold the result's kind of numbers."""

    is_apart: bool = False  # operands are read at other positions than are written: no shared memory
    is_exact: bool = False  # the dtype is the result's, not one that it is converted to
    is_exact_of_several: bool = False  # so where there are several results, and not where there is one
    sets_dtype: bool = False  # what is computed has the dtype of out=, which dtype= may only repeat
    takes: tuple[Any, ...] = ()  # the dtypes that it may have, where these are few
    refuses: tuple[str, ...] = ()  # options that may not be true beside it
    is_line: bool = False  # the result fills a place of as many elements, of whatever shape, row by row


PLAIN_OUT, EXACT_OUT, DTYPE_OUT = Out(), Out(is_exact=True), Out(sets_dtype=True)


class Declaration:
    """The forms in which torch has one function."""

    __slots__ = (
        "aliases", "function", "in_place", "is_factory", "is_function", "lists", "method", "name", "numbers", "numpy",
        "out", "reads_numbers", "wraps_around",
    )  # fmt: skip
    name: str
    function: Any
    aliases: tuple[str, ...]
    is_function: bool
    is_factory: bool
    method: Any
    in_place: InPlace
    out: Out | None
    lists: bool | str
    numbers: Numbers
    reads_numbers: bool
    numpy: tuple[str, ...]
    wraps_around: bool

    @property
    def names(self) -> tuple[str, ...]:
        """The name and its aliases."""
        return self.name, *self.aliases


DECLARED: dict[str, Declaration] = {}
"""By the function's name, without aliases."""


def declaration_of(name: str) -> Declaration:
    """The declaration of a function by one of its names, or by that of its in-place form."""
    found = DECLARED.get(name)
    if found is None:
        plain = name.removesuffix("_")
        found = next(d for d in DECLARED.values() if name in d.names or (d.in_place and plain in d.names))
    return found


def declared(
    *,
    name: str = "",
    aliases: str = "",
    function: bool = True,
    method: Any = True,
    in_place: InPlace = "",
    out: bool | Out = False,
    lists: bool | str = False,
    numbers: Numbers = "either",
    wraps_around: bool = False,
    reads_numbers: bool = False,
    factory: bool = False,
    numpy: str = "",
) -> Callable[[F], F]:
    """Note the forms of a function; by default it is one of the package and a method of Tensor.

    Args:
        name: where it is not the function's own.
        aliases: further names, with blanks between them; they have the same forms.
        function: it is a function of the package.
        method: it is a method; or the method itself, where that takes other arguments than the function.
        in_place: there is ``name_``, too: it takes over the result's ``"values"``, those of a ``"comparison"`` in its
            own dtype, or becomes the view that the function gives (``"shape"``).
        out: the function takes ``out=``.
        lists: there is ``_foreach_name``, and in place where there is a method that is; or the function that takes the
            place of this one where the second argument is a number.
        numbers: which of two operands may be a Python number: ``"either"`` one, ``"both"`` at once, the ``"second"``.
        wraps_around: a whole number beyond the dtype of the other operand wraps around as in C; else it is refused.
        reads_numbers: it reads a number before any op does: its method and form in place, too, look again at the
            kinds of arguments when a call fails, and so takes NumPy's numbers and tensors without axes.
        numpy: the function of NumPy's that it stands for on tensors, of one array or a ufunc, where that is not a ufunc
            of one of its names.
        factory: it makes a tensor, of a ``layout``, without looking at the elements of others.

    Example:
        >>> @declared(in_place="values", aliases="twofold")
        ... def double_of(input):
        ...     return input + input
        >>> DECLARED.pop("double_of").names
        ('double_of', 'twofold')
    """

    def note(given: F) -> F:
        made = Declaration()
        made.name, made.function, made.aliases = name or given.__name__, given, tuple(aliases.split())
        made.is_function, made.is_factory, made.method = function, factory, method
        made.in_place, made.lists = in_place, lists
        made.out = PLAIN_OUT if out is True else out or None
        made.reads_numbers = reads_numbers
        made.numbers, made.wraps_around, made.numpy = numbers, wraps_around, tuple(numpy.split())
        if not isinstance(method, bool):
            named(method, made.name, method.__doc__)
        DECLARED[made.name] = made
        return given

    return note
