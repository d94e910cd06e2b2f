"""What cannot be written names the user's path, not the file that stands in for it meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest

import autojit as aj


@pytest.mark.parametrize("name", ["x.pt", "x.safetensors"])
def test_a_folder_that_is_not_there_is_told_with_the_path(name: str, tmp_path: Path) -> None:
    path = tmp_path / "missing" / name
    with pytest.raises(FileNotFoundError) as told:
        aj.save({"weight": aj.ones(2)}, path)
    assert told.value.filename == str(path)
    assert ".aj-" not in str(told.value)


def test_a_folder_in_the_place_of_the_file_is_told_and_stays(tmp_path: Path) -> None:
    (tmp_path / "x.pt").mkdir()
    with pytest.raises(IsADirectoryError, match="give the name of a file") as told:
        aj.save(aj.ones(2), tmp_path / "x.pt")
    assert told.value.filename == str(tmp_path / "x.pt")
    assert [path.name for path in tmp_path.iterdir()] == ["x.pt"]
