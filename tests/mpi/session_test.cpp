// Several loads of one opened checkpoint.
#include "safeshuffle/session.hpp"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "safeshuffle/loader.hpp"
#include "safeshuffle/mpi.hpp"

#include "core/error_wire.hpp"
#include "device/device.hpp"
#include "support/bindings.hpp"
#include "support/catalogs.hpp"
#include "support/catch.hpp"
#include "support/device_memory.hpp"
#include "support/group.hpp"
#include "support/own_process.hpp"
#include "support/pseudo_random.hpp"
#include "support/random_bindings.hpp"
#include "support/random_targets.hpp"
#include "support/sanitizers.hpp"
#include "support/shared_model.hpp"

using namespace safeshuffle;
using namespace safeshuffle::testing;

namespace {

/// Returns when all ranks have looked: a test may then change the files.
bool has(const TensorSet& loaded, std::size_t tensors) {
  const bool right = loaded.size() == tensors && is_right(loaded, world_rank());
  MPI_Barrier(MPI_COMM_WORLD);
  return right;
}

double seconds(const TensorSet& model, Phase phase) {
  return model.report().ranks[world_rank()].phases[static_cast<std::size_t>(phase)];
}

std::uint64_t read_bytes(const TensorSet& model) {
  std::uint64_t bytes = 0;
  for (const RankReport& rank : model.report().ranks) bytes += rank.read_bytes;
  return bytes;
}

/// Columns [begin, end) of rows of so many bytes.
std::vector<std::byte> columns(const std::vector<std::byte>& bytes, std::size_t row,
                               std::size_t begin, std::size_t end) {
  std::vector<std::byte> kept;
  for (std::size_t at = 0; at < bytes.size(); at += row) {
    const auto of_row = std::span(bytes).subspan(at + begin, end - begin);
    kept.insert(kept.end(), of_row.begin(), of_row.end());
  }
  return kept;
}

/// What this rank has of `extent` indices.
Interval own_share(std::uint64_t extent) {
  const std::uint64_t each = (extent + world_size() - 1) / world_size();
  const std::uint64_t begin = std::min(extent, each * world_rank());
  return {begin, std::min(extent, begin + each) - begin};
}

bool is_one(const TensorSet& loaded, const std::string& name, const std::vector<std::byte>& bytes) {
  return loaded.size() == 1 && loaded.begin()->name == name &&
         loaded_bytes(loaded, *loaded.begin()) == bytes;
}

Options exchanging_whole() {
  Options options = replicated();
  options.plan = exchanging();
  return options;
}

}  // namespace

TEST_CASE("a session loads one selection after the other", "[load][session]") {
  const SharedModel model(plain_model(5));
  Session session(model.path(), shared_group(), exchanging_whole());
  CHECK(session.catalog().tensors().size() == 10);

  const TensorSet small = session.load({.only = {"whole3"}, .skip = {}});
  const TensorSet large = session.load();  // takes larger buffers
  const TensorSet again = session.load({.only = {"cut*"}, .skip = {"cut0"}});
  CHECK(has(small, 1));
  CHECK(has(large, 10));
  CHECK(has(again, 4));

  // Only the first load tells of the opening, and each of its own reads.
  CHECK(seconds(small, Phase::open) > 0);
  CHECK(seconds(large, Phase::open) == 0);
  CHECK(read_bytes(small) == 8 << 10);
  CHECK(read_bytes(large) == 5 * (48 << 10));
  CHECK(read_bytes(again) == 4 * (40 << 10));
}

TEST_CASE("a load that fails leaves its session usable", "[load][session]") {
  const SharedModel model(plain_model(3));
  Session session(model.path(), shared_group(), exchanging_whole());
  const std::string file = model_file(model.path(), 1);
  const std::string away = model.path() + "/away";

  CHECK(has(session.load(), 6));
  model.directory.fill([&] { std::filesystem::rename(file, away); });
  const auto error = common_error([&] { session.load(); });
  REQUIRE(error);
  CHECK(error->kind == ErrorKind::io);
  CHECK(error->file == file);
  CHECK(has(session.load({.only = {"*2"}, .skip = {}}), 2));
  model.directory.fill([&] { std::filesystem::rename(away, file); });
  CHECK(has(session.load(), 6));
  CHECK(common_error([&] { session.load({.only = {"absent"}, .skip = {}}); }));
  CHECK(has(session.load(), 6));
}

TEST_CASE("a session goes on with new weights", "[load][session]") {
  const SharedModel model(plain_model(3));
  const SharedModel other(plain_model(4), 2);
  Session session(model.path(), shared_group(), exchanging_whole());
  CHECK(has(session.load(), 6));
  PlannedLoad planned = session.plan();
  session.reopen(other.path());
  CHECK(session.catalog().tensors().size() == 8);
  CHECK(has(session.load(), 8));
  CHECK(has(planned.run(), 6));  // of the first

  const auto error = common_error([&] { session.reopen("/nonexistent"); });
  REQUIRE(error);
  CHECK(error->kind == ErrorKind::io);
  other.directory.fill([&] { write_model(other.path(), other.catalog, 3); });
  CHECK(common_error([&] { session.load(); }));  // still the other's, but its files have changed
  session.reopen(other.path());
  CHECK(has(session.load(), 8));
}

