"""Whether tensors are being traced as proxies, which libraries ask before they look at values.

Example:
    >>> from autojit.fx.experimental.proxy_tensor import get_proxy_mode
    >>> get_proxy_mode() is None
    True
"""

from __future__ import annotations

__all__ = ["get_proxy_mode"]


def get_proxy_mode() -> None:
    """None: `symbolic_trace` runs modules with proxies, not tensors that are traced."""
