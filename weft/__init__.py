"""weft: a computation-graph framework. Ordinary Python on tensors, dynamic and static graphs, one cloth.

What every program needs is imported at once; the rest at first use, so that ``import weft`` stays quick.
``tests/test_import.py`` checks that both lists below say the same.
"""

import gc as _gc
import typing as _typing

# A collection during import finds nothing, and would take a fifth of the time.
_collecting = _gc.isenabled()
_gc.disable()
try:
    import numpy as _numpy  # noqa: F401 - first: imported deep inside, it takes CPython longer

    from weft import errors
    from weft.base.device import Device
    from weft.base.dtypes import (
        bfloat16,
        complex64,
        complex128,
        float16,
        float32,
        float64,
        get_default_dtype,
        int8,
        int16,
        int32,
        int64,
        isdtype,
        set_default_dtype,
        uint8,
        uint16,
        uint32,
        uint64,
    )
    from weft.base.dtypes import bool_ as bool
    from weft.compile import compile
    from weft.ir.types import TensorType
    from weft.ops.arithmetic import clip
    from weft.ops.complex import complex, conj, imag, real
    from weft.ops.compound import allclose, isclose, lerp, nan_to_num
    from weft.ops.contract import matmul, outer, tensordot, vecdot
    from weft.ops.gamma import polygamma
    from weft.ops.index_axis import (
        gather,
        index_add,
        index_select,
        masked_fill,
        one_hot,
        put_along_axis,
        scatter,
        scatter_add,
        take,
        take_along_axis,
    )
    from weft.ops.op import no_gradient
    from weft.ops.reduce import all, amax, amin, any, argmax, argmin, count_nonzero, max, min, prod, sum
    from weft.ops.scan import cummax, cummin, cumprod, cumsum, cumulative_prod, cumulative_sum, diff
    from weft.ops.select import where
    from weft.ops.sort import argsort, isin, searchsorted, sort, topk
    from weft.ops.statistics import logsumexp, mean, median, nanmean, nansum, quantile, std, var
    from weft.ops.view.axes import (
        atleast_1d,
        atleast_2d,
        atleast_3d,
        broadcast_arrays,
        broadcast_to,
        expand,
        expand_dims,
        flatten,
        matrix_transpose,
        moveaxis,
        permute_dims,
        reshape,
        squeeze,
        swapaxes,
        transpose,
        unflatten,
        unsqueeze,
    )
    from weft.ops.view.joining import chunk, flip, repeat, roll, split, tile, unbind, unstack
    from weft.ops.view.padding import crop, diag, diag_embed, diagonal, pad, tril, triu
    from weft.ops.view.primitives import cat, concat, stack
    from weft.tensor import elementwise_methods as _elementwise_methods  # noqa: F401 - attaches methods
    from weft.tensor import methods as _methods  # noqa: F401 - attaches methods
    from weft.tensor import numpy_functions as _numpy_functions  # noqa: F401 - attaches NumPy's protocols
    from weft.tensor import operators as _operators  # noqa: F401 - attaches operators
    from weft.tensor.anomaly import detect_anomaly
    from weft.tensor.autocast import autocast
    from weft.tensor.autograd import stop_gradient
    from weft.tensor.casts import astype
    from weft.tensor.creation import (
        as_tensor,
        asarray,
        empty,
        empty_like,
        from_numpy,
        full,
        full_like,
        ones,
        ones_like,
        tensor,
        zeros,
        zeros_like,
    )
    from weft.tensor.functions import (
        abs,
        absolute,
        acos,
        acosh,
        add,
        angle,
        asin,
        asinh,
        atan,
        atan2,
        atanh,
        bitwise_and,
        bitwise_invert,
        bitwise_left_shift,
        bitwise_not,
        bitwise_or,
        bitwise_right_shift,
        bitwise_xor,
        ceil,
        copysign,
        cos,
        cosh,
        digamma,
        div,
        divide,
        eq,
        equal,
        erf,
        erfc,
        erfinv,
        exp,
        exp2,
        expm1,
        floor,
        floor_divide,
        fmod,
        ge,
        greater,
        greater_equal,
        gt,
        hypot,
        isfinite,
        isinf,
        isnan,
        le,
        less,
        less_equal,
        lgamma,
        log,
        log1p,
        log2,
        log10,
        logaddexp,
        logical_and,
        logical_not,
        logical_or,
        logical_xor,
        lt,
        maximum,
        minimum,
        mul,
        multiply,
        ne,
        neg,
        negative,
        nextafter,
        not_equal,
        positive,
        pow,
        reciprocal,
        remainder,
        round,
        rsqrt,
        sigmoid,
        sign,
        signbit,
        sin,
        sinh,
        sqrt,
        square,
        sub,
        subtract,
        tan,
        tanh,
        true_divide,
        trunc,
    )
    from weft.tensor.interop import from_dlpack
    from weft.tensor.mode import enable_grad, inference_mode, is_grad_enabled, no_grad, set_grad_enabled
    from weft.tensor.namespace import (
        __array_namespace_info__,
        can_cast,
        double,
        e,
        finfo,
        half,
        iinfo,
        inf,
        is_complex,
        is_floating_point,
        is_tensor,
        long,
        nan,
        newaxis,
        numel,
        pi,
        result_type,
        short,
    )
    from weft.tensor.ranges import arange, eye, linspace, meshgrid
    from weft.tensor.tensor import Tensor
