"""A group of one process: every collective is a copy. Nothing is imported for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from autojit.core.errors import ArgumentError

if TYPE_CHECKING:
    from autojit.core.communicator import NativeCollectives, Ndarray


class Alone:
    """The communicator of a process without others."""

    rank, size = 0, 1

    def __init__(self, name: str) -> None:
        self.name = name

    def all_reduce(self, buffer: Ndarray, op: str) -> None:
        """The sum over one rank is what it has."""

    def all_gather(self, result: Ndarray, part: Ndarray) -> None:
        """``result[0]`` becomes the part."""
        result[0] = part

    def reduce_scatter(self, result: Ndarray, parts: Ndarray, op: str) -> None:
        """``result`` becomes the only part."""
        result[...] = parts[0]

    def all_to_all(self, result: Ndarray, parts: Ndarray) -> None:
        """``result[0]`` becomes the only part."""
        result[...] = parts

    def broadcast(self, buffer: Ndarray, root: int) -> None:
        """The buffer is the root's already."""

    def send_recv(self, result: Ndarray | None, buffer: Ndarray | None, to: int | None, source: int | None) -> None:
        """Send to itself, if both sides are given.

        Raises:
            ArgumentError: one side only; it would wait for ever.
        """
        if to is None and source is None:
            return
        if to is None or source is None or result is None or buffer is None:
            raise ArgumentError(
                "send_recv: a group of one rank has no other to wait for", {"to": to, "source": source}, "give both"
            )
        np.copyto(result, buffer)

    def barrier(self) -> None:
        """All are here."""

    def gather(self, result: Ndarray | None, part: Ndarray, root: int) -> None:
        """``result[0]`` becomes the part."""
        assert result is not None
        result[0] = part

    def scatter(self, result: Ndarray, parts: Ndarray | None, root: int) -> None:
        """``result`` becomes the only part."""
        assert parts is not None
        result[...] = parts[0]

    def exchange(self, results: Sequence[Ndarray], parts: Sequence[Ndarray]) -> None:
        """The only result becomes the only part."""
        results[0][...] = parts[0]

    def split(self, color: int | None, key: int, name: str) -> Alone | None:
        """The same group once more."""
        return None if color is None else Alone(name)

    def native(self) -> NativeCollectives:
        """Functions that copy, so that a step is one native call here, too."""
        from autojit.runtime.lone_group import lone_group  # few programs compile steps with collectives

        return lone_group()

    def shrunk(self) -> None:
        """There is no smaller group."""

    def abandon(self) -> None:
        """Nobody is waited for."""

    def close(self) -> None:
        """Nothing to give back."""

    def point_to_point(self, name: str, buffer: Ndarray, peer: int | None, tag: int) -> Any:
        """Sending and receiving by itself.

        Raises:
            ArgumentError: always.
        """
        raise ArgumentError(f"{name}: a group of one rank has no other", {}, "run it on several ranks")
