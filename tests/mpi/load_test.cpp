// Loads of made-up models: the result, the report, the progress.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "safeshuffle/loader.hpp"

#include "core/process.hpp"
#include "support/catch.hpp"
#include "support/group.hpp"
#include "support/sanitizers.hpp"
#include "support/shared_model.hpp"

using namespace safeshuffle;
using namespace safeshuffle::testing;

TEST_CASE("random models arrive byte for byte", "[load]") {
  const auto seed = GENERATE(range(0U, testing::cases(12U)));
  const SharedModel model(testing::random_model(seed), seed);
  const Communicator& comm = shared_group();
  PlanOptions options = with_window(seed % 3 == 0 ? 4096 : 65536);
  options.assignment = static_cast<Assignment>(seed % 6);
  options.dtype = static_cast<DTypePolicy>(seed / 4 % 4);
  const TensorSet loaded = load(model.plan(options), comm);
  const bool right = is_right(loaded, comm.rank());
  verify(loaded, comm);
  CHECK(right);
}

TEST_CASE("some tensors are sliced, the others exchanged, in one load", "[load]") {
  const std::uint64_t rows = 300 * 1024 * std::uint64_t{world_size()};
  std::vector<std::vector<Made>> files;
  std::vector<Placement> placements;
  for (std::size_t i = 0; i < 3; ++i) {
    files.push_back({{numbered("a rows", i), DType::BF16, {rows}},
                     {numbered("b columns", i), DType::BF16, {7, 1024}},
                     {numbered("c whole", i), DType::F32, {5000}}});
    for (const Placement& placement : {cut(0, rows), cut(1, 1024, true), whole()}) {
      placements.push_back(placement);
    }
  }
  const SharedModel model({make_catalog(files), placements});
  const Communicator& comm = shared_group();
  PlanOptions options = with_window(GENERATE(std::uint64_t{100} << 10, std::uint64_t{64} << 20));
  options.assignment = Assignment::mixed;
  options.dtype = GENERATE(DTypePolicy::keep, DTypePolicy::f16);
  const Plan plan = model.plan(options);
  const std::uint64_t slices = world_size() == 1 ? 0 : 3 * std::uint64_t{600} * 1024;
  CHECK(plan.ranks()[comm.rank()].sliced_bytes == slices);
  const TensorSet loaded = load(plan, comm);
  CHECK(is_right(loaded, comm.rank()));
  verify(loaded, comm);
}

TEST_CASE("a load by path finds, places and loads", "[load]") {
  const SharedModel model(plain_model(3));
  const Communicator& comm = shared_group();
  Options options;
  options.tp_plan = "replicate";
  // Only rank 0 needs to know where the checkpoint is.
  const std::string path = world_rank() == 0 ? model.path() : "";
  const TensorSet loaded = load(path, comm, options);
  CHECK(loaded.size() == 6);
  CHECK(is_right(loaded, comm.rank()));
}

TEST_CASE("a load by path takes the selected stage, a load by plan what is planned", "[load]") {
  const SharedModel model(plain_model(3));
  const Communicator& comm = shared_group();
  const std::string rules = model.directory / "rules.json";
  if (world_rank() == 0) {
    std::ofstream(rules) << R"({"tp_plan": {"cut1": "colwise"}, "uneven": true, "pipeline": {
        "first": ["cut0", "whole0"], "layers": "layers", "last": ["cut1", "whole1", "cut2", "whole2"],
        "count": 2}})";
  }
  Options options;
  options.tp_plan = rules;
  options.selection.stage = PipelineStage{1, 2};
  const TensorSet staged = load(model.path(), comm, options);
  CHECK(is_right(staged, comm.rank()));
  CHECK(staged.size() == 4);
  CHECK(staged.find("cut0") == nullptr);
  CHECK(staged.report().stage == options.selection.stage);
  CHECK(staged.report().tensor_bytes == model.catalog.tensor_bytes() / 3 * 2);
  const TensorSet planned = load(model.plan(), comm, options);
  CHECK(planned.size() == 6);
  CHECK(planned.report().stage == std::nullopt);
}

TEST_CASE("an empty checkpoint is loaded, verified and saved", "[load]") {
  const SharedModel model({testing::make_catalog({{}}), {}});
  const Communicator& comm = shared_group();
  const TensorSet loaded = load(model.plan(), comm);
  const std::vector<double> seconds = verify(loaded, comm);
  save_sharded(loaded, model.directory / "saved", comm);
  const bool saved =
      std::filesystem::exists(model.directory / ("saved/model-rank-" + std::to_string(comm.rank()) +
                                                 "-part-0.safetensors"));
  CHECK(loaded.size() == 0);
  CHECK(loaded.report().tensor_bytes == 0);
  CHECK(seconds.size() == comm.size());
  CHECK(saved);
}

