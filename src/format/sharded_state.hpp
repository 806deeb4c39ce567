// The names and records of sharded states. Pure: no file access.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "safeshuffle/sharded_state.hpp"

namespace safeshuffle::format {

/// The key of `__metadata__` under which a file records what its shards are.
inline constexpr std::string_view shard_record_key = "safeshuffle.shards";

/// Which rank saved a file, and as which of its files.
struct ShardFile {
  std::uint32_t part = 0;
  std::uint32_t rank = 0;
  auto operator<=>(const ShardFile&) const = default;
};

/// Of the name of a file, without directory; none if it is not that of a shard.
std::optional<ShardFile> parse_shard_name(std::string_view name);

/// The name of the only file of a rank.
std::string shard_name(std::uint32_t rank);

/// Whether these are the paths of files of a sharded state, and of nothing else.
bool is_sharded_state(const std::vector<std::string>& paths);

/// Sorts the paths of a sharded state by part, then by rank: so file i is of rank i % world if all
/// ranks saved the same number of files. Leaves others alone.
void order_shards(std::vector<std::string>& paths);

/// The record of one file: what it has of each of the named tensors. Others are whole.
std::string write_shard_record(std::uint32_t rank, std::uint32_t world,
                               const std::map<std::string, SavedShard>& shards);

/// `records`: by file, as read; empty where there is none. Throws FormatError naming the file, and
/// the tensor where known, if a record is invalid or does not agree with the file or the others.
ShardedState parse_sharded_state(const Catalog& catalog, const std::vector<std::string>& records);

}  // namespace safeshuffle::format
