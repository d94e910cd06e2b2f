"""Functions of the top level, and methods of Tensor, that not every program needs: imported when first named.

``MODULES`` says which module has which names; ``METHODS`` are those that are methods too.
"""

from __future__ import annotations

MODULES: dict[str, tuple[str, ...]] = {
    "frames": ("istft", "stft"),
}

METHODS = frozenset({"istft", "stft"})

PLACES = {name: f"autojit.functions.{module}" for module, names in MODULES.items() for name in names}
