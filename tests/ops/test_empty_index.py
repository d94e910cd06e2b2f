"""An index without elements leaves a tensor as it is, whatever extents it and its source have."""

from __future__ import annotations

import pytest

import autojit as aj

SHAPES = [(0,), (0, 3), (1, 0, 1)]
SOURCES = [(), (0,), (3,), (2, 2)]


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("extents", SOURCES)
def test_scatters_of_nothing_give_the_tensor_and_its_gradient(
    shape: tuple[int, ...], extents: tuple[int, ...], compiled: bool
) -> None:
    index = aj.zeros(shape, dtype=aj.int64)

    def slopes(x: aj.Tensor, src: aj.Tensor) -> list[aj.Tensor]:
        made = [x.scatter(0, index, src), x.scatter_add(0, index, src), x.scatter(0, index, 2.0)]
        made += [x.scatter_reduce(0, index, src, fold) for fold in ("sum", "prod", "mean", "amax", "amin")]
        made += [x.detach().scatter(0, index, src, reduce="add"), x.detach().scatter_(0, index, src, reduce="multiply")]
        total = aj.stack([m.sum() for m in made[:-2]]).sum()
        return [m.detach() for m in made] + [*aj.autograd.grad(total, (x, src))]

    for start in (aj.arange(4.0).reshape(2, 2), aj.tensor(3.0)):
        x, src = start.clone().requires_grad_(), aj.ones(extents, requires_grad=True)
        *made, to_x, to_src = (aj.jit(slopes) if compiled else slopes)(x, src)
        assert all(m.tolist() == x.tolist() for m in made)
        assert to_x.eq(8).all() and to_src.shape == src.shape and to_src.eq(0).all()


def test_the_mean_of_complex_numbers_scattered_is_theirs() -> None:
    src = aj.tensor([1 + 2j, 3 - 1j, 5j])
    found = aj.zeros(3, dtype=aj.complex64).scatter_reduce(0, aj.tensor([0, 0, 1]), src, "mean", include_self=False)
    assert found.tolist() == [2 + 0.5j, 5j, 0j]


def test_pieces_of_no_data_are_a_fold_s_beginning_and_are_recorded() -> None:
    data = aj.zeros(0, requires_grad=True)
    found = aj.segment_reduce(data, "max", lengths=aj.tensor([0, 0]), initial=3.0)
    found.sum().backward()
    assert found.tolist() == [3.0, 3.0] and data.grad is not None and data.grad.shape == (0,)
