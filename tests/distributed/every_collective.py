"""A graph of every collective of one dtype."""

from __future__ import annotations

from autojit.ir import parse_graph, verify
from autojit.ir.graph import Graph

REAL = ("f64", "f32", "f16", "bf16")


def every_collective(kind: str, length: int, size: int, group: str) -> Graph:
    """``(x: kind[length], p: kind[size, length])``: all collectives of the dtype, and what a rank does alone."""
    w, x, parts = f"group='{group}', size={size}", f"{kind}[{length}]", f"{kind}[{size}, {length}]"
    ring = tuple((r, (r + 1) % size) for r in range(size))[: max(1, size - 1)]  # the last one sends to nobody
    nodes = {
        "sum": (x, f"all_reduce[{w}, combine='sum', is_replicated=True](x)"),
        "prod": (x, f"all_reduce[{w}, combine='prod', is_replicated=True](x)"),
        "gathered": (parts, f"all_gather[{w}, is_replicated=True](x)"),
        "scattered": (x, f"reduce_scatter[{w}](p)"),
        "exchanged": (parts, f"all_to_all[{w}](p)"),
        "root": (x, f"broadcast[{w}, root={size - 1}, is_replicated=True](x)"),
        "passed": (x, f"send_recv[{w}, pairs={ring}](x)"),
        "kept": (x, f"send_recv[{w}, pairs=()](x)"),
        "own": (x, f"own_part[{w}](gathered)"),
        "number": ("i64[]", f"rank[{w}]()"),
    }
    if not kind.startswith("c"):
        nodes["most"] = (x, f"all_reduce[{w}, combine='max', is_replicated=True](x)")
        nodes["least"] = (x, f"all_reduce[{w}, combine='min', is_replicated=True](x)")
    if kind in REAL:
        nodes["owner_of_most"] = (f"i64[{length}]", f"owner[{w}, combine='max'](x)")
        nodes["owner_of_least"] = (f"i64[{length}]", f"owner[{w}, combine='min'](x)")
    lines = " ".join(f"{name}: {type} = {op};" for name, (type, op) in nodes.items())
    return verify(parse_graph(f"(x: {x}, p: {parts}) {{ {lines} return {', '.join(nodes)} }}"))
