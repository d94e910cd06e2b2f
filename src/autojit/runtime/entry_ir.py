"""The native entry point of compiled steps.

One function serves every step: it interprets the step's descriptor, records (`entry_records`) that `runtime.entry`
fills. So it is compiled once per machine, a step costs no compile time for it, and no Python address is ever in code.

How to read this file: `entry_ir` writes the stages of a call in their order: the gate, then the checks (arity,
keywords, arguments, which of them are one object, sizes, words, dictionaries, rings, lent tensors), then the run, what
it leaves in slots, and its result. Every check that fails goes to one place, which undoes the one thing done so far
(the busy word), asks the function's other steps, and answers with a sentinel or the fallback's result.
"""

from __future__ import annotations

from autojit.codegen.module_text import ModuleText, Signature
from autojit.codegen.native_function import NativeFunction
from autojit.core.once import once
from autojit.runtime.entry_checks_ir import (
    ARGUMENT_HOLDS,
    COUNT_REFERENCE,
    EACH_HELD,
    RESULT_ITEM,
    RING_PICKS,
    SIZES_ACCEPTED,
    add_checks,
)
from autojit.runtime.entry_lent_ir import LEAVE_LENT, LENT_HOLDS, add_lent
from autojit.runtime.entry_records import (
    CAPSULE_POINTER_OFFSET,
    REASONS,
    TUPLE_ITEMS_OFFSET,
    TUPLE_SIZE_OFFSET,
    ArgumentWords,
    GateWords,
    GuardedItem,
    GuardedWord,
    Head,
    Identity,
    LentTensor,
    Ring,
)

_ENTRY = Signature("aj_entry", "ptr self, ptr args, i64 nargs, ptr names", "ptr")
_STEP = Signature("", "ptr table")
_SAVE_THREAD = Signature("PyEval_SaveThread", "", "ptr")
_RESTORE_THREAD = Signature("PyEval_RestoreThread", "ptr thread")
_NEW_TUPLE = Signature("PyTuple_New", "i64 size", "ptr")
_DICT_ITEM = Signature("PyDict_GetItemWithError", "ptr mapping, ptr key", "ptr")
_CLEAR_ERROR = Signature("PyErr_Clear")
_CALL = Signature("PyObject_Vectorcall", "ptr callable, ptr args, i64 nargs, ptr names", "ptr")
_THIS_THREAD = Signature("PyThread_get_thread_ident", "", "i64")
_DROP_REFERENCE = Signature("Py_DecRef", "ptr object")


_REFUSALS = (Head.slow, Head.need_output, Head.is_busy)


class _Entry(NativeFunction):
    """A PyCFunction of the kind METH_FASTCALL | METH_KEYWORDS; self is a tuple that starts with a capsule of the head.

    Args:
        module: where it belongs.
    """

    def __init__(self, module: ModuleText) -> None:
        super().__init__(module, _ENTRY)
        this, self.args, self.n_args, self.names = self.parameters
        capsule = self.load("ptr", self.at(this, TUPLE_ITEMS_OFFSET))
        self.step = self.load("ptr", self.at(capsule, CAPSULE_POINTER_OFFSET))
        self.slow, self.busy = self.get(self.step, Head.slow), self.get(self.step, Head.busy)
        self.failed = self.junction("i64", "i64", "ptr", stem="failed")  # the reason, of what, and the sentinel
        self.refused = self.junction("i64", "i64", "ptr", stem="refused")

    def demand(self, condition: str, reason: str, index: str | int = 0) -> None:
        """Fail for a reason unless the condition holds."""
        self.go_unless(condition, self.failed, REASONS.index(reason), index, self.slow)

    def leave(self, result: str) -> None:
        """Return a result; from now on others may run the step."""
        self.put(self.busy, GateWords.running, 0)
        self.ret(result)

    def argument(self, position: str) -> str:
        """An argument of the call."""
        return self.load("ptr", self.element(self.args, "ptr", position))


@once
def entry_ir() -> str:
    """The module text."""
    module = ModuleText()
    add_checks(module)
    add_lent(module)
    module.declarations[_DROP_REFERENCE.symbol] = _DROP_REFERENCE.declaration
    f = _Entry(module)
    _take_gate(f)
    n_positional = _check_arity(f)
    n_keywords = _check_keywords(f)
    n_arguments = f.add(n_positional, n_keywords)
    records = _check_arguments(f, n_arguments)
    _check_identities(f)
    _check_sizes(f)
    _check_words(f)
    _check_dicts(f)
    _pick_from_rings(f)
    _check_lent(f)
    _run(f, records, n_arguments)
    _raise_if_failed(f)
    _leave_lent(f)
    _return_result(f)
    _refuse(f)
    f.finish()
    return module.text()


