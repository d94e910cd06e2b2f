"""Bodies of plans that multiply matrices, around the GEMMs of `gemm`."""

from __future__ import annotations

from functools import partial

from autojit.codegen.cpu.plan.records import ContractionWords, ProductContext, ProductWords
from autojit.codegen.cpu.products.blocks import signature
from autojit.codegen.module_text import ModuleText
from autojit.codegen.native_function import NativeFunction, body
from autojit.codegen.scalar import memory_type
from autojit.core.dtypes import DType, bfloat16, float32
from autojit.core.once import once


@once
def product_ir(dtype: DType) -> str:
    """The products' bodies for one type; they call the GEMM of that type."""
    module = ModuleText()
    for name, write in {"matmul": _write_product, "contract": _write_contraction}.items():
        NativeFunction.define(module, body(f"aj_{name}_{dtype.short}"), partial(write, dtype), attributes="")
    return module.text()


Operands = dict[str, str]
"""Addresses of operands, and words of the product, by name."""


def _operands(f: NativeFunction, words: type[ProductWords | ContractionWords]) -> Operands:
    """What a product's context holds; ``scratch`` is the worker's own."""
    context, _, worker = f.parameters
    found = {name: f.get(context, word) for name, word in ProductContext.fields.items()}
    found |= {name: f.get(found["words"], word) for name, word in words.fields.items()}
    found["scratch"] = f.at(found["scratch"], f.mul(worker, found["scratch_bytes"]))
    return found


def _multiply(f: NativeFunction, dtype: DType, w: Operands, accumulate: str | int) -> None:
    """``c = a @ b``, or ``c += a @ b``."""
    operands = (w[part] for x in "abc" for part in (x, f"rs{x}", f"cs{x}"))
    f.call(signature(dtype, "gemm"), w["m"], w["n"], w["k"], *operands, accumulate, w["scratch"])


def _write_product(dtype: DType, f: NativeFunction) -> None:
    """``aj_matmul_<t>``: the units of one chunk, each a block of rows times a block of columns of a matrix."""
    result = float32 if dtype is bfloat16 else dtype
    w = _operands(f, ProductWords)
    first = f.mul(f.parameters[1], w["units_per_chunk"])
    stop = f.least(f.add(first, w["units_per_chunk"]), w["units"])
    with f.loop(first, stop) as unit:
        tile, strip = f.quotient(unit, w["col_blocks"]), f.remainder(unit, w["col_blocks"])
        batch, block = f.quotient(tile, w["row_blocks"]), f.remainder(tile, w["row_blocks"])
        outer, inner = f.quotient(batch, w["inner_batch"]), f.remainder(batch, w["inner_batch"])
        row, column = f.mul(block, w["row_block"]), f.mul(strip, w["col_block"])
        moves = {"a": [(row, "rsa")], "b": [(column, "csb")], "c": [(row, "rsc"), (column, "csc")]}
        part = {
            "m": f.least(f.sub(w["m"], row), w["row_block"]),
            "n": f.least(f.sub(w["n"], column), w["col_block"]),
        }
        for x, steps in moves.items():
            position = f.add(f.mul(outer, w[f"{x}_outer"]), f.mul(inner, w[f"{x}_inner"]))
            for number, stride in steps:
                position = f.add(position, f.mul(number, w[stride]))
            part[x] = f.element(w[x], memory_type(result if x == "c" else dtype), position)
        _multiply(f, dtype, {**w, **part}, w["accumulate"])


def _write_contraction(dtype: DType, f: NativeFunction) -> None:
    """``aj_contract_<t>``: the product of one slice of the steps."""
    w = _operands(f, ContractionWords)
    done = f.mul(f.parameters[1], w["k_block"])
    steps = f.least(f.sub(w["k"], done), w["k_block"])
    _multiply(f, dtype, {**w, "k": steps}, 0)
