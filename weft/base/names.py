"""The public names, each said once, with the module it lives in; ``import weft`` and the stubs follow these.

A new name goes to the line of its module, and ``python -m tests.stubs --write`` writes the stubs anew.
Elementwise ops are not here: their declarations make them public. ``clamp=clip`` is another name of ``clip``.
"""

from __future__ import annotations

from importlib import import_module

# Modules that are themselves names of weft.
MODULES = (
    "weft.autograd weft.cuda weft.data weft.datasets weft.errors weft.fft weft.functional weft.interop "
    "weft.io weft.jit weft.linalg weft.nn weft.onnx weft.optim weft.parallel weft.passes weft.serve "
    "weft.distributions weft.special weft.random weft.testing weft.train"
)

# What networks are made of: names of weft, and of weft.functional.
NETWORK: dict[str, str] = {
    "weft.ops.activation": (
        "celu elu gelu glu hardshrink hardsigmoid hardswish hardtanh leaky_relu logsigmoid mish prelu relu "
        "relu6 selu silu softplus softshrink softsign tanhshrink threshold"
    ),
    "weft.ops.conv.layers": "conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d",
    "weft.ops.grid": "affine_grid grid_sample",
    "weft.ops.index_axis": "one_hot",
    "weft.ops.loss.classes": "cross_entropy nll_loss",
    "weft.ops.loss.elements": (
        "binary_cross_entropy binary_cross_entropy_with_logits gaussian_nll_loss huber_loss kl_div l1_loss "
        "mse_loss poisson_nll_loss smooth_l1_loss"
    ),
    "weft.ops.loss.margins": (
        "cdist cosine_embedding_loss cosine_similarity hinge_embedding_loss margin_ranking_loss "
        "multi_margin_loss multilabel_margin_loss multilabel_soft_margin_loss pairwise_distance pdist "
        "soft_margin_loss triplet_margin_loss triplet_margin_with_distance_loss"
    ),
    "weft.ops.norm": "group_norm layer_norm local_response_norm normalize rms_norm",
    "weft.ops.pool.adaptive": (
        "adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d "
        "adaptive_max_pool2d adaptive_max_pool3d"
    ),
    "weft.ops.pool.unpooling": "max_unpool1d max_unpool2d max_unpool3d",
    "weft.ops.pool.windowed": (
        "avg_pool1d avg_pool2d avg_pool3d fold lp_pool1d lp_pool2d lp_pool3d max_pool1d max_pool2d "
        "max_pool3d unfold"
    ),
    "weft.ops.products": "bilinear linear",
    "weft.ops.resize": "channel_shuffle interpolate pixel_shuffle pixel_unshuffle",
    "weft.ops.softmax": "log_softmax softmax softmin",
    "weft.ops.view.padding": "pad",
    "weft.tensor.attention": "scaled_dot_product_attention",
    "weft.tensor.batch_norm": "batch_norm instance_norm",
    "weft.tensor.dropout": (
        "alpha_dropout dropout dropout1d dropout2d dropout3d feature_alpha_dropout gumbel_softmax rrelu"
    ),
    "weft.tensor.embedding": "embedding",
    "weft.tensor.embedding_bag": "embedding_bag",
    "weft.tensor.functions": "sigmoid tanh",
}

