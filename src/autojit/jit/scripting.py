"""TorchScript's entry points: ``script`` and ``trace`` compile as ``jit`` does, ``fork`` and ``wait`` run at once.

There is no other language behind them: every function that ``jit`` captures can be scripted, and a forked call is run
in the order of the program, which is one of the orders that forking allows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from autojit.core.absent_class import WithoutInstances
from autojit.core.errors import ArgumentKindError
from autojit.core.futures import Future, called
from autojit.dispatch.declared import declared
from autojit.jit.function import jit
from autojit.tensor.state import state


class TracerWarning(Warning):
    """What torch warns of when a trace may not hold for other inputs; here guards see to it, and nobody is warned."""


class ScriptModule(WithoutInstances):
    """What libraries ask a layer by ``isinstance``; no layer is one, since ``script`` gives a compiled layer."""

    what = "classes of TorchScript's"
    instead = "derive the layer from nn.Module and compile its step by aj.jit"


class ScriptFunction(ScriptModule):
    """What libraries ask a function by ``isinstance``; none is one, since ``script`` gives a compiled function."""


def script(obj: Callable[..., Any]) -> Any:
    """``jit(obj)``.

    Example:
        >>> import autojit as aj
        >>> from autojit.jit import script
        >>> script(lambda x: x + 1)(aj.zeros(2))
        tensor([1., 1.])
    """
    return jit(obj)


def trace(
    func: Callable[..., Any], example_inputs: object = (), *, check_trace: bool = True, check_tolerance: float = 1e-5,
    strict: bool = True, example_kwarg_inputs: Mapping[str, object] | None = None,
) -> Any:  # fmt: skip
    """``jit(func)``, called once with the examples (a tensor or a tuple) so that later calls run compiled.

    Args:
        check_trace, check_tolerance, strict: of torch's; they change nothing, since guards see to what traces miss.
        example_kwarg_inputs: arguments of that call by their names.

    Example:
        >>> import autojit as aj
        >>> from autojit.jit import trace
        >>> trace(lambda x: x * 2, aj.ones(2))(aj.ones(2))
        tensor([2., 2.])
    """
    compiled = jit(func)
    given = example_inputs if isinstance(example_inputs, tuple) else (example_inputs,)
    compiled(*given, **(example_kwarg_inputs or {}))
    return compiled


@declared(method=False)
def fork(func: Callable[..., Any], *args: object, **kwargs: object) -> Future[Any]:
    """Call a function; ``wait`` gives its result.

    Example:
        >>> from autojit.jit import fork, wait
        >>> wait(fork(max, 1, 2))
        2
    """
    return called(lambda: func(*args, **kwargs))


@declared(method=False)
def wait(future: Future[Any]) -> Any:
    """The result of a forked call; its exception is raised."""
    if not isinstance(future, Future):
        raise ArgumentKindError(
            f"wait(): argument 'future' must be Future, not {type(future).__name__}", fix="pass what fork() returned"
        )
    return future.wait()


def ignore(drop: object = False, **options: object) -> Any:
    """A decorator that changes nothing: there is no other language that a function would have to be kept out of.

    Example:
        >>> from autojit.jit import ignore
        >>> @ignore
        ... def plain(x):
        ...     return x
        >>> plain(1)
        1
    """
    return drop if callable(drop) else lambda function: function


def unused(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The function as it is."""
    return fn


export = unused
interface = unused  # what a class of TorchScript's modules promises; Python asks nobody to say it


def is_scripting() -> bool:
    """False: code always runs as Python, also while it is captured."""
    return False


def is_tracing() -> bool:
    """Whether this thread is capturing a step.

    Example:
        >>> import autojit as aj
        >>> from autojit.jit import is_tracing
        >>> aj.jit(lambda x: x + int(is_tracing()))(aj.zeros(1))
        tensor([1.])
    """
    return state.trace is not None


def annotate(the_type: object, the_value: object) -> Any:
    """The value; types of values are their own."""
    return the_value


def freeze(mod: object, preserved_attrs: list[str] | None = None, optimize_numerics: bool = True) -> Any:
    """The compiled layer as it is: its parameters are read from where they are."""
    return mod


def optimize_for_inference(mod: object, other_methods: list[str] | None = None) -> Any:
    """The compiled layer as it is."""
    return mod


def script_if_tracing(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The function as it is: captured with its caller."""
    return fn
