"""Tensors on CUDA, on an emulated device whose memory the host cannot read: views, copies, factories, ops, refusals."""

from __future__ import annotations

import copy
import io
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit import nn
from autojit.core.device_array import DeviceArray
from autojit.core.dtypes import ALL_DTYPES
from autojit.dispatch.dispatch import apply
from autojit.ir import Op
from autojit.runtime.gpu.emulator.driver import EmulatedDriver
from autojit.tensor.tensor import wrap
from tests.emulated import emulated_cuda

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def driver() -> Iterator[EmulatedDriver]:
    with emulated_cuda() as found:
        yield found


VIEWS = [op for op in Op.registry.load().values() if op.is_view and not op.abstract and hasattr(op, "samples")]


@pytest.mark.parametrize("op_class", VIEWS, ids=lambda op: op.name)
def test_views_are_layouts_and_read_nothing(driver: EmulatedDriver, op_class: Any) -> None:
    for dtype in (aj.float32, aj.bfloat16, aj.complex64, aj.bool):
        for op, (array,) in op_class.samples(dtype):
            here = wrap(np.array(array, order="K"))
            there = here.cuda()
            before = driver.counts["launches"]
            expected, found = apply(op, here), apply(op, there)
            if op.copies(here._array):
                continue
            assert driver.counts["launches"] == before
            assert found.data_ptr() - there.data_ptr() == expected.data_ptr() - here.data_ptr() or not found.numel()
            assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
            assert found.stride() == expected.stride() or not found.numel()  # a copy without elements has no steps
            assert found._base is there
            if dtype in (aj.float32, aj.complex64):
                assert found.tolist() == expected.tolist()


FACTORIES: dict[str, Callable[..., aj.Tensor]] = {
    "zeros": lambda **k: aj.zeros(2, 3, **k),
    "ones": lambda **k: aj.ones(3, **k),
    "full": lambda **k: aj.full((2, 2), 3, **k),
    "empty": lambda **k: aj.empty(2, 0, **k),
    "arange": lambda **k: aj.arange(5, **k),
    "linspace": lambda **k: aj.linspace(0, 1, 5, **k),
    "logspace": lambda **k: aj.logspace(0, 1, 3, **k),
    "eye": lambda **k: aj.eye(3, 2, **k),
    "tensor": lambda **k: aj.tensor([[1, 2], [3, 4]], **k),
    "as_tensor": lambda **k: aj.as_tensor([1, 0], **k),
    "scalar_tensor": lambda **k: aj.scalar_tensor(3, **k),
    "rand": lambda **k: aj.rand(4, **k),
    "randn": lambda **k: aj.randn(4, **k),
    "randint": lambda **k: aj.randint(2, 9, (4,), **k),
    "randperm": lambda **k: aj.randperm(6, **k),
    "tril_indices": lambda **k: aj.tril_indices(3, 3, **k),
    "empty_strided": lambda **k: aj.empty_strided((2, 2), (1, 2), **k),
    "hann_window": lambda **k: aj.hann_window(4, **k),
}
FLOATING = {"linspace", "logspace", "rand", "randn", "hann_window"}
LIKES = ("zeros_like", "ones_like", "empty_like", "rand_like", "randn_like")


@pytest.mark.parametrize("name", FACTORIES)
def test_factories_make_what_they_make_on_the_cpu(name: str) -> None:
    for dtype in (None, aj.float64) if name in FLOATING else (None, aj.float32, aj.int32):
        options = {} if dtype is None or name in ("tril_indices",) else {"dtype": dtype}
        aj.manual_seed(3)
        expected = FACTORIES[name](device="cpu", **options)
        aj.manual_seed(3)
        found = FACTORIES[name](device="cuda", **options)
        assert found.device == aj.device("cuda:0") and type(found._array) is DeviceArray
        assert (found.dtype, found.shape, found.stride()) == (expected.dtype, expected.shape, expected.stride())
        np.testing.assert_allclose(found.tolist(), expected.tolist(), rtol=1e-6)


