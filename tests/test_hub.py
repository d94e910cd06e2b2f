"""Weights from URLs and models of folders."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

import autojit as aj


def test_weights_are_fetched_once_and_checked(tmp_path: Path) -> None:
    aj.save({"w": aj.ones(2)}, str(tmp_path / "w"))
    digits = hashlib.sha256((tmp_path / "w").read_bytes()).hexdigest()[:8]
    saved, kept = (tmp_path / "w").rename(tmp_path / f"w-{digits}.pth"), str(tmp_path / "kept")
    for _ in range(2):
        found = aj.hub.load_state_dict_from_url(saved.as_uri(), model_dir=kept, check_hash=True)
        assert found["w"].tolist() == [1.0, 1.0]
        saved.unlink(missing_ok=True)  # the second time it is not asked for
    other = tmp_path / "w-0000.pth"
    other.write_bytes(b"other")
    with pytest.raises(RuntimeError, match="invalid hash value"):
        aj.hub.load_state_dict_from_url(other.as_uri(), model_dir=kept, check_hash=True)
    assert sorted(p.name for p in Path(kept).iterdir()) == [saved.name]  # nothing is left of what failed


def test_models_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "part.py").write_text("WIDTH = 3\n")
    (tmp_path / "hubconf.py").write_text(
        "import part\n\ndef net(out=1):\n    'A layer.'\n"
        "    import autojit as aj\n    return aj.nn.Linear(part.WIDTH, out)\n"
    )
    assert aj.hub.list(tmp_path) == ["net"]
    assert aj.hub.help(tmp_path, "net") == "A layer."
    assert aj.hub.load(tmp_path, "net", out=2)(aj.ones(3)).shape == (2,)
    with pytest.raises(RuntimeError, match="Cannot find callable other"):
        aj.hub.load(tmp_path, "other")
    with pytest.raises(RuntimeError, match="not fetched"):
        aj.hub.load("owner/name", "net", source="github")
    with pytest.raises(ValueError, match=r"no hubconf\.py"):
        aj.hub.load(tmp_path / "none", "net")


def test_the_folder_of_downloads(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("autojit.hub._chosen", [])
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    assert aj.hub.get_dir() == str(tmp_path / "hub")
    aj.hub.set_dir(tmp_path / "own")
    assert aj.hub.get_dir() == str(tmp_path / "own")
