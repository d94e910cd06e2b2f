"""What holds of torch's collectives on any number of ranks."""

from __future__ import annotations

import os
import time
from functools import reduce

import numpy as np

import autojit as aj
from autojit import distributed as dist
from autojit.distributed import mpi

REDUCED = ["float64", "float32", "float16", "bfloat16", "int64", "int32", "int8", "uint8", "complex128", "bool"]
MOVED = [*REDUCED, "complex64", "int16", "uint16", "float8_e4m3fn"]
SHAPES = [(), (0,), (5,), (3, 4), (2, 0, 3)]
COMBINE = {
    dist.ReduceOp.SUM: np.add,
    dist.ReduceOp.PRODUCT: np.multiply,
    dist.ReduceOp.MAX: np.maximum,
    dist.ReduceOp.MIN: np.minimum,
}


def values(shape: tuple[int, ...], dtype: str, rank: int) -> aj.Tensor:
    """Every rank knows all ranks' values."""
    drawn = np.random.default_rng(100 + rank).integers(0, 5, shape)
    return aj.tensor(np.asarray(drawn)).to(getattr(aj, dtype))


def every(shape: tuple[int, ...], dtype: str) -> list[aj.Tensor]:
    return [values(shape, dtype, r) for r in range(dist.get_world_size())]


def same(found: aj.Tensor, expected: aj.Tensor) -> None:
    assert found.dtype is expected.dtype, (found.dtype, expected.dtype)
    assert found.shape == expected.shape
    assert found.tolist() == expected.tolist(), (found, expected)


def check_all_reduce_is_numpys_over_the_ranks() -> None:
    for dtype in REDUCED:
        for op, combine in COMBINE.items():
            if dtype == "complex128" and op in (dist.ReduceOp.MAX, dist.ReduceOp.MIN):
                continue
            for shape in SHAPES:
                x = values(shape, dtype, dist.get_rank())
                assert dist.all_reduce(x, op) is None
                arrays = [
                    t.float().numpy() if t.dtype in (aj.float16, aj.bfloat16) else t.numpy()
                    for t in every(shape, dtype)
                ]
                expected = np.asarray(reduce(combine, arrays)).astype(arrays[0].dtype)
                same(x, aj.tensor(expected).to(x.dtype))


def check_averages_and_bits() -> None:
    n = dist.get_world_size()
    x = values((4,), "float64", dist.get_rank())
    dist.all_reduce(x, dist.ReduceOp.AVG)
    assert np.allclose(x.numpy(), sum(t.numpy() for t in every((4,), "float64")) / n, rtol=1e-15)
    y = values((4,), "int32", dist.get_rank())
    dist.all_reduce(y, dist.ReduceOp.BXOR)
    same(y, aj.tensor(reduce(np.bitwise_xor, [t.numpy() for t in every((4,), "int32")])))


def check_all_that_only_moves_moves_every_dtype() -> None:
    n, me = dist.get_world_size(), dist.get_rank()
    for dtype in MOVED:
        for shape in SHAPES:
            mine, all_of_them = values(shape, dtype, me), every(shape, dtype)
            listed = [aj.empty_like(mine) for _ in range(n)]
            dist.all_gather(listed, mine)
            for found, expected in zip(listed, all_of_them, strict=True):
                same(found.float() if "float8" in dtype else found, expected.float() if "float8" in dtype else expected)
            whole = aj.empty((n, *shape), dtype=mine.dtype)
            dist.all_gather_into_tensor(whole, mine)
            root = n - 1
            x = mine.clone()
            dist.broadcast(x, root)
            parts = [t.clone() for t in all_of_them]
            back = [aj.empty_like(mine) for _ in range(n)]
            dist.all_to_all(back, parts)  # rank r's part for me is my own value, on all
            for pair in (
                [(whole[r], all_of_them[r]) for r in range(n)] + [(x, all_of_them[root])] + [(b, mine) for b in back]
            ):
                same(*(t.float() if "float8" in dtype else t for t in pair))


def check_reduce_scatter_is_a_part_of_all_reduce() -> None:
    n, me = dist.get_world_size(), dist.get_rank()
    for dtype in ("float64", "float16", "int32", "complex128"):
        for shape in ((n, 3), (2 * n,), (n, 0)):
            x = values(shape, dtype, me)
            whole = x.clone()
            dist.all_reduce(whole)
            each = shape[0] // n
            out = aj.empty((each, *shape[1:]), dtype=x.dtype)
            dist.reduce_scatter_tensor(out, x)
            same(out, whole[me * each : (me + 1) * each])
            listed = aj.empty_like(out)
            dist.reduce_scatter(listed, list(x.split(each)))
            same(listed, out)


