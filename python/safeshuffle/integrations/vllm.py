"""vLLM: `vllm serve MODEL --load-format safeshuffle`. Installed, it registers itself.

vLLM's own weight loaders say what each rank needs (safeshuffle.capture), and the ranks of a tensor-parallel group
load it together. `--model-loader-extra-config` takes options of safeshuffle.open, such as '{"threads": 8}', and
"path", of the weights if they are not with the model's other files, such as '{"path": "s3://bucket/model"}'.
"""

import copy
import functools
import os
import time
import weakref

from vllm.distributed import get_tp_group
from vllm.logger import init_logger
from vllm.model_executor.model_loader import register_model_loader
from vllm.model_executor.model_loader.default_loader import DefaultModelLoader

import safeshuffle
import safeshuffle.capture
import safeshuffle.reload

# vLLM shows the messages of its own loggers.
_log = init_logger("vllm.safeshuffle")

# What DefaultModelLoader itself takes of the extra configuration.
_OF_VLLM = {"enable_weights_track"}

# By model: what each rank takes of its tensors, for reload_weights.
_parts = weakref.WeakKeyDictionary()


class SafeshuffleModelLoader(DefaultModelLoader):
    def __init__(self, load_config):
        extra = load_config.model_loader_extra_config or {}
        self._options = {name: value for name, value in extra.items() if name not in _OF_VLLM}
        self._path = self._options.pop("path", None)
        own = copy.copy(load_config)
        own.load_format = "safetensors"
        own.model_loader_extra_config = {name: value for name, value in extra.items() if name in _OF_VLLM}
        super().__init__(own)

    def download_model(self, model_config):
        if self._path is None:
            super().download_model(model_config)

    def load_weights(self, model, model_config):
        if any(parameter.is_meta for parameter in model.parameters()):
            super().load_weights(model, model_config)  # which are quantised as they are loaded, layer by layer
            return
        begin = time.perf_counter()
        with self._open(model, model_config) as session:
            captured = safeshuffle.capture.Captured(session, model, model.load_weights)
            report = captured.load(session)
            _parts[model] = safeshuffle.reload.Parts(session, captured)
        for source in getattr(model, "secondary_weights", ()):
            captured.loaded |= model.load_weights(self._get_weights_iterator(source)) or set()
        _log.info(
            "Loading weights took %.2f seconds; %.1f %% of the bytes captured, read by rank: %s",
            time.perf_counter() - begin, 100 * report["captured_share"],
            [rank["read_bytes"] for rank in report["ranks"]],
        )  # fmt: skip
        quantized = model_config.quantization is not None
        track = self.enable_weights_track
        if captured.loaded and (not quantized if track is None else track):
            self.track_weights_loading(model, captured.loaded, quantized=quantized)

    def get_all_weights(self, model_config, model):
        """For reload_weights: tensors of which the parts are loaded that this rank took the first time, or else whole
        ones, in bounded memory."""
        parts = _parts.get(model)
        with self._open(model, model_config) as session:
            if parts and parts.fit(session):
                alone = functools.partial(self._open, model, model_config, alone=True)
                yield from parts.stream(session, _device_of(model), alone)
            else:
                yield from session.stream(alive=safeshuffle.reload.ANY_NUMBER_OF_GROUPS)
        for source in getattr(model, "secondary_weights", ()):
            yield from self._get_weights_iterator(source)

    def _open(self, model, model_config, alone=False):
        group = get_tp_group()
        return safeshuffle.open(
            self._path or self._files(model, model_config),
            group.cpu_group if group.world_size > 1 and not alone else None, _device_of(model), **self._options,
        )  # fmt: skip

    def _files(self, model, model_config):
        folder, files, _, index = self._prepare_weights(
            model_config.model, None, model_config.revision, False, getattr(model, "allow_patterns_overrides", None)
        )
        path = os.path.join(folder, index)
        chosen = getattr(model, "allow_patterns_overrides", None) is not None or not os.path.exists(path)
        return sorted(files) if chosen else path


def _device_of(model):
    """Where its parameters are, or will be."""
    device = next(model.parameters()).device
    return get_tp_group().device if device.type == "meta" else device


@functools.cache  # vLLM may call it several times in a process
def register():
    register_model_loader("safeshuffle")(SafeshuffleModelLoader)
