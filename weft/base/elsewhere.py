"""What names of other libraries are called here: hints for attributes that weft's modules do not have.

Read only where an attribute was not found, and for tensors at import: a class has its hints as attributes.
"""

from __future__ import annotations

from collections.abc import Iterable

WEFT: dict[str, str] = {
    # PyTorch
    "amp": "use weft.autocast and weft.optim.GradScaler",
    "ao": "weights and products in float16 or bfloat16: weft.autocast",
    "compiler": "use weft.compile",
    "cpu": 'use the device "cpu"',
    "cudnn": "weft[cudnn] is used by itself where it is installed",
    "distributed": "use weft.parallel: meshes, collectives, and weft launch",
    "export": "use weft.jit.script or weft.jit.trace, then f.save(path); weft.onnx.export for ONNX",
    "from_file": "use weft.load, or np.memmap and weft.asarray",
    "func": "use weft.grad, weft.vmap, weft.jvp, weft.jacobian and their kin",
    "futures": "use concurrent.futures of Python",
    "fx": "use weft.make_graph(f)(*examples), graph.rewrite and weft.passes",
    "gcd": "use math.gcd of Python, or np.gcd",
    "hub": "use weft.load of a file, and model.load_state_dict",
    "is_autocast_enabled": "autocast is a block: with weft.autocast(...)",
    "manual_seed_all": "use weft.manual_seed, which seeds every device",
    "mps": "devices are the cpu and those of weft.cuda",
    "multiprocessing": "use weft.parallel and weft launch; data.DataLoader(num_workers=n) for data",
    "nested": "use weft.ragged",
    "nested_tensor": "use weft.ragged",
    "package": "use f.save(path) of a compiled function, and weft.load_graph",
    "profiler": "use weft.profile()",
    "quantization": "weights and products in float16 or bfloat16: weft.autocast",
    "quantize_per_tensor": "there are no quantised dtypes; use float16 or bfloat16",
    "set_default_device": "use weft.default_device(device)",
    "set_default_tensor_type": "use weft.set_default_dtype(dtype)",
    "set_deterministic": "programs give the same bits in each run by themselves",
    "set_float32_matmul_precision": "use weft.set_matmul_precision",
    "set_flush_denormal": "there is no such setting",
    "set_grad_mode": "use weft.set_grad_enabled",
    "sparse": "use weft.sparse_coo_tensor and weft.to_sparse",
    "use_deterministic_algorithms": "programs give the same bits in each run by themselves",
    "utils": "use weft.data for loaders, weft.nn.utils for gradients, weft.checkpoint for checkpointing",
    "Variable": "every tensor can require grad: weft.tensor(x, requires_grad=True)",
    "xpu": "devices are the cpu and those of weft.cuda",
    # JAX
    "block_until_ready": "results are there when a call returns",
    "checkpoint_policies": "use weft.checkpoint(f, *args)",
    "custom_jvp": "use weft.Function with forward and backward, or weft.custom_op",
    "custom_vjp": "use weft.Function with forward and backward, or weft.custom_op",
    "debug": "use print, breakpoint and weft.detect_anomaly",
    "device_get": "use x.numpy()",
    "device_put": "use x.to(device)",
    "devices": "use weft.cuda.device_count() and weft.__array_namespace_info__().devices()",
    "eval_shape": "use weft.make_graph(f)(*examples), whose outputs have types",
    "flax": "use weft.nn",
    "haiku": "use weft.nn",
    "hk": "use weft.nn",
    "lax": "use weft.cond, weft.scan, weft.while_loop, weft.fori_loop: they are names of weft",
    "local_device_count": "use weft.cuda.device_count()",
    "make_jaxpr": "use weft.make_graph(f)(*examples), and print it",
    "numpy": "the names of jax.numpy are names of weft itself; x.numpy() gives an array",
    "optax": "use weft.optim",
    "pmap": "use weft.compile(step, mesh=weft.parallel.mesh(...))",
    "pure_callback": "use weft.custom_op",
    "pytree": "use weft.tree_map, weft.tree_flatten and weft.register_tree",
    "remat": "use weft.checkpoint(f, *args)",
    "shard_map": "use weft.parallel.shard and weft.compile(step, mesh=...)",
    "ShapeDtypeStruct": "use weft.TensorType(shape, dtype)",
    "tree": "use weft.tree_map, weft.tree_flatten, weft.tree_leaves",
    "tree_util": "use weft.tree_map, weft.tree_flatten, weft.tree_leaves",
    # NumPy
    "apply_along_axis": "use weft.vmap",
    "array_equal": "use x.equal(y)",
    "array_split": "use weft.tensor_split",
    "ascontiguousarray": "use x.contiguous()",
    "asnumpy": "use x.numpy()",
    "average": "use weft.mean, or (x * w).sum() / w.sum()",
    "bool8": "use weft.bool",
    "convolve": "use weft.conv1d",
    "copyto": "use x.copy_(y)",
    "delete": "use a mask or an index: x[keep]",
    "errstate": "weft raises no floating point warnings; weft.detect_anomaly finds NaN",
    "float_": "use weft.float64",
    "frombuffer": "use weft.asarray(np.frombuffer(...))",
    "fromfunction": "use weft.meshgrid, or weft.vmap",
    "fromiter": "use weft.tensor(list(...))",
    "gradient": "use weft.diff for differences; weft.grad differentiates functions",
    "indices": "use weft.meshgrid(..., indexing='ij')",
    "insert": "use weft.concat of slices",
    "int_": "use weft.int64",
    "interp": "use weft.searchsorted and weft.lerp",
    "ix_": "use x[i[:, None], j]",
    "loadtxt": "use weft.data.from_csv, or np.loadtxt and weft.asarray",
    "matrix": "use weft.tensor",
    "ndim": "use x.ndim",
    "percentile": "use weft.quantile(x, q / 100)",
    "piecewise": "use weft.where",
    "place": "use weft.where or x[mask] = values",
    "poly1d": "use weft.tensor and Horner's rule",
    "resize": "use weft.reshape, or weft.tile",
    "savetxt": "use np.savetxt(path, x.numpy())",
    "savez": "use weft.save(dict, path)",
    "setdiff1d": "use x[~weft.isin(x, y)]",
    "shape": "use x.shape",
    "size": "use x.size",
    "sometrue": "use weft.any",
    "trim_zeros": "use weft.nonzero and a slice",
    "vectorize": "use weft.vmap",
    # TensorFlow and Keras
    "Model": "use weft.nn.Module, and weft.Trainer to fit",
    "Sequential": "use weft.nn.Sequential",
    "constant": "use weft.tensor",
    "convert_to_tensor": "use weft.asarray",
    "function": "use weft.compile",
    "GradientTape": "tensors record by themselves: loss.backward(), or weft.grad(f)",
    "identity": "use x.clone(), or weft.eye",
    "keras": "use weft.nn for layers, weft.optim, and weft.Trainer to fit",
    "layers": "use weft.nn",
    "losses": "use weft.nn.CrossEntropyLoss and its kin, or the functions weft.cross_entropy, weft.mse_loss",
    "metrics": "use callbacks of weft.Trainer, see docs/training.md",
    "models": "use weft.nn.Module, and weft.load for files",
    "optimizers": "use weft.optim",
    "range": "use weft.arange",
    "rank": "use x.ndim",
    "reduce_max": "use weft.max",
    "reduce_mean": "use weft.mean",
    "reduce_min": "use weft.min",
    "reduce_prod": "use weft.prod",
    "reduce_sum": "use weft.sum",
    "to_categorical": "use weft.one_hot",
    "float_power": "use weft.pow of x.double()",
    "cast": "use x.astype(dtype)",
    "assign_add": "use x.add_(y)",
    "zeros_initializer": "use weft.nn.init",
}

