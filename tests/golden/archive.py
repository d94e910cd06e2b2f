"""The recorded corpus: one text a step in ``recorded/``, all their kernels in ``recorded/kernels.xz``."""

from __future__ import annotations

import json
import lzma
from collections.abc import Mapping
from pathlib import Path

RECORDED = Path(__file__).with_name("recorded")
_KERNELS = "kernels.xz"


def read(folder: Path = RECORDED) -> tuple[dict[str, str], dict[str, str]]:
    """(text of each step by name, text of each kernel by digest)."""
    steps = {path.stem: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.txt"))}
    kernels = folder / _KERNELS
    return steps, json.loads(lzma.decompress(kernels.read_bytes())) if kernels.exists() else {}


def write(steps: Mapping[str, str], kernels: Mapping[str, str], folder: Path = RECORDED) -> None:
    """Replace what is recorded; a file whose text is the same is left alone."""
    folder.mkdir(exist_ok=True)
    for path in folder.glob("*.txt"):
        if path.stem not in steps:
            path.unlink()
    before, old_kernels = read(folder)
    for name, text in steps.items():
        if before.get(name) != text:
            (folder / f"{name}.txt").write_text(text, encoding="utf-8")
    if old_kernels != dict(kernels):
        text = json.dumps(dict(sorted(kernels.items())), indent=0)
        (folder / _KERNELS).write_bytes(lzma.compress(text.encode(), preset=9))


def differences(
    found: Mapping[str, str],
    kernels: Mapping[str, str],
    expected: Mapping[str, str],
    expected_kernels: Mapping[str, str],
) -> dict[str, tuple[str, str]]:
    """What differs: name of a step -> (recorded, found), with the kernels that only one of them names written out."""
    found_differs: dict[str, tuple[str, str]] = {}
    for name in sorted({*found, *expected}):
        old, new = expected.get(name, ""), found.get(name, "")
        if old != new:
            found_differs[name] = _with_kernels(old, expected_kernels, new), _with_kernels(new, kernels, old)
    return found_differs


def _with_kernels(text: str, kernels: Mapping[str, str], other: str) -> str:
    named = [digest for digest in kernels if f"kernel:{digest}" in text and f"kernel:{digest}" not in other]
    return "\n".join([text, *(kernels[digest] for digest in sorted(named, key=text.index))])
