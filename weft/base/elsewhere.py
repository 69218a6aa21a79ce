"""What names of other libraries are called here: hints for attributes that weft's modules do not have.

Read only where an attribute was not found, and for tensors at import: a class has its hints as attributes.
"""

from __future__ import annotations

from collections.abc import Iterable

from weft.base.elsewhere_names import WEFT
from weft.base.elsewhere_objects import OBJECTS

NN: dict[str, str] = {
    "CategoryEncoding": "use nn.functional.one_hot",
    "Discretization": "use weft.bucketize(x, edges)",
    "Embed": "use nn.Embedding(num_embeddings, embedding_dim)",
    "MLP": "use nn.Sequential of nn.Linear and nn.ReLU",
    "MSE": "use nn.MSELoss",
    "OptimizedLSTMCell": "use nn.LSTMCell(input_size, hidden_size)",
    "Param": "use nn.Parameter",
    "Resizing": "use nn.functional.interpolate(x, size)",
    "Rngs": "layers draw from one generator: weft.manual_seed(0)",
    "avg_pool": "use nn.functional.avg_pool2d; channels come before sizes",
    "inference_mode": "use model.eval() and with weft.no_grad():",
    "jit": "use weft.compile(model)",
    "max_pool": "use nn.functional.max_pool2d; channels come before sizes",
    "remat": "use weft.checkpoint(f, *args)",
    "scan": "use weft.scan, or a loop in forward",
    "vmap": "use weft.vmap",
    "with_partitioning": "use weft.parallel: weft.compile(step, mesh=...)",
    "Add": "use x + y in forward",
    "Attention": "use nn.functional.scaled_dot_product_attention",
    "AveragePooling1D": "use nn.AvgPool1d",
    "AveragePooling2D": "use nn.AvgPool2d",
    "Bidirectional": "use nn.LSTM(..., bidirectional=True)",
    "BinaryCrossentropy": "use nn.BCELoss, or nn.BCEWithLogitsLoss for logits",
    "CategoricalCrossentropy": "use nn.CrossEntropyLoss, which takes logits",
    "Conv1D": "use nn.Conv1d; channels come before sizes",
    "Conv2DTranspose": "use nn.ConvTranspose2d",
    "Conv3D": "use nn.Conv3d; channels come before sizes",
    "DepthwiseConv2D": "use nn.Conv2d(channels, channels, size, groups=channels)",
    "Dot": "use weft.vecdot in forward",
    "GaussianNoise": "add weft.randn_like(x) * std in forward",
    "GlobalAveragePooling1D": "use nn.AdaptiveAvgPool1d(1) and nn.Flatten()",
    "GlobalMaxPooling2D": "use nn.AdaptiveMaxPool2d(1) and nn.Flatten()",
    "GroupNormalization": "use nn.GroupNorm",
    "Huber": "use nn.HuberLoss",
    "Lambda": "write a class of nn.Module, or call the function in forward",
    "Layer": "use nn.Module, with forward",
    "Masking": "use masks of attention, or nn.utils.rnn.pack_padded_sequence",
    "MaxPooling1D": "use nn.MaxPool1d",
    "MeanAbsoluteError": "use nn.L1Loss",
    "MeanSquaredError": "use nn.MSELoss",
    "Multiply": "use x * y in forward",
    "Normalization": "use (x - mean) / std of the data",
    "Permute": "use x.permute(...) in forward",
    "RandomFlip": "use data.Flip in pipeline.augment",
    "RepeatVector": "use x[:, None].expand(-1, n, -1)",
    "Rescaling": "use x * scale in forward",
    "SeparableConv2D": "use nn.Conv2d(..., groups=channels) and nn.Conv2d(..., 1)",
    "SimpleRNN": "use nn.RNN(input_size, hidden_size)",
    "SparseCategoricalCrossentropy": "use nn.CrossEntropyLoss, which takes logits and classes",
    "SpatialDropout2D": "use nn.Dropout2d",
    "TextVectorization": "use pipeline.map with a tokenizer",
    "TimeDistributed": "layers work along the last axis of any batch",
    "UpSampling2D": "use nn.Upsample(scale_factor=2)",
    "ZeroPadding2D": "use nn.ZeroPad2d",
    "bias_add": "use x + bias",
    "conv2d": "use nn.functional.conv2d",
    "dot_product_attention": "use nn.functional.scaled_dot_product_attention: heads come before steps",
    "dropout": "use nn.functional.dropout, or nn.Dropout()",
    "embedding_lookup": "use weight[ids], or nn.functional.embedding",
    "gelu": "use nn.functional.gelu, or nn.GELU()",
    "initializers": "use nn.init",
    "l2_normalize": "use nn.functional.normalize",
    "logsumexp": "use weft.logsumexp",
    "max_pool2d": "use nn.functional.max_pool2d",
    "moments": "use x.mean(axis=...) and x.var(axis=...)",
    "one_hot": "use nn.functional.one_hot",
    "sigmoid": "use weft.sigmoid, or nn.Sigmoid()",
    "sigmoid_cross_entropy_with_logits": "use nn.functional.binary_cross_entropy_with_logits",
    "silu": "use nn.functional.silu, or nn.SiLU()",
    "softmax": "use nn.functional.softmax, or nn.Softmax()",
    "softmax_cross_entropy_with_logits": "use nn.functional.cross_entropy",
    "standardize": "use nn.functional.layer_norm(x, x.shape[-1:])",
    "swish": "use nn.functional.silu, or nn.SiLU()",
    "softplus": "use nn.functional.softplus, or nn.Softplus()",
    "sparse_softmax_cross_entropy_with_logits": "use nn.functional.cross_entropy",
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

FUNCTIONAL: dict[str, str] = {
    "categorical_crossentropy": "use cross_entropy, which takes logits",
    "mse": "use mse_loss",
    "sigmoid_binary_cross_entropy": "use binary_cross_entropy_with_logits",
    "softmax_cross_entropy": "use cross_entropy, which takes classes or probabilities",
    "sparse_categorical_crossentropy": "use cross_entropy, which takes logits and classes",
    "dot_product_attention": "use scaled_dot_product_attention: heads come before steps",
    "hard_sigmoid": "use hardsigmoid",
    "hard_silu": "use hardswish",
    "hard_swish": "use hardswish",
    "hard_tanh": "use hardtanh",
    "initializers": "use weft.nn.init",
    "log_sigmoid": "use logsigmoid",
    "logsumexp": "use weft.logsumexp",
    "soft_sign": "use softsign",
    "sparse_plus": "write it with weft.where",
    "squareplus": "use (x + weft.sqrt(x * x + 4)) / 2",
    "standardize": "use layer_norm(x, x.shape[-1:])",
    "swish": "use silu",
}

OPTIM: dict[str, str] = {
    "apply_if_finite": "use optim.GradScaler, or ask weft.isfinite(loss) before optimizer.step()",
    "constant_schedule": "a rate stays as it is without a scheduler",
    "masked": 'use groups: optim.Adam([{"params": some, "lr": 0.1}, {"params": others}])',
    "multi_transform": 'use groups: optim.Adam([{"params": some, "lr": 0.1}, {"params": others}])',
    "adagrad": "use optim.Adagrad(parameters, lr=...)",
    "adam": "use optim.Adam(parameters, lr=...)",
    "adamw": "use optim.AdamW(parameters, lr=...)",
    "cosine_decay_schedule": "use optim.lr_scheduler.CosineAnnealingLR",
    "exponential_decay": "use optim.lr_scheduler.ExponentialLR",
    "global_norm": "weft.optim.clip_grad_norm_ gives it",
    "huber_loss": "use weft.nn.functional.huber_loss",
    "l2_loss": "use weft.mse_loss, which has no factor of 1/2",
    "lamb": "use optim.AdamW",
    "linear_schedule": "use optim.lr_scheduler.LinearLR",
    "lion": "use optim.Lion(parameters, lr=...)",
    "piecewise_constant_schedule": "use optim.lr_scheduler.MultiStepLR",
    "rmsprop": "use optim.RMSprop(parameters, lr=...)",
    "sgd": "use optim.SGD(parameters, lr=...)",
    "sigmoid_binary_cross_entropy": "use weft.nn.functional.binary_cross_entropy_with_logits",
    "softmax_cross_entropy": "use weft.cross_entropy, which takes probabilities too",
    "softmax_cross_entropy_with_integer_labels": "use weft.cross_entropy",
    "warmup_cosine_decay_schedule": "use optim.lr_scheduler.SequentialLR of LinearLR and CosineAnnealingLR",
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
    "AUTOTUNE": "use pipeline.prefetch(2, workers=n)",
    "experimental": "use pipeline.prefetch(2, workers=n)",
    "LightningDataModule": "use data.from_arrays and its kin, or data.DataLoader",
    "image_dataset_from_directory": "use data.from_files(pattern, read)",
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
    "TransformedDistribution": "transform draws, and subtract the logarithm of the slope from log_prob",
    "transforms": "transform draws, and subtract the logarithm of the slope from log_prob",
}

AUTOGRAD: dict[str, str] = {
    "Variable": "every tensor can require grad: weft.tensor(x, requires_grad=True)",
    "forward_ad": "use weft.jvp(f, primals, tangents)",
    "functional": "use weft.jacobian, weft.hessian, weft.jvp and weft.vjp",
    "gradcheck": "use weft.testing.gradcheck",
    "profiler": "use weft.profile()",
    "set_detect_anomaly": "use with weft.detect_anomaly():",
}

BACKENDS: dict[str, str] = {
    "cudnn": "weft[cudnn] is used by itself where it is installed, and results are the same in each run",
    "mkl": "BLAS is found by itself; weft doctor tells which",
    "mps": "devices are the cpu and those of weft.cuda",
}

CUDA: dict[str, str] = {
    "amp": "use weft.autocast and weft.optim.GradScaler",
    "current_device": "use weft.get_default_device()",
    "device": 'use weft.default_device("cuda:1")',
    "get_device_properties": "use weft.cuda.get_device_name, get_device_capability and mem_get_info",
    "is_bf16_supported": "bfloat16 runs on every device",
    "manual_seed": "use weft.manual_seed, which seeds every device",
    "manual_seed_all": "use weft.manual_seed, which seeds every device",
    "memory_summary": "use weft.cuda.memory_allocated() and max_memory_allocated()",
    "set_device": 'use weft.default_device("cuda:1")',
}

LINALG: dict[str, str] = {
    "band_part": "use weft.triu and weft.tril",
    "diag": "use weft.diag",
    "expm": "use weft.linalg.matrix_exp",
    "set_diag": "use x.fill_diagonal_(value)",
    "eigenvals": "use weft.linalg.eigvals",
    "householder_product": "use weft.linalg.qr",
    "inv_ex": "use weft.linalg.inv",
    "lu_factor": "use weft.linalg.lu",
    "lu_solve": "use weft.linalg.solve",
    "solve_ex": "use weft.linalg.solve",
    "vander": "use x[:, None] ** weft.arange(n)",
}

PROFILER: dict[str, str] = {
    "ProfilerActivity": "with weft.profile() watches all devices",
    "profile": "use with weft.profile() as p: and print(p)",
    "StepTraceAnnotation": "use with weft.profile.region(name):",
    "TraceAnnotation": "use with weft.profile.region(name):",
    "annotate_function": "use @weft.profile.region(name)",
    "device_memory_profile": "use with weft.memory_profile() as m:",
    "record_function": "use with weft.profile.region(name):",
    "schedule": "open with weft.profile() around the steps to watch",
    "start_server": "weft.profile() watches this process; p.save(path) is for Perfetto",
    "start_trace": "use with weft.profile() as p: and p.save(path)",
    "stop_trace": "use with weft.profile() as p: and p.save(path)",
    "tensorboard_trace_handler": "use p.save(path), for Perfetto",
    "trace": "use with weft.profile() as p: and p.save(path)",
}

TRAIN: dict[str, str] = {
    "CSVLogger": 'use logs=["csv"] and directory= of weft.Trainer, or weft.train.Log',
    "LearningRateMonitor": "logs of weft.Trainer have the learning rate: directory=",
    "LightningModule": "use weft.nn.Module for the model and weft.Trainer for training",
    "ModelCheckpoint": "use directory=, checkpoint_every= and monitor= of weft.Trainer",
    "TensorBoard": 'use logs=["tensorboard"] and directory= of weft.Trainer, or weft.train.Log',
    "TensorBoardLogger": 'use logs=["tensorboard"] and directory= of weft.Trainer, or weft.train.Log',
}

LR_SCHEDULER: dict[str, str] = {
    "CosineDecay": "use CosineAnnealingLR(optimizer, T_max)",
    "ExponentialDecay": "use ExponentialLR(optimizer, gamma)",
    "LearningRateScheduler": "use LambdaLR(optimizer, function)",
    "PiecewiseConstantDecay": "use MultiStepLR(optimizer, milestones)",
    "WarmupCosine": "use SequentialLR of LinearLR and CosineAnnealingLR",
    "get_cosine_schedule_with_warmup": "use SequentialLR of LinearLR and CosineAnnealingLR",
    "get_linear_schedule_with_warmup": "use SequentialLR of two LinearLR",
}

INIT: dict[str, str] = {
    "glorot_normal": "use xavier_normal_(tensor)",
    "glorot_uniform": "use xavier_uniform_(tensor)",
    "he_normal": 'use kaiming_normal_(tensor, nonlinearity="relu")',
    "he_normal_": 'use kaiming_normal_(tensor, nonlinearity="relu")',
    "he_uniform": 'use kaiming_uniform_(tensor, nonlinearity="relu")',
    "lecun_normal": 'use kaiming_normal_(tensor, nonlinearity="linear")',
    "truncated_normal": "use trunc_normal_(tensor)",
    "variance_scaling": "use kaiming_normal_(tensor, mode=...)",
}

TESTING: dict[str, str] = {
    "assert_allclose": "use weft.testing.assert_close(x, y)",
    "assert_array_almost_equal": "use weft.testing.assert_close(x, y)",
    "assert_array_equal": "use assert x.equal(y)",
    "check_grads": "use weft.testing.gradcheck(f, inputs)",
}

RANDOM: dict[str, str] = {
    "ball": "divide normal draws by their norms",
    "cauchy": "use weft.distributions.Cauchy(0.0, 1.0).sample(shape)",
    "key_data": "a key is a tensor itself",
    "laplace": "use weft.distributions.Laplace(0.0, 1.0).sample(shape)",
    "logistic": "use weft.special.logit of weft.random.uniform",
    "multivariate_normal": "use weft.distributions.MultivariateNormal(mean, covariance).sample(shape)",
    "orthogonal": "use weft.nn.init.orthogonal_",
    "poisson": "use weft.distributions.Poisson(rate).sample(shape)",
    "rademacher": "use 2 * weft.random.bernoulli(key, 0.5, shape) - 1",
    "set_seed": "use weft.manual_seed(0); functions of weft.random take a key first",
    "t": "use weft.distributions.StudentT(df).sample(shape)",
    "wrap_key_data": "a key is a tensor itself",
    "RandomState": "use weft.Generator, or keys: weft.random.key(seed)",
    "default_rng": "use weft.Generator, or keys: weft.random.key(seed)",
    "rand": "use weft.rand(2, 3); functions of weft.random take a key first",
    "randn": "use weft.randn(2, 3); functions of weft.random take a key first",
    "random": "use weft.rand(2, 3); functions of weft.random take a key first",
    "random_sample": "use weft.rand(2, 3); functions of weft.random take a key first",
    "seed": "use weft.manual_seed(0); functions of weft.random take a key first",
    "shuffle": "use x[weft.randperm(len(x))]",
    "standard_normal": "use weft.randn(2, 3); functions of weft.random take a key first",
}

SPECIAL: dict[str, str] = {
    "erfcx": "use weft.exp(x * x) * weft.special.erfc(x)",
    "gamma": "use weft.exp(weft.special.gammaln(x)), for x > 0",
    "i0": "it is not there; scipy.special.i0(x.numpy()) has no gradient",
    "i0e": "it is not there; scipy.special.i0e(x.numpy()) has no gradient",
    "multigammaln": "sum gammaln(x - i / 2) for i in range(p), and add p * (p - 1) / 4 * math.log(math.pi)",
    "polygamma": "use weft.polygamma(n, x)",
    "zeta": "use weft.polygamma for zeta(n, x) of whole n > 1",
}

TABLES = {
    "weft": WEFT,
    "weft.nn": NN,
    "weft.nn.functional": FUNCTIONAL,
    "weft.nn.init": INIT,
    "weft.optim": OPTIM,
    "weft.optim.lr_scheduler": LR_SCHEDULER,
    "weft.testing": TESTING,
    "weft.train": TRAIN,
    "weft.data": DATA,
    "weft.distributions": DISTRIBUTIONS,
    "weft.autograd": AUTOGRAD,
    "weft.backends": BACKENDS,
    "weft.cuda": CUDA,
    "weft.linalg": LINALG,
    "weft.profiler": PROFILER,
    "weft.random": RANDOM,
    "weft.special": SPECIAL,
}

_MODE = "the mode is the model's: model.train() or model.eval() before the call"
_GUARDED = "Python values that code reads are guarded: leave it out"
# Keywords of other libraries that have no other name here, some of them of one function
KEYWORDS: dict[str, str] = {
    "activation": "an activation is a layer of its own, nn.ReLU(), or a call in forward: weft.relu(x)",
    "accelerator": 'use device="cuda"',
    "accumulate_grad_batches": "use accumulate=n",
    "allow_pickle": "nothing in a file is ever run: leave it out",
    "bias_initializer": "use weft.nn.init, such as nn.init.zeros_(layer.bias)",
    "capturable": "how steps run is weft's choice: leave it out",
    "compile.dynamic": "sizes that change are left open by themselves: leave it out",
    "compile.jit_compile": "code is always compiled: leave it out",
    "compile.mode": "there is one mode, and nothing is tuned at run time: leave it out",
    "compile.options": "use passes=, disable=, fast_math=, precision= or memory=",
    "default_root_dir": "use directory=",
    "deterministic": _MODE,
    "devices": "use mesh= of weft.parallel, or device=",
    "differentiable": "leave it out; weft.grad of a function that updates values by hand has gradients",
    "donate_argnums": "what a step changes is changed in place by itself: leave it out",
    "dynamic_axes": 'name open sizes by a type: weft.TensorType(("batch", 3), weft.float32) as example',
    "do_constant_folding": "constants are folded: leave it out",
    "enable_progress_bar": "use progress=False",
    "epochs": "fit takes it: trainer.fit(epochs=n)",
    "export_params": "weights are in the file: leave it out",
    "foreach": "how steps run is weft's choice: leave it out",
    "fullgraph": "graphs are always whole, with branches and loops in them: leave it out",
    "fused": "how steps run is weft's choice, weft.compile fuses them: leave it out",
    "from_logits": "losses that take logits are their own: cross_entropy, binary_cross_entropy_with_logits",
    "gradient_clip_val": "use clip_norm=",
    "input_names": "inputs have the names of the arguments: leave it out",
    "inplace": "leave it out, or use the method that changes a tensor, such as x.relu_()",
    "is_training": _MODE,
    "key": "layers draw from one generator: weft.manual_seed(0); leave it out",
    "kernel_initializer": "use weft.nn.init, such as nn.init.xavier_uniform_(layer.weight)",
    "kernel_regularizer": "use weight_decay= of optimizers, or add a term to the loss",
    "logger": 'use directory= and logs=["csv", "tensorboard"]',
    "max_epochs": "fit takes it: trainer.fit(epochs=n)",
    "max_steps": "fit takes it: trainer.fit(steps=n)",
    "output_names": "outputs are called output, or by their place in what is returned: leave it out",
    "opset_version": "use opset=",
    "offset": "which diagonal is k=, and the columns are m=, as in NumPy",
    "out": "use x = f(...), or x.copy_(f(...))",
    "order": "elements are taken row by row; for columns first, use x.T",
    "optimize": "the cheapest order is found by itself: leave it out",
    "pickle_module": "nothing in a file is ever run: leave it out",
    "return_index": "use return_inverse=True, and weft.argsort of it, stable",
    "rngs": "weights and dropout draw from one generator: weft.manual_seed(0); leave it out",
    "static_argnames": _GUARDED,
    "static_argnums": _GUARDED,
    "train": _MODE,
    "training": _MODE,
    "transpose_a": "use weft.matmul(x.mT, y)",
    "transpose_b": "use weft.matmul(x, y.mT)",
    "use_running_average": _MODE,
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
    """An attribute that tensors or modules have elsewhere: asking for it is an error with a hint."""

    __slots__ = ("hint", "name")

    def __init__(self, name: str, hint: str) -> None:
        self.name, self.hint = name, hint

    def __get__(self, obj: object, owner: type) -> None:
        text = f"{owner.__name__!r} object has no attribute {self.name!r}\n  hint: {self.hint}"
        raise AttributeError(text, name=self.name)