TEST_CASE("tensors and planned loads outlive their session", "[load][session]") {
  const SharedModel model(plain_model(2));
  PlannedLoad planned = Session(model.path(), shared_group(), exchanging_whole()).plan();
  CHECK(has(planned.run(), 4));
}

TEST_CASE("whoever cancels a load ends it on all ranks", "[load][session]") {
  const SharedModel model(plain_model(5));
  Options options = exchanging_whole();
  options.plan.window = 8 << 10;  // several waves
  const auto canceller = static_cast<std::uint32_t>(world_size() / 2);
  std::uint64_t cancel_in = 0;  // wave
  Session* open = nullptr;
  options.on_progress = [&](const Progress& progress) {
    if (world_rank() == canceller && cancel_in != 0 && progress.wave == cancel_in) open->cancel(7);
  };
  Session session(model.path(), shared_group(), options);
  open = &session;
  for (cancel_in = 1; cancel_in <= 2; ++cancel_in) {
    const auto error = common_error([&] { session.load(); });
    REQUIRE(error);
    CHECK(error->kind == ErrorKind::cancelled);
    CHECK(error->code == 7);
    CHECK(error->rank == static_cast<std::int32_t>(canceller));
  }
  cancel_in = 0;
  CHECK(has(session.load(), 10));
  session.cancel();  // on all ranks: the next call, as none is in progress
  CHECK(common_error([&] { session.load(); }));
  CHECK(has(session.load(), 10));
}

TEST_CASE("ranks that read slices, too, learn of a cancel within about a second",
          "[load][session]") {
  const SharedModel model(plain_model(5));
  Options options;
  options.tp_plan = "replicate";
  options.plan.assignment = Assignment::sliced;
  options.plan.window = 8 << 10;
  std::uint64_t waves = 0;
  Session* open = nullptr;
  options.on_progress = [&](const Progress& progress) {
    if (progress.wave == std::exchange(waves, progress.wave)) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    if (world_rank() == 0 && progress.wave == 8) open->cancel();
  };
  Session session(model.path(), shared_group(), options);
  open = &session;
  REQUIRE(session.plan().plan().waves() > 20);
  const auto error = common_error([&] { session.load(); });
  REQUIRE(error);
  CHECK(error->kind == ErrorKind::cancelled);
  CHECK(waves < 14);
}

TEST_CASE("cancelled at any moment, by any rank, a session goes on and leaks nothing",
          "[load][session]") {
  const SharedModel model(plain_model(5));
  Options options = exchanging_whole();
  options.plan.window = 8 << 10;  // several waves
  const bool slices = GENERATE(false, true);
  if (slices) options.plan.assignment = Assignment::sliced;
  Session session(model.path(), shared_group(), options);
  const auto device = shared_group().device_handle();
  const std::size_t bytes = model.catalog.tensor_bytes();
  const std::shared_ptr<std::byte> memory = device->allocate(bytes);
  const auto bindings = whole_tensors(model.catalog, memory.get());
  Bytes stored;
  for (const TensorInfo& tensor : model.catalog.tensors()) {
    std::ranges::copy(stored_bytes(model.catalog, tensor), std::back_inserter(stored));
  }
  const auto is_whole = [&](int way = 0) {
    if (way == 0) return is_right(session.load(), world_rank());
    if (way == 1) {
      session.load_into(bindings);
      return download(*device, memory.get(), bytes) == stored;
    }
    Stream stream = session.stream({}, {.group_bytes = 100 << 10, .alive = 1});
    bool right = true;
    while (const auto group = stream.next()) right = right && is_right(*group, world_rank());
    return right;
  };
  REQUIRE(is_whole());
  const auto begin = core::Clock::now();
  REQUIRE(is_whole());
  const std::chrono::duration<double, std::micro> usual = core::Clock::now() - begin;
  const std::ptrdiff_t threads = running_threads();
  const std::ptrdiff_t descriptors = open_descriptors();

  const bool often = (world_size() == 2 || world_size() == 4) && !slices;
  const int cancels = often && !tests_gpus() ? testing::cases(200) : 20;
  PseudoRandom random(world_size());  // the same on all ranks
  int cancelled = 0;
  for (int i = 0; i < cancels; ++i) {
    const bool is_mine = random.below(world_size()) == world_rank();
    const auto delay = usual * static_cast<double>(random.below(100)) / 80;
    std::string outcome = "whole";
    {
      std::jthread canceller([&] {
        std::this_thread::sleep_for(delay);
        if (is_mine) session.cancel();
      });
      if (const auto error = error_of([&] { outcome = is_whole(i % 3) ? "whole" : "wrong"; })) {
        outcome = core::encode(*error);
        if (error->kind == ErrorKind::cancelled) ++cancelled;
      }
    }
    REQUIRE(same_on_all(outcome));
    REQUIRE(outcome != "wrong");
  }
  CHECK(cancelled > cancels / 10);
  error_of([&] { session.load(); });  // which may have been cancelled last
  CHECK(is_whole());
  CHECK(threads_come_down_to(threads));
  CHECK(open_descriptors() == descriptors);
  MPI_Barrier(MPI_COMM_WORLD);
}

