"""Collectives of a plan: bodies that call C functions with MPI's signatures. Compiled once per machine.

The functions and handles are words of the group (`GroupWords`), so the code here and in the cache knows no process; the
context is `CollectiveContext`. A count may be larger than an ``int`` argument says: what is larger is moved in pieces.
What a function returns that is not 0 is reported, and the plan ends.

NaN and zeros with signs are nothing that MPI promises, so the largest and smallest floats are found as integers of the
same order (``ops.rank_arithmetic`` does the same in eager mode).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

from autojit.codegen.cpu.plan.records import BEGUN, CollectiveContext, GroupWords, Request
from autojit.codegen.module_text import ModuleText, Signature
from autojit.codegen.native_function import NativeFunction, body
from autojit.codegen.records import Field
from autojit.codegen.report_sites import FAILURE_SITE
from autojit.core.once import once

LOST = -1  # what is reported of a group that has been left, or has another size: `ops.collectives.LOST`
SMALL_PIECE = 1 << 14  # elements of a piece that is combined in the function's own memory
MOST_BYTES = 16  # of an element

REDUCE = Signature("", "ptr send, ptr receive, i32 count, i64 type, i64 combine, i64 group", "i32")
MOVE = Signature("", "ptr send, i32 count, i64 type, ptr receive, i32 each, i64 same, i64 group", "i32")
WAIT = Signature("", "ptr request, ptr status", "i32")
BROADCAST = Signature("", "ptr buffer, i32 count, i64 type, i32 root, i64 group", "i32")
SEND_RECV = Signature(
    "",
    "ptr send, i32 count, i64 type, i32 to, i32 tag, ptr receive, i32 most, i64 same, i32 source, i32 own, i64 group, "
    "ptr status",
    "i32",
)


def _begins(of: Signature) -> Signature:
    """The function that begins what another one does."""
    names = ", ".join(f"{kind} {name[1:]}" for kind, name in zip(of.kinds, of.names, strict=True))
    return Signature("", f"{names}, ptr request", of.returns)


class _Float(NamedTuple):
    """A float and the integer of its size."""

    kind: str
    bits: str
    highest: int


FLOATS = {"f32": _Float("float", "i32", 2**31 - 1), "f64": _Float("double", "i64", 2**63 - 1)}


@once
def collectives_ir() -> str:
    """The whole module."""
    module = ModuleText()
    writers: dict[str, Callable[[_Collective], None]] = {
        "aj_wait": _write_wait,
        "aj_send_recv": _write_send_recv,
    }
    for name, collective in _BEGINNING.items():
        writers[f"aj_{name}"] = collective.write
        writers[f"aj_{name}_begun"] = partial(_write_begun, collective)
        writers[f"aj_{name}_ended"] = partial(_write_ended, collective)
    for name, write in writers.items():
        _define(module, name, write)
    for short, of in FLOATS.items():
        _define(module, f"aj_all_reduce_extreme_{short}", partial(_write_extreme, of))
        _define(module, f"aj_owner_{short}", partial(_write_owner, of))
    NativeFunction.define(module, body("aj_rank"), _write_rank)
    return module.text()


def _define(module: ModuleText, name: str, write: Callable[[_Collective], None]) -> None:
    """The body that tells a watchdog, and the one that it calls, which may return anywhere."""
    work = body(f"{name}_work")
    NativeFunction.define(module, work, lambda f: write(_Collective(f)), linkage="internal", attributes="")
    NativeFunction.define(module, body(name), partial(_write_watched, work), attributes="")


def _write_watched(work: Signature, f: NativeFunction) -> None:
    context, chunk, worker = f.parameters
    group = f.get(context, CollectiveContext.group)
    counter, inside = f.get(group, GroupWords.counter), f.get(group, GroupWords.inside)
    is_watched = f.is_set(counter, "ptr")
    with f.when(is_watched):
        f.store("i64", f.add(f.load("i64", counter, "monotonic"), 1), counter, "monotonic")
        f.store("i64", f.get(context, CollectiveContext.number), inside, "monotonic")
    f.call(work, context, chunk, worker)
    with f.when(is_watched):
        f.store("i64", 0, inside, "monotonic")


def _write_rank(f: NativeFunction) -> None:
    """``aj_rank``: the number of this rank."""
    group = f.get(f.parameters[0], CollectiveContext.group)
    f.store("i64", f.get(group, GroupWords.rank), f.get(f.parameters[0], CollectiveContext.to))


class _Collective:
    """One body: the words of its context; it has returned where the group is not the one that was recorded."""

    def __init__(self, f: NativeFunction) -> None:
        self.f = f
        self.context = f.parameters[0]
        self.group = self.word(CollectiveContext.group)
        self.to, self.source = self.word(CollectiveContext.to), self.word(CollectiveContext.source)
        self.count, self.width = self.word(CollectiveContext.amount), self.word(CollectiveContext.width)
        self.size = self.word(CollectiveContext.size)
        with f.when(f.test("ne", self.of_group(GroupWords.size), self.size)):
            self.report(LOST)
            f.ret()
        self.communicator = self.of_group(GroupWords.communicator)
        self.most, self.rank = self.of_group(GroupWords.most), self.of_group(GroupWords.rank)
        self.bytes = self.of_group(GroupWords.uint8)

    def word(self, field: Field[Any]) -> str:
        return self.f.get(self.context, field)

    def of_group(self, field: Field[int]) -> str:
        return self.f.get(self.group, field)

    def handle(self, field: Field[Any]) -> str:
        """A handle by its place in the group's words."""
        return self.f.load("i64", self.f.at(self.group, self.word(field)))

    def report(self, number: str | int) -> None:
        """Note what a function has returned, for the caller of the step."""
        f = self.f
        error, code = self.word(CollectiveContext.error), self.word(CollectiveContext.code)
        f.store("i64", f.binary("or", f.binary("shl", code, 32), FAILURE_SITE), error)
        f.store("i64", number, f.element(error, "i64", 1))

    def checked(self, returned: str) -> None:
        """Return if a function has failed."""
        with self.f.when(self.f.is_set(returned, "i32")):
            self.report(self.f.convert("sext", returned, "i32"))
            self.f.ret()

    def int_of(self, count: str) -> str:
        return self.f.convert("trunc", count, "i64", "i32")

    @contextmanager
    def pieces(self, most: str) -> Iterator[tuple[str, str, str]]:
        """Pieces of a part, one at least: bytes in front, the count, and the count as an ``int``."""
        f = self.f
        piece = f.junction("i64", stem="piece")
        f.go(piece, 0)
        (start,) = f.begin(piece)
        count = f.least(f.sub(self.count, start), most)
        yield f.mul(start, self.width), count, self.int_of(count)
        following = f.add(start, count)
        f.go_when(f.test("slt", following, self.count), piece, following)

    def reduce(self, source: str, to: str, count: str, type: str, combine: str) -> None:
        """Combine elements over the ranks."""
        function = self.of_group(GroupWords.all_reduce)
        self.checked(self.f.call(REDUCE, source, to, count, type, combine, self.communicator, by=function))

    def wait(self, handle: str) -> None:
        """Wait for what was begun."""
        self.checked(self.f.call(WAIT, handle, self.of_group(GroupWords.no_status), by=self.of_group(GroupWords.wait)))

    def part(self, base: str, number: str, offset: str) -> str:
        """An address in one of the parts that there are for all ranks."""
        f = self.f
        return f.at(base, f.add(f.mul(number, f.mul(self.count, self.width)), offset))

    @contextmanager
    def in_pieces(self) -> Iterator[None]:
        """What is written inside is for parts of which one call cannot take all; the function returns behind it."""
        f = self.f
        with f.when(f.test("sgt", self.count, self.most)):
            yield
            f.ret()


