"""The safetensors format and ``save``/``load``: round trips, damage is found and named, nothing is executed."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import autojit as aj
from autojit import nn, optim
from autojit.io import safetensors as format
from autojit.io.archive import save_archive
from autojit.io.safetensors import SafetensorsError

DTYPES = [
    np.bool_,
    np.uint8,
    np.int8,
    np.uint16,
    np.int16,
    np.int32,
    np.int64,
    np.float16,
    np.float32,
    np.float64,
    np.complex64,
]


def _of_any_bits(dtype: Any, shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Of any pattern of bits: hypothesis itself never draws what a NaN carries."""
    rng = np.random.default_rng(seed)
    if dtype is np.bool_:
        return rng.integers(0, 2, shape).astype(dtype)
    drawn = rng.integers(0, 256, (*shape, np.dtype(dtype).itemsize), np.uint8)
    return drawn.reshape(-1).view(dtype).reshape(shape)


SHAPES = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)
ARRAYS = st.builds(_of_any_bits, st.sampled_from(DTYPES), SHAPES, st.integers(0, 1 << 20))
LETTERS = 'aZ0_./-: \0\n\x7f"\\{}é\u2028漢\ufffd\U0001f600'
"""What JSON writes in ways of its own is among them; all of Unicode takes hypothesis seconds to list."""
NAMES = st.text(LETTERS, min_size=1, max_size=12)


def _same(a: np.ndarray, b: np.ndarray) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


@given(st.dictionaries(NAMES, ARRAYS, max_size=5))
def test_tensors_come_back_bit_for_bit(arrays: dict[str, np.ndarray]) -> None:
    found = format.load(format.save({name: aj.tensor(array) for name, array in arrays.items()}))
    assert set(found) == set(arrays)
    assert all(_same(found[name].numpy(), array) for name, array in arrays.items())


def test_bfloat16_and_views_come_back() -> None:
    x = aj.arange(12.0).reshape(3, 4)
    found = format.load(format.save({"b": x.to(aj.bfloat16), "t": x.t(), "s": x[1:, ::2]}))
    assert found["b"].dtype is aj.bfloat16
    assert found["t"].tolist() == x.t().tolist()
    assert found["s"].tolist() == x[1:, ::2].tolist()


def _file(header: Any, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def _entry(begin: int, end: int, shape: list[Any] | None = None, dtype: str = "U8") -> dict[str, Any]:
    return {"dtype": dtype, "shape": [end - begin] if shape is None else shape, "data_offsets": [begin, end]}


DAMAGED: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "too few for a header size"),
    "huge header": ((1 << 60).to_bytes(8, "little") + b"{}", "more than 100000000"),
    "header longer than file": ((50).to_bytes(8, "little") + b"{}", "the file has 2 left"),
    "no json": (_file(b"{nonsense"), "no valid JSON"),
    "no utf-8": (_file(b'{"\xff": 1}'), "no valid JSON"),
    "list": (_file([1]), "no JSON object"),
    "deep": (_file(b"[" * 100_000), "nested too deeply|no valid JSON"),
    "nan": (_file(b'{"a": NaN}'), "NaN is not allowed"),
    "duplicate": (_file(b'{"a": {}, "a": {}}'), "a key occurs twice"),
    "missing field": (_file({"a": {"dtype": "U8", "shape": []}}), "exactly dtype, shape and data_offsets"),
    "unknown dtype": (_file({"a": _entry(0, 1, dtype="F99")}, b"1"), "unknown dtype 'F99'"),
    "dtype no string": (_file({"a": _entry(0, 1, dtype=["U8"])}, b"1"), "unknown dtype"),  # type: ignore[arg-type]
    "negative": (_file({"a": _entry(-1, 0)}), "holds -1"),
    "float extent": (_file({"a": _entry(0, 1, [1.0])}, b"1"), "holds 1.0"),
    "boolean extent": (_file({"a": _entry(0, 1, [True])}, b"1"), "holds True"),
    "overflow": (_file({"a": _entry(0, 0, [1 << 58, 1 << 58, 0])}), "impossible shape"),
    "size mismatch": (_file({"a": _entry(0, 4, [3])}, b"1234"), "needs 3 bytes, its offsets give 4"),
    "product too large": (_file({"a": _entry(0, 8, [1 << 40, 1 << 40])}, b"12345678"), "impossible shape"),
    "overlap": (_file({"a": _entry(0, 2), "b": _entry(1, 3)}, b"123"), "overlaps the one before"),
    "gap": (_file({"a": _entry(0, 1), "b": _entry(2, 3)}, b"123"), "leaves a gap"),
    "rest": (_file({"a": _entry(0, 1)}, b"123"), "tensors cover 1 bytes, the file holds 3"),
    "backwards": (_file({"a": {"dtype": "U8", "shape": [0], "data_offsets": [3, 2]}}, b"123"), "has the offsets"),
    "metadata": (_file({"__metadata__": {"a": 1}}), "must map strings to strings"),
    "boolean": (_file({"a": _entry(0, 1, dtype="BOOL")}, b"\x07"), "bytes other than 0 and 1"),
    "many axes": (_file({"a": _entry(0, 1, [1] * 65)}, b"1"), "more than 64"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damage_is_refused_by_name(name: str) -> None:
    data, text = DAMAGED[name]
    with pytest.raises(SafetensorsError, match=text):
        format.load(data)


SAMPLE = format.save({"weight": aj.arange(6.0), "mask": aj.tensor([True, False]), "step": aj.tensor(3)}, {"a": "b"})


@given(st.data())
def test_any_change_of_bytes_is_an_error_of_ours_or_gives_tensors(data: st.DataObject) -> None:
    damaged = bytearray(SAMPLE)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.one_of(st.none(), st.integers(0, len(damaged))))
    try:
        found = format.load(bytes(damaged[:cut]))
    except SafetensorsError:
        return
    assert all(isinstance(tensor, aj.Tensor) for tensor in found.values())


