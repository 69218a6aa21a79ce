"""Models from folders of Hugging Face's layout, against forward passes written in NumPy from the papers."""

from __future__ import annotations

import json
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file
from scipy.special import erf, softmax

import weft
from tests.io import torch_files
from tests.io.torch_files import saved
from weft.errors import DomainError, FileError

W, H, V, INNER = 16, 4, 20, 24  # width, heads, vocabulary, inner width
RNG = np.random.default_rng(3)
IDS = RNG.integers(0, V, (2, 6))
Weights = dict[str, Any]


def drawn(**shapes: tuple[int, ...]) -> Weights:
    return {name: RNG.normal(0, 0.3, shape).astype(np.float32) for name, shape in shapes.items()}


def layers(names: dict[str, tuple[int, ...]], prefix: str, count: int = 2) -> Weights:
    return {f"{prefix}.{i}.{name}": x for i in range(count) for name, x in drawn(**names).items()}


def norm(x: Any, w: Weights, name: str, eps: float = 1e-12) -> Any:
    mean, spread = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) / np.sqrt(spread + eps) * w[f"{name}.weight"] + w[f"{name}.bias"]


def dense(x: Any, w: Weights, name: str) -> Any:
    return x @ w[f"{name}.weight"].T + w.get(f"{name}.bias", 0.0)


def gelu(x: Any) -> Any:
    return 0.5 * x * (1 + erf(x / np.sqrt(2)))


def attention(q: Any, k: Any, v: Any, causal: bool, mask: Any = None) -> Any:
    """One head after the other, position by position."""
    out, size = np.zeros_like(q), q.shape[-1] // H
    for head in range(H):
        part = slice(head * size, (head + 1) * size)
        scores = q[..., part] @ k[..., part].swapaxes(-1, -2) / np.sqrt(size)
        if causal:
            scores = np.where(np.tril(np.ones(scores.shape[-2:], bool)), scores, -np.inf)
        if mask is not None:
            scores = np.where(mask[:, None, :] != 0, scores, -np.inf)
        out[..., part] = softmax(scores, axis=-1) @ v[..., part]
    return out


# Each gives the configuration, the weights, the arguments of a call, and what it must give


def gpt2() -> tuple[Any, ...]:
    config: dict[str, Any] = {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "vocab_size": V,
        "n_embd": W,
    }
    config |= {"n_positions": 8, "n_head": H, "n_layer": 2}
    pair = {"weight": (W,), "bias": (W,)}
    names: dict[str, tuple[int, ...]] = {f"{n}.{k}": s for n in ("ln_1", "ln_2") for k, s in pair.items()}
    names |= {"attn.c_attn.weight": (W, 3 * W), "attn.c_attn.bias": (3 * W,)}
    names |= {"attn.c_proj.weight": (W, W), "attn.c_proj.bias": (W,), "mlp.c_proj.bias": (W,)}
    names |= {"mlp.c_fc.weight": (W, 4 * W), "mlp.c_fc.bias": (4 * W,), "mlp.c_proj.weight": (4 * W, W)}
    w = layers(names, "transformer.h") | drawn(**{f"transformer.ln_f.{k}": s for k, s in pair.items()})
    w |= drawn(**{"transformer.wte.weight": (V, W), "transformer.wpe.weight": (8, W)})
    x = w["transformer.wte.weight"][IDS] + w["transformer.wpe.weight"][: IDS.shape[1]]
    for i in range(2):
        at = f"transformer.h.{i}"
        y = norm(x, w, f"{at}.ln_1", 1e-5) @ w[f"{at}.attn.c_attn.weight"] + w[f"{at}.attn.c_attn.bias"]
        y = attention(*np.split(y, 3, axis=-1), causal=True)
        x = x + y @ w[f"{at}.attn.c_proj.weight"] + w[f"{at}.attn.c_proj.bias"]
        y = norm(x, w, f"{at}.ln_2", 1e-5) @ w[f"{at}.mlp.c_fc.weight"] + w[f"{at}.mlp.c_fc.bias"]
        y = 0.5 * y * (1 + np.tanh(np.sqrt(2 / np.pi) * (y + 0.044715 * y**3)))
        x = x + y @ w[f"{at}.mlp.c_proj.weight"] + w[f"{at}.mlp.c_proj.bias"]
    expected = norm(x, w, "transformer.ln_f", 1e-5) @ w["transformer.wte.weight"].T
    w["transformer.h.0.attn.bias"] = np.ones((1, 1, 8, 8), np.float32)  # of old files: a mask
    return config, w, (IDS,), expected


