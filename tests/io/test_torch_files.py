"""torch's zip files: what torch wrote is read, what is written torch reads, and no file can do harm."""

from __future__ import annotations

import argparse
import base64
import collections
import contextlib
import io
import os
import pickle
import random
import zipfile
import zlib
from pathlib import Path
from typing import Any

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

import autojit as aj
from autojit.core.errors import UnsupportedError
from autojit.io import LoadError, UnsafeGlobalError
from autojit.io.torch_names import PendingDType
from autojit.serialization import add_safe_globals, clear_safe_globals, get_safe_globals, safe_globals

FROM_TORCH = (  # by torch 2.13: an OrderedDict of tensors, views of one storage, a parameter, and plain values
    "c-o~`PjC}e7=P)Xv|TVQh_qC#6;Xpi$p55JNL?T(3#DB^V-?ozX4@=mviWvj3PsT>Boy?33<pli#c@W*ix-bN!;GGt(VI69>dCVw"
    "eQ$S@?ptgF^v&#_r0@6V``-7y*GvhWT?qB|qWi`G+KgmVDQOGpo}!H9NcFs)=R;_Q8A~0CV(7Z6V9lsl+zGR&nriWoreF@xP7wm("
    "LXePMP__9Ih7JWAgfb%4u%=s_WU8|@O)pAVtyqRBEyOwK42KIn1Ywbx^1KRN4us3=hKx@-Uvki02#`5Z2o^fYQ>oUVN9e-PJ1rog"
    "L+EHgpAeuA?s|#3*nnZ92#*!Isg;tUs}L#?p;A}LA&NnNsYeK67@!2fI&2aGb=d5HAIGpogeM9lPpB%J7`8UCB^Na~O-1W4L{Zxu"
    ")G&r8MR>}lufo%-1Wx$mvWiucgAvA29G)TE0Su$m5utsS-nKj3&tcdh!t=}ahZnBFiz0*z9RxKy2Rj`aH*36|wphBAxR-491ib99"
    "?{e99(_6%0--974Ld>36gLs=IOK^}_5sbLY#+|O<#j09t=_YNuB&3LL2Zpq(o1wR?qdVq$u4xtGn1j6-_K7fV2WC}a|0+f-l0!>%"
    "{cv!gX+$+OS=TPfv@khoUd56wFB&ycm$||Kp>(G?XvHvKq7JW!z=xRx9y2QQtsoBCL8RbN$*#7;t!m4YN1y>moIqa1@R|rmne|MA"
    ";6#4R2G!v>jeODpoWL+8!n7-SQoBU7M2Gog9ZrdGdKts(4R}L@f?bBBWMp_VToRospQ*!JBE0S5=jf8BlN_9JzbL8;nnEbgwl<4Y"
    "hj&Df6-lBw#9Bp?I7=m|nLPuF5RmIo6hT!;T8gS-acYIWa4=`D#l7!g-rm$Y$!#SDr3PpsoMXroqg>V1iyWLk((ETkCft_>=pvMF"
    "^pO^$>^}R``R+*)UB!+|F)HW4U>4w@!^Cd?s-4pefK$b$TTK?dVJD}x%doJ*d12YYa8ZOsI|AK=OG>3yt}aGMh^87T*NAV~H04Fk"
    "Qe<5wb@Z+?fh*EF=HNXWIG2UX*O#xs`yzZ07CLPg<FGV2IeGM7GVGgxFnl;$nk)3RTIs#JIrykV@^nRns|~1&&>;4%*)t@%mbAaZ"
    "@@2SgGcLdlAz)dvktw04clN8mw`WM-qSw@_&3X`xw3>Bf&M?a|mKIdgBDJ6AhkZTUJ7QGhyT5<CLWSwIy2dcdtZ2CVTq0X+zEV~z"
    "IL{~6kXd!4lhi=&0{lhu+p(sBO(@qgFuRCVgB~_{e&3_$HixcZtgF;RegE&<XjKQ-^bkS^m{W02G|%r{hXI6^a)g%bjR|rsO;9JN"
    "wtV^VfPDh5?Ig)MiRJkydU$<0SPux@wS5fU{NvLh@`s@|K6bG_;(0!d9$eqiQn!Ep58bU@ZL}s>twf$5U(fQ-{E(ySpZs}vynX$J"
    "5YMV7^ZbEzsn5*xAgZ6edMES<`l<EnH@O2ot>$OyZcDU&YLvW>wsE(Eb(hZbqv*lvf5~2jo72HxDRFNbopDwtljpN&z59>qFMN@U"
    "wAb%P`&#;~7Mpog0||~Q|NPnf>GtbCg5oO;*bbffCr8qXc|P)xMxxnxI-5>rGKo|=noMOfnP@bcjK*T|cs89H%f`})vCLR9L0$fG"
    "{PvGw;v;Ok3{bNzpWb6?;6CU6-w}Sa_W&AXkl%Ep)ebg4iT4m0W)F@aTI1yM^LP(}O$^U14^Qg=^25E|JH)`Z_8{Nc;m3MAE{nbE"
    "$Hx3vZwF<u;a(p$?#FujAB(;1$0qz(Z|`EUoBMp&q#x_;EG+hxADi-Hz1@PvMmZlg?Z<j|I*YyI$7cLk?_TX^utOV=zccv3-Yqo3"
    "2J8X<|K^?&g27$QR?xZI(-7IG)#)zG#%2o-(jV05>;9G2J|%Pq9Zblc@67!V`ex6Q"
)


