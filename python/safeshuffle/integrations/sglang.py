"""SGLang: `--load-format safeshuffle`. Installed, it registers itself.

SGLang's own weight loaders say what each rank needs (safeshuffle.capture), and the ranks of its load group load it
together. `--model-loader-extra-config` takes options of safeshuffle.open, such as '{"threads": 8}', and "path", of the
weights if they are not with the model's other files, such as '{"path": "s3://bucket/model"}'.
"""

import copy
import os

from sglang.srt.arg_groups.choices import add_load_format_choices
from sglang.srt.configs.load_config import _DEFAULT_LOAD_GROUP, LoadFormat
from sglang.srt.distributed.parallel_state import get_tp_group
from sglang.srt.model_loader.loader import DefaultModelLoader
from sglang.srt.plugins.hook_registry import HookRegistry, HookType

import safeshuffle
import safeshuffle.capture

_INDEX = "model.safetensors.index.json"


class SafeshuffleModelLoader(DefaultModelLoader):
    def __init__(self, load_config):
        self._options = dict(load_config.model_loader_extra_config or {})
        self._path = self._options.pop("path", None)
        own = copy.copy(load_config)
        own.load_format, own.model_loader_extra_config = LoadFormat.SAFETENSORS, {}
        super().__init__(own)

    def download_model(self, model_config):
        if self._path is None:
            super().download_model(model_config)

    def load_weights_and_postprocess(self, model, weights, target_device):
        with self._open(model, target_device) as session:
            safeshuffle.capture.load(session, model, lambda read: self._pass_on(model, read, target_device))
        for source in getattr(model, "secondary_weights", ()):
            self.load_weights_only(model, self._get_weights_iterator(source), target_device)
        self.postprocess_weights(model, target_device)

    def _get_all_weights(self, model_config, model):
        """What load_weights_and_postprocess is given: SGLang's own, if anybody takes it."""
        self._source = self.Source.init_new(model_config, model)
        return super()._get_all_weights(model_config, model)

    def _pass_on(self, model, weights, target_device):
        draft = self.load_config.draft_model_idx
        if draft is not None:
            weights = self._filter_mtp_weights(weights, "", draft)
        self.load_weights_only(model, weights, target_device)

    def _open(self, model, target_device):
        group = self.load_config.load_group
        if group is _DEFAULT_LOAD_GROUP:
            group = get_tp_group()
        alone = group is None or group.world_size == 1
        device = next(model.parameters()).device
        return safeshuffle.open(
            self._path or self._files(), None if alone else group.cpu_group,
            target_device if device.type == "meta" else device, **self._options,
        )  # fmt: skip

    def _files(self):
        source = self._source
        folder, files, _ = self._prepare_weights(
            source.model_or_path, source.revision, False, source.allow_patterns_overrides
        )
        path = os.path.join(folder, _INDEX)
        chosen = source.allow_patterns_overrides is not None or not os.path.exists(path)
        return sorted(files) if chosen else path


def register():
    add_load_format_choices(["safeshuffle"])
    HookRegistry.register(
        "sglang.srt.configs.load_config.LoadConfig._verify_load_format", _take_format, HookType.AROUND
    )


def _take_format(verify, config):
    """Formats are a closed list, but a class may stand for one."""
    if config.load_format == "safeshuffle":
        config.load_format = SafeshuffleModelLoader
    verify(config)
