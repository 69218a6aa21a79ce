"""Written by ``python -m tests.stubs --write``."""

# ruff: noqa
# fmt: off
from weft import linalg as _linalg
from weft.ops import activation as _activation
from weft.ops import arithmetic as _arithmetic
from weft.ops import complex as _complex
from weft.ops import compound as _compound
from weft.ops import contract as _contract
from weft.ops import index_axis as _index_axis
from weft.ops import products as _products
from weft.ops import reduce as _reduce
from weft.ops import scan as _scan
from weft.ops import softmax as _softmax
from weft.ops import sort as _sort
from weft.ops import statistics as _statistics
from weft.ops.view import axes as _axes
from weft.ops.view import joining as _joining
from weft.ops.view import padding as _padding
from weft.tensor import casts as _casts
from weft.tensor import dynamic as _dynamic
from weft.tensor import elementwise_methods as _elementwise_methods
from weft.tensor import functions as _functions
from weft.tensor import indexing as _indexing
from weft.tensor import interop as _interop
from weft.tensor import methods as _methods
from typing import Any

from weft.tensor.functions import Operand
from weft.tensor.tensor import Tensor

class Attached:
    def _unary(self) -> Tensor: ...
    def _binary(self, other: Operand) -> Tensor: ...
    def __eq__(self, other: object) -> Tensor: ...  # type: ignore[override]
    def __ne__(self, other: object) -> Tensor: ...  # type: ignore[override]
    def __getitem__(self, key: Any) -> Tensor: ...
    @property
    def T(self) -> Tensor: ...
    @property
    def imag(self) -> Tensor: ...
    @property
    def mT(self) -> Tensor: ...
    @property
    def real(self) -> Tensor: ...
    __array_namespace__ = _interop._array_namespace; __dlpack__ = _interop._dlpack
    __dlpack_device__ = _interop._dlpack_device; __setitem__ = _indexing.setitem; abs = _functions.abs
    abs_ = _functions.abs; absolute = _functions.absolute; absolute_ = _functions.absolute
    acos = _functions.acos; acos_ = _functions.acos; acosh = _functions.acosh; acosh_ = _functions.acosh
    add = _elementwise_methods.add; add_ = _elementwise_methods.add; all = _reduce.all
    allclose = _compound.allclose; amax = _reduce.max; amin = _reduce.min; angle = _functions.angle
    angle_ = _functions.angle; any = _reduce.any; argmax = _reduce.argmax; argmin = _reduce.argmin
    argsort = _sort.argsort; argwhere = _dynamic.argwhere; asin = _functions.asin; asin_ = _functions.asin
    asinh = _functions.asinh; asinh_ = _functions.asinh; astype = _casts.astype; atan = _functions.atan
    atan2 = _functions.atan2; atan2_ = _functions.atan2; atan_ = _functions.atan; atanh = _functions.atanh
    atanh_ = _functions.atanh; bincount = _dynamic.bincount; bitwise_and = _functions.bitwise_and
    bitwise_and_ = _functions.bitwise_and; bitwise_invert = _functions.bitwise_invert
    bitwise_invert_ = _functions.bitwise_invert; bitwise_left_shift = _functions.bitwise_left_shift
    bitwise_left_shift_ = _functions.bitwise_left_shift; bitwise_not = _functions.bitwise_not
    bitwise_not_ = _functions.bitwise_not; bitwise_or = _functions.bitwise_or
    bitwise_or_ = _functions.bitwise_or; bitwise_right_shift = _functions.bitwise_right_shift
    bitwise_right_shift_ = _functions.bitwise_right_shift; bitwise_xor = _functions.bitwise_xor
    bitwise_xor_ = _functions.bitwise_xor; bmm = _products.bmm; broadcast_to = _axes.broadcast_to
    ceil = _functions.ceil; ceil_ = _functions.ceil; chunk = _joining.chunk; clamp = _arithmetic.clip
    clamp_ = _arithmetic.clip; clip = _arithmetic.clip; clip_ = _arithmetic.clip; conj = _complex.conj
    contiguous = _methods._contiguous; copysign = _functions.copysign; copysign_ = _functions.copysign
    cos = _functions.cos; cos_ = _functions.cos; cosh = _functions.cosh; cosh_ = _functions.cosh
    count_nonzero = _reduce.count_nonzero; cpu = _casts._cpu; cummax = _scan.cummax; cummin = _scan.cummin
    cumprod = _scan.cumprod; cumsum = _scan.cumsum; det = _linalg.det; diagonal = _padding.diagonal
    diff = _scan.diff; digamma = _functions.digamma; digamma_ = _functions.digamma; div = _functions.div
    div_ = _functions.div; divide = _functions.divide; divide_ = _functions.divide; dot = _products.dot
    eq = _functions.eq; eq_ = _functions.eq; equal = _functions.equal; equal_ = _functions.equal
    erf = _functions.erf; erf_ = _functions.erf; erfc = _functions.erfc; erfc_ = _functions.erfc
    erfinv = _functions.erfinv; erfinv_ = _functions.erfinv; exp = _functions.exp; exp2 = _functions.exp2
    exp2_ = _functions.exp2; exp_ = _functions.exp; expand = _axes.expand; expm1 = _functions.expm1
    expm1_ = _functions.expm1; flatten = _axes.flatten; flip = _methods._flip; floor = _functions.floor
    floor_ = _functions.floor; floor_divide = _functions.floor_divide
    floor_divide_ = _functions.floor_divide; fmod = _functions.fmod; fmod_ = _functions.fmod
    gather = _index_axis.gather; ge = _functions.ge; ge_ = _functions.ge; greater = _functions.greater
    greater_ = _functions.greater; greater_equal = _functions.greater_equal
    greater_equal_ = _functions.greater_equal; gt = _functions.gt; gt_ = _functions.gt
    hypot = _functions.hypot; hypot_ = _functions.hypot; index_add = _index_axis.index_add
    index_select = _index_axis.index_select; isclose = _compound.isclose; isfinite = _functions.isfinite
    isfinite_ = _functions.isfinite; isinf = _functions.isinf; isinf_ = _functions.isinf
    isnan = _functions.isnan; isnan_ = _functions.isnan; le = _functions.le; le_ = _functions.le
    lerp = _compound.lerp; lerp_ = _compound.lerp; less = _functions.less; less_ = _functions.less
    less_equal = _functions.less_equal; less_equal_ = _functions.less_equal; lgamma = _functions.lgamma
    lgamma_ = _functions.lgamma; log = _functions.log; log10 = _functions.log10; log10_ = _functions.log10
    log1p = _functions.log1p; log1p_ = _functions.log1p; log2 = _functions.log2; log2_ = _functions.log2
    log_ = _functions.log; log_softmax = _softmax.log_softmax; logaddexp = _functions.logaddexp
    logaddexp_ = _functions.logaddexp; logical_and = _functions.logical_and
    logical_and_ = _functions.logical_and; logical_not = _functions.logical_not
    logical_not_ = _functions.logical_not; logical_or = _functions.logical_or
    logical_or_ = _functions.logical_or; logical_xor = _functions.logical_xor
    logical_xor_ = _functions.logical_xor; logsumexp = _statistics.logsumexp; lt = _functions.lt
    lt_ = _functions.lt; masked_fill = _index_axis.masked_fill; masked_select = _dynamic.masked_select
    matmul = _contract.matmul; max = _reduce.max; maximum = _functions.maximum; maximum_ = _functions.maximum
    mean = _statistics.mean; median = _statistics.median; min = _reduce.min; minimum = _functions.minimum
    minimum_ = _functions.minimum; mm = _products.mm; moveaxis = _axes.moveaxis; mul = _functions.mul
    mul_ = _functions.mul; multiply = _functions.multiply; multiply_ = _functions.multiply; mv = _products.mv
    nan_to_num = _compound.nan_to_num; nan_to_num_ = _compound.nan_to_num; ne = _functions.ne
    ne_ = _functions.ne; neg = _functions.neg; neg_ = _functions.neg; negative = _functions.negative
    negative_ = _functions.negative; nextafter = _functions.nextafter; nextafter_ = _functions.nextafter
    nonzero = _dynamic.nonzero; norm = _methods._norm; not_equal = _functions.not_equal
    not_equal_ = _functions.not_equal; outer = _contract.outer; pad = _padding.pad
    permute = _methods._permute; positive = _functions.positive; positive_ = _functions.positive
    pow = _functions.pow; pow_ = _functions.pow; prod = _reduce.prod; quantile = _statistics.quantile
    reciprocal = _functions.reciprocal; reciprocal_ = _functions.reciprocal; relu = _activation.relu
    remainder = _functions.remainder; remainder_ = _functions.remainder; repeat = _joining.repeat
    reshape = _methods._reshape; roll = _joining.roll; round = _functions.round; round_ = _functions.round
    rsqrt = _functions.rsqrt; rsqrt_ = _functions.rsqrt; scatter = _index_axis.scatter
    scatter_add = _index_axis.scatter_add; sigmoid = _functions.sigmoid; sigmoid_ = _functions.sigmoid
    sign = _functions.sign; sign_ = _functions.sign; signbit = _functions.signbit
    signbit_ = _functions.signbit; sin = _functions.sin; sin_ = _functions.sin; sinh = _functions.sinh
    sinh_ = _functions.sinh; slogdet = _linalg.slogdet; softmax = _softmax.softmax; sort = _sort.sort
    split = _joining.split; sqrt = _functions.sqrt; sqrt_ = _functions.sqrt; square = _functions.square
    square_ = _functions.square; squeeze = _axes.squeeze; std = _statistics.std
    sub = _elementwise_methods.sub; sub_ = _elementwise_methods.sub; subtract = _elementwise_methods.sub
    subtract_ = _elementwise_methods.sub; sum = _reduce.sum; swapaxes = _axes.swapaxes; t = _methods._t
    take = _index_axis.take; take_along_axis = _index_axis.take_along_axis; tan = _functions.tan
    tan_ = _functions.tan; tanh = _functions.tanh; tanh_ = _functions.tanh; tile = _methods._tile
    to_device = _casts._to_device; topk = _sort.topk; trace = _linalg.trace; transpose = _axes.swapaxes
    tril = _padding.tril; triu = _padding.triu; true_divide = _functions.true_divide
    true_divide_ = _functions.true_divide; trunc = _functions.trunc; trunc_ = _functions.trunc
    type_as = _casts._type_as; unbind = _joining.unstack; unflatten = _axes.unflatten
    unique = _dynamic.unique; unsqueeze = _axes.expand_dims; var = _statistics.var; view = _methods._view
    __abs__ = _unary; __add__ = _binary; __and__ = _binary; __floordiv__ = _binary; __ge__ = _binary
    __gt__ = _binary; __iadd__ = _binary; __iand__ = _binary; __ifloordiv__ = _binary; __ilshift__ = _binary
    __imatmul__ = _binary; __imod__ = _binary; __imul__ = _binary; __invert__ = _unary; __ior__ = _binary
    __ipow__ = _binary; __irshift__ = _binary; __isub__ = _binary; __itruediv__ = _binary; __ixor__ = _binary
    __le__ = _binary; __lshift__ = _binary; __lt__ = _binary; __matmul__ = _binary; __mod__ = _binary
    __mul__ = _binary; __neg__ = _unary; __or__ = _binary; __pos__ = _unary; __pow__ = _binary
    __radd__ = _binary; __rand__ = _binary; __rfloordiv__ = _binary; __rlshift__ = _binary
    __rmatmul__ = _binary; __rmod__ = _binary; __rmul__ = _binary; __ror__ = _binary; __rpow__ = _binary
    __rrshift__ = _binary; __rshift__ = _binary; __rsub__ = _binary; __rtruediv__ = _binary
    __rxor__ = _binary; __sub__ = _binary; __truediv__ = _binary; __xor__ = _binary; bfloat16 = _unary
    bool = _unary; copy_ = _binary; double = _unary; fill_ = _binary; float = _unary; half = _unary
    int = _unary; long = _unary; short = _unary; zero_ = _unary
