"""Every registered op obeys every law, on its own samples, in every dtype it takes."""

from __future__ import annotations

import numpy as np
import pytest

import autojit.ops  # noqa: F401
from autojit.core.dtypes import ALL_DTYPES
from autojit.ir import GraphBuilder, Op, verify
from autojit.transforms.adjoint import adjoint
from autojit.transforms.jvp import jvp
from tests.ops.laws import LAWS, Law, batching_is_a_loop, check_derivatives, graph_of, holding, type_of

OPS = [op for op in Op.registry.load().values() if op.__module__.startswith("autojit.ops.") and hasattr(op, "samples")]


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
@pytest.mark.parametrize("op_class", OPS, ids=lambda op: op.name)
def test_op_obeys(op_class: type[Op], law: Law) -> None:
    for dtype in ALL_DTYPES:
        for op, inputs in op_class.samples(dtype):  # type: ignore[attr-defined]
            try:
                law(op, inputs)
            except Exception as error:
                error.add_note(f"{op} on {[f'{x.dtype}{x.shape}' for x in inputs]}")
                raise


@pytest.mark.parametrize("name", ["zeta", "igamma", "igammac"])
def test_ops_with_a_derivative_by_one_operand_alone(name: str) -> None:
    op = Op.registry[name]()
    draws = np.random.default_rng(0)
    inputs = [draws.uniform(1.5, 4.0, (3, 2)), draws.uniform(0.7, 3.0, (3, 2))]
    graph = holding(op, inputs, 1)
    check_derivatives(graph, inputs, 1)
    if name != "zeta":  # that by s, which the second derivative goes through, does not exist
        check_derivatives(adjoint(graph), [*inputs, draws.standard_normal((3, 2))], 1)
    batching_is_a_loop(op, inputs)
    with pytest.raises(NotImplementedError):
        adjoint(graph_of(op, inputs))
    with pytest.raises(NotImplementedError):
        jvp(graph_of(op, inputs))


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_eigenvalues_and_what_no_phase_changes_of_their_vectors_are_differentiated(dtype: type) -> None:
    draws = np.random.default_rng(1)
    a = draws.standard_normal((2, 3, 3)) + 1j * draws.standard_normal((2, 3, 3))
    inputs = [np.ascontiguousarray(a.real if dtype is np.float64 else a) + np.diag([0.0, 2.0, 5.0])]
    builder = GraphBuilder()
    values, vectors = builder.apply(Op.registry["eig"](), [builder.input(type_of(inputs[0]))])
    (magnitudes,) = builder.apply(Op.registry["abs"](), [vectors])
    (squares,) = builder.apply(Op.registry["square"](), [magnitudes])
    check_derivatives(verify(builder.finish([values, squares])), inputs)
    check_derivatives(verify(builder.finish([squares])), inputs)
    check_derivatives(verify(builder.finish([values])), inputs)


def test_every_op_has_samples() -> None:
    lacking = [name for name, op in Op.registry.items() if op.__module__.startswith("autojit.ops.") and op not in OPS]
    of_ranks = [name for name in lacking if Op.registry[name].of_ranks]  # which have laws of their own
    assert [name for name in lacking if name not in of_ranks] == ["host_call"]  # calls what a user has written
