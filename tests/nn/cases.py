"""Every layer with several settings, written once for weft and PyTorch: both have the same names.

``make(nn, tensor)`` builds a module from either library, ``call(nn, module, *inputs)`` runs it.
``make_expected.py`` computes with PyTorch what the tests compare with.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.nn.case import Apart, Case, Given, Normal, Signs, Unit, Whole, future

X1, X2, X3 = Normal((2, 4, 7)), Normal((2, 4, 6, 5)), Normal((2, 2, 4, 5, 4))
A1, A2, A3 = Apart((2, 3, 9)), Apart((2, 3, 6, 7)), Apart((1, 2, 4, 5, 6))
ROW = Normal((3, 5), 2.0)

LINEAR = {
    "identity": Case(lambda nn, t: nn.Identity(3, x=1), (ROW,)),
    "linear": Case(lambda nn, t: nn.Linear(5, 3), (ROW,)),
    "linear_no_bias": Case(lambda nn, t: nn.Linear(5, 3, bias=False), (Normal((2, 3, 5)),)),
    "bilinear": Case(lambda nn, t: nn.Bilinear(5, 4, 3), (ROW, Normal((3, 4)))),
    "bilinear_no_bias": Case(
        lambda nn, t: nn.Bilinear(2, 3, 4, bias=False), (Normal((2, 2)), Normal((2, 3)))
    ),
    "embedding": Case(lambda nn, t: nn.Embedding(7, 3), (Whole((2, 5), 7),)),
    "embedding_padding": Case(lambda nn, t: nn.Embedding(7, 3, padding_idx=-5), (Whole((2, 5), 7),)),
    "embedding_max_norm": Case(
        lambda nn, t: nn.Embedding(7, 3, max_norm=1.0), (Whole((4,), 7),), exact=False
    ),
    "bag_mean": Case(lambda nn, t: nn.EmbeddingBag(7, 3), (Whole((4, 5), 7),)),
    "bag_sum": Case(
        lambda nn, t: nn.EmbeddingBag(7, 3, mode="sum"), (Whole((9,), 7), Given([0, 2, 2, 5], "int64"))
    ),
    "bag_max": Case(
        lambda nn, t: nn.EmbeddingBag(7, 3, mode="max"), (Whole((9,), 7), Given([0, 2, 2, 5], "int64"))
    ),
    "bag_weighted": Case(
        lambda nn, t: nn.EmbeddingBag(7, 3, mode="sum"),
        (Whole((2, 4), 7), Normal((2, 4))),
        lambda nn, m, x, w: m(x, per_sample_weights=w),
    ),
    "bag_padding": Case(
        lambda nn, t: nn.EmbeddingBag(7, 3, padding_idx=2, include_last_offset=True),
        (Given([2, 1, 2, 2, 5, 6, 2, 0], "int64"), Given([0, 3, 4, 8], "int64")),
    ),
    "cosine_similarity": Case(lambda nn, t: nn.CosineSimilarity(dim=-1), (ROW, Normal((3, 5)))),
    "pairwise_distance": Case(lambda nn, t: nn.PairwiseDistance(p=3.0, keepdim=True), (ROW, Normal((3, 5)))),
    "weight_norm": Case(lambda nn, t: nn.utils.weight_norm(nn.Linear(5, 3)), (ROW,)),
    "parameter_list": Case(
        lambda nn, t: nn.ParameterList([t([[1.0, 2.0, 3.0, 4.0, 5.0]]), t([0.5])]),
        (ROW,),
        lambda nn, m, x: x * m[0] + m[1],
    ),
}

CONVOLUTION = {
    "conv1d": Case(lambda nn, t: nn.Conv1d(4, 6, 3), (X1,)),
    "conv1d_same": Case(lambda nn, t: nn.Conv1d(4, 6, 4, padding="same", dilation=2), (X1,)),
    "conv1d_single": Case(lambda nn, t: nn.Conv1d(4, 6, 3, padding="valid", bias=False), (Normal((4, 7)),)),
    "conv1d_circular": Case(lambda nn, t: nn.Conv1d(4, 2, 3, padding=2, padding_mode="circular"), (X1,)),
    "conv2d": Case(lambda nn, t: nn.Conv2d(4, 6, 3, stride=2, padding=1, groups=2), (X2,)),
    "conv2d_uneven": Case(lambda nn, t: nn.Conv2d(4, 3, (3, 2), (1, 2), (2, 0), (2, 1)), (X2,)),
    "conv2d_depthwise": Case(lambda nn, t: nn.Conv2d(4, 8, 3, padding=1, groups=4), (X2,)),
    "conv2d_reflect": Case(lambda nn, t: nn.Conv2d(4, 3, 3, padding=1, padding_mode="reflect"), (X2,)),
    "conv2d_replicate": Case(
        lambda nn, t: nn.Conv2d(4, 3, 3, padding="same", padding_mode="replicate"), (X2,)
    ),
    "conv3d": Case(lambda nn, t: nn.Conv3d(2, 3, 2, stride=(1, 2, 1), padding=1), (X3,)),
    "conv3d_groups": Case(lambda nn, t: nn.Conv3d(2, 4, (1, 3, 2), groups=2, dilation=(1, 1, 2)), (X3,)),
    "transposed1d": Case(lambda nn, t: nn.ConvTranspose1d(4, 3, 3, stride=2, output_padding=1), (X1,)),
    "transposed2d": Case(lambda nn, t: nn.ConvTranspose2d(4, 6, 3, 2, 1, groups=2), (X2,)),
    "transposed2d_size": Case(
        lambda nn, t: nn.ConvTranspose2d(4, 2, 3, stride=2, bias=False),
        (X2,),
        lambda nn, m, x: m(x, output_size=[14, 11]),
    ),
    "transposed3d": Case(lambda nn, t: nn.ConvTranspose3d(2, 2, 2, dilation=2, padding=1), (X3,)),
}

POOL = {
    "max_pool1d": Case(lambda nn, t: nn.MaxPool1d(3, 2, 1, ceil_mode=True), (A1,)),
    "max_pool2d": Case(lambda nn, t: nn.MaxPool2d(2), (A2,)),
    "max_pool2d_dilated": Case(lambda nn, t: nn.MaxPool2d((2, 3), (1, 2), (1, 1), (2, 1)), (A2,)),
    "max_pool2d_indices": Case(lambda nn, t: nn.MaxPool2d(3, 2, return_indices=True, ceil_mode=True), (A2,)),
    "max_pool3d": Case(lambda nn, t: nn.MaxPool3d(2, stride=(2, 1, 2), padding=1), (A3,)),
    "max_unpool1d": Case(
        lambda nn, t: nn.ModuleList([nn.MaxPool1d(2, return_indices=True), nn.MaxUnpool1d(2)]),
        (A1,),
        lambda nn, m, x: m[1](*m[0](x), output_size=[9]),
    ),
    "max_unpool2d": Case(
        lambda nn, t: nn.ModuleList([nn.MaxPool2d(2, return_indices=True), nn.MaxUnpool2d(2)]),
        (A2,),
        lambda nn, m, x: m[1](*m[0](x), output_size=[6, 7]),
    ),
    "max_unpool3d": Case(
        lambda nn, t: nn.ModuleList([nn.MaxPool3d(2, return_indices=True), nn.MaxUnpool3d(2)]),
        (A3,),
        lambda nn, m, x: m[1](*m[0](x), output_size=[4, 5, 6]),
    ),
    "avg_pool1d": Case(lambda nn, t: nn.AvgPool1d(3, 2, 1, ceil_mode=True), (X1,)),
    "avg_pool2d": Case(lambda nn, t: nn.AvgPool2d(3, 2, 1, count_include_pad=False), (X2,)),
    "avg_pool2d_divisor": Case(lambda nn, t: nn.AvgPool2d((2, 3), divisor_override=5), (X2,)),
    "avg_pool3d": Case(lambda nn, t: nn.AvgPool3d(2, (1, 2, 2), ceil_mode=True), (X3,)),
    "lp_pool1d": Case(lambda nn, t: nn.LPPool1d(2, 3, 2), (Unit((2, 3, 9)),)),
    "lp_pool2d": Case(lambda nn, t: nn.LPPool2d(3, 2, ceil_mode=True), (Unit((1, 2, 5, 5)),)),
    "lp_pool3d": Case(lambda nn, t: nn.LPPool3d(2, 2), (Unit((1, 2, 4, 4, 4)),)),
    "adaptive_avg1d": Case(lambda nn, t: nn.AdaptiveAvgPool1d(3), (X1,)),
    "adaptive_avg2d": Case(lambda nn, t: nn.AdaptiveAvgPool2d((None, 2)), (X2,)),
    "adaptive_avg3d": Case(lambda nn, t: nn.AdaptiveAvgPool3d((2, 3, 1)), (X3,)),
    "adaptive_max1d": Case(lambda nn, t: nn.AdaptiveMaxPool1d(4), (A1,)),
    "adaptive_max2d": Case(lambda nn, t: nn.AdaptiveMaxPool2d((2, 3), return_indices=True), (A2,)),
    "adaptive_max3d": Case(lambda nn, t: nn.AdaptiveMaxPool3d(2), (A3,)),
}

NORM = {
    "layer_norm": Case(lambda nn, t: nn.LayerNorm((4, 7)), (X1,)),
    "layer_norm_no_bias": Case(lambda nn, t: nn.LayerNorm(7, eps=1e-3, bias=False), (X1,)),
    "layer_norm_plain": Case(lambda nn, t: nn.LayerNorm(7, elementwise_affine=False), (X1,)),
    "rms_norm": Case(lambda nn, t: nn.RMSNorm(7, eps=1e-5), (X1,)),
    "rms_norm_plain": Case(lambda nn, t: nn.RMSNorm((4, 7), 1e-6, False), (X1,)),
    "group_norm": Case(lambda nn, t: nn.GroupNorm(2, 4), (X2,)),
    "group_norm_plain": Case(lambda nn, t: nn.GroupNorm(4, 4, affine=False), (X1,)),
    "local_response_norm": Case(lambda nn, t: nn.LocalResponseNorm(3, alpha=0.1, k=2.0), (X2,)),
    "batch_norm1d": Case(lambda nn, t: nn.BatchNorm1d(5), (ROW,)),
    "batch_norm1d_eval": Case(lambda nn, t: nn.BatchNorm1d(4), (X1,), training=False),
    "batch_norm2d": Case(lambda nn, t: nn.BatchNorm2d(4, eps=1e-3, momentum=0.3), (X2,)),
    "batch_norm2d_average": Case(lambda nn, t: nn.BatchNorm2d(4, momentum=None, affine=False), (X2,)),
    "batch_norm2d_untracked": Case(
        lambda nn, t: nn.BatchNorm2d(4, track_running_stats=False), (X2,), training=False
    ),
    "batch_norm3d": Case(lambda nn, t: nn.BatchNorm3d(2), (X3,)),
    "instance_norm1d": Case(lambda nn, t: nn.InstanceNorm1d(4), (X1,)),
    "instance_norm2d": Case(lambda nn, t: nn.InstanceNorm2d(4, affine=True, track_running_stats=True), (X2,)),
    "instance_norm2d_eval": Case(
        lambda nn, t: nn.InstanceNorm2d(4, track_running_stats=True), (X2,), training=False
    ),
    "instance_norm2d_single": Case(lambda nn, t: nn.InstanceNorm2d(4, affine=True), (Normal((4, 6, 5)),)),
    "instance_norm3d": Case(lambda nn, t: nn.InstanceNorm3d(2, eps=1e-2), (X3,)),
}

ACTIVATION = {
    "relu": Case(lambda nn, t: nn.ReLU(inplace=False), (ROW,)),
    "relu6": Case(lambda nn, t: nn.ReLU6(), (Normal((3, 5), 6.0),)),
    "leaky_relu": Case(lambda nn, t: nn.LeakyReLU(0.2), (ROW,)),
    "prelu": Case(lambda nn, t: nn.PReLU(), (ROW,)),
    "prelu_channels": Case(lambda nn, t: nn.PReLU(5, init=0.1), (ROW,)),
    "rrelu_eval": Case(lambda nn, t: nn.RReLU(0.1, 0.4), (ROW,), training=False),
    "elu": Case(lambda nn, t: nn.ELU(0.7), (ROW,)),
    "celu": Case(lambda nn, t: nn.CELU(0.7), (ROW,)),
    "selu": Case(lambda nn, t: nn.SELU(), (ROW,)),
    "gelu": Case(lambda nn, t: nn.GELU(), (ROW,)),
    "gelu_tanh": Case(lambda nn, t: nn.GELU("tanh"), (ROW,)),
    "silu": Case(lambda nn, t: nn.SiLU(), (ROW,)),
    "mish": Case(lambda nn, t: nn.Mish(), (ROW,)),
    "softplus": Case(lambda nn, t: nn.Softplus(2.0, 3.0), (ROW,)),
    "softsign": Case(lambda nn, t: nn.Softsign(), (ROW,)),
    "tanh": Case(lambda nn, t: nn.Tanh(), (ROW,)),
    "sigmoid": Case(lambda nn, t: nn.Sigmoid(), (ROW,)),
    "logsigmoid": Case(lambda nn, t: nn.LogSigmoid(), (ROW,)),
    "tanhshrink": Case(lambda nn, t: nn.Tanhshrink(), (ROW,)),
    "softshrink": Case(lambda nn, t: nn.Softshrink(0.8), (ROW,)),
    "hardshrink": Case(lambda nn, t: nn.Hardshrink(0.8), (ROW,)),
    "hardtanh": Case(lambda nn, t: nn.Hardtanh(-0.5, 1.5), (ROW,)),
    "hardsigmoid": Case(lambda nn, t: nn.Hardsigmoid(), (ROW,)),
    "hardswish": Case(lambda nn, t: nn.Hardswish(), (ROW,)),
    "threshold": Case(lambda nn, t: nn.Threshold(0.3, -2.0), (ROW,)),
    "glu": Case(lambda nn, t: nn.GLU(dim=1), (Normal((2, 4, 3)),)),
    "softmax": Case(lambda nn, t: nn.Softmax(dim=1), (ROW,)),
    "softmin": Case(lambda nn, t: nn.Softmin(dim=0), (ROW,)),
    "log_softmax": Case(lambda nn, t: nn.LogSoftmax(dim=-1), (ROW,)),
    "softmax2d": Case(lambda nn, t: nn.Softmax2d(), (X2,)),
    "dropout_eval": Case(lambda nn, t: nn.Dropout(0.3), (ROW,), training=False),
    "dropout_none": Case(lambda nn, t: nn.Dropout(0.0), (ROW,)),
    "dropout1d_eval": Case(lambda nn, t: nn.Dropout1d(0.3), (X1,), training=False),
    "dropout2d_eval": Case(lambda nn, t: nn.Dropout2d(), (X2,), training=False),
    "dropout3d_eval": Case(lambda nn, t: nn.Dropout3d(), (X3,), training=False),
    "alpha_dropout_eval": Case(lambda nn, t: nn.AlphaDropout(0.2), (ROW,), training=False),
    "feature_alpha_dropout_eval": Case(lambda nn, t: nn.FeatureAlphaDropout(0.2), (X1,), training=False),
}

SHAPE = {
    "flatten": Case(lambda nn, t: nn.Flatten(), (X2,)),
    "flatten_some": Case(lambda nn, t: nn.Flatten(start_dim=0, end_dim=2), (X2,)),
    "unflatten": Case(lambda nn, t: nn.Unflatten(1, (2, 2)), (X2,)),
    "unfold": Case(lambda nn, t: nn.Unfold((2, 3), padding=1, stride=2), (X2,)),
    "fold": Case(lambda nn, t: nn.Fold((4, 5), (2, 2)), (Normal((2, 8, 12)),)),
    "upsample": Case(lambda nn, t: nn.Upsample(scale_factor=2), (X1,)),
    "upsample_linear": Case(lambda nn, t: nn.Upsample(size=11, mode="linear"), (X1,)),
    "upsample_bilinear": Case(lambda nn, t: nn.Upsample((9, 4), mode="bilinear", align_corners=True), (X2,)),
    "upsample_bicubic": Case(lambda nn, t: nn.Upsample(scale_factor=1.5, mode="bicubic"), (X2,)),
    "upsample_trilinear": Case(
        lambda nn, t: nn.Upsample(scale_factor=2, mode="trilinear"), (Normal((1, 2, 2, 3, 2)),)
    ),
    "upsampling_nearest2d": Case(lambda nn, t: nn.UpsamplingNearest2d(scale_factor=2), (X2,)),
    "upsampling_bilinear2d": Case(lambda nn, t: nn.UpsamplingBilinear2d(size=(8, 8)), (X2,)),
    "pixel_shuffle": Case(lambda nn, t: nn.PixelShuffle(2), (X2,)),
    "pixel_unshuffle": Case(lambda nn, t: nn.PixelUnshuffle(2), (Normal((2, 1, 4, 6)),)),
    "channel_shuffle": Case(lambda nn, t: nn.ChannelShuffle(2), (X2,)),
    "constant_pad1d": Case(lambda nn, t: nn.ConstantPad1d((1, 2), 3.5), (X1,)),
    "constant_pad2d": Case(lambda nn, t: nn.ConstantPad2d((1, 0, 2, -1), 0.5), (X2,)),
    "constant_pad3d": Case(lambda nn, t: nn.ConstantPad3d(1, -1.0), (Normal((1, 2, 2, 2)),)),
    "zero_pad1d": Case(lambda nn, t: nn.ZeroPad1d(2), (X1,)),
    "zero_pad2d": Case(lambda nn, t: nn.ZeroPad2d((1, 2, 3, 0)), (X2,)),
    "zero_pad3d": Case(lambda nn, t: nn.ZeroPad3d((0, 1, 1, 0, 1, 1)), (Normal((1, 2, 2, 2)),)),
    "reflection_pad1d": Case(lambda nn, t: nn.ReflectionPad1d((2, 1)), (X1,)),
    "reflection_pad2d": Case(lambda nn, t: nn.ReflectionPad2d((1, 2, 3, 0)), (X2,)),
    "reflection_pad3d": Case(lambda nn, t: nn.ReflectionPad3d(1), (Normal((1, 2, 2, 3, 2)),)),
    "replication_pad1d": Case(lambda nn, t: nn.ReplicationPad1d((2, 1)), (X1,)),
    "replication_pad2d": Case(lambda nn, t: nn.ReplicationPad2d((1, 2, 3, 0)), (X2,)),
    "replication_pad3d": Case(lambda nn, t: nn.ReplicationPad3d(1), (Normal((1, 2, 2, 3, 2)),)),
    "circular_pad1d": Case(lambda nn, t: nn.CircularPad1d((2, 1)), (X1,)),
    "circular_pad2d": Case(lambda nn, t: nn.CircularPad2d((1, 2, 3, 0)), (X2,)),
    "circular_pad3d": Case(lambda nn, t: nn.CircularPad3d(1), (Normal((1, 2, 2, 3, 2)),)),
}

CLASSES = Given([0, 3, -100, 2], "int64")
SCORES = Normal((4, 4))

LOSS = {
    "l1": Case(lambda nn, t: nn.L1Loss(), (ROW, Normal((3, 5)))),
    "mse_sum": Case(lambda nn, t: nn.MSELoss(reduction="sum"), (ROW, Normal((3, 5)))),
    "huber": Case(lambda nn, t: nn.HuberLoss(delta=0.7), (ROW, Normal((3, 5)))),
    "smooth_l1": Case(lambda nn, t: nn.SmoothL1Loss(reduction="none", beta=0.5), (ROW, Normal((3, 5)))),
    "poisson": Case(lambda nn, t: nn.PoissonNLLLoss(full=True), (Normal((3, 5)), Whole((3, 5), 6))),
    "poisson_rate": Case(lambda nn, t: nn.PoissonNLLLoss(log_input=False), (Unit((3, 5)), Unit((3, 5)))),
    "gaussian": Case(
        lambda nn, t: nn.GaussianNLLLoss(full=True, reduction="sum"), (ROW, Normal((3, 5)), Unit((3, 5)))
    ),
    "kl": Case(lambda nn, t: nn.KLDivLoss(reduction="batchmean"), (Normal((3, 5)), Unit((3, 5)))),
    "kl_log": Case(lambda nn, t: nn.KLDivLoss(log_target=True, reduction="sum"), (ROW, Normal((3, 5)))),
    "bce": Case(lambda nn, t: nn.BCELoss(), (Unit((3, 5)), Unit((3, 5)))),
    "bce_weighted": Case(
        lambda nn, t: nn.BCELoss(weight=t([1.0, 2.0, 3.0, 0.5, 0.0]), reduction="none"),
        (Unit((3, 5)), Unit((3, 5))),
    ),
    "bce_logits": Case(lambda nn, t: nn.BCEWithLogitsLoss(), (ROW, Unit((3, 5)))),
    "bce_logits_weighted": Case(
        lambda nn, t: nn.BCEWithLogitsLoss(
            weight=t([1.0, 2.0, 3.0, 0.5, 0.0]), pos_weight=t([2.0, 1.0, 0.5, 3.0, 1.0])
        ),
        (ROW, Unit((3, 5))),
    ),
    "nll": Case(lambda nn, t: nn.NLLLoss(weight=t([1.0, 2.0, 3.0, 0.5])), (SCORES, CLASSES)),
    "nll_images": Case(
        lambda nn, t: nn.NLLLoss(reduction="sum"), (Normal((2, 3, 2, 2)), Whole((2, 2, 2), 3))
    ),
    "cross_entropy": Case(lambda nn, t: nn.CrossEntropyLoss(), (SCORES, Whole((4,), 4))),
    "cross_entropy_ignoring": Case(
        lambda nn, t: nn.CrossEntropyLoss(weight=t([1.0, 2.0, 3.0, 0.5]), label_smoothing=0.2),
        (SCORES, CLASSES),
    ),
    "cross_entropy_other_index": Case(
        lambda nn, t: nn.CrossEntropyLoss(ignore_index=1, reduction="none"),
        (Normal((2, 4, 3)), Whole((2, 3), 4)),
    ),
    "cross_entropy_soft": Case(
        lambda nn, t: nn.CrossEntropyLoss(label_smoothing=0.1, weight=t([1.0, 2.0, 3.0, 0.5])),
        (SCORES, Unit((4, 4))),
    ),
    "cross_entropy_single": Case(lambda nn, t: nn.CrossEntropyLoss(), (Normal((4,)), Given(2, "int64"))),
    "ctc": Case(
        lambda nn, t: nn.CTCLoss(),
        (Normal((8, 3, 5)), Whole((3, 3), 5, 1), Given([8, 6, 7], "int64"), Given([3, 2, 3], "int64")),
        lambda nn, m, x, y, n, k: m(nn.functional.log_softmax(x, -1), y, n, k),
    ),
    "ctc_repeats": Case(
        lambda nn, t: nn.CTCLoss(blank=2, reduction="none", zero_infinity=True),
        (
            Normal((6, 2, 4)),
            Given([[1, 1, 0], [3, 3, 3]], "int64"),
            Given([6, 4], "int64"),
            Given([3, 3], "int64"),
        ),
        lambda nn, m, x, y, n, k: m(nn.functional.log_softmax(x, -1), y, n, k),
    ),
    "ctc_flat": Case(
        lambda nn, t: nn.CTCLoss(reduction="sum"),
        (Normal((7, 2, 4)), Whole((5,), 4, 1), Given([7, 7], "int64"), Given([2, 3], "int64")),
        lambda nn, m, x, y, n, k: m(nn.functional.log_softmax(x, -1), y, n, k),
    ),
    "margin_ranking": Case(
        lambda nn, t: nn.MarginRankingLoss(margin=0.3), (Normal((6,)), Normal((6,)), Signs((6,)))
    ),
    "hinge_embedding": Case(lambda nn, t: nn.HingeEmbeddingLoss(0.8), (Normal((6,)), Signs((6,)))),
    "cosine_embedding": Case(
        lambda nn, t: nn.CosineEmbeddingLoss(margin=-0.4), (ROW, Normal((3, 5)), Signs((3,)))
    ),
    "soft_margin": Case(lambda nn, t: nn.SoftMarginLoss(), (ROW, Signs((3, 5)))),
    "multi_margin": Case(
        lambda nn, t: nn.MultiMarginLoss(p=2, margin=0.8, weight=t([1.0, 2.0, 3.0, 0.5])),
        (SCORES, Whole((4,), 4)),
    ),
    "multilabel_margin": Case(
        lambda nn, t: nn.MultiLabelMarginLoss(),
        (Normal((2, 4)), Given([[3, 0, -1, 1], [1, 2, 0, -1]], "int64")),
    ),
    "multilabel_soft_margin": Case(
        lambda nn, t: nn.MultiLabelSoftMarginLoss(weight=t([1.0, 2.0, 3.0, 0.5])),
        (SCORES, Whole((4, 4), 2)),
    ),
    "triplet": Case(
        lambda nn, t: nn.TripletMarginLoss(margin=2.0, swap=True), (ROW, Normal((3, 5)), Normal((3, 5)))
    ),
    "triplet_distance": Case(
        lambda nn, t: nn.TripletMarginWithDistanceLoss(
            distance_function=nn.PairwiseDistance(p=1.0), margin=3.0, reduction="sum"
        ),
        (ROW, Normal((3, 5)), Normal((3, 5))),
    ),
}

STEPS = Normal((5, 2, 3))


def packed(nn: Any, m: Any, x: Any, n: Any) -> Any:
    """Run a recurrent layer on packed sequences, and pad its outputs."""
    batch = nn.utils.rnn.pack_padded_sequence(x, n, m.batch_first, enforce_sorted=False)
    out, last = m(batch)
    return nn.utils.rnn.pad_packed_sequence(out, m.batch_first, padding_value=0.5)[0], last


RECURRENT = {
    "rnn_cell": Case(lambda nn, t: nn.RNNCell(3, 4), (Normal((2, 3)), Normal((2, 4)))),
    "rnn_cell_relu": Case(lambda nn, t: nn.RNNCell(3, 4, bias=False, nonlinearity="relu"), (Normal((3,)),)),
    "gru_cell": Case(lambda nn, t: nn.GRUCell(3, 4), (Normal((2, 3)), Normal((2, 4)))),
    "lstm_cell": Case(
        lambda nn, t: nn.LSTMCell(3, 4),
        (Normal((2, 3)), Normal((2, 4)), Normal((2, 4))),
        lambda nn, m, x, h, c: m(x, (h, c)),
    ),
    "rnn": Case(lambda nn, t: nn.RNN(3, 4), (STEPS,)),
    "rnn_relu": Case(lambda nn, t: nn.RNN(3, 4, 2, "relu", bias=False), (STEPS, Normal((2, 2, 4)))),
    "gru": Case(lambda nn, t: nn.GRU(3, 4, num_layers=2, bidirectional=True), (STEPS,)),
    "gru_batch_first": Case(
        lambda nn, t: nn.GRU(3, 4, batch_first=True), (Normal((2, 5, 3)), Normal((1, 2, 4)))
    ),
    "gru_unbatched": Case(lambda nn, t: nn.GRU(3, 4, bidirectional=True), (Normal((5, 3)),)),
    "lstm": Case(lambda nn, t: nn.LSTM(3, 4, num_layers=2), (STEPS,)),
    "lstm_state": Case(
        lambda nn, t: nn.LSTM(3, 4, 2, batch_first=True, bidirectional=True),
        (Normal((2, 5, 3)), Normal((4, 2, 4)), Normal((4, 2, 4))),
        lambda nn, m, x, h, c: m(x, (h, c)),
    ),
    "lstm_projected": Case(lambda nn, t: nn.LSTM(3, 5, 2, proj_size=2, bidirectional=True), (STEPS,)),
    "lstm_dropout_eval": Case(lambda nn, t: nn.LSTM(3, 4, 2, dropout=0.5), (STEPS,), training=False),
    "rnn_packed": Case(lambda nn, t: nn.RNN(3, 4), (STEPS, Given([5, 3], "int64")), packed),
    "gru_packed": Case(
        lambda nn, t: nn.GRU(3, 4, 2, batch_first=True, bidirectional=True),
        (Normal((3, 6, 3)), Given([2, 5, 1], "int64")),
        packed,
    ),
    "lstm_packed": Case(
        lambda nn, t: nn.LSTM(3, 4, bidirectional=True),
        (Normal((4, 3, 3)), Given([3, 1, 4], "int64")),
        packed,
    ),
}

SEQ, OTHER = Normal((2, 5, 8)), Normal((2, 6, 8))
PADDING = Given([[False, False, False, False, True], [False, True, False, False, False]], "bool")


def to_self(nn: Any, m: Any, x: Any, **settings: Any) -> Any:
    """Attention of a tensor to itself."""
    return m(x, x, x, **settings)


ATTENTION = {
    "attention": Case(lambda nn, t: nn.MultiheadAttention(8, 2), (Normal((5, 2, 8)),), to_self),
    "attention_cross": Case(
        lambda nn, t: nn.MultiheadAttention(8, 4, batch_first=True, bias=False), (SEQ, OTHER, OTHER)
    ),
    "attention_sizes": Case(
        lambda nn, t: nn.MultiheadAttention(8, 2, kdim=5, vdim=3, batch_first=True),
        (SEQ, Normal((2, 6, 5)), Normal((2, 6, 3))),
    ),
    "attention_unbatched": Case(lambda nn, t: nn.MultiheadAttention(8, 2), (Normal((5, 8)),), to_self),
    "attention_by_head": Case(
        lambda nn, t: nn.MultiheadAttention(8, 2, batch_first=True),
        (SEQ,),
        lambda nn, m, x: m(x, x, x, average_attn_weights=False),
    ),
    "attention_no_weights": Case(
        lambda nn, t: nn.MultiheadAttention(8, 2, batch_first=True),
        (SEQ,),
        lambda nn, m, x: m(x, x, x, need_weights=False)[0],
    ),
    "attention_causal": Case(
        lambda nn, t: nn.MultiheadAttention(8, 2, batch_first=True),
        (SEQ, future(5)),
        lambda nn, m, x, mask: m(x, x, x, attn_mask=mask, need_weights=False, is_causal=True)[0],
    ),
    "attention_padding": Case(
        lambda nn, t: nn.MultiheadAttention(8, 2, batch_first=True),
        (SEQ, PADDING),
        lambda nn, m, x, mask: m(x, x, x, key_padding_mask=mask),
    ),
    "attention_masks": Case(
        lambda nn, t: nn.MultiheadAttention(8, 2, batch_first=True),
        (SEQ, Normal((4, 5, 5)), Given([[0, 0, 0, 0, -np.inf], [0, -np.inf, 0.5, 0, 0]], "float32")),
        lambda nn, m, x, a, p: m(x, x, x, attn_mask=a, key_padding_mask=p),
    ),
    "attention_added_keys": Case(
        lambda nn, t: nn.MultiheadAttention(8, 2, add_bias_kv=True, add_zero_attn=True, batch_first=True),
        (SEQ, future(5), PADDING),
        lambda nn, m, x, a, p: m(x, x, x, attn_mask=a, key_padding_mask=p),
    ),
    "encoder_layer": Case(lambda nn, t: nn.TransformerEncoderLayer(8, 2, 12, 0.0), (Normal((5, 2, 8)),)),
    "encoder_layer_masked": Case(
        lambda nn, t: nn.TransformerEncoderLayer(8, 2, 12, 0.0, "gelu", 1e-3, True, True, False),
        (SEQ, future(5), PADDING),
    ),
    "encoder": Case(
        lambda nn, t: nn.TransformerEncoder(
            nn.TransformerEncoderLayer(8, 2, 12, 0.0, batch_first=True), 2, nn.LayerNorm(8)
        ),
        (SEQ,),
    ),
    "decoder_layer": Case(
        lambda nn, t: nn.TransformerDecoderLayer(8, 2, 12, 0.0, batch_first=True), (SEQ, OTHER, future(5))
    ),
    "decoder_layer_norm_first": Case(
        lambda nn, t: nn.TransformerDecoderLayer(
            8, 2, 12, 0.0, nn.functional.silu, batch_first=True, norm_first=True
        ),
        (OTHER, SEQ, PADDING),
        lambda nn, m, x, y, p: m(x, y, memory_key_padding_mask=p),
    ),
    "decoder": Case(
        lambda nn, t: nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 12, 0.0), 2),
        (Normal((3, 2, 8)), Normal((4, 2, 8))),
    ),
    "transformer": Case(
        lambda nn, t: nn.Transformer(8, 2, 1, 1, 12, 0.0, batch_first=True),
        (OTHER, SEQ, future(5)),
        lambda nn, m, x, y, mask: m(x, y, tgt_mask=mask),
    ),
}

CONTAINER = {
    "sequential": Case(lambda nn, t: nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 2)), (ROW,)),
    "network": Case(
        lambda nn, t: nn.Sequential(
            nn.Conv2d(4, 4, 3, padding=1, bias=False),
            nn.BatchNorm2d(4),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(24, 3),
        ),
        (X2,),
    ),
    "module_dict": Case(
        lambda nn, t: nn.ModuleDict({"a": nn.Linear(5, 5), "b": nn.PReLU()}),
        (ROW,),
        lambda nn, m, x: m["b"](m["a"](x)),
    ),
    "parameter_dict": Case(
        lambda nn, t: nn.ParameterDict({"scale": t([2.0, 1.0, 0.5, 0.1, 3.0]), "shift": t([0.5])}),
        (ROW,),
        lambda nn, m, x: x * m["scale"] + m["shift"],
    ),
}

GROUPS: dict[str, dict[str, Case]] = {
    "linear": LINEAR,
    "convolution": CONVOLUTION,
    "pool": POOL,
    "norm": NORM,
    "activation": ACTIVATION,
    "shape": SHAPE,
    "loss": LOSS,
    "recurrent": RECURRENT,
    "attention": ATTENTION,
    "container": CONTAINER,
}
CASES = {name: case for group in GROUPS.values() for name, case in group.items()}
