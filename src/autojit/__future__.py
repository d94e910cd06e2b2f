"""torch's module of this name: switches for behaviour that is to become the default.

Modules keep their parameter objects through conversions in any case, and through loading unless ``assign=True``: only
then does a setting (``swap``) make a difference.
"""

from __future__ import annotations

from autojit.nn.state_dict import settings as _of_loading

_settings = {"overwrite": False}


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
    """Whether ``load_state_dict(..., assign=True)`` keeps the parameter objects, by swapping tensors."""
    _of_loading["swap"] = bool(value)


def get_swap_module_params_on_conversion() -> bool:
    """What was remembered; False at first."""
    return _of_loading["swap"]
