"""Written by ``python -m tests.stubs --write``."""

# ruff: noqa
# fmt: off
from weft.nn import functional as functional, init as init, utils as utils
from weft.nn.activation import (
    CELU as CELU, ELU as ELU, GELU as GELU, Hardshrink as Hardshrink, Hardsigmoid as Hardsigmoid,
    Hardswish as Hardswish, Hardtanh as Hardtanh, LeakyReLU as LeakyReLU, LogSigmoid as LogSigmoid,
    Mish as Mish, PReLU as PReLU, RReLU as RReLU, ReLU as ReLU, ReLU6 as ReLU6, SELU as SELU, SiLU as SiLU,
    Sigmoid as Sigmoid, Softplus as Softplus, Softshrink as Softshrink, Softsign as Softsign, Tanh as Tanh,
    Tanhshrink as Tanhshrink, Threshold as Threshold,
)
from weft.nn.attention import MultiheadAttention as MultiheadAttention
from weft.nn.batch_norm import (
    BatchNorm1d as BatchNorm1d, BatchNorm2d as BatchNorm2d, BatchNorm3d as BatchNorm3d,
    InstanceNorm1d as InstanceNorm1d, InstanceNorm2d as InstanceNorm2d, InstanceNorm3d as InstanceNorm3d,
)
from weft.nn.cache import KeyValueCache as KeyValueCache
from weft.nn.containers import ModuleDict as ModuleDict, ModuleList as ModuleList, Sequential as Sequential
from weft.nn.conv import (
    Conv1d as Conv1d, Conv2d as Conv2d, Conv3d as Conv3d, ConvTranspose1d as ConvTranspose1d,
    ConvTranspose2d as ConvTranspose2d, ConvTranspose3d as ConvTranspose3d,
)
from weft.nn.distance import CosineSimilarity as CosineSimilarity, PairwiseDistance as PairwiseDistance
from weft.nn.dropout import (
    AlphaDropout as AlphaDropout, Dropout as Dropout, Dropout1d as Dropout1d, Dropout2d as Dropout2d,
    Dropout3d as Dropout3d, FeatureAlphaDropout as FeatureAlphaDropout,
)
from weft.nn.embedding import Embedding as Embedding, EmbeddingBag as EmbeddingBag
from weft.nn.lazy import (
    LazyBatchNorm1d as LazyBatchNorm1d, LazyBatchNorm2d as LazyBatchNorm2d,
    LazyBatchNorm3d as LazyBatchNorm3d, LazyConv1d as LazyConv1d, LazyConv2d as LazyConv2d,
    LazyConv3d as LazyConv3d, LazyConvTranspose1d as LazyConvTranspose1d,
    LazyConvTranspose2d as LazyConvTranspose2d, LazyConvTranspose3d as LazyConvTranspose3d,
    LazyLinear as LazyLinear,
)
from weft.nn.linear import Bilinear as Bilinear, Identity as Identity, Linear as Linear
from weft.nn.loss import (
    BCELoss as BCELoss, BCEWithLogitsLoss as BCEWithLogitsLoss, CTCLoss as CTCLoss,
    CrossEntropyLoss as CrossEntropyLoss, GaussianNLLLoss as GaussianNLLLoss, HuberLoss as HuberLoss,
    KLDivLoss as KLDivLoss, L1Loss as L1Loss, MSELoss as MSELoss, NLLLoss as NLLLoss,
    PoissonNLLLoss as PoissonNLLLoss, SmoothL1Loss as SmoothL1Loss,
)
from weft.nn.loss_margin import (
    CosineEmbeddingLoss as CosineEmbeddingLoss, HingeEmbeddingLoss as HingeEmbeddingLoss,
    MarginRankingLoss as MarginRankingLoss, MultiLabelMarginLoss as MultiLabelMarginLoss,
    MultiLabelSoftMarginLoss as MultiLabelSoftMarginLoss, MultiMarginLoss as MultiMarginLoss,
    SoftMarginLoss as SoftMarginLoss, TripletMarginLoss as TripletMarginLoss,
    TripletMarginWithDistanceLoss as TripletMarginWithDistanceLoss,
)
from weft.nn.module import Module as Module
from weft.nn.norm import (
    GroupNorm as GroupNorm, LayerNorm as LayerNorm, LocalResponseNorm as LocalResponseNorm, RMSNorm as RMSNorm,
)
from weft.nn.padding import (
    CircularPad1d as CircularPad1d, CircularPad2d as CircularPad2d, CircularPad3d as CircularPad3d,
    ConstantPad1d as ConstantPad1d, ConstantPad2d as ConstantPad2d, ConstantPad3d as ConstantPad3d,
    ReflectionPad1d as ReflectionPad1d, ReflectionPad2d as ReflectionPad2d,
    ReflectionPad3d as ReflectionPad3d, ReplicationPad1d as ReplicationPad1d,
    ReplicationPad2d as ReplicationPad2d, ReplicationPad3d as ReplicationPad3d, ZeroPad1d as ZeroPad1d,
    ZeroPad2d as ZeroPad2d, ZeroPad3d as ZeroPad3d,
)
from weft.nn.parameter import Parameter as Parameter
from weft.nn.parameter_containers import ParameterDict as ParameterDict, ParameterList as ParameterList
from weft.nn.pool import (
    AdaptiveAvgPool1d as AdaptiveAvgPool1d, AdaptiveAvgPool2d as AdaptiveAvgPool2d,
    AdaptiveAvgPool3d as AdaptiveAvgPool3d, AdaptiveMaxPool1d as AdaptiveMaxPool1d,
    AdaptiveMaxPool2d as AdaptiveMaxPool2d, AdaptiveMaxPool3d as AdaptiveMaxPool3d, AvgPool1d as AvgPool1d,
    AvgPool2d as AvgPool2d, AvgPool3d as AvgPool3d, LPPool1d as LPPool1d, LPPool2d as LPPool2d,
    LPPool3d as LPPool3d, MaxPool1d as MaxPool1d, MaxPool2d as MaxPool2d, MaxPool3d as MaxPool3d,
    MaxUnpool1d as MaxUnpool1d, MaxUnpool2d as MaxUnpool2d, MaxUnpool3d as MaxUnpool3d,
)
from weft.nn.pretrained import load_hf as load_hf
from weft.nn.recurrent import GRU as GRU, LSTM as LSTM, RNN as RNN
from weft.nn.recurrent_cells import GRUCell as GRUCell, LSTMCell as LSTMCell, RNNCell as RNNCell
from weft.nn.shape import (
    ChannelShuffle as ChannelShuffle, Flatten as Flatten, Fold as Fold, PixelShuffle as PixelShuffle,
    PixelUnshuffle as PixelUnshuffle, Unflatten as Unflatten, Unfold as Unfold, Upsample as Upsample,
    UpsamplingBilinear2d as UpsamplingBilinear2d, UpsamplingNearest2d as UpsamplingNearest2d,
)
from weft.nn.softmax import (
    GLU as GLU, LogSoftmax as LogSoftmax, Softmax as Softmax, Softmax2d as Softmax2d, Softmin as Softmin,
)
from weft.nn.transformer import (
    Transformer as Transformer, TransformerDecoder as TransformerDecoder,
    TransformerDecoderLayer as TransformerDecoderLayer, TransformerEncoder as TransformerEncoder,
    TransformerEncoderLayer as TransformerEncoderLayer,
)