finally:
    if _collecting:
        if not _gc.get_freeze_count():  # all to the oldest generation, without a look at each
            _gc.freeze()
            _gc.unfreeze()
        _gc.enable()

__version__ = "0.1.0"
__array_api_version__ = "2024.12"

# Other names that people know
clamp = clip
device = Device

if _typing.TYPE_CHECKING:
    from weft import (
        autograd,
        data,
        datasets,
        fft,
        functional,
        interop,
        io,
        jit,
        linalg,
        nn,
        onnx,
        optim,
        passes,
        serve,
        special,
        testing,
        train,
    )
    from weft.base.threads import get_num_threads, set_num_threads
    from weft.base.tracebacks import set_full_tracebacks
    from weft.base.trees import (
        register_tree,
        tree_flatten,
        tree_leaves,
        tree_map,
        tree_structure,
        tree_unflatten,
    )
    from weft.capture.aot import aot
    from weft.capture.make import make_graph
    from weft.capture.session import Session
    from weft.capture.static import assign, gradients, group, placeholder
    from weft.io.files import load, save
    from weft.io.model import load_graph, save_graph
    from weft.ir.graph import Graph
    from weft.ir.parse import parse_graph
    from weft.library.export import export_library
    from weft.ops.activation import (
        celu,
        elu,
        gelu,
        glu,
        hardshrink,
        hardsigmoid,
        hardswish,
        hardtanh,
        leaky_relu,
        logsigmoid,
        mish,
        prelu,
        relu,
        relu6,
        selu,
        silu,
        softplus,
        softshrink,
        softsign,
        tanhshrink,
        threshold,
    )
    from weft.ops.conv.layers import (
        conv1d,
        conv2d,
        conv3d,
        conv_transpose1d,
        conv_transpose2d,
        conv_transpose3d,
    )
    from weft.ops.einsum import einsum
    from weft.ops.grid import affine_grid, grid_sample
    from weft.ops.loss.classes import cross_entropy, nll_loss
    from weft.ops.loss.elements import (
        binary_cross_entropy,
        binary_cross_entropy_with_logits,
        gaussian_nll_loss,
        huber_loss,
        kl_div,
        l1_loss,
        mse_loss,
        poisson_nll_loss,
        smooth_l1_loss,
    )
    from weft.ops.loss.margins import (
        cdist,
        cosine_embedding_loss,
        cosine_similarity,
        hinge_embedding_loss,
        margin_ranking_loss,
        multi_margin_loss,
        multilabel_margin_loss,
        multilabel_soft_margin_loss,
        pairwise_distance,
        pdist,
        soft_margin_loss,
        triplet_margin_loss,
        triplet_margin_with_distance_loss,
    )
    from weft.ops.norm import group_norm, layer_norm, local_response_norm, normalize, rms_norm
    from weft.ops.pool.adaptive import (
        adaptive_avg_pool1d,
        adaptive_avg_pool2d,
        adaptive_avg_pool3d,
        adaptive_max_pool1d,
        adaptive_max_pool2d,
        adaptive_max_pool3d,
    )
    from weft.ops.pool.unpooling import max_unpool1d, max_unpool2d, max_unpool3d
    from weft.ops.pool.windowed import (
        avg_pool1d,
        avg_pool2d,
        avg_pool3d,
        fold,
        lp_pool1d,
        lp_pool2d,
        lp_pool3d,
        max_pool1d,
        max_pool2d,
        max_pool3d,
        unfold,
    )
    from weft.ops.products import bilinear, bmm, inner, kron, linear, mm, mv
    from weft.ops.resize import channel_shuffle, interpolate, pixel_shuffle, pixel_unshuffle
    from weft.ops.softmax import log_softmax, softmax, softmin
    from weft.passes.check import check_passes
    from weft.profiler.block import profile
    from weft.profiler.memory import memory_profile
    from weft.tensor import random
    from weft.tensor.attention import scaled_dot_product_attention
    from weft.tensor.batch_norm import batch_norm, instance_norm
    from weft.tensor.checkpoint import checkpoint, checkpoint_sequential
    from weft.tensor.custom import custom_op, remove_custom_op
    from weft.tensor.dropout import (
        alpha_dropout,
        dropout,
        dropout1d,
        dropout2d,
        dropout3d,
        feature_alpha_dropout,
        gumbel_softmax,
        rrelu,
    )
    from weft.tensor.dynamic import (
        argwhere,
        bincount,
        masked_select,
        nonzero,
        tril_indices,
        triu_indices,
        unique,
        unique_all,
        unique_counts,
        unique_inverse,
        unique_values,
    )
    from weft.tensor.embedding import embedding
    from weft.tensor.embedding_bag import embedding_bag
    from weft.tensor.function import Function
    from weft.tensor.generator import (
        Generator,
        fork_rng,
        get_rng_state,
        initial_seed,
        manual_seed,
        seed,
        set_rng_state,
    )
    from weft.tensor.large import get_eager_kernels, set_eager_kernels
    from weft.tensor.printing import printoptions, set_printoptions
    from weft.tensor.ragged import RaggedTensor, ragged, ragged_from_padded, ragged_from_splits
    from weft.tensor.sampling import (
        bernoulli,
        multinomial,
        normal,
        rand,
        rand_like,
        randint,
        randint_like,
        randn,
        randn_like,
        randperm,
    )
    from weft.tensor.sparse import SparseTensor, sparse_coo_tensor, to_sparse
    from weft.train.trainer import Trainer
    from weft.transform.control.branches import cond, switch
    from weft.transform.control.loops import fori_loop, scan, while_loop
    from weft.transform.jacobian import hessian, jacfwd, jacobian, jacrev
    from weft.transform.jvp import jvp
    from weft.transform.linearize import linearize
    from weft.transform.reverse import grad, value_and_grad, vjp
    from weft.transform.vmap import vmap
    from weft.viewer.page import view
    from weft.viewer.picture import dot
