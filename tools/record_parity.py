"""Run the programs of ``tests/autograd/parity_cases.py`` with PyTorch and record what they return.

python tools/record_parity.py      # in an environment with PyTorch; autojit itself is not needed
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "tests" / "autograd" / "recorded" / "s0.json"


def main() -> None:
    sys.path.insert(0, str(ROOT))
    cases = importlib.import_module("tests.autograd.parity_cases")  # the tests are no installed package
    results = {name: cases.plain(case(torch)) for name, case in cases.CASES.items()}
    lines = [f'"recorded with": "PyTorch {torch.__version__}"']
    lines += [f"{json.dumps(name)}: {json.dumps(found)}" for name, found in results.items()]
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    print(f"{TARGET}: {len(results)} programs")


if __name__ == "__main__":
    main()
