"""Operators of schemas: `Library`, `define` and `impl`, and what functions of `register_fake` ask for."""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from autojit.core.errors import ArgumentError, UnsupportedError, UsageError
from autojit.library import operators
from autojit.library.operators import COMPOSITE, Operator, key_of
from autojit.library.registration import operator_of, split_name
from autojit.library.schema import parse

_KINDS = ("DEF", "IMPL", "FRAGMENT")


class Library:
    """Operators of a namespace by their schemas: ``define`` one, ``impl`` its kernels. They end with the library.

    Args:
        ns: the namespace.
        kind: ``"DEF"`` or ``"FRAGMENT"``; ``"IMPL"`` for kernels of operators that are there.
        dispatch_key: of `impl`, where none is given: ``"CPU"``, ``"CUDA"``, ``"Meta"``, ``"Autograd"``,
            ``"AutocastCPU"``, ``"CompositeExplicitAutograd"`` (all devices), ``"CompositeImplicitAutograd"`` (all
            devices, and its own ops are differentiated; also meant by none at all).

    Raises:
        ArgumentError: the kind is none of these.

    Example:
        >>> import autojit as aj
        >>> lib = aj.library.Library("docs", "FRAGMENT")
        >>> lib.define("shifted(Tensor x, float by=1.0) -> Tensor")
        'shifted'
        >>> lib.impl("shifted", lambda x, by=1.0: x + by)
        >>> aj.ops.docs.shifted(aj.zeros(2), by=3.0)
        tensor([3., 3.])
    """

    def __init__(self, ns: str, kind: str, dispatch_key: str = "") -> None:
        if kind not in _KINDS:
            raise ArgumentError(f"Library: unsupported kind {kind!r}", fix=f"one of {', '.join(_KINDS)}")
        self.ns, self.kind, self.dispatch_key = ns, kind, dispatch_key
        self._undo: list[Callable[[], None]] = []
        self._finalizer = weakref.finalize(self, _undone, self._undo)

    def __repr__(self) -> str:
        return f"Library(kind={self.kind}, ns={self.ns}, dispatch_key={self.dispatch_key})>"

    def define(self, schema: str, alias_analysis: str = "", *, tags: object = ()) -> str:
        """Make an operator of a schema, without kernels; its name with its overload.

        Raises:
            UsageError: there is one of this name already, or the text is no schema.
        """
        if alias_analysis not in ("", "FROM_SCHEMA", "CONSERVATIVE"):
            raise UsageError(f"Invalid alias_analysis type {alias_analysis}")
        made = operators.added(parse(schema, self.ns))
        self._undo.append(lambda: operators.removed(made))
        return made.name().partition("::")[2]

    def impl(self, op_name: str | Operator, fn: Callable[..., Any], dispatch_key: str = "", **options: Any) -> None:
        """Compute an operator of the namespace by a function, under a dispatch key.

        Raises:
            TypeError: ``fn`` cannot be called.
            UnsupportedError: ``with_keyset=True``: there are no sets of dispatch keys here.
        """
        if not callable(fn):
            raise TypeError(f"Input function is required to be a callable but found type {type(fn)}")
        if options.get("with_keyset"):
            raise UnsupportedError("Library.impl: there are no sets of dispatch keys here", fix="leave out with_keyset")
        name = op_name.name() if isinstance(op_name, Operator) else op_name
        operator = operator_of(name if "::" in name else f"{self.ns}::{name}", "Library.impl")
        key = key_of(dispatch_key or self.dispatch_key or COMPOSITE)
        before = operator.kernels.get(key)
        operator.kernels[key] = fn

        def undo() -> None:
            if before is None:
                operator.kernels.pop(key, None)
            else:
                operator.kernels[key] = before

        self._undo.append(undo)

    def _destroy(self) -> None:
        self._finalizer()


@contextmanager
def _scoped_library(ns: str, kind: str, dispatch_key: str = "") -> Iterator[Library]:
    """A `Library` that ends with the block, as tests of operators write it."""
    library = Library(ns, kind, dispatch_key)
    try:
        yield library
    finally:
        library._destroy()


