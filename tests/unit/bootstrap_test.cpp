// What launchers put into the environment: the public header, and how the command takes it.
#include "safeshuffle/bootstrap.hpp"

#include <cstdlib>
#include <map>
#include <string>

#include "core/launcher.hpp"
#include "support/catch.hpp"
#include "support/failure.hpp"

using namespace safeshuffle;

namespace {

using Variables = std::map<std::string, std::string>;

constexpr const char* rank_variables[] = {"RANK",
                                          "WORLD_SIZE",
                                          "LOCAL_RANK",
                                          "OMPI_COMM_WORLD_RANK",
                                          "OMPI_COMM_WORLD_SIZE",
                                          "OMPI_COMM_WORLD_LOCAL_RANK",
                                          "OMPI_MCA_orte_bound_at_launch",
                                          "OMPI_MCA_hwloc_base_binding_policy",
                                          "OMPI_MCA_hwloc_base_cpu_list",
                                          "OMPI_MCA_orte_rankfile",
                                          "OMPI_MCA_rmaps_base_mapping_policy",
                                          "OMPI_MCA_rmaps_base_oversubscribe",
                                          "OMPI_MCA_rmaps_ppr_n_pernode",
                                          "PMIX_RANK",
                                          "PMIX_SERVER_TMPDIR",
                                          "PMI_RANK",
                                          "PMI_SIZE",
                                          "MPI_LOCALRANKID",
                                          "SLURM_PROCID",
                                          "SLURM_NTASKS",
                                          "SLURM_LOCALID",
                                          "SLURM_JOB_ID",
                                          "SLURM_STEP_ID",
                                          "TORCHELASTIC_RUN_ID",
                                          "SAFESHUFFLE_RENDEZVOUS",
                                          "MASTER_ADDR",
                                          "MASTER_PORT"};

/// Gives this process these variables and no other of `names`.
void set_environment(const Variables& variables) {
  for (const char* name : rank_variables) unsetenv(name);
  for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
}

Bootstrap started_with(const Variables& variables) {
  set_environment(variables);
  return Bootstrap::from_environment();
}

std::string refused_with(const Variables& variables) {
  return testing::failure<ConfigError>([&] { started_with(variables); }).cause;
}

std::string address_with(Variables variables) {
  variables.insert({{"RANK", "0"}, {"WORLD_SIZE", "2"}});
  return started_with(variables).address;
}

}  // namespace