def from_torch() -> Any:
    """The file, read."""
    return aj.load(io.BytesIO(zlib.decompress(base64.b85decode(FROM_TORCH))))


def saved(value: Any) -> bytes:
    """The bytes of a file."""
    file = io.BytesIO()
    aj.save(value, file)
    return file.getvalue()


def loaded(content: bytes) -> Any:
    """What is in the bytes of a file."""
    return aj.load(io.BytesIO(content))


def records(content: bytes) -> dict[str, bytes]:
    """The records of a file."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def zipped(found: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    """A zip file of records."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        for name, content in found.items():
            archive.writestr(name, content)
    return file.getvalue()


def of_pickle(content: bytes) -> bytes:
    """A file that consists of a pickle."""
    return zipped({"a/data.pkl": content, "a/version": b"3\n"})


def test_a_file_of_torch_is_read() -> None:
    found = from_torch()
    assert type(found) is collections.OrderedDict
    assert found._metadata == {"v": 1}
    assert found["weight"].tolist() == [[1.0, 3.0], [2.0, 4.0]]
    assert found["weight"].stride() == (1, 2)
    assert isinstance(found["p"], aj.nn.Parameter)
    assert found["p"].requires_grad
    assert (found["bf"].dtype, found["bf"].tolist()) == (aj.bfloat16, [1.5])
    assert (found["u"].dtype, found["u"].tolist()) == (aj.uint16, [7])
    assert found["sp"].to_dense().tolist() == [[1.0, 0.0], [0.0, 1.0]]
    assert found["conj"].tolist() == [1 - 2j]
    assert found["lr"] == 0.5
    size, *rest = found["meta"]
    assert isinstance(size, aj.Size)
    assert rest == [aj.float64, aj.device("cpu"), {1}, b"\xff", 2j, 10**20, None, True]


def test_tensors_that_shared_memory_share_it_again() -> None:
    found = from_torch()
    found["part"].fill_(9.0)
    assert found["whole"].tolist() == [0.0, 1.0, 9.0, 9.0, 4.0, 5.0]


def values() -> dict[str, Any]:
    """A little of everything that can be saved."""
    base = aj.arange(12.0)
    return {
        "rows": base.view(3, 4)[1:], "all": base, "turned": aj.arange(6).reshape(2, 3).T, "empty": aj.empty(0, 3),
        "scalar": aj.tensor(2.5), "bf": aj.tensor([1.5], dtype=aj.bfloat16), "u": aj.tensor([7], dtype=aj.uint32),
        "bytes_of": aj.arange(6.0).to(aj.float8_e5m2)[1::2],
        "flags": aj.tensor([True, False]), "complex": aj.tensor([1 + 2j], dtype=aj.complex128),
        "parameter": aj.nn.Parameter(aj.ones(2)), "sparse": aj.eye(2).to_sparse(), "rows_of": aj.eye(2).to_sparse_csr(),
        "columns_of": aj.eye(2).to_sparse_csc(), "blocks": aj.eye(4).to_sparse_bsr((2, 2)),
        "columns_of_blocks": aj.eye(4).to_sparse_bsc((2, 2)),
        "leaf": aj.ones(2, requires_grad=True), "plain": [1, -2.5, None, True, "text", b"\xff", (1, 2), {3}, 10**30],
        "dtype": aj.float16, "device": aj.device("cpu"), "size": aj.Size([2, 3]), "nan": float("nan"),
        "array": np.arange(6.0).reshape(2, 3), "number": np.float32(0.5),
    }  # fmt: skip


