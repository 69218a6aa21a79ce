; `enter(inputs, outputs, frame, recipe)`, as Python calls its own functions; see `entry.py`.
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare ptr @PyLong_FromLongLong(i64)
declare i32 @PyList_SetItem(ptr, i64, ptr)
declare void @Py_IncRef(ptr)
declare ptr @PyArray_Empty(i32, ptr, ptr, i32)
declare i32 @PyErr_CheckSignals()
declare ptr @PyErr_Occurred()
declare i32 @PyGILState_Ensure()
declare void @PyGILState_Release(i32)
declare i64 @PyThread_get_thread_ident()

define ptr @weft_enter(ptr %self, ptr %args, i64 %nargs) {
entry:
  %inputs = load ptr, ptr %args
  %args1 = getelementptr i64, ptr %args, i64 1
  %outputs = load ptr, ptr %args1
  %args2 = getelementptr i64, ptr %args, i64 2
  %frame_object = load ptr, ptr %args2
  %frame_data = getelementptr i8, ptr %frame_object, i64 16
  %frame = load ptr, ptr %frame_data
  %args3 = getelementptr i64, ptr %args, i64 3
  %recipes_object = load ptr, ptr %args3
  %recipes_data = getelementptr i8, ptr %recipes_object, i64 16
  %recipes = load ptr, ptr %recipes_data
  %types_data = getelementptr i8, ptr %self, i64 16
  %types = load ptr, ptr %types_data
  %types1 = getelementptr i64, ptr %types, i64 1
  %types2 = getelementptr i64, ptr %types, i64 2
  %types3 = getelementptr i64, ptr %types, i64 3
  %list_type = load ptr, ptr %types
  %tuple_type = load ptr, ptr %types1
  %array_type = load ptr, ptr %types2
  %none = load ptr, ptr %types3
  %frame_inputs = getelementptr i64, ptr %frame, i64 $inputs
  %frame_outputs = getelementptr i64, ptr %frame, i64 $outputs
  %frame_checks = getelementptr i64, ptr %frame, i64 $checks
  %frame_arena = getelementptr i64, ptr %frame, i64 $arena
  %frame_sizes = getelementptr i64, ptr %frame, i64 $sizes
  %context = getelementptr i64, ptr %frame, i64 $context
  %buffers = getelementptr i64, ptr %frame, i64 $buffers
  %input_count = load i64, ptr %frame_inputs
  %output_count = load i64, ptr %frame_outputs
  %checks = load ptr, ptr %frame_checks
  %arena = load ptr, ptr %frame_arena
  %sizes = load ptr, ptr %frame_sizes
  %main = load ptr, ptr %frame
  %size_place = getelementptr i8, ptr %inputs, i64 16
  %size = load i64, ptr %size_place
  %right_size = icmp eq i64 %size, %input_count
  br i1 %right_size, label %kind, label %unknown
kind:
  %type_place = getelementptr i8, ptr %inputs, i64 8
  %type = load ptr, ptr %type_place
  %types4 = getelementptr i64, ptr %types, i64 4
  %tuple_items = load i64, ptr %types4
  %within = getelementptr i8, ptr %inputs, i64 %tuple_items
  %is_tuple = icmp eq ptr %type, %tuple_type
  br i1 %is_tuple, label %begin, label %list
list:
  %elsewhere_place = getelementptr i8, ptr %inputs, i64 24
  %elsewhere = load ptr, ptr %elsewhere_place
  %is_list = icmp eq ptr %type, %list_type
  br i1 %is_list, label %begin, label %unknown
begin:
  %items = phi ptr [%within, %kind], [%elsewhere, %list]
  br label %next
next:
  %i = phi i64 [0, %begin], [%i1, %take]
  %check = phi ptr [%checks, %begin], [%check_next, %take]
  %more = icmp slt i64 %i, %input_count
  br i1 %more, label %look, label %give
look:
  %item = getelementptr ptr, ptr %items, i64 %i
  %array = load ptr, ptr %item
  %array_type_place = getelementptr i8, ptr %array, i64 8
  %this_type = load ptr, ptr %array_type_place
  %is_array = icmp eq ptr %this_type, %array_type
  br i1 %is_array, label %compare, label %unfit
compare:
  %descr_place = getelementptr i8, ptr %array, i64 56
  %descr = load ptr, ptr %descr_place
  %wanted_descr = load ptr, ptr %check
  %same_descr = icmp eq ptr %descr, %wanted_descr
  %rank_place = getelementptr i8, ptr %array, i64 24
  %rank = load i32, ptr %rank_place
  %rank_wide = zext i32 %rank to i64
  %wanted_rank_place = getelementptr i64, ptr %check, i64 1
  %wanted_rank = load i64, ptr %wanted_rank_place
  %same_rank = icmp eq i64 %rank_wide, %wanted_rank
  %flags_place = getelementptr i8, ptr %array, i64 64
  %flags = load i32, ptr %flags_place
  %ordered = and i32 %flags, 257
  %is_ordered = icmp eq i32 %ordered, 257
  %fits1 = and i1 %same_descr, %same_rank
  %fits2 = and i1 %fits1, %is_ordered
  br i1 %fits2, label %shape, label %unfit
shape:
  %dims_place = getelementptr i8, ptr %array, i64 32
  %dims = load ptr, ptr %dims_place
  %wanted_dims = getelementptr i64, ptr %check, i64 2
  br label %axis
axis:
  %d = phi i64 [0, %shape], [%d1, %dim]
  %more_axes = icmp slt i64 %d, %rank_wide
  br i1 %more_axes, label %dim, label %take
dim:
  %dim_place = getelementptr i64, ptr %dims, i64 %d
  %length = load i64, ptr %dim_place
  %wanted_place = getelementptr i64, ptr %wanted_dims, i64 %d
  %wanted = load i64, ptr %wanted_place
  %same = icmp eq i64 %length, %wanted
  %d1 = add i64 %d, 1
  br i1 %same, label %axis, label %unfit
take:
  %data_place = getelementptr i8, ptr %array, i64 16
  %data = load ptr, ptr %data_place
  %buffer = getelementptr ptr, ptr %buffers, i64 %i
  store ptr %data, ptr %buffer
  %check_next = getelementptr i64, ptr %wanted_dims, i64 %rank_wide
  %i1 = add i64 %i, 1
  br label %next
give:
  %outputs_place = getelementptr i8, ptr %outputs, i64 24
  %output_items = load ptr, ptr %outputs_place
  %output_buffers = getelementptr ptr, ptr %buffers, i64 %input_count
  br label %next_output
next_output:
  %o = phi i64 [0, %give], [%o1, %placed]
  %recipe = phi ptr [%recipes, %give], [%recipe_next, %placed]
  %more_outputs = icmp slt i64 %o, %output_count
  br i1 %more_outputs, label %output, label %run
output:
  %donor = load i64, ptr %recipe
  %recipe1 = getelementptr i64, ptr %recipe, i64 1
  %new_descr = load ptr, ptr %recipe1
  %recipe2 = getelementptr i64, ptr %recipe, i64 2
  %new_rank = load i64, ptr %recipe2
  %new_dims = getelementptr i64, ptr %recipe, i64 3
  %recipe_next = getelementptr i64, ptr %new_dims, i64 %new_rank
  %output_item = getelementptr ptr, ptr %output_items, i64 %o
  %held = load ptr, ptr %output_item
  %is_missing = icmp eq ptr %held, %none
  br i1 %is_missing, label %missing, label %placed
missing:
  %is_given = icmp sge i64 %donor, 0
  br i1 %is_given, label %borrow, label %create
borrow:
  %donor_item = getelementptr ptr, ptr %items, i64 %donor
  %donated = load ptr, ptr %donor_item
  call void @Py_IncRef(ptr %donated)
  br label %put
create:
  call void @Py_IncRef(ptr %new_descr)
  %new_rank_narrow = trunc i64 %new_rank to i32
  %created = call ptr @PyArray_Empty(i32 %new_rank_narrow, ptr %new_dims, ptr %new_descr, i32 0)
  %refused = icmp eq ptr %created, null
  br i1 %refused, label %fail, label %put
put:
  %new = phi ptr [%donated, %borrow], [%created, %create]
  %status = call i32 @PyList_SetItem(ptr %outputs, i64 %o, ptr %new)
  br label %placed
placed:
  %output_array = phi ptr [%held, %output], [%new, %put]
  %output_data_place = getelementptr i8, ptr %output_array, i64 16
  %output_data = load ptr, ptr %output_data_place
  %output_buffer = getelementptr ptr, ptr %output_buffers, i64 %o
  store ptr %output_data, ptr %output_buffer
  %output_flags_place = getelementptr i8, ptr %output_array, i64 64
  %output_flags = load i32, ptr %output_flags_place
  %output_ordered = and i32 %output_flags, 1281
  %output_fits = icmp eq i32 %output_ordered, 1281
  %o1 = add i64 %o, 1
  br i1 %output_fits, label %next_output, label %unknown
fail:
  ret ptr null
run:
  store i64 0, ptr %context
  %thread_number = call i64 @PyThread_get_thread_ident()
  %busy = getelementptr i64, ptr %context, i64 $thread
  store atomic i64 %thread_number, ptr %busy monotonic, align 8
  %thread = call ptr @PyEval_SaveThread()
  %code = call i64 %main(ptr %context, ptr %buffers, ptr %arena, ptr %sizes)
  store atomic i64 0, ptr %busy monotonic, align 8
  call void @PyEval_RestoreThread(ptr %thread)
  %is_fine = icmp eq i64 %code, 0
  br i1 %is_fine, label %leave, label %failed
failed:
  %error = call ptr @PyErr_Occurred()
  %is_noted = icmp eq ptr %error, null
  br i1 %is_noted, label %leave, label %fail
unfit:
  %which = add i64 %i, $unfit
  br label %leave
unknown:
  br label %leave
leave:
  %result = phi i64 [%code, %run], [%code, %failed], [%which, %unfit], [$unknown, %unknown]
  %number = call ptr @PyLong_FromLongLong(i64 %result)
  ret ptr %number
}

; `weft_poll(context, failure)`: whether a run ends, because its thread is to end it, or because a signal raised an
; error, which is then set as Python's; it is noted as a failure with that number.
define i64 @weft_poll(ptr %context, i64 %failure) {
entry:
  %stop = getelementptr i64, ptr %context, i64 $stop
  %busy = getelementptr i64, ptr %context, i64 $thread
  %wanted = atomicrmw xchg ptr %stop, i64 0 monotonic
  %own = load atomic i64, ptr %busy monotonic, align 8
  %ends = icmp eq i64 %wanted, %own
  br i1 %ends, label %note, label %other
other:
  %looks = icmp eq i64 %wanted, 1
  br i1 %looks, label %look, label %on
look:
  %state = call i32 @PyGILState_Ensure()
  %found = call i32 @PyErr_CheckSignals()
  call void @PyGILState_Release(i32 %state)
  %raised = icmp ne i32 %found, 0
  br i1 %raised, label %note, label %on
note:
  %noted = cmpxchg ptr %context, i64 0, i64 %failure monotonic monotonic
  ret i64 1
on:
  ret i64 0
}