def llama() -> tuple[Any, ...]:
    size = W // H
    config: dict[str, Any] = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": V,
        "hidden_size": W,
    }
    config |= {"intermediate_size": INNER, "num_attention_heads": H, "num_key_value_heads": 2}
    config |= {"num_hidden_layers": 2, "rms_norm_eps": 1e-6, "rope_theta": 5000.0, "hidden_act": "silu"}
    names: dict[str, tuple[int, ...]] = {
        "input_layernorm.weight": (W,),
        "post_attention_layernorm.weight": (W,),
    }
    names |= {f"self_attn.{n}_proj.weight": (s, W) for n, s in (("q", W), ("k", W // 2), ("v", W // 2))}
    names |= {"self_attn.o_proj.weight": (W, W), "mlp.down_proj.weight": (W, INNER)}
    names |= {"mlp.gate_proj.weight": (INNER, W), "mlp.up_proj.weight": (INNER, W)}
    w = layers(names, "model.layers")
    w |= drawn(**{"model.embed_tokens.weight": (V, W), "model.norm.weight": (W,), "lm_head.weight": (V, W)})

    def rms(x: Any, name: str) -> Any:
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * w[f"{name}.weight"]

    def turned(x: Any, heads: int) -> Any:
        """Each pair of features as a complex number, turned by its angle."""
        parts = x.reshape(*x.shape[:2], heads, size)
        pairs = parts[..., : size // 2] + 1j * parts[..., size // 2 :]
        rates = 5000.0 ** (-np.arange(size // 2) / (size // 2))
        pairs = pairs * np.exp(1j * np.arange(x.shape[1])[:, None] * rates)[None, :, None]
        return np.concatenate([pairs.real, pairs.imag], axis=-1)

    x = w["model.embed_tokens.weight"][IDS]
    for i in range(2):
        at, y = f"model.layers.{i}", rms(x, f"model.layers.{i}.input_layernorm")
        q = turned(dense(y, w, f"{at}.self_attn.q_proj"), H)
        k = turned(dense(y, w, f"{at}.self_attn.k_proj"), 2)
        v = dense(y, w, f"{at}.self_attn.v_proj").reshape(*y.shape[:2], 2, size)
        k, v = (t[:, :, [0, 0, 1, 1]] for t in (k, v))  # two heads share one
        y = attention(*(t.reshape(*x.shape[:2], W) for t in (q, k, v)), causal=True)
        x = x + dense(y, w, f"{at}.self_attn.o_proj")
        y = rms(x, f"{at}.post_attention_layernorm")
        gate = dense(y, w, f"{at}.mlp.gate_proj")
        x = x + dense(gate / (1 + np.exp(-gate)) * dense(y, w, f"{at}.mlp.up_proj"), w, f"{at}.mlp.down_proj")
    return config, w, (IDS,), dense(rms(x, "model.norm"), w, "lm_head")


def bert() -> tuple[Any, ...]:
    config: dict[str, Any] = {
        "model_type": "bert",
        "architectures": ["BertModel"],
        "vocab_size": V,
        "hidden_size": W,
    }
    config |= {"intermediate_size": INNER, "num_attention_heads": H, "num_hidden_layers": 2}
    config |= {"max_position_embeddings": 8, "type_vocab_size": 2}
    square = [f"attention.self.{n}" for n in ("query", "key", "value")] + ["attention.output.dense"]
    names: dict[str, tuple[int, ...]] = {f"{n}.weight": (W, W) for n in square}
    names |= {f"{n}.bias": (W,) for n in (*square, "output.dense")}
    names |= {f"{n}.LayerNorm.{k}": (W,) for n in ("attention.output", "output") for k in ("weight", "bias")}
    names |= {"intermediate.dense.weight": (INNER, W), "intermediate.dense.bias": (INNER,)}
    names |= {"output.dense.weight": (W, INNER)}
    w = layers(names, "encoder.layer") | drawn(**{"pooler.dense.weight": (W, W), "pooler.dense.bias": (W,)})
    kinds = {"word": V, "position": 8, "token_type": 2}
    w |= drawn(**{f"embeddings.{k}_embeddings.weight": (n, W) for k, n in kinds.items()})
    w |= drawn(**{f"embeddings.LayerNorm.{k}": (W,) for k in ("weight", "bias")})
    mask = np.array([[1] * 6, [1, 1, 1, 1, 0, 0]])
    types = RNG.integers(0, 2, IDS.shape)
    x = w["embeddings.word_embeddings.weight"][IDS] + w["embeddings.token_type_embeddings.weight"][types]
    x = norm(x + w["embeddings.position_embeddings.weight"][:6], w, "embeddings.LayerNorm")
    for i in range(2):
        at = f"encoder.layer.{i}"
        q, k, v = (dense(x, w, f"{at}.attention.self.{n}") for n in ("query", "key", "value"))
        y = dense(attention(q, k, v, False, mask), w, f"{at}.attention.output.dense")
        x = norm(x + y, w, f"{at}.attention.output.LayerNorm")
        y = dense(gelu(dense(x, w, f"{at}.intermediate.dense")), w, f"{at}.output.dense")
        x = norm(x + y, w, f"{at}.output.LayerNorm")
    return config, w, (IDS, mask, types), x


def vit() -> tuple[Any, ...]:
    config: dict[str, Any] = {
        "model_type": "vit",
        "architectures": ["ViTForImageClassification"],
        "hidden_size": W,
    }
    config |= {"intermediate_size": INNER, "num_attention_heads": H, "num_hidden_layers": 2}
    config |= {
        "image_size": 8,
        "patch_size": 4,
        "num_channels": 3,
        "id2label": {"0": "a", "1": "b", "2": "c"},
    }
    square = [f"attention.attention.{n}" for n in ("query", "key", "value")] + ["attention.output.dense"]
    names: dict[str, tuple[int, ...]] = {f"{n}.weight": (W, W) for n in square}
    names |= {f"{n}.bias": (W,) for n in (*square, "output.dense")}
    names |= {f"layernorm_{n}.{k}": (W,) for n in ("before", "after") for k in ("weight", "bias")}
    names |= {"intermediate.dense.weight": (INNER, W), "intermediate.dense.bias": (INNER,)}
    names |= {"output.dense.weight": (W, INNER)}
    w = layers(names, "vit.encoder.layer")
    patches = "vit.embeddings.patch_embeddings.projection"
    w |= drawn(**{f"{patches}.weight": (W, 3, 4, 4), f"{patches}.bias": (W,)})
    w |= drawn(**{"vit.embeddings.cls_token": (1, 1, W), "vit.embeddings.position_embeddings": (1, 5, W)})
    w |= drawn(**{f"vit.layernorm.{k}": (W,) for k in ("weight", "bias")})
    w |= drawn(**{"classifier.weight": (3, W), "classifier.bias": (3,)})
    images = RNG.normal(size=(2, 3, 8, 8)).astype(np.float32)
    cut = [images[:, :, a : a + 4, b : b + 4].reshape(2, -1) for a in (0, 4) for b in (0, 4)]
    x = np.stack([c @ w[f"{patches}.weight"].reshape(W, -1).T + w[f"{patches}.bias"] for c in cut], axis=1)
    first = np.repeat(w["vit.embeddings.cls_token"], 2, axis=0)
    x = np.concatenate([first, x], axis=1) + w["vit.embeddings.position_embeddings"]
    for i in range(2):
        at = f"vit.encoder.layer.{i}"
        y = norm(x, w, f"{at}.layernorm_before")
        q, k, v = (dense(y, w, f"{at}.attention.attention.{n}") for n in ("query", "key", "value"))
        x = x + dense(attention(q, k, v, False), w, f"{at}.attention.output.dense")
        y = dense(norm(x, w, f"{at}.layernorm_after"), w, f"{at}.intermediate.dense")
        x = x + dense(gelu(y), w, f"{at}.output.dense")
    return config, w, (images,), dense(norm(x, w, "vit.layernorm")[:, 0], w, "classifier")


MODELS = {"gpt2": gpt2, "llama": llama, "bert": bert, "vit": vit}


def write(folder: Path, config: Any, weights: Weights, shards: int = 1) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    if shards == 1:
        save_file(weights, str(folder / "model.safetensors"))
        return folder
    names = sorted(weights)
    files = {name: f"model-{i % shards}.safetensors" for i, name in enumerate(names)}
    for file in set(files.values()):
        save_file({n: weights[n] for n in names if files[n] == file}, str(folder / file))
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": files}))
    return folder


@pytest.mark.rotating(2)
@pytest.mark.parametrize("name", MODELS)
def test_loaded_model_computes_what_the_paper_says(name: str, tmp_path: Path) -> None:
    config, weights, args, expected = MODELS[name]()
    model = weft.nn.load_hf(write(tmp_path, config, weights))
    given = [weft.asarray(x) for x in args]
    seen = args[1].astype(bool) if name == "bert" else ...
    for run in (model, weft.compile(model)):
        found = run(*given).detach().numpy()
        np.testing.assert_allclose(found[seen], expected[seen], rtol=2e-4, atol=2e-5)


def test_weights_in_several_files_are_those_of_one(tmp_path: Path) -> None:
    config, weights, (ids,), _ = llama()
    whole = weft.nn.load_hf(write(tmp_path / "one", config, weights))
    parts = weft.nn.load_hf(write(tmp_path / "three", config, weights, shards=3))
    x = weft.asarray(ids)
    assert (whole(x).detach().numpy() == parts(x).detach().numpy()).all()
    tied = {**config, "tie_word_embeddings": True}
    model = weft.nn.load_hf(write(tmp_path / "tied", tied, weights))
    assert not hasattr(model, "lm_head")


def write_bin(folder: Path, config: Any, weights: Weights, shards: int = 1) -> Path:
    """The weights as ``torch.save`` writes them."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    names = sorted(weights)
    files = {name: f"pytorch_model-{i % shards}.bin" for i, name in enumerate(names)}
    for file in set(files.values()):
        state = OrderedDict((n, saved(weights[n])) for n in names if files[n] == file)
        torch_files.write(folder / ("pytorch_model.bin" if shards == 1 else file), state)
    if shards > 1:
        (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": files}))
    return folder


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("name", ["gpt2", "bert"])
def test_weights_of_torch_save_are_read(name: str, shards: int, tmp_path: Path) -> None:
    config, weights, args, expected = MODELS[name]()
    model = weft.nn.load_hf(write_bin(tmp_path, config, weights, shards))
    found = model(*[weft.asarray(x) for x in args]).detach().numpy()
    seen = args[1].astype(bool) if name == "bert" else ...
    np.testing.assert_allclose(found[seen], expected[seen], rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("form", ["safetensors", "bin"])
def test_weights_in_bfloat16_are_read_as_they_are(form: str, tmp_path: Path) -> None:
    config, weights, (ids,), _ = llama()
    halves = {n: x.astype(weft.bfloat16) for n, x in weights.items()}
    halves["lm_head.weight"] = halves["lm_head.weight"].astype(np.float32)  # the first, and the only one so
    rounded = {n: x.astype(np.float32) for n, x in halves.items()}
    if form == "bin":
        folder = write_bin(tmp_path / "half", config, halves)
    else:
        folder = write(tmp_path / "half", config, rounded)
        weft.save({n: weft.asarray(x) for n, x in halves.items()}, folder / "model.safetensors")
    x = weft.asarray(ids)
    model = weft.nn.load_hf(folder)
    assert {p.dtype for p in model.parameters()} == {weft.bfloat16}
    single = weft.nn.load_hf(write(tmp_path / "single", config, rounded))
    expected = single(x).detach().numpy()
    wide = weft.nn.load_hf(folder, dtype=weft.float32)
    assert (wide(x).detach().numpy() == expected).all()
    found = model(x).detach()
    assert found.dtype == weft.bfloat16
    assert np.abs(found.astype(weft.float32).numpy() - expected).max() < 0.03 * np.abs(expected).max()


def test_dtype_is_that_of_the_weights_or_the_one_asked_for(tmp_path: Path) -> None:
    config, weights, (ids,), expected = llama()
    double = weft.nn.load_hf(write(tmp_path, config, weights), dtype=weft.float64)
    assert next(double.parameters()).dtype == weft.float64
    found = double(weft.asarray(ids)).detach().numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_loaded_model_trains(tmp_path: Path) -> None:
    config, weights, (ids,), _ = gpt2()
    model = weft.nn.load_hf(write(tmp_path, config, weights))
    optimizer = weft.optim.SGD(model.parameters(), lr=0.1)
    x, losses = weft.asarray(ids), []
    for _ in range(4):
        optimizer.zero_grad()
        loss = weft.cross_entropy(model(x[:, :-1]).reshape(-1, V), x[:, 1:].reshape(-1))
        loss.backward()
        optimizer.step()
        losses.append(float(loss))
    assert losses == sorted(losses, reverse=True)


def test_folders_that_are_no_models_are_told(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"the folder must have config\.json"):
        weft.nn.load_hf(tmp_path)
    config, weights, _, _ = llama()
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(FileError, match=r"config\.json must be JSON"):
        weft.nn.load_hf(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(FileError, match=r"must have one of model\.safetensors"):
        weft.nn.load_hf(tmp_path)
    with pytest.raises(DomainError, match="model_type must be among gpt2, llama, bert, vit, got 't5'"):
        weft.nn.load_hf(write(tmp_path, {**config, "model_type": "t5"}, weights))
    other = {**config, "architectures": ["LlamaForQuestionAnswering"]}
    with pytest.raises(DomainError, match=r"must be one of \*LMHeadModel"):
        weft.nn.load_hf(write(tmp_path, other, weights))
    short = {n: x for n, x in weights.items() if n != "model.norm.weight"}
    with pytest.raises(weft.errors.WeftError, match=r"norm\.weight"):
        weft.nn.load_hf(write(tmp_path, config, short))