TEST_CASE("single tensors are had on demand", "[load][session]") {
  const SharedModel model(plain_model(3));
  Options options = replicated();
  options.plan.assignment = GENERATE(Assignment::round_robin, Assignment::automatic);
  Session session(model.path(), shared_group(), options);
  const auto stored = [&](const std::string& name) {
    return stored_bytes(model.catalog, *model.catalog.find(name));
  };
  constexpr std::uint64_t row = 128 * 4;  // bytes; "cut*" have 80
  const Interval rows = own_share(80);
  const Interval across = own_share(128);
  const auto own_rows = [&](const std::string& name) {
    return columns(stored(name), 80 * row, rows.begin * row, (rows.begin + rows.length) * row);
  };
  const auto own_columns = [&](const std::string& name) {
    return columns(stored(name), row, 4 * across.begin, 4 * (across.begin + across.length));
  };

  CHECK(is_one(session.get_tensor("whole1"), "whole1", stored("whole1")));
  CHECK(is_one(session.get_tensor("cut2"), "cut2", stored("cut2")));
  CHECK(is_one(session.get_sharded("cut0", 0), "cut0", own_rows("cut0")));
  CHECK(is_one(session.get_sharded("cut0", 1), "cut0", own_columns("cut0")));
  const std::uint32_t last = world_size() - 1;
  const TensorSet pushed = session.push("cut1", last);
  CHECK((world_rank() == last ? is_one(pushed, "cut1", stored("cut1")) : pushed.size() == 0));

  std::vector<std::byte> joined = own_rows("cut2");
  for (const std::byte byte : own_rows("cut0")) joined.push_back(byte);
  CHECK(is_one(session.get_columns({"cut2", "cut0"}, 0), "cut2+cut0", joined));
  joined = own_rows("cut2");
  for (const std::byte byte : own_rows("cut2")) joined.push_back(byte);
  CHECK(is_one(session.get_columns({"cut2", "cut2"}, 0), "cut2+cut2", joined));
  MPI_Barrier(MPI_COMM_WORLD);
}

TEST_CASE("what is had on demand is converted, and may be nothing on some ranks",
          "[load][session]") {
  const SharedModel model(RandomModel{make_catalog({{{"bf16", DType::BF16, {3, 40}},
                                                     {"f32", DType::F32, {3, 16}},
                                                     {"u8", DType::U8, {3, 7}},
                                                     {"u8 wide", DType::U8, {3, 9}},
                                                     {"f4", DType::F4, {3, 6}}}}),
                                      std::vector<Placement>(5, whole())});
  Options options = exchanging_whole();
  options.plan.dtype = GENERATE(DTypePolicy::keep, DTypePolicy::f16);
  Session session(model.path(), shared_group(), options);
  const TensorSet all = session.load();
  CHECK(is_right(all, world_rank()));
  const Interval rows = own_share(3);
  for (const TensorView& view : all) {
    CAPTURE(view.name, world_rank());
    const std::string name(view.name);
    const auto whole_bytes = loaded_bytes(all, view);
    const std::size_t row = view.bytes / 3;
    const auto own =
        columns(whole_bytes, view.bytes, rows.begin * row, (rows.begin + rows.length) * row);
    CHECK(is_one(session.get_tensor(name), name, whole_bytes));
    CHECK(is_one(session.get_sharded(name, 0), name, own));
    CHECK(is_one(session.get_slice(name, {{1, 2}}), name,
                 columns(whole_bytes, view.bytes, row, 3 * row)));
  }
  CHECK(session.get_columns({"u8", "u8 wide"}, 1).begin()->shape[0] == 3);
  CHECK(common_error([&] { session.get_columns({"u8", "u8 wide"}, 0); }));
  CHECK(common_error([&] { session.get_columns({"bf16", "f4"}, 1); }));
  MPI_Barrier(MPI_COMM_WORLD);
}

