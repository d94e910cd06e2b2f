"""``eval`` and ``exec`` in a capture: what the text or the code reads is read by the step, so it runs instrumented.

Names that it stores in a dictionary from outside are not places that a step assigns to: such calls run line by line.
"""

from __future__ import annotations
import __future__

import dis
import sys
from collections.abc import Callable, Mapping
from functools import partial
from types import CodeType
from typing import TYPE_CHECKING, Any

from autojit.core.source import here, is_own
from autojit.jit.instrumented_code import instrumented
from autojit.jit.places import is_a
from autojit.jit.read_hooks import HOOKS

if TYPE_CHECKING:
    from autojit.jit.observed_calls import ObservedCalls

_OPTIMIZED = 1  # of a code's flags: its local variables are not a dictionary
_SNAPSHOTS = sys.version_info >= (3, 13)  # ``exec`` gets a copy of a function's variables
_FEATURES = sum({getattr(__future__, name).compiler_flag for name in __future__.all_feature_names})
_STORING = ("STORE_NAME", "DELETE_NAME")


def evaluators(observer: ObservedCalls) -> dict[Any, Callable[..., Any]]:
    """What is called instead of ``eval`` and ``exec``."""
    return {function: partial(_evaluated, observer, function) for function in (eval, exec)}


def _evaluated(
    observer: ObservedCalls,
    function: Callable[..., Any],
    source: CodeType | str | bytes | bytearray,
    names: dict[str, Any] | None = None,
    variables: Mapping[str, Any] | None = None,
    **closure: object,
) -> Any:
    frame = sys._getframe(1)
    while is_own(frame.f_code) and frame.f_back is not None:
        frame = frame.f_back
    if names is None:
        names = frame.f_globals
        if variables is None:
            is_copied = _SNAPSHOTS and frame.f_code.co_flags & _OPTIMIZED
            variables = dict(frame.f_locals) if is_copied else frame.f_locals
    elif id(names) not in observer.outside and names is not frame.f_globals:
        observer.made_names.add(id(names))
    if variables is None:
        variables = names
    elif variables is not names:
        observer.contents.escape(variables)
    code = source if is_a(source, CodeType) else _compiled(function, source, frame.f_code.co_flags & _FEATURES)
    is_storing = any(i.opname in _STORING for i in dis.get_instructions(code))
    if is_storing and (id(variables) in observer.outside or variables is frame.f_globals):
        name = function.__name__
        observer.refuse(f"{name}() assigns names that exist outside the step, at {here()}")
    return function(instrumented(code, HOOKS), names, variables, **closure)


def _compiled(function: Callable[..., Any], source: str | bytes | bytearray, flags: int) -> CodeType:
    if function is eval and is_a(source, str | bytes | bytearray):
        source = source.lstrip(" \t") if is_a(source, str) else source.lstrip(b" \t")
    made: CodeType = compile(source, "<string>", function.__name__, flags, dont_inherit=True)
    return made
