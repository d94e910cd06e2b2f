"""The native entry point of compiled steps, as LLVM IR text.

One function serves every step: it interprets the step's descriptor, tables of 64-bit words (`entry_words`) that
`runtime.entry` fills. So it is compiled once per machine, a step costs no compile time for it, and no Python address is
ever in code.

How to read this file: `_BODY` is the function, in the order of its labels: busy, arity, keywords, arguments, which of
them are one object, sizes, word guards, dictionary guards, rings, run, result, sound (or raise). Every check that fails
goes to `fail`, which undoes the one thing done so far (the busy word) and answers with a sentinel or the fallback's
result.
"""

from __future__ import annotations

from autojit.codegen.words import with_words
from autojit.runtime.entry_checks_ir import CHECKS_IR
from autojit.runtime.entry_words import (
    ARGUMENT,
    CAPSULE_POINTER_OFFSET,
    HEAD,
    REASONS,
    RING,
    RING_ENTRY,
    TUPLE_ITEMS_OFFSET,
    TUPLE_SIZE_OFFSET,
)

IMPORTS = (
    "PyEval_SaveThread",
    "PyEval_RestoreThread",
    "PyTuple_New",
    "Py_IncRef",
    "Py_DecRef",
    "PyDict_GetItemWithError",
    "PyErr_Clear",
    "PyObject_Vectorcall",
    "PyLong_AsLongLongAndOverflow",
    "PyThread_get_thread_ident",
)


_RECORDS = {"head": HEAD, "arg": ARGUMENT, "ring": RING, "pick": RING_ENTRY}


def entry_ir() -> str:
    """The module text."""
    return with_words(CHECKS_IR + _BODY, _RECORDS)


