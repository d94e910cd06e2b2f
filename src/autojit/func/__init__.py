"""Function transforms: derivatives and batched forms of functions, which nest in any order (torch.func)."""

from typing import TYPE_CHECKING

from autojit.core.lazy_modules import LazyNames as _LazyNames
from autojit.func.batches import vmap
from autojit.func.derivatives import grad, grad_and_value, hessian, jacfwd, jacrev, jvp, vjp
from autojit.func.linear import debug_unwrap, functionalize, linearize
from autojit.func.pattern import rearrange

if TYPE_CHECKING:
    from autojit.nn.functional_call import functional_call, replace_all_batch_norm_modules_, stack_module_state

__getattr__ = _LazyNames(
    __name__,
    dict.fromkeys(
        ("functional_call", "replace_all_batch_norm_modules_", "stack_module_state"), "autojit.nn.functional_call"
    ),
)

__all__ = [
    "debug_unwrap", "functional_call", "functionalize", "grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp",
    "linearize", "rearrange", "replace_all_batch_norm_modules_", "stack_module_state", "vjp", "vmap",
]  # fmt: skip
