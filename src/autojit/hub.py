"""Models of a folder with a ``hubconf.py``, and weights from a URL, with torch.hub's names.

Weights that were downloaded are kept in ``get_dir()/checkpoints``. A repository is a folder on this machine: nothing is
fetched from GitHub and run.
"""

from __future__ import annotations

import builtins
import hashlib
import importlib.util
import os
import re
import shutil
import sys
import tempfile
import urllib.request
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, cast
from urllib.parse import urlparse

from autojit.core.errors import ArgumentError, UsageError
from autojit.io.saving import load as load_file
from autojit.utils.progress_bar import tqdm

__all__ = ["download_url_to_file", "get_dir", "help", "list", "load", "load_state_dict_from_url", "set_dir", "tqdm"]

HASH_REGEX = re.compile(r"-([a-f0-9]*)\.")  # of names of files, as torch calls it
_chosen: builtins.list[str] = []  # what set_dir was told last


def _get_torch_home() -> str:
    home = os.getenv("XDG_CACHE_HOME", "~/.cache")
    return os.path.expanduser(os.getenv("TORCH_HOME", os.path.join(home, "torch")))


def get_dir() -> str:
    """Where downloads are kept: what `set_dir` chose, else ``$TORCH_HOME/hub``, else ``~/.cache/torch/hub``.

    Example:
        >>> import autojit as aj
        >>> aj.hub.get_dir().endswith("hub")
        True
    """
    return _chosen[-1] if _chosen else os.path.join(_get_torch_home(), "hub")


def set_dir(d: str | os.PathLike[str]) -> None:
    """Keep downloads in this folder from now on.

    Example:
        >>> import autojit as aj
        >>> aj.hub.set_dir(aj.hub.get_dir())
    """
    _chosen[:] = [os.path.expanduser(d)]


def _entry_points(repo_or_dir: str | os.PathLike[str], source: str) -> ModuleType:
    """The module ``hubconf`` of a folder."""
    path = Path(repo_or_dir, "hubconf.py")
    if source != "local":
        raise UsageError(
            "hub: repositories are not fetched",
            {"repository": str(repo_or_dir), "source": source},
            "clone it and say hub.load(folder, model, source='local')",
        )
    spec = importlib.util.spec_from_file_location("hubconf", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise ArgumentError("hub: the folder has no hubconf.py", {"folder": str(repo_or_dir)}, "name such a folder")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(repo_or_dir))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(repo_or_dir))
    return module


def _entry_point(module: ModuleType, name: str) -> Callable[..., Any]:
    found = getattr(module, name, None)
    if not callable(found):
        raise UsageError(f"Cannot find callable {name} in hubconf", {"known": ", ".join(_callables(module))})
    return cast("Callable[..., Any]", found)


def _callables(module: ModuleType) -> builtins.list[str]:
    return [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]


def list(github: str | os.PathLike[str], *, source: str = "local") -> builtins.list[str]:
    r"""The names of the models that a folder's ``hubconf.py`` offers.

    Raises:
        ArgumentError: there is no such file.
        UsageError: ``source`` is not "local".

    Example:
        >>> import autojit as aj, tempfile, pathlib
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = pathlib.Path(folder, "hubconf.py").write_text("def net(width=2):\n    return [0.0] * width")
        ...     aj.hub.list(folder)
        ['net']
    """
    return _callables(_entry_points(github, source))


def help(github: str | os.PathLike[str], model: str, *, source: str = "local") -> str | None:
    r"""The docstring of a model's entry point.

    Raises:
        UsageError: there is none of that name.

    Example:
        >>> import autojit as aj, tempfile, pathlib
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = pathlib.Path(folder, "hubconf.py").write_text("def net():\n    'A small net.'")
        ...     aj.hub.help(folder, "net")
        'A small net.'
    """
    return _entry_point(_entry_points(github, source), model).__doc__


def load(
    repo_or_dir: str | os.PathLike[str], model: str, *args: object, source: str = "local", **kwargs: object
) -> Any:
    r"""What a model's entry point makes of the arguments.

    Raises:
        ArgumentError: the folder has no ``hubconf.py``.
        UsageError: there is no such entry point, or ``source`` is not "local".

    Example:
        >>> import autojit as aj, tempfile, pathlib
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = pathlib.Path(folder, "hubconf.py").write_text("def net(width=2):\n    return [0.0] * width")
        ...     aj.hub.load(folder, "net", width=3)
        [0.0, 0.0, 0.0]
    """
    return _entry_point(_entry_points(repo_or_dir, source), model)(*args, **kwargs)


def download_url_to_file(
    url: str, dst: str | os.PathLike[str], hash_prefix: str | None = None, progress: bool = True
) -> None:
    """Write what a URL gives into a file, which is there whole or not at all. ``progress`` draws no bar.

    Args:
        hash_prefix: with what the hexadecimal SHA-256 of the content must begin.

    Raises:
        UsageError: it begins otherwise.
        OSError: the URL or the file cannot be opened.

    Example:
        >>> import autojit as aj, pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as name:
        ...     folder = pathlib.Path(name)
        ...     _ = (folder / "weights.bin").write_bytes(b"123")
        ...     aj.hub.download_url_to_file((folder / "weights.bin").as_uri(), folder / "copy.bin")
        ...     (folder / "copy.bin").read_bytes()
        b'123'
    """
    target = Path(dst).expanduser()
    digest = hashlib.sha256()
    with tempfile.NamedTemporaryFile(dir=target.resolve().parent, delete=False) as part:
        try:
            with urllib.request.urlopen(urllib.request.Request(url, headers={"User-Agent": "torch.hub"})) as given:
                while block := given.read(1 << 17):
                    digest.update(block)
                    part.write(block)
            part.close()
            if hash_prefix and not digest.hexdigest().startswith(hash_prefix):
                raise UsageError(f'invalid hash value (expected "{hash_prefix}", got "{digest.hexdigest()}")')
            shutil.move(part.name, target)
        finally:
            Path(part.name).unlink(missing_ok=True)


def load_state_dict_from_url(
    url: str,
    model_dir: str | os.PathLike[str] | None = None,
    map_location: Any = None,
    progress: bool = True,
    check_hash: bool = False,
    file_name: str | None = None,
    weights_only: bool = True,
) -> dict[str, Any]:
    """The object that is saved at a URL; what was downloaded before is read from ``model_dir``.

    Args:
        model_dir: by default ``get_dir()/checkpoints``.
        check_hash: the file's name is ``name-<first digits of its SHA-256>.ext``, which is checked.

    Raises:
        UsageError: the hash is another one.
        OSError: the URL cannot be opened.

    Example:
        >>> import autojit as aj, pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as name:
        ...     folder = pathlib.Path(name)
        ...     aj.save({"w": aj.ones(2)}, folder / "w.pth")
        ...     aj.hub.load_state_dict_from_url((folder / "w.pth").as_uri(), model_dir=folder / "kept")
        {'w': tensor([1., 1.])}
    """
    folder = Path(model_dir or os.path.join(get_dir(), "checkpoints"))
    folder.mkdir(parents=True, exist_ok=True)
    kept = folder / (file_name or os.path.basename(urlparse(url).path))
    if not kept.exists():
        found = HASH_REGEX.search(kept.name) if check_hash else None
        download_url_to_file(url, str(kept), found.group(1) if found else None, progress)
    return cast("dict[str, Any]", load_file(str(kept), map_location=map_location, weights_only=weights_only))