def _write_all_reduce(c: _Collective) -> None:
    """``aj_all_reduce``: every element combined over the ranks."""
    f = c.f
    is_same = f.test("eq", c.to, c.source, "ptr")
    type, combine = c.handle(CollectiveContext.type), c.handle(CollectiveContext.combine)
    with c.pieces(c.most) as (start, _, count):
        to = f.at(c.to, start)
        c.reduce(
            f.choose(is_same, c.of_group(GroupWords.in_place), f.at(c.source, start), "ptr"), to, count, type, combine
        )


class _Begun(NamedTuple):
    """A collective that can be begun: its body, the function that begins it, and what that is given.

    ``function``: among the group's words.
    """

    write: Callable[[_Collective], None]
    function: str
    signature: Signature
    given: Callable[[_Collective], Sequence[str]]


def _write_begun(of: _Begun, c: _Collective) -> None:
    """``aj_<name>_begun``: the same, which `_write_wait` ends."""
    f = c.f
    _at_once_where_it_must(of, c)
    request = _free_request(c)
    _begin(of, c, f.place_of(request, Request.handle))
    f.put(request, Request.buffer, c.to)


def _write_ended(of: _Begun, c: _Collective) -> None:
    """``aj_<name>_ended``: begun, and waited for."""
    _at_once_where_it_must(of, c)
    handle = c.f.local("i64", 8)
    _begin(of, c, handle)
    c.wait(handle)


