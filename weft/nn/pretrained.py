"""``weft.nn.load_hf``: a model from a folder of Hugging Face's layout, with its weights."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import weft
from weft.base.device import DeviceLike
from weft.base.dtypes import DTypeLike
from weft.base.public import public
from weft.errors import DomainError, FileError
from weft.nn.architectures import GPT2, Bert, Llama, ViT
from weft.nn.module import Module

FILES = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)


class Layout(NamedTuple):
    """How the weights of an architecture are named.

    Attributes:
        make: the module, from a configuration and a head.
        prefix: of the names in models with a head.
        heads: endings of the names of architectures, and the head that each means.
        left_out: names of what is computed, or shared with another weight.
        turned: names of weights that are stored the other way round.
    """

    make: type[Any]
    prefix: str
    heads: Mapping[str, str]
    left_out: str = r"$^"
    turned: str = r"$^"


_CAUSAL = {"LMHeadModel": "tokens", "ForCausalLM": "tokens", "Model": ""}
LAYOUTS: dict[str, Layout] = {
    "gpt2": Layout(
        GPT2,
        "transformer.",
        _CAUSAL,
        r"\.attn\.(masked_)?bias$",
        r"\.(c_attn|c_proj|c_fc)\.weight$",
    ),
    "llama": Layout(Llama, "model.", _CAUSAL, r"rotary_emb\.inv_freq$"),
    "bert": Layout(
        Bert,
        "bert.",
        {"ForMaskedLM": "tokens", "ForSequenceClassification": "classes", "Model": ""},
        r"position_ids$|^cls\.predictions\.decoder\.|^cls\.seq_relationship\.",
    ),
    "vit": Layout(ViT, "vit.", {"ForImageClassification": "classes", "Model": ""}),
}


@public
def load_hf(
    folder: str | os.PathLike[str], *, dtype: DTypeLike | None = None, device: DeviceLike | None = None
) -> Module:
    """A model from a folder of Hugging Face's layout: ``config.json``, and weights in one or several files.

    GPT-2, Llama, BERT and ViT are known, with the heads for tokens and classes. Nothing in the folder is run
    and nothing is downloaded. The module is made of parts of ``weft.nn``: it trains, compiles, and exports.

    Args:
        folder: with ``config.json`` and ``model.safetensors`` or ``pytorch_model.bin``, or the index
            (``.index.json``) of several such files.
        dtype: of the parameters; by default that of the weights.
        device: where they go.

    >>> import json, pathlib, tempfile, weft
    >>> from weft.nn.architectures import GPT2
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> config = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": 10, "n_embd": 8}
    >>> config |= {"n_positions": 4, "n_head": 2, "n_layer": 0}
    >>> _ = (folder / "config.json").write_text(json.dumps(config))
    >>> weft.save(dict(GPT2(config, "tokens").state_dict()), folder / "model.safetensors")
    >>> weft.nn.load_hf(folder)(weft.tensor([[1, 2, 3]])).shape
    (1, 3, 10)
    """
    place = Path(folder)
    config = _config(place)
    kind = config.get("model_type")
    if kind not in LAYOUTS:
        raise DomainError("load_hf", f"model_type must be among {', '.join(LAYOUTS)}, got {kind!r}")
    layout = LAYOUTS[kind]
    weights = _weights(place)
    tied = bool(config.get("tie_word_embeddings", kind == "gpt2"))
    state = _named(weights, layout, tied)
    model: Module = layout.make(config, _head(config, layout))
    if "pooler.dense.weight" not in state and hasattr(model, "pooler"):
        del model.pooler  # of a model that was saved without it
    model.to(dtype or _dtype(state))
    if device is not None:
        model.to(device)
    model.load_state_dict(state)
    return model.eval()


def _config(place: Path) -> dict[str, Any]:
    path = place / "config.json"
    if not path.is_file():
        raise FileError("load_hf", f"the folder must have config.json, got {place.name!r} without one")
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise FileError("load_hf", f"config.json must be JSON: {error}") from None
    if not isinstance(found, dict):
        raise FileError("load_hf", f"config.json must hold an object, got {type(found).__name__}")
    return found


def _weights(place: Path) -> dict[str, Any]:
    for name in FILES:
        if (place / name).is_file():
            found: dict[str, Any] = weft.load(place / name)
            return found
    raise FileError("load_hf", f"the folder must have one of {', '.join(FILES)}, got none")


def _dtype(state: Mapping[str, Any]) -> DTypeLike:
    """The floating dtype that most weights have; some files keep a few in another."""
    counts = Counter(x.dtype for x in state.values() if weft.isdtype(x.dtype, "real floating"))
    return counts.most_common(1)[0][0] if counts else weft.get_default_dtype()


def _head(config: Mapping[str, Any], layout: Layout) -> str:
    """The head that the name of the architecture says; none without a name."""
    (name,) = config.get("architectures") or ["Model"]
    for ending, head in layout.heads.items():
        if name.endswith(ending):
            return head
    known = ", ".join(f"*{ending}" for ending in layout.heads)
    raise DomainError("load_hf", f"the architecture must be one of {known}, got {name!r}")


def _named(weights: Mapping[str, Any], layout: Layout, tied: bool) -> dict[str, Any]:
    """The weights as the module names them."""
    state = {}
    for name, x in weights.items():
        if re.search(layout.left_out, name) or (tied and name == "lm_head.weight"):
            continue
        own = name.removeprefix(layout.prefix).removeprefix("cls.")
        state[own] = x.mT if re.search(layout.turned, f".{name}") else x
    return state
