"""Operators by name, as ``torch.library`` has them: Python functions with rules for gradients, devices and batches."""

from autojit.library.checks import opcheck
from autojit.library.libraries import Library, define, fallthrough_kernel, get_ctx, impl
from autojit.library.libraries import _scoped_library as _scoped_library
from autojit.library.registration import (
    CustomOpDef,
    custom_op,
    impl_abstract,
    register_autocast,
    register_autograd,
    register_fake,
    register_kernel,
    register_torch_dispatch,
    register_vmap,
)
from autojit.library.schema import infer_schema

__all__ = [
    "CustomOpDef",
    "Library",
    "custom_op",
    "define",
    "fallthrough_kernel",
    "get_ctx",
    "impl",
    "impl_abstract",
    "infer_schema",
    "opcheck",
    "register_autocast",
    "register_autograd",
    "register_fake",
    "register_kernel",
    "register_torch_dispatch",
    "register_vmap",
]
