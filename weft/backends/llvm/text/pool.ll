; The native thread pool; see `pool.py` for what its functions do.
;
; The word @weft_state tells of waves, from low to high bits: how many workers are inside (16), whether the wave
; is open (1), how many may be inside (15), and the number of the wave (32). Workers enter and leave by changing
; it, so when the caller has closed the wave and nobody is inside, nobody will look at its launches. The word
; @weft_claims holds how many pieces were claimed from the front (32) and from the back (32).
%launch = type { ptr, ptr, i64, i64 }
%line = type { i64, [15 x i64] }

@weft_threads = internal global %line zeroinitializer, align 128
@weft_spin = internal global i64 0
@weft_started = internal global i64 0
@weft_owner = internal global %line zeroinitializer, align 128
@weft_state = internal global %line zeroinitializer, align 128
@weft_claims = internal global %line zeroinitializer, align 128
@weft_sleepers = internal global %line zeroinitializer, align 128
@weft_job = internal global { ptr, ptr, i64, i64 } zeroinitializer, align 128
@weft_mutex = internal global [16 x i64] zeroinitializer, align 128
@weft_condition = internal global [16 x i64] zeroinitializer, align 128

declare void $pause_declared
declare i32 @clock_gettime(i32, ptr)
declare i32 @sched_yield()
declare i32 @sigfillset(ptr)
declare i32 @pthread_sigmask(i32, ptr, ptr)
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_detach(ptr)
declare i32 @pthread_attr_init(ptr)
declare i32 @pthread_attr_setstacksize(ptr, i64)
declare i32 @pthread_attr_destroy(ptr)
declare i32 @pthread_mutex_init(ptr, ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_init(ptr, ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_signal(ptr)

define i64 @weft_now() nounwind {
  %time = alloca [2 x i64]
  call i32 @clock_gettime(i32 $clock, ptr %time)
  %seconds = load i64, ptr %time
  %rest_place = getelementptr i64, ptr %time, i64 1
  %rest = load i64, ptr %rest_place
  %scaled = mul i64 %seconds, 1000000000
  %sum = add i64 %scaled, %rest
  ret i64 %sum
}

define void @weft_pool_set(i64 %threads, i64 %spin) nounwind {
  store atomic i64 %threads, ptr @weft_threads monotonic, align 8
  store atomic i64 %spin, ptr @weft_spin monotonic, align 8
  ret void
}

define i64 @weft_pool_started() nounwind {
  %started = load atomic i64, ptr @weft_started monotonic, align 8
  ret i64 %started
}

define void @weft_pool_reset() nounwind {
  store atomic i64 0, ptr @weft_started monotonic, align 8
  store atomic i64 0, ptr @weft_sleepers monotonic, align 8
  store atomic i64 0, ptr @weft_state monotonic, align 8
  call i32 @pthread_mutex_init(ptr @weft_mutex, ptr null)
  call i32 @pthread_cond_init(ptr @weft_condition, ptr null)
  store atomic i64 0, ptr @weft_owner release, align 8
  ret void
}

define internal void @start(i64 %wanted) nounwind noinline {
entry:
  %all = alloca [16 x i64]
  %before = alloca [16 x i64]
  %attributes = alloca [16 x i64]
  %thread = alloca ptr
  %started = load atomic i64, ptr @weft_started monotonic, align 8
  call i32 @sigfillset(ptr %all)
  call i32 @pthread_sigmask(i32 $set_mask, ptr %all, ptr %before)
  call i32 @pthread_attr_init(ptr %attributes)
  call i32 @pthread_attr_setstacksize(ptr %attributes, i64 4194304)
  br label %next
next:
  %i = phi i64 [%started, %entry], [%i1, %made]
  %more = icmp slt i64 %i, %wanted
  br i1 %more, label %make, label %done
make:
  %code = call i32 @pthread_create(ptr %thread, ptr %attributes, ptr @worker, ptr null)
  %ok = icmp eq i32 %code, 0
  br i1 %ok, label %made, label %done
made:
  %handle = load ptr, ptr %thread
  call i32 @pthread_detach(ptr %handle)
  %i1 = add i64 %i, 1
  br label %next
done:
  store atomic i64 %i, ptr @weft_started monotonic, align 8
  call i32 @pthread_attr_destroy(ptr %attributes)
  call i32 @pthread_sigmask(i32 $set_mask, ptr %before, ptr null)
  ret void
}

define internal void @run_piece(ptr %launches, ptr %starts, i64 %piece) nounwind {
entry:
  br label %next
next:
  %l = phi i64 [0, %entry], [%l1, %next]
  %l1 = add i64 %l, 1
  %end_place = getelementptr i64, ptr %starts, i64 %l1
  %end = load i64, ptr %end_place
  %here = icmp slt i64 %piece, %end
  br i1 %here, label %found, label %next
found:
  %start_place = getelementptr i64, ptr %starts, i64 %l
  %start = load i64, ptr %start_place
  %launch = getelementptr %launch, ptr %launches, i64 %l
  %args_place = getelementptr %launch, ptr %launch, i64 0, i32 1
  %count_place = getelementptr %launch, ptr %launch, i64 0, i32 2
  %grain_place = getelementptr %launch, ptr %launch, i64 0, i32 3
  %kernel = load ptr, ptr %launch
  %args = load ptr, ptr %args_place
  %count = load i64, ptr %count_place
  %grain_given = load i64, ptr %grain_place
  %grain = call i64 @llvm.smax.i64(i64 %grain_given, i64 1)
  %number = sub i64 %piece, %start
  %begin = mul i64 %number, %grain
  %after = add i64 %begin, %grain
  %stop = call i64 @llvm.smin.i64(i64 %after, i64 %count)
  call void %kernel(ptr %args, i64 %begin, i64 %stop)
  ret void
}
declare i64 @llvm.smax.i64(i64, i64)
declare i64 @llvm.smin.i64(i64, i64)

define internal void @work(i1 %front) nounwind noinline {
entry:
  %launches = load ptr, ptr @weft_job
  %starts_place = getelementptr i64, ptr @weft_job, i64 1
  %starts = load ptr, ptr %starts_place
  %total_place = getelementptr i64, ptr @weft_job, i64 2
  %total = load i64, ptr %total_place
  %last = sub i64 %total, 1
  %claim = select i1 %front, i64 1, i64 4294967296
  br label %next
next:
  %claims = atomicrmw add ptr @weft_claims, i64 %claim acq_rel
  %of_front = and i64 %claims, 4294967295
  %of_back = lshr i64 %claims, 32
  %claimed = add i64 %of_front, %of_back
  %left = icmp slt i64 %claimed, %total
  br i1 %left, label %run, label %done
run:
  %mirrored = sub i64 %last, %of_back
  %piece = select i1 %front, i64 %of_front, i64 %mirrored
  call void @run_piece(ptr %launches, ptr %starts, i64 %piece)
  br label %next
done:
  ret void
}

define internal i1 @may_enter(i64 %state, i64 %last) nounwind alwaysinline {
  %open_bit = and i64 %state, 65536
  %open = icmp ne i64 %open_bit, 0
  %number = lshr i64 %state, 32
  %new = icmp ne i64 %number, %last
  %inside = and i64 %state, 65535
  %limit_high = lshr i64 %state, 17
  %limit = and i64 %limit_high, 32767
  %room = icmp ult i64 %inside, %limit
  %a = and i1 %open, %new
  %b = and i1 %a, %room
  ret i1 %b
}

define internal ptr @worker(ptr %unused) nounwind {
entry:
  %begun = call i64 @weft_now()
  br label %look
look:
  %last = phi i64 [0, %entry], [%number, %worked], [%last, %spin], [%last, %retry], [%last, %awake]
  %since = phi i64 [%begun, %entry], [%ended, %worked], [%since, %spin], [%since, %retry], [%woken, %awake]
  %turns = phi i64 [0, %entry], [0, %worked], [%turns1, %spin], [%turns, %retry], [0, %awake]
  %state = load atomic i64, ptr @weft_state acquire, align 8
  %may = call i1 @may_enter(i64 %state, i64 %last)
  br i1 %may, label %enter, label %idle
enter:
  %entered = add i64 %state, 1
  %pair = cmpxchg ptr @weft_state, i64 %state, i64 %entered acq_rel acquire
  %success = extractvalue { i64, i1 } %pair, 1
  br i1 %success, label %inside, label %retry
retry:
  br label %look
inside:
  %number = lshr i64 %state, 32
  %mode_place = getelementptr i64, ptr @weft_job, i64 3
  %mode = load i64, ptr %mode_place
  %own_mode = call i64 @weft_mode()
  call void @weft_set_mode(i64 %mode)
  call void @work(i1 false)
  call void @weft_set_mode(i64 %own_mode)
  br label %worked
worked:
  %before = atomicrmw sub ptr @weft_state, i64 1 release
  %ended = call i64 @weft_now()
  br label %look
idle:
  %turns1 = add i64 %turns, 1
  %some = and i64 %turns1, 31
  %time_to_look = icmp eq i64 %some, 0
  %spin_limit = load atomic i64, ptr @weft_spin monotonic, align 8
  %never = icmp eq i64 %spin_limit, 0
  %look_now = or i1 %time_to_look, %never
  br i1 %look_now, label %clock, label %spin
spin:
  call void $pause
  br label %look
clock:
  call i32 @sched_yield()
  %now = call i64 @weft_now()
  %idle_time = sub i64 %now, %since
  %long = icmp sge i64 %idle_time, %spin_limit
  br i1 %long, label %sleep, label %spin
sleep:
  call i32 @pthread_mutex_lock(ptr @weft_mutex)
  %s0 = atomicrmw add ptr @weft_sleepers, i64 1 seq_cst
  %state_again = load atomic i64, ptr @weft_state seq_cst, align 8
  %may_again = call i1 @may_enter(i64 %state_again, i64 %last)
  br i1 %may_again, label %awake, label %wait
wait:
  call i32 @pthread_cond_wait(ptr @weft_condition, ptr @weft_mutex)
  br label %awake
awake:
  %s1 = atomicrmw sub ptr @weft_sleepers, i64 1 seq_cst
  call i32 @pthread_mutex_unlock(ptr @weft_mutex)
  %woken = call i64 @weft_now()
  br label %look
}

define internal void @wake(i64 %most) nounwind noinline {
entry:
  call i32 @pthread_mutex_lock(ptr @weft_mutex)
  br label %next
next:
  %i = phi i64 [0, %entry], [%i1, %signal]
  %sleepers = load atomic i64, ptr @weft_sleepers monotonic, align 8
  %there = icmp slt i64 %i, %sleepers
  %wanted = icmp slt i64 %i, %most
  %more = and i1 %there, %wanted
  br i1 %more, label %signal, label %done
signal:
  call i32 @pthread_cond_signal(ptr @weft_condition)
  %i1 = add i64 %i, 1
  br label %next
done:
  call i32 @pthread_mutex_unlock(ptr @weft_mutex)
  ret void
}

define internal void @run_alone(ptr %launches, i64 %count) nounwind {
entry:
  br label %next
next:
  %l = phi i64 [0, %entry], [%l1, %run], [%l1, %look]
  %more = icmp slt i64 %l, %count
  br i1 %more, label %look, label %done
look:
  %l1 = add i64 %l, 1
  %launch = getelementptr %launch, ptr %launches, i64 %l
  %iterations_place = getelementptr %launch, ptr %launch, i64 0, i32 2
  %iterations = load i64, ptr %iterations_place
  %some = icmp sgt i64 %iterations, 0
  br i1 %some, label %run, label %next
run:
  %args_place = getelementptr %launch, ptr %launch, i64 0, i32 1
  %kernel = load ptr, ptr %launch
  %args = load ptr, ptr %args_place
  call void %kernel(ptr %args, i64 0, i64 %iterations)
  br label %next
done:
  ret void
}

define internal i64 @count_pieces(ptr %launches, i64 %count, ptr %starts) nounwind {
entry:
  store i64 0, ptr %starts
  br label %next
next:
  %l = phi i64 [0, %entry], [%l1, %add]
  %total = phi i64 [0, %entry], [%total1, %add]
  %more = icmp slt i64 %l, %count
  br i1 %more, label %add, label %done
add:
  %launch = getelementptr %launch, ptr %launches, i64 %l
  %iterations_place = getelementptr %launch, ptr %launch, i64 0, i32 2
  %grain_place = getelementptr %launch, ptr %launch, i64 0, i32 3
  %iterations_given = load i64, ptr %iterations_place
  %iterations = call i64 @llvm.smax.i64(i64 %iterations_given, i64 0)
  %grain_given = load i64, ptr %grain_place
  %grain = call i64 @llvm.smax.i64(i64 %grain_given, i64 1)
  %up = add i64 %iterations, %grain
  %up1 = sub i64 %up, 1
  %pieces = udiv i64 %up1, %grain
  %total1 = add i64 %total, %pieces
  %l1 = add i64 %l, 1
  %place = getelementptr i64, ptr %starts, i64 %l1
  store i64 %total1, ptr %place
  br label %next
done:
  ret i64 %total
}

define void @weft_wave(ptr %launches, i64 %count) nounwind {
entry:
  %threads = load atomic i64, ptr @weft_threads monotonic, align 8
  %alone = icmp sle i64 %threads, 1
  br i1 %alone, label %serial, label %divide
divide:
  %room = add i64 %count, 1
  %starts = alloca i64, i64 %room
  %total = call i64 @count_pieces(ptr %launches, i64 %count, ptr %starts)
  %few = icmp sle i64 %total, 1
  %many = icmp sge i64 %total, 1073741824
  %strange = or i1 %few, %many
  br i1 %strange, label %serial, label %claim
claim:
  %pair = cmpxchg ptr @weft_owner, i64 0, i64 1 acquire monotonic
  %mine = extractvalue { i64, i1 } %pair, 1
  br i1 %mine, label %prepare, label %serial
prepare:
  %others = sub i64 %threads, 1
  %started = load atomic i64, ptr @weft_started monotonic, align 8
  %enough = icmp sge i64 %started, %others
  br i1 %enough, label %open, label %begin_threads
begin_threads:
  call void @start(i64 %others)
  br label %open
open:
  %starts_place = getelementptr i64, ptr @weft_job, i64 1
  %total_place = getelementptr i64, ptr @weft_job, i64 2
  store ptr %launches, ptr @weft_job
  store ptr %starts, ptr %starts_place
  store i64 %total, ptr %total_place
  %mode_place = getelementptr i64, ptr @weft_job, i64 3
  %mode = call i64 @weft_mode()
  store i64 %mode, ptr %mode_place
  store atomic i64 0, ptr @weft_claims monotonic, align 8
  %old = load atomic i64, ptr @weft_state monotonic, align 8
  %old_number = lshr i64 %old, 32
  %number = add i64 %old_number, 1
  %number_high = shl i64 %number, 32
  %limit_high = shl i64 %others, 17
  %flags = or i64 %limit_high, 65536
  %state = or i64 %number_high, %flags
  store atomic i64 %state, ptr @weft_state seq_cst, align 8
  fence seq_cst
  %sleepers = load atomic i64, ptr @weft_sleepers seq_cst, align 8
  %some_sleep = icmp sgt i64 %sleepers, 0
  br i1 %some_sleep, label %rouse, label %join
rouse:
  %rest = sub i64 %total, 1
  %useful = call i64 @llvm.smin.i64(i64 %rest, i64 %others)
  call void @wake(i64 %useful)
  br label %join
join:
  call void @work(i1 true)
  %closing = atomicrmw and ptr @weft_state, i64 -65537 acq_rel
  br label %wait
wait:
  %turns = phi i64 [0, %join], [%turns1, %pause], [%turns1, %yield]
  %now = load atomic i64, ptr @weft_state acquire, align 8
  %inside = and i64 %now, 65535
  %empty = icmp eq i64 %inside, 0
  br i1 %empty, label %leave, label %again
again:
  %turns1 = add i64 %turns, 1
  %long = icmp sgt i64 %turns1, 200
  br i1 %long, label %yield, label %pause
pause:
  call void $pause
  br label %wait
yield:
  call i32 @sched_yield()
  br label %wait
leave:
  store atomic i64 0, ptr @weft_owner release, align 8
  ret void
serial:
  call void @run_alone(ptr %launches, i64 %count)
  ret void
}