# The other names of weft.
OTHERS: dict[str, str] = {
    "weft.base.device": "Device default_device device=Device get_default_device",
    "weft.base.dtypes": (
        "bfloat16 bool=bool_ bool_ complex128 complex64 float=float32 float16 float32 float64 "
        "get_default_dtype int=int32 int16 int32 int64 int8 isdtype set_default_dtype uint16 uint32 uint64 "
        "uint8"
    ),
    "weft.backends.cuda.precision": "get_matmul_precision set_matmul_precision",
    "weft.base.threads": "get_num_threads set_num_threads",
    "weft.base.tracebacks": "set_full_tracebacks",
    "weft.base.trees": "register_tree tree_flatten tree_leaves tree_map tree_structure tree_unflatten",
    "weft.capture.static.aot": "aot",
    "weft.capture.static.make": "make_graph",
    "weft.capture.static.session": "Session",
    "weft.capture.static.static": "assign gradients group placeholder",
    "weft.compile": "compile",
    "weft.io.files": "load save",
    "weft.io.model": "load_graph save_graph",
    "weft.ir.graph": "Graph",
    "weft.ir.parse": "parse_graph",
    "weft.ir.types": "TensorType",
    "weft.library.export": "export_library",
    "weft.ops.arithmetic": "clamp=clip clamp_max clamp_min clip",
    "weft.ops.combined": "addbmm addcdiv addcmul addmm addmv addr baddbmm",
    "weft.ops.complex": "complex conj conjugate=conj imag polar real view_as_complex view_as_real",
    "weft.ops.compound": "allclose isclose lerp nan_to_num",
    "weft.ops.counting": (
        "bucketize corrcoef cov histc histogram kthvalue logcumsumexp mode trapezoid trapz=trapezoid"
    ),
    "weft.ops.contract": "ger=outer matmul outer tensordot vecdot",
    "weft.ops.einsum": "einsum",
    "weft.ops.gamma": "polygamma",
    "weft.ops.index_axis": (
        "gather index_add index_select masked_fill put_along_axis scatter scatter_add take take_along_axis "
        "take_along_dim=take_along_axis"
    ),
    "weft.ops.op": "no_gradient",
    "weft.ops.products": "bmm inner kron mm mv",
    "weft.ops.reduce": "all amax amin any argmax argmin count_nonzero max min prod sum",
    "weft.ops.scan": "cummax cummin cumprod cumsum cumulative_prod cumulative_sum diff",
    "weft.ops.scattering": "index_copy masked_scatter scatter_reduce",
    "weft.ops.select": "where",
    "weft.ops.sort": "argsort isin searchsorted sort topk",
    "weft.ops.special_functions": "logit sinc",
    "weft.ops.spectrogram": "istft stft",
    "weft.ops.statistics": "logsumexp mean median nanmean nansum quantile std var",
    "weft.ops.view.axes": (
        "atleast_1d atleast_2d atleast_3d broadcast_arrays broadcast_shapes "
        "broadcast_tensors=broadcast_arrays broadcast_to expand expand_dims flatten matrix_transpose "
        "movedim=moveaxis moveaxis permute=permute_dims permute_dims reshape squeeze swapaxes "
        "swapdims=swapaxes transpose unflatten unsqueeze"
    ),
    "weft.ops.view.joining": "chunk flip repeat repeat_interleave roll split tile unbind unstack",
    "weft.ops.view.padding": "crop diag diag_embed diagonal tril triu",
    "weft.linalg": ("cholesky cross det inverse=inv matrix_power pinverse=pinv slogdet svd trace"),
    "weft.ops.view.arranged": (
        "block_diag cartesian_prod column_stack combinations fliplr flipud ravel rot90 select"
    ),
    "weft.ops.view.pieces": (
        "array_split=tensor_split as_strided dstack expand_as hstack narrow row_stack=vstack tensor_split "
        "vstack"
    ),
    "weft.ops.view.primitives": "cat concat concatenate=concat stack",
    "weft.passes.check": "check_passes",
    "weft.profiler.block": "profile",
    "weft.profiler.memory": "memory_profile",
    "weft.tensor.anomaly": "detect_anomaly",
    "weft.tensor.array_numbers": (
        "average convolve correlate digitize ediff1d fmax fmin interp nanmax nanmin nanstd nanvar percentile "
        "polyval ptp vdot"
    ),
    "weft.tensor.arrays": (
        "append array_equal dsplit flatnonzero geomspace hsplit identity intersect1d setdiff1d tri union1d "
        "unravel_index vander vsplit"
    ),
    "weft.tensor.autocast": "autocast",
    "weft.tensor.autograd": "stop_gradient",
    "weft.tensor.casts": "astype",
    "weft.tensor.checkpoint": "checkpoint checkpoint_sequential checkpointed",
    "weft.tensor.creation": (
        "array=tensor as_tensor asarray empty empty_like from_numpy full full_like ones ones_like tensor "
        "zeros zeros_like"
    ),
    "weft.tensor.asked": (
        "BFloat16Tensor BoolTensor ByteTensor CharTensor DoubleTensor FloatTensor HalfTensor IntTensor "
        "LongTensor ShortTensor"
    ),
    "weft.tensor.changes": "index_fill put",
    "weft.tensor.measures": (
        "aminmax chain_matmul clone copy=clone deg2rad degrees=rad2deg dist frac heaviside logdet logspace "
        "norm rad2deg radians=deg2rad std_mean var_mean"
    ),
    "weft.tensor.custom": "custom_op remove_custom_op",
    "weft.tensor.dynamic": (
        "argwhere bincount masked_select nonzero tril_indices triu_indices unique unique_all "
        "unique_consecutive unique_counts unique_inverse unique_values"
    ),
    "weft.tensor.function": "Function",
    "weft.tensor.functions": "around=round fabs=abs fix=trunc mod=remainder rint=round sgn=sign",
    "weft.tensor.generator": "fork_rng Generator get_rng_state initial_seed manual_seed seed set_rng_state",
    "weft.tensor.interop": "from_dlpack",
    "weft.tensor.large": "get_eager_kernels set_eager_kernels",
    "weft.tensor.mode": "enable_grad inference_mode is_grad_enabled no_grad set_grad_enabled",
    "weft.tensor.namespace": (
        "__array_namespace_info__ can_cast double e finfo half iinfo inf is_complex is_floating_point "
        "is_tensor long nan newaxis numel pi promote_types=result_type "
        "result_type short"
    ),
    "weft.tensor.printing": "printoptions set_printoptions",
    "weft.tensor.ragged": "ragged ragged_from_padded ragged_from_splits RaggedTensor",
    "weft.tensor.ranges": "arange eye linspace meshgrid mgrid",
    "weft.tensor.sampling": (
        "bernoulli multinomial normal rand rand_like randint randint_like randn randn_like randperm"
    ),
    "weft.tensor.sparse": "sparse_coo_tensor SparseTensor to_sparse",
    "weft.tensor.tapers": "bartlett_window blackman_window hamming_window hann_window kaiser_window",
    "weft.tensor.tensor": "ndarray=Tensor Tensor",
    "weft.train.trainer": "Trainer",
    "weft.transform.control.branches": "cond switch",
    "weft.transform.control.loops": "fori_loop scan while_loop",
    "weft.transform.jacobian": "hessian jacfwd jacobian jacrev",
    "weft.transform.jvp": "jvp linearize",
    "weft.transform.reverse": "grad value_and_grad vjp",
    "weft.transform.vmap": "vmap",
    "weft.viewer.page": "view",
    "weft.viewer.picture": "dot",
}

