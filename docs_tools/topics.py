"""Which page of the reference a name of weft stands on: by the module that defines it."""

from __future__ import annotations

from typing import NamedTuple


class Topic(NamedTuple):
    """A page about names of weft.

    Attributes:
        file: of the page, without an ending.
        title: of the page.
        homes: modules that define its names, as ``weft/base/names.py`` has them; a final dot takes all below.
    """

    file: str
    title: str
    homes: str


TOPICS = (
    Topic(
        "tensors",
        "Tensors, dtypes, devices",
        "weft.tensor.tensor weft.tensor.creation weft.tensor.ranges weft.tensor.asked weft.tensor.tapers "
        "weft.tensor.sparse weft.tensor.ragged weft.tensor.interop weft.tensor.printing "
        "weft.tensor.namespace weft.tensor.casts weft.base.dtypes weft.base.device",
    ),
    Topic(
        "elementwise",
        "Functions of elements",
        "weft.tensor.functions weft.ops.arithmetic weft.ops.compound weft.ops.complex weft.ops.gamma "
        "weft.ops.select weft.tensor.measures",
    ),
    Topic(
        "reductions",
        "Sums, statistics, sorting",
        "weft.ops.reduce weft.ops.statistics weft.ops.scan weft.ops.counting weft.ops.sort "
        "weft.tensor.array_numbers",
    ),
    Topic("shapes", "Shapes, views, joining", "weft.ops.view. weft.tensor.arrays"),
    Topic(
        "indexing",
        "Indexing and scattering",
        "weft.ops.index_axis weft.ops.scattering weft.tensor.dynamic weft.tensor.changes",
    ),
    Topic(
        "products",
        "Products, matrices, spectra",
        "weft.ops.contract weft.ops.products weft.ops.einsum weft.ops.combined "
        "weft.ops.spectrogram weft.linalg",
    ),
    Topic("random-tensors", "Random tensors and generators", "weft.tensor.sampling weft.tensor.generator"),
    Topic(
        "gradients",
        "Gradients and transforms",
        "weft.tensor.mode weft.tensor.autograd weft.tensor.anomaly weft.tensor.checkpoint "
        "weft.tensor.function weft.tensor.custom weft.ops.op weft.transform.jacobian "
        "weft.transform.jvp weft.transform.reverse weft.transform.vmap weft.base.trees",
    ),
    Topic("control-flow", "Control flow", "weft.transform.control."),
    Topic(
        "graphs",
        "Graphs and compilation",
        "weft.compile weft.capture. weft.ir. weft.passes.check weft.library.export",
    ),
    Topic("files", "Files", "weft.io."),
    Topic("seeing", "Pictures and profiles", "weft.viewer. weft.profiler."),
    Topic("training", "Training", "weft.train.trainer weft.tensor.autocast"),
    Topic(
        "settings",
        "Settings",
        "weft.backends.cuda.precision weft.base.threads weft.base.tracebacks weft.tensor.large weft.versions",
    ),
)
NETWORK_TOPIC = Topic("network", "Layers as functions", "")
OTHER_TOPIC = Topic("other-names", "Other names", "")  # of modules that nobody has entered here yet


def topic_of(home: str) -> Topic:
    """The topic of a name that a module defines.

    >>> topic_of("weft.ops.view.axes").title
    'Shapes, views, joining'
    """
    for topic in TOPICS:
        for own in topic.homes.split():
            if home == own or (own.endswith(".") and home.startswith(own)):
                return topic
    return OTHER_TOPIC