TEST_CASE("what is saved is what was loaded", "[load]") {
  const SharedModel model(testing::random_model(5), 5);
  const Communicator& comm = shared_group();
  const TensorSet loaded = load(model.plan(), comm);
  save_sharded(loaded, model.directory / "saved", comm);
  const std::string file =
      "saved/model-rank-" + std::to_string(comm.rank()) + "-part-0.safetensors";
  const Catalog saved = open_checkpoint(model.directory / file).catalog;
  REQUIRE(saved.tensors().size() == loaded.size());
  for (const TensorView& view : loaded) {
    const TensorInfo* tensor = saved.find(view.name);
    REQUIRE(tensor != nullptr);
    CHECK(tensor->dtype == view.dtype);
    CHECK(std::ranges::equal(tensor->shape, view.shape));
    CHECK((stored_bytes(saved, *tensor) == loaded_bytes(loaded, view)));
  }
}

TEST_CASE("what each rank has saved is read in place by that rank", "[load]") {
  const std::uint64_t rows = std::uint64_t{100} * 1024 * world_size();
  const SharedModel model({make_catalog({{{"a", DType::F32, {512}},
                                          {"b", DType::BF16, {rows}},
                                          {"c", DType::BF16, {3000}},
                                          {"d", DType::U8, {9, rows}}}}),
                           {whole(), cut(0, rows), whole(), cut(1, rows)}});
  const Communicator& comm = shared_group();
  const TensorSet loaded = load(model.plan(), comm);
  save_sharded(loaded, model.directory / "saved", comm);
  MPI_Barrier(MPI_COMM_WORLD);
  Options options;
  options.direct = GENERATE(DirectIo::on, DirectIo::off);
  options.chunk = 8192;
  const TensorSet again = load(model.directory / "saved", comm, options);
  verify(again, comm);
  const RankReport& rank = again.report().ranks[comm.rank()];
  const auto* const last = again.find("d");
  REQUIRE(last != nullptr);
  CHECK((loaded_bytes(again, *last) == loaded_bytes(loaded, *loaded.find("d"))));
  // Behind c, which does not end at a multiple of 256 bytes, memory is not congruent to the file.
  const std::uint64_t congruent = 512 * 4 + std::uint64_t{200} * 1024 + 3000 * 2;
  const bool on_host = comm.device() == DeviceKind::host;
  CHECK(rank.in_place_bytes == (on_host ? congruent : rank.read_bytes));

  // Windows that are smaller than a read call.
  options.chunk = 0;
  options.plan.window = std::uint64_t{64} << 10;
  const TensorSet by_windows = load(model.directory / "saved", comm, options);
  verify(by_windows, comm);
  CHECK(by_windows.report().ranks[comm.rank()].in_place_bytes > congruent / 2);
}

TEST_CASE("the report is the same on all ranks and its phases add up", "[load]") {
  const SharedModel model(plain_model(5));
  const Communicator& comm = shared_group();
  const Plan plan = model.plan(with_window(16384));
  const double cpu_before = core::cpu_seconds();
  const auto begin = core::Clock::now();
  const TensorSet loaded = load(plan, comm);
  const double elapsed = core::seconds_since(begin);
  const double cpu_elapsed = core::cpu_seconds() - cpu_before;
  const Report& report = loaded.report();
  const bool same = same_on_all(to_json(report));
  CHECK(same);
  CHECK(report.waves == plan.waves());
  CHECK(report.plan_hash == plan.hash());
  CHECK(report.tensor_bytes == model.catalog.tensor_bytes());
  CHECK(report.transport == comm.transport_name());
  REQUIRE(report.ranks.size() == comm.size());
  for (const RankReport& rank : report.ranks) {
    const double sum = std::accumulate(rank.phases.begin(), rank.phases.end(), 0.0);
    CHECK(std::abs(rank.total_seconds - sum) < 1e-9);
    CHECK(rank.total_seconds <= report.seconds);
    CHECK(std::ranges::all_of(rank.phases, [](double seconds) { return seconds >= 0; }));
    CHECK(rank.read_hidden_seconds >= 0);
    CHECK(rank.read_hidden_seconds <= rank.read_busy_seconds);
    CHECK(rank.kept_bytes == plan.ranks()[rank.rank].kept_bytes);
    CHECK_FALSE(rank.reader_cpus.empty());
    CHECK(rank.spans.empty());
  }
  const double mine = report.ranks[comm.rank()].total_seconds;
  CHECK(mine <= elapsed);
  CHECK(report.ranks[comm.rank()].cpu_seconds > 0);
  CHECK(report.ranks[comm.rank()].cpu_seconds <= cpu_elapsed);
}

