// Sharded states: the names of their files, their records, and how shards are joined again.
#include "format/sharded_state.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "safeshuffle/error.hpp"
#include "safeshuffle/loader.hpp"
#include "safeshuffle/plan.hpp"

#include "placement/join_shards.hpp"
#include "support/catalogs.hpp"
#include "support/catch.hpp"
#include "support/failure.hpp"
#include "support/in_memory_load.hpp"
#include "support/naive_target.hpp"
#include "support/random_targets.hpp"
#include "support/sanitizers.hpp"

using namespace safeshuffle;
using namespace safeshuffle::testing;
using format::parse_shard_name;

namespace {

std::optional<std::pair<std::uint32_t, std::uint32_t>> rank_and_part(const std::string& name) {
  const auto file = parse_shard_name(name);
  return file ? std::optional(std::pair(file->rank, file->part)) : std::nullopt;
}

/// Files that ranks have saved: of each, its rank and its tensors.
using Saved = std::vector<std::pair<std::uint32_t, std::vector<Made>>>;

Catalog saved_catalog(const Saved& saved) {
  std::vector<std::vector<Made>> files;
  std::vector<std::string> paths;
  std::map<std::uint32_t, int> parts;
  for (const auto& [rank, tensors] : saved) {
    paths.push_back("d/model-rank-" + std::to_string(rank) + "-part-" +
                    std::to_string(parts[rank]++) + ".safetensors");
    files.push_back(tensors);
  }
  return make_catalog(files, Catalog::Names::by_file, paths);
}

ErrorRecord refused(const Saved& saved, const std::vector<std::string>& records) {
  const ErrorRecord record = failure<FormatError>(
      [&] { static_cast<void>(format::parse_sharded_state(saved_catalog(saved), records)); });
  return record;
}

}  // namespace

TEST_CASE("names of shards", "[sharded_state]") {
  CHECK(rank_and_part("model-rank-10-part-2.safetensors") == std::pair(10U, 2U));
  CHECK(rank_and_part("model-rank-0-part-0.safetensors") == std::pair(0U, 0U));
  CHECK(format::shard_name(12) == "model-rank-12-part-0.safetensors");
  for (const char* name :
       {"model-rank-01-part-0.safetensors", "model-rank-1-part-00.safetensors",
        "model-rank--1-part-0.safetensors", "model-rank-+1-part-0.safetensors",
        "model-rank- 1-part-0.safetensors", "model-rank-1-part-.safetensors",
        "model-rank--part-0.safetensors", "model-rank-4294967296-part-0.safetensors",
        "model-rank-1-part-4294967296.safetensors", "model-rank-1-part-0.safetensors.index.json",
        "model-rank-1.safetensors", "model-rank-1-part-0-part-0.safetensors",
        "Model-rank-1-part-0.safetensors", "model-rank-", ".safetensors", "",
        "model-rank-4294967295-part-0.safetensors"}) {
    INFO(name);
    CHECK(!parse_shard_name(name));
  }
  CHECK(rank_and_part("model-rank-4294967294-part-4294967295.safetensors") ==
        std::pair(4294967294U, 4294967295U));
}

TEST_CASE("shards are ordered by part, then by rank as a number", "[sharded_state]") {
  std::vector<std::string> paths;
  for (const char* name : {"1-part-0", "10-part-0", "10-part-1", "2-part-0", "1-part-1"}) {
    paths.push_back("dir/model-rank-" + std::string(name) + ".safetensors");
  }
  CHECK(format::is_sharded_state(paths));
  format::order_shards(paths);
  std::vector<std::string> order;
  for (const std::string& path : paths) order.push_back(path.substr(15, path.size() - 27));
  CHECK(order ==
        std::vector<std::string>{"1-part-0", "2-part-0", "10-part-0", "1-part-1", "10-part-1"});
  std::vector<std::string> others{"b/model-rank-1-part-0.safetensors", "a/model.safetensors"};
  CHECK(!format::is_sharded_state(others));
  const std::vector<std::string> before = others;
  format::order_shards(others);
  CHECK(others == before);
  CHECK(!format::is_sharded_state({}));
}