def test_what_is_made_alike_is_where_its_model_is() -> None:
    x = aj.arange(6.0, device="cuda").reshape(2, 3)
    for name in LIKES:
        made = getattr(aj, name)(x)
        assert (made.device, made.shape) == (x.device, x.shape), name
    made = [
        x.new_zeros(2),
        x.new_ones(2),
        x.new_empty(2),
        x.new_full((2,), 1.0),
        x.new_tensor([1.0]),
        aj.full_like(x, 2),
    ]
    made += [x > 1, x.sum(), x.clone(), x.double(), x.argmax(), x.topk(1).values, x.var(0), x.softmax(0)]
    assert {t.device for t in made} == {x.device}
    assert aj.zeros_like(x, device="cpu").device == aj.device("cpu")
    with aj.device("cuda"):
        assert aj.ones(2).is_cuda and aj.tensor([1.0]).is_cuda


@pytest.mark.parametrize("dtype", ALL_DTYPES, ids=lambda dtype: dtype.name)
def test_every_dtype_goes_there_and_back(dtype: aj.dtype) -> None:
    host = aj.tensor([0, 1, 1, 0, 1, 1], device="cpu").to(dtype).reshape(2, 3)
    there = host.to("cuda")
    assert (there.dtype, there.nbytes) == (dtype, host.nbytes)
    assert bytes(there.cpu()._array.tobytes()) == bytes(host._array.tobytes())
    assert there.t().cpu().stride() == (1, 3)


CONVERSIONS: dict[str, Callable[[aj.Tensor], aj.Tensor]] = {
    "to(device)": lambda x: x.to("cuda"),
    "to(Device)": lambda x: x.to(aj.device("cuda", 0)),
    "to(int)": lambda x: x.to(0),
    "to(device=)": lambda x: x.to(device="cuda:0", non_blocking=True),
    "to(device, dtype)": lambda x: x.to("cuda", aj.float64),
    "to(dtype, device=)": lambda x: x.to(aj.float64, device="cuda"),
    "to(other)": lambda x: x.to(aj.zeros(1, device="cuda", dtype=aj.int32)),
    "cuda()": lambda x: x.cuda(),
    "cuda(0)": lambda x: x.cuda(0, non_blocking=True),
    "type_as": lambda x: x.type_as(aj.zeros(1, device="cuda")),
    "type": lambda x: x.type("torch.cuda.DoubleTensor"),
    "as_tensor": lambda x: aj.as_tensor(x, device="cuda"),
    "tensor": lambda x: aj.asarray(x, device="cuda"),
    "copy_": lambda x: aj.zeros(2, 2, device="cuda").copy_(x),
}


@pytest.mark.parametrize("form", CONVERSIONS)
def test_tensors_are_moved_by_every_form(form: str) -> None:
    x = aj.tensor([[1.0, 2.0], [3.0, 4.0]], device="cpu")
    found = CONVERSIONS[form](x)
    assert found.is_cuda and found.get_device() == 0 and not found.is_cpu
    assert found.tolist() == x.tolist()
    assert found.cpu().device == found.to("cpu").device == aj.device("cpu")
    assert found.cuda() is found and found.to(found.device) is found
    assert found.to("cuda", copy=True).data_ptr() != found.data_ptr()


def test_gradients_follow_moves() -> None:
    x = aj.tensor([1.0, 2.0], requires_grad=True, device="cpu")
    (x.cuda() * 3).sum().backward()
    assert x.grad.device == x.device and x.grad.tolist() == [3.0, 3.0]
    y = aj.tensor([1.0, 2.0], requires_grad=True, device="cuda")
    for _ in range(2):
        (y * y).sum().backward()
    assert y.grad.is_cuda and y.grad.tolist() == [4.0, 8.0]


def at(x: aj.Tensor, *places: int) -> aj.Tensor:
    """Places in a tensor, on its device."""
    return aj.tensor(places, device=x.device)