TEST_CASE("on demand, each replica has all of a tensor", "[load][session]") {
  if (world_size() % 2 != 0) return;
  const SharedModel model(plain_model(2));
  Options options = exchanging_whole();
  options.plan.replicas = 2;
  Session session(model.path(), shared_group(), options);
  const std::uint32_t ranks = world_size() / 2;
  const std::uint32_t rank = world_rank() % ranks;
  const auto stored = stored_bytes(model.catalog, *model.catalog.find("cut0"));
  const std::size_t share = stored.size() / 80 * ((80 + ranks - 1) / ranks);
  const auto own =
      columns(stored, stored.size(), share * rank, std::min(stored.size(), share * (rank + 1)));
  CHECK(is_one(session.get_tensor("cut0"), "cut0", stored));
  CHECK(is_one(session.get_sharded("cut0", 0), "cut0", own));
  const TensorSet pushed = session.push("cut0", ranks - 1);
  CHECK((rank == ranks - 1 ? is_one(pushed, "cut0", stored) : pushed.size() == 0));
  const auto error = common_error([&] { session.get_slice("cut0", {{0, 1}}); });
  REQUIRE(error);
  CHECK(error->kind == ErrorKind::config);
  MPI_Barrier(MPI_COMM_WORLD);
}

TEST_CASE("calls on demand that cannot be are errors on all ranks", "[load][session]") {
  const SharedModel model(plain_model(3));
  Session session(model.path(), shared_group(), replicated());
  const auto cause = [&](const auto& call, ErrorKind kind = ErrorKind::config) {
    const auto error = common_error(call);
    REQUIRE(error);
    CHECK(error->kind == kind);
    return describe(*error);
  };
  const auto says = [](const char* words) { return Catch::Contains(words); };
  CHECK_THAT(cause([&] { session.get_tensor("absent"); }), says("no tensor 'absent'"));
  CHECK_THAT(cause([&] { session.get_sharded("whole0", 1); }), says("'whole0': it has 1 dim"));
  CHECK_THAT(cause([&] { session.push("whole0", world_size()); }, ErrorKind::plan),
             says("'whole0'"));
  CHECK_THAT(cause([&] { session.get_columns({"cut0", "whole0"}, 0); }), says("'whole0'"));
  CHECK_THAT(cause([&] { session.get_columns({}, 0); }), says("no tensor was named"));
  if (world_size() > 1) {
    const std::string mine = world_rank() == 0 ? "whole0" : "whole1";
    CHECK_THAT(cause([&] { session.get_tensor(mine); }),
               says("called get_tensor of 'whole1', while rank 0 called get_tensor of"));
    const std::uint64_t begin = world_rank();
    CHECK_THAT(cause([&] { session.get_slice("cut0", {{begin, 0}}); }), says("'cut0' 0:0"));
    CHECK_THAT(cause([&] { world_rank() == 0 ? session.get_tensor(mine) : session.load(); }),
               says("called load, while rank 0 called get_tensor"));
  }
  CHECK(has(session.load(), 6));
}

TEST_CASE("loads that differ between ranks are told apart", "[load][session]") {
  if (world_size() == 1) return;
  const SharedModel model(plain_model(3));
  const SharedModel same_shapes(plain_model(3), 2);
  Session session(model.path(), shared_group(), exchanging_whole());
  Session other(same_shapes.path(), shared_group(), exchanging_whole());
  Session& own = world_rank() == 0 ? session : other;
  const auto cause = [](const auto& call) {
    const auto error = common_error(call);
    REQUIRE(error);
    return error->cause;
  };
  PlannedLoad first = session.plan({.only = {"cut0"}, .skip = {}});
  PlannedLoad second = session.plan({.only = {"cut1"}, .skip = {}});
  PlannedLoad& one = world_rank() == 0 ? first : second;
  CHECK_THAT(cause([&] { one.run(); }), Catch::Contains("different plan"));
  CHECK_THAT(cause([&] { world_rank() == 0 ? first.run() : session.get_tensor("cut0"); }),
             Catch::Contains("called get_tensor of 'cut0', while rank 0 called run"));
  CHECK_THAT(cause([&] { own.get_tensor("cut0"); }), Catch::Contains("another checkpoint"));
  {
    Stream stream = session.stream({}, {.group_bytes = 48 << 10, .alive = 2});
    Stream others = other.stream({}, {.group_bytes = 48 << 10, .alive = 2});
    CHECK_THAT(cause([&] { (world_rank() == 0 ? stream : others).next(); }),
               Catch::Contains("different sessions"));
  }
  CHECK(has(first.run(), 1));
  CHECK(has(session.load(), 6));
}

