"""Module: where assigned values go, walks over the tree, saving and loading, hooks, conversion, copies, text."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import autojit as aj
from autojit import nn
from autojit.core.epoch import meet
from autojit.tensor.state import guard_epoch


def _net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2, bias=False))


def test_assignment_sorts_values_by_kind() -> None:
    module = nn.Module()
    module.weight = nn.Parameter(aj.ones(2))
    module.child = nn.Linear(1, 1)
    module.register_buffer("mean", aj.zeros(2))
    module.register_buffer("scratch", aj.zeros(2), persistent=False)
    module.size = 3
    assert list(module._parameters) == ["weight"]
    assert list(module._modules) == ["child"]
    assert list(module._buffers) == ["mean", "scratch"]
    assert module.__dict__["size"] == 3
    assert list(module.state_dict()) == ["weight", "mean", "child.weight", "child.bias"]
    module.mean = aj.ones(2)
    assert list(module._buffers) == ["mean", "scratch"]
    del module.weight
    assert not hasattr(module, "weight")


def test_wrong_assignments_name_the_attribute_and_what_was_expected() -> None:
    module = nn.BatchNorm1d(2)
    with pytest.raises(TypeError, match=r"cannot assign .* as parameter 'weight'"):
        module.weight = aj.ones(2)
    with pytest.raises(TypeError, match="cannot assign 'int' as buffer 'running_mean'"):
        module.running_mean = 3
    with pytest.raises(TypeError, match="is not a Module subclass"):
        module.add_module("x", 3)  # type: ignore[arg-type]
    with pytest.raises(KeyError, match=r"parameter name can.*t contain"):
        module.register_parameter("a.b", None)
    with pytest.raises(KeyError, match="attribute 'weight' already exists"):
        module.register_buffer("weight", None)
    with pytest.raises(AttributeError, match="'BatchNorm1d' object has no attribute 'nothing'"):
        module.nothing

    class Early(nn.Module):
        def __init__(self) -> None:
            self.weight = nn.Parameter(aj.ones(1))

    with pytest.raises(AttributeError, match=r"cannot assign parameters before Module.__init__\(\) call"):
        Early()
    with pytest.raises(NotImplementedError, match='missing the required "forward" function'):
        nn.Module()(1)


def test_walks_visit_shared_parts_once() -> None:
    shared = nn.Linear(2, 2)
    net = nn.Sequential(shared, shared, nn.Sequential(shared))
    assert [name for name, _ in net.named_parameters()] == ["0.weight", "0.bias"]
    assert [name for name, _ in net.named_parameters(remove_duplicate=False)][::2] == [
        "0.weight",
        "1.weight",
        "2.0.weight",
    ]
    assert [name for name, _ in net.named_modules()] == ["", "0", "2"]
    assert len(list(net.children())) == 2
    assert net.get_parameter("2.0.weight") is shared.weight
    with pytest.raises(AttributeError, match="Linear has no attribute `nothing`"):
        net.get_submodule("0.nothing")


def test_state_dict_round_trip_and_its_errors() -> None:
    one, two = _net(), _net()
    keys = [
        "0.weight",
        "0.bias",
        "1.weight",
        "1.bias",
        "1.running_mean",
        "1.running_var",
        "1.num_batches_tracked",
        "3.weight",
    ]
    assert list(one.state_dict()) == keys
    assert str(two.load_state_dict(one.state_dict())) == "<All keys matched successfully>"
    for a, b in zip(one.parameters(), two.parameters(), strict=True):
        assert aj.equal(a, b)
    state = one.state_dict()
    state["0.weight"] = aj.zeros(1, 1)
    del state["3.weight"]
    state["extra"] = aj.zeros(1)
    with pytest.raises(RuntimeError) as caught:
        two.load_state_dict(state)
    text = str(caught.value)
    assert text.startswith("Error(s) in loading state_dict for Sequential:")
    assert 'Missing key(s) in state_dict: "3.weight". ' in text
    assert 'Unexpected key(s) in state_dict: "extra". ' in text
    assert "size mismatch for 0.weight: copying a param with shape torch.Size([1, 1]) from checkpoint" in text
    del state["0.weight"]
    found = two.load_state_dict(state, strict=False)
    assert found.missing_keys == ["0.weight", "3.weight"]
    assert found.unexpected_keys == ["extra"]


def test_loading_with_assign_takes_the_tensors_themselves() -> None:
    module = nn.Linear(2, 2)
    state = {"weight": aj.ones(2, 2), "bias": aj.ones(2)}
    module.load_state_dict(state, assign=True)
    state["weight"].zero_()
    assert float(module.weight.sum()) == 0.0
    assert isinstance(module.weight, nn.Parameter)


def test_train_and_eval_reach_the_whole_tree_and_bump_the_guard_epoch() -> None:
    net = _net()
    before = int(guard_epoch[0])
    net.train(False).train()
    assert int(guard_epoch[0]) == before, "nothing that is compiled has read the modules"
    for module in net.modules():
        meet(vars(module))
    net.eval()
    assert not any(module.training for module in net.modules())
    assert int(guard_epoch[0]) != before
    before = int(guard_epoch[0])
    net.eval()
    assert int(guard_epoch[0]) == before, "nothing changed, so no compiled step needs to check its guards"
    with pytest.raises(ValueError, match="training mode is expected to be boolean"):
        net.train(1)  # type: ignore[arg-type]


def test_plain_attributes_bump_the_guard_epoch_only_when_they_change() -> None:
    module = nn.Module()
    module.scale = 1.0
    before = int(guard_epoch[0])
    module.scale = 2.0
    assert int(guard_epoch[0]) == before, "nothing that is compiled has read it"
    meet(vars(module), module._modules)
    module.scale = 2.0
    assert int(guard_epoch[0]) == before
    module.scale = 3.0
    assert int(guard_epoch[0]) == before + 1
    module.child = nn.ReLU()
    assert int(guard_epoch[0]) > before + 1


def test_conversion_keeps_parameter_objects_and_casts_floats_only() -> None:
    net = _net()
    weight = net[0].weight
    weight.grad = aj.ones_like(weight)
    net.double()
    assert net[0].weight is weight
    assert weight.dtype is aj.float64
    assert weight.grad.dtype is aj.float64
    assert net[1].num_batches_tracked.dtype is aj.int64
    assert net.to(aj.float32)[0].weight.dtype is aj.float32
    with pytest.raises(TypeError, match="only accepts floating point or complex dtypes"):
        net.to(aj.int64)


def test_conversions_that_write_are_seen_by_histories_and_reach_gradients() -> None:
    layer = nn.Linear(3, 2)
    layer.weight.grad = aj.ones(2, 3)
    squares, gradient, before = layer.weight.square(), layer.weight.grad, layer.weight._version
    layer._apply(lambda x: x.add_(1))
    assert layer.weight._version > before and layer.weight.grad is gradient and gradient.tolist() == [[2.0] * 3] * 2
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        squares.sum().backward()


@pytest.mark.parametrize("base", [nn.Parameter, nn.Buffer, aj.Tensor])
def test_subclasses_of_tensors_take_arguments_of_their_own(base: type) -> None:
    class Placed(base):  # type: ignore[misc]
        def __new__(cls, data: aj.Tensor, place: str = "", requires_grad: bool = True) -> aj.Tensor:
            made = aj.Tensor._make_subclass(cls, data, requires_grad)
            made.place = place
            return made

    made = Placed(aj.ones(2), place="here")
    assert type(made) is Placed and made.place == "here" and made.requires_grad and isinstance(made, base)


def test_wrappers_ask_the_module_that_they_wrap() -> None:
    class Wrapper(nn.Module):
        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self.inner = inner

        def __getattr__(self, name: str) -> object:
            try:
                return super().__getattr__(name)
            except AttributeError:
                return getattr(self.inner, name)

    layer = nn.Linear(2, 3)
    assert Wrapper(layer).weight is layer.weight and Wrapper(Wrapper(layer)).in_features == 2


def test_zero_grad_and_requires_grad() -> None:
    module = nn.Linear(2, 1)
    module(aj.ones(3, 2)).sum().backward()
    assert module.weight.grad is not None
    module.zero_grad(set_to_none=False)
    assert float(module.weight.grad.abs().sum()) == 0.0
    module.zero_grad()
    assert module.weight.grad is None
    assert not any(p.requires_grad for p in module.requires_grad_(False).parameters())


def test_deepcopy_and_pickle_give_independent_equal_modules() -> None:
    net = _net().eval()
    x = aj.ones(2, 3)
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert aj.equal(net(x), other(x))
        assert all(isinstance(p, nn.Parameter) and p.requires_grad for p in other.parameters())
        with aj.no_grad():
            other[0].weight.zero_()
        assert not aj.equal(net[0].weight, other[0].weight)


def test_forward_hooks_see_and_replace_arguments_and_results() -> None:
    module = nn.Identity()
    module.register_forward_pre_hook(lambda m, args: (args[0] + 1,))
    handle = module.register_forward_hook(lambda m, args, output: output * 10)
    assert float(module(aj.tensor(1.0))) == 20.0
    handle.remove()
    assert float(module(aj.tensor(1.0))) == 2.0
    seen: list[object] = []
    module.register_forward_hook(lambda m, args, kwargs, output: seen.append(kwargs), with_kwargs=True, prepend=True)
    module(aj.tensor(1.0))
    assert seen == [{}]


def test_always_called_hooks_run_after_an_exception() -> None:
    class Failing(nn.Module):
        def forward(self, x: aj.Tensor) -> aj.Tensor:
            raise ValueError("inside")

    module, seen = Failing(), []
    module.register_forward_hook(lambda m, args, output: seen.append(output), always_call=True)
    with pytest.raises(ValueError, match="inside"):
        module(aj.ones(1))
    assert seen == [None]


def test_full_backward_hooks_see_gradients_and_may_replace_them() -> None:
    module = nn.Linear(3, 2)
    with aj.no_grad():
        module.weight.fill_(1.0)
    seen = []
    module.register_full_backward_pre_hook(lambda m, grads: (grads[0] * 3,))
    module.register_full_backward_hook(lambda m, grad_in, grad_out: seen.append((grad_in[0], grad_out[0])))
    x = aj.ones(1, 3, requires_grad=True)
    module(x).sum().backward()
    assert seen[0][1].tolist() == [[3.0, 3.0]]
    assert seen[0][0].tolist() == x.grad.tolist() == [[6.0, 6.0, 6.0]]


def test_containers_index_slice_and_number_like_lists() -> None:
    net = _net()
    assert isinstance(net[1:3], nn.Sequential)
    assert len(net[1:3]) == 2
    net.insert(1, nn.Tanh())
    del net[0]
    assert [type(m).__name__ for m in net] == ["Tanh", "BatchNorm1d", "ReLU", "Linear"]
    assert list(net._modules) == ["0", "1", "2", "3"]
    with pytest.raises(IndexError):
        net[7]
    items = nn.ModuleList([nn.Linear(1, 1)]) + [nn.ReLU()]
    assert len(items.append(nn.ReLU())) == 3
    table = nn.ModuleDict({"a": nn.ReLU()})
    table["b"] = nn.Tanh()
    assert list(table) == ["a", "b"]
    assert type(table.pop("a")) is nn.ReLU
    parameters = nn.ParameterList([aj.ones(1), aj.ones(2)])
    assert [p.numel() for p in parameters.parameters()] == [1, 2]
    named = nn.ParameterDict({"x": aj.ones(1)})
    assert [name for name, _ in named.named_parameters()] == ["x"]


def test_repr_shows_the_tree_and_folds_equal_items_of_a_list() -> None:
    text = repr(nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2), nn.Sequential(nn.ReLU())]))
    assert text == (
        "ModuleList(\n  (0-1): 2 x Linear(in_features=2, out_features=2, bias=True)\n"
        "  (2): Sequential(\n    (0): ReLU()\n  )\n)"
    )
    assert repr(nn.LayerNorm(4)) == "LayerNorm((4,), eps=1e-05, elementwise_affine=True, bias=True)"


def test_utilities_on_gradients_and_vectors() -> None:
    p, q = nn.Parameter(aj.zeros(2)), nn.Parameter(aj.zeros(1))
    p.grad, q.grad = aj.tensor([3.0, 0.0]), aj.tensor([4.0])
    total = nn.utils.clip_grad_norm_([p, q], 1.0)
    assert float(total) == 5.0
    np.testing.assert_allclose(np.concatenate([p.grad.numpy(), q.grad.numpy()]), [0.6, 0.0, 0.8], rtol=1e-5)
    nn.utils.clip_grad_value_([p, q], 0.5)
    assert float(q.grad) == 0.5
    vector = aj.arange(3.0)
    nn.utils.vector_to_parameters(vector, [p, q])
    assert nn.utils.parameters_to_vector([p, q]).tolist() == [0.0, 1.0, 2.0]
    assert p.requires_grad