TENSOR: dict[str, str] = {
    "assign": "use x.copy_(y)",
    "assign_add": "use x.add_(y)",
    "byte": "use x.to(weft.uint8)",
    "char": "use x.to(weft.int8)",
    "cfloat": "use x.to(weft.complex64)",
    "block_until_ready": "results are there when a call returns",
    "to_sparse_csr": "use x.to_sparse(), which has .indices and .values",
    "coalesce": "only sparse tensors have it: weft.to_sparse(x)",
    "data_ptr": "use x.numpy().ctypes.data, or x.__dlpack__()",
    "expand_dims": "use x.unsqueeze(axis), or weft.expand_dims(x, axis)",
    "get_shape": "use x.shape",
    "is_pinned": "memory is pinned by itself where copies need it",
    "is_sparse": "ask isinstance(x, weft.SparseTensor)",
    "lu": "use weft.linalg.lu(x)",
    "permute_": "the shape of a tensor does not change in place; use x = x.permute(...)",
    "pin_memory": "memory is pinned by itself where copies need it: loader.to('cuda')",
    "qr": "use weft.linalg.qr(x)",
    "resize_": "the shape of a tensor does not change in place; use x = x.reshape(...)",
    "set_": "use x.data = y",
    "share_memory_": "processes of weft.parallel and data.Loader share arrays by themselves",
    "squeeze_": "the shape of a tensor does not change in place; use x = x.squeeze(...)",
    "storage": "use x.numpy(), which shows the memory",
    "symeig": "use weft.linalg.eigh(x)",
    "t_": "the shape of a tensor does not change in place; use x = x.t()",
    "to_numpy": "use x.numpy()",
    "transpose_": "the shape of a tensor does not change in place; use x = x.transpose(...)",
    "tobytes": "use x.numpy().tobytes()",
    "unsqueeze_": "the shape of a tensor does not change in place; use x = x.unsqueeze(...)",
    "untyped_storage": "use x.numpy(), which shows the memory",
    "value": "use x itself, or x.item()",
}

