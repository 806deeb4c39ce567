// Loads in two steps, with an output made ready in between.
#include "safeshuffle/sharded_output.hpp"

#include <filesystem>
#include <numeric>
#include <optional>
#include <string>
#include <thread>

#include "safeshuffle/loader.hpp"
#include "safeshuffle/session.hpp"

#include "support/catch.hpp"
#include "support/group.hpp"
#include "support/shared_model.hpp"

using namespace safeshuffle;
using namespace safeshuffle::testing;

namespace {

namespace fs = std::filesystem;

/// Whether all ranks see it, at one time.
bool exists_on_all(const std::string& path) {
  MPI_Barrier(MPI_COMM_WORLD);
  const bool mine = fs::exists(path);
  return same_on_all(mine ? "there" : "not there") && mine;
}

/// Whether no rank sees it, once all are here.
bool exists_on_none(const std::string& path) {
  MPI_Barrier(MPI_COMM_WORLD);
  const bool mine = fs::exists(path);
  return same_on_all(mine ? "there" : "not there") && !mine;
}

}  // namespace

TEST_CASE("a planned load is the load", "[load]") {
  const SharedModel model(plain_model(3));
  model.directory.fill([&] { fs::rename(model_file(model.path(), 2), model.path() + "/away"); });
  CHECK(common_error([&] { Session(model.path() + "/absent", shared_group()); }));
  model.directory.fill([&] { fs::rename(model.path() + "/away", model_file(model.path(), 2)); });

  Options options = replicated();
  options.trace = true;
  Session session(model.path(), shared_group(), options);
  PlannedLoad planned = session.plan();
  CHECK(planned.plan().world() == world_size());
  CHECK(session.inputs().size() == 3);
  CHECK(session.inputs().front() == model_file(model.path(), 0));
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  const TensorSet loaded = planned.run();
  CHECK(is_right(loaded, world_rank()));
  const RankReport& report = loaded.report().ranks[world_rank()];
  CHECK(std::accumulate(report.phases.begin(), report.phases.end(), 0.0) ==
        Approx(report.total_seconds));
  CHECK(report.phases[std::size_t(Phase::open)] > 0);
  CHECK(report.phases[std::size_t(Phase::plan)] > 0);
  const Span& last = report.spans.back();
  CHECK(last.begin + last.seconds > report.total_seconds + 0.3);  // by the clock, pauses included
  CHECK_THROWS_AS(planned.run(), ConfigError);
}

TEST_CASE("an output is ready before there is anything to write", "[load]") {
  const SharedModel model(plain_model(3));
  const Communicator& comm = shared_group();
  const std::string directory = model.directory / "new/saved";
  {
    const ShardedOutput unused(directory, model.plan(), comm);
    CHECK(exists_on_all(directory + "/.safeshuffle.lock"));
  }
  CHECK(exists_on_none(model.directory / "new"));
  {
    ShardedOutput output(directory, model.plan(), comm);
    const TensorSet loaded = load(model.plan(), comm);
    output.write(loaded);
    CHECK(exists_on_all(ShardedOutput::file_of(directory, comm.rank())));
    const auto again = common_error([&] { output.write(loaded); });
    REQUIRE(again);
    CHECK(again->kind == ErrorKind::config);
  }
  CHECK(exists_on_none(directory + "/.safeshuffle.lock"));
  CHECK(exists_on_all(ShardedOutput::file_of(directory, 0)));
}

TEST_CASE("two groups cannot have one output", "[load]") {
  const SharedModel model(plain_model(2));
  const Communicator& comm = shared_group();
  const std::string directory = model.directory / "saved";
  const ShardedOutput first(directory, model.plan(), comm);
  const auto error =
      common_error([&] { ShardedOutput(directory, model.plan(), comm, replicated()); });
  REQUIRE(error);
  CHECK(error->kind == ErrorKind::config);
  CHECK(error->file == directory);
  CHECK(error->rank == 0);
  CHECK(error->cause.find("process ") != std::string::npos);
}

TEST_CASE("an output is for the plan it was made with", "[load]") {
  const SharedModel model(plain_model(2));
  const Communicator& comm = shared_group();
  ShardedOutput output(model.directory / "saved", model.plan(), comm);
  const TensorSet other = load(model.plan(with_window(8192)), comm);
  const auto error = common_error([&] { output.write(other); });
  REQUIRE(error);
  CHECK(error->kind == ErrorKind::config);
}

TEST_CASE("ranks may have a directory of their own under the same path", "[load]") {
  const SharedModel model(plain_model(2));
  const Communicator& comm = shared_group();
  // As on nodes with disks of their own; here, the path differs.
  const std::string directory = model.directory / ("saved-" + std::to_string(comm.rank()));
  const TensorSet loaded = load(model.plan(), comm);
  ShardedOutput output(directory, model.plan(), comm);
  CHECK(fs::exists(directory + "/.safeshuffle.lock"));
  output.write(loaded);
  CHECK(fs::exists(ShardedOutput::file_of(directory, comm.rank())));
}
