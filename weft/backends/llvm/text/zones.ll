; The memory of code that is checked: rubbish in new memory, and zones before and after it that nobody writes to.
declare ptr @realloc(ptr, i64)
declare void @free(ptr)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

; Fill a buffer from a byte on with rubbish, and both zones.
define internal void @weft_spoil(ptr %data, i64 %from, i64 %bytes, i8 %mark) noinline nounwind {
  %before = getelementptr i8, ptr %data, i64 -$zone
  call void @llvm.memset.p0.i64(ptr %before, i8 %mark, i64 $zone, i1 false)
  %after = getelementptr i8, ptr %data, i64 %bytes
  call void @llvm.memset.p0.i64(ptr %after, i8 %mark, i64 $zone, i1 false)
  br label %next
next:
  %i = phi i64 [ %from, %0 ], [ %i1, %fill ]
  %more = icmp slt i64 %i, %bytes
  br i1 %more, label %fill, label %end
fill:
  %odd = and i64 %i, 1
  %is_odd = icmp eq i64 %odd, 1
  %byte = select i1 %is_odd, i8 $high, i8 $low
  %place = getelementptr i8, ptr %data, i64 %i
  store i8 %byte, ptr %place
  %i1 = add i64 %i, 1
  br label %next
end:
  ret void
}

; Whether the zones of a buffer are as they were: 0, else 1 for the one before and 2 for the one after.
define internal i64 @weft_look(ptr %data, i64 %bytes, i8 %mark) noinline nounwind {
  %none = icmp eq ptr %data, null
  br i1 %none, label %fine, label %begin
begin:
  %before = getelementptr i8, ptr %data, i64 -$zone
  %after = getelementptr i8, ptr %data, i64 %bytes
  br label %next
next:
  %i = phi i64 [ 0, %begin ], [ %i1, %step ]
  %place = getelementptr i8, ptr %before, i64 %i
  %byte = load i8, ptr %place
  %same = icmp eq i8 %byte, %mark
  br i1 %same, label %other, label %wrong_before
other:
  %place2 = getelementptr i8, ptr %after, i64 %i
  %byte2 = load i8, ptr %place2
  %same2 = icmp eq i8 %byte2, %mark
  br i1 %same2, label %step, label %wrong_after
step:
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, $zone
  br i1 %more, label %next, label %fine
fine:
  ret i64 0
wrong_before:
  ret i64 1
wrong_after:
  ret i64 2
}

; Memory from the heap of so many bytes with zones around it, that begins as what there was; null if it is refused.
define internal ptr @weft_grow(ptr %old, i64 %held, i64 %bytes, i8 %mark) noinline nounwind {
  %none = icmp eq ptr %old, null
  %begin = getelementptr i8, ptr %old, i64 -$zone
  %given = select i1 %none, ptr null, ptr %begin
  %all = add i64 %bytes, $both
  %new = call ptr @realloc(ptr %given, i64 %all)
  %refused = icmp eq ptr %new, null
  br i1 %refused, label %no, label %yes
yes:
  %data = getelementptr i8, ptr %new, i64 $zone
  call void @weft_spoil(ptr %data, i64 %held, i64 %bytes, i8 %mark)
  ret ptr %data
no:
  ret ptr null
}

; Give such memory back.
define internal void @weft_drop(ptr %data) noinline nounwind {
  %none = icmp eq ptr %data, null
  %begin = getelementptr i8, ptr %data, i64 -$zone
  %given = select i1 %none, ptr null, ptr %begin
  call void @free(ptr %given)
  ret void
}
