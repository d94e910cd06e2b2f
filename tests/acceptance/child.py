"""A training script run as a process of its own; prints what it found as one line of JSON. Not a test itself."""

from __future__ import annotations

import json
import sys
import time
import warnings


def main() -> None:
    """Three steps of the program named in the arguments, and what the cache did meanwhile."""
    import autojit as aj
    from tests.acceptance.programs import PROGRAMS, outcome

    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        run = PROGRAMS[sys.argv[1]].build("tiny")
        start_s = time.perf_counter()
        results = outcome(run, aj.jit, steps=3)
        elapsed_s = time.perf_counter() - start_s
    stats = aj.cache.stats()
    print(
        json.dumps(
            {
                "bits": [array.tobytes().hex() for array in results],
                "hits": stats.hits,
                "misses": stats.misses,
                "rebuilt": stats.rebuilt,
                "loaded_llvm": "llvmlite.binding" in sys.modules,
                "warnings": [str(w.message) for w in warned],
                "elapsed_s": elapsed_s,
            }
        )
    )


if __name__ == "__main__":
    main()