NN: dict[str, str] = {
    "Activation": "use nn.ReLU, nn.Tanh, nn.GELU and their kin",
    "BatchNormalization": "use nn.BatchNorm1d, nn.BatchNorm2d or nn.BatchNorm3d",
    "BatchNorm": "use nn.BatchNorm1d, nn.BatchNorm2d or nn.BatchNorm3d",
    "Buffer": "use self.register_buffer(name, tensor)",
    "Concatenate": "use weft.cat",
    "Conv": "use nn.Conv1d, nn.Conv2d or nn.Conv3d; channels come before sizes",
    "Conv2D": "use nn.Conv2d; channels come before sizes",
    "DataParallel": "use weft.parallel: weft.compile(step, mesh=weft.parallel.mesh(data=n))",
    "Dense": "use nn.Linear(in_features, out_features), or nn.LazyLinear(out_features)",
    "DistributedDataParallel": "use weft.parallel: weft.compile(step, mesh=weft.parallel.mesh(data=n))",
    "GlobalAveragePooling2D": "use nn.AdaptiveAvgPool2d(1) and nn.Flatten()",
    "Input": "shapes come from the data; nn.LazyLinear learns its size from the first input",
    "InputLayer": "shapes come from the data; nn.LazyLinear learns its size from the first input",
    "LayerNormalization": "use nn.LayerNorm",
    "MaxPooling2D": "use nn.MaxPool2d",
    "MaxPool2D": "use nn.MaxPool2d",
    "MultiHeadAttention": "use nn.MultiheadAttention",
    "MultiHeadDotProductAttention": "use nn.MultiheadAttention",
    "NLLLoss2d": "use nn.NLLLoss",
    "ParameterTuple": "use nn.ParameterList",
    "Remat": "use weft.checkpoint(f, *args)",
    "Reshape": "use nn.Unflatten or x.reshape",
    "SyncBatchNorm": "use nn.BatchNorm2d: with weft.compile(mesh=...) statistics are of the whole batch",
    "SpectralNorm": "divide a weight by weft.linalg.matrix_norm(weight, ord=2)",
    "UninitializedParameter": "use nn.LazyLinear and its kin",
    "compact": "define layers in __init__ of an nn.Module",
    "cross_entropy": "use nn.functional.cross_entropy",
    "leaky_relu": "use nn.functional.leaky_relu",
    "log_softmax": "use nn.functional.log_softmax",
    "modules": "layers are names of weft.nn itself",
    "parallel": "use weft.parallel",
    "quantized": "there are no quantised layers; use float16 or bfloat16",
    "relu": "use nn.functional.relu, or nn.ReLU()",
    "tanh": "use weft.tanh, or nn.Tanh()",
}

OPTIM: dict[str, str] = {
    "ASGD": "use optim.SGD, and optim.EMA for averages of parameters",
    "FTRL": "use optim.Adagrad",
    "Ftrl": "use optim.Adagrad",
    "LAMB": "use optim.AdamW",
    "Rprop": "use optim.RMSprop",
    "SparseAdam": "use optim.Adam",
    "apply_updates": "optimizers change parameters themselves: optimizer.step()",
    "chain": "use weft.optim.clip_grad_norm_ before optimizer.step()",
    "clip_by_global_norm": "use weft.optim.clip_grad_norm_(parameters, max_norm)",
    "schedules": "use optim.lr_scheduler",
    "swa_utils": "use optim.EMA",
}

DATA: dict[str, str] = {
    "BatchSampler": "use data.DataLoader(batch_size=n), or pipeline.batch(n)",
    "distributed": "use pipeline.shard(mesh)",
    "DistributedSampler": "use pipeline.shard(mesh)",
    "from_list": "use data.from_dataset",
    "from_tensor_slices": "use data.from_arrays",
    "get_worker_info": "workers share out elements by themselves",
    "IterableDataset": "use data.from_generator(f), where f gives an iterator",
    "TFRecordDataset": "use data.from_files or data.from_parquet",
}

