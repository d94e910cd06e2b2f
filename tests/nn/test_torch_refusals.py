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