def _at_once_where_it_must(of: _Begun, c: _Collective) -> None:
    """What a call cannot take, or a group cannot begin, is done when the function returns."""
    f = c.f
    with f.when(f.either(f.is_zero(c.of_group(GroupWords.fields[of.function]), "ptr"), f.test("sgt", c.count, c.most))):
        of.write(c)
        f.ret()


def _begin(of: _Begun, c: _Collective, handle: str) -> None:
    given = of.given(c)
    c.f.store("i64", 0, handle)
    c.checked(c.f.call(of.signature, *given, handle, by=c.of_group(GroupWords.fields[of.function])))


def _all_reduce_given(c: _Collective) -> Sequence[str]:
    source = c.f.choose(c.f.test("eq", c.to, c.source, "ptr"), c.of_group(GroupWords.in_place), c.source, "ptr")
    return source, c.to, *_combined_given(c)


def _reduce_scatter_given(c: _Collective) -> Sequence[str]:
    return c.source, c.to, *_combined_given(c)


def _combined_given(c: _Collective) -> Sequence[str]:
    type, combine = c.handle(CollectiveContext.type), c.handle(CollectiveContext.combine)
    return c.int_of(c.count), type, combine, c.communicator


def _moved_given(c: _Collective) -> Sequence[str]:
    each = c.int_of(c.count)
    return c.source, each, c.bytes, c.to, each, c.bytes, c.communicator


def _broadcast_given(c: _Collective) -> Sequence[str]:
    _copy_to_result(c)
    return c.to, c.int_of(c.count), c.bytes, _root(c), c.communicator


def _request_of(c: _Collective, buffer: str) -> tuple[str, str]:
    """The first request with this buffer (0: a free one), and whether there is one; else the first of all."""
    f = c.f
    found = f.junction("i64", "i1", stem="request")
    with f.loop(0, BEGUN, stem="request") as k:
        request = f.item(Request, c.of_group(GroupWords.requests), k)
        f.go_when(f.test("eq", f.get(request, Request.buffer), buffer, "ptr"), found, k, "true")
    f.go(found, 0, "false")
    place, is_found = f.begin(found)
    return f.item(Request, c.of_group(GroupWords.requests), place), is_found


def _free_request(c: _Collective) -> str:
    f = c.f
    request, is_free = _request_of(c, "null")
    is_taken = f.test("eq", is_free, "false", "i1")
    with f.when(is_taken):
        c.wait(f.place_of(request, Request.handle))
    return request


def _write_wait(c: _Collective) -> None:
    """``aj_wait``: the result of what was begun, which is where it was begun or is copied."""
    f = c.f
    request, is_found = _request_of(c, c.source)
    with f.when(is_found):
        f.put(request, Request.buffer, "null")
        c.wait(f.place_of(request, Request.handle))
    _copy_to_result(c)


