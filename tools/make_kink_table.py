"""Record what torch says at kinks: ``python tools/make_kink_table.py`` with a Python that has torch.

Writes ``tests/dispatch/recorded/kinks.json``, which the test compares with, so that tests need no torch.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.dispatch.kink_cases import CASES, outcome  # noqa: E402

if __name__ == "__main__":
    table = {"torch": torch.__version__, **{name: outcome(torch, case) for name, case in CASES.items()}}
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(found)}" for name, found in table.items())
    (ROOT / "tests" / "dispatch" / "recorded" / "kinks.json").write_text(f"{{\n{lines}\n}}\n")