def _take_gate(f: _Entry) -> None:
    """The step's gate (`runtime.gate`): the GIL makes these looks and the store below one action."""
    taken = f.binary("or", f.get(f.busy, GateWords.running), f.get(f.busy, GateWords.reserved))
    f.go_when(f.is_set(taken), f.refused, REASONS.index("busy"), 0, f.get(f.step, Head.is_busy))
    f.put(f.busy, GateWords.running, f.call(_THIS_THREAD))


def _check_arity(f: _Entry) -> str:
    n_positional = f.get(f.step, Head.n_positional)
    f.demand(f.test("eq", f.n_args, n_positional), "arity")
    return n_positional


def _check_keywords(f: _Entry) -> str:
    """The keywords' names, interned strings, in the order of the step's."""
    n_keywords = f.get(f.step, Head.n_keywords)
    with f.when(f.is_zero(f.names, "ptr")):
        f.demand(f.is_zero(n_keywords), "keyword")
    with f.otherwise():
        given = f.load("i64", f.at(f.names, TUPLE_SIZE_OFFSET))
        f.demand(f.test("eq", given, n_keywords), "keyword")
        with f.loop(0, n_keywords, stem="name") as k:
            have = f.load("i64", f.element(f.at(f.names, TUPLE_ITEMS_OFFSET), "i64", k))
            want = f.load("i64", f.element(f.get(f.step, Head.keywords), "i64", k))
            f.demand(f.test("eq", have, want), "keyword", k)
    return n_keywords


def _check_arguments(f: _Entry, n_arguments: str) -> str:
    records = f.get(f.step, Head.arguments)
    with f.loop(0, n_arguments, stem="argument") as k:
        record = f.item(ArgumentWords, records, k)
        f.demand(f.call(ARGUMENT_HOLDS, f.argument(k), record, f.step), "argument", k)
    return records


def _check_identities(f: _Entry) -> None:
    """Which arguments are one object."""
    identities = f.get(f.step, Head.identities)
    with f.loop(0, f.get(f.step, Head.n_identities), stem="identity") as k:
        identity = f.item(Identity, identities, k)
        one, other = f.get(identity, Identity.one), f.get(identity, Identity.other)
        is_one = f.convert("zext", f.test("eq", f.argument(one), f.argument(other), "ptr"), "i1")
        f.demand(f.test("eq", is_one, f.get(identity, Identity.is_one)), "argument", other)


def _check_sizes(f: _Entry) -> None:
    """The open sizes have values that Python has accepted."""
    f.demand(f.call(SIZES_ACCEPTED, f.step), "sizes")


def _check_words(f: _Entry) -> None:
    words = f.get(f.step, Head.words)
    with f.loop(0, f.get(f.step, Head.n_words), stem="word") as k:
        word = f.item(GuardedWord, words, k)
        have = f.load("i64", f.get(word, GuardedWord.address))
        f.demand(f.test("eq", have, f.get(word, GuardedWord.expected)), "word", k)


def _check_dicts(f: _Entry) -> None:
    dicts = f.get(f.step, Head.dicts)
    with f.loop(0, f.get(f.step, Head.n_dicts), stem="dict") as k:
        item = f.item(GuardedItem, dicts, k)
        mapping, key, want = (f.get(item, word) for word in GuardedItem.fields.values())
        have = f.call(_DICT_ITEM, mapping, key)
        with f.when(f.test("ne", have, want, "ptr")):
            f.call(_CLEAR_ERROR)
            f.go(f.failed, REASONS.index("dict"), k, f.slow)


def _pick_from_rings(f: _Entry) -> None:
    """A tensor for each output."""
    rings, need_output = f.get(f.step, Head.rings), f.get(f.step, Head.need_output)
    with f.loop(0, f.get(f.step, Head.n_rings), stem="ring") as k:
        is_found = f.call(RING_PICKS, f.item(Ring, rings, k), f.get(f.step, Head.sets))
        f.go_unless(is_found, f.failed, REASONS.index("ring"), k, need_output)