def _write_all_gather(c: _Collective) -> None:
    """``aj_all_gather``: all ranks' parts, one behind the other."""
    f = c.f
    with c.in_pieces():
        function = c.of_group(GroupWords.broadcast)
        f.copy_bytes(c.part(c.to, c.rank, "0"), c.source, c.count)
        with f.loop(0, c.size, stem="rank") as rank, c.pieces(c.most) as (start, _, count):
            root = c.int_of(rank)
            c.checked(f.call(BROADCAST, c.part(c.to, rank, start), count, c.bytes, root, c.communicator, by=function))
    c.checked(c.f.call(MOVE, *_moved_given(c), by=c.of_group(GroupWords.all_gather)))


def _write_all_to_all(c: _Collective) -> None:
    """``aj_all_to_all``: part ``r`` goes to rank ``r``."""
    f = c.f
    with c.in_pieces(), f.loop(0, c.size, stem="distance") as distance:
        to = f.remainder(f.add(c.rank, distance), c.size)
        source = f.remainder(f.sub(f.add(c.rank, c.size), distance), c.size)
        with c.pieces(c.most) as (start, _, count):
            _send_recv(
                c, c.part(c.source, to, start), c.part(c.to, source, start), count, c.int_of(to), c.int_of(source)
            )
    c.checked(c.f.call(MOVE, *_moved_given(c), by=c.of_group(GroupWords.all_to_all)))


def _send_recv(c: _Collective, send: str, receive: str, count: str, to: str, source: str) -> None:
    by, status = c.of_group(GroupWords.send_recv), c.of_group(GroupWords.no_status)
    given = (send, count, c.bytes, to, 0, receive, count, c.bytes, source, 0, c.communicator, status)
    c.checked(c.f.call(SEND_RECV, *given, by=by))


def _write_reduce_scatter(c: _Collective) -> None:
    """``aj_reduce_scatter``: the combination of what all ranks have for this one."""
    f = c.f
    type, combine = c.handle(CollectiveContext.type), c.handle(CollectiveContext.combine)
    own = f.local(f"[{SMALL_PIECE * MOST_BYTES} x i8]")
    with c.in_pieces(), f.loop(0, c.size, stem="rank") as rank:
        most = f.least(c.most, SMALL_PIECE)
        with c.pieces(most) as (start, n, count):
            c.reduce(c.part(c.source, rank, start), own, count, type, combine)
            with f.when(f.test("eq", rank, c.rank)):
                f.copy_bytes(f.at(c.to, start), own, f.mul(n, c.width))
    c.checked(f.call(REDUCE, *_reduce_scatter_given(c), by=c.of_group(GroupWords.reduce_scatter)))


def _write_broadcast(c: _Collective) -> None:
    """``aj_broadcast``: what the root has."""
    f = c.f
    root, function = _root(c), c.of_group(GroupWords.broadcast)
    _copy_to_result(c)
    with c.pieces(c.most) as (start, _, count):
        c.checked(f.call(BROADCAST, f.at(c.to, start), count, c.bytes, root, c.communicator, by=function))


def _root(c: _Collective) -> str:
    return c.int_of(c.f.load("i64", c.word(CollectiveContext.peers)))


def _copy_to_result(c: _Collective) -> None:
    with c.f.when(c.f.test("ne", c.to, c.source, "ptr")):
        c.f.copy_bytes(c.to, c.source, c.count)


def _write_send_recv(c: _Collective) -> None:
    """``aj_send_recv``: what another rank has; zeros where nobody sends."""
    f = c.f
    peers = c.word(CollectiveContext.peers)
    to = f.load("i64", f.element(peers, "i64", c.rank))
    source = f.load("i64", f.element(peers, "i64", f.add(c.size, c.rank)))
    gets_none, nobody = f.test("slt", source, 0), c.of_group(GroupWords.no_process)
    with f.when(gets_none):
        f.fill_bytes(c.to, 0, c.count)
    to = c.int_of(f.choose(f.test("slt", to, 0), nobody, to))
    source = c.int_of(f.choose(gets_none, nobody, source))
    with c.pieces(c.most) as (start, _, count):
        _send_recv(c, f.at(c.source, start), f.at(c.to, start), count, to, source)


