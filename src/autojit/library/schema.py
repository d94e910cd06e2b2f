"""What an operator takes and gives, as torch writes it: ``f(Tensor x, int[] dims, *, float eps=1e-05) -> Tensor``.

``parse`` reads such a text, ``infer_schema`` writes one from a function's annotations, ``Schema.bound`` puts the
arguments of a call in their places and says which one does not fit.
"""

from __future__ import annotations

import collections.abc
import inspect
import re
import types
import typing
from collections.abc import Callable, Iterable, Sequence
from numbers import Number
from typing import Any, NamedTuple, NoReturn

from autojit.core.device import Device
from autojit.core.dtypes import DType
from autojit.core.errors import ArgumentError, UsageError
from autojit.tensor import Tensor

NO_DEFAULT: Any = inspect.Parameter.empty


class Argument(NamedTuple):
    """One argument or result: its type without the mark of an alias, and whether the operator changes it."""

    name: str
    type: str
    alias: str = ""
    is_write: bool = False
    kwarg_only: bool = False
    default_value: Any = NO_DEFAULT

    def __str__(self) -> str:
        kind, end = re.fullmatch(r"([^\[?]*)(.*)", self.type).groups()  # type: ignore[union-attr]
        alias = f"({self.alias}{'!' * self.is_write})" if self.alias else ""
        value = self.default_value
        text = "" if value is NO_DEFAULT else f"={_written(value)}"
        return f"{kind}{alias}{end} {self.name}".rstrip() + text