PROGRAMS: dict[str, Callable[[aj.Tensor], Any]] = {
    "arithmetic": lambda x: (x * 2 - 1) / (x.abs() + 1),
    "transposed": lambda x: x.t() + x.t().contiguous(),
    "broadcast": lambda x: x + x[:, :1] * x[0],
    "sliced": lambda x: x[::2, 1:].exp().sum(0),
    "reductions": lambda x: [x.mean(), x.std(1), x.max(0).indices, x.argmin(), (x > 0).all()],
    "products": lambda x: [x @ x.t(), x.t() @ x[:, 0], aj.einsum("ij,kj->ik", x, x)],
    "where": lambda x: aj.where(x > 0, x, 0.5),
    "indices": lambda x: [x[at(x, 2, 0)], x[x > 0], x[[0, 1], [1, 2]], x.gather(1, x.argsort(1))],
    "joined": lambda x: [aj.cat([x, x.flip(0)]), aj.stack([x, x], 1), x.repeat(2, 1), x.roll(1, 0)],
    "sorted": lambda x: [x.sort(1).values, x.topk(2, 0).values, x.cumsum(0), x.median(), x.unique()],
    "in place": lambda x: x.clone().add_(1).mul_(x).clamp_(-1, 2).t_(),
    "written": lambda x: [_written(x), x.clone().fill_(3), x.clone().zero_(), x.clone().index_fill_(0, at(x, 1), 9)],
    "masked": lambda x: x.clone().masked_fill_(x < 0, float("-inf")).softmax(-1),
    "out": lambda x: aj.add(x, 1, out=aj.empty(0, device=x.device)),
    "scattered": lambda x: aj.zeros_like(x).index_add_(0, at(x, 2, 2, 0), x),
    "normalised": lambda x: nn.functional.layer_norm(x, (4,)),
    "losses": lambda x: [nn.functional.mse_loss(x, x * 2), nn.functional.cross_entropy(x, at(x, 0, 1, 3))],
    "numbers": lambda x: x * aj.tensor(2.0, device="cpu") + aj.tensor(1, device="cpu"),
    "quantiles": lambda x: [aj.quantile(x, 0.3), x.nanmedian(), aj.histc(x, 4), aj.combinations(x[0], 2)],
}  # fmt: skip


def _written(x: aj.Tensor) -> aj.Tensor:
    made = x.clone()
    made[0] = 7
    made[:, 1] = made[:, 2] * 2
    made[1:, ::2] += 1
    made[made > 5] = 0
    made[[0, 1], [1, 2]] = aj.tensor([5.0, 6.0], device=x.device)
    made.diagonal().neg_()
    made.t()[3] = x[:, 0]
    return made


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_give_what_they_give_on_the_cpu(name: str) -> None:
    host = aj.tensor(np.random.default_rng(1).standard_normal((3, 4)), dtype=aj.float32, device="cpu")
    expected, found = PROGRAMS[name](host), PROGRAMS[name](host.cuda())
    pairs = zip(expected, found, strict=True) if isinstance(expected, list) else [(expected, found)]
    for here, there in pairs:
        assert there.is_cuda and there.dtype == here.dtype and there.stride() == here.stride()
        np.testing.assert_allclose(there.tolist(), here.tolist(), rtol=2e-5, atol=2e-6)


def test_random_numbers_are_the_same_everywhere() -> None:
    def drawn(device: str, run: Callable[..., Any]) -> list[Any]:
        aj.manual_seed(11)
        return [t.tolist() for t in run(device)]

    def draw(device: str) -> list[aj.Tensor]:
        x = aj.rand(6, device=device)
        return [x, aj.randn(5, device=device), aj.bernoulli(x), nn.functional.dropout(x, 0.5)]

    expected = drawn("cpu", draw)
    for run in (draw, aj.jit(draw), aj.jit(draw)):
        for a, b in zip(drawn("cuda", run), expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7)
    generator = aj.Generator(device="cuda").manual_seed(5)
    here = aj.rand(3, generator=aj.Generator().manual_seed(5)).tolist()
    assert aj.rand(3, device="cuda", generator=generator).tolist() == here


