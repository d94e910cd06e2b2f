"""Nested dicts, lists and tuples of tensors and plain values in one safetensors file.

Tensors go into the file under their path (``model.0.weight``), so any safetensors reader finds them; a flat dict of
tensors becomes an ordinary safetensors file. The structure around them is JSON in the metadata under ``autojit``:

    node = null | true | int | float | "text" | {"tensor": name} | {"list": [node...]} | {"tuple": [node...]}
         | {"dict": [[key, node]...]} | {"float": "inf"}
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from typing import Any, BinaryIO

from autojit.io.places import place_of
from autojit.io.safetensors import Path, SafetensorsError, parse_json, read, save_file, write
from autojit.tensor import Tensor

_STRUCTURE = "autojit"
_ROOT = "value"  # the name of a tensor saved by itself
_MAX_DEPTH = 100


class _Packer:
    """Collects tensors by path while it turns values into nodes."""

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}
        self.names: dict[int, str] = {}  # a tensor met twice is stored once

    def node(self, value: Any, path: tuple[str, ...]) -> Any:
        if len(path) > _MAX_DEPTH:
            raise SafetensorsError(f"save: nested more than {_MAX_DEPTH} deep at {'.'.join(path[:5])}...")
        if isinstance(value, Tensor):
            return {"tensor": self._name(value, path)}
        if value is None or isinstance(value, bool | int | str):
            return value
        if isinstance(value, float):
            return value if math.isfinite(value) else {"float": repr(value)}
        if isinstance(value, Mapping):
            return {"dict": [[_key(key, path), self.node(item, (*path, str(key)))] for key, item in value.items()]}
        if isinstance(value, list | tuple):
            items = [self.node(item, (*path, str(place))) for place, item in enumerate(value)]
            return {"tuple" if isinstance(value, tuple) else "list": items}
        raise TypeError(
            f"save: cannot save {type(value).__name__} at {'.'.join(path) or 'the top'}; tensors, numbers, strings, "
            "None and dicts, lists and tuples of them can be saved"
        )

    def _name(self, tensor: Tensor, path: tuple[str, ...]) -> str:
        found = self.names.get(id(tensor))
        if found is not None:
            return found
        name = ".".join(path) or _ROOT
        while name in self.tensors or name == "__metadata__":
            name += "'"
        self.tensors[name] = tensor
        self.names[id(tensor)] = name
        return name


def _key(key: Any, path: tuple[str, ...]) -> str | int:
    if isinstance(key, bool) or not isinstance(key, str | int):
        raise TypeError(f"save: a dict key at {'.'.join(path) or 'the top'} is {type(key).__name__}, not str or int")
    return key


def save_archive(obj: Any, f: Path | BinaryIO) -> None:
    """Save tensors and plain values to a path or an open binary file.

    Raises:
        TypeError: a value of another type; names its place.
    """
    packer = _Packer()
    structure = packer.node(obj, ())
    metadata = {_STRUCTURE: json.dumps(structure, separators=(",", ":"), allow_nan=False)}
    if isinstance(f, str | os.PathLike):
        save_file(packer.tensors, f, metadata)
    else:
        write(packer.tensors, f, metadata)
        f.flush()


def load_archive(file: BinaryIO, map_location: Any, mapped: Path | None = None) -> Any:
    """What ``save_archive`` wrote; a plain safetensors file gives a dict of tensors. ``mapped``: as in ``read``."""
    size_bytes = file.seek(0, os.SEEK_END)
    file.seek(0)
    tensors, metadata = read(file, size_bytes, mapped)
    if map_location is not None and not callable(map_location):
        place = place_of("cpu", map_location)  # where all tensors of the format come from
        tensors = {name: tensor.to(place) for name, tensor in tensors.items()}
    if _STRUCTURE not in metadata:
        return tensors
    return _value(parse_json(metadata[_STRUCTURE].encode(), "structure"), tensors, 0)


def _value(node: Any, tensors: dict[str, Tensor], depth: int) -> Any:
    if node is None or isinstance(node, bool | int | float | str):
        return node
    if depth > _MAX_DEPTH:
        raise SafetensorsError(f"load: the structure is nested more than {_MAX_DEPTH} deep")
    if not isinstance(node, dict) or len(node) != 1:
        raise SafetensorsError(f"load: a node of the structure is malformed: {str(node)[:80]}")
    ((kind, content),) = node.items()
    if kind == "tensor" and isinstance(content, str) and content in tensors:
        return tensors[content]
    if kind == "float" and content in ("inf", "-inf", "nan"):
        return float(content)
    if kind in ("list", "tuple") and isinstance(content, list):
        items = [_value(item, tensors, depth + 1) for item in content]
        return tuple(items) if kind == "tuple" else items
    if kind == "dict" and isinstance(content, list) and all(_is_pair(pair) for pair in content):
        return {key: _value(item, tensors, depth + 1) for key, item in content}
    raise SafetensorsError(f"load: a node of the structure is malformed: {str(node)[:80]}")


def _is_pair(pair: Any) -> bool:
    return isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str | int)
