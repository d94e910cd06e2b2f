"""PyTorch 0.3's autograd: import this module in place of ``torch`` or ``torch.autograd``.

Here are Variable (with ``volatile`` and ``reinforce``), ``backward`` and ``grad`` with their old names and defaults,
Function in both styles, and the sampling functions. Every other name is autojit's.

Example:
    >>> from autojit.compat import v0_3 as torch
    >>> x = torch.Variable(torch.ones(2), requires_grad=True)
    >>> y = (x * x).sum()
    >>> y.backward()
    >>> x.grad
    tensor([2., 2.])
"""

from __future__ import annotations

import sys

from autojit.compat.derivatives import backward, backward_method, grad
from autojit.compat.functions import Function
from autojit.compat.stochastic import bernoulli, multinomial, normal, reinforce
from autojit.compat.variables import Variable
from autojit.core.lazy_modules import LazyNames as _LazyNames

for _name, _method in (
    ("backward", backward_method), ("bernoulli", bernoulli), ("multinomial", multinomial), ("reinforce", reinforce),
):  # fmt: skip
    setattr(Variable, _name, _method)

autograd = sys.modules[__name__]  # ``v0_3.autograd.Variable`` is the same class

__getattr__ = _LazyNames(__name__, others="autojit autojit.autograd")

__all__ = ["Function", "Variable", "autograd", "backward", "bernoulli", "grad", "multinomial", "normal"]
