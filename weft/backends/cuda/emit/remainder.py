"""What is left of a division of floating numbers, exactly: by long division, since PTX has nothing for it.

The significands are divided bit by bit, as many as the exponents are apart. Numbers of 32 bits go by those of
64: what is left is a number of theirs, too.
"""

from __future__ import annotations

NAME = "@weft_remainder"
TEXT = f"""\
define internal double {NAME}(double %x, double %y) alwaysinline nounwind {{
entry:
  %xi = bitcast double %x to i64
  %yi = bitcast double %y to i64
  %xa = and i64 %xi, 9223372036854775807
  %ya = and i64 %yi, 9223372036854775807
  %sign = and i64 %xi, -9223372036854775808
  %x_out = icmp uge i64 %xa, 9218868437227405312
  %y_nan = icmp ugt i64 %ya, 9218868437227405312
  %y_zero = icmp eq i64 %ya, 0
  %bad_y = or i1 %y_nan, %y_zero
  %bad = or i1 %x_out, %bad_y
  br i1 %bad, label %nan, label %compare
nan:
  ret double 0x7FF8000000000000
compare:
  %less = icmp ult i64 %xa, %ya
  br i1 %less, label %same, label %unpack
same:
  ret double %x
unpack:
  %xe0 = lshr i64 %xa, 52
  %ye0 = lshr i64 %ya, 52
  %xm0 = and i64 %xa, 4503599627370495
  %ym0 = and i64 %ya, 4503599627370495
  %x_low = icmp eq i64 %xe0, 0
  %y_low = icmp eq i64 %ye0, 0
  %xe = select i1 %x_low, i64 1, i64 %xe0
  %ye = select i1 %y_low, i64 1, i64 %ye0
  %xh = or i64 %xm0, 4503599627370496
  %yh = or i64 %ym0, 4503599627370496
  %xm = select i1 %x_low, i64 %xm0, i64 %xh
  %ym = select i1 %y_low, i64 %ym0, i64 %yh
  %xn = urem i64 %xm, %ym
  br label %head
head:
  %e = phi i64 [ %xe, %unpack ], [ %next_e, %turn ]
  %m = phi i64 [ %xn, %unpack ], [ %next_m, %turn ]
  %more = icmp sgt i64 %e, %ye
  br i1 %more, label %turn, label %pack
turn:
  %twice = shl i64 %m, 1
  %left = sub i64 %twice, %ym
  %enough = icmp uge i64 %twice, %ym
  %next_m = select i1 %enough, i64 %left, i64 %twice
  %next_e = sub i64 %e, 1
  br label %head
pack:
  %zeros = call i64 @llvm.ctlz.i64(i64 %m, i1 false)
  %wanted = sub i64 %zeros, 11
  %room = sub i64 %ye, 1
  %fits = icmp sle i64 %wanted, %room
  %by = select i1 %fits, i64 %wanted, i64 %room
  %moved = shl i64 %m, %by
  %exponent = sub i64 %ye, %by
  %normal = icmp uge i64 %moved, 4503599627370496
  %fraction = and i64 %moved, 4503599627370495
  %high = shl i64 %exponent, 52
  %whole = or i64 %high, %fraction
  %size = select i1 %normal, i64 %whole, i64 %moved
  %zero = icmp eq i64 %m, 0
  %bits0 = select i1 %zero, i64 0, i64 %size
  %bits = or i64 %bits0, %sign
  %out = bitcast i64 %bits to double
  ret double %out
}}
"""
DECLARATIONS = ("declare i64 @llvm.ctlz.i64(i64, i1)",)
