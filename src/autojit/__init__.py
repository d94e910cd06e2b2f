"""autojit: a tracing compiler with PyTorch's face.

Write ordinary imperative tensor code; ``@autojit.jit`` turns a whole training step into one native call.
"""

from __future__ import annotations

from math import e, inf, nan, pi

from autojit.core.device import device
from autojit.core.device import look_for as _look_for
from autojit.core.dtypes import BY_NAME as _DTYPES
from autojit.core.dtypes import DType as dtype
from autojit.core.dtypes import default_dtype, promote_types, set_default_dtype
from autojit.core.layout import Layout as layout
from autojit.core.layout import sparse_bsc, sparse_bsr, sparse_coo, sparse_csc, sparse_csr, strided
from autojit.core.lazy_modules import LazyNames as _LazyNames
from autojit.functions import FUNCTIONS as _FUNCTIONS
from autojit.functions import factories as _factories
from autojit.functions import namespace as _namespace
from autojit.functions import random as _random
from autojit.functions.exchange import from_dlpack
from autojit.functions.lazy_methods import attach_later as _attach_later
from autojit.functions.legacy import KINDS as _KINDS
from autojit.functions.legacy import set_default_tensor_type
from autojit.functions.lists import functions_of_lists as _functions_of_lists
from autojit.functions.memory import MemoryFormat as memory_format
from autojit.functions.memory import channels_last, channels_last_3d, contiguous_format, empty_strided, preserve_format
from autojit.tensor import Tensor
from autojit.tensor.size import Size

from autojit import autograd  # isort: skip
from autojit import functions as _functions  # isort: skip
from autojit.autograd.anomaly import (  # noqa: F401  # isort: skip
    is_anomaly_check_nan_enabled, is_anomaly_enabled, set_anomaly_enabled,
)  # fmt: skip
from autojit.autograd.grad_mode import (  # isort: skip
    enable_grad, inference_mode, is_grad_enabled, is_inference_mode_enabled, no_grad, set_grad_enabled,
)  # fmt: skip

__all__ = [  # the lines with ``globals`` add every one of ``autojit.functions``, and the names of its ``legacy``
    "Generator", "Size", "Tensor", "arange", "are_deterministic_algorithms_enabled", "as_tensor", "asarray",
    "autograd", "bernoulli", "bfloat16", "bool", "can_cast", "cdouble", "cfloat", "channels_last",
    "channels_last_3d", "complex64", "complex128", "contiguous_format", "default_dtype", "default_generator",
    "device", "double", "dtype", "e", "empty", "empty_like", "empty_strided", "enable_grad", "eye", "finfo",
    "float", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "float16",
    "float32", "float64", "from_dlpack", "from_numpy", "full", "full_like", "get_default_dtype", "get_rng_state",
    "half", "iinfo", "inf", "inference_mode", "initial_seed", "int", "int8", "int16", "int32", "int64",
    "is_complex", "is_deterministic_algorithms_warn_only_enabled", "is_floating_point", "is_grad_enabled",
    "is_inference", "is_inference_mode_enabled", "is_tensor", "is_warn_always_enabled", "layout", "linspace",
    "logspace", "long", "manual_seed", "memory_format", "multinomial", "nan", "no_grad", "normal", "numel", "ones",
    "ones_like", "pi", "preserve_format", "promote_types", "rand", "rand_like", "randint", "randint_like", "randn",
    "randn_like", "randperm", "range", "result_type", "scalar_tensor", "seed", "set_default_dtype",
    "set_default_tensor_type", "set_grad_enabled", "set_printoptions", "set_rng_state", "set_warn_always", "short",
    "sparse_bsc", "sparse_bsr", "sparse_coo", "sparse_csc", "sparse_csr", "strided", "tensor", "uint8", "uint16",
    "uint32", "uint64", "use_deterministic_algorithms", "zeros", "zeros_like",
]  # fmt: skip

globals().update(
    {
        name: vars(module)[name]
        for module in (_factories, _namespace, _random)
        for name in __all__
        if getattr(vars(module).get(name), "__module__", "") == module.__name__
    }
)
globals().update(_FUNCTIONS)
globals().update(_functions_of_lists(_FUNCTIONS))

newaxis = None
globals().update(_DTYPES, float=_DTYPES["float32"], double=_DTYPES["float64"], half=_DTYPES["float16"])
globals().update(int=_DTYPES["int32"], long=_DTYPES["int64"], short=_DTYPES["int16"])
globals().update(cfloat=_DTYPES["complex64"], cdouble=_DTYPES["complex128"])
globals().update(_KINDS)
_attach_later(_functions.METHODS)


def _find_cuda() -> None:
    """Nothing of CUDA is imported before somebody asks for such a device."""
    from autojit.cuda.placement import find

    find()


def _find_meta() -> None:
    from autojit.dispatch.meta_device import find

    find()


_look_for("cuda", _find_cuda)
_look_for("meta", _find_meta)

_MODULES = """
    __config__ __future__ _C _custom_ops _dynamo _higher_order_ops _subclasses accelerator amp array_api
    backends cache compat compiler control_flow cpu cuda debug distributed distributions elastic export fft func
    functional futures fx hub interop io jit library linalg masked multiprocessing nn numba_ops numpy optim
    overrides profiler quasirandom random serialization signal sparse special testing types _utils storage utils
    version xpu"""


__getattr__ = _LazyNames(
    __name__,
    _functions.PLACES
    | {"__version__": "autojit.version", "torch_names": "autojit.compat.torch_names", "Future": "autojit.core.futures"}
    | dict.fromkeys(("ScriptFunction", "ScriptModule"), "autojit.jit.scripting")
    | dict.fromkeys(("Event", "Stream"), "autojit.cuda")
    | {"SymInt": "autojit.core.sizes:SymbolicSize", "_standard_gamma": "autojit.distributions.gamma_sampling"}
    | {"PyTorchFileReader": "autojit.storage"}
    | dict.fromkeys(
        ("_assert", "_assert_async", "_check", "_check_index", "_check_is_size", "_check_type", "_check_value"),
        "autojit.top_level.assertions",
    ),
    modules=_MODULES,
    get=_functions.public_value,
)
__dir__ = __getattr__.all_names
