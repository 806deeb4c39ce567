// Plans for several replicas: who has, reads and sends what.
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "safeshuffle/error.hpp"
#include "safeshuffle/plan.hpp"

#include "plan/proof.hpp"
#include "plan/schedule.hpp"
#include "plan/transfers.hpp"
#include "support/catalogs.hpp"
#include "support/catch.hpp"
#include "support/failure.hpp"
#include "support/in_memory_load.hpp"

using namespace safeshuffle;
using namespace safeshuffle::testing;

namespace {

PlanOptions with_replicas(std::uint32_t replicas) {
  PlanOptions options;
  options.assignment = Assignment::round_robin;
  options.replicas = replicas;
  return options;
}

// Ranks 0 and 1, 2 and 3 are replicas. File i, of 16 bytes to be split in halves and 3 to be
// replicated, is read by rank i.
Plan two_by_two() {
  std::vector<std::vector<Made>> files;
  std::vector<Placement> placements;
  for (std::size_t i = 0; i < 4; ++i) {
    files.push_back(
        {{numbered("cut", i), DType::U8, {16}}, {numbered("whole", i), DType::U8, {3}}});
    placements.push_back(cut(0, 16));
    placements.push_back(whole());
  }
  return make_plan(make_catalog(files), placements, 4, with_replicas(2));
}

std::vector<std::uint32_t> peers(const std::vector<plan::Run>& runs) {
  std::vector<std::uint32_t> list;
  for (const plan::Run& run : runs) list.push_back(run.peer);
  return list;
}

}  // namespace

TEST_CASE("each byte is read once, sent within the replica, and passed on to twins", "[replicas]") {
  const Plan plan = two_by_two();
  CHECK_NOTHROW(plan.prove());
  CHECK(plan.replicas() == 2);
  CHECK(plan.replica_size() == 2);
  for (const RankSummary& rank : plan.ranks()) {
    CHECK(rank.files == std::vector<std::uint32_t>{rank.rank});
    CHECK(rank.read_bytes == 19);
    CHECK(rank.kept_bytes == 4 * (8 + 3));
    // Half of its file to the other rank of its replica, and 3 bytes to all; then the halves of its
    // replica's two files to its twin.
    CHECK(rank.sent_bytes == 8 + 3 * 3 + 2 * 8);
    CHECK(rank.received_bytes == 3 * (8 + 3));
  }
  plan::TransferPlanner planner(plan.schedule(), 2);
  const plan::Outgoing outgoing = planner.outgoing(0);
  const plan::Incoming incoming = planner.incoming(0);
  CHECK(peers(outgoing.sends) == std::vector<std::uint32_t>{3});
  CHECK(peers(incoming.receives) == std::vector<std::uint32_t>{3});
  CHECK(peers(incoming.broadcasts) == std::vector<std::uint32_t>{0, 1, 2, 3});
  CHECK(peers(incoming.relays.sends) == std::vector<std::uint32_t>{0, 0});
  CHECK(peers(incoming.relays.receives) == std::vector<std::uint32_t>{0, 0});
}

TEST_CASE("one rank per replica: what would be split is whole on each", "[replicas]") {
  const Catalog catalog = make_catalog({{{"a", DType::U8, {16}}}, {{"b", DType::U8, {10}}}});
  const Plan plan = make_plan(catalog, {cut(0, 16), cut(0, 10)}, 3, with_replicas(3));
  CHECK_NOTHROW(plan.prove());
  for (const RankSummary& rank : plan.ranks()) CHECK(rank.kept_bytes == 26);
  CHECK(plan.ranks()[0].sent_bytes == 2 * 16);
  CHECK(plan.ranks()[1].sent_bytes == 2 * 10);
  CHECK(plan.ranks()[2].sent_bytes == 0);
  CHECK(InMemoryLoad(plan.schedule()).result_is_right());
}

TEST_CASE("a tensor for one rank is on that rank of every replica", "[replicas]") {
  const Catalog catalog = make_catalog({{{"a", DType::U8, {16}}}});
  const Plan plan = make_plan(catalog, {whole(Placement::Kind::single, 1)}, 6, with_replicas(3));
  CHECK_NOTHROW(plan.prove());
  for (const RankSummary& rank : plan.ranks()) CHECK(rank.kept_bytes == (rank.rank % 2) * 16);
  CHECK(InMemoryLoad(plan.schedule()).result_is_right());
  const ErrorRecord outside = failure<PlanError>(
      [&] { make_plan(catalog, {whole(Placement::Kind::single, 2)}, 6, with_replicas(3)); });
  CHECK(outside.tensor == "a");
}

TEST_CASE("files for one shard each are read in turns by the replicas", "[replicas]") {
  const Catalog catalog = make_catalog({{{"a", DType::U8, {4}}},
                                        {{"b", DType::U8, {4}}},
                                        {{"c", DType::U8, {4}}},
                                        {{"d", DType::U8, {4}}}});
  const auto single = [](std::uint32_t rank) { return whole(Placement::Kind::single, rank); };
  const Plan plan =
      make_plan(catalog, {single(0), single(1), single(0), single(1)}, 4, with_replicas(2));
  CHECK_NOTHROW(plan.prove());
  const auto files = [&](std::uint32_t rank) { return plan.ranks()[rank].files; };
  using Files = std::vector<std::uint32_t>;
  CHECK(files(0) == Files{0});
  CHECK(files(2) == Files{2});
  CHECK(files(1) == Files{3});
  CHECK(files(3) == Files{1});
}

TEST_CASE("replicas must be of equal size", "[replicas]") {
  const auto cause = [](std::uint32_t world, std::uint32_t replicas) {
    const Catalog catalog = make_catalog({{{"a", DType::U8, {16}}}});
    return failure<ConfigError>(
               [&] { make_plan(catalog, {whole()}, world, with_replicas(replicas)); })
        .cause;
  };
  CHECK(cause(4, 3) ==
        "4 ranks cannot be 3 replicas of equal size: the number of ranks must be a multiple of "
        "that of replicas");
  CHECK(cause(2, 4).starts_with("2 ranks cannot be 4 replicas"));
  CHECK(cause(4, 0) == "the number of replicas must be at least 1");
}

TEST_CASE("plans for different numbers of replicas have different hashes", "[replicas]") {
  const Catalog catalog = make_catalog({{{"a", DType::U8, {16}}}});
  const auto hash = [&](std::uint32_t replicas) {
    return make_plan(catalog, {whole()}, 4, with_replicas(replicas)).hash();
  };
  CHECK(hash(1) != hash(2));
  CHECK(hash(2) != hash(4));
}

TEST_CASE("a schedule whose replicas are not its ranks is not proved", "[replicas]") {
  plan::Schedule schedule = two_by_two().schedule();
  CHECK_NOTHROW(plan::prove(schedule));
  for (const auto& [replicas, size] : std::vector<std::pair<std::uint32_t, std::uint32_t>>{
           {1, 2}, {2, 1}, {4, 2}, {0, 0}, {4, 0}}) {
    schedule.replicas = replicas;
    schedule.replica_size = size;
    CHECK_THROWS_AS(plan::prove(schedule), PlanError);
  }
  // As if for one replica of all ranks: then shares are not what was planned.
  schedule.replicas = 1;
  schedule.replica_size = 4;
  CHECK_THROWS_AS(plan::prove(schedule), PlanError);
}