REFUSED: dict[str, tuple[Callable[[aj.Tensor], Any], type[Exception], str]] = {
    "add": (lambda x: x + aj.ones(2, device="cpu"), RuntimeError, "found at least two devices, cuda:0 and cpu!"),
    "matmul": (lambda x: aj.ones(2, 2, device="cpu") @ x, RuntimeError, "at least two devices, cpu and cuda:0!"),
    "in place": (lambda x: x.add_(aj.ones(2, device="cpu")), RuntimeError, "at least two devices"),
    "numpy": (lambda x: x.numpy(), TypeError, "can't convert cuda:0 device type tensor to numpy"),
    "array": (lambda x: np.asarray(x), TypeError, "can't convert cuda:0 device type tensor to numpy"),
    "ordinal": (lambda x: x.to("cuda:1"), RuntimeError, "invalid device ordinal"),
    "cuda(cpu)": (lambda x: x.cuda("cpu"), RuntimeError, "Invalid device, must be cuda device"),
    "name": (lambda x: x.to("gpu"), RuntimeError, "device type at start of device string: gpu"),
    "pin": (lambda x: x.pin_memory(), RuntimeError, "only dense CPU tensors can be pinned"),
    "expanded": (lambda x: x[:1].expand(3).add_(1), RuntimeError, "single memory location"),
    "index": (lambda x: x[aj.tensor([5], device="cuda")], IndexError, "out of"),
    "overflow": (lambda x: x.to(aj.uint8).fill_(300), RuntimeError, "overflow"),
    "shapes": (lambda x: x + aj.ones(3, device="cuda"), RuntimeError, "size"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_bad_input_is_refused_in_torch_s_words_and_the_device_works_on(name: str) -> None:
    wrong, error, words = REFUSED[name]
    x = aj.ones(2, device="cuda")
    with pytest.raises(error, match=words):
        wrong(x)
    assert (x + 1).tolist() == [2.0, 2.0]


def test_elements_are_shown_and_read_by_copies() -> None:
    x = aj.tensor([[1.5, 2.0]], device="cuda", requires_grad=True)
    assert repr(x) == "tensor([[1.5000, 2.0000]], device='cuda:0', requires_grad=True)"
    assert repr(x.detach()[:, :0].long()) == "tensor([], size=(1, 0), device='cuda:0', dtype=autojit.int64)"
    assert (x[0, 0].item(), float(x[0, 1]), int(x[0, 1]), bool(x[0, 0] > 1), f"{x[0, 0]:.2f}") == (
        1.5,
        2.0,
        2,
        True,
        "1.50",
    )
    assert x.tolist() == [[1.5, 2.0]] and [row.tolist() for row in x[0]] == [1.5, 2.0] and 2.0 in x
    assert x.type() == "autojit.cuda.FloatTensor"
    assert x.untyped_storage().device == x.device and x.storage().tolist() == [1.5, 2.0]
    assert x.share_memory_() is x and x.is_shared()
    for read in (np.asarray, np.sum, list, bytes, memoryview):
        with pytest.raises(TypeError):
            read(x._array)


def test_pinned_memory_is_the_host_s() -> None:
    x = aj.arange(6.0, device="cpu").reshape(2, 3).t().pin_memory()
    assert x.is_pinned() and x.pin_memory() is x and not aj.ones(2, device="cpu").is_pinned()
    assert x.cuda(non_blocking=True).tolist() == x.tolist() == [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]]
    assert aj.ones(2, device="cpu", pin_memory=True).is_pinned() and not x.cuda().is_pinned()
    assert aj.ones(2, device="cpu").to(aj.bfloat16).pin_memory().is_pinned()


def test_batches_and_what_is_saved_on_the_cpu_can_be_pinned() -> None:
    data = aj.utils.data.TensorDataset(aj.arange(4.0, device="cpu"), aj.arange(4, device="cpu"))
    for workers in (0, 1):
        for x, y in aj.utils.data.DataLoader(data, batch_size=2, pin_memory=True, num_workers=workers):
            assert x.is_pinned() and y.is_pinned()
    w = aj.tensor([2.0, 3.0], device="cuda", requires_grad=True)
    with aj.autograd.graph.save_on_cpu(pin_memory=True):
        y = (w * w).sum()
    y.backward()
    assert w.grad.tolist() == [4.0, 6.0]


def test_memory_used_by_another_stream_is_kept_until_that_is_done(driver: EmulatedDriver) -> None:
    x, other = aj.ones(3, device="cuda"), aj.cuda.Stream()
    before = aj.cuda.memory_allocated()
    x.record_stream(other)
    aj.ones(1, device="cpu").record_stream(other)
    x[1:].record_stream(other)
    del x
    aj.zeros(1, device="cuda").record_stream(other)
    assert aj.cuda.memory_allocated() <= before


def test_marks_on_an_emulated_device_tell_no_times() -> None:
    start, end = aj.cuda.Event(enable_timing=True), aj.cuda.Event(enable_timing=True)
    start.record(), end.record()
    aj.cuda.synchronize()
    assert start.query() and aj.cuda.get_device_properties().is_emulated
    with pytest.raises(RuntimeError, match="emulated"):
        start.elapsed_time(end)


SAVED = {
    "tensor": lambda place: aj.arange(4.0, device=place),
    "view": lambda place: aj.arange(6.0, device=place).reshape(2, 3).t()[1:],
    "halves": lambda place: aj.ones(3, device=place, dtype=aj.bfloat16),
}
PLACES: dict[str, tuple[Any, str]] = {
    "none": (None, "cuda:0"),
    "text": ("cpu", "cpu"),
    "device": (aj.device("cpu"), "cpu"),
    "ordinal": ("cuda:0", "cuda:0"),
    "dict": ({"cuda:0": "cpu"}, "cpu"),
    "other dict": ({"cuda:1": "cpu"}, "cuda:0"),
    "function": (lambda storage, location: storage, "cpu"),
    "moved by a function": (lambda storage, location: storage.cuda(), "cuda:0"),
    "none by a function": (lambda storage, location: None, "cuda:0"),
}


@pytest.mark.parametrize("what", SAVED)
@pytest.mark.parametrize("place", PLACES)
def test_files_remember_where_tensors_were(what: str, place: str) -> None:
    x = SAVED[what]("cuda")
    file = io.BytesIO()
    aj.save({"x": x, "same": x, "here": x.cpu()}, file)
    file.seek(0)
    mapped, expected = PLACES[place]
    found = aj.load(file, map_location=mapped)
    assert str(found["x"].device) == expected and found["x"].tolist() == x.tolist() == found["here"].tolist()
    assert found["x"].stride() == x.stride()
    assert found["same"].data_ptr() == found["x"].data_ptr()
    assert mapped is not None or found["here"].device == aj.device("cpu")


def test_files_of_a_device_that_is_not_there_say_what_to_do() -> None:
    file = io.BytesIO()
    aj.save(aj.ones(2, device="cuda"), file)
    missing = io.BytesIO(file.getvalue().replace(b"cuda:0", b"cuda:7"))
    with pytest.raises(RuntimeError, match="checksum"):
        aj.load(missing)
    with pytest.raises(RuntimeError, match=r"invalid device ordinal"):
        aj.load(file, map_location="cuda:7")


def test_copies_and_pickles_stay_where_they_are() -> None:
    x = aj.arange(6.0, device="cuda").reshape(2, 3)
    for made in (copy.deepcopy(x), pickle.loads(pickle.dumps(x)), copy.copy(x)):
        assert made.device == x.device and made.tolist() == x.tolist()
    both = copy.deepcopy([x, x.t()])
    assert both[1].data_ptr() == both[0].data_ptr() != x.data_ptr() and both[1].stride() == (1, 3)


def test_modules_and_optimisers_go_along() -> None:
    model = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).to("cpu")
    here = copy.deepcopy(model)
    assert model.cuda() is model and {t.device.type for t in model.state_dict().values()} == {"cuda"}
    x = aj.arange(6.0, device="cpu").reshape(2, 3)
    for one, batch in ((here, x), (model, x.cuda())):
        optimizer = aj.optim.Adam(one.parameters(), 0.1)
        one(batch).square().sum().backward()
        optimizer.step()
    for a, b in zip(here.state_dict().values(), model.cpu().state_dict().values(), strict=True):
        np.testing.assert_allclose(b.tolist(), a.tolist(), rtol=1e-4, atol=1e-5)
    model.to("cuda").load_state_dict(here.state_dict())
    assert next(model.parameters()).is_cuda and next(here.to(aj.device("cuda", 0)).buffers()).is_cuda


