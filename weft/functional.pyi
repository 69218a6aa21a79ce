"""Written by ``python -m tests.stubs --write``."""

# ruff: noqa
# fmt: off
from weft.ops.activation import (
    celu as celu, elu as elu, gelu as gelu, glu as glu, hardshrink as hardshrink, hardsigmoid as hardsigmoid,
    hardswish as hardswish, hardtanh as hardtanh, leaky_relu as leaky_relu, logsigmoid as logsigmoid,
    mish as mish, prelu as prelu, relu as relu, relu6 as relu6, selu as selu, silu as silu,
    softplus as softplus, softshrink as softshrink, softsign as softsign, tanhshrink as tanhshrink,
    threshold as threshold,
)
from weft.ops.conv.layers import (
    conv1d as conv1d, conv2d as conv2d, conv3d as conv3d, conv_transpose1d as conv_transpose1d,
    conv_transpose2d as conv_transpose2d, conv_transpose3d as conv_transpose3d,
)
from weft.ops.grid import affine_grid as affine_grid, grid_sample as grid_sample
from weft.ops.index_axis import one_hot as one_hot
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
from weft.ops.products import bilinear as bilinear, linear as linear
from weft.ops.resize import (
    channel_shuffle as channel_shuffle, interpolate as interpolate, pixel_shuffle as pixel_shuffle,
    pixel_unshuffle as pixel_unshuffle,
)
from weft.ops.softmax import log_softmax as log_softmax, softmax as softmax, softmin as softmin
from weft.ops.view.padding import pad as pad
from weft.tensor.attention import scaled_dot_product_attention as scaled_dot_product_attention
from weft.tensor.batch_norm import batch_norm as batch_norm, instance_norm as instance_norm
from weft.tensor.dropout import (
    alpha_dropout as alpha_dropout, dropout as dropout, dropout1d as dropout1d, dropout2d as dropout2d,
    dropout3d as dropout3d, feature_alpha_dropout as feature_alpha_dropout, gumbel_softmax as gumbel_softmax,
    rrelu as rrelu,
)
from weft.tensor.embedding import embedding as embedding
from weft.tensor.embedding_bag import embedding_bag as embedding_bag
from weft.tensor.functions import sigmoid as sigmoid, tanh as tanh
