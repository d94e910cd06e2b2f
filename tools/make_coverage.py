"""Count the public names of torch that autojit has, package by package, into docs/coverage.md.

    python tools/make_coverage.py [FILE]      # needs torch; default: docs/coverage.md

Only the part between the two markers is written. A name counts as there when it can be looked up; whether it does the
same is what the tests are for. Nothing is left out of the count: names for other devices and for quantisation are
listed as missing like any others. Classes of torch's C++ implementation are not counted.
"""

from __future__ import annotations

import importlib
import inspect
import sys
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
BEGIN, END = "<!-- counts -->", "<!-- end of counts -->"
PLACES = (
    "", "Tensor", "autograd", "autograd.functional", "autograd.forward_ad", "autograd.graph", "autograd.profiler", "nn",
    "nn.Module", "nn.functional", "nn.init", "nn.utils", "nn.utils.rnn", "nn.utils.parametrize",
    "nn.utils.parametrizations", "optim", "optim.Optimizer", "optim.lr_scheduler", "optim.swa_utils", "func", "linalg",
    "fft", "special", "signal.windows", "sparse", "distributions", "distributions.constraints", "random", "amp",
    "utils.data", "utils.checkpoint", "utils.dlpack", "testing",
)  # fmt: skip


class Count(NamedTuple):
    """The names of one place in torch, and those of them that autojit lacks."""

    place: str
    total: int
    missing: list[str]


def look_up(library: str, place: str) -> Any:
    """A package, or a class in one; None if it is not there."""
    found: Any = importlib.import_module(library)
    for part in place.split(".") if place else []:
        try:
            found = getattr(found, part)
        except AttributeError:
            try:
                found = importlib.import_module(f"{found.__name__}.{part}")
            except (ImportError, AttributeError):
                return None
    return found


def public_names(thing: Any) -> list[str]:
    """Functions, classes and constants without an underscore that torch defines itself."""
    if isinstance(thing, type):
        return [name for name in dir(thing) if not name.startswith("_")]
    listed = getattr(thing, "__all__", ())
    if not listed or thing.__name__ in ("torch", "torch.nn.functional"):  # their lists leave names out
        listed = {
            *listed,
            *(name for name, value in vars(thing).items() if not name.startswith("_") and _is_of_torch(value)),
        }
    values = ((name, getattr(thing, name, None)) for name in sorted(listed))
    return [name for name, value in values if not isinstance(value, ModuleType) and not _is_internal(value)]


def _is_of_torch(value: Any) -> bool:
    home = getattr(value, "__module__", None) or type(value).__module__
    return home.partition(".")[0] == "torch" or inspect.isbuiltin(value)


def _is_internal(value: Any) -> bool:
    """A warning, or a class or constant of the C++ implementation."""
    cls = value if inspect.isclass(value) else type(value)
    return issubclass(cls, Warning) or type(cls).__name__ == "pybind11_type" or cls.__module__.startswith("torch._C")


def count(place: str) -> Count:
    names = public_names(look_up("torch", place))
    ours = look_up("autojit", place)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Count(place, len(names), [name for name in names if ours is None or not hasattr(ours, name)])


def section(counts: list[Count], version: str) -> str:
    """The table of counts, and the names that are missing."""
    total = sum(c.total for c in counts)
    present = total - sum(len(c.missing) for c in counts)
    lines = [BEGIN, f"Of {total} public names of torch {version}, {present} are here ({present / total:.0%}).", ""]
    lines += ["| place | names | here |", "|---|---|---|"]
    for c in counts:
        here = c.total - len(c.missing)
        lines.append(f"| `{'.'.join(filter(None, ('torch', c.place)))}` | {c.total} | {here} ({here / c.total:.0%}) |")
    lines += ["", "Missing:", ""]
    for c in counts:
        if c.missing:
            lines.append(f"- `{'.'.join(filter(None, ('torch', c.place)))}`: {', '.join(c.missing)}")
    return "\n".join([*lines, END])


def main() -> None:
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "coverage.md"
    text = target.read_text(encoding="utf-8")
    before, after = text[: text.index(BEGIN)], text[text.index(END) + len(END) :]
    version = importlib.import_module("torch").__version__.partition("+")[0]
    counts = [count(place) for place in PLACES]
    target.write_text(before + section(counts, version) + after, encoding="utf-8")
    print(f"{target}: {sum(len(c.missing) for c in counts)} of {sum(c.total for c in counts)} names are missing")


if __name__ == "__main__":
    main()
