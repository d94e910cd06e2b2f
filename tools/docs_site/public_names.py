"""Which public names there are, and on which page of the reference each one stands.

A name belongs to the page of the module that defines it, so a new function needs no entry here; only a module that
mixes subjects, or a name that is an exception in its module, is listed.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

FUNCTION_PAGES = {  # title of a page -> the modules below autojit whose functions are on it
    "Making tensors": "functions.factories functions.buffers functions.memory functions.exchange functions.legacy",
    "Random numbers": "functions.random top_level.counts",
    "Elementwise functions": """dispatch.op_functions functions.elementwise functions.comparison functions.derived
        functions.integers functions.special special.functions""",
    "Sums, extremes, statistics": """functions.reduction functions.statistics functions.order_statistics
        functions.histograms functions.norms functions.segments""",
    "Sorting and cumulative sums": "functions.order",
    "Shapes and views": "functions.shape functions.views functions.copies",
    "Indexing": "functions.index_functions functions.counted functions.scatter",
    "Products and matrices": "functions.matrix functions.products functions.removed top_level.factors",
    "Sparse tensors": "sparse.compressed sparse.construct",
    "Layers as functions": """nn.functional.activation nn.functional.adaptive_pooling nn.functional.convolution
        nn.functional.distance nn.functional.linear nn.functional.normalization nn.functional.pooling
        nn.functional.vision top_level.network top_level.recurrent top_level.dropout_forms""",
    "Frames and windows": "top_level.windows top_level.frames",
    "Gradients, compiling, control flow": """autograd.anomaly autograd.grad_mode control_flow.associative
        control_flow.conditions control_flow.loops func.batches func.derivatives jit.eager_mode jit.scripting
        numba_ops.definition top_level.compiling amp.autocast_mode amp.grad_scaler compat.torch_names""",
}  # fmt: skip
SETTINGS = "Settings, dtypes, devices"  # every other module
OTHER_PAGES = {  # functions that are exceptions in their module
    "Products and matrices": """addbmm block_diag chain_matmul
        cholesky cholesky_inverse cholesky_solve cross det diagflat
        inverse logdet matrix_power pinverse renorm slogdet tril_indices triu_indices vander""",
    "Shapes and views": "atleast_3d cartesian_prod combinations dstack",
    "Layers as functions": "cdist pdist",
    SETTINGS: """channels_last channels_last_3d contiguous_format memory_format preserve_format promote_types can_cast
        result_type finfo iinfo save load""",
}
TENSOR_PAGE = "Attributes, conversion, memory"  # of methods that are no functions
MODULES = (  # packages with one page each: all of their public names
    "autograd", "autograd.functional", "autograd.forward_ad", "autograd.graph", "func", "control_flow", "linalg",
    "fft", "special", "nn.init", "nn.utils", "nn.utils.rnn", "nn.utils.parametrize",
    "nn.utils.parametrizations", "optim.swa_utils", "distributions", "sparse", "masked", "signal.windows",
    "utils.data", "utils.checkpoint", "io", "amp", "profiler", "testing", "cuda", "accelerator", "random",
    "distributed", "distributed.optim", "nn.parallel", "nn.attention.flex_attention", "export", "debug", "cache",
    "interop", "library", "fx", "overrides", "hub", "quasirandom",
)  # fmt: skip
# What modules import, and attributes of classes that only this package asks for.
UNDOCUMENTED = """annotations memory_of as_module of options last_step steps OptimizerPostHook OptimizerPreHook
    can_be_skipped catch_up followed is_made_in kept step_unless takes_sparse profile_hook_step T_destination
    call_super_init dump_patches"""
NOT_OURS = frozenset(UNDOCUMENTED.split())


@dataclass(frozen=True)
class Page:
    """A page of the reference: what is on it, and how its names are written in a program."""

    slug: str
    title: str
    menu: str  # the part of the menu it is in
    prefix: str  # "aj", "nn", "F", "Tensor", ...
    names: tuple[str, ...]


def is_public(name: str, value: Any) -> bool:
    """Whether a name of a package is documented as one of its own."""
    return not (name.startswith("_") or name in NOT_OURS or inspect.ismodule(value))


def methods_of(cls: type) -> tuple[str, ...]:
    """The public methods and properties of a class that say what they do."""
    described = (n for n in names_of(cls) if inspect.getdoc(inspect.getattr_static(cls, n, None)))
    return tuple(n for n in described if callable(v := inspect.getattr_static(cls, n)) or isinstance(v, property))


def names_of(space: Any) -> list[str]:
    """The public names of a package or a class, in alphabetical order."""
    listed = set(getattr(space, "__all__", ()) or dir(space))
    path = getattr(space, "__name__", "")
    if path == "autojit":  # __all__ leaves out what is imported when first used
        listed = set(dir(space))
    elif inspect.ismodule(space) and not hasattr(space, "__all__"):
        listed = {n for n in listed if f"autojit.{module_of(getattr(space, n))}".startswith(path)}
    return sorted(name for name in listed if is_public(name, getattr(space, name, None)))


def base_of(name: str, names: set[str]) -> str:
    """The function whose in-place form a name is, or the name itself."""
    return name[:-1] if name.endswith("_") and name[:-1] in names else name


def module_of(value: Any) -> str:
    """The module that defines a value, without ``autojit.``."""
    value = inspect.unwrap(value) if callable(value) else value
    return str(getattr(value, "__module__", None) or "").removeprefix("autojit.")


def _title_of(table: dict[str, str]) -> dict[str, str]:
    """Each word of a table -> the key it is listed under."""
    return {word: title for title, words in table.items() for word in words.split()}


def page_of_function(name: str, value: Any) -> str:
    """The title of the page that has a function of the top level."""
    other = _title_of(OTHER_PAGES).get(name)
    return other or _title_of(FUNCTION_PAGES).get(module_of(value), SETTINGS)


def slug_of(title: str) -> str:
    """A title as part of an address."""
    return "-".join("".join(c if c.isalnum() else " " for c in title.lower()).split())


def pages() -> Iterator[Page]:
    """Every page of the reference, in the order of the menu."""
    import autojit
    from autojit import nn, optim

    yield from _grouped("tensors", "Functions", "aj", autojit, page_of_function)
    yield from _grouped("methods", "Tensor methods", "Tensor", autojit.Tensor, _page_of_method)
    yield Page("compiling", "jit and compiled functions", "Compiling", "aj.jit", tuple(names_of(_module("jit"))))
    yield Page("step", "A compiled function", "Compiling", "step", methods_of(_module("jit").JitFunction))
    yield Page("layers/methods", "Methods of modules", "Layers", "nn.Module", methods_of(nn.Module))
    yield from _grouped("layers", "Layers", "nn", nn, _family_of_layer)
    yield from _grouped("functional", "nn.functional", "F", nn.functional, _family_of_layer)
    for name in names_of(optim):
        yield Page(f"optim/{name}", name, "Optimisers", "optim", (name,))
    yield Page("optim/methods", "Methods of optimisers", "Optimisers", "Optimizer", methods_of(optim.Optimizer))
    schedules = _module("optim.lr_scheduler")
    yield Page("optim/lr_scheduler", "Schedules", "Optimisers", "lr_scheduler", tuple(names_of(schedules)))
    for path in MODULES:
        yield Page(path, path, "Packages", f"aj.{path}", tuple(names_of(_module(path))))


def _grouped(folder: str, menu: str, prefix: str, space: Any, title_of: Any) -> Iterator[Page]:
    """One page per title that the names of a space have; the in-place form is beside its function."""
    names = names_of(space)
    groups: dict[str, list[str]] = {}
    for name in names:
        base = base_of(name, set(names))
        groups.setdefault(title_of(base, getattr(space, base, None)), []).append(name)
    order = [*FUNCTION_PAGES, SETTINGS, TENSOR_PAGE]
    for title in sorted(groups, key=lambda t: (order.index(t) if t in order else -1, t)):
        yield Page(f"{folder}/{slug_of(title)}", title, menu, prefix, tuple(groups[title]))


def _page_of_method(name: str, value: Any) -> str:
    import autojit

    function = getattr(autojit, name, None)
    return page_of_function(name, function) if callable(function) and not isinstance(function, type) else TENSOR_PAGE


FAMILIES = {  # title -> the modules of nn and nn.functional whose names are on the page; others have a page each
    "Normalization": "batchnorm",
    "Losses": "loss output_loss classification ctc grouped",
    "Attention": "multihead_attention transformer",
    "Recurrent layers": "rnn rnn_cells",
    "Padding and shape": "shape padding vision",
    "Pooling": "folding fractional adaptive_pooling",
    "Resampling": "upsampling grids",
    "Modules and parameters": "module parameter factory data_parallel",
    "Linear and embedding": "linear",
    "Lazy layers": "lazy",
    "Helpers": "dispatching tensor",
}


def _family_of_layer(name: str, value: Any) -> str:
    stem = module_of(value).rpartition(".")[2]
    return _title_of(FAMILIES).get(stem, stem.capitalize())


def _module(path: str) -> ModuleType:
    return importlib.import_module(f"autojit.{path}")
