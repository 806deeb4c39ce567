// What a load leaves behind, and for how long.
#include <cerrno>
#include <filesystem>
#include <memory>
#include <optional>
#include <sys/mman.h>
#include <thread>

#include "safeshuffle/loader.hpp"

#include "support/catch.hpp"
#include "support/group.hpp"
#include "support/own_process.hpp"
#include "support/shared_model.hpp"

using namespace safeshuffle;
using namespace safeshuffle::testing;

namespace {

/// MPI hands out the lowest number that no communicator has.
MPI_Fint next_communicator() {
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  const MPI_Fint number = MPI_Comm_c2f(comm);
  MPI_Comm_free(&comm);
  return number;
}

struct Resources {
  std::ptrdiff_t descriptors = open_descriptors();
  std::ptrdiff_t threads = running_threads();
  MPI_Fint communicator = next_communicator();
};

/// Whether memory is still mapped at the page-aligned address.
bool is_mapped(std::byte* page) {
  return ::msync(page, 1, MS_ASYNC) == 0 || errno != ENOMEM;
}

void load_verify_save(const SharedModel& model) {
  const Communicator comm = world_group();
  const TensorSet loaded = load(model.plan(with_window(8192)), comm);
  verify(loaded, comm);
  save_sharded(loaded, model.directory / "saved", comm);
}

void fail_to_load(const SharedModel& model) {
  const Communicator comm = world_group();
  Options options;
  options.on_progress = [](const Progress&) { throw ConfigError("cancelled"); };
  CHECK_THROWS_AS(load(model.plan(with_window(8192)), comm, options), ConfigError);
}

}  // namespace

TEST_CASE("views live as long as a copy of their set, whatever became of the communicator",
          "[load]") {
  const SharedModel model(testing::random_model(5), 5);
  auto comm = std::make_unique<Communicator>(world_group());
  const std::uint32_t rank = comm->rank();
  std::optional<TensorSet> first = load(model.plan(), *comm);
  comm.reset();
  const auto second = std::make_unique<TensorSet>(*first);
  const TensorView* const views = first->begin();
  first.reset();
  CHECK(second->begin() == views);
  CHECK(is_right(*second, rank));
}

TEST_CASE("the owner alone keeps the memory, with it the memory goes", "[load][host]") {
  const SharedModel model(plain_model(3));
  std::optional<TensorSet> loaded = load(model.plan(), world_group());
  const TensorView view = loaded->at("whole2");
  auto* const page = reinterpret_cast<std::byte*>(reinterpret_cast<std::uintptr_t>(view.data) &
                                                  ~std::uintptr_t{4095});
  const auto expected = stored_bytes(model.catalog, *model.catalog.find("whole2"));
  std::shared_ptr<const void> owner = loaded->owner();
  loaded.reset();
  CHECK(std::equal(expected.begin(), expected.end(), view.data));
  const std::weak_ptr<const void> watch = owner;
  CHECK(is_mapped(page));
  owner.reset();
  CHECK(watch.expired());
  CHECK_FALSE(is_mapped(page));
}

TEST_CASE("loads, failed ones too, leave no descriptor, thread or communicator behind", "[load]") {
  const int rounds = tests_gpus() ? 3 : 10;  // communicators of NCCL take seconds
  const SharedModel model(plain_model(3));
  load_verify_save(model);  // what MPI and CUDA open once
  fail_to_load(model);
  const Resources before;
  for (int round = 0; round < rounds; ++round) {
    load_verify_save(model);
    fail_to_load(model);
  }
  const Resources after;
  CHECK(after.descriptors < before.descriptors + rounds);  // a driver may open one more
  CHECK(threads_come_down_to(before.threads));
  CHECK(after.communicator == before.communicator);
}
