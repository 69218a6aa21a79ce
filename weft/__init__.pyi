"""Written by ``python -m tests.stubs --write``."""

# ruff: noqa
# fmt: off
from weft import (
    autograd as autograd, cuda as cuda, data as data, datasets as datasets, distributions as distributions,
    errors as errors, fft as fft, functional as functional, interop as interop, io as io, jit as jit,
    linalg as linalg, nn as nn, onnx as onnx, optim as optim, parallel as parallel, passes as passes,
    random as random, serve as serve, special as special, testing as testing, train as train,
)
from weft.backends.cuda.precision import (
    get_matmul_precision as get_matmul_precision, set_matmul_precision as set_matmul_precision,
)
from weft.base.device import (
    Device as Device, default_device as default_device, get_default_device as get_default_device,
)
from weft.base.dtypes import (
    bfloat16 as bfloat16, bool_ as bool_, complex128 as complex128, complex64 as complex64,
    float16 as float16, float32 as float32, float64 as float64, get_default_dtype as get_default_dtype,
    int16 as int16, int32 as int32, int64 as int64, int8 as int8, isdtype as isdtype,
    set_default_dtype as set_default_dtype, uint16 as uint16, uint32 as uint32, uint64 as uint64,
    uint8 as uint8,
)
from weft.base.threads import get_num_threads as get_num_threads, set_num_threads as set_num_threads
from weft.base.tracebacks import set_full_tracebacks as set_full_tracebacks
from weft.base.trees import (
    register_tree as register_tree, tree_flatten as tree_flatten, tree_leaves as tree_leaves,
    tree_map as tree_map, tree_structure as tree_structure, tree_unflatten as tree_unflatten,
)
from weft.capture.static.aot import aot as aot
from weft.capture.static.make import make_graph as make_graph
from weft.capture.static.session import Session as Session
from weft.capture.static.static import (
    assign as assign, gradients as gradients, group as group, placeholder as placeholder,
)
from weft.compile import compile as compile
from weft.io.files import load as load, save as save
from weft.io.model import load_graph as load_graph, save_graph as save_graph
from weft.ir.graph import Graph as Graph
from weft.ir.parse import parse_graph as parse_graph
from weft.ir.types import TensorType as TensorType
from weft.library.export import export_library as export_library
from weft.linalg import (
    cholesky as cholesky, cross as cross, det as det, inv, matrix_power as matrix_power, pinv,
    slogdet as slogdet, svd as svd, trace as trace,
)
from weft.ops.activation import (
    celu as celu, elu as elu, gelu as gelu, glu as glu, hardshrink as hardshrink, hardsigmoid as hardsigmoid,
    hardswish as hardswish, hardtanh as hardtanh, leaky_relu as leaky_relu, logsigmoid as logsigmoid,
    mish as mish, prelu as prelu, relu as relu, relu6 as relu6, selu as selu, silu as silu,
    softplus as softplus, softshrink as softshrink, softsign as softsign, tanhshrink as tanhshrink,
    threshold as threshold,
)
from weft.ops.arithmetic import clamp_max as clamp_max, clamp_min as clamp_min, clip as clip
from weft.ops.combined import (
    addbmm as addbmm, addcdiv as addcdiv, addcmul as addcmul, addmm as addmm, addmv as addmv, addr as addr,
    baddbmm as baddbmm,
)
from weft.ops.complex import (
    complex as complex, conj as conj, imag as imag, polar as polar, real as real,
    view_as_complex as view_as_complex, view_as_real as view_as_real,
)
from weft.ops.compound import allclose as allclose, isclose as isclose, lerp as lerp, nan_to_num as nan_to_num
from weft.ops.contract import matmul as matmul, outer as outer, tensordot as tensordot, vecdot as vecdot
from weft.ops.conv.layers import (
    conv1d as conv1d, conv2d as conv2d, conv3d as conv3d, conv_transpose1d as conv_transpose1d,
    conv_transpose2d as conv_transpose2d, conv_transpose3d as conv_transpose3d,
)
from weft.ops.counting import (
    bucketize as bucketize, corrcoef as corrcoef, cov as cov, histc as histc, histogram as histogram,
    kthvalue as kthvalue, logcumsumexp as logcumsumexp, mode as mode, trapezoid as trapezoid,
)
from weft.ops.einsum import einsum as einsum
from weft.ops.gamma import polygamma as polygamma
from weft.ops.grid import affine_grid as affine_grid, grid_sample as grid_sample
from weft.ops.index_axis import (
    gather as gather, index_add as index_add, index_select as index_select, masked_fill as masked_fill,
    one_hot as one_hot, put_along_axis as put_along_axis, scatter as scatter, scatter_add as scatter_add,
    take as take, take_along_axis as take_along_axis,
)
from weft.ops.loss.classes import cross_entropy as cross_entropy, nll_loss as nll_loss
from weft.ops.loss.elements import (
    binary_cross_entropy as binary_cross_entropy,
    binary_cross_entropy_with_logits as binary_cross_entropy_with_logits,
    gaussian_nll_loss as gaussian_nll_loss, huber_loss as huber_loss, kl_div as kl_div, l1_loss as l1_loss,
    mse_loss as mse_loss, poisson_nll_loss as poisson_nll_loss, smooth_l1_loss as smooth_l1_loss,
)
from weft.ops.loss.margins import (
    cdist as cdist, cosine_embedding_loss as cosine_embedding_loss, cosine_similarity as cosine_similarity,
    hinge_embedding_loss as hinge_embedding_loss, margin_ranking_loss as margin_ranking_loss,
    multi_margin_loss as multi_margin_loss, multilabel_margin_loss as multilabel_margin_loss,
    multilabel_soft_margin_loss as multilabel_soft_margin_loss, pairwise_distance as pairwise_distance,
    pdist as pdist, soft_margin_loss as soft_margin_loss, triplet_margin_loss as triplet_margin_loss,
    triplet_margin_with_distance_loss as triplet_margin_with_distance_loss,
)
from weft.ops.norm import (
    group_norm as group_norm, layer_norm as layer_norm, local_response_norm as local_response_norm,
    normalize as normalize, rms_norm as rms_norm,
)
from weft.ops.op import no_gradient as no_gradient
from weft.ops.pool.adaptive import (
    adaptive_avg_pool1d as adaptive_avg_pool1d, adaptive_avg_pool2d as adaptive_avg_pool2d,
    adaptive_avg_pool3d as adaptive_avg_pool3d, adaptive_max_pool1d as adaptive_max_pool1d,
    adaptive_max_pool2d as adaptive_max_pool2d, adaptive_max_pool3d as adaptive_max_pool3d,
)
from weft.ops.pool.unpooling import (
    max_unpool1d as max_unpool1d, max_unpool2d as max_unpool2d, max_unpool3d as max_unpool3d,
)
from weft.ops.pool.windowed import (
    avg_pool1d as avg_pool1d, avg_pool2d as avg_pool2d, avg_pool3d as avg_pool3d, fold as fold,
    lp_pool1d as lp_pool1d, lp_pool2d as lp_pool2d, lp_pool3d as lp_pool3d, max_pool1d as max_pool1d,
    max_pool2d as max_pool2d, max_pool3d as max_pool3d, unfold as unfold,
)
from weft.ops.products import (
    bilinear as bilinear, bmm as bmm, inner as inner, kron as kron, linear as linear, mm as mm, mv as mv,
)
from weft.ops.reduce import (
    all as all, amax as amax, amin as amin, any as any, argmax as argmax, argmin as argmin,
    count_nonzero as count_nonzero, max as max, min as min, prod as prod, sum as sum,
)
from weft.ops.resize import (
    channel_shuffle as channel_shuffle, interpolate as interpolate, pixel_shuffle as pixel_shuffle,
    pixel_unshuffle as pixel_unshuffle,
)
from weft.ops.scan import (
    cummax as cummax, cummin as cummin, cumprod as cumprod, cumsum as cumsum,
    cumulative_prod as cumulative_prod, cumulative_sum as cumulative_sum, diff as diff,
)
from weft.ops.scattering import (
    index_copy as index_copy, masked_scatter as masked_scatter, scatter_reduce as scatter_reduce,
)
from weft.ops.select import where as where
from weft.ops.softmax import log_softmax as log_softmax, softmax as softmax, softmin as softmin
from weft.ops.sort import (
    argsort as argsort, isin as isin, searchsorted as searchsorted, sort as sort, topk as topk,
)
from weft.ops.special_functions import logit as logit, sinc as sinc
from weft.ops.spectrogram import istft as istft, stft as stft
from weft.ops.statistics import (
    logsumexp as logsumexp, mean as mean, median as median, nanmean as nanmean, nansum as nansum,
    quantile as quantile, std as std, var as var,
)
from weft.ops.view.arranged import (
    block_diag as block_diag, cartesian_prod as cartesian_prod, column_stack as column_stack,
    combinations as combinations, fliplr as fliplr, flipud as flipud, ravel as ravel, rot90 as rot90,
    select as select,
)
from weft.ops.view.axes import (
    atleast_1d as atleast_1d, atleast_2d as atleast_2d, atleast_3d as atleast_3d,
    broadcast_arrays as broadcast_arrays, broadcast_shapes as broadcast_shapes, broadcast_to as broadcast_to,
    expand as expand, expand_dims as expand_dims, flatten as flatten, matrix_transpose as matrix_transpose,
    moveaxis as moveaxis, permute_dims as permute_dims, reshape as reshape, squeeze as squeeze,
    swapaxes as swapaxes, transpose as transpose, unflatten as unflatten, unsqueeze as unsqueeze,
)
from weft.ops.view.joining import (
    chunk as chunk, flip as flip, repeat as repeat, repeat_interleave as repeat_interleave, roll as roll,
    split as split, tile as tile, unbind as unbind, unstack as unstack,
)
from weft.ops.view.padding import (
    crop as crop, diag as diag, diag_embed as diag_embed, diagonal as diagonal, pad as pad, tril as tril,
    triu as triu,
)
from weft.ops.view.pieces import (
    as_strided as as_strided, dstack as dstack, expand_as as expand_as, hstack as hstack, narrow as narrow,
    tensor_split as tensor_split, vstack as vstack,
)
from weft.ops.view.primitives import cat as cat, concat as concat, stack as stack
from weft.passes.check import check_passes as check_passes
from weft.profiler.block import profile as profile
from weft.profiler.memory import memory_profile as memory_profile
from weft.tensor.anomaly import detect_anomaly as detect_anomaly
from weft.tensor.array_numbers import (
    average as average, convolve as convolve, correlate as correlate, digitize as digitize,
    ediff1d as ediff1d, fmax as fmax, fmin as fmin, interp as interp, nanmax as nanmax, nanmin as nanmin,
    nanstd as nanstd, nanvar as nanvar, percentile as percentile, polyval as polyval, ptp as ptp, vdot as vdot,
)
from weft.tensor.arrays import (
    append as append, array_equal as array_equal, dsplit as dsplit, flatnonzero as flatnonzero,
    geomspace as geomspace, hsplit as hsplit, identity as identity, intersect1d as intersect1d,
    setdiff1d as setdiff1d, tri as tri, union1d as union1d, unravel_index as unravel_index, vander as vander,
    vsplit as vsplit,
)
from weft.tensor.asked import (
    BFloat16Tensor as BFloat16Tensor, BoolTensor as BoolTensor, ByteTensor as ByteTensor,
    CharTensor as CharTensor, DoubleTensor as DoubleTensor, FloatTensor as FloatTensor,
    HalfTensor as HalfTensor, IntTensor as IntTensor, LongTensor as LongTensor, ShortTensor as ShortTensor,
)
from weft.tensor.attention import scaled_dot_product_attention as scaled_dot_product_attention
from weft.tensor.autocast import autocast as autocast
from weft.tensor.autograd import stop_gradient as stop_gradient
from weft.tensor.batch_norm import batch_norm as batch_norm, instance_norm as instance_norm
from weft.tensor.casts import astype as astype
from weft.tensor.changes import index_fill as index_fill, put as put
from weft.tensor.checkpoint import (
    checkpoint as checkpoint, checkpoint_sequential as checkpoint_sequential, checkpointed as checkpointed,
)
from weft.tensor.creation import (
    as_tensor as as_tensor, asarray as asarray, empty as empty, empty_like as empty_like,
    from_numpy as from_numpy, full as full, full_like as full_like, ones as ones, ones_like as ones_like,
    tensor as tensor, zeros as zeros, zeros_like as zeros_like,
)
from weft.tensor.custom import custom_op as custom_op, remove_custom_op as remove_custom_op
from weft.tensor.dropout import (
    alpha_dropout as alpha_dropout, dropout as dropout, dropout1d as dropout1d, dropout2d as dropout2d,
    dropout3d as dropout3d, feature_alpha_dropout as feature_alpha_dropout, gumbel_softmax as gumbel_softmax,
    rrelu as rrelu,
)
from weft.tensor.dynamic import (
    argwhere as argwhere, bincount as bincount, masked_select as masked_select, nonzero as nonzero,
    tril_indices as tril_indices, triu_indices as triu_indices, unique as unique, unique_all as unique_all,
    unique_consecutive as unique_consecutive, unique_counts as unique_counts,
    unique_inverse as unique_inverse, unique_values as unique_values,
)
from weft.tensor.embedding import embedding as embedding
from weft.tensor.embedding_bag import embedding_bag as embedding_bag
from weft.tensor.function import Function as Function
from weft.tensor.functions import (
    abs as abs, absolute as absolute, acos as acos, acosh as acosh, add as add, angle as angle,
    arccos as arccos, arccosh as arccosh, arcsin as arcsin, arcsinh as arcsinh, arctan as arctan,
    arctan2 as arctan2, arctanh as arctanh, asin as asin, asinh as asinh, atan as atan, atan2 as atan2,
    atanh as atanh, bitwise_and as bitwise_and, bitwise_invert as bitwise_invert,
    bitwise_left_shift as bitwise_left_shift, bitwise_not as bitwise_not, bitwise_or as bitwise_or,
    bitwise_right_shift as bitwise_right_shift, bitwise_xor as bitwise_xor, ceil as ceil,
    copysign as copysign, cos as cos, cosh as cosh, digamma as digamma, div as div, divide as divide,
    eq as eq, equal as equal, erf as erf, erfc as erfc, erfinv as erfinv, exp as exp, exp2 as exp2,
    expm1 as expm1, floor as floor, floor_divide as floor_divide, fmod as fmod, ge as ge, greater as greater,
    greater_equal as greater_equal, gt as gt, hypot as hypot, invert as invert, isfinite as isfinite,
    isinf as isinf, isnan as isnan, le as le, left_shift as left_shift, less as less,
    less_equal as less_equal, lgamma as lgamma, log as log, log10 as log10, log1p as log1p, log2 as log2,
    logaddexp as logaddexp, logical_and as logical_and, logical_not as logical_not, logical_or as logical_or,
    logical_xor as logical_xor, lt as lt, maximum as maximum, minimum as minimum, mul as mul,
    multiply as multiply, ne as ne, neg as neg, negative as negative, nextafter as nextafter,
    not_equal as not_equal, positive as positive, pow as pow, power as power, reciprocal as reciprocal,
    remainder as remainder, right_shift as right_shift, round as round, rsqrt as rsqrt, sigmoid as sigmoid,
    sign as sign, signbit as signbit, sin as sin, sinh as sinh, sqrt as sqrt, square as square, sub as sub,
    subtract as subtract, tan as tan, tanh as tanh, true_divide as true_divide, trunc as trunc,
)
from weft.tensor.generator import (
    Generator as Generator, fork_rng as fork_rng, get_rng_state as get_rng_state,
    initial_seed as initial_seed, manual_seed as manual_seed, seed as seed, set_rng_state as set_rng_state,
)
from weft.tensor.interop import from_dlpack as from_dlpack
from weft.tensor.large import get_eager_kernels as get_eager_kernels, set_eager_kernels as set_eager_kernels
from weft.tensor.measures import (
    aminmax as aminmax, chain_matmul as chain_matmul, clone as clone, deg2rad as deg2rad, dist as dist,
    frac as frac, heaviside as heaviside, logdet as logdet, logspace as logspace, norm as norm,
    rad2deg as rad2deg, std_mean as std_mean, var_mean as var_mean,
)
from weft.tensor.mode import (
    enable_grad as enable_grad, inference_mode as inference_mode, is_grad_enabled as is_grad_enabled,
    no_grad as no_grad, set_grad_enabled as set_grad_enabled,
)
from weft.tensor.namespace import (
    __array_namespace_info__ as __array_namespace_info__, can_cast as can_cast, double as double, e as e,
    finfo as finfo, half as half, iinfo as iinfo, inf as inf, is_complex as is_complex,
    is_floating_point as is_floating_point, is_tensor as is_tensor, long as long, nan as nan,
    newaxis as newaxis, numel as numel, pi as pi, result_type as result_type, short as short,
)
from weft.tensor.printing import printoptions as printoptions, set_printoptions as set_printoptions
from weft.tensor.ragged import (
    RaggedTensor as RaggedTensor, ragged as ragged, ragged_from_padded as ragged_from_padded,
    ragged_from_splits as ragged_from_splits,
)
from weft.tensor.ranges import (
    arange as arange, eye as eye, linspace as linspace, meshgrid as meshgrid, mgrid as mgrid,
)
from weft.tensor.sampling import (
    bernoulli as bernoulli, multinomial as multinomial, normal as normal, rand as rand,
    rand_like as rand_like, randint as randint, randint_like as randint_like, randn as randn,
    randn_like as randn_like, randperm as randperm,
)
from weft.tensor.sparse import (
    SparseTensor as SparseTensor, sparse_coo_tensor as sparse_coo_tensor, to_sparse as to_sparse,
)
from weft.tensor.tapers import (
    bartlett_window as bartlett_window, blackman_window as blackman_window, hamming_window as hamming_window,
    hann_window as hann_window, kaiser_window as kaiser_window,
)
from weft.tensor.tensor import Tensor as Tensor
from weft.train.trainer import Trainer as Trainer
from weft.transform.control.branches import cond as cond, switch as switch
from weft.transform.control.loops import fori_loop as fori_loop, scan as scan, while_loop as while_loop
from weft.transform.jacobian import (
    hessian as hessian, jacfwd as jacfwd, jacobian as jacobian, jacrev as jacrev,
)
from weft.transform.jvp import jvp as jvp, linearize as linearize
from weft.transform.reverse import grad as grad, value_and_grad as value_and_grad, vjp as vjp
from weft.transform.vmap import vmap as vmap
from weft.viewer.page import view as view
from weft.viewer.picture import dot as dot
around = round
array = tensor
array_split = tensor_split
bool = bool_
broadcast_tensors = broadcast_arrays
clamp = clip
concatenate = concat
conjugate = conj
copy = clone
degrees = rad2deg
device = Device
fabs = abs
fix = trunc
float = float32
ger = outer
int = int32
inverse = inv
mod = remainder
movedim = moveaxis
ndarray = Tensor
permute = permute_dims
pinverse = pinv
promote_types = result_type
radians = deg2rad
rint = round
row_stack = vstack
sgn = sign
swapdims = swapaxes
take_along_dim = take_along_axis
trapz = trapezoid

