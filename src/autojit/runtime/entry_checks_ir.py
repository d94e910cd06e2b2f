"""The native checks of one call, as LLVM IR text: arguments, slots, output rings.

Every function answers whether its record holds, and stores what the step needs (data pointers, numbers, picked tensors)
on the way. They are inlined into `entry_ir`'s one function. ``word`` and ``pointer``: see `codegen.words`.
"""

from __future__ import annotations

from autojit.core.size_expressions import LEAST
from autojit.runtime.entry_words import (
    ARGUMENT,
    ARRAY_DATA_OFFSET,
    ARRAY_DTYPE_OFFSET,
    ARRAY_FLAGS_OFFSET,
    ARRAY_NDIM_OFFSET,
    ARRAY_SHAPE_OFFSET,
    DICT_SIZE_OFFSET,
    FLOAT_VALUE_OFFSET,
    RING,
    RING_ENTRY,
)

CHECKS_IR = f"""
; Whether every (offset, expected) pair holds for the object.
define internal i1 @slots_hold(ptr %object, i64 %count, i64 %pairs) alwaysinline nounwind {{
entry:
  %base = inttoptr i64 %pairs to ptr
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %i1, %same ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %look, label %yes
look:
  %at = getelementptr [2 x i64], ptr %base, i64 %i
  %offset = load i64, ptr %at, align 8
  %at1 = getelementptr i64, ptr %at, i64 1
  %expected = load i64, ptr %at1, align 8
  %slot = getelementptr i8, ptr %object, i64 %offset
  %value = load i64, ptr %slot, align 8
  %i1 = add i64 %i, 1
  %equal = icmp eq i64 %value, %expected
  br i1 %equal, label %same, label %no
same:
  br label %next
yes:
  ret i1 true
no:
  ret i1 false
}}

; Whether a part of an object (a view) has no owner (a base), or one whose slot holds what the words say.
define internal i1 @behind_holds(ptr %part, ptr %words) nounwind {{
entry:
  %empty = icmp eq ptr %part, null
  br i1 %empty, label %no, label %owner
owner:
  %owner.offset = load i64, ptr %words, align 8
  %none.at = getelementptr i64, ptr %words, i64 1
  %none = load i64, ptr %none.at, align 8
  %owner.at = getelementptr i8, ptr %part, i64 %owner.offset
  %owner.word = load i64, ptr %owner.at, align 8
  %alone = icmp eq i64 %owner.word, %none
  br i1 %alone, label %yes, label %there
there:
  %missing = icmp eq i64 %owner.word, 0
  br i1 %missing, label %no, label %slot
slot:
  %owned = inttoptr i64 %owner.word to ptr
  %slot.offset.at = getelementptr i64, ptr %words, i64 2
  %slot.offset = load i64, ptr %slot.offset.at, align 8
  %expected.at = getelementptr i64, ptr %words, i64 3
  %expected = load i64, ptr %expected.at, align 8
  %slot.at = getelementptr i8, ptr %owned, i64 %slot.offset
  %value = load i64, ptr %slot.at, align 8
  %same = icmp eq i64 %value, %expected
  ret i1 %same
yes:
  ret i1 true
no:
  ret i1 false
}}

; Whether an array's elements, in row-major order, lie outside of everything that the step writes: the last range that
; begins before they end must end before they begin.
define internal i1 @lies_apart(ptr %array, ptr %record, ptr %head) nounwind {{
entry:
  %count = word head.n_ranges of %head
  %ranges = pointer head.ranges of %head
  %ndim = word arg.ndim of %record
  %itemsize = word arg.itemsize of %record
  %shape.at = getelementptr i8, ptr %array, i64 {ARRAY_SHAPE_OFFSET}
  %shape = load ptr, ptr %shape.at, align 8
  br label %axis
axis:
  %i = phi i64 [ 0, %entry ], [ %i1, %extent ]
  %size = phi i64 [ %itemsize, %entry ], [ %size1, %extent ]
  %more = icmp slt i64 %i, %ndim
  br i1 %more, label %extent, label %bounds
extent:
  %a.at = getelementptr i64, ptr %shape, i64 %i
  %a = load i64, ptr %a.at, align 8
  %size1 = mul i64 %size, %a
  %i1 = add i64 %i, 1
  br label %axis
bounds:
  %data.at = getelementptr i8, ptr %array, i64 {ARRAY_DATA_OFFSET}
  %low = load i64, ptr %data.at, align 8
  %high = add i64 %low, %size
  %empty = icmp eq i64 %size, 0
  br i1 %empty, label %yes, label %halve
halve:
  %first = phi i64 [ 0, %bounds ], [ %first1, %look ]
  %last = phi i64 [ %count, %bounds ], [ %last1, %look ]
  %open = icmp slt i64 %first, %last
  br i1 %open, label %look, label %found
look:
  %sum = add i64 %first, %last
  %middle = lshr i64 %sum, 1
  %begin.at = getelementptr [2 x i64], ptr %ranges, i64 %middle
  %begin = load i64, ptr %begin.at, align 8
  %before = icmp ult i64 %begin, %high
  %next = add i64 %middle, 1
  %first1 = select i1 %before, i64 %next, i64 %first
  %last1 = select i1 %before, i64 %last, i64 %middle
  br label %halve
found:
  %none = icmp eq i64 %first, 0
  br i1 %none, label %yes, label %compare
compare:
  %place = sub i64 %first, 1
  %range.at = getelementptr [2 x i64], ptr %ranges, i64 %place
  %end.at = getelementptr i64, ptr %range.at, i64 1
  %end = load i64, ptr %end.at, align 8
  %apart = icmp ule i64 %end, %low
  ret i1 %apart
yes:
  ret i1 true
}}

; Whether the array is as the record says; stores its data pointer.
define internal i1 @array_holds(ptr %array, ptr %record, ptr %head) alwaysinline nounwind {{
entry:
  %array_type = word head.array_type of %head
  %type.at = getelementptr i8, ptr %array, i64 8
  %type = load i64, ptr %type.at, align 8
  %type.ok = icmp eq i64 %type, %array_type
  br i1 %type.ok, label %fields, label %no
fields:
  %dtype.at = getelementptr i8, ptr %array, i64 {ARRAY_DTYPE_OFFSET}
  %dtype = load i64, ptr %dtype.at, align 8
  %dtype.want = word arg.dtype of %record
  %dtype.ok = icmp eq i64 %dtype, %dtype.want
  %ndim.at = getelementptr i8, ptr %array, i64 {ARRAY_NDIM_OFFSET}
  %ndim32 = load i32, ptr %ndim.at, align 4
  %ndim = sext i32 %ndim32 to i64
  %ndim.want = word arg.ndim of %record
  %ndim.ok = icmp eq i64 %ndim, %ndim.want
  %flags.at = getelementptr i8, ptr %array, i64 {ARRAY_FLAGS_OFFSET}
  %flags32 = load i32, ptr %flags.at, align 4
  %flags = zext i32 %flags32 to i64
  %flags.want = word arg.flags of %record
  %flags.have = and i64 %flags, %flags.want
  %flags.ok = icmp eq i64 %flags.have, %flags.want
  %ok1 = and i1 %dtype.ok, %ndim.ok
  %ok2 = and i1 %ok1, %flags.ok
  br i1 %ok2, label %extents, label %no
extents:
  %shape.at = getelementptr i8, ptr %array, i64 {ARRAY_SHAPE_OFFSET}
  %shape = load ptr, ptr %shape.at, align 8
  %want = pointer arg.shape of %record
  %sizes = pointer head.sizes of %head
  br label %axis
axis:
  %i = phi i64 [ 0, %extents ], [ %i1, %axis.ok ]
  %more = icmp slt i64 %i, %ndim
  br i1 %more, label %extent, label %yes
extent:
  %a.at = getelementptr i64, ptr %shape, i64 %i
  %a = load i64, ptr %a.at, align 8
  %b.at = getelementptr i64, ptr %want, i64 %i
  %b = load i64, ptr %b.at, align 8
  %i1 = add i64 %i, 1
  %is_open = icmp slt i64 %b, 0
  br i1 %is_open, label %open, label %fixed
fixed:
  %same = icmp eq i64 %a, %b
  br i1 %same, label %axis.ok, label %no
open:
  %code = xor i64 %b, -1
  %symbol = lshr i64 %code, 1
  %size.at = getelementptr i64, ptr %sizes, i64 %symbol
  %is_later = trunc i64 %code to i1
  br i1 %is_later, label %agree, label %take
agree:
  %size = load i64, ptr %size.at, align 8
  %agrees = icmp eq i64 %a, %size
  br i1 %agrees, label %axis.ok, label %no
take:
  store i64 %a, ptr %size.at, align 8
  %is_general = icmp sge i64 %a, {LEAST}
  br i1 %is_general, label %axis.ok, label %no
axis.ok:
  br label %axis
yes:
  %n_ranges = word head.n_ranges of %head
  %writes = icmp ne i64 %n_ranges, 0
  br i1 %writes, label %ranges, label %holds
ranges:
  %apart = call i1 @lies_apart(ptr %array, ptr %record, ptr %head)
  br i1 %apart, label %holds, label %no
holds:
  %held.at = getelementptr i64, ptr %record, i64 {ARGUMENT.index("held")}
  store ptr %array, ptr %held.at, align 8
  %store = word arg.store of %record
  %wanted = icmp ne i64 %store, 0
  br i1 %wanted, label %write, label %done
write:
  %data.at = getelementptr i8, ptr %array, i64 {ARRAY_DATA_OFFSET}
  %data = load i64, ptr %data.at, align 8
  %cell = inttoptr i64 %store to ptr
  store i64 %data, ptr %cell, align 8
  br label %done
done:
  ret i1 true
no:
  ret i1 false
}}

; The exact int's value; false when it does not fit 64 bits.
define internal i1 @int_value(ptr %object, ptr %value) nounwind {{
  %overflow = alloca i32, align 4
  %v = call i64 @PyLong_AsLongLongAndOverflow(ptr %object, ptr %overflow)
  store i64 %v, ptr %value, align 8
  %o = load i32, ptr %overflow, align 4
  %ok = icmp eq i32 %o, 0
  ret i1 %ok
}}

define internal i1 @argument_holds(ptr %object, ptr %record, ptr %head) alwaysinline nounwind {{
entry:
  %int = alloca i64, align 8
  %kind = word arg.kind of %record
  %expected = word arg.expected of %record
  %address = ptrtoint ptr %object to i64
  %type.at = getelementptr i8, ptr %object, i64 8
  %type = load i64, ptr %type.at, align 8
  switch i64 %kind, label %no [
    i64 0, label %identity
    i64 1, label %array
    i64 2, label %tensor
    i64 3, label %float
    i64 4, label %equal_int
    i64 5, label %some_int
  ]
identity:
  %same = icmp eq i64 %address, %expected
  ret i1 %same
array:
  %array.ok = call i1 @array_holds(ptr %object, ptr %record, ptr %head)
  ret i1 %array.ok
tensor:
  %type.ok = icmp eq i64 %type, %expected
  br i1 %type.ok, label %slots, label %no
slots:
  %n_slots = word arg.n_slots of %record
  %pairs = word arg.slots of %record
  %slots.ok = call i1 @slots_hold(ptr %object, i64 %n_slots, i64 %pairs)
  br i1 %slots.ok, label %part, label %no
part:
  %part.offset = word arg.part of %record
  %part.at = getelementptr i8, ptr %object, i64 %part.offset
  %part.have = load i64, ptr %part.at, align 8
  %part.want = word arg.no_part of %record
  %bare = icmp eq i64 %part.have, %part.want
  br i1 %bare, label %inner, label %behind
behind:
  %part.object = inttoptr i64 %part.have to ptr
  %behind.words = pointer arg.behind of %record
  %behind.ok = call i1 @behind_holds(ptr %part.object, ptr %behind.words)
  br i1 %behind.ok, label %inner, label %no
inner:
  %offset = word arg.offset of %record
  %slot = getelementptr i8, ptr %object, i64 %offset
  %content = load ptr, ptr %slot, align 8
  %empty = icmp eq ptr %content, null
  br i1 %empty, label %no, label %inside
inside:
  %inside.ok = call i1 @array_holds(ptr %content, ptr %record, ptr %head)
  ret i1 %inside.ok
float:
  %float.ok = icmp eq i64 %type, %expected
  br i1 %float.ok, label %take_float, label %no
take_float:
  %value.at = getelementptr i8, ptr %object, i64 {FLOAT_VALUE_OFFSET}
  %value = load i64, ptr %value.at, align 8
  store i64 %value, ptr %int, align 8
  br label %compare_range
equal_int:
  %int_type = word head.int_type of %head
  %int.ok = icmp eq i64 %type, %int_type
  br i1 %int.ok, label %compare_int, label %no
compare_int:
  %fits = call i1 @int_value(ptr %object, ptr %int)
  %have = load i64, ptr %int, align 8
  %want = word arg.offset of %record
  %equal = icmp eq i64 %have, %want
  %both = and i1 %fits, %equal
  ret i1 %both
some_int:
  %int.ok2 = icmp eq i64 %type, %expected
  br i1 %int.ok2, label %which_int, label %no
which_int:
  %int_type2 = word head.int_type of %head
  %int.own = icmp eq i64 %type, %int_type2
  br i1 %int.own, label %take_int, label %take_int64
take_int64:
  %int64.at = getelementptr i8, ptr %object, i64 {FLOAT_VALUE_OFFSET}
  %int64 = load i64, ptr %int64.at, align 8
  store i64 %int64, ptr %int, align 8
  br label %compare_range
take_int:
  %fits2 = call i1 @int_value(ptr %object, ptr %int)
  br i1 %fits2, label %compare_range, label %no
compare_range:
  %number = load i64, ptr %int, align 8
  %least = word arg.least of %record
  %most = word arg.most of %record
  %high = icmp sge i64 %number, %least
  %low = icmp sle i64 %number, %most
  %inside.range = and i1 %high, %low
  br i1 %inside.range, label %keep, label %no
keep:
  %cell = pointer arg.store of %record
  store i64 %number, ptr %cell, align 8
  ret i1 true
no:
  ret i1 false
}}

; Pick a tensor that only its ring owns; false when there is none.
define internal i1 @ring_picks(ptr %ring) alwaysinline nounwind {{
entry:
  %count = word ring.n_entries of %ring
  %entries = pointer ring.entries of %ring
  %offset = word ring.offset of %ring
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %i1, %taken ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %look, label %no
look:
  %at = getelementptr [{len(RING_ENTRY)} x i64], ptr %entries, i64 %i
  %i1 = add i64 %i, 1
  %tensor = pointer pick.tensor of %at
  %array64 = word pick.array of %at
  %array = inttoptr i64 %array64 to ptr
  %tensor.refs = load i32, ptr %tensor, align 4
  %tensor.free = icmp eq i32 %tensor.refs, 1
  br i1 %tensor.free, label %content, label %taken
content:
  %slot = getelementptr i8, ptr %tensor, i64 %offset
  %held = load i64, ptr %slot, align 8
  %held.ok = icmp eq i64 %held, %array64
  br i1 %held.ok, label %inside, label %taken
inside:
  %array.refs = load i32, ptr %array, align 4
  %array.free = icmp eq i32 %array.refs, 1
  %flags.at = getelementptr i8, ptr %array, i64 {ARRAY_FLAGS_OFFSET}
  %flags32 = load i32, ptr %flags.at, align 4
  %flags = zext i32 %flags32 to i64
  %flags.want = word pick.flags of %at
  %flags.ok = icmp eq i64 %flags, %flags.want
  %ok = and i1 %array.free, %flags.ok
  br i1 %ok, label %slots, label %taken
slots:
  %n_slots = word ring.n_slots of %ring
  %pairs = word ring.slots of %ring
  %clean = call i1 @slots_hold(ptr %tensor, i64 %n_slots, i64 %pairs)
  br i1 %clean, label %attributes, label %taken
attributes:
  %attributes.offset = word ring.attributes_offset of %ring
  %none = icmp eq i64 %attributes.offset, 0
  br i1 %none, label %pick, label %which
which:
  %attributes.at = getelementptr i8, ptr %tensor, i64 %attributes.offset
  %attributes.have = load i64, ptr %attributes.at, align 8
  %attributes.want = word pick.attributes of %at
  %same.dict = icmp eq i64 %attributes.have, %attributes.want
  br i1 %same.dict, label %how_many, label %taken
how_many:
  %dict = inttoptr i64 %attributes.have to ptr
  %size.at = getelementptr i8, ptr %dict, i64 {DICT_SIZE_OFFSET}
  %size = load i64, ptr %size.at, align 8
  %bare = icmp eq i64 %size, 0
  br i1 %bare, label %pick, label %taken
taken:
  br label %next
pick:
  %picked.at = getelementptr i64, ptr %ring, i64 {RING.index("picked")}
  store ptr %tensor, ptr %picked.at, align 8
  %cell = pointer ring.store of %ring
  %data = word pick.data of %at
  store i64 %data, ptr %cell, align 8
  ret i1 true
no:
  ret i1 false
}}

; A new reference to a result item: a constant, or the tensor its ring picked.
define internal ptr @result_item(ptr %head, i64 %index) alwaysinline nounwind {{
entry:
  %items = pointer head.results of %head
  %at = getelementptr [2 x i64], ptr %items, i64 %index
  %ring_rank = load i64, ptr %at, align 8
  %is_constant = icmp eq i64 %ring_rank, 0
  br i1 %is_constant, label %constant, label %ring
constant:
  %object.at = getelementptr i64, ptr %at, i64 1
  %object = load ptr, ptr %object.at, align 8
  br label %owned
ring:
  %rings = pointer head.rings of %head
  %rank = sub i64 %ring_rank, 1
  %record = getelementptr [{len(RING)} x i64], ptr %rings, i64 %rank
  %tensor = pointer ring.picked of %record
  br label %owned
owned:
  %result = phi ptr [ %object, %constant ], [ %tensor, %ring ]
  call void @Py_IncRef(ptr %result)
  ret ptr %result
}}

; Keep this call's argument arrays alive while other Python threads run (`Py_IncRef`), or let go (`Py_DecRef`).
define internal void @each_held(ptr %records, i64 %count, ptr %change) nounwind {{
entry:
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %i1, %go_on ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %look, label %out
look:
  %record = getelementptr [{len(ARGUMENT)} x i64], ptr %records, i64 %i
  %i1 = add i64 %i, 1
  %kind = word arg.kind of %record
  %less = sub i64 %kind, 1
  %has_array = icmp ult i64 %less, 2
  br i1 %has_array, label %touch, label %go_on
touch:
  %held = pointer arg.held of %record
  call void %change(ptr %held)
  br label %go_on
go_on:
  br label %next
out:
  ret void
}}
"""
