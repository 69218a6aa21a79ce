"""What attributes of objects are called here, if otherwise: modules, optimizers, pipelines and their kin."""

from __future__ import annotations

MODULE: dict[str, str] = {
    "bind": "a module holds its parameters: call it, model(x), or model.method(x)",
    "built": "parameters are there when a module is made, or at the first call of nn.LazyLinear and its kin",
    "configure_optimizers": "optimizers are made beside models: weft.Trainer(model, loss, optimizer, train)",
    "device": "use next(model.parameters()).device",
    "dtype": "use next(model.parameters()).dtype",
    "freeze": "use model.requires_grad_(False)",
    "get_config": "keep settings in a dict, and save it with model.state_dict()",
    "get_layer": "use model.get_submodule(path), or model[i] of nn.Sequential",
    "init": "parameters are there when a module is made; weft.manual_seed(0) chooses them",
    "input_shape": "shapes come from the data: model.summary(x)",
    "layers": "use model.children(), or model[i] of nn.Sequential",
    "load_from_checkpoint": "use model.load_state_dict(weft.load(path)), or resume() of weft.Trainer",
    "log": "use metrics= of weft.Trainer, or weft.train.Log for loops of your own",
    "losses": "add terms to the loss: loss + 0.01 * weight.square().sum()",
    "name": "modules have names where they are held: model.named_modules()",
    "non_trainable_variables": "use model.buffers()",
    "non_trainable_weights": "use model.buffers()",
    "output_shape": "shapes come from the data: model.summary(x)",
    "save_hyperparameters": "keep settings in a dict, and save it with model.state_dict()",
    "tabulate": "use model.summary(x)",
    "to_json": "use weft.compile(model).save(path), which keeps the graph",
    "train_on_batch": "use loss.backward() and optimizer.step(), or weft.Trainer",
    "trainable": "use model.requires_grad_(True or False)",
    "unfreeze": "use model.requires_grad_(True)",
    "add": "use model.append(layer) of nn.Sequential",
    "build": "shapes come from the data; nn.LazyLinear learns its size from the first input",
    "compile": "use weft.compile(model); weft.Trainer(model, loss, optimizer, train) trains it",
    "count_params": "use sum(p.numel() for p in model.parameters())",
    "evaluate": "use weft.Trainer(model, loss, optimizer, train, validation)",
    "fit": "use weft.Trainer(model, loss, optimizer, train).fit(epochs=n)",
    "get_weights": "use model.state_dict()",
    "load_weights": "use model.load_state_dict(weft.load(path))",
    "predict": "call it: model(x), under weft.no_grad()",
    "save": "use weft.save(model.state_dict(), path), or weft.compile(model).save(path) with its graph",
    "save_weights": "use weft.save(model.state_dict(), path)",
    "set_weights": "use model.load_state_dict(state)",
    "trainable_variables": "use model.parameters()",
    "trainable_weights": "use model.parameters()",
    "variables": "use model.parameters() and model.buffers()",
    "weights": "use model.parameters(), or model.state_dict() with names",
}

OPTIMIZER: dict[str, str] = {
    "apply": "use loss.backward() and optimizer.step()",
    "apply_gradients": "use loss.backward() and optimizer.step()",
    "init": "optimizers are made with parameters and keep their state: optim.Adam(model.parameters())",
    "iterations": "count steps yourself, or ask optimizer.state_dict()",
    "learning_rate": 'use optimizer.param_groups[0]["lr"]',
    "lr": 'use optimizer.param_groups[0]["lr"]',
    "minimize": "use optimizer.zero_grad(), loss.backward() and optimizer.step()",
    "update": (
        "optimizers keep their state and change parameters themselves: loss.backward(), or p.grad = gradient "
        "of each; then optimizer.step()"
    ),
    "variables": "use optimizer.state_dict()",
}

TRAINER: dict[str, str] = {
    "callback_metrics": "use trainer.history[-1]",
    "current_epoch": "use trainer.epoch",
    "evaluate": "use trainer.validate(batches)",
    "global_step": "use trainer.step",
    "logged_metrics": "use trainer.history[-1]",
    "predict": "call the model: model(x), under weft.no_grad()",
    "save_checkpoint": "use trainer.save(path)",
    "test": "use trainer.validate(batches)",
}

_ARRAYS = "use weft.data.from_arrays(x, y).shuffle().batch(n)"
DATASET: dict[str, str] = {
    "from_generator": "use weft.data.from_generator(f), where f gives an iterator",
    "from_tensor_slices": _ARRAYS,
    "from_tensors": _ARRAYS,
    "list_files": "use weft.data.from_files(pattern, read)",
    "range": "use weft.data.from_arrays(range(n))",
    "zip": "use weft.data.from_arrays(x, y), or pipeline.zip(other)",
}

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
        "is_cuda": "use .device",
        "is_sparse": "ask isinstance(x, weft.SparseTensor)",
        "layout": "sparse tensors are lists of coordinates: .indices and .values",
        "mm": "use s @ dense",
        "_nnz": "use .nnz",
    },
}
