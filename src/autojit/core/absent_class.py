"""Classes of torch's that have no instances here: libraries name them in annotations and ask for them by isinstance."""

from __future__ import annotations

from typing import ClassVar

from autojit.core.errors import UsageError


class WithoutInstances:
    """A class that nothing is an instance of.

    Raises:
        UsageError: somebody makes one.
    """

    what: ClassVar[str] = "such objects"
    instead: ClassVar[str] = ""

    def __new__(cls, *arguments: object, **options: object) -> WithoutInstances:
        """Refused, with what takes its place."""
        raise UsageError(f"{cls.__name__}: there are no {cls.what} here", fix=cls.instead)