__all__ = [
    'BFloat16Tensor', 'BoolTensor', 'ByteTensor', 'CharTensor', 'Device', 'DoubleTensor', 'FloatTensor',
    'Function', 'Generator', 'Graph', 'HalfTensor', 'IntTensor', 'LongTensor', 'RaggedTensor', 'Session',
    'ShortTensor', 'SparseTensor', 'Tensor', 'TensorType', 'Trainer', '__array_api_version__',
    '__array_namespace_info__', '__version__', 'abs', 'absolute', 'acos', 'acosh', 'adaptive_avg_pool1d',
    'adaptive_avg_pool2d', 'adaptive_avg_pool3d', 'adaptive_max_pool1d', 'adaptive_max_pool2d',
    'adaptive_max_pool3d', 'add', 'addbmm', 'addcdiv', 'addcmul', 'addmm', 'addmv', 'addr', 'affine_grid',
    'all', 'allclose', 'alpha_dropout', 'amax', 'amin', 'aminmax', 'angle', 'any', 'aot', 'append', 'arange',
    'arccos', 'arccosh', 'arcsin', 'arcsinh', 'arctan', 'arctan2', 'arctanh', 'argmax', 'argmin', 'argsort',
    'argwhere', 'around', 'array', 'array_equal', 'array_split', 'as_strided', 'as_tensor', 'asarray', 'asin',
    'asinh', 'assign', 'astype', 'atan', 'atan2', 'atanh', 'atleast_1d', 'atleast_2d', 'atleast_3d',
    'autocast', 'autograd', 'average', 'avg_pool1d', 'avg_pool2d', 'avg_pool3d', 'baddbmm', 'bartlett_window',
    'batch_norm', 'bernoulli', 'bfloat16', 'bilinear', 'binary_cross_entropy',
    'binary_cross_entropy_with_logits', 'bincount', 'bitwise_and', 'bitwise_invert', 'bitwise_left_shift',
    'bitwise_not', 'bitwise_or', 'bitwise_right_shift', 'bitwise_xor', 'blackman_window', 'block_diag', 'bmm',
    'bool', 'bool_', 'broadcast_arrays', 'broadcast_shapes', 'broadcast_tensors', 'broadcast_to', 'bucketize',
    'can_cast', 'cartesian_prod', 'cat', 'cdist', 'ceil', 'celu', 'chain_matmul', 'channel_shuffle',
    'check_passes', 'checkpoint', 'checkpoint_sequential', 'checkpointed', 'cholesky', 'chunk', 'clamp',
    'clamp_max', 'clamp_min', 'clip', 'clone', 'column_stack', 'combinations', 'compile', 'complex',
    'complex128', 'complex64', 'concat', 'concatenate', 'cond', 'conj', 'conjugate', 'conv1d', 'conv2d',
    'conv3d', 'conv_transpose1d', 'conv_transpose2d', 'conv_transpose3d', 'convolve', 'copy', 'copysign',
    'corrcoef', 'correlate', 'cos', 'cosh', 'cosine_embedding_loss', 'cosine_similarity', 'count_nonzero',
    'cov', 'crop', 'cross', 'cross_entropy', 'cuda', 'cummax', 'cummin', 'cumprod', 'cumsum',
    'cumulative_prod', 'cumulative_sum', 'custom_op', 'data', 'datasets', 'default_device', 'deg2rad',
    'degrees', 'det', 'detect_anomaly', 'device', 'diag', 'diag_embed', 'diagonal', 'diff', 'digamma',
    'digitize', 'dist', 'distributions', 'div', 'divide', 'dot', 'double', 'dropout', 'dropout1d',
    'dropout2d', 'dropout3d', 'dsplit', 'dstack', 'e', 'ediff1d', 'einsum', 'elu', 'embedding',
    'embedding_bag', 'empty', 'empty_like', 'enable_grad', 'eq', 'equal', 'erf', 'erfc', 'erfinv', 'errors',
    'exp', 'exp2', 'expand', 'expand_as', 'expand_dims', 'expm1', 'export_library', 'eye', 'fabs',
    'feature_alpha_dropout', 'fft', 'finfo', 'fix', 'flatnonzero', 'flatten', 'flip', 'fliplr', 'flipud',
    'float16', 'float32', 'float64', 'floor', 'floor_divide', 'fmax', 'fmin', 'fmod', 'fold', 'fori_loop',
    'fork_rng', 'frac', 'from_dlpack', 'from_numpy', 'full', 'full_like', 'functional', 'gather',
    'gaussian_nll_loss', 'ge', 'gelu', 'geomspace', 'ger', 'get_default_device', 'get_default_dtype',
    'get_eager_kernels', 'get_matmul_precision', 'get_num_threads', 'get_rng_state', 'glu', 'grad',
    'gradients', 'greater', 'greater_equal', 'grid_sample', 'group', 'group_norm', 'gt', 'gumbel_softmax',
    'half', 'hamming_window', 'hann_window', 'hardshrink', 'hardsigmoid', 'hardswish', 'hardtanh',
    'heaviside', 'hessian', 'hinge_embedding_loss', 'histc', 'histogram', 'hsplit', 'hstack', 'huber_loss',
    'hypot', 'identity', 'iinfo', 'imag', 'index_add', 'index_copy', 'index_fill', 'index_select', 'inf',
    'inference_mode', 'initial_seed', 'inner', 'instance_norm', 'int16', 'int32', 'int64', 'int8', 'interop',
    'interp', 'interpolate', 'intersect1d', 'inverse', 'invert', 'io', 'is_complex', 'is_floating_point',
    'is_grad_enabled', 'is_tensor', 'isclose', 'isdtype', 'isfinite', 'isin', 'isinf', 'isnan', 'istft',
    'jacfwd', 'jacobian', 'jacrev', 'jit', 'jvp', 'kaiser_window', 'kl_div', 'kron', 'kthvalue', 'l1_loss',
    'layer_norm', 'le', 'leaky_relu', 'left_shift', 'lerp', 'less', 'less_equal', 'lgamma', 'linalg',
    'linear', 'linearize', 'linspace', 'load', 'load_graph', 'local_response_norm', 'log', 'log10', 'log1p',
    'log2', 'log_softmax', 'logaddexp', 'logcumsumexp', 'logdet', 'logical_and', 'logical_not', 'logical_or',
    'logical_xor', 'logit', 'logsigmoid', 'logspace', 'logsumexp', 'long', 'lp_pool1d', 'lp_pool2d',
    'lp_pool3d', 'lt', 'make_graph', 'manual_seed', 'margin_ranking_loss', 'masked_fill', 'masked_scatter',
    'masked_select', 'matmul', 'matrix_power', 'matrix_transpose', 'max', 'max_pool1d', 'max_pool2d',
    'max_pool3d', 'max_unpool1d', 'max_unpool2d', 'max_unpool3d', 'maximum', 'mean', 'median',
    'memory_profile', 'meshgrid', 'mgrid', 'min', 'minimum', 'mish', 'mm', 'mod', 'mode', 'moveaxis',
    'movedim', 'mse_loss', 'mul', 'multi_margin_loss', 'multilabel_margin_loss',
    'multilabel_soft_margin_loss', 'multinomial', 'multiply', 'mv', 'nan', 'nan_to_num', 'nanmax', 'nanmean',
    'nanmin', 'nanstd', 'nansum', 'nanvar', 'narrow', 'ndarray', 'ne', 'neg', 'negative', 'newaxis',
    'nextafter', 'nll_loss', 'nn', 'no_grad', 'no_gradient', 'nonzero', 'norm', 'normal', 'normalize',
    'not_equal', 'numel', 'one_hot', 'ones', 'ones_like', 'onnx', 'optim', 'outer', 'pad',
    'pairwise_distance', 'parallel', 'parse_graph', 'passes', 'pdist', 'percentile', 'permute',
    'permute_dims', 'pi', 'pinverse', 'pixel_shuffle', 'pixel_unshuffle', 'placeholder', 'poisson_nll_loss',
    'polar', 'polygamma', 'polyval', 'positive', 'pow', 'power', 'prelu', 'printoptions', 'prod', 'profile',
    'promote_types', 'ptp', 'put', 'put_along_axis', 'quantile', 'rad2deg', 'radians', 'ragged',
    'ragged_from_padded', 'ragged_from_splits', 'rand', 'rand_like', 'randint', 'randint_like', 'randn',
    'randn_like', 'random', 'randperm', 'ravel', 'real', 'reciprocal', 'register_tree', 'relu', 'relu6',
    'remainder', 'remove_custom_op', 'repeat', 'repeat_interleave', 'reshape', 'result_type', 'right_shift',
    'rint', 'rms_norm', 'roll', 'rot90', 'round', 'row_stack', 'rrelu', 'rsqrt', 'save', 'save_graph',
    'scaled_dot_product_attention', 'scan', 'scatter', 'scatter_add', 'scatter_reduce', 'searchsorted',
    'seed', 'select', 'selu', 'serve', 'set_default_dtype', 'set_eager_kernels', 'set_full_tracebacks',
    'set_grad_enabled', 'set_matmul_precision', 'set_num_threads', 'set_printoptions', 'set_rng_state',
    'setdiff1d', 'sgn', 'short', 'sigmoid', 'sign', 'signbit', 'silu', 'sin', 'sinc', 'sinh', 'slogdet',
    'smooth_l1_loss', 'soft_margin_loss', 'softmax', 'softmin', 'softplus', 'softshrink', 'softsign', 'sort',
    'sparse_coo_tensor', 'special', 'split', 'sqrt', 'square', 'squeeze', 'stack', 'std', 'std_mean', 'stft',
    'stop_gradient', 'sub', 'subtract', 'sum', 'svd', 'swapaxes', 'swapdims', 'switch', 'take',
    'take_along_axis', 'take_along_dim', 'tan', 'tanh', 'tanhshrink', 'tensor', 'tensor_split', 'tensordot',
    'testing', 'threshold', 'tile', 'to_sparse', 'topk', 'trace', 'train', 'transpose', 'trapezoid', 'trapz',
    'tree_flatten', 'tree_leaves', 'tree_map', 'tree_structure', 'tree_unflatten', 'tri', 'tril',
    'tril_indices', 'triplet_margin_loss', 'triplet_margin_with_distance_loss', 'triu', 'triu_indices',
    'true_divide', 'trunc', 'uint16', 'uint32', 'uint64', 'uint8', 'unbind', 'unflatten', 'unfold', 'union1d',
    'unique', 'unique_all', 'unique_consecutive', 'unique_counts', 'unique_inverse', 'unique_values',
    'unravel_index', 'unsqueeze', 'unstack', 'value_and_grad', 'vander', 'var', 'var_mean', 'vdot', 'vecdot',
    'view', 'view_as_complex', 'view_as_real', 'vjp', 'vmap', 'vsplit', 'vstack', 'where', 'while_loop',
    'zeros', 'zeros_like'
]
__version__: str
__array_api_version__: str