_BEGINNING = {
    "all_reduce": _Begun(_write_all_reduce, "begin_all_reduce", _begins(REDUCE), _all_reduce_given),
    "reduce_scatter": _Begun(_write_reduce_scatter, "begin_reduce_scatter", _begins(REDUCE), _reduce_scatter_given),
    "all_gather": _Begun(_write_all_gather, "begin_all_gather", _begins(MOVE), _moved_given),
    "all_to_all": _Begun(_write_all_to_all, "begin_all_to_all", _begins(MOVE), _moved_given),
    "broadcast": _Begun(_write_broadcast, "begin_broadcast", _begins(BROADCAST), _broadcast_given),
}


# -- the largest and the smallest


def _write_extreme(of: _Float, c: _Collective) -> None:
    """``aj_all_reduce_extreme_<t>``: the largest or smallest float over the ranks."""
    f = c.f
    beyond = _beyond(c, of)
    with f.loop(0, c.count) as k:
        f.store(of.bits, _key(c, of, k, beyond), f.element(c.to, of.bits, k))
    _best(c, GroupWords.int64 if of.bits == "i64" else GroupWords.int32)
    with f.loop(0, c.count) as k:
        at = f.element(c.to, of.bits, k)
        f.store(of.bits, _turned(f, of, f.load(of.bits, at)), at)


def _write_owner(of: _Float, c: _Collective) -> None:
    """``aj_owner_<t>``: the lowest rank that has the largest or smallest float."""
    f = c.f
    beyond = _beyond(c, of)

    def key(k: str) -> str:
        found = _key(c, of, k, beyond)
        return found if of.bits == "i64" else f.convert("sext", found, of.bits)

    with f.loop(0, c.count) as k:
        f.store("i64", key(k), f.element(c.to, "i64", k))
    _best(c, GroupWords.int64)
    with f.loop(0, c.count) as k:
        at = f.element(c.to, "i64", k)
        f.store("i64", f.choose(f.test("eq", key(k), f.load("i64", at)), c.rank, c.size), at)
    _best(c, GroupWords.int64, GroupWords.min)


def _best(c: _Collective, type: Field[int], combine: Field[int] | None = None) -> None:
    """Combine integers in place; their width is the type's."""
    f = c.f
    function, handle, in_place = c.of_group(GroupWords.all_reduce), c.of_group(type), c.of_group(GroupWords.in_place)
    how = c.handle(CollectiveContext.combine) if combine is None else c.of_group(combine)
    bits = "i32" if type is GroupWords.int32 else "i64"
    piece = f.junction("i64", stem="piece")
    f.go(piece, 0)
    (start,) = f.begin(piece)
    count = f.least(f.sub(c.count, start), c.most)
    at = f.element(c.to, bits, start)
    c.checked(f.call(REDUCE, in_place, at, c.int_of(count), handle, how, c.communicator, by=function))
    following = f.add(start, count)
    f.go_when(f.test("slt", following, c.count), piece, following)


def _beyond(c: _Collective, of: _Float) -> str:
    """The key of NaN: beyond all others, on the side that wins."""
    f = c.f
    smallest = f.is_set(c.word(CollectiveContext.smallest))
    return f.choose(smallest, -of.highest - 1, of.highest, of.bits)


def _key(c: _Collective, of: _Float, k: str, beyond: str) -> str:
    """The integer that is ordered as an element is."""
    f = c.f
    x = f.load(of.kind, f.element(c.source, of.kind, k))
    is_number = f.value(f"fcmp ord {of.kind} {x}, {x}")
    bits = f.convert("bitcast", x, of.kind, of.bits)
    return f.choose(is_number, _turned(f, of, bits), beyond, of.bits)


def _turned(f: NativeFunction, of: _Float, bits: str) -> str:
    """Signed magnitudes as numbers of the same order, and back."""
    is_negative = f.test("slt", bits, 0, of.bits)
    return f.choose(is_negative, f.binary("xor", bits, of.highest, of.bits), bits, of.bits)