else:
    _MODULES = {
        "autograd": "weft.autograd",
        "data": "weft.data",
        "datasets": "weft.datasets",
        "fft": "weft.fft",
        "functional": "weft.functional",
        "interop": "weft.interop",
        "io": "weft.io",
        "jit": "weft.jit",
        "linalg": "weft.linalg",
        "nn": "weft.nn",
        "onnx": "weft.onnx",
        "optim": "weft.optim",
        "passes": "weft.passes",
        "random": "weft.tensor.random",
        "serve": "weft.serve",
        "special": "weft.special",
        "testing": "weft.testing",
        "train": "weft.train",
    }
    _NAMES = {
        "weft.capture.aot": "aot",
        "weft.capture.make": "make_graph",
        "weft.capture.session": "Session",
        "weft.capture.static": "assign gradients group placeholder",
        "weft.base.threads": "get_num_threads set_num_threads",
        "weft.base.tracebacks": "set_full_tracebacks",
        "weft.base.trees": "register_tree tree_flatten tree_leaves tree_map tree_structure tree_unflatten",
        "weft.io.files": "load save",
        "weft.io.model": "load_graph save_graph",
        "weft.ir.graph": "Graph",
        "weft.ir.parse": "parse_graph",
        "weft.library.export": "export_library",
        "weft.ops.activation": (
            "celu elu gelu glu hardshrink hardsigmoid hardswish hardtanh leaky_relu logsigmoid mish prelu "
            "relu relu6 selu silu softplus softshrink softsign tanhshrink threshold"
        ),
        "weft.ops.conv.layers": "conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d",
        "weft.ops.einsum": "einsum",
        "weft.ops.grid": "affine_grid grid_sample",
        "weft.ops.loss.elements": (
            "binary_cross_entropy binary_cross_entropy_with_logits gaussian_nll_loss huber_loss kl_div "
            "l1_loss mse_loss poisson_nll_loss smooth_l1_loss"
        ),
        "weft.ops.loss.classes": "cross_entropy nll_loss",
        "weft.ops.loss.margins": (
            "cdist cosine_embedding_loss cosine_similarity hinge_embedding_loss margin_ranking_loss "
            "multi_margin_loss multilabel_margin_loss multilabel_soft_margin_loss pairwise_distance pdist "
            "soft_margin_loss triplet_margin_loss triplet_margin_with_distance_loss"
        ),
        "weft.ops.norm": "group_norm layer_norm local_response_norm normalize rms_norm",
        "weft.ops.pool.windowed": (
            "avg_pool1d avg_pool2d avg_pool3d fold lp_pool1d lp_pool2d lp_pool3d max_pool1d max_pool2d "
            "max_pool3d unfold"
        ),
        "weft.ops.pool.adaptive": (
            "adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d "
            "adaptive_max_pool2d adaptive_max_pool3d"
        ),
        "weft.ops.products": "bilinear bmm inner kron linear mm mv",
        "weft.ops.resize": "channel_shuffle interpolate pixel_shuffle pixel_unshuffle",
        "weft.ops.softmax": "log_softmax softmax softmin",
        "weft.ops.pool.unpooling": "max_unpool1d max_unpool2d max_unpool3d",
        "weft.passes.check": "check_passes",
        "weft.profiler.block": "profile",
        "weft.profiler.memory": "memory_profile",
        "weft.tensor.attention": "scaled_dot_product_attention",
        "weft.tensor.batch_norm": "batch_norm instance_norm",
        "weft.tensor.checkpoint": "checkpoint checkpoint_sequential",
        "weft.tensor.custom": "custom_op remove_custom_op",
        "weft.tensor.dropout": (
            "alpha_dropout dropout dropout1d dropout2d dropout3d feature_alpha_dropout gumbel_softmax rrelu"
        ),
        "weft.tensor.dynamic": (
            "argwhere bincount masked_select nonzero tril_indices triu_indices unique unique_all "
            "unique_counts unique_inverse unique_values"
        ),
        "weft.tensor.embedding": "embedding",
        "weft.tensor.embedding_bag": "embedding_bag",
        "weft.tensor.function": "Function",
        "weft.tensor.generator": (
            "Generator fork_rng get_rng_state initial_seed manual_seed seed set_rng_state"
        ),
        "weft.tensor.large": "get_eager_kernels set_eager_kernels",
        "weft.tensor.printing": "printoptions set_printoptions",
        "weft.tensor.ragged": "RaggedTensor ragged ragged_from_padded ragged_from_splits",
        "weft.tensor.sampling": (
            "bernoulli multinomial normal rand rand_like randint randint_like randn randn_like randperm"
        ),
        "weft.tensor.sparse": "SparseTensor sparse_coo_tensor to_sparse",
        "weft.transform.control.branches": "cond switch",
        "weft.transform.control.loops": "fori_loop scan while_loop",
        "weft.transform.jacobian": "hessian jacfwd jacobian jacrev",
        "weft.transform.jvp": "jvp",
        "weft.transform.linearize": "linearize",
        "weft.transform.reverse": "grad value_and_grad vjp",
        "weft.transform.vmap": "vmap",
        "weft.viewer.page": "view",
        "weft.viewer.picture": "dot",
        "weft.train.trainer": "Trainer",
    }
    _HOME = {name: module for module, names in _NAMES.items() for name in names.split()}

    def __getattr__(name: str) -> object:
        """Import a module or a name that most programs do without, at first use."""
        from importlib import import_module

        if name in _MODULES:
            found = import_module(_MODULES[name])
        elif name in _HOME:
            found = getattr(import_module(_HOME[name]), name)
        else:
            raise AttributeError(f"module 'weft' has no attribute {name!r}")
        globals()[name] = found
        return found

    def __dir__() -> list[str]:
        return sorted({*globals(), *_MODULES, *_HOME})