TEST_CASE("progress grows up to the bytes of the tensors, however often they are read", "[load]") {
  const SharedModel model(plain_model(7));
  const Communicator& comm = shared_group();
  PlanOptions how = with_window(8192);
  how.assignment = GENERATE(Assignment::round_robin, Assignment::sliced);
  const Plan plan = model.plan(how);
  std::vector<Progress> seen;
  Options options;
  options.on_progress = [&](const Progress& progress) { seen.push_back(progress); };
  load(plan, comm, options);
  REQUIRE(seen.size() >= plan.waves());
  CHECK(std::ranges::is_sorted(seen, {}, &Progress::bytes));
  CHECK(std::ranges::is_sorted(seen, {}, &Progress::wave));
  CHECK(seen.back().wave == plan.waves());
  CHECK(seen.back().bytes == model.catalog.tensor_bytes());
  CHECK(std::ranges::all_of(seen, [&](const Progress& progress) {
    return progress.waves == plan.waves() && progress.total_bytes == model.catalog.tensor_bytes();
  }));
}

TEST_CASE("two groups load different models at once", "[load]") {
  const std::uint32_t half = world_rank() % 2;
  const SharedModel one(testing::random_model(21), 21);
  const SharedModel two(testing::random_model(22), 22);
  const SharedModel& mine = half == 0 ? one : two;
  MPI_Comm group = MPI_COMM_NULL;  // ranks in reverse: none has its rank of the world
  MPI_Comm_split(MPI_COMM_WORLD, static_cast<int>(half), -static_cast<int>(world_rank()), &group);
  bool right = false;
  {
    const Communicator comm = from_mpi(group, device_under_test());
    const Plan plan = make_plan(mine.catalog, mine.placements, comm.size());
    const TensorSet loaded = load(plan, comm);
    verify(loaded, comm);
    right = is_right(loaded, comm.rank());
  }
  MPI_Comm_free(&group);
  CHECK(right);
}

TEST_CASE("replicas: every rank has its shards, whatever its rank of the world", "[load]") {
  MPI_Comm group = MPI_COMM_NULL;  // rotated: none has its rank of the world
  const auto key = static_cast<int>((world_rank() + 1) % world_size());
  MPI_Comm_split(MPI_COMM_WORLD, 0, key, &group);
  {
    const Communicator comm = from_mpi(group, device_under_test());
    REQUIRE(comm.rank() == static_cast<std::uint32_t>(key));
    for (std::uint32_t replicas = 2; replicas <= comm.size(); ++replicas) {
      if (comm.size() % replicas != 0) continue;
      const SharedModel model(testing::random_model(30 + replicas), replicas);
      PlanOptions options = with_window(4096);
      options.replicas = replicas;
      options.dtype = replicas % 4 == 0 ? DTypePolicy::f16 : DTypePolicy::keep;
      const TensorSet loaded = load(model.plan(options), comm);
      const bool right = is_right(loaded, comm.rank());
      verify(loaded, comm);
      CAPTURE(replicas);
      CHECK(right);
    }
  }
  MPI_Comm_free(&group);
}

TEST_CASE("composed targets: joined, taken apart, padded, and verified", "[load]") {
  for (std::uint32_t seed = 0; seed < testing::cases(12U); ++seed) {
    const testing::RandomTargets made = testing::random_targets(seed);
    const SharedModel model({made.catalog, {}}, seed);
    PlanOptions options = with_window(4096);
    options.dtype = seed % 2 == 0 ? DTypePolicy::keep : DTypePolicy::f16;
    options.replicas = seed % 3 == 0 && world_size() % 2 == 0 ? 2 : 1;
    CAPTURE(seed);
    const Plan plan =
        make_plan(model.catalog, testing::targets_for(model.catalog, made), world_size(), options);
    const TensorSet loaded = load(plan, shared_group());
    verify(loaded, shared_group());
    CHECK(is_right(loaded, world_rank()));
  }
}