def _undone(steps: list[Callable[[], None]]) -> None:
    while steps:
        steps.pop()()


_kept: list[Library] = []  # of operators that were defined without a library of the user's


def _library_for(name: str, lib: Library | None) -> Library:
    if lib is None:
        lib = Library(name.partition("::")[0], "FRAGMENT")
        _kept.append(lib)
    return lib


def define(qualname: str | Library, schema: str, *, lib: Library | None = None, tags: object = ()) -> Any:
    """Make an operator ``namespace::name`` of a schema; give it kernels by `impl`.

    Raises:
        ArgumentError: the name has no namespace, or the schema is not of the form ``(...) -> ...``.

    Example:
        >>> import autojit as aj
        >>> aj.library.define("docs::summed", "(Tensor x) -> Tensor")
        >>> @aj.library.impl("docs::summed", "cpu")
        ... def summed(x):
        ...     return x.sum()
        >>> aj.ops.docs.summed(aj.ones(3))
        tensor(3.)
    """
    if isinstance(qualname, Library):  # the old form, a decorator
        name = qualname.define(schema)

        def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
            qualname.impl(name, function)
            return function

        return wrap
    if not isinstance(qualname, str):
        raise ArgumentError(f"define(qualname, schema): expected qualname to be instance of str, got {type(qualname)}")
    space, colons, short = qualname.partition("::")
    if not (space and colons and short):
        split_name(qualname)
    if not re.fullmatch(r"\(.*\) -> .*", schema, re.DOTALL):
        raise ArgumentError(
            'define(qualname, schema, ...): expected schema to look like e.g. "(Tensor x) -> Tensor" but got '
            f'"{schema}"'
        )
    _library_for(qualname, lib).define(short + schema, tags=tags)
    return None


def impl(
    qualname: str | Library,
    types: str | Sequence[str] = "",
    func: Callable[..., Any] | None = None,
    *,
    lib: Library | None = None,
) -> Any:
    """Compute an operator by a function on devices of a kind (``"default"``: all); also a decorator.

    Example:
        >>> import autojit as aj
        >>> aj.library.define("docs::negated", "(Tensor x) -> Tensor")
        >>> aj.library.impl("docs::negated", "default", lambda x: -x)
        >>> aj.ops.docs.negated(aj.ones(1))
        tensor([-1.])
    """
    if isinstance(qualname, Library):  # the old form: impl(lib, name, dispatch_key)
        library, name, key = qualname, str(types), str(func or "")

        def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
            library.impl(name, function, key)
            return function

        return wrap
    keys = {key_of(kind) for kind in ([types] if isinstance(types, str) else types)}

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        library = _library_for(qualname, lib)
        for key in keys:
            library.impl(qualname, function, key)
        return function

    if func is None:
        return register
    register(func)
    return None


def get_ctx() -> FakeImplCtx:
    """What a function of `register_fake` asks for sizes that depend on data.

    Example:
        >>> import autojit as aj
        >>> type(aj.library.get_ctx()).__name__
        'FakeImplCtx'
    """
    return FakeImplCtx()


class FakeImplCtx:
    """Sizes for results without elements."""

    def new_dynamic_size(self, *, min: int = 0, max: int | None = None) -> NoReturn:
        """Refused: on the device ``meta`` every size is a number.

        Raises:
            UnsupportedError: always.
        """
        raise UnsupportedError(
            "new_dynamic_size: tensors on the device meta have sizes that are numbers, and this one depends on data",
            fix="call the operator with tensors that have elements",
        )

    new_dynamic_size_ = new_dynamic_size


def fallthrough_kernel(*args: Any, **kwargs: Any) -> NoReturn:
    """Refused: what torch registers to leave a dispatch key out.

    Raises:
        UnsupportedError: always.
    """
    raise UnsupportedError("fallthrough_kernel: keys without a kernel are left out by themselves")