# fmt: off
__all__ = [
    "Device", "Function", "Generator", "Graph", "RaggedTensor", "Session", "SparseTensor", "Tensor",
    "TensorType", "Trainer", "__array_api_version__", "__array_namespace_info__", "__version__", "abs",
    "absolute", "acos", "acosh", "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d",
    "adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d", "add", "affine_grid", "all",
    "allclose", "alpha_dropout", "amax", "amin", "angle", "any", "aot", "arange", "argmax", "argmin",
    "argsort", "argwhere", "as_tensor", "asarray", "asin", "asinh", "assign", "astype", "atan", "atan2",
    "atanh", "atleast_1d", "atleast_2d", "atleast_3d", "autocast", "autograd", "avg_pool1d", "avg_pool2d",
    "avg_pool3d", "batch_norm", "bernoulli", "bfloat16", "bilinear", "binary_cross_entropy",
    "binary_cross_entropy_with_logits", "bincount", "bitwise_and", "bitwise_invert", "bitwise_left_shift",
    "bitwise_not", "bitwise_or", "bitwise_right_shift", "bitwise_xor", "bmm", "bool", "broadcast_arrays",
    "broadcast_to", "can_cast", "cat", "cdist", "ceil", "celu", "channel_shuffle", "check_passes",
    "checkpoint", "checkpoint_sequential", "chunk", "clamp", "clip", "compile", "complex", "complex64",
    "complex128", "concat", "cond", "conj", "conv1d", "conv2d", "conv3d", "conv_transpose1d",
    "conv_transpose2d", "conv_transpose3d", "copysign", "cos", "cosh", "cosine_embedding_loss",
    "cosine_similarity", "count_nonzero", "crop", "cross_entropy", "cummax", "cummin", "cumprod", "cumsum",
    "cumulative_prod", "cumulative_sum", "custom_op", "data", "datasets", "detect_anomaly", "device", "diag",
    "diag_embed", "diagonal", "diff", "digamma", "div", "divide", "dot", "double", "dropout", "dropout1d",
    "dropout2d", "dropout3d", "e", "einsum", "elu", "embedding", "embedding_bag", "empty", "empty_like",
    "enable_grad", "eq", "equal", "erf", "erfc", "erfinv", "errors", "exp", "exp2", "expand", "expand_dims",
    "expm1", "export_library", "eye", "feature_alpha_dropout", "fft", "finfo", "flatten", "flip", "float16",
    "float32", "float64", "floor", "floor_divide", "fmod", "fold", "fori_loop", "fork_rng", "from_dlpack",
    "from_numpy", "full", "full_like", "functional", "gather", "gaussian_nll_loss", "ge", "gelu",
    "get_default_dtype", "get_eager_kernels", "get_num_threads", "get_rng_state", "glu", "grad", "gradients",
    "greater", "greater_equal", "grid_sample", "group", "group_norm", "gt", "gumbel_softmax", "half",
    "hardshrink", "hardsigmoid", "hardswish", "hardtanh", "hessian", "hinge_embedding_loss", "huber_loss",
    "hypot", "iinfo", "imag", "index_add", "index_select", "inf", "inference_mode", "initial_seed", "inner",
    "instance_norm", "int8", "int16", "int32", "int64", "interop", "interpolate", "io", "is_complex",
    "is_floating_point", "is_grad_enabled", "is_tensor", "isclose", "isdtype", "isfinite", "isin", "isinf",
    "isnan", "jacfwd", "jacobian", "jacrev", "jit", "jvp", "kl_div", "kron", "l1_loss", "layer_norm", "le",
    "leaky_relu", "lerp", "less", "less_equal", "lgamma", "linalg", "linear", "linearize", "linspace",
    "load", "load_graph", "local_response_norm", "log", "log1p", "log2", "log10", "log_softmax", "logaddexp",
    "logical_and", "logical_not", "logical_or", "logical_xor", "logsigmoid", "logsumexp", "long",
    "lp_pool1d", "lp_pool2d", "lp_pool3d", "lt", "make_graph", "manual_seed", "margin_ranking_loss",
    "masked_fill", "masked_select", "matmul", "matrix_transpose", "max", "max_pool1d", "max_pool2d",
    "max_pool3d", "max_unpool1d", "max_unpool2d", "max_unpool3d", "maximum", "mean", "median",
    "memory_profile", "meshgrid", "min", "minimum", "mish", "mm", "moveaxis", "mse_loss", "mul",
    "multi_margin_loss", "multilabel_margin_loss", "multilabel_soft_margin_loss", "multinomial", "multiply",
    "mv", "nan", "nan_to_num", "nanmean", "nansum", "ne", "neg", "negative", "newaxis", "nextafter",
    "nll_loss", "nn", "no_grad", "no_gradient", "nonzero", "normal", "normalize", "not_equal", "numel",
    "one_hot", "ones", "ones_like", "onnx", "optim", "outer", "pad", "pairwise_distance", "parse_graph",
    "passes", "pdist", "permute_dims", "pi", "pixel_shuffle", "pixel_unshuffle", "placeholder",
    "poisson_nll_loss", "polygamma", "positive", "pow", "prelu", "printoptions", "prod", "profile",
    "put_along_axis", "quantile", "ragged", "ragged_from_padded", "ragged_from_splits", "rand", "rand_like",
    "randint", "randint_like", "randn", "randn_like", "random", "randperm", "real", "reciprocal",
    "register_tree", "relu", "relu6", "remainder", "remove_custom_op", "repeat", "reshape", "result_type",
    "rms_norm", "roll", "round", "rrelu", "rsqrt", "save", "save_graph", "scaled_dot_product_attention",
    "scan", "scatter", "scatter_add", "searchsorted", "seed", "selu", "serve", "set_default_dtype",
    "set_eager_kernels", "set_full_tracebacks", "set_grad_enabled", "set_num_threads", "set_printoptions",
    "set_rng_state", "short", "sigmoid", "sign", "signbit", "silu", "sin", "sinh", "smooth_l1_loss",
    "soft_margin_loss", "softmax", "softmin", "softplus", "softshrink", "softsign", "sort",
    "sparse_coo_tensor", "special", "split", "sqrt", "square", "squeeze", "stack", "std", "stop_gradient",
    "sub", "subtract", "sum", "swapaxes", "switch", "take", "take_along_axis", "tan", "tanh", "tanhshrink",
    "tensor", "tensordot", "testing", "threshold", "tile", "to_sparse", "topk", "train", "transpose",
    "tree_flatten", "tree_leaves", "tree_map", "tree_structure", "tree_unflatten", "tril", "tril_indices",
    "triplet_margin_loss", "triplet_margin_with_distance_loss", "triu", "triu_indices", "true_divide",
    "trunc", "uint8", "uint16", "uint32", "uint64", "unbind", "unflatten", "unfold", "unique", "unique_all",
    "unique_counts", "unique_inverse", "unique_values", "unsqueeze", "unstack", "value_and_grad", "var",
    "vecdot", "view", "vjp", "vmap", "where", "while_loop", "zeros", "zeros_like",
]
