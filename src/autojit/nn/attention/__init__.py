"""torch.nn.attention: attention with functions of its scores (``flex_attention``).

``score_functions.py`` applies functions of single places to all of them; ``block_mask.py``: which blocks a mask leaves;
``masks.py`` makes masks; ``flex_attention.py`` attends. ``backends.py`` has torch's names of implementations.
"""

from __future__ import annotations

from autojit.core.lazy_modules import LazyNames as _LazyNames

__getattr__ = _LazyNames(
    __name__,
    dict.fromkeys(("SDPBackend", "sdpa_kernel"), "autojit.nn.attention.backends"),
    modules="flex_attention",
)