def _check_lent(f: _Entry) -> None:
    """Nobody holds the memory of tensors that the step has lent."""
    lent = f.get(f.step, Head.lent)
    with f.loop(0, f.get(f.step, Head.n_lent), stem="lent") as k:
        f.demand(f.call(LENT_HOLDS, f.item(LentTensor, lent, k)), "lent", k)


def _leave_lent(f: _Entry) -> None:
    """The slots hold the step's tensors."""
    lent = f.get(f.step, Head.lent)
    with f.loop(0, f.get(f.step, Head.n_lent), stem="left") as k:
        f.call(LEAVE_LENT, f.item(LentTensor, lent, k))


def _run(f: _Entry, records: str, n_arguments: str) -> None:
    """Run the step; a long one lets other Python threads run, which must not free the arguments' arrays."""
    step, table = f.get(f.step, Head.step), f.get(f.step, Head.table)
    with f.when(f.is_set(f.get(f.step, Head.releases_gil))):
        f.call(EACH_HELD, records, n_arguments, f"@{COUNT_REFERENCE.symbol}")
        thread = f.call(_SAVE_THREAD)
        f.call(_STEP, table, by=step)
        f.call(_RESTORE_THREAD, thread)
        f.call(EACH_HELD, records, n_arguments, f"@{_DROP_REFERENCE.symbol}")
    with f.otherwise():
        f.call(_STEP, table, by=step)


def _raise_if_failed(f: _Entry) -> None:
    """The step counts as running until Python has read what happened; a call that fails does not count."""
    error = f.load("i64", f.get(f.step, Head.error))
    with f.when(f.is_set(error)):
        f.leave(f.call(_CALL, f.get(f.step, Head.raiser), "null", 0, "null"))
    f.put(f.step, Head.calls, f.add(f.get(f.step, Head.calls), 1))


def _return_result(f: _Entry) -> None:
    with f.when(f.is_zero(f.get(f.step, Head.makes_tuple))):
        f.leave(f.call(RESULT_ITEM, f.step, 0))
    n_results = f.get(f.step, Head.n_results)
    results = f.call(_NEW_TUPLE, n_results)
    with f.when(f.is_set(results, "ptr")), f.loop(0, n_results, stem="result") as k:
        item = f.call(RESULT_ITEM, f.step, k)
        f.store("ptr", item, f.element(f.at(results, TUPLE_ITEMS_OFFSET), "ptr", k))
    f.leave(results)


def _ask_others(f: _Entry, reason: str, sentinel: str) -> None:
    """Return what another step gives that the call is for; on if there is none, or this one can be made to fit."""
    can_be_mended = [f.test("eq", reason, REASONS.index(word)) for word in ("sizes", "lent")]
    is_for_others = f.both(f.test("eq", sentinel, f.slow, "ptr"), f.binary("xor", f.either(*can_be_mended), 1, "i1"))
    with f.when(is_for_others), f.loop(0, f.get(f.step, Head.n_others), stem="asked") as k:
        other = f.load("ptr", f.element(f.get(f.step, Head.others), "ptr", k))
        f.call(COUNT_REFERENCE, other)  # somebody may put another one in its place meanwhile
        found = f.call(_CALL, other, f.args, f.n_args, f.names)
        f.call(_DROP_REFERENCE, other)
        refusals = [f.test("eq", found, f.get(f.step, word), "ptr") for word in _REFUSALS]
        is_refused = f.either(refusals[0], f.either(*refusals[1:]))
        with f.when(f.binary("xor", is_refused, 1, "i1")):
            f.ret(found)
        f.call(_DROP_REFERENCE, found)


def _refuse(f: _Entry) -> None:
    """Say why the step did not run; the fallback's result, or a sentinel."""
    reason, index, sentinel = f.begin(f.failed)
    f.put(f.busy, GateWords.running, 0)
    f.go(f.refused, reason, index, sentinel)
    reason, index, sentinel = f.begin(f.refused)
    f.put(f.step, Head.failure, f.binary("or", reason, f.binary("shl", index, 8)))
    _ask_others(f, reason, sentinel)
    fallback = f.get(f.step, Head.fallback)
    with f.when(f.is_set(fallback, "ptr")):
        f.end_with(_CALL, fallback, f.args, f.n_args, f.names)
    f.call(COUNT_REFERENCE, sentinel)
    f.ret(sentinel)
