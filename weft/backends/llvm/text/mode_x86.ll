; How an x86 processor treats floating-point numbers: its register MXCSR.
declare void @llvm.x86.sse.stmxcsr(ptr)
declare void @llvm.x86.sse.ldmxcsr(ptr)

define i64 @weft_mode() nounwind {
  %place = alloca i32
  call void @llvm.x86.sse.stmxcsr(ptr %place)
  %mode = load i32, ptr %place
  %wide = zext i32 %mode to i64
  ret i64 %wide
}

define void @weft_set_mode(i64 %mode) nounwind {
  %place = alloca i32
  %narrow = trunc i64 %mode to i32
  store i32 %narrow, ptr %place
  call void @llvm.x86.sse.ldmxcsr(ptr %place)
  ret void
}
