"""Operations over tensors as templates: ``{x}``, ``{y}`` are operands, ``{k}`` a small number.

A shape is a tuple of whole numbers and of names of sizes that a call chooses ("n"); an op's result shape is given by a
function of the operand's. ``S`` stands for "the operand's shape".
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import NamedTuple

Shape = tuple[int | str, ...]


class Shaped(NamedTuple):
    """An op whose result has another shape than its operand."""

    text: str
    result: Callable[[Shape], Shape]
    applies: Callable[[Shape], bool]


def _first_fixed(s: Shape) -> bool:
    return len(s) > 0 and isinstance(s[0], int) and s[0] > 1


def _last(size: int) -> Callable[[Shape], bool]:
    return lambda s: len(s) > 0 and isinstance(s[-1], int) and s[-1] >= size


def _without_last(*texts: str) -> list[Shaped]:
    return [Shaped(text, lambda s: s[:-1], _last(1)) for text in texts]


def _merged(s: Shape) -> Shape:
    product = str(prod(n for n in s if isinstance(n, int)))
    names = [n for n in s if isinstance(n, str)]
    return ("*".join([product, *names]),) if names else (int(product),)


SAME = (
    "aj.tanh({x})", "{x}.sin()", "{x} * {x}", "{x}.exp().clamp(max=3.0)", "aj.sigmoid({x})", "{x}.abs()", "{x}.relu()",
    "-{x}", "{x} + {k}", "{k} * {x}", "{x}.square()", "{x} / {k}", "{x}.detach()", "{x}.clone()",
    "aj.where({x} > 0, {x}, {x} * 0.5)", "F.softplus({x})", "F.gelu({x})", "F.silu({x})", "{x}.clamp(-1, 1)",
    "({x}.abs() + 0.1).sqrt()", "({x}.abs() + 0.5).log()", "{x}.erf()", "{x}.atan()", "{x}.floor()", "{x}.sign()",
    "{x}.masked_fill({x} > 1, {k})", "{x} ** 2", "{x} ** 3", "1 / ({x}.abs() + 1)", "{x}.contiguous()", "{k} - {x}",
    "{x}.reshape(-1).reshape({x}.shape)", "aj.zeros_like({x})", "aj.ones_like({x})", "{x}[...]", "{x}.cos() + {x}",
    "{x}.flatten().view({x}.shape)", "aj.rand_like({x}) + {x}", "F.dropout({x}, 0.5)", "{x}.expm1().clamp(max=2.0)",
    "aj.maximum({x}, {x}.flip(0)) if {x}.dim() else {x}", "{x}.remainder(1.5)", "{x}.nan_to_num()", "{x}.logaddexp({x} * 0.5)",
    "{x}.pow(2).neg()", "F.leaky_relu({x}, 0.1)", "F.hardtanh({x})", "F.elu({x})", "{x}.sinh().clamp(-3, 3)",
    "{x} * aj.full_like({x}, {k})", "{x}.lerp({x} * 2, 0.25)", "{x}.type_as({x})", "{x} + aj.arange({x}.numel()).view({x}.shape)",
    "{x}.round()", "{x}.trunc() + {x}", "{x}.heaviside({x})", "{x}.addcmul({x}, {x}, value=0.5)", "{x}.rsub({k})",
)  # fmt: skip

ALONG = (  # of rank 1 or more; the last axis is not empty
    "{x}.softmax(-1)", "{x}.log_softmax(-1)", "{x}.cumsum(-1)", "{x}.flip(0)", "{x}.roll(1, 0)", "{x}.sort(-1).values",
    "{x} - {x}.mean(-1, keepdim=True)", "{x} / ({x}.norm(dim=-1, keepdim=True) + 1)", "{x}.cummax(-1).values",
    "F.layer_norm({x}, {x}.shape[-1:])", "{x}[:]", "{x}.gather(-1, {x}.argsort(-1))", "{x}.transpose(0, -1).contiguous().transpose(0, -1)",
    "aj.cat([{x}[..., 1:], {x}[..., :1]], -1)", "aj.stack([{x}, {x} * 2]).sum(0)", "{x}.sum(0, keepdim=True).expand({x}.shape)",
    "{x}.cumprod(-1)", "{x}.mT.mT if {x}.dim() > 1 else {x}", "{x}.swapaxes(0, -1).reshape({x}.swapaxes(0, -1).shape).swapaxes(0, -1)",
    "{x}.topk({x}.shape[-1], -1).values", "{x}.logcumsumexp(-1)", "{x}.repeat_interleave(2, -1)[..., ::2]", "F.pad({x}, (1, 0))[..., 1:]",
    "{x}.diff(dim=-1, prepend={x}[..., :1])", "{x}[{x}.argsort(0)[:, 0]] if {x}.dim() == 2 else {x}", "{x}.index_select(-1, aj.tensor([0] * {x}.shape[-1]))",
    "aj.einsum('...i,...i->...i', {x}, {x})", "{x}.unfold(-1, 1, 1)[..., 0]", "{x}.cummin(-1).values", "{x}.tril() if {x}.dim() == 2 else {x}",
    "{x}.scatter(-1, {x}.argsort(-1), {x})", "{x}.renorm(2, 0, 1.5) if {x}.dim() == 2 else {x}", "{x}.view(*{x}.shape)", "{x}.unflatten(-1, (1, -1)).flatten(-2)",
)  # fmt: skip

SHAPED = (
    *_without_last("{x}.sum(-1)", "{x}.mean(-1)", "{x}.amax(-1)", "{x}.logsumexp(-1)", "{x}.prod(-1)"),
    Shaped("{x}.std(-1)", lambda s: s[:-1], _last(2)),
    *_without_last("{x}.var(-1, unbiased=False)", "{x}.norm(dim=-1)", "{x}.max(-1).values", "{x}.median(-1).values"),
    Shaped("{x}.sum(0)", lambda s: s[1:], lambda s: len(s) > 0),
    Shaped("{x}.mean(0)", lambda s: s[1:], lambda s: len(s) > 0),
    Shaped("{x}.sum()", lambda s: (), lambda s: True),
    Shaped("{x}.mean()", lambda s: (), lambda s: True),
    Shaped("{x}.max()", lambda s: (), lambda s: all(isinstance(n, int) for n in s)),
    Shaped("{x}.T", lambda s: s[::-1], lambda s: len(s) == 2),
    Shaped("{x}.mT", lambda s: (*s[:-2], s[-1], s[-2]), lambda s: len(s) >= 2),
    Shaped("{x}.t()", lambda s: s[::-1], lambda s: len(s) == 2),
    Shaped("{x}.unsqueeze(0)", lambda s: (1, *s), lambda s: len(s) < 3),
    Shaped("{x}.unsqueeze(-1)", lambda s: (*s, 1), lambda s: len(s) < 3),
    Shaped("{x}.squeeze(0)", lambda s: s[1:], lambda s: len(s) > 0 and s[0] == 1),
    Shaped("{x}[..., 0]", lambda s: s[:-1], _last(1)),
    Shaped("{x}.select(-1, 1)", lambda s: s[:-1], _last(2)),
    Shaped("{x}[0]", lambda s: s[1:], _first_fixed),
    Shaped("{x}[-1]", lambda s: s[1:], _first_fixed),
    Shaped("{x}[..., 1:3]", lambda s: (*s[:-1], 2), _last(3)),
    Shaped("{x}[..., ::2]", lambda s: (*s[:-1], 2), lambda s: len(s) > 0 and s[-1] in (3, 4)),
    Shaped("{x}.narrow(-1, 0, 2)", lambda s: (*s[:-1], 2), _last(2)),
    Shaped("{x}.reshape(-1)", _merged, lambda s: len(s) > 1),
    Shaped("{x}.flatten()", _merged, lambda s: len(s) > 1),
    Shaped("{x}.permute(*range({x}.dim() - 1, -1, -1))", lambda s: s[::-1], lambda s: len(s) > 1),
    Shaped("{x} @ {x}.mT", lambda s: (*s[:-2], s[-2], s[-2]), lambda s: len(s) >= 2),
    Shaped("aj.cat([{x}, {x}], -1)", lambda s: (*s[:-1], 2 * int(s[-1])), _last(1)),
    Shaped("aj.outer({x}, {x})", lambda s: (s[0], s[0]), lambda s: len(s) == 1),
    Shaped("{x}.expand(2, *{x}.shape)", lambda s: (2, *s), lambda s: len(s) < 3),
    Shaped("{x}.diagonal()", lambda s: s[:1], lambda s: len(s) == 2 and s[0] == s[1]),
    Shaped("{x}.unbind(-1)[-1]", lambda s: s[:-1], _last(1)),
    Shaped("{x}.chunk(2, -1)[1]", lambda s: (*s[:-1], int(s[-1]) // 2), lambda s: len(s) > 0 and s[-1] in (2, 4)),
    Shaped("{x}.repeat(2, *[1] * ({x}.dim() - 1))", lambda s: (2 * int(s[0]), *s[1:]), _first_fixed),
)  # fmt: skip

PAIRS = (  # of two operands of one shape
    "{x} + {y}", "{x} * {y}", "{x} - 0.5 * {y}", "{x} / ({y}.abs() + 1)", "aj.maximum({x}, {y})", "aj.where({x} > {y}, {x}, {y})",
    "aj.atan2({x}, {y})", "aj.hypot({x}, {y} + 1)", "F.smooth_l1_loss({x}, {y}, reduction='none')", "{x}.lerp({y}, 0.3)",
    "aj.stack([{x}, {y}]).amax(0)", "{x}.copysign({y})", "{x}.masked_fill({y} > 0, 0.5)", "aj.addcmul({x}, {x}, {y})",
    "{x} * {y}.sum()", "{x} * ({x} > {y})", "({x} - {y}) ** 2", "aj.minimum({x}, {y}) + {y}", "{x}.index_put((({x} > {y}),), aj.tensor(0.5, dtype={x}.dtype))",
)  # fmt: skip

WRITES = (  # in place, on {x} with an operand {y} of its shape
    "{x}.mul_(0.5)", "{x}.add_({k})", "{x}.copy_({y})", "{x}.fill_({k})", "{x}.zero_()", "{x}.tanh_()", "{x}.clamp_(-1, 1)",
    "{x}[...] = {y}", "{x}[{x} > 0] = {k}", "{x} += {k}", "{x} *= {y}", "{x} -= {y}", "{x}.sub_({y}, alpha=0.5)", "{x}.masked_fill_({y} > 0, {k})",
    "{x}.neg_()", "{x}.add_({x})", "{x}.addcmul_({y}, {y}, value=0.5)", "{x}.exp_().clamp_(max=2.0)", "{x}.lerp_({y}, 0.5)", "{x}.normal_()",
    "{x}.view(-1)[:2].sub_(1)", "{x}.reshape(-1).add_(1)", "{x}.flatten().mul_(2)", "{x}.data.add_({k})", "{x}.detach().mul_(0.5)",
    "{x}.uniform_()", "{x}.round_()", "{x}.sigmoid_()", "{x}.set_({y}.clone())", "{x}.contiguous().mul_(3)",
)  # fmt: skip

PART_WRITES = (  # of rank 1 or more
    "{x}[..., 0] = {k}", "{x}[..., 1:].mul_({k})", "{x}[..., -1].add_({k})", "{x}.select(-1, 0).fill_({k})", "{x}.T[0].add_({k})",
    "{x}[..., ::2] += {k}", "{x}[:1].zero_()", "{x}.mT.mul_(2) if {x}.dim() > 1 else {x}.mul_(2)", "{x}.transpose(0, -1).add_({k})",
    "{x}.unsqueeze(0)[0].sub_({k})", "{x}.narrow(-1, 0, 1).copy_({x}.narrow(-1, {x}.shape[-1] - 1, 1))", "{x}[..., 1:] = {x}[..., :-1]",
    "{x}.index_fill_(-1, aj.tensor([0]), {k})", "{x}.scatter_(-1, aj.zeros({x}.shape, dtype=aj.int64), {k})", "{x}.flip(0).add_(1)",
    "{x}.unbind(-1)[0].mul_(2)", "{x}.squeeze_()", "{x}.unsqueeze_(0)", "{x}.t_()", "{x}.transpose_(0, -1)", "{x}.index_add_(-1, aj.tensor([0]), {x}[..., :1].clone())",
    "{x}.cumsum_(-1)", "{x}.view({x}.shape).mul_({k})", "{x}.diagonal(0, 0, -1).add_({k}) if {x}.dim() > 1 else None", "{x}.chunk(2, -1)[0].neg_()",
    "{x}.expand(2, *{x}.shape)[1].add_(1)", "{x}.swapaxes(0, -1).reshape(-1).add_({k})",
)  # fmt: skip

COPIES = ("{x}.clone()", "{x} * 1.0", "{x}.detach().clone()", "{x} + 0")

COUNTED = ("{x}[{x} > 0]", "{x}.masked_select({x} < 0.5)", "{x}.flatten()[{x}.flatten() > -1]", "({x} * 4).round().unique()")  # fmt: skip

CASTS = (
    "({x} > 0).to({d})", "{x}.to(aj.int64).to({d})", "({x} * 3).to(aj.int32) // 2 + {x}", "({x} > 0) * {x}", "{x}.argmax() * {x} if {x}.numel() else {x}",
    "({x} * 10).to(aj.int64) % 3 + {x}", "({x} > 0).logical_not().to({d})", "{x}.to(aj.complex128).real.to({d})", "({x} > 0).sum() + {x}", "({x}.to(aj.int64) & 1) * {x}",
)  # fmt: skip

RISKY = (  # what may raise
    "{x} @ {y}", "{x} + {y}", "{x}.view(3, -1)", "{x}[2]", "{x}.squeeze(0) @ {y}", "aj.cat([{x}, {y}], 0)", "{x}.expand(3, 4)", "{x}.reshape(2, -1)",
)  # fmt: skip

CONDITIONS = (  # what Python may ask of a tensor
    "{x}.sum() > 0", "{x}.mean().item() > 0.1", "({x} > 0).all()", "{x}.shape[0] > {s} if {x}.dim() else True", "len({x}) > {s} if {x}.dim() else False",
    "{x}.numel() % 2 == 0", "{x}.requires_grad", "{x}.is_contiguous()", "aj.is_grad_enabled()", "{x}.stride()[-1:] == (1,)", "{x}.storage_offset() > 0",
    "{x}.is_leaf", "aj.equal({x}, {x} * 1)", "{x}.shape[0] & 1 if {x}.dim() else 0", "{x}.dtype == aj.float32", "{x}.abs().max() > 1 if {x}.numel() else False",
    "{x}.shape[0] in {{2, 5}} if {x}.dim() else False", "str({x}.shape[:1]) > '{s}'", "{x}.argmax() == 0 if {x}.numel() else True", "math.sqrt({x}.numel()) > {s}",
    "np.prod({x}.shape) > {s}", "aj.ones({x}.shape).sum() > {s}", "{x}.tolist() == []", "sum(1 for _ in range({x}.numel())) > {s}", "{x}._version > 0",
    "{x}.grad_fn is None", "bool({x}.isnan().any())", "int({x}.shape[0]) > {s} if {x}.dim() else 1", "aj.arange({x}.numel() + 1)[-1].item() > {s}",
    "f'{{{x}.numel()}}' > '{s}'", "{x}.data_ptr() == {x}.view({x}.shape).data_ptr()", "{x}.is_same_size({x}.mT) if {x}.dim() == 2 else False",
)  # fmt: skip

NUMBERS = (  # of a tensor, as Python numbers
    "{x}.sum().item()", "{x}.numel()", "len({x}.shape)", "float({x}.numel())", "math.log2({x}.numel() + 1)", "{x}.mean().item() * 0.5",
    "({x}.shape[0] if {x}.dim() else 1) ** 0.5", "max({x}.numel(), 5)", "round({x}.numel(), -1)", "{{3: 1.5, 5: 2.5}}.get({x}.shape[0] if {x}.dim() else 0, 0.5)",
    "int({x}.sum() > 0)", "len({x}.tolist()) if {x}.dim() else 0", "({x} > 0).sum().item()", "{x}.stride()[0] if {x}.dim() else 1", "{x}.numel() >> 1",
    "len([row for row in {x}]) if {x}.dim() else 0", "{x}[{x} > 0].shape[0]", "hash({x}.numel()) % 7", "{x}.numel().bit_length()", "float(str({x}.numel()))",
    "np.log({x}.numel() + 1)", "len(range({x}.numel())) % 3", "{x}.max().item() if {x}.numel() else 0.0", "[0.5] .__len__() * {x}.numel()", "{x}.numpy().size if not {x}.requires_grad else 2",
)  # fmt: skip
