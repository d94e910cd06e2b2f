"""Checkpoints of several ranks: a folder with a safetensors file per rank, read again by any number of ranks.

Every tensor is written once, by one of the ranks that have it. ``index.json`` says which file has what; it is replaced
last, in one step, so a checkpoint is the old one or the new one, whenever a process dies. Files of the old one go when
the new one is there.
"""

from __future__ import annotations

import json
import os
import secrets
import zlib
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path as FilePath
from typing import Any

import numpy as np

import autojit as aj
from autojit.core.errors import ArgumentError, UsageError
from autojit.distributed.groups import ProcessGroup, is_initialized, member_of
from autojit.distributed.memory import elements
from autojit.distributed.objects import all_gather_object, broadcast_object
from autojit.io.archive import load_archive, save_archive
from autojit.io.safetensors import Path, written_whole
from autojit.tensor import Tensor

__all__ = ["load", "read", "save"]

INDEX, FORMAT = "index.json", 1
Place = tuple[str | int | tuple[int], ...]
"""Keys of dictionaries, and numbers in lists as tuples of one."""


def save(
    state_dict: Mapping[str, Any],
    *,
    checkpoint_id: Path | None = None,
    process_group: Any = None,
    no_dist: bool = False,
) -> None:
    """Write nested dictionaries of tensors and plain values. All ranks call it, with what each has.

    A tensor that several ranks have under one name is written by one of them; ranks may also have names of their own
    (the state of a `ZeroRedundancyOptimizer`).

    Args:
        checkpoint_id: the folder, on a file system that all ranks see.
        no_dist: this process alone.

    Raises:
        UsageError: a rank could not write its part; every rank raises it, and the checkpoint before is still there.
            Or ranks have different tensors under one name.
    """
    folder, group = _folder(checkpoint_id), _group(process_group, no_dist)
    rank = 0 if group is None else group.rank()
    found = {_text(place): value for place, value in _leaves(state_dict, ())}
    every = _everybodys({name: _summary(v) for name, v in found.items()}, group)
    _require_same(every)
    writers = _shared_out([{name: size for name, (size, _) in part.items()} for part in every])
    stem = broadcast_object(secrets.token_hex(4), group) if group is not None else secrets.token_hex(4)
    problem = ""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        own = {name: found[name] for name, writer in writers.items() if writer == rank}
        save_archive(own, folder / _file(stem, rank))
    except OSError as error:
        problem = str(error)
    problems = _everybodys(problem, group)
    if any(problems):
        raise UsageError(
            "checkpoint: not every rank could write its part",
            {f"rank {r}": text for r, text in enumerate(problems) if text},
            "the checkpoint before is still there; name a folder that all ranks can write",
        )
    if rank == 0:
        files = {name: _file(stem, writer) for name, writer in writers.items()}
        with written_whole(folder / INDEX) as file:
            file.write(json.dumps({"format": FORMAT, "ranks": len(problems), "files": files}).encode())
        for old in folder.glob("*.safetensors"):
            if not old.name.startswith(stem):
                old.unlink(missing_ok=True)
    _everybodys("", group)  # nobody goes on before the index is there


def load(
    state_dict: dict[str, Any], *, checkpoint_id: Path | None = None, process_group: Any = None, no_dist: bool = False
) -> None:
    """Fill the tensors of ``state_dict`` from a checkpoint, and replace its plain values.

    The number of ranks may be another than when it was saved. What the checkpoint has beyond is left.

    Raises:
        KeyError: the checkpoint has not all of it.
    """
    folder = _folder(checkpoint_id)
    wanted = list(_leaves(state_dict, ()))
    found = _values(folder, {_text(place) for place, _ in wanted})
    for place, before in wanted:
        value = found[_text(place)]
        if isinstance(before, Tensor):
            with aj.no_grad():
                before.copy_(value)
        else:
            target: Any = state_dict
            for key in place[:-1]:
                target = target[key[0] if isinstance(key, tuple) else key]
            target[place[-1][0] if isinstance(place[-1], tuple) else place[-1]] = value