TEST_CASE("a record that is written is read", "[sharded_state]") {
  const Saved saved{{0, {{"a", DType::F32, {3, 2}}, {"w", DType::U8, {5}}}},
                    {1, {{"a", DType::F32, {0, 2}}, {"w", DType::U8, {5}}}}};
  const SavedShard first{{3, 2}, 0, {{0, 1}, {1, 2}}};
  const SavedShard empty{{3, 2}, 0, {}};
  const ShardedState state = format::parse_sharded_state(
      saved_catalog(saved), {format::write_shard_record(0, 2, {{"a", first}}),
                             format::write_shard_record(1, 2, {{"a", empty}})});
  CHECK(state.recorded);
  CHECK(state.world == 2);
  CHECK(state.rank_of_file == std::vector<std::uint32_t>{0, 1});
  CHECK(*state.shards.at(0) == first);
  CHECK(state.shards.at(1) == nullptr);
  CHECK(*state.shards.at(2) == empty);
}

TEST_CASE("without records, the largest rank tells the size of the group", "[sharded_state]") {
  const Saved saved{{4294967294U, {{"a", DType::F32, {3, 2}}}}};
  const ShardedState state = format::parse_sharded_state(saved_catalog(saved), {""});
  CHECK(!state.recorded);
  CHECK(state.world == 4294967295U);
}