TEST_CASE("every launcher's variables are understood", "[bootstrap]") {
  const auto& [rank, size, local_rank] = GENERATE(table<std::string, std::string, std::string>(
      {{"RANK", "WORLD_SIZE", "LOCAL_RANK"},
       {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
       {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"},
       {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"}}));
  const Bootstrap place = started_with(
      {{rank, "5"}, {size, "16"}, {local_rank, "3"}, {"SAFESHUFFLE_RENDEZVOUS", "tcp://a:1/x"}});
  CHECK(place.rank == 5);
  CHECK(place.size == 16);
  CHECK(place.local_rank == 3);
  CHECK(place.address == "tcp://a:1/x");
  CHECK(refused_with({{rank, "5"}}) == "the environment has " + rank + ", but not " + size);
}

TEST_CASE("the innermost launcher counts", "[bootstrap]") {
  const Variables slurm{{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}, {"SLURM_LOCALID", "0"}};
  Variables both{{"RANK", "3"}, {"WORLD_SIZE", "4"}, {"SAFESHUFFLE_RENDEZVOUS", "tcp://a:1"}};
  both.insert(slurm.begin(), slurm.end());
  CHECK(started_with(both).rank == 3);
  both.insert_or_assign("RANK", "");
  CHECK(started_with(both).rank == 0);
  CHECK(started_with(both).size == 1);
}

TEST_CASE("a world of one needs no place to meet", "[bootstrap]") {
  const Bootstrap place = started_with({{"RANK", "0"}, {"WORLD_SIZE", "1"}});
  CHECK(place.address.empty());
  CHECK(place.local_rank == 0);
}

TEST_CASE("ranks meet beside torchrun's own port", "[bootstrap]") {
  CHECK(address_with({{"MASTER_ADDR", "node-1"}, {"MASTER_PORT", "29500"}}) ==
        "tcp://node-1:29501");
  CHECK(address_with({{"MASTER_ADDR", "fe80::1"}, {"MASTER_PORT", "65535"}}) ==
        "tcp://[fe80::1]:65534");
  CHECK(address_with({{"MASTER_ADDR", "[::1]"}, {"MASTER_PORT", "1"}}) == "tcp://[::1]:2");
  CHECK(address_with({{"MASTER_ADDR", "a"},
                      {"MASTER_PORT", "1"},
                      {"TORCHELASTIC_RUN_ID", "run"},
                      {"SLURM_JOB_ID", "17"}}) == "tcp://a:2/run");
  CHECK(address_with({{"MASTER_ADDR", "a"},
                      {"MASTER_PORT", "1"},
                      {"SLURM_JOB_ID", "17"},
                      {"SLURM_STEP_ID", "4"}}) == "tcp://a:2/17.4");
  CHECK(address_with({{"SAFESHUFFLE_RENDEZVOUS", "tcp://b:3"}, {"MASTER_ADDR", "a"}}) ==
        "tcp://b:3");
}

TEST_CASE("an environment that makes no sense is refused", "[bootstrap]") {
  CHECK(refused_with({}).find("SLURM_PROCID and SLURM_NTASKS") != std::string::npos);
  for (const char* rank : {"-1", "1x", " 1", "0x1", "1.0", "4294967296", "99999999999999999999"}) {
    INFO(rank);
    CHECK(refused_with({{"RANK", rank}, {"WORLD_SIZE", "2"}}).find("RANK is '") == 0);
  }
  CHECK(refused_with({{"RANK", "2"}, {"WORLD_SIZE", "2"}}) ==
        "RANK is 2, but must be less than WORLD_SIZE, which is 2");
  CHECK(refused_with({{"RANK", "0"}, {"WORLD_SIZE", "0"}}).find("must be less") !=
        std::string::npos);
  const Variables two{{"RANK", "0"}, {"WORLD_SIZE", "2"}};
  CHECK(refused_with(two).find("SAFESHUFFLE_RENDEZVOUS") != std::string::npos);
  for (const char* port : {"0", "65536", "http"}) {
    Variables variables = two;
    variables.insert({{"MASTER_ADDR", "a"}, {"MASTER_PORT", port}});
    CHECK(refused_with(variables).find("MASTER_PORT is ") == 0);
  }
  Variables no_port = two;
  no_port.insert({"MASTER_ADDR", "a"});
  CHECK(refused_with(no_port) == "the environment has MASTER_ADDR, but not MASTER_PORT");
}

TEST_CASE("a rank of MPI's launchers uses MPI", "[bootstrap]") {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"}) {
    INFO(name);
    set_environment({{name, "3"}, {"SLURM_PROCID", "7"}});
    CHECK(core::how_launched() == core::Launch::mpi);
    CHECK(core::launched_rank() == 3);
  }
}

TEST_CASE("Open MPI binds by default if it is not told how", "[bootstrap]") {
  const Variables bound{{"OMPI_COMM_WORLD_RANK", "3"}, {"OMPI_MCA_orte_bound_at_launch", "1"}};
  set_environment(bound);
  CHECK(core::is_bound_by_default());
  Variables oversubscribed = bound;
  oversubscribed.insert({"OMPI_MCA_rmaps_base_oversubscribe", "1"});
  set_environment(oversubscribed);
  CHECK(core::is_bound_by_default());
  for (const char* name : {"OMPI_MCA_hwloc_base_binding_policy", "OMPI_MCA_hwloc_base_cpu_list",
                           "OMPI_MCA_orte_rankfile", "OMPI_MCA_rmaps_base_mapping_policy",
                           "OMPI_MCA_rmaps_ppr_n_pernode"}) {
    Variables told = bound;
    told.insert({name, "core"});
    set_environment(told);
    CHECK_FALSE(core::is_bound_by_default());
  }
  set_environment({{"OMPI_COMM_WORLD_RANK", "3"}});
  CHECK_FALSE(core::is_bound_by_default());
}

TEST_CASE("an explicit rendezvous overrides MPI", "[bootstrap]") {
  set_environment({{"OMPI_COMM_WORLD_RANK", "3"},
                   {"OMPI_COMM_WORLD_SIZE", "4"},
                   {"SAFESHUFFLE_RENDEZVOUS", "tcp://a:1"}});
  CHECK(core::how_launched() == core::Launch::rendezvous);
  CHECK(core::launched_rank() == 3);
}

TEST_CASE("only an explicit rendezvous or all that torchrun sets makes ranks meet", "[bootstrap]") {
  Variables torchrun{{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}};
  set_environment(torchrun);
  CHECK(core::how_launched() == core::Launch::rendezvous);
  CHECK(core::launched_rank() == 1);
  for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_ADDR"}) {
    INFO(name);
    Variables some = torchrun;
    some[name] = "";
    set_environment(some);
    CHECK(core::how_launched() == core::Launch::alone);
    CHECK(core::launched_rank() == 0);
  }
  set_environment({{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}, {"MASTER_ADDR", "a"}});
  CHECK(core::how_launched() == core::Launch::alone);
}

TEST_CASE("a rank that cannot be read counts as the first", "[bootstrap]") {
  set_environment({{"RANK", "two"}, {"WORLD_SIZE", "4"}, {"SAFESHUFFLE_RENDEZVOUS", "tcp://a:1"}});
  CHECK(core::how_launched() == core::Launch::rendezvous);
  CHECK(core::launched_rank() == 0);
}

TEST_CASE("the directory of a job is that of PMIx", "[bootstrap]") {
  set_environment({});
  CHECK(core::directory_of_job() == std::nullopt);
  set_environment({{"PMIX_SERVER_TMPDIR", "/tmp/job"}});
  CHECK(core::directory_of_job() == "/tmp/job");
}