# The names of weft.nn.
LAYERS: dict[str, str] = {
    "weft.nn.activation": (
        "CELU ELU GELU SELU Hardshrink Hardsigmoid Hardswish Hardtanh LeakyReLU LogSigmoid Mish PReLU ReLU "
        "ReLU6 RReLU Sigmoid SiLU Softplus Softshrink Softsign Tanh Tanhshrink Threshold"
    ),
    "weft.nn.attention": "MultiheadAttention",
    "weft.nn.batch_norm": "BatchNorm1d BatchNorm2d BatchNorm3d InstanceNorm1d InstanceNorm2d InstanceNorm3d",
    "weft.nn.cache": "KeyValueCache",
    "weft.nn.containers": "ModuleDict ModuleList Sequential",
    "weft.nn.conv": "Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d",
    "weft.nn.distance": "CosineSimilarity PairwiseDistance",
    "weft.nn.dropout": "AlphaDropout Dropout Dropout1d Dropout2d Dropout3d FeatureAlphaDropout",
    "weft.nn.embedding": "Embedding EmbeddingBag",
    "weft.nn.lazy": (
        "LazyBatchNorm1d LazyBatchNorm2d LazyBatchNorm3d LazyConv1d LazyConv2d LazyConv3d "
        "LazyConvTranspose1d LazyConvTranspose2d LazyConvTranspose3d LazyLinear"
    ),
    "weft.nn.linear": "Bilinear Identity Linear",
    "weft.nn.loss": (
        "BCELoss BCEWithLogitsLoss CrossEntropyLoss CTCLoss GaussianNLLLoss HuberLoss KLDivLoss L1Loss "
        "MSELoss NLLLoss PoissonNLLLoss SmoothL1Loss"
    ),
    "weft.nn.loss_margin": (
        "CosineEmbeddingLoss HingeEmbeddingLoss MarginRankingLoss MultiLabelMarginLoss "
        "MultiLabelSoftMarginLoss MultiMarginLoss SoftMarginLoss TripletMarginLoss "
        "TripletMarginWithDistanceLoss"
    ),
    "weft.nn.module": "Module",
    "weft.nn.norm": "GroupNorm LayerNorm LocalResponseNorm RMSNorm",
    "weft.nn.pretrained": "load_hf",
    "weft.nn.padding": (
        "CircularPad1d CircularPad2d CircularPad3d ConstantPad1d ConstantPad2d ConstantPad3d "
        "ReflectionPad1d ReflectionPad2d ReflectionPad3d ReplicationPad1d ReplicationPad2d ReplicationPad3d "
        "ZeroPad1d ZeroPad2d ZeroPad3d"
    ),
    "weft.nn.parameter": "Parameter",
    "weft.nn.parameter_containers": "ParameterDict ParameterList",
    "weft.nn.pool": (
        "AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d AdaptiveMaxPool1d AdaptiveMaxPool2d "
        "AdaptiveMaxPool3d AvgPool1d AvgPool2d AvgPool3d LPPool1d LPPool2d LPPool3d MaxPool1d MaxPool2d "
        "MaxPool3d MaxUnpool1d MaxUnpool2d MaxUnpool3d"
    ),
    "weft.nn.recurrent": "GRU LSTM RNN",
    "weft.nn.recurrent_cells": "GRUCell LSTMCell RNNCell",
    "weft.nn.shape": (
        "ChannelShuffle Flatten Fold PixelShuffle PixelUnshuffle Unflatten Unfold Upsample "
        "UpsamplingBilinear2d UpsamplingNearest2d"
    ),
    "weft.nn.softmax": "GLU LogSoftmax Softmax Softmax2d Softmin",
    "weft.nn.transformer": (
        "Transformer TransformerDecoder TransformerDecoderLayer TransformerEncoder TransformerEncoderLayer"
    ),
}


class Home:
    """Where a public name comes from: a module, and the name there, "" for the module itself."""

    __slots__ = ("module", "name")

    def __init__(self, module: str, name: str) -> None:
        self.module = module
        self.name = name

    def load(self) -> object:
        """What the name stands for; its module is imported if it was not."""
        module = import_module(self.module)
        return getattr(module, self.name) if self.name else module


def homes(*tables: dict[str, str], modules: str = "") -> dict[str, Home]:
    """The home of each name in tables, and of modules that are names themselves.

    >>> from weft.base.names import homes
    >>> home = homes({"weft.ops.arithmetic": "clamp=clip"})["clamp"]
    >>> home.module, home.name
    ('weft.ops.arithmetic', 'clip')
    """
    found = {path.rpartition(".")[2]: Home(path, "") for path in modules.split()}
    for table in tables:
        for module, names in table.items():
            for name in names.split():
                public, _, own = name.partition("=")
                found[public] = Home(module, own or public)
    return found