TEST_CASE("slices of any dimensions are had on demand", "[load][session]") {
  const SharedModel model(plain_model(3));
  Options options = replicated();
  options.plan.assignment = GENERATE(Assignment::round_robin, Assignment::automatic);
  Session session(model.path(), shared_group(), options);
  const auto stored = stored_bytes(model.catalog, *model.catalog.find("cut1"));
  constexpr std::uint64_t row = 128 * 4;
  const auto rows = columns(stored, 80 * row, 7 * row, 19 * row);
  CHECK(is_one(session.get_slice("cut1", {}), "cut1", stored));
  CHECK(is_one(session.get_slice("cut1", {{7, 12}}), "cut1", rows));
  CHECK(is_one(session.get_slice("cut1", {{0, 80}, {3, 5}}), "cut1", columns(stored, row, 12, 32)));
  const TensorSet both = session.get_slice("cut1", {{7, 12}, {3, 5}});
  CHECK(is_one(both, "cut1", columns(rows, row, 12, 32)));
  CHECK(std::ranges::equal(both.begin()->shape, Shape{12, 5}));
  CHECK(session.get_slice("cut1", {{80, 0}}).begin()->bytes == 0);
  CHECK(both.report().ranks[0].peak_device_bytes >= both.begin()->bytes);
  CHECK(common_error([&] { verify(both, shared_group()); }));
  const auto error = common_error([&] { session.get_slice("cut1", {{0, 80}, {100, 29}}); });
  REQUIRE(error);
  CHECK_THAT(error->cause, Catch::Contains("dimension 1 has 128 indices"));
  CHECK(common_error([&] { session.get_slice("cut1", {{}, {}, {}}); }));
}

namespace {

std::vector<std::string> names_of(const TensorSet& loaded) {
  std::vector<std::string> names;
  for (const TensorView& view : loaded) names.emplace_back(view.name);
  return names;
}

}  // namespace

TEST_CASE("a stream has every tensor once, in groups of bounded size", "[load][session][stream]") {
  const SharedModel model(plain_model(5));
  Options options = replicated();
  std::vector<std::uint64_t> done;
  std::uint64_t total = 0;
  options.on_progress = [&](const Progress& progress) {
    done.push_back(progress.bytes);
    total = progress.total_bytes;
  };
  Session session(model.path(), shared_group(), options);
  Stream stream = session.stream({}, {.group_bytes = 100 << 10, .alive = 1});
  CHECK(common_error([&] { session.load(); }));  // the stream has begun to read
  std::vector<std::string> names;
  std::size_t groups = 0;
  for (auto group = stream.next(); group; group.reset(), group = stream.next()) {
    ++groups;
    CHECK(is_right(*group, world_rank()));
    CHECK(group->plan().ranks()[world_rank()].arena_bytes <= 100 << 10);
    for (const std::string& name : names_of(*group)) names.push_back(name);
  }
  CHECK_FALSE(stream.next());
  CHECK(std::ranges::is_sorted(done));
  CHECK(total == model.catalog.tensor_bytes());
  CHECK(done.back() == total);
  std::ranges::sort(names);
  CHECK(names == names_of(session.load()));
  CHECK(groups == 3);  // of two files' 48 KiB
  MPI_Barrier(MPI_COMM_WORLD);
}

TEST_CASE("who holds too many groups of a stream is told", "[load][session][stream]") {
  const SharedModel model(plain_model(5));
  Session session(model.path(), shared_group(), replicated());
  Stream stream = session.stream({}, {.group_bytes = 48 << 10, .alive = 2});
  auto first = stream.next();
  auto second = stream.next();
  // Rank 0 alone holds them, and all ranks are told.
  if (world_rank() != 0) first.reset();
  const auto error = common_error([&] { stream.next(); });
  REQUIRE(error);
  CHECK(error->kind == ErrorKind::memory);
  CHECK(error->rank == 0);
  first.reset();
  auto third = stream.next();
  REQUIRE(third);
  CHECK(is_right(*third, world_rank()));

  const auto large =
      common_error([&] { session.stream({}, {.group_bytes = 4 << 10, .alive = 1}); });
  REQUIRE(large);
  CHECK(large->kind == ErrorKind::memory);
  CHECK(large->tensor == "cut0");
  MPI_Barrier(MPI_COMM_WORLD);
}

TEST_CASE("a memory budget must hold all groups of a stream", "[load][session][stream][host]") {
  const SharedModel model(plain_model(5));
  constexpr std::uint64_t group_bytes = 48 << 10;
  Options options = exchanging_whole();
  options.plan.window = 40 << 10;  // the least for this model
  const auto open = [&] { return Session(model.path(), shared_group(), options); };
  std::uint64_t needed = 0;
  Session session = open();
  Stream stream = session.stream({}, {.group_bytes = group_bytes, .alive = 1});
  while (const auto group = stream.next()) {
    for (const RankSummary& rank : group->plan().ranks()) {
      needed = std::max(needed, rank.peak_device_bytes);
    }
  }
  options.plan.memory_budget = needed + 2 * group_bytes;
  Session within = open();
  const auto error =
      common_error([&] { within.stream({}, {.group_bytes = group_bytes, .alive = 3}); });
  REQUIRE(error);
  CHECK(error->kind == ErrorKind::memory);
  Stream two = within.stream({}, {.group_bytes = group_bytes, .alive = 2});
  while (const auto group = two.next()) CHECK(is_right(*group, world_rank()));
  MPI_Barrier(MPI_COMM_WORLD);
}

