"""Run:ai Model Streamer: the ranks share the reading and broadcast whole tensors, or each reads all files."""

from runai_model_streamer import SafetensorsStreamer

from peers.shards import kept_of


def load(files, placement, device, rank, is_distributed):
    shards = placement[rank]
    # Owned tensors are not copied, but the streamer needs memory for all of them; others are views of its buffers.
    owned = all(shard.is_stored for shard in shards.values())
    with SafetensorsStreamer() as streamer:
        streamer.stream_files(files, device=str(device), is_distributed=is_distributed, owned=owned)
        return kept_of(streamer.get_tensors(), shards, owned)
