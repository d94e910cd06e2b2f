"""Attention in a step: the kernel, and what adds up the shares of the derivative by the queries."""

from __future__ import annotations

from functools import lru_cache

from autojit.codegen.attention_operands import operands_of
from autojit.codegen.cpu.kernel_text import KernelText
from autojit.codegen.cpu.plan.records import SlotSum, SumContext
from autojit.codegen.cpu.structured.attention import print_attention
from autojit.codegen.cpu.structured.attention_adjoint import print_adjoint, share_bytes, shares_of
from autojit.codegen.cpu.structured.attention_kernel import CpuAttention
from autojit.codegen.lowered import Argument, Entry, ProductAddress, Scratch, Words
from autojit.schedule.kernels import StructuredKernel


@lru_cache(maxsize=256)
def _printed(job: CpuAttention) -> KernelText:
    """Layers of a model share their kernels."""
    return print_adjoint(job) if job.is_derivative else print_attention(job)


def attention_entries(kernel: StructuredKernel) -> list[Entry]:
    """What runs for attention or its derivative."""
    job = CpuAttention(*operands_of(kernel))
    text = _printed(job)
    dtype, label = job.dtype, kernel.node.op.name
    arguments: list[Argument] = [*kernel.operands, *kernel.node.outputs]
    added: list[Entry] = []
    shares = shares_of(job) if job.is_derivative else 1
    if shares > 1:
        stride = share_bytes(job)
        slots = Scratch(shares * stride, per_worker=False)
        arguments.append(slots)
        q_bar = kernel.node.outputs[0]
        words = Words(SlotSum(n=q_bar.type.size, n_slots=shares, stride=stride))
        context = SumContext(to=q_bar, slots=slots, words=words)
        sum_ns = 0.05 * q_bar.type.size * shares
        added.append(Entry(f"@aj_sum_slots_{dtype.short}", "", context, 1, sum_ns, "sum shares"))
    arguments += [Scratch(text.scratch_bytes, per_worker=True), ProductAddress(dtype)]
    return [Entry(text.text, "kernel", tuple(arguments), text.chunks, text.estimate_ns, label), *added]
