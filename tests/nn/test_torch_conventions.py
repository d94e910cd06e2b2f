"""What programs see of torch's conventions: texts that they match, states of old versions, layouts of results."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj
from autojit import nn
from autojit.nn import functional as F

x = aj.arange(6.0).reshape(2, 3)


def assigned(mask: list[bool], value: aj.Tensor) -> None:
    y = aj.zeros(4)
    y[aj.tensor(mask)] = value


REFUSED: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: x.__delitem__(0), TypeError, "does not support deleting items"),
    (lambda: x["a":"b"], TypeError, "slice indices must be integers or None or have an __index__ method"),
    (lambda: x[0.0:1], TypeError, "slice indices must be integers"),
    (lambda: x[::0], ValueError, "slice step cannot be zero"),
    (lambda: x[::-1], ValueError, "step must be greater than zero"),
    (lambda: aj.tensor(1.0)[0], IndexError, "invalid index of a 0-dim tensor"),
    (lambda: aj.tensor(1.0)[0:1], IndexError, r"slice\(\) cannot be applied to a 0-dim tensor"),
    (lambda: x[aj.tensor([0, 1]), aj.tensor([0, 1, 2])], IndexError, r"not be broadcast together .* \[2\], \[3\]"),
    (lambda: assigned([True] * 4, aj.ones(3)), RuntimeError, r"value tensor of shape \[3\] .* of shape \[4\]"),
    (lambda: assigned([False] * 4, aj.ones(2)), RuntimeError, r"value tensor of shape \[2\] .* of shape \[0\]"),
    (lambda: aj.take_along_dim(x, aj.zeros(1, 1), 1), RuntimeError, "dtype of indices should be Long"),
    (lambda: aj.take_along_dim(x, aj.tensor([0]), 1), RuntimeError, "2 dimensions for input, and 1 dimensions"),
    (lambda: x.expand(4, 3), RuntimeError, r"expanded size of the tensor \(4\) must match the existing size \(2\)"),
    (lambda: x.expand(2, 4), RuntimeError, r"non-singleton dimension 1\.  Target sizes: \[2, 4\]\.  Tensor sizes: \[2"),
    (lambda: x.expand(-1, 2, 3), RuntimeError, r"\(-1\) isn't allowed in a leading, non-existing dimension 0"),
    (lambda: nn.RNN(3, 4, proj_size=2), ValueError, "proj_size argument is only supported for LSTM"),  # type: ignore[call-arg]
    (lambda: nn.GRU(3, 4, proj_size=2), ValueError, "proj_size argument is only supported for LSTM"),  # type: ignore[call-arg]
    (lambda: nn.GRU(3, 4, other=2), TypeError, "unexpected keyword argument 'other'"),  # type: ignore[call-arg]
    (lambda: nn.utils.rnn.pad_sequence(5), RuntimeError, "Expected iterable for input sequences"),  # type: ignore[arg-type]
    (lambda: F.embedding_bag(aj.tensor([[1]]), x, padding_idx=7), RuntimeError, "must be within the number of embed"),
]  # fmt: skip


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case[2][:30])
def test_refusals_have_torchs_type_and_text(case: tuple[Callable[[], Any], type[Exception], str]) -> None:
    call, kind, text = case
    with pytest.raises(kind, match=text):
        call()


def test_masks_of_bytes_are_warned_of_and_choose_as_truth_values_do() -> None:
    mask = aj.tensor([0, 1], dtype=aj.uint8)
    with pytest.warns(UserWarning, match="indexing with dtype uint8 is now deprecated"):
        assert aj.equal(x[mask], x[mask.bool()])


@pytest.mark.parametrize("layer", [nn.BatchNorm1d, nn.BatchNorm2d, nn.InstanceNorm1d])
def test_states_of_normalisation_from_before_batches_were_counted_load(layer: Any) -> None:
    options = {"track_running_stats": True}
    one, other = layer(3, **options), layer(3, **options)
    one.num_batches_tracked.fill_(5)
    state = one.state_dict()
    del state["num_batches_tracked"]
    state._metadata[""]["version"] = 1
    other.load_state_dict(state)
    assert other.num_batches_tracked.item() == 0
    state._metadata[""]["version"] = 2
    with pytest.raises(RuntimeError, match="num_batches_tracked"):
        other.load_state_dict(state)


def test_the_prefix_of_data_parallel_states_is_taken_off() -> None:
    model = nn.Sequential(nn.Linear(1, 1))
    state = nn.ModuleDict({"module": model}).state_dict()
    nn.modules.utils.consume_prefix_in_state_dict_if_present(state, "module.")
    assert list(state) == list(model.state_dict())
    model.load_state_dict(state)


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
def test_interpolation_keeps_the_memory_format(mode: str) -> None:
    image = aj.randn(2, 4, 6, 6)
    turned = image.to(memory_format=aj.channels_last)
    for part in (lambda t: t, lambda t: t[:, :, 1:-1], lambda t: t[:, :, ::2, ::2]):
        found = F.interpolate(part(turned), scale_factor=2, mode=mode)
        assert found.is_contiguous(memory_format=aj.channels_last) and not found.is_contiguous()
        assert aj.equal(found, F.interpolate(part(image), scale_factor=2, mode=mode))


def test_clipping_what_an_empty_generator_gives_is_warned_of() -> None:
    with pytest.warns(UserWarning, match="empty generator, no gradient clipping"):
        assert nn.utils.clip_grad_norm_((p for p in ()), 1.0).item() == 0


def test_a_sequence_times_a_number_repeats_its_modules() -> None:
    chain = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    own = list(chain)
    assert list(chain * 2) == list(2 * chain) == own * 2 and list(chain) == own
    chain *= 3
    assert list(chain) == own * 3
    with pytest.raises(ValueError, match="Non-positive multiplication factor 0"):
        chain * 0
    with pytest.raises(TypeError, match="unsupported operand"):
        chain * 1.5  # type: ignore[operator]


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_hooks_on_gradients_leave_who_requires_them(compiled: bool) -> None:
    seen = []

    class Three(nn.Module):
        def forward(self, *tensors: aj.Tensor) -> aj.Tensor:
            seen.append([t.requires_grad for t in tensors])
            return sum((t.sum() for t in tensors), aj.zeros(()))

    module, x = Three(), aj.ones(2, requires_grad=True)
    module.register_full_backward_hook(lambda module, grads_in, grads_out: None)
    (aj.jit(module) if compiled else module)(x, x.detach(), x)
    assert seen[0] == [True, False, True]


class Copied(nn.Module):
    """Its argument behind some copies, as the tensor or in a container."""

    def __init__(self, made: Callable[[Any], Any]) -> None:
        super().__init__()
        self.made = made

    def forward(self, value: Any) -> Any:
        return self.made(value)


MISSED: list[tuple[Callable[[Any], Any], bool, str | None]] = [
    (lambda x: x.clone(), False, None),
    (lambda x: x.clone().clone(), False, "the forward contains multiple autograd Nodes"),
    (lambda x: (x.clone(), x.clone()), False, "outputs are generated by different autograd Nodes"),
    (lambda x: [x.clone()], False, "does not return a single Tensor or a tuple of Tensors"),
    (lambda items: items[0].clone(), True, "does not take as input a single Tensor or a tuple of Tensors"),
]


@pytest.mark.parametrize(("made", "listed", "said"), MISSED)
def test_what_older_backward_hooks_miss_is_told(made: Callable[[Any], Any], listed: bool, said: str | None) -> None:
    module, x = Copied(made), aj.ones(2, requires_grad=True)
    module.register_backward_hook(lambda *args: None)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        module([x] if listed else x)
    assert [said in str(w.message) for w in told if said] == [True] * bool(said) and len(told) == bool(said)


def test_full_backward_hooks_tell_what_they_cannot_see_and_refuse_what_cannot_be() -> None:
    module = Copied(lambda x: {"made": x.clone()})
    module.register_full_backward_hook(lambda *args: None)
    with pytest.warns(UserWarning, match="should be a Tensor or a tuple of Tensors but received <class 'dict'>"):
        module(aj.ones(2, requires_grad=True))
    layer = nn.Linear(2, 3)
    layer.register_full_backward_hook(lambda module, grads_in, grads_out: aj.ones(1, 2))
    with pytest.raises(RuntimeError, match="where no input requires gradient"):
        layer(aj.ones(1, 2)).sum().backward()


def test_what_forward_raises_is_what_the_caller_sees() -> None:
    def failing(*args: object) -> None:
        raise RuntimeError("in the hook")

    module = nn.Linear(2, 2)
    module.register_forward_hook(failing, always_call=True)
    with pytest.raises(ValueError, match="in forward"), pytest.warns(UserWarning, match="silenced.*in the hook"):
        module.register_forward_pre_hook(lambda module, args: (_ for _ in ()).throw(ValueError("in forward")))
        module(aj.ones(1, 2))


@pytest.mark.parametrize("shape", [(1, 2), (1, 2, 2), (1, 2, 2, 2, 2)])
def test_unusual_axes_of_dropout2d_are_told(shape: tuple[int, ...]) -> None:
    with pytest.warns(UserWarning, match=rf"Received a {len(shape)}-?D input to dropout2d"):
        nn.Dropout2d()(aj.ones(shape))


def test_a_query_without_keys_has_the_weights_that_softmax_gives() -> None:
    layer = nn.MultiheadAttention(4, 2, batch_first=True)
    x, mask = aj.ones(1, 3, 4), aj.tensor([[True] * 3, [False] * 3, [True, False, True]])
    output, weights = layer(x, x, x, attn_mask=mask)
    assert output[0, 0].isnan().all() and weights[0, 0].isnan().all()
    assert weights[0, 1:].tolist() == [[pytest.approx(1 / 3)] * 3, [0, 1, 0]]
    assert layer(x, x, x, attn_mask=mask, need_weights=False)[0].isfinite().all()


def test_recurrent_layers_name_their_parameters_in_torchs_order() -> None:
    layer = nn.LSTM(2, 3, 2, bidirectional=True, proj_size=1)
    assert layer._flat_weights_names == list(dict(layer.named_parameters()))
    assert all(a is b for a, b in zip(layer._flat_weights, layer.parameters(), strict=True))