def read(checkpoint_id: Path) -> dict[str, Any]:
    """All that a checkpoint has, from all ranks, in dictionaries of its own."""
    whole: dict[str, Any] = {}
    for text, value in _values(_folder(checkpoint_id), None).items():
        place = json.loads(text)
        target: Any = whole
        for key, following in pairwise(place):
            target = _inside(target, key, [] if isinstance(following, list) else {})
        _inside(target, place[-1], value)
    return whole


def _inside(target: Any, key: Any, made: Any) -> Any:
    """The item at a key; ``made`` if there is none yet. Items of lists come in their order."""
    if not isinstance(key, list):
        return target.setdefault(key, made)
    if key[0] == len(target):
        target.append(made)
    return target[key[0]]


def _folder(checkpoint_id: Path | None) -> FilePath:
    if checkpoint_id is None:
        raise ArgumentError("checkpoint: no folder is named", {}, "pass checkpoint_id=")
    return FilePath(os.fspath(checkpoint_id))


def _group(given: Any, no_dist: bool) -> ProcessGroup | None:
    return member_of(given, "checkpoint") if is_initialized() and not no_dist else None


def _everybodys(mine: Any, group: ProcessGroup | None) -> list[Any]:
    """What every rank has; one rank waits for the others."""
    if group is None:
        return [mine]
    every: list[Any] = [None] * group.size()
    all_gather_object(every, mine, group)
    return every


def _summary(value: Any) -> tuple[int, int]:
    """How many bytes a tensor has, and a checksum of them; plain values are of the rank that writes them."""
    if not isinstance(value, Tensor):
        return 0, 0
    data = elements(value).reshape(-1).view(np.uint8)
    return data.size, zlib.crc32(data.data)


def _require_same(every: list[dict[str, tuple[int, int]]]) -> None:
    """Refuse to write one rank's tensor where others have another: it would be lost without a word."""
    for rank, part in enumerate(every):
        for name, summary in part.items():
            if summary != every[0].get(name, summary):
                raise UsageError(
                    "checkpoint: ranks have different tensors under one name",
                    {"name": name, "ranks": (0, rank)},
                    "give each rank names of its own, e.g. {dist.get_rank(): state}, or save whole parameters",
                )


def _shared_out(sizes: list[dict[str, int]]) -> dict[str, int]:
    """By name, the rank that writes it: of those that have it, the one with least to write so far."""
    loads, writers = [0] * len(sizes), dict[str, int]()
    names = dict.fromkeys(name for part in sizes for name in part)
    for name in sorted(names, key=lambda n: -max(part.get(n, 0) for part in sizes)):
        owner = min((r for r, part in enumerate(sizes) if name in part), key=loads.__getitem__)
        loads[owner] += sizes[owner][name]
        writers[name] = owner
    return {name: writers[name] for name in names}


def _file(stem: str, rank: int) -> str:
    return f"{stem}-{rank:05d}.safetensors"


def _text(place: Place) -> str:
    return json.dumps(place)


def _leaves(value: Any, place: Place) -> Iterator[tuple[Place, Any]]:
    """Tensors, and plain values as they are, by their place."""
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from _leaves(item, (*place, key))
    elif isinstance(value, list | tuple) and any(_has_tensors(item) for item in value):
        for number, item in enumerate(value):
            yield from _leaves(item, (*place, (number,)))
    elif place:
        yield place, value


def _has_tensors(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(map(_has_tensors, value.values()))
    return isinstance(value, Tensor) or (isinstance(value, list | tuple) and any(map(_has_tensors, value)))


def _values(folder: FilePath, wanted: set[str] | None) -> dict[str, Any]:
    """The values of some names, or of all, from the files that have them."""
    index = json.loads((folder / INDEX).read_text(encoding="utf-8"))
    if index.get("format") != FORMAT:
        raise UsageError("checkpoint: this format is unknown", {"folder": folder, "format": index.get("format")})
    files: dict[str, str] = index["files"]
    missing = sorted((wanted or set()) - files.keys())
    if missing:
        raise KeyError(f"the checkpoint {folder} has no {', '.join(missing[:3])} ({len(missing)} missing)")
    names = [name for name in files if wanted is None or name in wanted]
    found: dict[str, Any] = {}
    for file in dict.fromkeys(files[name] for name in names):
        with open(folder / file, "rb") as opened:
            found |= load_archive(opened, None, folder / file)
    return {name: found[name] for name in names}
