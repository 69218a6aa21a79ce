"""Calls whose results ``network.npz`` holds: which function, on what inputs, with which settings.

Inputs are described, not stored twice: ``make_network.py`` draws them, calls the function of the same name
of another library, and stores inputs, outputs and gradients.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Case:
    """One call.

    Attributes:
        name: of the function.
        shapes: of the inputs, with a letter that says what they are: "n" normal, "p" in 0..1, "s" a sign,
            "c<k>" class numbers below k, "b" truth values.
        settings: keyword arguments.
    """

    name: str
    shapes: tuple[tuple[str, tuple[int, ...]], ...]
    settings: dict[str, Any] = field(default_factory=dict)


def _normal(*shapes: tuple[int, ...]) -> tuple[tuple[str, tuple[int, ...]], ...]:
    return tuple(("n", s) for s in shapes)


IMAGE = (2, 4, 5, 6)
ACTIVATIONS = (
    "relu", "relu6", "leaky_relu", "elu", "selu", "gelu", "silu", "mish", "hardsigmoid", "hardswish",
    "softplus", "softsign", "logsigmoid", "hardtanh", "softshrink", "hardshrink", "tanhshrink", "sigmoid",
    "tanh",
)  # fmt: skip
CASES: list[Case] = [
    Case("conv1d", _normal((2, 4, 7), (6, 2, 3), (6,)), {"stride": 2, "padding": 1, "groups": 2}),
    Case(
        "conv2d",
        _normal(IMAGE, (6, 4, 3, 2), (6,)),
        {"stride": (2, 1), "padding": (1, 0), "dilation": (1, 2)},
    ),
    Case("conv2d", _normal(IMAGE, (4, 1, 3, 3)), {"padding": "same", "groups": 4}),
    Case("conv3d", _normal((1, 2, 4, 3, 5), (3, 2, 2, 2, 3)), {"padding": 1}),
    Case("conv_transpose1d", _normal((2, 4, 5), (4, 3, 3), (6,)), {"stride": 2, "padding": 1, "groups": 2}),
    Case(
        "conv_transpose2d",
        _normal(IMAGE, (4, 3, 3, 2)),
        {"stride": (2, 3), "padding": 1, "output_padding": (1, 2), "dilation": (2, 1)},
    ),
    Case("conv_transpose3d", _normal((1, 2, 2, 3, 2), (2, 3, 2, 2, 2)), {"stride": 2}),
    Case("linear", _normal((2, 3, 4), (5, 4), (5,))),
    Case("bilinear", _normal((3, 4), (3, 5), (2, 4, 5), (2,))),
    Case("max_pool2d", _normal(IMAGE), {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True}),
    Case("max_pool1d", _normal((2, 3, 8)), {"kernel_size": 2, "dilation": 3, "stride": 1}),
    Case("avg_pool2d", _normal(IMAGE), {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True}),
    Case(
        "avg_pool2d", _normal(IMAGE), {"kernel_size": (2, 3), "padding": (1, 0), "count_include_pad": False}
    ),
    Case("adaptive_avg_pool2d", _normal(IMAGE), {"output_size": (3, 4)}),
    Case("adaptive_max_pool2d", _normal(IMAGE), {"output_size": (3, 4)}),
    Case("unfold", _normal(IMAGE), {"kernel_size": (2, 3), "dilation": 2, "padding": 1}),
    Case("fold", _normal((2, 12, 12)), {"output_size": (4, 5), "kernel_size": (2, 2)}),
    *(Case(name, _normal((3, 5))) for name in ACTIVATIONS),
    Case("gelu", _normal((3, 5)), {"approximate": "tanh"}),
    Case("celu", _normal((3, 5)), {"alpha": 0.5}),
    Case("softplus", _normal((3, 5)), {"beta": 2.0, "threshold": 0.5}),
    Case("prelu", _normal((2, 3, 4), (3,))),
    Case("glu", _normal((3, 6)), {"axis": 1}),
    *(Case(name, _normal((3, 5)), {"axis": 0}) for name in ("softmax", "log_softmax", "softmin")),
    Case("layer_norm", _normal((2, 3, 4)), {"normalized_shape": (3, 4)}),
    Case("rms_norm", _normal((2, 3, 4)), {"normalized_shape": (4,), "eps": 1e-3}),
    Case("group_norm", _normal((2, 4, 3)), {"num_groups": 2}),
    Case("normalize", _normal((3, 5)), {"p": 3.0, "axis": 1}),
    Case("local_response_norm", _normal((2, 5, 3)), {"size": 3, "alpha": 0.5}),
    Case("scaled_dot_product_attention", _normal((2, 3, 4), (2, 5, 4), (2, 5, 3))),
    Case("scaled_dot_product_attention", _normal((2, 3, 4), (2, 5, 4), (2, 5, 3)), {"is_causal": True}),
    Case("scaled_dot_product_attention", (*_normal((2, 3, 4), (2, 5, 4), (2, 5, 3)), ("b", (2, 3, 5)))),
    *(
        Case(name, _normal((3, 4), (3, 4)), {"reduction": reduction})
        for name in ("mse_loss", "l1_loss", "huber_loss", "smooth_l1_loss", "poisson_nll_loss")
        for reduction in ("none", "mean")
    ),
    Case("cross_entropy", (("n", (4, 3)), ("c3", (4,))), {"label_smoothing": 0.1}),
    Case("cross_entropy", (("n", (2, 3, 4)), ("c3", (2, 4))), {"ignore_index": 1, "label_smoothing": 0.2}),
    Case("cross_entropy", (("n", (4, 3)), ("p", (4, 3)), ("p", (3,))), {"label_smoothing": 0.1}),
    Case("cross_entropy", (("n", (4, 3)), ("c3", (4,)), ("p", (3,))), {"reduction": "sum"}),
    Case("nll_loss", (("n", (4, 3)), ("c3", (4,)), ("p", (3,)))),
    Case("binary_cross_entropy", (("p", (3, 4)), ("p", (3, 4)))),
    Case("binary_cross_entropy_with_logits", (("n", (3, 4)), ("p", (3, 4)))),
    Case("kl_div", (("n", (3, 4)), ("p", (3, 4))), {"reduction": "batchmean"}),
    Case("kl_div", _normal((3, 4), (3, 4)), {"log_target": True}),
    Case("gaussian_nll_loss", (*_normal((3, 4), (3, 4)), ("p", (3, 4))), {"full": True}),
    Case("cosine_similarity", _normal((3, 4), (3, 4))),
    Case("cosine_embedding_loss", (*_normal((3, 4), (3, 4)), ("s", (3,))), {"margin": -0.5}),
    Case("triplet_margin_loss", _normal((3, 4), (3, 4), (3, 4)), {"swap": True}),
    Case("margin_ranking_loss", (*_normal((5,), (5,)), ("s", (5,))), {"margin": 0.5}),
    Case("hinge_embedding_loss", (("n", (5,)), ("s", (5,)))),
    Case("soft_margin_loss", (("n", (5,)), ("s", (5,)))),
    Case("multi_margin_loss", (("n", (4, 3)), ("c3", (4,)))),
    Case("multilabel_soft_margin_loss", (("n", (4, 3)), ("p", (4, 3)))),
    Case("interpolate", _normal(IMAGE), {"size": (8, 3)}),
    Case("interpolate", _normal(IMAGE), {"size": (8, 3), "mode": "nearest-exact"}),
    Case("interpolate", _normal(IMAGE), {"scale_factor": (1.6, 0.7), "mode": "bilinear"}),
    Case("interpolate", _normal(IMAGE), {"size": (8, 3), "mode": "bilinear", "align_corners": True}),
    Case("interpolate", _normal(IMAGE), {"size": (8, 3), "mode": "bicubic"}),
    Case("interpolate", _normal(IMAGE), {"size": (3, 4), "mode": "bicubic", "antialias": True}),
    Case("interpolate", _normal(IMAGE), {"size": (3, 4), "mode": "bilinear", "antialias": True}),
    Case("interpolate", _normal(IMAGE), {"size": (3, 4), "mode": "area"}),
    Case("grid_sample", _normal(IMAGE, (2, 3, 2, 2)), {"padding_mode": "reflection", "align_corners": False}),
    Case("grid_sample", _normal(IMAGE, (2, 3, 2, 2)), {"mode": "bicubic", "align_corners": True}),
    Case("pixel_shuffle", _normal(IMAGE), {"upscale_factor": 2}),
]
