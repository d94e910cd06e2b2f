"""The tool that says what kernels take of a GPU: what it counts in texts, and of blocks that it runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

from tools.ptx_accesses import TURNS, global_bytes, wide_share

ROOT = Path(__file__).parents[1]
TEXT = """
	ld.param.b64 	%rd1, [kernel_param_0];
	ld.global.nc.v4.b32 	{%r1, %r2, %r3, %r4}, [%rd1];
	ld.shared.b32 	%r9, [%r8];
$L__BB0_1:
	ld.global.b32 	%r5, [%rd1+16];
	cp.async.cg.shared.global 	[%r6], [%rd2], 16;
	@%p1 bra 	$L__BB0_1;
	st.global.v2.b64 	[%rd1], {%rd3, %rd4};
	st.global.b8 	[%rd1], %rs1;
"""


def test_accesses_count_by_width_and_in_loops_as_often_as_these_may_turn() -> None:
    found = global_bytes(TEXT)
    assert found == Counter({16: 16 + 16 + 16 * TURNS, 4: 4 * TURNS, 1: 1})
    assert wide_share(found) == found[16] / sum(found.values())
    assert wide_share(Counter()) == 1


def test_a_program_tells_its_kernels_with_what_their_blocks_access() -> None:
    """16 bytes at once in the one kernel of options, of sectors that are used whole; and what an example asserts of its
    results does not stop it where nothing is computed.
    """
    done = subprocess.run(
        [sys.executable, "-O", "-m", "tools.kernel_programs", "example/black_scholes"],
        cwd=ROOT,
        env={**os.environ, "AUTOJIT_CUDA": "emulate,apart"},
        capture_output=True,
        text=True,
        check=True,
    )
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert not [row["stopped"] for row in rows if "stopped" in row]
    largest = max(rows, key=lambda row: int(row["bytes"]))
    widths = Counter({int(width): count for width, count in largest["widths"].items()})
    assert wide_share(widths) > 0.9
    assert sum(widths.values()) > 0.9 * sum(largest["sectors"].values())
    assert ".visible .entry kernel(" in largest["ptx"]
