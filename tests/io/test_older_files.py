"""torch's files from before version 1.6: pickles in a row, read without being executed; options of reading."""

from __future__ import annotations

import contextlib
import io
import mmap
import os
import pickle
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import autojit as aj
from autojit.io import LoadError, UnsafeGlobalError
from autojit.serialization import LoadEndianness
from tests.io.test_torch_files import Evil, check_equal, mutated, saved, values

PARTS = (  # by torch 0.3.1: a storage that is the second half of another, of two floats
    b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.\x80\x02}q\x00."
    b"\x80\x02(X\x07\x00\x00\x00storageq\x00ctorch\nFloatStorage\nq\x01X\x01\x00\x00\x00aq\x02X\x03\x00\x00\x00cpuq\x03"
    b"K\x02X\x01\x00\x00\x00bq\x04K\x01K\x01\x87q\x05tq\x06Q."
    b"\x80\x02]q\x00X\x01\x00\x00\x00aq\x01a."
    b"\x02\x00\x00\x00\x00\x00\x00\x00\x00\x00\x80?\x00\x00\x00@"
)


def older(value: Any, protocol: int = 2) -> bytes:
    """The bytes of a file."""
    file = io.BytesIO()
    aj.save(value, file, pickle_protocol=protocol, _use_new_zipfile_serialization=False)
    return file.getvalue()


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_everything_comes_back_from_older_files_and_by_every_protocol(protocol: int) -> None:
    found = aj.load(io.BytesIO(older(values(), protocol)))
    check_equal(found)
    found["all"][4] = 50.0
    assert found["rows"][0, 0].item() == 50.0, "what shared memory shares it again"
    file = io.BytesIO()
    aj.save(values(), file, pickle_protocol=protocol)
    check_equal(aj.load(file))


@pytest.mark.parametrize("write", [older, saved])
def test_attributes_of_tensors_come_back(write: Callable[[Any], bytes]) -> None:
    plain, weight = aj.ones(2), aj.nn.Parameter(aj.ones(3))
    vars(plain)["scale"], vars(weight)["group"] = 2.5, "slow"
    found = aj.load(io.BytesIO(write([plain, weight])))
    assert found[0].scale == 2.5 and found[1].group == "slow" and type(found[1]) is aj.nn.Parameter


def test_several_objects_follow_each_other_in_one_file() -> None:
    file = io.BytesIO(older(aj.arange(3.0)) + pickle.dumps(7) + older({"epoch": 2}))
    assert aj.load(file).tolist() == [0.0, 1.0, 2.0]
    assert pickle.load(file) == 7
    assert aj.load(file) == {"epoch": 2}
    file.seek(0)
    assert aj.load(file).tolist() == [0.0, 1.0, 2.0]


def test_a_storage_may_be_a_part_of_another() -> None:
    found = aj.load(io.BytesIO(PARTS))
    assert found.array.tolist() == [2.0]


def test_older_files_execute_nothing_and_damage_is_an_error_of_ours() -> None:
    content = older([Evil()])
    with pytest.raises(UnsafeGlobalError, match=r"system, which is not allowed"):
        aj.load(io.BytesIO(content))
    assert aj.serialization.get_unsafe_globals_in_checkpoint(io.BytesIO(content)) == [f"{os.system.__module__}.system"]
    rng, content = random.Random(0), older(values())
    for damaged in (content[:-1], content[: len(content) // 2], content + b"more"):
        with contextlib.nullcontext() if damaged[:-4] == content else pytest.raises(LoadError):
            aj.load(io.BytesIO(damaged))
    for _ in range(150):
        with contextlib.suppress(LoadError, aj.io.SafetensorsError, aj.core.errors.DeviceError):
            aj.load(io.BytesIO(mutated(content, rng)))
    with pytest.raises(LoadError, match="more bytes than the file has"):
        claims = PARTS.replace(b"K\x02", b"J\xff\xff\xff\x7f").replace(b"\x02\0\0\0\0", b"\xff\xff\xff\x7f\0")
        aj.load(io.BytesIO(claims))


def test_files_that_cannot_be_read_or_written_say_so(tmp_path: Path) -> None:
    wrong: Any
    for wrong in (object(), type("Stream", (), {"read": None})()):
        with pytest.raises(AttributeError, match="a file that is seekable"):
            aj.load(wrong)
    with pytest.raises(AttributeError, match="'write' attribute"):
        aj.save(1, wrong)
    path = tmp_path / "x.pt"
    path.write_bytes(older(1))
    with pytest.raises(LoadError, match="mmap=True"):
        aj.load(path, mmap=True)


def test_tensors_without_memory_come_back_without() -> None:
    file = io.BytesIO()
    aj.save(aj.nn.Linear(20_000, 320_000, device="meta").state_dict(), file)
    assert len(file.getvalue()) < 5000
    found = aj.load(file)["weight"]
    assert found.is_meta and found.shape == (320_000, 20_000) and found.dtype is aj.float32
    turned = aj.empty_strided((3, 1 << 40), (1, 3), device="meta")
    assert turned.stride() == (1, 3) and turned.is_meta


def test_files_that_do_not_tell_the_order_of_bytes_are_read_as_was_said() -> None:
    file = io.BytesIO()
    aj.save(aj.tensor([1, 256], dtype=aj.int16), file, _disable_byteorder_record=True)
    try:
        for order, wanted in ((LoadEndianness.LITTLE, [1, 256]), (LoadEndianness.BIG, [256, 1])):
            aj.serialization.set_default_load_endianness(order)
            assert aj.serialization.get_default_load_endianness() is order
            assert aj.load(file).tolist() == wanted
    finally:
        aj.serialization.set_default_load_endianness(None)
    wrong: Any = "big"
    with pytest.raises(TypeError, match="Invalid argument type"):
        aj.serialization.set_default_load_endianness(wrong)


def test_mapped_files_are_written_by_those_who_ask_for_it(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    aj.save(aj.zeros(2), path)
    aj.load(path, mmap=True).fill_(1)
    assert aj.load(path).tolist() == [0.0, 0.0]
    with aj.serialization.set_default_mmap_options(mmap.MAP_SHARED):
        aj.load(path, mmap=True).fill_(1)
    assert aj.serialization.get_default_mmap_options() == mmap.MAP_PRIVATE
    assert aj.load(path, mmap=True).tolist() == [1.0, 1.0]
    with pytest.raises(ValueError, match=r"MAP_PRIVATE or mmap\.MAP_SHARED"):
        aj.serialization.set_default_mmap_options(0)
