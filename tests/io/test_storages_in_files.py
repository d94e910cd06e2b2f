"""Storages, classes of tensors and options of writing, through files."""

from __future__ import annotations

import io
import pickle
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import autojit as aj
from autojit.io import LoadError, UnsafeGlobalError
from autojit.serialization import safe_globals, set_crc32_options, skip_data
from tests.io.test_older_files import older
from tests.io.test_torch_files import saved


class Marked(aj.Tensor):
    """A class of a user, with a slot."""

    __slots__ = ("unit",)


class Stated(aj.Tensor):
    """A class that says itself what it keeps."""

    def __getstate__(self) -> Any:
        return "kept", self.__dict__["note"]

    def __setstate__(self, state: Any) -> None:
        self.__dict__["note"] = [state]


@pytest.mark.parametrize("write", [saved, older])
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_tensors_keep_their_class_and_attributes(write: Any, device: str) -> None:
    marked: Any = aj.arange(6.0, device=device).reshape(2, 3).t().as_subclass(Marked)
    marked.unit, marked.note = "m", 1
    stated: Any = aj.ones(2, device=device).as_subclass(Stated)
    stated.note = 2
    plain: Any = aj.ones(2, device=device)
    plain.note = 3
    content = write([marked, stated, plain])
    with safe_globals([Marked, Stated]):
        allowed = aj.load(io.BytesIO(content))
    for found in (
        allowed,
        aj.load(io.BytesIO(content), weights_only=False),
        pickle.loads(pickle.dumps([marked, stated, plain])),
    ):
        assert [type(x) for x in found] == [Marked, Stated, aj.Tensor] and all(x.device.type == device for x in found)
        assert found[0].unit == "m" and found[0].note == 1 and found[0].stride() == (1, 3)
        assert found[1].note == [("kept", 2)] and found[2].note == 3
    with pytest.raises(UnsafeGlobalError, match="Weights only load failed"):
        aj.load(io.BytesIO(content))
    refused = content.replace(b"Marked\n", b"Point1\n")
    with safe_globals([(int, f"{__name__}.Point1"), Stated]), pytest.raises(LoadError):
        aj.load(io.BytesIO(refused))


@pytest.mark.parametrize("write", [saved, older])
def test_storages_come_back_and_share_their_memory(write: Any) -> None:
    x = aj.arange(4.0)
    found, typed, again, view = aj.load(io.BytesIO(write([x, x.storage(), x.storage(), x[1:]])))
    assert isinstance(typed, aj.FloatStorage) and typed is again and typed.tolist() == [0.0, 1.0, 2.0, 3.0]
    typed[1] = 5.0
    assert found[1] == 5.0 == view[0] and typed.data_ptr() == found.data_ptr()
    raw = aj.load(io.BytesIO(write(x.untyped_storage())))
    assert raw.dtype is aj.uint8 and raw.nbytes() == 16
    assert aj.load(io.BytesIO(write(aj.TypedStorage(0, dtype=aj.int16)))).dtype is aj.int16


@pytest.mark.parametrize("write", [saved, older])
def test_memory_is_saved_as_one_dtype(write: Any) -> None:
    z = aj.arange(3.0).to(aj.complex64)
    part = aj.load(io.BytesIO(write(z.imag)))
    assert part.stride() == (2,) and part.untyped_storage().nbytes() == z.untyped_storage().nbytes()
    for other in (z.imag, z.untyped_storage(), z.imag.storage(), aj.view_as_real(z)):
        with pytest.raises(RuntimeError, match="view the same data as different types"):
            write([z, other])


def test_a_file_without_checksums_is_read_and_a_damaged_one_is_not() -> None:
    set_crc32_options(False)
    try:
        content = saved(aj.ones(3))
    finally:
        set_crc32_options(True)
    assert aj.load(io.BytesIO(content)).tolist() == [1.0, 1.0, 1.0]
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert {record.CRC for record in archive.infolist()} == {0}
    whole = saved(aj.ones(3))
    with pytest.raises(LoadError, match="checksum"):
        aj.load(io.BytesIO(whole.replace(b"\x00\x00\x80?", b"\x00\x00\x00?")))


def test_a_file_without_bytes_takes_them_later() -> None:
    x = aj.arange(3.0)
    with skip_data():
        content = saved([x, x[1:]])
        with pytest.raises(RuntimeError, match="outside the skip_data"):
            aj.load(io.BytesIO(content))
        with pytest.warns(UserWarning, match="no-op"):
            saved(aj.ones(2, device="meta"))
        with pytest.raises(RuntimeError, match="skip_data"):
            older(x)
    assert len(content) == len(saved([x, x[1:]]))
    found = aj.load(io.BytesIO(content))
    assert found[0].tolist() == [0.0, 0.0, 0.0] and found[1].data_ptr() == found[0].data_ptr() + 4
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        record = next(r for r in archive.infolist() if r.filename.endswith("data/0"))
    begin = (
        record.header_offset
        + 30
        + sum(
            content[record.header_offset + 26 :][i] + 256 * content[record.header_offset + 26 :][i + 1] for i in (0, 2)
        )
    )
    later = content[:begin] + x.numpy().tobytes() + content[begin + 12 :]
    assert aj.load(io.BytesIO(later))[1].tolist() == [1.0, 2.0]


@pytest.fixture
def module(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "m.pt"
    aj.save(aj.nn.Linear(1, 1), path)
    yield path


def test_the_environment_says_whether_files_may_hold_modules(module: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    with pytest.warns(UserWarning, match="forcing weights_only=False"):
        assert isinstance(aj.load(module), aj.nn.Linear)
    with pytest.raises(UnsafeGlobalError, match="Weights only load failed"):
        aj.load(module, weights_only=True)
    monkeypatch.setenv("TORCH_FORCE_WEIGHTS_ONLY_LOAD", "1")
    with pytest.raises(RuntimeError, match="only one of"):
        aj.load(module)
    monkeypatch.delenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD")
    with pytest.raises(UnsafeGlobalError, match="Weights only load failed"):
        aj.load(module, weights_only=False)


def test_text_of_python_2_comes_as_the_encoding_says() -> None:
    content = (  # by torch 0.4.1 under Python 2.7
        b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.\x80\x02}q\x01.\x80\x02]q\x01(U\x02"
        b"\xc5\xbcq\x02ctorch._utils\n"
        b"_rebuild_tensor_v2\nq\x03((U\x07storageq\x04ctorch\nFloatStorage\nq\x05U\x0845640624q\x06U\x03cpuq\x07\x8a\x01\x01NtQK"
        b"\x00K\x01\x85K\x01\x85\x89NtRq\x08K\x02e.\x80\x02]q\x01U\x0845640624q\x02a.\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
    )
    assert aj.load(io.BytesIO(content)) == ["ż", aj.zeros(1), 2]
    assert aj.load(io.BytesIO(content), encoding="bytes") == ["ż".encode(), aj.zeros(1), 2]
