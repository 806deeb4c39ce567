"""transformers: plain and tensor-parallel models.

    model = safeshuffle.integrations.transformers.from_pretrained(AutoModelForCausalLM, path, dtype="auto")

With `distributed_config=DistributedConfig(tp_size=N)`, each rank reads only what it keeps.
"""

import torch
import transformers

import safeshuffle


def from_pretrained(cls, path, *, config=None, options=None, **arguments):
    """`cls.from_pretrained(path, **arguments)`, with the weights from safeshuffle.

    cls: a model class, such as AutoModelForCausalLM
    path: directory, with a config.json if `config` is not given
    options: a dict for safeshuffle.open
    """
    remote = {name: arguments[name] for name in ("trust_remote_code",) if name in arguments}
    if config is None:
        config = transformers.AutoConfig.from_pretrained(path, **remote)
    if hasattr(cls, "from_config"):  # an auto class: of a model without weights, the class is taken
        with torch.device("meta"):
            cls = type(cls.from_config(config, **remote))
    with safeshuffle.open(path, **(options or {})) as session:
        weights = {name: session.get_slice(name) for name in session.offset_keys()}
        loaded = cls.from_pretrained(None, config=config, state_dict=weights, **arguments)
    model = loaded[0] if isinstance(loaded, tuple) else loaded
    model.name_or_path = model.config.name_or_path = str(path)
    if model.can_generate():
        model.generation_config = _generation_config(path, model)
    return loaded


def _generation_config(path, model):
    try:
        return transformers.GenerationConfig.from_pretrained(path)
    except OSError:  # the model has none of its own
        return model.generation_config
