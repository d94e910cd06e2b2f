"""Function transforms: derivatives and batched forms of functions, which nest in any order (torch.func)."""

from autojit.func.batches import vmap
from autojit.func.derivatives import grad, grad_and_value, hessian, jacfwd, jacrev, jvp, vjp
from autojit.func.linear import debug_unwrap, functionalize, linearize
from autojit.func.modules import functional_call, replace_all_batch_norm_modules_, stack_module_state
from autojit.func.pattern import rearrange

__all__ = [
    "debug_unwrap", "functional_call", "functionalize", "grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp",
    "linearize", "rearrange", "replace_all_batch_norm_modules_", "stack_module_state", "vjp", "vmap",
]  # fmt: skip
