; A launch of a kernel from Python, as a function of Python's own convention: f(record, words...).
;
; The record has, a word each: the kernel, three sizes of the grid, three of a block, bytes of shared memory, the
; stream, the driver's function, the number of the kernel's parameters, and their values. Words that are given take the place of the
; first values; all are copied to the stack, so that several threads may launch from one record.
declare i64 @PyLong_AsUnsignedLongLong(ptr)
declare ptr @PyLong_FromLongLong(i64)

define ptr @weft_launch(ptr %self, ptr %args, i64 %given) {
entry:
  %words = alloca [128 x i64], align 8
  %params = alloca [128 x ptr], align 8
  %first = load ptr, ptr %args
  %address = call i64 @PyLong_AsUnsignedLongLong(ptr %first)
  %record = inttoptr i64 %address to ptr
  %count.at = getelementptr i64, ptr %record, i64 10
  %count = load i64, ptr %count.at
  %values = getelementptr i64, ptr %record, i64 11
  %some = icmp sgt i64 %count, 0
  br i1 %some, label %loop, label %launch

loop:
  %i = phi i64 [ 0, %entry ], [ %next, %stored ]
  %word = getelementptr i64, ptr %words, i64 %i
  %next = add i64 %i, 1
  %is.given = icmp slt i64 %next, %given
  br i1 %is.given, label %taken, label %kept

taken:
  %object.at = getelementptr ptr, ptr %args, i64 %next
  %object = load ptr, ptr %object.at
  %number = call i64 @PyLong_AsUnsignedLongLong(ptr %object)
  br label %stored

kept:
  %value.at = getelementptr i64, ptr %values, i64 %i
  %value = load i64, ptr %value.at
  br label %stored

stored:
  %content = phi i64 [ %number, %taken ], [ %value, %kept ]
  store i64 %content, ptr %word
  %param = getelementptr ptr, ptr %params, i64 %i
  store ptr %word, ptr %param
  %more = icmp slt i64 %next, %count
  br i1 %more, label %loop, label %launch

launch:
  %kernel = load ptr, ptr %record
  %gx.at = getelementptr i64, ptr %record, i64 1
  %gx.word = load i64, ptr %gx.at
  %gx = trunc i64 %gx.word to i32
  %gy.at = getelementptr i64, ptr %record, i64 2
  %gy.word = load i64, ptr %gy.at
  %gy = trunc i64 %gy.word to i32
  %gz.at = getelementptr i64, ptr %record, i64 3
  %gz.word = load i64, ptr %gz.at
  %gz = trunc i64 %gz.word to i32
  %bx.at = getelementptr i64, ptr %record, i64 4
  %bx.word = load i64, ptr %bx.at
  %bx = trunc i64 %bx.word to i32
  %by.at = getelementptr i64, ptr %record, i64 5
  %by.word = load i64, ptr %by.at
  %by = trunc i64 %by.word to i32
  %bz.at = getelementptr i64, ptr %record, i64 6
  %bz.word = load i64, ptr %bz.at
  %bz = trunc i64 %bz.word to i32
  %shared.at = getelementptr i64, ptr %record, i64 7
  %shared.word = load i64, ptr %shared.at
  %shared = trunc i64 %shared.word to i32
  %stream.at = getelementptr i64, ptr %record, i64 8
  %stream = load ptr, ptr %stream.at
  %driver.at = getelementptr i64, ptr %record, i64 9
  %driver = load ptr, ptr %driver.at
  %code = call i32 %driver(ptr %kernel, i32 %gx, i32 %gy, i32 %gz, i32 %bx, i32 %by, i32 %bz, i32 %shared, ptr %stream, ptr %params, ptr null)
  %wide = sext i32 %code to i64
  %result = call ptr @PyLong_FromLongLong(i64 %wide)
  ret ptr %result
}

; Any function of the driver that takes up to four words: f(function, a, b, c, d), whose result is the driver's code.
define ptr @weft_call(ptr %self, ptr %args, i64 %given) {
  %f.object = load ptr, ptr %args
  %f.word = call i64 @PyLong_AsUnsignedLongLong(ptr %f.object)
  %f = inttoptr i64 %f.word to ptr
  %a.at = getelementptr ptr, ptr %args, i64 1
  %a.object = load ptr, ptr %a.at
  %a = call i64 @PyLong_AsUnsignedLongLong(ptr %a.object)
  %b.at = getelementptr ptr, ptr %args, i64 2
  %b.object = load ptr, ptr %b.at
  %b = call i64 @PyLong_AsUnsignedLongLong(ptr %b.object)
  %c.at = getelementptr ptr, ptr %args, i64 3
  %c.object = load ptr, ptr %c.at
  %c = call i64 @PyLong_AsUnsignedLongLong(ptr %c.object)
  %d.at = getelementptr ptr, ptr %args, i64 4
  %d.object = load ptr, ptr %d.at
  %d = call i64 @PyLong_AsUnsignedLongLong(ptr %d.object)
  %code = call i32 %f(i64 %a, i64 %b, i64 %c, i64 %d)
  %wide = sext i32 %code to i64
  %result = call ptr @PyLong_FromLongLong(i64 %wide)
  ret ptr %result
}
