#include "format/sharded_state.hpp"

#include <algorithm>
#include <charconv>
#include <limits>
#include <utility>

#include <nlohmann/json.hpp>

#include "safeshuffle/error.hpp"

#include "format/tensor_bits.hpp"

namespace safeshuffle::format {
namespace {

using nlohmann::json;

constexpr std::string_view prefix = "model-rank-";
constexpr std::string_view middle = "-part-";
constexpr std::string_view suffix = ".safetensors";

constexpr int record_version = 1;

std::string_view file_name(std::string_view path) {
  return path.substr(path.rfind('/') + 1);
}

std::string name_of(const ShardFile& file) {
  return std::string(prefix)
      .append(std::to_string(file.rank))
      .append(middle)
      .append(std::to_string(file.part))
      .append(suffix);
}

[[noreturn]] void fail(const std::string& path, const std::string& tensor, std::string cause) {
  throw FormatError(ErrorRecord{.code = static_cast<std::int32_t>(FormatErrc::bad_shard_record),
                                .file = path,
                                .tensor = tensor,
                                .cause = std::move(cause)});
}

// One file's record.
struct Record {
  std::uint32_t rank = 0;
  std::uint32_t world = 0;
  std::map<std::string, SavedShard> shards;
};

SavedShard parse_shard(const json& value) {
  SavedShard shard{value.at("shape").get<Shape>(), value.at("axis").get<std::uint32_t>(), {}};
  for (const auto& [begin, length] :
       value.at("intervals").get<std::vector<std::pair<std::uint64_t, std::uint64_t>>>()) {
    shard.intervals.push_back({begin, length});
  }
  return shard;
}

Record parse_record(const std::string& text, const std::string& path) try {
  const json root = json::parse(text);
  if (root.at("version") != record_version) {
    fail(path, {},
         "the record of its shards has another version than " + std::to_string(record_version));
  }
  Record record{root.at("rank").get<std::uint32_t>(), root.at("world").get<std::uint32_t>(), {}};
  for (const auto& [name, shard] : root.at("shards").items()) {
    record.shards.emplace(name, parse_shard(shard));
  }
  return record;
} catch (const json::exception&) {
  fail(path, {}, "the record of its shards is not valid");
}

// Whether the shard is of a tensor of that shape, and the stored tensor is such a shard.
bool is_possible(const SavedShard& shard, const TensorInfo& stored) {
  if (shard.axis >= shard.shape.size() || shard.shape.size() != stored.shape.size()) return false;
  if (!tensor_bits(stored.dtype, shard.shape)) return false;
  std::uint64_t end = 0;
  std::uint64_t total = 0;
  for (const Interval& interval : shard.intervals) {
    const std::uint64_t extent = shard.shape[shard.axis];
    if (interval.length == 0 || interval.begin < end || interval.begin > extent ||
        interval.length > extent - interval.begin) {
      return false;
    }
    end = interval.begin + interval.length;
    total += interval.length;
  }
  Shape shape = shard.shape;
  shape[shard.axis] = total;
  return shape == stored.shape;
}

class StateParser {
 public:
  StateParser(const Catalog& catalog, const std::vector<std::string>& records)
      : catalog_(catalog), records_(records) {}

  ShardedState parse() {
    for (const FileInfo& file : catalog_.files()) {
      state_.rank_of_file.push_back(parse_shard_name(file_name(file.path))->rank);
    }
    state_.world = 1 + *std::ranges::max_element(state_.rank_of_file);
    state_.recorded = !records_.front().empty();
    state_.shards.resize(catalog_.tensors().size());
    for (std::uint32_t file = 0; file < records_.size(); ++file) {
      if (records_[file].empty() == state_.recorded) {
        fail(path(state_.recorded ? file : 0), {},
             "it has no record of its shards, but " + path(state_.recorded ? 0 : file) + " has");
      }
      if (state_.recorded) add(file);
    }
    return std::move(state_);
  }

 private:
  const std::string& path(std::uint32_t file) const { return catalog_.files()[file].path; }

  void add(std::uint32_t file) {
    Record record = parse_record(records_[file], path(file));
    if (record.rank != state_.rank_of_file[file]) {
      fail(path(file), {}, "it was saved by rank " + std::to_string(record.rank));
    }
    if (file == 0) state_.world = record.world;
    if (record.world != state_.world || record.rank >= record.world) {
      fail(path(file), {},
           "it was saved by a group of " + std::to_string(record.world) + " ranks, " + path(0) +
               " by one of " + std::to_string(state_.world));
    }
    const std::span<const TensorInfo> tensors = catalog_.tensors_of(catalog_.files()[file]);
    for (const TensorInfo& tensor : tensors) {
      const auto found = record.shards.find(tensor.name);
      if (found == record.shards.end()) continue;
      if (!is_possible(found->second, tensor)) {
        fail(path(file), tensor.name, "it is not the shard that the file's record says");
      }
      state_.shards[static_cast<std::size_t>(&tensor - catalog_.tensors().data())] =
          std::make_shared<const SavedShard>(std::move(found->second));
    }
  }

  const Catalog& catalog_;
  const std::vector<std::string>& records_;
  ShardedState state_;
};

}  // namespace

std::optional<ShardFile> parse_shard_name(std::string_view name) {
  ShardFile file;
  if (!name.starts_with(prefix) || !name.ends_with(suffix)) return {};
  const std::size_t separator = name.find(middle, prefix.size());
  if (separator == std::string_view::npos) return {};
  const char* end = name.data() + name.size();
  std::from_chars(name.data() + prefix.size(), end, file.rank);
  std::from_chars(name.data() + separator + middle.size(), end, file.part);
  return name == name_of(file) ? std::optional(file) : std::nullopt;
}

std::string shard_name(std::uint32_t rank) {
  return name_of({.part = 0, .rank = rank});
}

bool is_sharded_state(const std::vector<std::string>& paths) {
  return !paths.empty() && std::ranges::all_of(paths, [](const std::string& path) {
    return parse_shard_name(file_name(path)).has_value();
  });
}

void order_shards(std::vector<std::string>& paths) {
  if (!is_sharded_state(paths)) return;
  std::ranges::stable_sort(
      paths, {}, [](const std::string& path) { return *parse_shard_name(file_name(path)); });
}

std::string write_shard_record(std::uint32_t rank, std::uint32_t world,
                               const std::map<std::string, SavedShard>& shards) {
  json root{{"version", record_version}, {"rank", rank}, {"world", world}};
  json& all = root["shards"] = json::object();
  for (const auto& [name, shard] : shards) {
    json intervals = json::array();
    for (const Interval& interval : shard.intervals) {
      intervals.push_back({interval.begin, interval.length});
    }
    all[name] = {{"shape", shard.shape}, {"axis", shard.axis}, {"intervals", intervals}};
  }
  return root.dump();
}

ShardedState parse_sharded_state(const Catalog& catalog, const std::vector<std::string>& records) {
  return StateParser(catalog, records).parse();
}

}  // namespace safeshuffle::format
