"""The parts of ``utils.data`` under the paths of torch's files, such as ``utils.data._utils.collate``."""

from __future__ import annotations

from autojit.core.lazy_modules import provide as _provide

_provide("autojit.utils.data", {"_utils": "collate", "_utils.collate": "collate", "_utils.worker": "dataloader"})