TEST_CASE("a stream ends, whatever the caller holds", "[load][session][stream]") {
  const SharedModel model(plain_model(2));
  Session session(model.path(), shared_group(), replicated());
  Stream stream = session.stream({}, {.group_bytes = 1 << 20, .alive = 1});
  const auto all = stream.next();
  REQUIRE(all);
  CHECK_FALSE(stream.next());
  CHECK(has(*all, 4));
}

TEST_CASE("streams of other tensors, and other calls, are errors on all ranks",
          "[load][session][stream]") {
  const SharedModel model(plain_model(2));
  Session session(model.path(), shared_group(), replicated());
  const Selection mine{.only = {world_rank() == 0 ? "cut*" : "*"}, .skip = {}};
  if (world_size() > 1) {
    const auto other = common_error([&] { session.stream(mine); });
    REQUIRE(other);
    CHECK(other->kind == ErrorKind::plan);
    const auto call = common_error([&] {
      world_rank() == 0 ? session.reopen(model.path()) : static_cast<void>(session.load());
    });
    REQUIRE(call);
    CHECK_THAT(call->cause, Catch::Contains("while rank 0 called open"));
  }
  PlannedLoad planned = session.plan();
  {
    const Stream stream = session.stream({});
    CHECK(common_error([&] { planned.run(); }));
  }
  CHECK(has(planned.run(), 4));  // has not been used up
  CHECK(common_error([&] { planned.run(); }));
}

namespace {

/// Two files: layers 0 and 2, and what is beside layers; layers 1 and 3.
RandomModel layered_model() {
  const auto layer = [](std::size_t number) {
    return Made{numbered("model.layers.", number) + ".weight", DType::F32, {80, 128}};
  };
  const std::vector<std::vector<Made>> files{
      {layer(0), layer(2), {"lm_head.weight", DType::F32, {16, 128}}},
      {layer(1), {"model.embed.weight", DType::F32, {16, 128}}, layer(3)}};
  return {make_catalog(files), std::vector<Placement>(6, whole())};
}

}  // namespace

TEST_CASE("the caller learns what is ready, layer by layer", "[load][session]") {
  const SharedModel model(layered_model());
  Options options = replicated();
  options.plan.order = Order::layer;
  options.plan.assignment = GENERATE(Assignment::striped, Assignment::sliced);
  options.plan.window = 64 << 10;
  std::vector<std::string> tensors;
  std::vector<std::uint64_t> layers;
  std::vector<std::uint64_t> everywhere;
  bool in_order = true;
  options.on_ready = [&](const Ready& ready) {
    if (ready.what == Ready::What::tensor) tensors.emplace_back(ready.tensor->name);
    if (ready.what == Ready::What::layer) layers.push_back(ready.layer);
    if (ready.what == Ready::What::layer_everywhere) everywhere.push_back(ready.layer);
    in_order = in_order && everywhere.size() <= layers.size() && layers.size() <= tensors.size();
  };
  const TensorSet loaded = load(model.path(), shared_group(), options);
  CHECK(is_right(loaded, world_rank()));
  CHECK(in_order);
  CHECK(tensors.size() == 6);
  const auto place = [&](const char* name) { return std::ranges::find(tensors, name); };
  CHECK(place("model.embed.weight") < place("model.layers.1.weight"));
  CHECK(place("lm_head.weight") > place("model.layers.2.weight"));
  std::ranges::sort(tensors);
  CHECK(tensors == names_of(loaded));
  CHECK(layers == std::vector<std::uint64_t>{0, 1, 2, 3});
  CHECK(everywhere == layers);
  const RankReport& report = loaded.report().ranks[world_rank()];
  CHECK(report.first_tensor_seconds > 0);
  CHECK(report.first_layer_seconds >= report.first_tensor_seconds);
  CHECK(report.first_layer_seconds < report.total_seconds);
  MPI_Barrier(MPI_COMM_WORLD);
}

TEST_CASE("a layer is ready everywhere when the last rank has been told of it", "[load][session]") {
  const SharedModel model(layered_model());
  const std::string marker = model.path() + "/here";
  Options options = replicated();
  options.plan.order = Order::layer;
  options.plan.assignment = GENERATE(Assignment::striped, Assignment::sliced);
  options.plan.window = 64 << 10;
  model.directory.fill([&] { std::filesystem::remove(marker); });
  bool is_here = true;
  options.on_ready = [&](const Ready& ready) {
    if (ready.layer != 0) return;
    if (ready.what == Ready::What::layer && is_last_rank()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      std::ofstream(marker).put('!');
    }
    if (ready.what == Ready::What::layer_everywhere) is_here = std::filesystem::exists(marker);
  };
  load(model.path(), shared_group(), options);
  CHECK(is_here);
  MPI_Barrier(MPI_COMM_WORLD);
}

