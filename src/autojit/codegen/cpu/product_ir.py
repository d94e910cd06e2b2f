"""Bodies of plans that multiply matrices, around the GEMMs of `gemm`."""

from __future__ import annotations

from autojit.codegen.cpu.plan_records import ContractionWords, ProductContext, ProductWords
from autojit.codegen.module_text import ModuleText, Signature
from autojit.codegen.native_function import NativeFunction, body
from autojit.core.once import once

_ELEMENTS = {"f32": "float", "f64": "double"}


def _gemm(short: str) -> Signature:
    operands = ", ".join(f"ptr {x}, i64 rs{x}, i64 cs{x}" for x in "abc")
    return Signature(f"aj_gemm_{short}", f"i64 m, i64 n, i64 k, {operands}, i64 accumulate, ptr scratch")


@once
def product_ir(short: str) -> str:
    """The products' bodies for ``f32`` or ``f64``; they call the GEMM of that type."""
    module = ModuleText()
    _add_product(module, short)
    _add_contraction(module, short)
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


def _multiply(f: NativeFunction, short: str, w: Operands, accumulate: str | int) -> None:
    """``c = a @ b``, or ``c += a @ b``."""
    operands = (w[part] for x in "abc" for part in (x, f"rs{x}", f"cs{x}"))
    f.call(_gemm(short), w["m"], w["n"], w["k"], *operands, accumulate, w["scratch"])


def _add_product(module: ModuleText, short: str) -> None:
    """``aj_matmul_<t>``: the units of one chunk, each a block of rows times a block of columns of a matrix."""
    f = NativeFunction(module, body(f"aj_matmul_{short}"), attributes="")
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
            part[x] = f.element(w[x], _ELEMENTS[short], position)
        _multiply(f, short, {**w, **part}, w["accumulate"])
    f.finish()


def _add_contraction(module: ModuleText, short: str) -> None:
    """``aj_contract_<t>``: the product of one slice of the steps."""
    f = NativeFunction(module, body(f"aj_contract_{short}"), attributes="")
    w = _operands(f, ContractionWords)
    done = f.mul(f.parameters[1], w["k_block"])
    steps = f.least(f.sub(w["k"], done), w["k_block"])
    _multiply(f, short, {**w, "k": steps}, 0)
    f.finish()