_BODY = f"""
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare ptr @PyTuple_New(i64)
declare void @Py_IncRef(ptr)
declare void @Py_DecRef(ptr)
declare ptr @PyDict_GetItemWithError(ptr, ptr)
declare void @PyErr_Clear()
declare ptr @PyObject_Vectorcall(ptr, ptr, i64, ptr)
declare i64 @PyLong_AsLongLongAndOverflow(ptr, ptr)
declare i64 @PyThread_get_thread_ident()

; PyCFunction of the kind METH_FASTCALL | METH_KEYWORDS; self is a tuple that starts with a capsule of the descriptor.
define ptr @aj_entry(ptr %self, ptr %args, i64 %nargs, ptr %names) nounwind {{
entry:
  %capsule.at = getelementptr i8, ptr %self, i64 {TUPLE_ITEMS_OFFSET}
  %capsule = load ptr, ptr %capsule.at, align 8
  %head.at = getelementptr i8, ptr %capsule, i64 {CAPSULE_POINTER_OFFSET}
  %head = load ptr, ptr %head.at, align 8
  %slow = word head.slow of %head
  %busy = pointer head.busy of %head
  ; the step's gate (`runtime.gate`): the GIL makes these looks and the store below one action
  %running = load i64, ptr %busy, align 8
  %reserved.at = getelementptr i64, ptr %busy, i64 1
  %reserved = load i64, ptr %reserved.at, align 8
  %taken = or i64 %running, %reserved
  %is_running = icmp ne i64 %taken, 0
  %busy_result = word head.is_busy of %head
  br i1 %is_running, label %refuse, label %arity

arity:
  %me = call i64 @PyThread_get_thread_ident()
  store i64 %me, ptr %busy, align 8
  %n_positional = word head.n_positional of %head
  %arity.ok = icmp eq i64 %nargs, %n_positional
  br i1 %arity.ok, label %keywords, label %fail
keywords:
  %n_keywords = word head.n_keywords of %head
  %no_names = icmp eq ptr %names, null
  br i1 %no_names, label %none_given, label %some_given
none_given:
  %none_wanted = icmp eq i64 %n_keywords, 0
  br i1 %none_wanted, label %arguments, label %fail
some_given:
  %given.at = getelementptr i8, ptr %names, i64 {TUPLE_SIZE_OFFSET}
  %given = load i64, ptr %given.at, align 8
  %given.ok = icmp eq i64 %given, %n_keywords
  br i1 %given.ok, label %name, label %fail
name:
  %k = phi i64 [ 0, %some_given ], [ %k1, %name.ok ]
  %k.more = icmp slt i64 %k, %n_keywords
  br i1 %k.more, label %name.look, label %arguments
name.look:
  %k1 = add i64 %k, 1
  %given.items = getelementptr i8, ptr %names, i64 {TUPLE_ITEMS_OFFSET}
  %given.name.at = getelementptr i64, ptr %given.items, i64 %k
  %given.name = load i64, ptr %given.name.at, align 8
  %wanted.names = pointer head.keywords of %head
  %wanted.name.at = getelementptr i64, ptr %wanted.names, i64 %k
  %wanted.name = load i64, ptr %wanted.name.at, align 8
  %name.same = icmp eq i64 %given.name, %wanted.name
  br i1 %name.same, label %name.ok, label %fail
name.ok:
  br label %name

arguments:
  %n_arguments = add i64 %n_positional, %n_keywords
  %records = pointer head.arguments of %head
  br label %argument
argument:
  %a = phi i64 [ 0, %arguments ], [ %a1, %argument.ok ]
  %a.more = icmp slt i64 %a, %n_arguments
  br i1 %a.more, label %argument.look, label %identities
argument.look:
  %a1 = add i64 %a, 1
  %object.at = getelementptr ptr, ptr %args, i64 %a
  %object = load ptr, ptr %object.at, align 8
  %record = getelementptr [{len(ARGUMENT)} x i64], ptr %records, i64 %a
  %argument.holds = call i1 @argument_holds(ptr %object, ptr %record, ptr %head)
  br i1 %argument.holds, label %argument.ok, label %fail
argument.ok:
  br label %argument

identities:
  %n_identities = word head.n_identities of %head
  %identity.triples = pointer head.identities of %head
  br label %identity
identity:
  %i = phi i64 [ 0, %identities ], [ %i1, %identity.ok ]
  %i.more = icmp slt i64 %i, %n_identities
  br i1 %i.more, label %identity.look, label %sizes
identity.look:
  %i1 = add i64 %i, 1
  %identity.at = getelementptr [3 x i64], ptr %identity.triples, i64 %i
  %one = load i64, ptr %identity.at, align 8
  %other.at = getelementptr i64, ptr %identity.at, i64 1
  %other = load i64, ptr %other.at, align 8
  %wanted.at = getelementptr i64, ptr %identity.at, i64 2
  %wanted = load i64, ptr %wanted.at, align 8
  %one.at = getelementptr ptr, ptr %args, i64 %one
  %one.object = load ptr, ptr %one.at, align 8
  %other.object.at = getelementptr ptr, ptr %args, i64 %other
  %other.object = load ptr, ptr %other.object.at, align 8
  %is_one = icmp eq ptr %one.object, %other.object
  %is_one64 = zext i1 %is_one to i64
  %identity.same = icmp eq i64 %is_one64, %wanted
  br i1 %identity.same, label %identity.ok, label %fail
identity.ok:
  br label %identity

sizes:
  %n_sizes = word head.n_sizes of %head
  %size.values = pointer head.sizes of %head
  %accepted = pointer head.accepted of %head
  br label %size
size:
  %z = phi i64 [ 0, %sizes ], [ %z1, %size.ok ]
  %z.more = icmp slt i64 %z, %n_sizes
  br i1 %z.more, label %size.look, label %words
size.look:
  %z1 = add i64 %z, 1
  %size.at = getelementptr i64, ptr %size.values, i64 %z
  %size.have = load i64, ptr %size.at, align 8
  %accepted.at = getelementptr i64, ptr %accepted, i64 %z
  %size.want = load i64, ptr %accepted.at, align 8
  %size.same = icmp eq i64 %size.have, %size.want
  br i1 %size.same, label %size.ok, label %fail
size.ok:
  br label %size

words:
  %n_words = word head.n_words of %head
  %pairs = pointer head.words of %head
  br label %word
word:
  %w = phi i64 [ 0, %words ], [ %w1, %word.ok ]
  %w.more = icmp slt i64 %w, %n_words
  br i1 %w.more, label %word.look, label %dicts
word.look:
  %w1 = add i64 %w, 1
  %pair = getelementptr [2 x i64], ptr %pairs, i64 %w
  %place = load ptr, ptr %pair, align 8
  %pair1 = getelementptr i64, ptr %pair, i64 1
  %word.want = load i64, ptr %pair1, align 8
  %word.have = load i64, ptr %place, align 8
  %word.same = icmp eq i64 %word.have, %word.want
  br i1 %word.same, label %word.ok, label %fail
word.ok:
  br label %word

dicts:
  %n_dicts = word head.n_dicts of %head
  %triples = pointer head.dicts of %head
  br label %dict
dict:
  %g = phi i64 [ 0, %dicts ], [ %g1, %dict.ok ]
  %g.more = icmp slt i64 %g, %n_dicts
  br i1 %g.more, label %dict.look, label %rings
dict.look:
  %g1 = add i64 %g, 1
  %triple = getelementptr [3 x i64], ptr %triples, i64 %g
  %mapping = load ptr, ptr %triple, align 8
  %triple1 = getelementptr i64, ptr %triple, i64 1
  %key = load ptr, ptr %triple1, align 8
  %triple2 = getelementptr i64, ptr %triple, i64 2
  %dict.want = load ptr, ptr %triple2, align 8
  %dict.have = call ptr @PyDict_GetItemWithError(ptr %mapping, ptr %key)
  %dict.same = icmp eq ptr %dict.have, %dict.want
  br i1 %dict.same, label %dict.ok, label %dict.fail
dict.ok:
  br label %dict
dict.fail:
  call void @PyErr_Clear()
  br label %fail

rings:
  %n_rings = word head.n_rings of %head
  %ring.records = pointer head.rings of %head
  %need_output = word head.need_output of %head
  br label %ring
ring:
  %r = phi i64 [ 0, %rings ], [ %r1, %ring.ok ]
  %r.more = icmp slt i64 %r, %n_rings
  br i1 %r.more, label %ring.look, label %run
ring.look:
  %r1 = add i64 %r, 1
  %ring.record = getelementptr [{len(RING)} x i64], ptr %ring.records, i64 %r
  %found = call i1 @ring_picks(ptr %ring.record)
  br i1 %found, label %ring.ok, label %fail
ring.ok:
  br label %ring

run:
  %step = pointer head.step of %head
  %table = pointer head.table of %head
  %releases = word head.releases_gil of %head
  %is_long = icmp ne i64 %releases, 0
  br i1 %is_long, label %without_gil, label %with_gil
with_gil:
  call void %step(ptr %table)
  br label %result
without_gil:
  call void @each_held(ptr %records, i64 %n_arguments, ptr @Py_IncRef)
  %thread = call ptr @PyEval_SaveThread()
  call void %step(ptr %table)
  call void @PyEval_RestoreThread(ptr %thread)
  call void @each_held(ptr %records, i64 %n_arguments, ptr @Py_DecRef)
  br label %result

result:
  %error.at = pointer head.error of %head
  %error = load i64, ptr %error.at, align 8
  %is_sound = icmp eq i64 %error, 0
  br i1 %is_sound, label %sound, label %raise
raise:
  ; the step counts as running until Python has read what happened
  %raiser = pointer head.raiser of %head
  %raised = call ptr @PyObject_Vectorcall(ptr %raiser, ptr null, i64 0, ptr null)
  store i64 0, ptr %busy, align 8
  ret ptr %raised
sound:
  ; a call that fails has changed nothing and does not count
  %calls.at = getelementptr i64, ptr %head, i64 {HEAD.index("calls")}
  %calls = load i64, ptr %calls.at, align 8
  %calls1 = add i64 %calls, 1
  store i64 %calls1, ptr %calls.at, align 8
  %makes_tuple = word head.makes_tuple of %head
  %is_tuple = icmp ne i64 %makes_tuple, 0
  br i1 %is_tuple, label %several, label %single
single:
  %item = call ptr @result_item(ptr %head, i64 0)
  store i64 0, ptr %busy, align 8
  ret ptr %item
several:
  %n_results = word head.n_results of %head
  %tuple = call ptr @PyTuple_New(i64 %n_results)
  %no_memory = icmp eq ptr %tuple, null
  br i1 %no_memory, label %leave, label %fill
fill:
  %t = phi i64 [ 0, %several ], [ %t1, %fill.item ]
  %t.more = icmp slt i64 %t, %n_results
  br i1 %t.more, label %fill.item, label %leave
fill.item:
  %t1 = add i64 %t, 1
  %member = call ptr @result_item(ptr %head, i64 %t)
  %members = getelementptr i8, ptr %tuple, i64 {TUPLE_ITEMS_OFFSET}
  %member.at = getelementptr ptr, ptr %members, i64 %t
  store ptr %member, ptr %member.at, align 8
  br label %fill
leave:
  store i64 0, ptr %busy, align 8
  ret ptr %tuple

fail:
  %reason = phi i64 [ {REASONS.index("arity")}, %arity ], [ {REASONS.index("keyword")}, %none_given ],
    [ {REASONS.index("keyword")}, %some_given ], [ {REASONS.index("keyword")}, %name.look ],
    [ {REASONS.index("argument")}, %argument.look ], [ {REASONS.index("argument")}, %identity.look ],
    [ {REASONS.index("sizes")}, %size.look ],
    [ {REASONS.index("word")}, %word.look ],
    [ {REASONS.index("dict")}, %dict.fail ], [ {REASONS.index("ring")}, %ring.look ]
  %index = phi i64 [ 0, %arity ], [ 0, %none_given ], [ 0, %some_given ], [ %k, %name.look ], [ %a, %argument.look ],
    [ %other, %identity.look ], [ %z, %size.look ], [ %w, %word.look ], [ %g, %dict.fail ], [ %r, %ring.look ]
  %answer = phi i64 [ %slow, %arity ], [ %slow, %none_given ], [ %slow, %some_given ], [ %slow, %name.look ],
    [ %slow, %argument.look ], [ %slow, %identity.look ], [ %slow, %size.look ], [ %slow, %word.look ],
    [ %slow, %dict.fail ], [ %need_output, %ring.look ]
  store i64 0, ptr %busy, align 8
  br label %refuse
refuse:
  %why = phi i64 [ {REASONS.index("busy")}, %entry ], [ %reason, %fail ]
  %which = phi i64 [ 0, %entry ], [ %index, %fail ]
  %sentinel64 = phi i64 [ %busy_result, %entry ], [ %answer, %fail ]
  %which.high = shl i64 %which, 8
  %failure = or i64 %why, %which.high
  %failure.at = getelementptr i64, ptr %head, i64 {HEAD.index("failure")}
  store i64 %failure, ptr %failure.at, align 8
  %fallback64 = word head.fallback of %head
  %has_fallback = icmp ne i64 %fallback64, 0
  br i1 %has_fallback, label %fall_back, label %say
fall_back:
  %fallback = inttoptr i64 %fallback64 to ptr
  %answered = tail call ptr @PyObject_Vectorcall(ptr %fallback, ptr %args, i64 %nargs, ptr %names)
  ret ptr %answered
say:
  %sentinel = inttoptr i64 %sentinel64 to ptr
  call void @Py_IncRef(ptr %sentinel)
  ret ptr %sentinel
}}
"""