def check_uneven_exchanges() -> None:
    n, me = dist.get_world_size(), dist.get_rank()
    sent = [r + 1 for r in range(n)]  # to rank r: r + 1 rows
    x = aj.arange(sum(sent) * 2).reshape(-1, 2) + 100 * me
    out = aj.empty((n * (me + 1), 2), dtype=aj.int64)
    dist.all_to_all_single(out, x, [me + 1] * n, sent)
    start = sum(sent[:me])
    rows = aj.arange(start * 2, (start + me + 1) * 2).reshape(-1, 2)
    same(out, aj.cat([rows + 100 * r for r in range(n)]))
    for name, exchange in (
        ("all_to_all", lambda: dist.all_to_all([aj.empty(2)] * n, [aj.empty(3)] * n)),
        ("all_to_all_single", lambda: dist.all_to_all_single(aj.empty(2 * n), aj.empty(3 * n), [2] * n, [3] * n)),
    ):
        try:
            exchange()
        except ValueError as error:
            assert f"{name}: the piece that rank {me} keeps has two sizes" in str(error)
        else:
            raise AssertionError(name)
    even = aj.arange(n) + 10 * me
    dist.all_to_all_single(even, even.clone())
    same(even, aj.tensor([me + 10 * r for r in range(n)]))


def check_tensors_that_are_not_contiguous() -> None:
    n = dist.get_world_size()
    base = aj.zeros(4, 6)
    view = base[:, ::2].T
    view.fill_(1.0)
    before = base._version
    dist.all_reduce(view)
    assert base[:, ::2].tolist() == [[n] * 3] * 4
    assert base[:, 1::2].sum() == 0
    assert base._version == before + 1
    whole = aj.zeros(2 * n, 3).T
    dist.all_gather_into_tensor(whole.T, aj.full((2, 3), float(dist.get_rank())))
    assert whole.T[:, 0].tolist() == [float(r) for r in range(n) for _ in range(2)]


def check_parameters_and_their_versions() -> None:
    p = aj.nn.Parameter(aj.full((2,), float(dist.get_rank())))
    y = (p * p).sum()
    dist.broadcast(p, 0)
    assert p.tolist() == [0, 0]
    assert p.is_leaf
    try:
        y.backward()
    except RuntimeError as error:
        assert "modified" in str(error)
    else:
        raise AssertionError("a saved tensor has changed")


def check_async_handles() -> None:
    n, me = dist.get_world_size(), dist.get_rank()
    x, half = aj.full((3,), float(me)), aj.full((3,), float(me), dtype=aj.bfloat16)
    works = [dist.all_reduce(x, async_op=True), dist.all_reduce(half, async_op=True)]
    parts = [aj.empty(()) for _ in range(n)]
    works.append(dist.all_gather(parts, aj.tensor(float(me)), async_op=True))
    works.append(dist.barrier(async_op=True))
    assert all(w.wait() and w.is_completed() for w in works)
    total = sum(range(n))
    assert x.tolist() == half.tolist() == [total] * 3
    assert [float(p) for p in parts] == list(range(n))
    assert works[0].get_future().then(lambda f: f.value()[0].sum()).wait() == 3 * total


def check_what_nobody_waits_for_leaves_other_memory_alone() -> None:
    """Whoever drops a handle gives its buffers to nobody else before the engine is done with them."""
    n, me = dist.get_world_size(), dist.get_rank()
    for size in (1000, 200_000):
        for k in range(8):
            x = aj.full((size,), float(me))
            dist.all_reduce(x, async_op=True)
            del x
            taken = [aj.full((size,), -1.0) for _ in range(2)]
            if (me + k) % n == 0:
                time.sleep(0.002)  # the others have gone on
            assert all((t == -1.0).all() for t in taken)
        dist.barrier()
        assert all((t == -1.0).all() for t in taken)
    group = dist.new_group()
    dist.all_reduce(aj.full((200_000,), 1.0), group=group, async_op=True)
    dist.destroy_process_group(group)


