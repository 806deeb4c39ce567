// What loads leave in the page cache.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "safeshuffle/loader.hpp"
#include "safeshuffle/session.hpp"

#include "core/deadline.hpp"
#include "core/page_cache.hpp"
#include "core/posix_file.hpp"
#include "support/cached_pages.hpp"
#include "support/catch.hpp"
#include "support/device_memory.hpp"
#include "support/group.hpp"
#include "support/shared_model.hpp"

using namespace safeshuffle;
using namespace safeshuffle::testing;

namespace {

/// Files of two tensors, 3 MiB to split along one axis or the other, and 512 KiB to replicate.
RandomModel large_model(std::uint32_t files) {
  std::vector<std::vector<Made>> made;
  std::vector<Placement> placements;
  for (std::uint32_t file = 0; file < files; ++file) {
    made.push_back({{numbered("cut", file), DType::F32, {768, 1024}},
                    {numbered("whole", file), DType::BF16, {256, 1024}}});
    placements.push_back(cut(file % 2, 256, true));
    placements.push_back(whole());
  }
  return {make_catalog(made), placements};
}

constexpr std::uint64_t small_file_bytes = 1 << 20;

/// Of one tensor each, which all ranks keep.
RandomModel small_files(std::uint32_t files) {
  std::vector<std::vector<Made>> made;
  for (std::uint32_t file = 0; file < files; ++file) {
    made.push_back({{numbered("whole", file), DType::U8, {small_file_bytes}}});
  }
  return {make_catalog(made), std::vector<Placement>(files, whole())};
}

bool is_most(std::uint64_t part, std::uint64_t whole) {
  return part >= whole / 10 * 9;
}

/// A model of which rank 0 has dropped all from the page cache but the first 100 pages of one file
/// and all of another. Creation is collective.
struct ColdModel {
  explicit ColdModel(RandomModel made = large_model(6)) : model(std::move(made)) {
    prepare();
    if (!cold) WARN("skipped: the filesystem of " << model.path() << " keeps its pages");
  }

  void prepare() {
    bool dropped = true;
    if (world_rank() == 0) {
      for (const FileInfo& file : model.catalog.files()) dropped &= make_cold(file.path);
      make_warm(model.catalog.files()[1].path, 0, 100 * page);
      const FileInfo& third = model.catalog.files()[2];
      make_warm(third.path, 0, third.size);
    }
    cold = gather_texts(dropped ? "yes" : "no").front() == "yes";
    before = cached();
  }

  /// By file. Collective: no rank still loads, or loads already.
  std::vector<std::uint64_t> cached() const {
    MPI_Barrier(MPI_COMM_WORLD);
    const std::vector<std::uint64_t> bytes = cached_now();
    MPI_Barrier(MPI_COMM_WORLD);
    return bytes;
  }

  std::vector<std::uint64_t> cached_now() const {
    std::vector<std::uint64_t> bytes;
    for (const FileInfo& file : model.catalog.files()) bytes.push_back(cached_bytes_of(file.path));
    return bytes;
  }

  /// What `load` leaves in the page cache, but for a few pages; empty if nothing. The system may be
  /// moving a page just when it is asked to drop it, so only what stays each of three times counts.
  /// Collective.
  std::string left_by(const std::function<void()>& load) {
    std::string found;
    for (int tries = 0; tries < 3; ++tries) {
      prepare();
      load();
      found = gather_texts(left()).front();
      if (found.empty()) break;
    }
    return found;
  }

  std::string left() const {
    const std::vector<std::uint64_t> now = cached();
    std::string text;
    for (std::size_t file = 0; file < now.size(); ++file) {
      if (now[file] <= few * page) continue;
      text += "file " + std::to_string(file) + ": " + std::to_string(now[file]) + " bytes; ";
    }
    return text;
  }

  static constexpr std::uint64_t few = 4;
  static constexpr std::uint64_t page = 4096;
  SharedModel model;
  bool cold = false;
  std::vector<std::uint64_t> before;
};

Options buffered() {
  Options options;
  options.direct = DirectIo::off;
  return options;
}

std::uint64_t sum_of(const std::vector<std::uint64_t>& bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), std::uint64_t{0});
}

}  // namespace

TEST_CASE("a load that drops the cache behind it leaves nothing of its files there",
          "[load][page_cache]") {
  ColdModel cold;
  if (!cold.cold) return;
  PlanOptions planned;
  planned.assignment =
      GENERATE(Assignment::round_robin, Assignment::striped, Assignment::sliced, Assignment::mixed);
  planned.window = GENERATE(std::uint64_t{300} << 10, std::uint64_t{64} << 20);
  Options options;
  options.direct = GENERATE(DirectIo::off, DirectIo::automatic);
  options.drop_cache_behind = true;
  std::optional<TensorSet> model;
  const Plan plan = cold.model.plan(planned);
  CHECK(cold.left_by([&] { model = load(plan, shared_group(), options); }) == "");
  CHECK(cold.left_by([&] { verify(*model, shared_group(), options); }) == "");
}

TEST_CASE("a load by path drops the headers behind it, too", "[load][page_cache]") {
  ColdModel cold;
  if (!cold.cold) return;
  Options options = buffered();
  options.tp_plan = "replicate";
  options.drop_cache_behind = true;
  CHECK(cold.left_by([&] { load(cold.model.path(), shared_group(), options); }) == "");
}