TEST_CASE("of what fills memory of the caller, it learns layer by layer", "[load][session]") {
  const SharedModel model(layered_model());
  const auto memory = shared_group().device_handle()->allocate(model.catalog.tensor_bytes());
  Options options = replicated();
  options.plan.order = Order::layer;
  std::vector<std::uint64_t> layers;
  bool has_tensors = false;
  options.on_ready = [&](const Ready& ready) {
    if (ready.what == Ready::What::tensor) has_tensors = true;
    if (ready.what == Ready::What::layer_everywhere) layers.push_back(ready.layer);
  };
  Session session(model.path(), shared_group(), options);
  session.load_into(whole_tensors(model.catalog, memory.get()));
  CHECK(layers == std::vector<std::uint64_t>{0, 1, 2, 3});
  CHECK_FALSE(has_tensors);
  MPI_Barrier(MPI_COMM_WORLD);
}

TEST_CASE("what a callback throws when a layer is ready ends the load on all ranks",
          "[load][session]") {
  const SharedModel model(layered_model());
  Options options = replicated();
  options.plan.order = Order::layer;
  options.on_ready = [](const Ready& ready) {
    if (world_rank() == 0 && ready.what == Ready::What::layer_everywhere && ready.layer == 3) {
      throw ConfigError("enough");
    }
  };
  const auto error = common_error([&] { load(model.path(), shared_group(), options); });
  REQUIRE(error);
  CHECK(error->cause == "enough");
}

TEST_CASE("a stream follows the layers of the model", "[load][session][stream]") {
  const SharedModel model(layered_model());
  Session session(model.path(), shared_group(), replicated());
  Stream stream = session.stream({}, {.group_bytes = 48 << 10, .alive = 1});
  std::vector<std::string> names;
  for (auto group = stream.next(); group; group.reset(), group = stream.next()) {
    for (const std::string& name : names_of(*group)) names.push_back(name);
  }
  // Within a group, by name: the embedding and layer 0, each layer, and layer 3 and the head.
  CHECK(names == std::vector<std::string>{"model.embed.weight", "model.layers.0.weight",
                                          "model.layers.1.weight", "model.layers.2.weight",
                                          "lm_head.weight", "model.layers.3.weight"});
  MPI_Barrier(MPI_COMM_WORLD);
}

namespace {

/// Bindings that planned with invented memory, in memory of this device.
class BoundMemory {
 public:
  BoundMemory(std::vector<Binding> bindings, std::size_t bytes)
      : bindings_(std::move(bindings)),
        device_(shared_group().device_handle()),
        memory_(upload(*device_, Bytes(bytes, untouched))),
        bytes_(bytes) {
    for (Binding& binding : bindings_) {
      binding.data = memory_.get() + (binding.data - invented_memory(0));
    }
  }

  const std::vector<Binding>& bindings() const { return bindings_; }

  Bytes bytes() const { return download(*device_, memory_.get(), bytes_); }

  static constexpr std::byte untouched{0xa5};

 private:
  std::vector<Binding> bindings_;
  std::shared_ptr<device::Device> device_;
  std::shared_ptr<std::byte> memory_;
  std::size_t bytes_;
};

std::size_t end_of(const std::vector<Binding>& bindings) {
  std::uint64_t end = 1;
  for (const Binding& binding : bindings) {
    for_each_element(binding, [&](std::uint64_t, std::uint64_t element) {
      const auto begin = static_cast<std::uint64_t>(binding.data - invented_memory(0));
      end = std::max(end, begin + (element + 1) * bits(binding.dtype) / 8 + 1);
    });
  }
  return end;
}

/// Whether all bytes that are to be written are as they would be, copied one by one, and no others
/// are.
bool are_filled(const Bytes& bytes, const FilledMemory& expected) {
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] != (expected.writes[i] != 0 ? expected.bytes[i] : BoundMemory::untouched)) {
      return false;
    }
  }
  return true;
}

}  // namespace

TEST_CASE("memory that may still be written to is kept, and let go otherwise",
          "[load][session][bindings][host]") {
  const SharedModel model(plain_model(2));
  const Catalog& catalog = model.catalog;
  const auto lend = [&](Session& session, std::weak_ptr<void>& kept) {
    const auto memory = std::make_shared<std::vector<std::byte>>(catalog.tensor_bytes());
    kept = memory;
    session.load_into(whole_tensors(catalog, memory->data()), memory);
  };
  Options options = exchanging_whole();
  options.plan.window = 8 << 10;
  options.timeout = std::chrono::seconds(1);
  std::weak_ptr<void> kept;
  bool is_late = false;
  options.on_progress = [&](const Progress& progress) {
    if (!is_late || progress.wave == 0) return;
    if (std::exchange(is_late, false)) std::this_thread::sleep_for(std::chrono::seconds(5));
  };
  {
    const Communicator comm = from_mpi(MPI_COMM_WORLD, Device::host());
    Session session(model.path(), comm, options);
    lend(session, kept);
    CHECK(kept.expired());
    is_late = world_size() > 1 && is_last_rank();
    if (world_size() > 1) {
      const auto error = error_of([&] { lend(session, kept); });
      REQUIRE(error);
      if (!is_last_rank()) CHECK(error->kind == ErrorKind::timeout);
    }
  }
  if (world_size() > 1 && !is_last_rank()) CHECK_FALSE(kept.expired());
  MPI_Barrier(MPI_COMM_WORLD);
}

