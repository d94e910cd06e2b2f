"""The examples on the CPU and on a CUDA device: how far their loss curves are apart, and how long each took.

    AUTOJIT_CUDA=emulate python examples/_devices.py [EXAMPLE ...] [--steps N] [--large]

Without ``AUTOJIT_CUDA`` the device is a real one. Emulated, most take seconds and the loops minutes (docs/cuda.md).
"""

from __future__ import annotations

import argparse
import sys

from _torch import FOLDER, curve, distance

EXAMPLES = tuple(sorted(path.stem for path in FOLDER.glob("[a-z]*.py")))
BOUND = 1e-4
"""Of the distance of two curves: sums of the device are added in another order."""


def main() -> int:
    """Print a line for each; the number of those that are further apart than the bound, or that fail."""
    parser = argparse.ArgumentParser(description="the examples on the CPU and on a CUDA device")
    parser.add_argument("examples", nargs="*", metavar="EXAMPLE", help=", ".join(EXAMPLES))
    parser.add_argument("--steps", type=int, help="in place of the example's own number")
    parser.add_argument("--large", action="store_true", help="not the small problem")
    options = parser.parse_args()
    arguments = [] if options.large else ["--small"]
    arguments += [] if options.steps is None else ["--steps", str(options.steps)]
    print(f"{'example':18}{'steps':>6}{'cpu':>10}{'cuda':>10}   apart", flush=True)
    failures = 0
    for name in options.examples or EXAMPLES:
        host, host_s = curve(name, "autojit", *arguments)
        try:
            device, device_s = curve(name, "autojit", *arguments, "--device", "cuda")
        except Exception as error:  # the others are still to be compared
            failures += 1
            print(f"{name:18}{len(host):6}{host_s:8.1f} s            {error}", flush=True)
            continue
        apart = distance(host, device)
        failures += not apart <= BOUND
        print(f"{name:18}{len(host):6}{host_s:8.1f} s{device_s:8.1f} s   {apart:.0e}", flush=True)
    return failures


if __name__ == "__main__":
    sys.exit(main())
