"""The parts of ``utils.data`` under the paths of torch's files, such as ``utils.data._utils.collate``."""

from __future__ import annotations

from autojit.core.module_paths import provide as _provide

_provide(
    "autojit.utils.data",
    {
        "_utils": "autojit.utils.data.collate",
        "_utils.collate": "autojit.utils.data.collate",
        "_utils.worker": "autojit.utils.data.dataloader",
    },
)
