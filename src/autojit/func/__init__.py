"""Function transforms: derivatives and batched forms of functions, which nest in any order (torch.func)."""

from autojit.func.batches import vmap
from autojit.func.derivatives import grad, grad_and_value, hessian, jacfwd, jacrev, jvp, vjp

__all__ = ["grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp", "vjp", "vmap"]