DISTRIBUTIONS: dict[str, str] = {
    "constraints": "parameters are checked where a distribution is made",
    "kl": "kl_divergence and register_kl are names of weft.distributions",
    "MixtureSameFamily": "use weft.logsumexp(mixture.logits + components.log_prob(x), axis=-1)",
    "RelaxedBernoulli": "use weft.sigmoid((logits + noise) / temperature), where noise is logistic",
    "RelaxedOneHotCategorical": "use nn.functional.gumbel_softmax(logits, tau)",
    "TransformedDistribution": "transform draws, and subtract the logarithm of the slope from log_prob",
    "transforms": "transform draws, and subtract the logarithm of the slope from log_prob",
}

TABLES = {
    "weft": WEFT,
    "weft.nn": NN,
    "weft.optim": OPTIM,
    "weft.data": DATA,
    "weft.distributions": DISTRIBUTIONS,
}

# Attributes of objects, by class
_DISTRIBUTION = {
    "enumerate_support": "use weft.arange(n), and log_prob of it",
    "expand": "give it parameters of that shape: weft.broadcast_to(x, shape)",
    "mode": "it is not there; mean and variance are",
    "perplexity": "use .entropy().exp()",
    "sample_n": "use .sample((n,))",
    "support": "parameters are checked where a distribution is made",
}
_CASTS = dict.fromkeys(("bfloat16", "double", "float", "half", "int", "long", "type"), "use .astype(dtype)")
OBJECTS: dict[str, dict[str, str]] = {
    "Distribution": _DISTRIBUTION,
    "Pipeline": {
        "apply": "use .map for elements, or call your function with the pipeline",
        "as_numpy_iterator": "use .numpy(), and iterate",
        "enumerate": "use .zip(data.from_arrays(range(n)))",
        "rebatch": "use .flatten().batch(n)",
        "unbatch": "use .flatten()",
        "window": "use .batch(n)",
    },
    "RaggedTensor": {
        **_CASTS,
        "nested_size": "use .lengths",
        "numpy": "use .to_padded().numpy(), or .values.numpy() and .splits.numpy()",
        "offsets": "use .splits",
        "row_lengths": "use .lengths",
        "row_splits": "use .splits",
        "size": "use len(x) and .lengths",
        "to_tensor": "use .to_padded()",
    },
    "SparseTensor": {
        **_CASTS,
        "col_indices": "sparse tensors are lists of coordinates: .indices and .values",
        "crow_indices": "sparse tensors are lists of coordinates: .indices and .values",
        "numpy": "use .to_dense().numpy()",
        "is_sparse": "ask isinstance(x, weft.SparseTensor)",
        "mm": "use s @ dense",
        "_nnz": "use .nnz",
    },
}

# Keywords of other libraries that have no other name here
KEYWORDS: dict[str, str] = {
    "allow_pickle": "nothing in a file is ever run: leave it out",
    "pickle_module": "nothing in a file is ever run: leave it out",
    "validate_args": "parameters are checked unless a graph is captured: leave it out",
    "weights_only": "nothing in a file is ever run: leave it out",
}


def unknown_of(name: str, obj: object, kind: str, instead: str = "") -> AttributeError:
    """The error of an attribute that an object of a kind does not have; with no hint of its own, another."""
    hint = OBJECTS[kind].get(name, instead)
    text = f"{type(obj).__name__!r} object has no attribute {name!r}"
    return AttributeError(text + (f"\n  hint: {hint}" if hint else ""), name=name, obj=obj)


def unknown(module: str, name: str, known: Iterable[str] = ()) -> AttributeError:
    """The error of an attribute that a module does not have, with what it is called here, or may be."""
    hint = TABLES.get(module, {}).get(name, "")
    if not hint and not name.startswith("_"):
        hint = _close(module, name, known)
    return AttributeError(
        f"module {module!r} has no attribute {name!r}" + (f"\n  hint: {hint}" if hint else ""), name=name
    )


def _close(module: str, name: str, known: Iterable[str]) -> str:
    from difflib import get_close_matches

    names = {n.lower(): n for n in sorted(known)}
    if name.lower() in names:
        return f"did you mean {module}.{names[name.lower()]}?"
    found = get_close_matches(name.lower(), list(names), 1, 0.75)
    return f"did you mean {module}.{names[found[0]]}?" if found else ""


class Missing:
    """An attribute that tensors have elsewhere: asking for it is an error with a hint."""

    __slots__ = ("hint", "name")

    def __init__(self, name: str, hint: str) -> None:
        self.name, self.hint = name, hint

    def __get__(self, obj: object, owner: type) -> None:
        text = f"'Tensor' object has no attribute {self.name!r}\n  hint: {self.hint}"
        raise AttributeError(text, name=self.name)
