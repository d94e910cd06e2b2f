"""Adam for sparse gradients: only the rows or elements that have a gradient, and their moments, change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autojit.core.errors import UsageError
from autojit.core.layout import sparse_coo, strided
from autojit.optim.arithmetic import advance, sqrt
from autojit.optim.given import check_common, options, refuse
from autojit.optim.optimizer import Optimizer, Params
from autojit.optim.param_group import ParamGroup, hyper
from autojit.tensor import Tensor


class SparseAdam(Optimizer):
    """Adam whose moments are those of what has a gradient, rows or elements; the others stay as they are.

    The gradient is coalesced; inside a captured step, the step counts its rows.

    Example:
        >>> import autojit as aj
        >>> table = aj.nn.Embedding(4, 2, sparse=True)
        >>> before = table.weight.detach().clone()
        >>> table(aj.tensor([1])).sum().backward()
        >>> aj.optim.SparseAdam(table.parameters(), lr=0.1).step()
        >>> (table.weight != before).any(1)
        tensor([False,  True, False, False])
    """

    takes_sparse = True
    _zeros = ("exp_avg", "exp_avg_sq")

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        maximize: bool = False,
    ) -> None:
        defaults = options("lr betas eps maximize", locals())
        check_common(defaults, "eps", "betas")
        super().__init__(params, defaults)
        for p in (p for group in self.param_groups for p in group["params"]):
            refuse(p.layout is not strided, "SparseAdam requires dense parameter tensors")
            refuse(p.is_complex(), "SparseAdam does not support complex parameters")

    def _accept(self, grad: Tensor) -> None:
        if grad.layout is not sparse_coo:
            raise UsageError(
                "SparseAdam does not support dense gradients, please consider Adam instead", {"gradient": grad}
            )

    def _update(self, p: Tensor, grad: Tensor, state: dict[str, Any], group: ParamGroup) -> None:
        t = advance(state["step"])
        beta1, beta2 = hyper(group, "betas", 0), hyper(group, "betas", 1)
        once = grad.coalesce()
        places, g = once.indices().unbind(0), once.values()
        if group.plain("maximize"):
            g = -g
        m = self._moved(state["exp_avg"], places, g, 1 - beta1)
        v = self._moved(state["exp_avg_sq"], places, g * g, 1 - beta2)
        step_size = hyper(group, "lr") * sqrt(1 - beta2**t) / (1 - beta1**t)
        _add_at(p, places, m / (v.sqrt() + hyper(group, "eps")) * -step_size)

    def _moved(self, moment: Tensor, places: Sequence[Tensor], towards: Tensor, share: Tensor | float) -> Tensor:
        """The parts of a moment at some places, moved by a share of the way towards new values."""
        old = moment.index_select(0, places[0]) if len(places) == 1 else moment[tuple(places)]
        move = (towards - old) * share
        _add_at(moment, places, move)
        return old + move


def _add_at(x: Tensor, places: Sequence[Tensor], values: Tensor) -> None:
    """Add to the rows of ``x``, or to smaller parts where ``places`` index several of its axes."""
    if len(places) == 1:
        x.index_add_(0, places[0], values)
    else:
        x.index_put_(tuple(places), values, accumulate=True)