def check_equal(found: dict[str, Any]) -> None:
    """Everything came back."""
    for name, value in values().items():
        other = found[name]
        assert type(other) is type(value)
        if isinstance(value, aj.Tensor):
            dense = (value, other) if value.layout is aj.strided else (value.to_dense(), other.to_dense())
            assert dense[1].dtype is dense[0].dtype
            assert dense[1].stride() == dense[0].stride()
            assert other.requires_grad == value.requires_grad
            assert dense[1].tolist() == dense[0].tolist()
        elif isinstance(value, np.ndarray):
            np.testing.assert_array_equal(other, value)
        else:
            assert other == value or value != value


def test_everything_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "file.pt"
    aj.save(values(), path)
    check_equal(aj.load(path))
    check_equal(aj.load(str(path), mmap=True))
    assert list(tmp_path.iterdir()) == [path], "no temporary file is left"
    with zipfile.ZipFile(path) as archive:
        assert all(name.startswith("file/") for name in archive.namelist())


def test_a_view_and_its_base_are_stored_once() -> None:
    x = aj.ones(1000)
    content = saved([x, x[:10], x, x.detach()])
    assert len(content) < 6000
    whole, part, same, _ = loaded(content)
    assert whole is same
    part.zero_()
    assert float(whole.sum()) == 990.0


def test_mapped_tensors_are_written_in_memory_only(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    aj.save({"x": aj.ones(4)}, path)
    aj.load(path, mmap=True)["x"].fill_(3.0)
    assert aj.load(path)["x"].tolist() == [1.0] * 4
    other = tmp_path / "x.safetensors"
    aj.save({"x": aj.ones(4), "scalar": aj.tensor(2.0), "none": aj.empty(0, 2)}, other)
    mapped = aj.load(other, mmap=True)
    mapped["x"].fill_(3.0)
    assert aj.load(other)["x"].tolist() == [1.0] * 4
    assert (float(mapped["scalar"]), mapped["none"].shape) == (2.0, (0, 2))
    with pytest.raises(ValueError, match="needs a path"):
        aj.load(io.BytesIO(saved(1)), mmap=True)


def test_a_training_state_goes_on(tmp_path: Path) -> None:
    model = aj.nn.Sequential(aj.nn.Linear(2, 3), aj.nn.BatchNorm1d(3))
    optimizer = aj.optim.Adam(model.parameters(), lr=0.1)
    model(aj.randn(4, 2)).sum().backward()
    optimizer.step()
    aj.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "a.pt")
    found = aj.load(tmp_path / "a.pt", map_location="cpu")
    other = aj.nn.Sequential(aj.nn.Linear(2, 3), aj.nn.BatchNorm1d(3))
    assert str(other.load_state_dict(found["model"])) == "<All keys matched successfully>"
    again = aj.optim.Adam(other.parameters())
    again.load_state_dict(found["optimizer"])
    assert again.param_groups[0]["lr"] == 0.1
    assert found["model"]._metadata["1"] == {"version": 2}


def test_whole_modules_of_the_library_come_back() -> None:
    model = aj.nn.Sequential(
        aj.nn.Linear(4, 4), aj.nn.ReLU(), aj.nn.TransformerEncoderLayer(4, 2, dim_feedforward=8), aj.nn.LayerNorm(4)
    ).eval()
    content = saved({"model": model})
    with pytest.raises(UnsafeGlobalError, match="weights_only=False"):
        loaded(content)
    aj.jit(model)  # classes of compiled modules have the names of the classes they are made of
    again = aj.load(io.BytesIO(content), weights_only=False)["model"]
    x = aj.rand(2, 3, 4)
    assert aj.equal(again(x), model(x))
    assert [name for name, _ in again.named_parameters()] == [name for name, _ in model.named_parameters()]
    bad = b"\x80\x02cautojit.nn.linear\nLinear\n)R."
    with pytest.raises(LoadError, match="calls"):
        aj.load(io.BytesIO(of_pickle(bad)), weights_only=False)
    with pytest.raises(LoadError, match="no dict"):
        aj.load(io.BytesIO(of_pickle(bad[:-2] + b"\x81Nb.")), weights_only=False)


