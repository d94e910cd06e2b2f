"""The optimisers under the paths of torch's files, such as ``optim.adamw``."""

from __future__ import annotations

from autojit.core.lazy_modules import provide as _provide

_HOMES = {
    "_adafactor": "factored",
    "_muon": "factored",
    "adadelta": "adaptive",
    "adagrad": "adaptive",
    "adamax": "adam",
    "adamw": "adam",
    "asgd": "adaptive",
    "nadam": "adam",
    "radam": "adam",
    "rmsprop": "adaptive",
    "rprop": "adaptive",
}
_provide("autojit.optim", _HOMES)
