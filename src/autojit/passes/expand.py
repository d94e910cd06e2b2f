"""Expand what code generation does not know into what it knows.

``view_update`` becomes its chain of updates, ops that hold graphs the ops of these; matrix products of halves, integers
and bool are computed in a type that has a GEMM; sums of halves, also those over ranks, accumulate in float32. Attention
becomes its composite where the machine has no kernels for it, or they do not pay. Fourier transforms become those that
have kernels (`fourier`). At the end complex numbers become pairs (`complex_parts`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any

from autojit.core.dtypes import HALVES, DType, float32, int32, int64
from autojit.core.machine import Attending, Machine
from autojit.core.sizes import is_symbolic
from autojit.core.types import TensorType
from autojit.ir.builder import Tracer
from autojit.ir.graph import Graph
from autojit.ir.op import Op, bind, bind_all
from autojit.ops.graph_op import GraphOp
from autojit.passes.complex_parts import split_complex
from autojit.passes.flexible_scores import opened, written_out
from autojit.passes.fourier import transform_rules
from autojit.passes.log_sums import log_sums_in_parts
from autojit.passes.rewrite import Rewriter, Rule


def _cast(x: Tracer, dtype: DType) -> Any:
    return bind(Op.registry["cast"](dtype), x)


def _own_expansion(rewriter: Rewriter, op: Any, operands: tuple[Tracer, ...]) -> Any:
    return op.expand(*operands)


def _in_float32(rewriter: Rewriter, op: Op, operands: tuple[Tracer, ...]) -> Any:
    dtype = operands[0].spec.dtype
    if dtype not in HALVES:
        return None
    return _cast(bind(op, *[_cast(x, float32) for x in operands]), dtype)


def _product(machine: Machine, rewriter: Rewriter, op: Any, operands: tuple[Tracer, ...]) -> Any:
    """A product of halves that the machine multiplies into float32, or else of what they are in float32."""
    dtype, is_there = operands[0].spec.dtype, operands[0].spec.device.type == machine.kind  # else it is the host's
    if dtype not in HALVES or (is_there and dtype in machine.product_dtypes):
        return None
    if is_there and dtype in machine.dot_dtypes:
        return None if op.result is not None else _cast(bind(replace(op, result=float32), *operands), dtype)
    product = bind(replace(op, result=None), *[_cast(x, float32) for x in operands])
    return product if op.result is not None else _cast(product, dtype)


def _combined_wide(rewriter: Rewriter, op: Op, operands: tuple[Tracer, ...]) -> Any:
    """Ranks combine narrow floats in float32, and round once; small integers they add up as larger ones."""
    dtype = operands[0].spec.dtype
    is_narrow = dtype in HALVES or dtype.kind == "float8"
    is_small = dtype.kind in ("int", "uint") and dtype.size_bytes < 4  # as ``rank_arithmetic.sums_wrongly`` says
    if not (is_narrow or (is_small and getattr(op, "combine", "sum") == "sum")):
        return None
    found = bind(op, _cast(operands[0], float32 if is_narrow else int32))
    return found if found.spec.dtype is int64 else _cast(found, dtype)


def _all_in_float32(rewriter: Rewriter, op: Op, operands: tuple[Tracer, ...]) -> Any:
    """The same for ops with several operands or results, of which some are integers."""
    if operands[0].spec.dtype not in HALVES or getattr(op, "combine", "") == "set":
        return None
    dtype = operands[0].spec.dtype
    results = bind_all(op, *[_cast(x, float32) if x.spec.dtype is dtype else x for x in operands])
    if op.n_outputs == 1:
        return _cast(results, dtype)
    return tuple(_cast(y, dtype) if y.spec.dtype is float32 else y for y in results)


def _cumulative(machine: Machine, rewriter: Rewriter, op: Any, operands: tuple[Tracer, ...]) -> Any:
    found = log_sums_in_parts(machine, op, *operands)
    return _all_in_float32(rewriter, op, operands) if found is None else found


def _attention(machine: Machine, rewriter: Rewriter, op: Any, operands: tuple[Tracer, ...]) -> Any:
    """Attention stays an op where the machine has kernels for it, perhaps in float32."""
    types = [x.spec for x in operands]
    if machine.attention is None:
        return op.composite(*operands)
    if has_kernels(machine.attention, op, types):
        return None
    wide = [t.with_dtype(float32) if t.dtype in HALVES else t for t in types]
    if types[0].dtype in HALVES and has_kernels(machine.attention, op, wide):
        return _attention_in_float32(op, operands)
    return op.composite(*operands)


def _flexible(machine: Machine, rewriter: Rewriter, op: Any, operands: tuple[Tracer, ...]) -> Any:
    """The same of attention with a function of its scores."""
    known, types = machine.attention, [x.spec for x in operands]
    if known is not None and known.of_functions and has_kernels(known, op, types):
        found = opened(op, types)
        if found is not None:
            return bind_all(found, *operands)
    return written_out(op, operands)


def _attention_in_float32(op: Any, operands: tuple[Tracer, ...]) -> Any:
    """Attention to halves: the logarithms of sums are float32 anyway, what else comes out is rounded."""
    narrow = operands[0].spec.dtype
    results = bind_all(op, *[_cast(x, float32) if x.spec.dtype is narrow else x for x in operands])
    types = op.result_type(*[x.spec for x in operands])
    return tuple(_cast(y, narrow) if t.dtype is narrow else y for y, t in zip(results, types, strict=True))


def has_kernels(known: Attending, op: Any, types: Sequence[TensorType]) -> bool:
    """Whether attention to operands of these types has kernels of its own, and they pay."""
    q, k, v = types[:3]
    if any(is_symbolic(n) for t in (q, k, v) for n in t.shape):
        return False  # their tiles are chosen by sizes
    widths = q.shape[-1], v.shape[-1]
    is_narrow = min(widths) > 0 and (known.most_width is None or max(widths) <= known.most_width)
    is_there = is_narrow and q.dtype in known.dtypes and prod(q.shape) > 0 and prod(k.shape) > 0
    return is_there and _pays(known, op, q, k)


def _pays(known: Attending, op: Any, q: TensorType, k: TensorType) -> bool:
    """Whether computing scores twice costs less than keeping them: not where a matrix of them stays in a cache."""
    table = q.shape[-2] * k.shape[-2] * q.dtype.size_bytes
    kept = table * known.usual_width * (known.causal_gain if op.skips_keys else 1)
    is_large = kept >= known.least_table_bytes * max(q.shape[-1], known.usual_width)
    return is_large or table * prod(q.shape[:-2]) >= known.least_bytes


ATTENTION = ("attention", "attention_adjoint")
FLEXIBLE = ("flex_attention", "flex_attention_adjoint")
PRODUCTS = ("matmul", "convolution", "convolution_input", "convolution_weight")
RULES: dict[str, Rule] = {
    "view_update": _own_expansion,
    **dict.fromkeys(("sum", "prod", "amax", "amin", "largest", "least"), _in_float32),
    **dict.fromkeys(("cumulative_extreme", "linear_recurrence", "logaddexp"), _all_in_float32),
    **dict.fromkeys(("all_reduce", "reduce_scatter", "owner"), _combined_wide),
    "own_part": _own_expansion,
    **dict.fromkeys(("scatter", "index_update", "index_put"), _all_in_float32),
}


def expand(graph: Graph, machine: Machine) -> Graph:
    """Rewrite ops without a lowering of their own, and products of halves for machines that have none.

    Preserves results (halves are rounded once at the end, as the eager rule does). Time O(nodes).
    """
    rules = RULES | dict.fromkeys(PRODUCTS, partial(_product, machine))
    rules = rules | dict.fromkeys(ATTENTION, partial(_attention, machine))
    rules = rules | dict.fromkeys(FLEXIBLE, partial(_flexible, machine))
    rules = rules | transform_rules(machine) | {"cumulative": partial(_cumulative, machine)}
    held = {n.op.name for n in graph.nodes if isinstance(n.op, GraphOp) and n.op.opened_by == "expand"} - {
        *ATTENTION,
        *FLEXIBLE,
    }
    rules = rules | dict.fromkeys(held, _own_expansion) if held else rules
    if any(node.op.name in rules for node in graph.nodes):
        graph = Rewriter(rules).run(graph)
    return split_complex(graph)