def check_sends() -> None:
    n, me = dist.get_world_size(), dist.get_rank()
    right, left = (me + 1) % n, (me - 1) % n
    x, y = aj.full((70_000,), float(me)), aj.empty(70_000)
    ops = [dist.P2POp(dist.isend, x, right), dist.P2POp(dist.irecv, y, left)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    assert (y == left).all()
    if me == 0:
        for _ in range(n - 1):
            source = dist.recv(y)
            assert (y == 10.0 * source).all()
    else:
        dist.send(x * 10, dst=0)
    listed = [me, "text"] if me == 0 else [None, None]
    if me == 0:
        dist.send_object_list(listed, dst=n - 1)
    elif me == n - 1:
        assert dist.recv_object_list(listed) == 0
        assert listed == [0, "text"]


def check_roots() -> None:
    n, me = dist.get_world_size(), dist.get_rank()
    for root in range(n):
        x = aj.tensor([float(me), 1.0])
        dist.reduce(x, root, dist.ReduceOp.SUM)
        assert x.tolist() == ([sum(range(n)), n] if me == root else [me, 1])
        found = [aj.empty(2) for _ in range(n)] if me == root else None
        dist.gather(aj.tensor([me, 2.0]), found, root)
        if found is not None:
            assert [t.tolist() for t in found] == [[r, 2] for r in range(n)]
        out = aj.empty(2)
        dist.scatter(out, [aj.tensor([r, root]).float() for r in range(n)] if me == root else None, root)
        assert out.tolist() == [me, root]


def check_objects() -> None:
    n, me = dist.get_world_size(), dist.get_rank()
    listed = [None] * n
    dist.all_gather_object(listed, {"rank": me, "text": "x" * me})
    assert listed == [{"rank": r, "text": "x" * r} for r in range(n)]
    one = [me, str(me)]
    dist.broadcast_object_list(one, src=n - 1)
    assert one == [n - 1, str(n - 1)]
    out = [None]
    dist.scatter_object_list(out, [f"for {r}" for r in range(n)] if me == 0 else None, src=0)
    assert out == [f"for {me}"]
    gathered = [None] * n if me == 1 % n else None
    dist.gather_object(me, gathered, dst=1 % n)
    assert gathered in (None, list(range(n)))


def check_groups() -> None:
    n, me = dist.get_world_size(), dist.get_rank()
    odd = dist.new_group(list(range(1, n, 2)))
    every_one = dist.new_group()
    assert dist.get_world_size(every_one) == n
    if me % 2:
        assert dist.get_rank(odd) == me // 2
        assert dist.get_process_group_ranks(odd) == list(range(1, n, 2))
        assert dist.get_global_rank(odd, 0) == 1
        x = aj.tensor(me)
        dist.all_reduce(x, group=odd)
        assert x == sum(range(1, n, 2))
        dist.broadcast(x, src=1, group=odd)
    else:
        assert odd is dist.GroupMember.NON_GROUP_MEMBER
        assert dist.get_rank(odd) == -1
        import warnings

        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            assert dist.all_reduce(aj.tensor(me), group=odd) is None
        assert "does not belong to the given group" in str(told[0].message)
    mesh = dist.init_device_mesh("cpu", (1, n), mesh_dim_names=("data", "model"))
    assert mesh["model"].get_local_rank() == me
    assert mesh.get_coordinate() == [0, me]
    x = aj.tensor(1)
    dist.all_reduce(x, group=mesh.get_group("model"))
    dist.all_reduce(x, group=mesh["data"])
    assert x == n


def check_long_buffers_go_in_pieces() -> None:
    """The same results when MPI takes 7 elements or bytes at a time."""
    before, mpi.MOST = mpi.MOST, 7
    try:
        for check in (
            check_reduce_scatter_is_a_part_of_all_reduce, check_averages_and_bits, check_objects, check_roots,
            check_uneven_exchanges,
        ):  # fmt: skip
            check()
        n, me = dist.get_world_size(), dist.get_rank()
        x = aj.arange(30).double() + me
        dist.all_reduce(x)
        same(x, aj.arange(30).double() * n + sum(range(n)))
    finally:
        mpi.MOST = before


def check_errors_name_the_fix() -> None:
    for call, kind in (
        (lambda: dist.init_process_group(), ValueError),
        (lambda: dist.all_reduce(aj.ones(2, dtype=aj.complex64), dist.ReduceOp.MAX), RuntimeError),
        (lambda: dist.all_gather([aj.ones(2)] * (dist.get_world_size() + 1), aj.ones(2)), ValueError),
        (lambda: dist.all_gather_into_tensor(aj.ones(1), aj.ones(2)), RuntimeError),
        (lambda: dist.all_reduce([1.0]), TypeError),
        (lambda: dist.broadcast(aj.ones(1), src=99), ValueError),
        (lambda: dist.new_group([0, 0]), ValueError),
        (lambda: dist.send(aj.ones(1), dst=dist.get_rank()), ValueError),
    ):
        try:
            call()
        except kind:
            continue
        raise AssertionError(f"{kind} was expected")


def check_a_forked_child_is_refused() -> None:
    import os

    child = os.fork()
    if child == 0:
        status = 1
        try:
            dist.all_reduce(aj.ones(1))
        except RuntimeError as error:
            status = 0 if "forked" in str(error) else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def check_compiled_is_eager() -> None:
    """On all ranks at once, and where some run line by line while the others' step is compiled."""
    n, me = dist.get_world_size(), dist.get_rank()

    def step(x: aj.Tensor, y: aj.Tensor) -> tuple[aj.Tensor, ...]:
        total = x * 2
        dist.all_reduce(total)
        mean = x + 1
        dist.all_reduce(mean, dist.ReduceOp.AVG)
        largest = y.clone()
        dist.all_reduce(largest, dist.ReduceOp.MAX)
        rows = aj.empty(n, *x.shape, dtype=x.dtype)
        dist.all_gather_into_tensor(rows, x * x)
        listed = [aj.empty_like(y) for _ in range(n)]
        dist.all_gather(listed, y)
        part = aj.empty(2, 3, dtype=x.dtype)
        dist.reduce_scatter_tensor(part, rows.reshape(-1, 3)[: 2 * n] * (me + 1.0))
        peak = aj.empty(2, 3, dtype=x.dtype)
        dist.reduce_scatter(peak, [rows.reshape(-1, 3)[k : k + 2] * y[0] for k in range(n)], dist.ReduceOp.MAX)
        swapped = aj.empty_like(rows)
        dist.all_to_all_single(swapped, rows * y[0])
        exchanged = [aj.empty_like(x) for _ in range(n)]
        dist.all_to_all(exchanged, [x * k for k in range(n)])
        named = aj.empty(2 * n, 3, dtype=x.dtype)
        dist.all_to_all_single(named, rows.reshape(-1, 3)[: 2 * n] * y[0], [2] * n, [2] * n)
        root = y * 3
        dist.broadcast(root, src=n - 1)
        one = y * 5
        dist.reduce(one, 0)
        return total, mean, largest, rows, *listed, part, peak, swapped, *exchanged, named, root, one

    compiled = aj.jit(step)
    for dtype in (aj.float64, aj.float32, aj.bfloat16):
        for k in range(4):
            x = (aj.randn(4, 3) + me).to(dtype)
            y = (aj.randn(3) - me).to(dtype)
            run = step if k == 3 and me == n - 1 else compiled
            for found, expected in zip(run(x, y), step(x, y), strict=True):
                same(found, expected)
    assert compiled.stats()["eager_calls"] == 0


def check_state_that_a_compiled_step_reduces() -> None:
    n, me = dist.get_world_size(), dist.get_rank()
    total = aj.zeros(3)

    @aj.jit
    def step(x: aj.Tensor) -> None:
        total.add_(x)
        dist.all_reduce(total)

    expected = np.zeros(3)
    for k in range(4):
        step(aj.full((3,), float(k * (me + 1))))
        expected = n * expected + k * sum(range(1, n + 1))
        assert total.tolist() == expected.tolist()


def check_nan_wins() -> None:
    n, me = dist.get_world_size(), dist.get_rank()
    for op in (dist.ReduceOp.MAX, dist.ReduceOp.MIN, dist.ReduceOp.SUM):
        x = aj.tensor([float(me), float("nan") if me == n - 1 else 1.0, float("inf")])
        dist.all_reduce(x, op)
        assert x[1].isnan() and x[2] == float("inf")


def check_ranks_in_the_order_that_they_give() -> None:
    """The numbers of `init_process_group`, or of the variables, hold in place of the launcher's; then as before."""
    n, me = dist.get_world_size(), dist.get_rank()
    turned = n - 1 - me
    dist.destroy_process_group()
    dist.init_process_group(rank=turned, world_size=n)
    x = aj.tensor([float(me)])
    dist.broadcast(x, src=0)
    assert (dist.get_rank(), x.item()) == (turned, n - 1)
    dist.destroy_process_group()
    before = os.environ.get("RANK")
    os.environ["RANK"] = str(turned)
    dist.init_process_group(init_method="env://")
    assert dist.get_rank() == turned
    dist.destroy_process_group()
    dist.init_process_group()  # the variable alone changes nothing
    assert dist.get_rank() == me
    os.environ["RANK"] = str(me) if before is None else before
