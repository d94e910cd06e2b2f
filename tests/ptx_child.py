"""Compiles LLVM modules to PTX for ``tests.ptxas``: a request on standard input, one line of JSON per text."""

from __future__ import annotations

import json
import sys

from autojit.codegen.cuda.finished_ptx import finished_ptx
from autojit.codegen.cuda.target import CudaTarget
from autojit.runtime.llvm import compile_to_object


def main() -> None:
    request = json.load(sys.stdin)
    target = CudaTarget(request["architecture"], request["processors"])
    for text in request["texts"]:
        print(json.dumps(finished_ptx(compile_to_object(text, target).decode(), target)), flush=True)


if __name__ == "__main__":
    main()