class Block(aj.nn.Module):
    """A module of a user."""

    def __init__(self, n: int) -> None:
        super().__init__()
        self.inner = aj.nn.Linear(n, n)
        self.sizes = (n, n)

    def forward(self, x: Any) -> Any:
        return self.inner(x).relu()


def test_whole_modules_of_the_program_come_back_without_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    model = aj.nn.Sequential(Block(3), aj.nn.Dropout(0.5)).eval()
    content = saved(model)
    with pytest.raises(UnsafeGlobalError, match="weights_only=False"):
        loaded(content)
    monkeypatch.setattr(Block, "__init__", lambda *args: pytest.fail("the initialiser was called"))
    again = aj.load(io.BytesIO(content), weights_only=False)
    x = aj.rand(2, 3)
    assert type(again[0]) is Block and again[0].sizes == (3, 3) and aj.equal(again(x), model(x))
    again(x).sum().backward()
    assert again[0].inner.weight.grad is not None


class Evil:
    """Would run a program."""

    def __reduce__(self) -> Any:
        return os.system, ("exit 1",)


class Point:
    """A class of a user."""

    def __init__(self, x: Any) -> None:
        self.x = x


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_nothing_is_called_that_was_not_allowed(protocol: int) -> None:
    content = of_pickle(pickle.dumps({"a": [Evil()]}, protocol))
    with pytest.raises(UnsafeGlobalError, match=r"system, which is not allowed"):
        loaded(content)
    with pytest.raises(pickle.UnpicklingError):
        aj.load(io.BytesIO(content), weights_only=False)


def test_classes_that_were_allowed_come_back() -> None:
    content = saved([Point(aj.ones(2)), argparse.Namespace(lr=0.1)])
    with pytest.raises(UnsafeGlobalError, match="add_safe_globals"):
        loaded(content)
    with safe_globals([Point, argparse.Namespace]):
        point, options = loaded(content)
    assert point.x.tolist() == [1.0, 1.0]
    assert options.lr == 0.1
    add_safe_globals([(Point, "elsewhere.Point")])
    assert get_safe_globals() == [Point]
    clear_safe_globals()
    assert get_safe_globals() == []
    with pytest.raises(ValueError, match="stays forbidden"):
        add_safe_globals([os.system])


def test_formats_that_would_have_to_be_executed_are_refused() -> None:
    with pytest.raises(LoadError, match="a pickle of Python's"):
        loaded(pickle.dumps([1], 2))
    with pytest.raises(LoadError, match="a pickle of Python's"):
        loaded(b"\0" * 257 + b"ustar" + b"\0" * 300)
    with pytest.raises(LoadError, match="TorchScript"):
        loaded(zipped({"a/data.pkl": b"", "a/constants.pkl": b""}))
    with pytest.raises(LoadError, match=r"no data\.pkl"):
        loaded(zipped({"other.txt": b""}))
    with pytest.raises(ValueError, match="pickle_protocol"):
        aj.save(1, io.BytesIO(), pickle_protocol=1)


def _nested(depth: int) -> bytes:
    return b"\x80\x02" + b")" + b"\x85" * depth


