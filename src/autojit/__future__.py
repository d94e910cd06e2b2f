"""torch's module of this name: switches for behaviour that is to become the default.

Modules keep their parameter objects through conversions and loading in any case, so both settings do the same here.
"""

from __future__ import annotations

_settings = {"overwrite": False, "swap": False}


def set_overwrite_module_params_on_conversion(value: bool) -> None:
    """Remember whether ``module.to(...)`` should make new parameters."""
    _settings["overwrite"] = bool(value)


def get_overwrite_module_params_on_conversion() -> bool:
    """What was remembered; False at first.

    Example:
        >>> import autojit as aj
        >>> aj.__future__.get_overwrite_module_params_on_conversion()
        False
    """
    return _settings["overwrite"]


def set_swap_module_params_on_conversion(value: bool) -> None:
    """Remember whether ``module.to(...)`` and ``load_state_dict`` should swap tensors instead of setting ``.data``."""
    _settings["swap"] = bool(value)


def get_swap_module_params_on_conversion() -> bool:
    """What was remembered; False at first."""
    return _settings["swap"]