class Schema(NamedTuple):
    """The name, arguments and results of an operator."""

    name: str
    overload_name: str
    arguments: tuple[Argument, ...]
    returns: tuple[Argument, ...]

    @property
    def is_mutable(self) -> bool:
        """Whether the operator changes an argument."""
        return any(argument.is_write for argument in self.arguments)

    def __str__(self) -> str:
        parts = [str(a) for a in self.arguments if not a.kwarg_only]
        named = [str(a) for a in self.arguments if a.kwarg_only]
        results = ", ".join(map(str, self.returns))
        results = results if len(self.returns) == 1 else f"({results})"
        overload = f".{self.overload_name}" if self.overload_name else ""
        return f"{self.name}{overload}({', '.join([*parts, *(['*'] if named else []), *named])}) -> {results}"

    def bound(self, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """The positional and the keyword-only arguments of a call, defaults included.

        Raises:
            UsageError: one is missing, given twice, unknown, or of another type than the schema says.
        """
        positional: list[Any] = []
        named: dict[str, Any] = {}
        left = dict(kwargs)
        places = [a for a in self.arguments if not a.kwarg_only]
        if len(args) > len(places):
            self._refuse(f"Expected at most {len(places)} argument(s) but received {len(args)} argument(s).")
        for position, argument in enumerate(self.arguments):
            if position < len(args) and not argument.kwarg_only:
                value = args[position]
            elif argument.name in left:
                value = left.pop(argument.name)
            elif argument.default_value is not NO_DEFAULT:
                value = argument.default_value
            else:
                self._refuse(f"is missing value for argument '{argument.name}'.")
            if not accepts(argument.type, value):
                self._refuse(
                    f"Expected a value of type '{argument.type}' for argument '{argument.name}' but instead found type "
                    f"'{type(value).__name__}'."
                )
            if argument.kwarg_only:
                named[argument.name] = value
            else:
                positional.append(value)
        if left:
            self._refuse(f"Unknown keyword argument '{next(iter(left))}'.")
        return positional, named

    def _refuse(self, what: str) -> NoReturn:
        raise UsageError(f"{self.name}() {what}", {"declaration": str(self)})


def _written(value: Any) -> str:
    if isinstance(value, str):
        return f'"{value}"'
    return str(value).removeprefix("autojit.").removeprefix("torch.")


def accepts(kind: str, value: Any) -> bool:
    """Whether a value is of a schema's type; a type that is not known takes everything."""
    if kind.endswith("?"):
        return value is None or accepts(kind[:-1], value)
    if kind.endswith("]"):
        element, _, size = kind[:-1].rpartition("[")
        if isinstance(value, list | tuple):
            return all(accepts(element, v) for v in value)
        return bool(size) and accepts(element, value)  # int[2] takes one int for both
    if kind in ("int", "SymInt", "float", "Scalar", "bool") and isinstance(value, Tensor):
        return value.numel() == 1
    test = _TESTS.get(kind)
    return test is None or test(value)


def _is_int(value: Any) -> bool:
    return hasattr(value, "__index__") and not isinstance(value, Tensor)


_TESTS: dict[str, Callable[[Any], bool]] = {
    "Tensor": lambda value: isinstance(value, Tensor),
    "int": _is_int,
    "SymInt": _is_int,
    "float": lambda value: isinstance(value, float) or _is_int(value) or hasattr(value, "__float__"),
    "bool": lambda value: isinstance(value, bool) or _is_int(value),
    "Scalar": lambda value: isinstance(value, Number) or _is_int(value),
    "str": lambda value: isinstance(value, str),
    "ScalarType": lambda value: isinstance(value, DType),
    "Device": lambda value: isinstance(value, Device | str | int),
}


# -- reading


def parse(text: str, namespace: str) -> Schema:
    """The schema that a text such as ``"f.out(Tensor x, *, Tensor(a!) out) -> Tensor(a!)"`` writes.

    Raises:
        UsageError: the text is none.
    """
    found = re.fullmatch(r"\s*(?:\w+::)?(\w+)(?:\.(\w+))?\s*\((.*)\)\s*->\s*(.*?)\s*", text, re.DOTALL)
    if found is None:
        raise UsageError(
            "library: a schema that cannot be read",
            {"schema": text},
            'write one such as "f(Tensor x, float eps=1e-5) -> Tensor"',
        )
    name, overload, takes, gives = found.groups()
    arguments: list[Argument] = []
    is_named = False
    for part in _parts(takes):
        if part == "*":
            is_named = True
        else:
            arguments.append(_argument(part, is_named))
    gives = gives[1:-1] if gives.startswith("(") and gives.endswith(")") else gives
    returns = tuple(_argument(part, False) for part in _parts(gives))
    return Schema(f"{namespace}::{name}", overload or "", tuple(arguments), returns)


def _parts(text: str) -> list[str]:
    """The text at its commas, those in brackets and quotes left alone."""
    found = re.findall(r"""(?:[^,()\[\]"']|\([^)]*\)|\[[^\]]*\]|"[^"]*"|'[^']*')+""", text)
    return [part.strip() for part in found if part.strip()]


def _argument(text: str, is_named: bool) -> Argument:
    head, equals, default = text.partition("=")
    kind, _, name = head.strip().rpartition(" ") if " " in head.strip() else (head.strip(), "", "")
    alias = re.search(r"\((\w+)(!?)[^)]*\)", kind)
    plain = re.sub(r"\([^)]*\)", "", kind).strip()
    value = _value(default.strip(), plain) if equals else NO_DEFAULT
    return Argument(name, plain, alias[1] if alias else "", bool(alias and alias[2]), is_named, value)


def _value(text: str, kind: str) -> Any:
    words: dict[str, Any] = {"None": None, "True": True, "False": False}
    if text in words:
        return words[text]
    if text[0] in "\"'":
        return text[1:-1]
    if text[0] == "[":
        return [_value(part, kind) for part in _parts(text[1:-1])]
    try:
        return float(text) if kind.startswith("float") or not text.lstrip("+-").isdigit() else int(text)
    except ValueError:
        return text


# -- writing


def _types() -> dict[Any, str]:
    """The types that annotations may name; what is made of one of them is made by `_all_types`."""
    return {Tensor: "Tensor", int: "SymInt", float: "float", bool: "bool", str: "str", Number: "Scalar",
            int | float | bool: "Scalar", DType: "ScalarType", Device: "Device"}  # fmt: skip


def _schema_type(annotation: Any) -> str | None:
    """The schema's word for a type; None where there is none."""
    simple = _types()
    try:
        if annotation in simple:
            return simple[annotation]
    except TypeError:
        return None
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        rest = [a for a in inner if a is not types.NoneType]
        if set(rest) <= {int, float, bool} and len(rest) == 3:
            found: str | None = "Scalar"
        else:
            found = _schema_type(rest[0]) if len(rest) == 1 else None
        return found and f"{found}?" if len(rest) < len(inner) else found
    if origin in (list, collections.abc.Sequence) and len(inner) == 1:
        found = _schema_type(inner[0])
        return found and f"{found}[]"
    return None


def infer_schema(
    prototype_function: Callable[..., Any],
    /,
    *,
    mutates_args: str | Iterable[str],
    op_name: str | None = None,
    tags: object = (),
) -> str:
    """The schema of a function from its annotations, as text.

    Args:
        prototype_function: every parameter is annotated with Tensor, int, float, bool, str, a dtype, a device, an
            Optional or a Sequence of those; results are tensors, numbers, or a tuple of them.
        mutates_args: the names of the tensors that it changes, or ``"unknown"``: all of them.
        op_name: written in front.
        tags: of torch's own tools; nothing depends on them here.

    Raises:
        ArgumentError: an annotation is missing or has no schema type, or ``mutates_args`` names no tensor of it.

    Example:
        >>> import autojit as aj
        >>> def scaled(x: aj.Tensor, factor: float = 2.0) -> aj.Tensor: ...
        >>> aj.library.infer_schema(scaled, mutates_args=())
        '(Tensor x, float factor=2.0) -> Tensor'
    """
    signature = inspect.signature(prototype_function)
    hints = _hints(prototype_function, signature)
    changed = mutates_args if isinstance(mutates_args, str) else set(mutates_args)
    if isinstance(changed, str) and changed != "unknown":
        _refused(signature, "mutates_args must either be a sequence of the names of the arguments or 'unknown'.")
    arguments = []
    for position, (name, parameter) in enumerate(signature.parameters.items()):
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            _refused(signature, "We do not support positional-only args, varargs, or varkwargs.")
        if name not in hints:
            _refused(signature, f"Parameter {name} must have a type annotation.")
        kind = _schema_type(hints[name])
        if kind is None:
            _refused(signature, f"Parameter {name} has unsupported type {hints[name]}.")
        is_written = kind.startswith("Tensor") if changed == "unknown" else name in changed
        if is_written and not kind.startswith("Tensor"):
            _refused(
                signature,
                f"Parameter {name} is in mutable_args but only Tensors or collections of Tensors can be mutated",
            )
        alias = f"a{position}" if is_written else ""
        arguments.append(
            Argument(name, kind, alias, is_written, parameter.kind is parameter.KEYWORD_ONLY, parameter.default)
        )
    if changed != "unknown":
        missing = set(changed) - {a.name for a in arguments}
        if missing:
            _refused(signature, f"{missing} in mutates_args were not found in the custom op's signature.")
    schema = Schema(op_name or "", "", tuple(arguments), _returns(signature, hints))
    return str(schema)


def _hints(function: Callable[..., Any], signature: inspect.Signature) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function)
    except (NameError, AttributeError, TypeError) as error:
        _refused(signature, f"Unsupported type annotation: it is not a type ({error}).")


def _returns(signature: inspect.Signature, hints: dict[str, Any]) -> tuple[Argument, ...]:
    if "return" not in hints:
        _refused(signature, "No return type annotation was provided. Please add one.")
    given = hints["return"]
    if given is types.NoneType or given is None:
        return ()
    kinds = typing.get_args(given) if typing.get_origin(given) is tuple else (given,)
    found = [_schema_type(kind) for kind in kinds]
    if None in found or any(kind and kind.rstrip("[]") in ("str", "ScalarType", "Device") for kind in found):
        _refused(signature, f"Return has unsupported type {given}.")
    return tuple(Argument("", kind or "") for kind in found)


def _refused(signature: inspect.Signature, what: str) -> NoReturn:
    raise ArgumentError(f"infer_schema(func): {what} Got func with signature {signature})")