DAMAGED = {
    "empty": (b"", "ends early"),
    "stack": (b"\x80\x02.", "damaged near"),
    "memo": (b"\x80\x02h\x07.", "damaged near"),
    "instruction": (b"\x80\x02i.", "never needs"),
    "deep key": (b"\x80\x02}" + _nested(100_000)[2:] + b"Ns.", "a key of a dict"),
    "deep member": (b"\x80\x04\x8f(" + _nested(100_000)[2:] + b"\x90.", "a key of a dict"),
    "key": (b"\x80\x02}]Ns.", "a key of a dict"),
    "long": (b"\x80\x02\x8b\xff\xff\xff\xff.", "ends early"),
    "text": (b"\x80\x02X\x02\x00\x00\x00\xff\xff.", "damaged near"),
    "state": (b"\x80\x02]}b.", "sets the state"),
    "call": (b"\x80\x02]]R.", "without arguments"),
    "calls a number": (b"\x80\x02K\x01)R.", "calls 1"),
    "set of a tensor's parts": (b"\x80\x02c__builtin__\nset\nK\x05\x85R.", "members"),
    "storage": (b"\x80\x02K\x01Q.", "no storage"),
    "size": (b"\x80\x02ctorch\nSize\n(K\x01J\xff\xff\xff\xfft\x85R.", "holds -1"),
    "dtype": (b"\x80\x02cnumpy\ndtype\nX\x01\x00\x00\x00O\x85R.", "not one of numbers"),
    "dtype that NumPy evaluates": (b"\x80\x02cnumpy\ndtype\nX\x03\x00\x00\x00<04\x85R.", "not one of numbers"),
    "dtype that NumPy has not": (b"\x80\x02cnumpy\ndtype\nX\x02\x00\x00\x00f3\x85R.", "not one of numbers"),
    "open array": (b"\x80\x02cnumpy._core.multiarray\n_reconstruct\n)R.", "middle of a value"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_pickle_is_an_error(name: str) -> None:
    content, message = DAMAGED[name]
    with pytest.raises(LoadError, match=message):
        loaded(of_pickle(content))


NAMES = st.text("<>|=?biufcSUVOMmex0123456789 ,()", max_size=6)


@hypothesis.given(NAMES)
def test_the_name_of_a_numpy_dtype_is_one_of_numbers_or_an_error_of_ours(name: str) -> None:
    try:
        found = PendingDType(name).dtype
    except (LoadError, TypeError):  # the reader makes the second the first
        return
    assert found.kind in "biufc" and found.itemsize <= 16


def test_whatever_is_wrong_with_a_file_the_error_names_it(tmp_path: Path) -> None:
    contents = {
        "torch.pt": of_pickle(DAMAGED["dtype that NumPy evaluates"][0]),
        "cut.pt": saved(aj.ones(3))[:-40],
        "old.pt": b"\x80\x02K\x01.",
        "short.safetensors": b"\x01",
        "wrong.safetensors": (2).to_bytes(8, "little") + b"[]",
        "empty": b"",
    }
    for name, content in contents.items():
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(LoadError, match=f"file .*{name}"):
            aj.load(path)
        with path.open("rb") as file, pytest.raises(LoadError, match=f"file .*{name}"):
            aj.load(file)
    with pytest.raises(LoadError) as found:
        aj.load(io.BytesIO(b""))
    assert "  file" not in str(found.value)


def _tensor(size: Any, stride: Any, offset: int = 0, storage: int = 8) -> dict[str, bytes]:
    """The records of a tensor of a storage of float32 that may not fit it."""
    found = records(saved(aj.ones(storage)))
    head = b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n("
    reference = b"(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpuK"
    body = pickle.dumps(offset, 2)[2:-1] + pickle.dumps(size, 2)[2:-1] + pickle.dumps(stride, 2)[2:-1]
    found["archive/data.pkl"] = head + reference + bytes([storage]) + b"tQ" + body + b"t" + b"R."
    return found


@pytest.mark.parametrize(
    ("size", "stride", "offset"),
    [((9,), (1,), 0), ((8,), (1,), 1), ((2, 2), (100, 1), 0), ((2,), (-1,), 1), ((1 << 61,), (0,), 0),
     ((1 << 59, 1 << 20), (0, 0), 0), ((-1,), (1,), 0), ((2,), (1, 1), 0), ((1,) * 70, (1,) * 70, 0),
     ((True,), (1,), 0)],
)  # fmt: skip
def test_a_tensor_stays_inside_of_its_storage(size: Any, stride: Any, offset: int) -> None:
    assert loaded(zipped(_tensor((2, 2), (4, 1), 1))).tolist() == [[1.0, 1.0], [1.0, 1.0]]
    with pytest.raises(LoadError, match="tensor"):
        loaded(zipped(_tensor(size, stride, offset)))


def test_memory_is_bounded_by_the_file() -> None:
    content = saved(aj.zeros(1_000_000))
    with pytest.raises(LoadError, match="compressed"):
        loaded(zipped(records(content), zipfile.ZIP_DEFLATED))
    with pytest.raises(LoadError, match="elements wanted"):
        loaded(zipped({**records(content), "archive/data/0": b"\0" * 8}))
    with pytest.raises(LoadError, match="no record data/0"):
        loaded(zipped({k: v for k, v in records(content).items() if k != "archive/data/0"}))
    with pytest.raises(LoadError):
        loaded(content[: len(content) // 2])
    flipped = bytearray(content)
    flipped[len(content) // 2] ^= 1
    with pytest.raises(LoadError, match="CRC"):
        loaded(bytes(flipped))


def test_tensors_of_other_devices_need_a_place() -> None:
    found = records(saved(aj.ones(2, device="cpu")))
    found["archive/data.pkl"] = found["archive/data.pkl"].replace(b"\x03\x00\x00\x00cpu", b"\x07\x00\x00\x00cuda:99")
    content = zipped(found)
    with pytest.raises(RuntimeError, match="map it to the CPU"):
        loaded(content)
    for place in ("cpu", aj.device("cpu"), {"cuda:99": "cpu"}, lambda storage, location: storage):
        assert aj.load(io.BytesIO(content), map_location=place).tolist() == [1.0, 1.0]


def mutated(content: bytes, rng: random.Random) -> bytes:
    """The bytes with some changed, missing or moved."""
    found = bytearray(content)
    for _ in range(rng.choice([1, 1, 2, 5])):
        place, kind = rng.randrange(len(found) or 1), rng.random()
        if kind < 0.6 and found:
            found[place] = rng.randrange(256)
        elif kind < 0.7:
            found[place : place + 4] = b"\xff" * 4
        elif kind < 0.8:
            del found[place : place + rng.randrange(1, 9)]
        else:
            start = rng.randrange(len(found) or 1)
            found[place:place] = found[start : start + 12]
    return bytes(found)


@pytest.mark.parametrize("seed", range(4))
def test_any_change_of_bytes_gives_values_or_an_error_of_ours(seed: int, tmp_path: Path) -> None:
    rng, content = random.Random(seed), saved(values())
    path = tmp_path / "x.pt"
    parts = records(content)
    for _ in range(150):
        changed = dict(parts)
        changed["archive/data.pkl"] = mutated(parts["archive/data.pkl"], rng)
        for damaged in (zipped(changed), mutated(content, rng)):
            with contextlib.suppress(LoadError, aj.io.SafetensorsError, aj.core.errors.DeviceError):
                loaded(damaged)
            path.write_bytes(damaged)
            with contextlib.suppress(LoadError, aj.io.SafetensorsError, aj.core.errors.DeviceError):
                aj.load(path, mmap=seed % 2 == 0)


@pytest.mark.filterwarnings("ignore:Sparse CSR:UserWarning")  # torch's word on its own state
def test_torch_reads_what_is_written_and_the_other_way_round(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    path = tmp_path / "x.pt"
    ours = {
        "model": aj.nn.Linear(2, 3).state_dict(),
        **{k: v for k, v in values().items() if k not in ("array", "number")},
    }
    aj.save(ours, path)
    theirs = torch.load(path)
    assert torch.equal(theirs["model"]["weight"], torch.from_dlpack(ours["model"]["weight"]))
    assert theirs["rows"].stride() == ours["rows"].stride()
    torch.save(theirs, path)
    found = aj.load(path)
    assert found["turned"].tolist() == ours["turned"].tolist()
    torch.nn.Linear(2, 3).load_state_dict(theirs["model"])


def test_values_nested_too_deeply_are_an_error() -> None:
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    with pytest.raises(RuntimeError, match="nested too deeply"):
        saved(value)
    while value:  # so that taking it apart does not recurse
        (value,) = value


def test_other_modules_that_pickle_are_refused_not_ignored() -> None:
    class Other:
        Unpickler, load, Pickler, dump = pickle.Unpickler, pickle.load, pickle.Pickler, pickle.dump

    file = io.BytesIO()
    aj.save([aj.ones(1)], file, pickle_module=pickle)
    assert aj.load(file, pickle_module=pickle)[0].item() == 1
    for call in (lambda: aj.save([1], io.BytesIO(), pickle_module=Other), lambda: aj.load(file, pickle_module=Other)):
        with pytest.raises(UnsupportedError, match="asks no other module"):
            call()
