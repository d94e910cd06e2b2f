"""A bar for loops: ``tqdm`` where it is installed, a plain one elsewhere; both are used alike."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any, Generic, Self, TextIO, TypeVar

T = TypeVar("T")
CELLS = 32
REDRAW_S = 0.1


class PlainBar(Generic[T]):
    """A bar that redraws itself on a terminal; elsewhere only its last line is written.

    It has what loops use of ``tqdm``: iteration, ``update``, ``set_postfix``, ``set_description``, ``close``, ``n``,
    ``total``, and the block.
    """

    def __init__(
        self, iterable: Iterable[T] | None = None, desc: str = "", total: int | None = None,
        file: TextIO | None = None, disable: bool = False,
    ) -> None:  # fmt: skip
        self.iterable = iterable
        self.desc = desc
        self.total = _length(iterable) if total is None else total
        self.file = file or sys.stderr
        self.disable = disable
        self.n = 0
        self.postfix = ""
        self._began, self._drawn, self._is_closed = time.monotonic(), 0.0, False

    def __iter__(self) -> Iterator[T]:
        try:
            for item in self.iterable or ():
                yield item
                self.update()
        finally:
            self.close()

    def __len__(self) -> int:
        if self.total is None:
            raise TypeError("the number of rounds is not known: give total=")
        return self.total

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def update(self, n: int = 1) -> None:
        """So many rounds more are done."""
        self.n += n
        now = time.monotonic()
        if self.file.isatty() and now - self._drawn >= REDRAW_S:
            self._draw(now, "")

    def set_description(self, desc: str = "") -> None:
        """What is in front of the bar."""
        self.desc = desc

    def set_postfix(self, refresh: bool = True, **values: object) -> None:
        """What is behind the bar: ``loss=0.12``; ``refresh`` means something to ``tqdm`` alone."""
        self.postfix = "  ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in values.items())

    def close(self) -> None:
        """Draw the end."""
        if not self._is_closed:
            self._is_closed = True
            self._draw(time.monotonic(), "\n")

    def _draw(self, now: float, end: str) -> None:
        if self.disable:
            return
        self._drawn = now
        if self.total:
            done = min(CELLS, CELLS * self.n // self.total)
            bar = f"[{'#' * done}{'.' * (CELLS - done)}] {self.n}/{self.total}"
        else:
            bar = f"{self.n} done"
        rate = self.n / (now - self._began) if now > self._began else 0.0
        start = "\r" if self.file.isatty() else ""
        told = "  ".join(filter(None, (f"{self.desc:<9}{bar}" if self.desc else bar, f"{rate:.3g}/s", self.postfix)))
        self.file.write(f"{start}{told}{end}")
        self.file.flush()


def _length(iterable: Any) -> int | None:
    try:
        return len(iterable)
    except TypeError:
        return None


def progress(
    iterable: Iterable[T] | None = None, desc: str = "", total: int | None = None, *, disable: bool = False
) -> Any:
    """A bar around what is looped over: ``tqdm``'s if it is installed, else a plain one.

    Args:
        iterable: what is looped over; without it ``update()`` counts.
        desc: what is in front of the bar.
        total: the number of rounds, where ``len(iterable)`` does not say.
        disable: show nothing.

    Example:
        >>> import autojit as aj
        >>> [2 * k for k in aj.utils.progress(range(3), disable=True)]
        [0, 2, 4]
    """
    try:
        from tqdm.auto import tqdm
    except ImportError:
        return PlainBar(iterable, desc, total, disable=disable)
    return tqdm(iterable, desc=desc or None, total=total, disable=disable)


def tqdm(iterable: Any = None, *, desc: str = "", total: int | None = None, disable: bool = False, **looks: Any) -> Any:
    """``torch.hub.tqdm``: as `progress`, with what ``tqdm`` takes besides; of that a plain bar shows nothing.

    Example:
        >>> import autojit as aj
        >>> with aj.hub.tqdm(total=4, disable=True, unit="B") as bar:
        ...     _ = bar.update(4)
    """
    try:
        from tqdm.auto import tqdm
    except ImportError:
        return progress(iterable, desc, total, disable=disable)
    return tqdm(iterable, desc=desc or None, total=total, disable=disable, **looks)
