#include "format/sharded_state.hpp"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <limits>
#include <numeric>
#include <tuple>
#include <utility>

#include <nlohmann/json.hpp>

#include "core/tensor_bytes.hpp"
#include "format/format_error.hpp"
#include "format/json_text.hpp"

namespace safeshuffle::format {
namespace {

using nlohmann::json;

constexpr std::string_view prefix = "model-rank-";
constexpr std::string_view middle = "-part-";
constexpr std::string_view suffix = ".safetensors";

constexpr std::uint64_t record_version = 1;

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
  raise_format(FormatErrc::bad_shard_record, {.path = path, .tensor = tensor}, std::move(cause));
}

// One file's record.
struct Record {
  std::uint32_t rank = 0;
  std::uint32_t world = 0;
  std::map<std::string, SavedShard> shards;
};

// Reads the record of one file. Nothing is converted: a number that is negative, has a fraction or
// is too large is not taken for another one.
class RecordParser {
 public:
  explicit RecordParser(const std::string& path) : path_(path) {}

  Record parse(const std::string& text) const try {
    const json root = parsed(text);
    if (number(root.at("version")) != record_version) {
      fail(path_, {},
           "the record of its shards has another version than " + std::to_string(record_version));
    }
    Record record{small_number(root.at("rank")), small_number(root.at("world")), {}};
    for (const auto& [name, shard] : root.at("shards").get_ref<const json::object_t&>()) {
      record.shards.emplace(name, parse_shard(shard));
    }
    return record;
  } catch (const json::exception&) {
    refuse();
  }

 private:
  json parsed(const std::string& text) const try {
    return parse_strict(text, path_);
  } catch (const FormatError&) {
    refuse();
  }

  [[noreturn]] void refuse() const { fail(path_, {}, "the record of its shards is not valid"); }

  static std::uint64_t number(const json& value) {
    return value.get_ref<const json::number_unsigned_t&>();
  }

  std::uint32_t small_number(const json& value) const {
    const std::uint64_t given = number(value);
    if (given > std::numeric_limits<std::uint32_t>::max()) refuse();
    return static_cast<std::uint32_t>(given);
  }

  static Shape numbers(const json& value) {
    Shape list;
    for (const json& item : value.get_ref<const json::array_t&>()) list.push_back(number(item));
    return list;
  }

  SavedShard parse_shard(const json& value) const {
    SavedShard shard{numbers(value.at("shape")), small_number(value.at("axis")), {}};
    for (const json& interval : value.at("intervals").get_ref<const json::array_t&>()) {
      const Shape ends = numbers(interval);
      if (ends.size() != 2) refuse();
      shard.intervals.push_back({ends[0], ends[1]});
    }
    return shard;
  }

  const std::string& path_;
};

// Whether the shard is of a tensor of that shape, and the stored tensor is such a shard.
bool is_possible(const SavedShard& shard, const TensorInfo& stored) {
  if (shard.axis >= shard.shape.size() || shard.shape.size() != stored.shape.size()) return false;
  if (!core::tensor_bits(stored.dtype, shard.shape)) return false;
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
    check_names();
    return std::move(state_);
  }

 private:
  const std::string& path(std::uint32_t file) const { return catalog_.files()[file].path; }

  void add(std::uint32_t file) {
    Record record = RecordParser(path(file)).parse(records_[file]);
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
      auto found = record.shards.extract(tensor.name);
      if (!found) continue;
      if (!is_possible(found.mapped(), tensor)) {
        fail(path(file), tensor.name, "it is not the shard that the file's record says");
      }
      state_.shards[static_cast<std::size_t>(&tensor - catalog_.tensors().data())] =
          std::make_shared<const SavedShard>(std::move(found.mapped()));
    }
    if (record.shards.empty()) return;
    fail(path(file), record.shards.begin()->first,
         "the record of the file's shards names it, but the file does not have it");
  }

  // A rank has one tensor of each name, in whichever of its files.
  void check_names() const {
    const std::span<const TensorInfo> tensors = catalog_.tensors();
    std::vector<std::uint32_t> order(tensors.size());
    std::iota(order.begin(), order.end(), 0U);
    const auto key = [&](std::uint32_t i) {
      return std::tuple(state_.rank_of_file[tensors[i].file], std::string_view(tensors[i].name));
    };
    std::ranges::stable_sort(order, {}, key);
    const auto twin = std::ranges::adjacent_find(order, {}, key);
    if (twin == order.end()) return;
    const TensorInfo& second = tensors[*std::next(twin)];
    raise_format(FormatErrc::duplicate_tensor, {.path = path(second.file), .tensor = second.name},
                 "the tensor is also in " + path(tensors[*twin].file));
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
  // No group has a rank of the largest number: its size could not be counted.
  const bool counts = file.rank != std::numeric_limits<std::uint32_t>::max();
  return counts && name == name_of(file) ? std::optional(file) : std::nullopt;
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
