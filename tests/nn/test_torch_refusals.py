"""What torch's modules refuse, or take in an order of their own."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj
import autojit.nn.functional as F
from autojit import nn
from autojit.nn.utils import prune


def test_further_state_is_saved_by_who_gives_it_and_taken_by_who_sets_it() -> None:
    class Gives(nn.Module):
        def get_extra_state(self) -> Any:
            return 5

    class Takes(nn.Module):
        def set_extra_state(self, state: Any) -> None:
            self.taken = state

    assert list(Gives().state_dict()) == ["_extra_state"] and not Takes().state_dict()
    with pytest.raises(RuntimeError, match="Unexpected key"):
        Gives().load_state_dict(Gives().state_dict())
    with pytest.raises(RuntimeError, match="Missing key"):
        Takes().load_state_dict(Takes().state_dict())
    module = Takes()
    module.load_state_dict(Gives().state_dict())
    assert module.taken == 5


def test_a_dict_of_parameters_takes_plain_dicts_in_order_of_their_keys() -> None:
    values = {"b": aj.ones(1), "a": aj.zeros(1)}
    assert list(nn.ParameterDict(values)) == ["a", "b"]
    assert list(nn.ParameterDict(list(values.items()))) == ["b", "a"]
    for given, kind in ((1, TypeError), ([1], TypeError), ([(1, 2, 3)], ValueError)):
        with pytest.raises(kind, match=r"Parameters?Dict"):
            nn.ParameterDict().update(given)


def test_a_subclass_may_register_buffers_without_saying_which_persist() -> None:
    def register_buffer(self: nn.Module, name: str, tensor: Any) -> None:
        nn.Module.register_buffer(self, name, tensor, True)

    module: Any = type("Old", (nn.Module,), {"register_buffer": register_buffer})()
    module.kept = nn.Buffer(aj.ones(2))
    assert list(module.state_dict()) == ["kept"]
    with pytest.raises(RuntimeError, match="non-persistent"):
        module.lost = nn.Buffer(aj.ones(2), persistent=False)


def test_losses_name_the_rank_and_the_kind_that_they_take() -> None:
    x = aj.ones(2, 3)
    with pytest.raises(RuntimeError, match="0D or 1D target tensor expected"):
        F.cosine_embedding_loss(x, x, aj.ones(2, 1))
    with pytest.raises(RuntimeError, match="expects 2D"):
        F.cosine_embedding_loss(x, x[0], aj.ones(2))
    with pytest.raises(RuntimeError, match="integral"):
        F.ctc_loss(aj.ones(2, 1, 3).log_softmax(2), aj.tensor([[1]]), aj.tensor([2.0]), aj.tensor([1]))


def test_grids_and_blocks_say_which_extent_is_wrong() -> None:
    theta = aj.eye(2, 3).unsqueeze(0)
    with pytest.warns(UserWarning, match="See the documentation of affine_grid for details"):
        F.affine_grid(theta, (1, 1, 2, 1), align_corners=True)
    F.affine_grid(theta, (1, 1, 2, 1), align_corners=False)
    with pytest.raises(RuntimeError, match="size 1 in last dimension"):
        F.grid_sample(aj.ones(1, 2, 2), aj.ones(1, 1, 1, 2), align_corners=False)
    assert F.grid_sample(aj.ones(2, 0, 2, 3), aj.ones(2, 4, 5, 2), align_corners=False).shape == (2, 0, 4, 5)
    with pytest.raises(RuntimeError, match="calculated shape of the array of sliding blocks"):
        F.fold(aj.ones(1, 12, 12), (4, 5), (2, 2), 8)


def test_a_copy_of_a_layer_has_its_sparse_gradient() -> None:
    layer = nn.Embedding(3, 2, sparse=True)
    layer(aj.tensor([1])).sum().backward()
    for grad in (copy.deepcopy(layer.weight.grad), copy.deepcopy(aj.eye(3, 2).to_sparse())):
        assert grad is not None and grad.is_sparse and grad.to_dense().sum() == 2


def test_a_layer_without_shapes_has_no_memory_to_share() -> None:
    with pytest.raises(RuntimeError, match="share memory on an uninitialized parameter"):
        nn.LazyLinear(2).share_memory()


def test_a_pruned_layer_comes_back_from_a_file() -> None:
    layer, file = nn.Linear(3, 2), io.BytesIO()
    prune.l1_unstructured(layer, "weight", 0.5)
    aj.save(layer, file)
    file.seek(0)
    again = aj.load(file, weights_only=False)
    assert list(again.state_dict()) == list(layer.state_dict()) and aj.equal(again.weight, layer.weight)
    again(aj.ones(1, 3)).sum().backward()
    assert again.weight_orig.grad is not None


REFUSED: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "one value in each group": (lambda: nn.GroupNorm(4, 4)(aj.ones(1, 4, 1)), ValueError, "more than 1 value"),
    "a size as a float": (lambda: nn.Unflatten(1, (2, 5.0)), TypeError, "element of type float at pos 1"),
    "no upscaling": (lambda: F.pixel_shuffle(aj.ones(1, 4, 2, 2), 0), RuntimeError, "a positive upscale_factor"),
    "no downscaling": (lambda: F.pixel_unshuffle(aj.ones(1, 4, 2, 2), 0), RuntimeError, "a positive downscale_factor"),
    "a reflection of nothing": (lambda: nn.ReflectionPad1d(2)(aj.ones(3, 0, 10)), RuntimeError, "2D or 3D"),
    "edges of nothing": (lambda: nn.ReplicationPad2d(2)(aj.ones(3, 0, 10, 10)), RuntimeError, "Expected 3D or 4D"),
    "classes in a matrix": (
        lambda: F.cross_entropy(aj.ones(2, 3), aj.zeros(2, 1, dtype=aj.int64)),
        RuntimeError,
        "1D target tensor expected",
    ),
    "margins of nothing": (
        lambda: F.multi_margin_loss(aj.ones(0), aj.zeros(1, dtype=aj.int64)),
        RuntimeError,
        "Expected non-empty",
    ),
    "a mask of other keys": (
        lambda: nn.MultiheadAttention(2, 1)(*[aj.ones(3, 1, 2)] * 3, key_padding_mask=aj.ones(1, 4) > 0),
        AssertionError,
        r"key_padded_mask.shape\[1\] to be 3",
    ),
    "a buffer for an attribute": (
        lambda: setattr(nn.Linear(1, 1), "in_features", nn.Buffer(aj.ones(1))),
        KeyError,
        "already exists",
    ),
    "a buffer for a parameter": (
        lambda: setattr(nn.Linear(1, 1), "weight", nn.Buffer(aj.ones(1))),
        TypeError,
        "as parameter 'weight'",
    ),
    "activations into overlapping memory": (
        lambda: F.softplus(aj.ones(2), out=aj.ones(1).expand(2)),
        RuntimeError,
        "unsupported operation",
    ),
    "bags that begin late": (
        lambda: F.embedding_bag(aj.tensor([1, 2]), aj.ones(3, 1), aj.tensor([1])),
        RuntimeError,
        "has to be 0.* got 1",
    ),
    "bags beyond the indices": (
        lambda: F.embedding_bag(aj.tensor([1, 2]), aj.ones(3, 1), aj.tensor([0, 3])),
        RuntimeError,
        "length 2 but got",
    ),
    "weights of other samples": (
        lambda: F.embedding_bag(aj.tensor([[1, 2]]), aj.ones(3, 1), per_sample_weights=aj.ones(2), mode="sum"),
        ValueError,
        "must have the same shape as the input",
    ),
    "weights of another dtype": (
        lambda: F.embedding_bag(
            aj.tensor([[1]]), aj.ones(3, 1), per_sample_weights=aj.ones(1, 1, dtype=aj.float64), mode="sum"
        ),
        RuntimeError,
        "have the same type as",
    ),
    "windows beyond memory": (
        lambda: F.adaptive_max_pool1d(aj.ones(2, 2, 2), 2**62),
        RuntimeError,
        "calculation overflowed",
    ),
    "a drawn pool of one number": (
        lambda: F.fractional_max_pool2d(aj.ones(1, 5, 5), (1,), output_size=2),
        RuntimeError,
        "kernel_size must either",
    ),
    "nothing left to go around": (
        lambda: F.pad(aj.ones(1, 1, 4), (-3, -2), mode="circular"),
        RuntimeError,
        "resulting in an empty dimension",
    ),
    "extents beyond numbers": (
        lambda: F.interpolate(aj.ones(1, 1, 2), scale_factor=1e20),
        RuntimeError,
        "without overflow",
    ),
    "a module to a place and a switch": (lambda: nn.Linear(1, 1).to("cpu", True), TypeError, "invalid combination"),
    "a module to a list": (lambda: nn.Linear(1, 1).to([]), TypeError, "invalid combination"),
    "channels of another layer": (
        lambda: nn.InstanceNorm1d(3, affine=True)(aj.ones(2, 4)),
        ValueError,
        "size at dim=0 to match num_features",
    ),
    "an axis twice": (lambda: aj.masked.prod(aj.ones(2, 3), dim=(0, 0)), RuntimeError, "appears multiple times"),
    "a mean of whole numbers": (
        lambda: aj.nanmean(aj.ones(2, dtype=aj.int64)),
        RuntimeError,
        "expected input to have floating point",
    ),
    "a copy of a module": (lambda: nn.Linear(1, 1).to("cpu", copy=True), RuntimeError, "does not accept copy"),
}


@pytest.mark.parametrize(("asked", "kind", "said"), REFUSED.values(), ids=REFUSED)
def test_modules_refuse_what_torchs_do(asked: Callable[[], Any], kind: type[Exception], said: str) -> None:
    with pytest.raises(kind, match=said):
        asked()


def test_nothing_is_padded_and_sampled_in_a_batch_of_nothing() -> None:
    assert nn.ReflectionPad1d(2)(aj.ones(0, 3, 10)).shape == (0, 3, 14)
    image, grid = aj.ones(0, 2, 7, 4, 5), aj.ones(0, 9, 5, 5, 3)
    assert F.grid_sample(image, grid, align_corners=False).shape == (0, 2, 9, 5, 5)


def test_dicts_of_parameters_are_joined() -> None:
    a, b = nn.ParameterDict({"x": aj.zeros(1), "y": aj.zeros(1)}), nn.ParameterDict({"y": aj.ones(1), "z": aj.ones(1)})
    both = a | b
    assert list(both) == ["x", "y", "z"] and both["y"] is b["y"] and list(a) == ["x", "y"]
    a |= b
    assert dict(a.items()) == dict(both.items())


def test_what_is_said_of_layers_of_one_image() -> None:
    """Steps along axes of one element say nothing, so such images are in both formats: batch norm goes by that."""
    image = aj.arange(6.0).reshape(1, 3, 2, 1).permute(0, 2, 1, 3)
    found = nn.BatchNorm2d(2).eval()(image)
    assert found.is_contiguous(memory_format=aj.channels_last)
    aj.testing.assert_close(found, nn.BatchNorm2d(2).eval()(image.contiguous()), check_stride=False)


def test_complex_modules_are_told_to_be_new() -> None:
    with pytest.warns(UserWarning, match="Complex modules are a new feature"):
        assert nn.Linear(1, 1).to(aj.complex64).weight.dtype is aj.complex64


ACTIVATIONS: list[Any] = [F.gelu, F.logsigmoid, F.softplus, F.softshrink]


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations_go_into_a_tensor_that_is_given(activation: Any) -> None:
    x, out = aj.linspace(-2, 2, 6).reshape(2, 3).t(), aj.empty(0)
    assert activation(x, out=out) is out and aj.equal(out, activation(x))


def test_a_layer_without_parameters_warns_of_other_channels() -> None:
    with pytest.warns(UserWarning, match="which is not used because affine=False"):
        assert nn.InstanceNorm1d(3)(aj.ones(2, 4, 5)).shape == (2, 4, 5)


def test_states_of_before_spectral_norm_kept_both_vectors_are_loaded() -> None:
    aj.manual_seed(0)
    layer = nn.utils.spectral_norm(nn.Linear(3, 5))
    x = aj.randn(2, 3)
    layer(x)
    older = layer.state_dict()
    del older._metadata[""]["spectral_norm"], older["weight_v"]
    older["weight"] = layer.weight.detach().clone()
    wanted = layer.eval()(x)
    again = nn.utils.spectral_norm(nn.Linear(3, 5)).eval()
    again.load_state_dict(older)
    aj.testing.assert_close(again(x), wanted)
    del older["weight"]
    with pytest.raises(RuntimeError, match="Missing key"):
        again.load_state_dict(older)
    assert not nn.utils.remove_spectral_norm(again)._load_state_dict_pre_hooks


def test_dicts_of_parameters_are_copied_in_their_order() -> None:
    d = nn.ParameterDict([("b", aj.ones(1)), ("a", aj.ones(1))])
    assert list(d.copy()) == list(d | nn.ParameterDict()) == ["b", "a"]
    assert list(d.fromkeys(["z", "y"])) == ["z", "y"]


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_without_indices_are_zero(mode: str) -> None:
    weight = aj.ones(3, 2, requires_grad=True)
    found = F.embedding_bag(aj.empty(0, dtype=aj.int64), weight, aj.zeros(2, dtype=aj.int64), mode=mode)
    assert aj.equal(found, aj.zeros(2, 2))
    found.sum().backward()
    assert aj.equal(weight.grad, aj.zeros(3, 2))


def test_sparse_gradients_have_the_rows_that_were_looked_up_as_often_as_they_were() -> None:
    index = aj.tensor([2, 0, 2])
    layer = nn.Embedding(4, 2, padding_idx=0, sparse=True)
    layer(index).sum().backward()
    index[0] = 3  # the gradient's places are its own
    layer(aj.tensor([1])).sum().backward()
    grad = layer.weight.grad
    assert grad is not None and grad._indices().tolist() == [[2, 2, 1]] and not grad.is_coalesced()
    assert aj.equal(grad.to_dense()[:, 0], aj.tensor([0.0, 1.0, 2.0, 0.0]))


def test_rows_are_bounded_without_their_tangents() -> None:
    weight, tangent = aj.full((3, 2), 4.0), aj.ones(3, 2)
    with aj.autograd.forward_ad.dual_level():
        dual = aj.autograd.forward_ad.make_dual(weight, tangent)
        found = F.embedding(aj.tensor([1]), dual, max_norm=1.0)
        assert aj.equal(aj.autograd.forward_ad.unpack_dual(found).tangent, aj.ones(1, 2))
    assert float(weight[1].norm()) <= 1.0 < float(weight[0].norm())


@pytest.mark.parametrize("cell", [nn.RNNCell, nn.GRUCell, nn.LSTMCell])
def test_cells_say_which_state_does_not_fit(cell: Any) -> None:
    layer, x = cell(10, 20), aj.randn(3, 10)
    pair = cell is nn.LSTMCell
    with pytest.raises(RuntimeError, match="input has inconsistent input_size: got 11 expected 10"):
        layer(aj.randn(3, 11))
    wide, long = aj.randn(3, 21), aj.randn(5, 20)
    with pytest.raises(RuntimeError, match=f"hidden{int(pair)} has inconsistent hidden_size: got 21, expected 20"):
        layer(x, (aj.randn(3, 20), wide) if pair else wide)
    with pytest.raises(RuntimeError, match="Input batch size 3 doesn't match hidden0 batch size 5"):
        layer(x, (long, long) if pair else long)
    with pytest.raises(RuntimeError, match="Input batch size none doesn't match hidden0 batch size 5"):
        layer(x[0], (long, long) if pair else long)