TEST_CASE("ranks fill memory of their own from anything", "[load][session][bindings]") {
  const std::uint32_t seed = GENERATE(range(0U, testing::cases(12U)));
  CAPTURE(seed);
  const BoundModel made = BoundModelMaker(seed, world_size()).make();
  const SharedModel model(RandomModel{made.catalog, {}}, seed);
  Options options = replicated();
  options.plan.window = seed % 2 == 0 ? 4 << 10 : 0;
  options.plan.assignment = seed % 3 == 0 ? Assignment::sliced : Assignment::striped;
  const std::vector<Binding>& bindings = made.bindings[world_rank()];
  const std::size_t end = end_of(bindings);
  const FilledMemory expected =
      fill_naively(model.catalog, bindings, invented_memory(0), end, [&](const std::string& name) {
        return stored_bytes(model.catalog, *model.catalog.find(name));
      });
  Session session(model.path(), shared_group(), options);
  for (int again = 0; again < 2; ++again) {  // as after sleeping
    BoundMemory memory(bindings, end);
    const Report report = session.load_into(memory.bindings());
    CHECK(report.ranks.size() == world_size());
    CHECK(are_filled(memory.bytes(), expected));
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

TEST_CASE("targets of any kind fill memory of the caller as a load fills its own",
          "[load][session][bindings]") {
  const std::uint32_t seed = GENERATE(range(0U, testing::cases(12U)));
  CAPTURE(seed);
  const RandomTargets made = random_targets(seed);
  const SharedModel model({made.catalog, {}}, seed);
  const std::vector<Target> targets = targets_for(model.catalog, made);
  Options options = replicated();
  options.plan = with_window(4096);
  options.plan.dtype = seed % 2 == 0 ? DTypePolicy::keep : DTypePolicy::f16;
  const TensorSet loaded =
      load(make_plan(model.catalog, targets, world_size(), options.plan), shared_group(), options);
  const auto device = shared_group().device_handle();
  std::vector<std::shared_ptr<std::byte>> memory;
  std::vector<Binding> bindings;
  for (const TensorView& view : loaded) {
    memory.push_back(view.bytes == 0 ? nullptr : device->allocate(view.bytes));
    std::ranges::move(bindings_of(model.catalog, targets[view.index], world_rank(), world_size(),
                                  {memory.back().get(), view.dtype}),
                      std::back_inserter(bindings));
  }
  Session(model.path(), shared_group(), options).load_into(bindings);
  for (std::size_t i = 0; i < loaded.size(); ++i) {
    const TensorView& view = loaded.begin()[i];
    CAPTURE(view.name);
    CHECK((view.bytes == 0 ||
           download(*device, memory[i].get(), view.bytes) == loaded_bytes(loaded, view)));
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

TEST_CASE("parameters are filled by name", "[load][session][bindings]") {
  const SharedModel model(plain_model(2));
  Session session(model.path(), shared_group(), replicated());
  const auto device = shared_group().device_handle();
  const auto memory = device->allocate(80 * 128 * 4);
  const Parameter parameter{"cut1", memory.get(), DType::F32, {80, 128}};
  session.load_into(std::span(&parameter, 1));
  std::vector<std::byte> bytes(80 * 128 * 4);
  device->copy_to_host(bytes.data(), memory.get(), bytes.size());
  CHECK(bytes == stored_bytes(model.catalog, *model.catalog.find("cut1")));

  Parameter wrong = parameter;
  wrong.shape = {128, 80};
  const auto shape = common_error([&] { session.load_into(std::span(&wrong, 1)); });
  REQUIRE(shape);
  CHECK_THAT(describe(*shape), Catch::Contains("'cut1'") && Catch::Contains("[80, 128]"));
  wrong = parameter;
  wrong.name = "absent";
  CHECK(common_error([&] { session.load_into(std::span(&wrong, 1)); }));
  const std::vector<Parameter> twice{parameter, {"cut0", memory.get(), DType::F32, {80, 128}}};
  const auto overlap = common_error([&] { session.load_into(twice); });
  REQUIRE(overlap);
  CHECK_THAT(describe(*overlap), Catch::Contains("cut0") && Catch::Contains("cut1"));
  MPI_Barrier(MPI_COMM_WORLD);
}
