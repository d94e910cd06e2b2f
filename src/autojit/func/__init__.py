"""Function transforms: derivatives and batched forms of functions, which nest in any order (torch.func)."""

from autojit.func.batches import vmap
from autojit.func.derivatives import grad, grad_and_value, hessian, jacfwd, jacrev, jvp, vjp
from autojit.func.modules import functional_call, stack_module_state

__all__ = [
    "functional_call", "grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp", "stack_module_state", "vjp",
    "vmap",
]  # fmt: skip