def test_mixed_precision_is_a_device_s_own() -> None:
    x, host = aj.ones(2, 2, device="cuda"), aj.ones(2, 2, device="cpu")
    with aj.autocast("cuda"):
        assert ((x @ x).dtype, (host @ host).dtype, x.double().sum().dtype) == (aj.float16, aj.float32, aj.float64)
        assert aj.is_autocast_enabled("cuda") and not aj.is_autocast_enabled("cpu")
        assert (
            aj.stack([x @ x, x @ x]).dtype is aj.float16 and nn.functional.mse_loss(x @ x, x.half()).dtype is aj.float32
        )
        with aj.autocast("cpu"), aj.cuda.amp.autocast(dtype=aj.bfloat16):
            assert ((x @ x).dtype, (host @ host).dtype) == (aj.bfloat16, aj.bfloat16)
        with aj.autocast("cuda", enabled=False):
            assert (x @ x).dtype is aj.float32
    assert not aj.is_autocast_enabled("cuda") and aj.get_autocast_dtype("cuda") is aj.float16
    aj.set_autocast_enabled("cuda", True)
    assert (x @ x).dtype is aj.float16
    aj.set_autocast_enabled("cuda", False)


def test_losses_are_scaled_and_steps_with_infinite_gradients_left_out() -> None:
    w = aj.ones(2, device="cuda", requires_grad=True)
    optimizer, scaler = aj.optim.SGD([w], 0.5), aj.cuda.amp.GradScaler(init_scale=4.0)
    for factor, expected, scale in ((1.0, 0.5, 4.0), (float("inf"), 0.5, 2.0)):
        optimizer.zero_grad()
        scaler.scale((w * factor).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        assert (w.tolist(), scaler.get_scale()) == ([expected] * 2, scale)


DERIVATIVES: dict[str, Callable[[aj.Tensor], Any]] = {
    "jacrev": lambda x: aj.func.jacrev(aj.sin)(x),
    "jacfwd": lambda x: aj.func.jacfwd(aj.sin)(x),
    "hessian": lambda x: aj.func.hessian(lambda v: (v**3).sum())(x),
    "jacobian": lambda x: aj.autograd.functional.jacobian(aj.sin, x, vectorize=True),
    "vmap": lambda x: aj.vmap(aj.func.grad(lambda v: v.sin() * v))(x),
    "drawn in a batch": lambda x: aj.vmap(lambda v: aj.rand(2, device=x.device) + v, randomness="different")(x),
    "sparse": lambda x: (x.to_sparse() * 2).to_dense(),
    "gamma": lambda x: aj.distributions.Gamma(x + 1, x + 2).sample(),
    "counts": lambda x: aj.distributions.Poisson(x * 9).sample(),
    "normal": lambda x: aj.distributions.MultivariateNormal(x, aj.diag(x + 1)).log_prob(x * 2),
}


@pytest.mark.parametrize("name", DERIVATIVES)
def test_helpers_of_functions_are_made_where_their_operands_are(name: str) -> None:
    host = aj.tensor([0.0, 1.0, 0.5], device="cpu")
    aj.manual_seed(2)
    expected = DERIVATIVES[name](host)
    aj.manual_seed(2)
    found = DERIVATIVES[name](host.cuda())
    assert found.is_cuda
    np.testing.assert_allclose(found.tolist(), expected.tolist(), rtol=2e-5, atol=1e-6)
    assert aj.Generator("cuda").device == found.device and found.new([1.0]).is_cuda


def test_indices_of_many_elements_wait_for_their_counts() -> None:
    x = aj.tensor([[0.0, 3.0], [4.0, 0.0]], device="cuda")
    assert x.nonzero().tolist() == [[0, 1], [1, 0]] and x.nonzero().is_cuda
    assert aj.masked_select(x, x > 0).tolist() == [3.0, 4.0]
    assert x.unique().tolist() == [0.0, 3.0, 4.0] and aj.bincount(x.long().reshape(-1)).tolist() == [2, 0, 0, 1, 1]


ASKED = """
import sys, warnings
import autojit as aj
(aj.ones(2) * 2).sum()
assert not [m for m in sys.modules if m.startswith(("autojit.cuda", "autojit.runtime.gpu", "autojit.codegen.cuda"))]
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    for _ in range(3):
        aj.ones(2, device="cuda") + 1
assert len(told) == 1 and "emulated" in str(told[0].message) and told[0].filename == "<string>", told
assert aj.cuda.get_device_name() == "emulated sm_90" and (aj.ones(2) + 1).device.type == "cpu"
"""


def test_nothing_of_cuda_is_imported_before_it_is_used_and_emulation_is_told_once(monkeypatch: Any) -> None:
    monkeypatch.setenv("AUTOJIT_CUDA", "emulate")
    done = subprocess.run([sys.executable, "-c", ASKED], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_without_a_device_requests_say_what_is_missing(monkeypatch: Any) -> None:
    monkeypatch.setenv("AUTOJIT_CUDA_LIBRARY", "/nowhere/libcuda.so")
    monkeypatch.delenv("AUTOJIT_CUDA", raising=False)
    program = (
        "import autojit as aj\n"
        "assert not aj.cuda.is_available() and aj.cuda.device_count() == 0\n"
        "x = aj.ones(1)\n"
        "makes = lambda: aj.zeros(1, device='cuda')\n"
        "for use in (x.cuda, lambda: x.to('cuda'), makes, lambda: aj.nn.Linear(1, 1).cuda()):\n"
        "    try: use()\n"
        "    except RuntimeError as error: assert \"device 'cuda\" in str(error) and 'emulate' in str(error), error\n"
        "    else: raise SystemExit(1)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