TEST_CASE("a record that is not valid is refused, naming the file", "[sharded_state]") {
  const auto with = [](const std::string& shards, const std::string& rank = "0",
                       const std::string& world = "2", const std::string& version = "1") {
    return R"({"version": )" + version + R"(, "rank": )" + rank + R"(, "world": )" + world +
           R"(, "shards": )" + shards + "}";
  };
  const auto shard = [&](const std::string& shape, const std::string& axis,
                         const std::string& intervals) {
    return with(R"({"a": {"shape": )" + shape + R"(, "axis": )" + axis + R"(, "intervals": )" +
                intervals + "}}");
  };
  // A stored tensor of 2 x 2, of rank 0.
  const Saved saved{{0, {{"a", DType::F32, {2, 2}}}}};
  const auto read = [&](const std::string& record) {
    return format::parse_sharded_state(saved_catalog(saved), {record});
  };
  CHECK_NOTHROW(read(shard("[4,2]", "0", "[[1,2]]")));
  const std::string huge = "18446744073709551615";
  for (const std::string& record :
       std::vector<std::string>{"{",
                                "[]",
                                "1",
                                "null",
                                "\"x\"",
                                R"({"version": 1})",
                                with("[]"),
                                with("null"),
                                with(R"([{"shape": [4,2], "axis": 0, "intervals": [[1,2]]}])"),
                                with("{}", "-1"),
                                with("{}", "0.5"),
                                with("{}", "true"),
                                with("{}", "\"0\""),
                                with("{}", "4294967296"),
                                with("{}", "[0]"),
                                with("{}", "0", "-2"),
                                with("{}", "0", "4294967298"),
                                with("{}", "0", "2.0"),
                                with("{}", "0", "1e400"),
                                with("{}", "0", "2", "1.0"),
                                with("{}", "0", "2", "true"),
                                with(R"({"a": 1})"),
                                with(R"({"a": {}})"),
                                R"({"world": 2, )" + with("{}").substr(1),
                                with(R"({"a": {"shape": [4,2], "shape": [4,2], "axis": 0, )"
                                     R"("intervals": [[1,2]]}})"),
                                shard("[4,2]", "-1", "[[1,2]]"),
                                shard("[4,2]", "4294967296", "[[1,2]]"),
                                shard("[4,2]", "false", "[[1,2]]"),
                                shard("[4.0,2]", "0", "[[1,2]]"),
                                shard("[-4,2]", "0", "[[1,2]]"),
                                shard("{\"0\":4}", "0", "[[1,2]]"),
                                shard("[4,2]", "0", "[1,2]"),
                                shard("[4,2]", "0", "[[1]]"),
                                shard("[4,2]", "0", "[[1,2,3]]"),
                                shard("[4,2]", "0", "[[-1,2]]"),
                                shard("[4,2]", "0", "[[1,2.0]]"),
                                shard("[4,2]", "0", "[[true,2]]"),
                                shard("[4,2]", "0", "{\"a\":[1,2]}"),
                                shard("[4,2]", "0", "[{\"a\":1,\"b\":2}]"),
                                std::string(100'000, '[') + std::string(100'000, ']'),
                                with(std::string(50'000, '['))}) {
    INFO(record.substr(0, 200));
    const ErrorRecord error = refused(saved, {record});
    CHECK(error.code == static_cast<std::int32_t>(FormatErrc::bad_shard_record));
    CHECK(error.file == "d/model-rank-0-part-0.safetensors");
    CHECK(error.cause == "the record of its shards is not valid");
  }
  for (const std::string& record :
       {shard("[4,2]", "1", "[[0,2]]"), shard("[4,2]", "2", "[[1,2]]"),
        shard("[4]", "0", "[[0,2]]"), shard("[4,2,1]", "0", "[[0,2]]"), shard("[]", "0", "[]"),
        shard("[4,3]", "0", "[[0,2]]"), shard("[4,2]", "0", "[]"), shard("[4,2]", "0", "[[0,1]]"),
        shard("[4,2]", "0", "[[3,2]]"), shard("[4,2]", "0", "[[1,1],[0,1]]"),
        shard("[4,2]", "0", "[[0,1],[0,1]]"), shard("[4,2]", "0", "[[0,2],[2,0]]"),
        shard("[4,2]", "0", "[[" + huge + ",2]]"), shard("[4,2]", "0", "[[2," + huge + "]]"),
        shard("[" + huge + ",2]", "0", "[[0,2]]"), shard("[9223372036854775808,2]", "0", "[[0,2]]"),
        shard("[4,2]", "0", "[[0,1],[1," + huge + "],[0,2]]")}) {
    INFO(record);
    const ErrorRecord error = refused(saved, {record});
    CHECK(error.tensor == "a");
    CHECK(error.cause == "it is not the shard that the file's record says");
  }
  CHECK(refused(saved, {with("{}", "0", "2", "2")}).cause ==
        "the record of its shards has another version than 1");
  CHECK(refused(saved, {with("{}", "1")}).cause == "it was saved by rank 1");
  CHECK(refused(saved, {with("{}", "0", "0")}).cause ==
        "it was saved by a group of 0 ranks, d/model-rank-0-part-0.safetensors by one of 0");
  const ErrorRecord unknown =
      refused(saved, {with(R"({"b": {"shape": [4], "axis": 0, "intervals": [[0,2]]}})")});
  CHECK(unknown.tensor == "b");
  CHECK(unknown.cause == "the record of the file's shards names it, but the file does not have it");
}

TEST_CASE("records that do not agree with each other are refused", "[sharded_state]") {
  const Saved saved{{0, {{"a", DType::F32, {2, 2}}}}, {1, {{"a", DType::F32, {2, 2}}}}};
  const auto record = [](std::uint32_t rank, std::uint32_t world) {
    return format::write_shard_record(rank, world, {});
  };
  CHECK(refused(saved, {record(0, 2), ""}).cause ==
        "it has no record of its shards, but d/model-rank-0-part-0.safetensors has");
  CHECK(refused(saved, {"", record(1, 2)}).file == "d/model-rank-0-part-0.safetensors");
  CHECK(refused(saved, {record(0, 2), record(1, 3)}).cause ==
        "it was saved by a group of 3 ranks, d/model-rank-0-part-0.safetensors by one of 2");
  CHECK(refused(saved, {record(0, 1), record(1, 1)}).file == "d/model-rank-1-part-0.safetensors");
}

TEST_CASE("a tensor in two files of one rank is refused", "[sharded_state]") {
  const Made a{"a", DType::F32, {2, 2}};
  const Saved twice{{0, {a}}, {1, {a}}, {1, {a}}};
  const auto record = [](std::uint32_t rank) { return format::write_shard_record(rank, 2, {}); };
  for (const auto& records : {std::vector<std::string>{"", "", ""},
                              std::vector<std::string>{record(0), record(1), record(1)}}) {
    const ErrorRecord error = refused(twice, records);
    CHECK(error.code == static_cast<std::int32_t>(FormatErrc::duplicate_tensor));
    CHECK(error.file == "d/model-rank-1-part-1.safetensors");
    CHECK(error.tensor == "a");
    CHECK(error.cause == "the tensor is also in d/model-rank-1-part-0.safetensors");
  }
}

TEST_CASE("a sharded state that lacks files is refused, however many", "[sharded_state]") {
  Checkpoint checkpoint;
  checkpoint.catalog = saved_catalog({{1, {{"a", DType::F32, {2, 2}}}}});
  const auto cause = [&](std::uint32_t world) {
    checkpoint.sharded_state = std::make_shared<const ShardedState>(format::parse_sharded_state(
        checkpoint.catalog, {format::write_shard_record(1, world, {})}));
    return failure<IoError>([&] {
             static_cast<void>(select_targets(checkpoint, TpPlan::replicate_all(), {}, 2));
           })
        .cause;
  };
  CHECK(cause(2) == "it was saved by one of 2 ranks, but there are no files of rank 0");
  CHECK(cause(4) == "it was saved by one of 4 ranks, but there are no files of ranks 0, 2, 3");
  CHECK(cause(4'000'000'000U) ==
        "it was saved by one of 4000000000 ranks, but there are no files of ranks 0, 2, 3, 4, 5, "
        "6, 7, 8 and 3999999991 more");
}

namespace {

/// A model, and what each rank of a group has saved of it.
class SavedModel {
 public:
  SavedModel(const Catalog& model, const std::vector<Placement>& placements, std::uint32_t world)
      : model_(model), placements_(placements), world_(world) {
    const std::vector<Target> targets = stored_targets(placements);
    Saved saved;
    std::vector<std::string> records;
    for (std::uint32_t rank = 0; rank < world; ++rank) {
      std::vector<Made> tensors;
      std::map<std::string, SavedShard> shards;
      for (const Target& target : targets) {
        if (!holds(target.placement, rank)) continue;
        const TensorInfo& tensor = model.tensors()[target.tensor];
        tensors.push_back(
            {tensor.name, tensor.dtype, shard_shape(tensor.shape, target.placement, rank, world)});
        const auto shard = placement::shard_of(target, model, rank, world);
        if (shard) shards.emplace(tensor.name, *shard);
      }
      saved.emplace_back(rank, tensors);
      records.push_back(format::write_shard_record(rank, world, shards));
    }
    catalog = saved_catalog(saved);
    state = format::parse_sharded_state(catalog, records);
  }

  /// Whether a target, before placement, is the model's tensor of that name.
  bool is_original(const Target& target) const {
    const auto original = static_cast<std::uint32_t>(index_of(name_of(target, catalog)));
    return shape_of(target, catalog) == model_.tensors()[original].shape &&
           whole_target(catalog, target, [&](std::uint32_t i) { return stored(i); }) ==
               bytes_of(original);
  }

  const Placement& placement_of(const TensorInfo& tensor) const {
    return placements_[index_of(tensor.name)];
  }

  Catalog catalog;
  ShardedState state;

 private:
  std::size_t index_of(const std::string& name) const {
    return static_cast<std::size_t>(model_.find(name) - model_.tensors().data());
  }

  std::vector<std::byte> bytes_of(std::size_t index) const {
    const TensorInfo& tensor = model_.tensors()[index];
    std::vector<std::byte> bytes(tensor.bytes);
    for (std::uint64_t i = 0; i < tensor.bytes; ++i) {
      bytes[i] = file_byte(tensor.file, tensor.file_offset + i);
    }
    return bytes;
  }

  // What the rank that saved it stored as tensor `index` of `catalog`.
  std::vector<std::byte> stored(std::uint32_t index) const {
    const TensorInfo& tensor = catalog.tensors()[index];
    const std::size_t original = index_of(tensor.name);
    return slice(bytes_of(original), model_.tensors()[original].shape, tensor.dtype,
                 placements_[original], state.rank_of_file[tensor.file], world_);
  }

  const Catalog& model_;
  const std::vector<Placement>& placements_;
  std::uint32_t world_;
};

void check_join(const Catalog& model, const std::vector<Placement>& placements, std::uint32_t from,
                std::uint32_t to) {
  const SavedModel saved(model, placements, from);
  placement::JoinedShards joined = placement::join_shards(saved.catalog, saved.state);
  std::vector<bool> originals;
  std::size_t same_size = 0;
  for (std::size_t i = 0; i < joined.targets.size(); ++i) {
    originals.push_back(saved.is_original(joined.targets[i]));
    joined.targets[i].placement = saved.placement_of(joined.whole.tensors()[i]);
    same_size += joined.whole.tensors()[i].shape == shape_of(joined.targets[i], saved.catalog);
  }
  CHECK(std::ranges::find(originals, false) == originals.end());
  CHECK(same_size == joined.targets.size());
  PlanOptions options;
  options.window = 4096;
  const Plan plan = make_plan(saved.catalog, joined.targets, to, options);
  CHECK_NOTHROW(plan.prove());
  CHECK(InMemoryLoad(plan.schedule()).result_is_right());
}

}  // namespace

TEST_CASE("random models: what one group saved is joined to the original", "[sharded_state]") {
  const auto batch = GENERATE(range(0, testing::cases(20)));
  for (std::uint32_t i = 0; i < 10; ++i) {
    const std::uint32_t seed = static_cast<std::uint32_t>(batch) * 10 + i;
    const RandomModel model = random_model(seed);
    const std::uint32_t from = 1 + seed % 8;
    const std::uint32_t to = seed % 3 == 0 ? from : 1 + seed * 7 / 3 % 8;
    CAPTURE(seed, from, to);
    check_join(model.catalog, model.placements, from, to);
  }
}

TEST_CASE("a rank may have all of a tensor, and the others nothing", "[sharded_state]") {
  const Catalog model = make_catalog({{{"one", DType::F32, {1, 3}},
                                       {"none", DType::F32, {0, 3}},
                                       {"flat", DType::F32, {4, 0}},
                                       {"few", DType::U8, {5, 2}},
                                       {"alone", DType::U8, {5, 2}},
                                       {"scalar", DType::F32, {}}}});
  const std::vector<Placement> placements{cut(0, 1, true),
                                          cut(0, 1, true),
                                          cut(0, 4, true),
                                          cut(0, 5, true),
                                          whole(Placement::Kind::single, 1),
                                          whole()};
  for (const std::uint32_t from : {1U, 2U, 4U, 7U}) {
    for (const std::uint32_t to : {2U, 4U, 7U}) {
      CAPTURE(from, to);
      check_join(model, placements, from, to);
    }
  }
}

TEST_CASE("shards that do not fit together are refused", "[sharded_state]") {
  struct Half {
    Made stored;
    std::optional<SavedShard> shard;
  };
  const auto cause = [](const Half& first, const Half& second) {
    const Catalog catalog = saved_catalog({{0, {first.stored}}, {1, {second.stored}}});
    std::vector<std::string> records;
    for (const Half* half : {&first, &second}) {
      std::map<std::string, SavedShard> shards;
      if (half->shard) shards.emplace("a", *half->shard);
      records.push_back(
          format::write_shard_record(static_cast<std::uint32_t>(records.size()), 2, shards));
    }
    const ShardedState state = format::parse_sharded_state(catalog, records);
    const ErrorRecord error =
        failure<FormatError>([&] { static_cast<void>(placement::join_shards(catalog, state)); });
    CHECK(error.code == static_cast<std::int32_t>(FormatErrc::bad_shard_record));
    CHECK(error.tensor == "a");
    return error.cause;
  };
  const Half good{{"a", DType::F32, {2, 4}}, SavedShard{{4, 4}, 0, {{0, 2}}}};
  const auto with = [&](std::vector<Interval> intervals) {
    return Half{good.stored, SavedShard{{4, 4}, 0, std::move(intervals)}};
  };
  const std::string gap = "the shards in all files leave a gap before it";
  const std::string rest = "all shards together are not the whole tensor";
  CHECK(cause(good, with({{1, 2}})) == rest);
  CHECK(cause(good, with({{0, 1}, {3, 1}})) == gap);
  CHECK(cause(with({{1, 2}}), with({{2, 2}})) == gap);
  CHECK(cause(good, good) == rest);
  const std::string misfit =
      "it does not fit with the tensor of this name in d/model-rank-0-part-0.safetensors";
  CHECK(cause(good, {{"a", DType::F32, {4, 2}}, SavedShard{{4, 4}, 1, {{2, 2}}}}) == misfit);
  CHECK(cause(good, {{"a", DType::F32, {2, 4}}, SavedShard{{5, 4}, 0, {{2, 2}}}}) == misfit);
  CHECK(cause(good, {{"a", DType::I32, {2, 4}}, SavedShard{{4, 4}, 0, {{2, 2}}}}) == misfit);
  CHECK(cause(good, {{"a", DType::F32, {2, 4}}, std::nullopt}) == misfit);
  CHECK(cause({{"a", DType::F32, {2, 4}}, std::nullopt},
              {{"a", DType::F32, {2, 5}}, std::nullopt}) == misfit);
  const Half empty{{"a", DType::F32, {0, 4}}, SavedShard{{0, 4}, 0, {}}};
  CHECK(cause(empty, empty) == "it is recorded as a shard of a tensor that cannot be divided");
}

TEST_CASE("shards of sub-byte types are joined", "[sharded_state]") {
  const Catalog model =
      make_catalog({{{"a", DType::F4, {4, 6}}, {"b", DType::F4, {2, 8}}, {"c", DType::F4, {6}}}});
  const std::vector<Placement> placements{cut(0, 2), cut(1, 2), cut(0, 3, true)};
  const SavedModel saved(model, placements, 2);
  placement::JoinedShards joined = placement::join_shards(saved.catalog, saved.state);
  for (const std::uint32_t world : {1U, 2U, 3U}) {
    const Plan plan = make_plan(saved.catalog, joined.targets, world);
    CHECK_NOTHROW(plan.prove());
    CHECK(plan.ranks()[0].kept_bytes == 12 + 8 + 3);
  }
}
