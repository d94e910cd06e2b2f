"""``compile``, torch's door to a compiler: ``jit`` with its arguments, for functions and for layers of ``nn``."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from autojit.core.errors import UsageError
from autojit.dispatch.declared import declared
from autojit.jit.compile_options import check_mode
from autojit.jit.function import JitFunction
from autojit.nn.jitted import ANSWERS
from autojit.nn.module import Module

_COMPILED = ("inductor", "autojit")
_EAGER = ("eager", "aot_eager")


class CompiledModule(Module):
    """A layer whose calls run compiled; its parameters, buffers and attributes are those of ``_orig_mod``.

    Unlike what ``jit`` makes of a layer it holds that as a child, so its weights have the names torch gives them.
    """

    def __init__(self, module: Module, prepare: Callable[[Any], Any]) -> None:
        super().__init__()
        self._orig_mod = module
        self.__dict__["_prepare"] = prepare
        self.__dict__["training"] = module.training

    def forward(self, *args: object, **kwargs: object) -> Any:
        """The layer's own results."""
        return self._step()(*args, **kwargs)

    def _step(self) -> Any:
        compiled = self.__dict__.get("_compiled")
        if compiled is None:
            compiled = self.__dict__["_compiled"] = self._prepare(self._orig_mod)
        return compiled

    def __getstate__(self) -> dict[str, Any]:
        """Copies compile their own steps."""
        return {name: value for name, value in self.__dict__.items() if name != "_compiled"}

    def __getattr__(self, name: str) -> Any:
        modules = self.__dict__.get("_modules", {})
        if name in modules or "_orig_mod" not in modules:
            return super().__getattr__(name)
        try:
            return getattr(modules["_orig_mod"], name)
        except AttributeError:
            if name not in ANSWERS:
                raise
        return getattr(self._step(), name)

    def __setattr__(self, name: str, value: object) -> None:
        module = self.__dict__.get("_modules", {}).get("_orig_mod")
        if module is None or name in self.__dict__ or name in ("_orig_mod", "_compiled_call_impl"):
            super().__setattr__(name, value)
        else:
            setattr(module, name, value)


@declared(method=False)
def compile(
    model: Callable[..., Any] | None = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: str | Callable[..., Any] | None = None,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    name: str | None = None,
    disable: bool = False,
    recompile_limit: int | None = None,
    isolate_recompiles: bool = False,
    shapes_spec: object = None,
) -> Any:
    """A function or a layer that runs compiled, as by ``jit``; without a model a decorator.

    Args:
        fullgraph: a call that depends on values of tensors, so that it is captured in several parts, is an error.
        dynamic: whether sizes stay open (``jit``).
        backend: "inductor" and None mean this compiler, "eager" and "aot_eager" none.
        mode: torch's names of trades between compile time and speed; there is one.
        options: accepted with torch's names; none is needed.
        name: what the compiled function is called.
        disable: the model as it is.
        recompile_limit: accepted; every version that is asked for is compiled.

    Raises:
        RuntimeError: an unknown backend or mode, or both ``mode`` and ``options``; with ``fullgraph``, when called, a
            capture in several parts.

    Example:
        >>> import autojit as aj
        >>> @aj.compile
        ... def double(x):
        ...     return x * 2
        >>> double(aj.ones(2))
        tensor([2., 2.])
    """
    if model is None:
        return functools.partial(
            compile, fullgraph=fullgraph, dynamic=dynamic, backend=backend, mode=mode, options=options, name=name,
            disable=disable, recompile_limit=recompile_limit,
        )  # fmt: skip
    if mode is not None and options is not None:
        raise UsageError(
            "Either mode or options can be specified, but both can't be specified at the same time.", fix="drop one"
        )
    check_mode(mode)
    if backend is not None and backend not in (*_COMPILED, *_EAGER):
        raise UsageError(
            f"Invalid backend: {backend!r}, should be one of: {', '.join((*_COMPILED, *_EAGER))}",
            fix="there is one compiler here; drop the argument",
        )
    if disable or backend in _EAGER:
        return model
    prepare = functools.partial(_prepared, fullgraph=fullgraph, dynamic=dynamic, name=name)
    return CompiledModule(model, prepare) if isinstance(model, Module) else prepare(model)


def _prepared(model: Callable[..., Any], fullgraph: bool, dynamic: bool | None, name: str | None) -> Any:
    compiled: Any = JitFunction(model, dynamic=dynamic, fullgraph=fullgraph)
    if name is not None:
        compiled.__name__ = name
    return compiled