TEST_CASE("what is dropped behind a load is dropped wave by wave", "[load][page_cache]") {
  ColdModel cold;
  if (!cold.cold) return;
  Options options = buffered();
  options.drop_cache_behind = true;
  PlanOptions planned;
  planned.window = std::uint64_t{1} << 20;
  std::uint64_t most = 0;  // while the load goes on
  options.on_progress = [&](const Progress& progress) {
    if (progress.wave < progress.waves) most = std::max(most, sum_of(cold.cached_now()));
  };
  const Plan plan = cold.model.plan(planned);
  const std::string left = cold.left_by([&] {
    most = 0;
    static_cast<void>(load(plan, shared_group(), options));
  });
  const std::uint64_t at_first = sum_of(cold.before);
  std::uint64_t all = 0;
  for (const FileInfo& file : cold.model.catalog.files()) all += file.size;
  CAPTURE(most, at_first, all);
  // Each rank reads one file at a time, of which the system may read all ahead.
  const std::uint64_t at_once = std::min<std::uint64_t>(2 * world_size(), 5) * (all / 6);
  CHECK(most <= at_first + at_once);
  CHECK(left == "");
}

TEST_CASE("a stream reads the next group ahead, and drops what it has read",
          "[load][page_cache][stream]") {
  ColdModel cold;
  if (!cold.cold) return;
  Options options = buffered();
  options.tp_plan = "replicate";
  options.drop_cache_behind = true;
  constexpr std::uint64_t group_bytes = 4 << 20;  // a file
  const std::string left = cold.left_by([&] {
    Session session(cold.model.path(), shared_group(), options);
    Stream stream = session.stream({}, {.group_bytes = group_bytes, .alive = 1});
    std::size_t next = 1;
    for (auto group = stream.next(); group; group.reset(), group = stream.next(), ++next) {
      MPI_Barrier(MPI_COMM_WORLD);
      if (next == 1) {  // nobody asks for it yet
        wait_until([&] { return cold.cached_now()[1] > 2 * cold.before[1]; });
        MPI_Barrier(MPI_COMM_WORLD);
      }
      std::vector<std::uint64_t> cached = cold.cached_now();
      cached.resize(next);  // of the files that have been read
      CHECK(sum_of(cached) < group_bytes / 2);
      MPI_Barrier(MPI_COMM_WORLD);
    }
    CHECK(next == 7);
  });
  CHECK(left == "");
}

TEST_CASE("slices are dropped only when all ranks have read theirs", "[load][page_cache]") {
  const ColdModel cold(small_files(6));
  if (!cold.cold || world_size() == 1) return;
  PlanOptions planned;
  planned.assignment = Assignment::sliced;
  planned.window = small_file_bytes;
  const Plan plan = cold.model.plan(planned);
  REQUIRE(plan.waves() == 6);
  // The last rank waits after the first wave, while the first rank ends at least one more. Both
  // have read ahead.
  const auto second = core::PosixFile::open(cold.model.catalog.files()[1].path);
  std::uint64_t kept = 0;
  Options options = buffered();
  options.drop_cache_behind = true;
  options.on_progress = [&](const Progress& progress) {
    if (progress.wave != 1 || kept != 0 || !is_last_rank()) return;
    const core::Deadline deadline(std::chrono::seconds(5));
    for (std::uint64_t before = 0; !deadline.expired(); before = kept) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      kept = core::cached_bytes(second.descriptor(), 0, small_file_bytes).value_or(0);
      if (is_most(kept, small_file_bytes) && kept == before) break;
    }
  };
  static_cast<void>(load(plan, shared_group(), options));
  if (is_last_rank()) CHECK(is_most(kept, small_file_bytes));
}

TEST_CASE("gaps between rows that are read one by one do not count as read", "[load][page_cache]") {
  if (tests_gpus()) return;                     // what they read goes through slabs
  const auto columns = GENERATE(8192U, 1024U);  // the shorter rows are read jointly
  const SharedModel model({make_catalog({{{"cut", DType::F32, {(1U << 19) / columns, columns}}}}),
                           {cut(1, columns, true)}});
  const FileInfo& file = model.catalog.files()[0];
  const WarmRange warm(file.path, 0, file.size);
  const auto is_warm = gather_texts(cached_bytes_of(file.path) == file.size ? "yes" : "no");
  if (std::ranges::find(is_warm, "no") != is_warm.end()) {
    WARN("skipped: the system does not say what is cached");
    return;
  }
  PlanOptions planned;
  planned.assignment = Assignment::sliced;
  const Plan plan = model.plan(planned);
  const Report report = load(plan, shared_group()).report();
  for (const RankReport& rank : report.ranks) {
    CAPTURE(columns, rank.rank);
    const bool jointly = columns == 1024 && world_size() != 1;
    CHECK((rank.read_bytes > rank.kept_bytes) == jointly);
    CHECK(rank.read_bytes >= rank.kept_bytes);
    CHECK(rank.read_bytes <= plan.ranks()[rank.rank].read_bytes);
    CHECK(rank.buffered_bytes == rank.read_bytes);
    for (const ReadChoice& choice : rank.read_choices) CHECK(choice.bytes == rank.read_bytes);
  }
}

TEST_CASE("a load that drops nothing leaves what it reads through the page cache",
          "[load][page_cache]") {
  const ColdModel cold;
  if (!cold.cold) return;
  const TensorSet model = load(cold.model.plan(), shared_group(), buffered());
  CHECK(is_most(sum_of(cold.cached()), model.report().tensor_bytes));
}

TEST_CASE("ranks with different wishes for the page cache load all the same",
          "[load][page_cache]") {
  const SharedModel model(plain_model(3));
  Options options;
  options.tp_plan = "replicate";
  options.drop_cache_behind = is_last_rank();
  const TensorSet loaded = load(model.path(), shared_group(), options);
  CHECK_NOTHROW(verify(loaded, shared_group(), options));
}