PLAIN = st.one_of(st.none(), st.booleans(), st.integers(-(10**30), 10**30), st.floats(), st.text(max_size=5))
NESTED = st.recursive(
    PLAIN,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.one_of(st.text(max_size=4), st.integers(0, 9)), inner, max_size=3),
    ),
    max_leaves=8,
)


@given(NESTED)
def test_plain_values_come_back_with_their_types(value: Any) -> None:
    file = io.BytesIO()
    save_archive(value, file)
    assert repr(aj.load(file)) == repr(value)


def test_a_training_state_comes_back(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    optimizer = optim.Adam(model.parameters(), lr=0.1)
    model(aj.randn(4, 2)).sum().backward()
    optimizer.step()
    path = tmp_path / "state.safetensors"
    aj.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3}, path)
    found = aj.load(path)
    other = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    other.load_state_dict(found["model"])
    assert aj.equal(other[0].weight, model[0].weight)
    again = optim.Adam(other.parameters())
    again.load_state_dict(found["optimizer"])
    assert again.param_groups[0]["betas"] == (0.9, 0.999)
    assert float(again.state[other[0].weight]["step"]) == 1.0
    assert found["epoch"] == 3
    assert "model.0.weight" in format.load_file(path), "tensors lie under their path"
    assert list(tmp_path.iterdir()) == [path], "no temporary file is left"


def test_shared_tensors_are_stored_once() -> None:
    x, file = aj.ones(1000), io.BytesIO()
    save_archive([x, x], file)
    assert len(file.getvalue()) < 5000
    a, b = aj.load(file)
    assert a is b


def test_what_cannot_be_saved_or_loaded_is_named(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"cannot save object at a\.0"):
        aj.save({"a": [object()]}, tmp_path / "x.safetensors")
    with pytest.raises(SafetensorsError, match="no tensor but int"):
        format.save({"a": 3})  # type: ignore[dict-item]
    with pytest.raises(SafetensorsError, match="no dtype"):
        format.save({"a": aj.ones(1).to(aj.complex128)})
    structure = json.dumps({"tensor": "elsewhere"})
    with pytest.raises(SafetensorsError, match="malformed"):
        aj.load(io.BytesIO(_file({"__metadata__": {"autojit": structure}})))
