#include "core/launcher.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <span>
#include <string_view>
#include <system_error>
#include <unistd.h>

#include "safeshuffle/error.hpp"

namespace safeshuffle::core {
namespace {

/// The variables in which one launcher passes a process its rank and group size.
struct Family {
  const char* rank;
  const char* size;
  const char* local_rank;
};

constexpr Family torchrun{"RANK", "WORLD_SIZE", "LOCAL_RANK"};
constexpr Family open_mpi{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                          "OMPI_COMM_WORLD_LOCAL_RANK"};
constexpr Family pmi{"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"};
constexpr Family slurm{"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"};

constexpr std::array families{torchrun, open_mpi, pmi, slurm};

/// Set for every rank of MPI by Open MPI, by PMIx and PMI launchers (MPICH, Slurm).
constexpr std::array mpi_ranks{open_mpi.rank, "PMIX_RANK", pmi.rank};

/// How the variables begin that Open MPI 4 sets if it was told where to put ranks, by --bind-to,
/// --map-by, --cpu-list, --rankfile, their older forms and others.
constexpr std::array<std::string_view, 3> open_mpi_bindings{
    "OMPI_MCA_hwloc_base_", "OMPI_MCA_rmaps_", "OMPI_MCA_orte_rankfile="};

/// One that begins so, but only says how many ranks there may be.
constexpr std::string_view open_mpi_oversubscription = "OMPI_MCA_rmaps_base_oversubscribe=";

constexpr const char* explicit_address = "SAFESHUFFLE_RENDEZVOUS";

std::optional<std::string> variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr || *value == '\0' ? std::nullopt : std::optional<std::string>(value);
}

std::string required(const char* name, const std::string& given) {
  if (const auto value = variable(name)) return *value;
  throw ConfigError("the environment has " + given + ", but not " + name);
}

std::uint32_t number(const char* name, const std::string& text) {
  constexpr std::uint32_t most = 0x7fff'ffff;  // ranks in errors are signed
  std::uint32_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, code] = std::from_chars(text.data(), end, value);
  if (code != std::errc() || stop != end || value > most) {
    throw ConfigError(std::string(name) + " is '" + text + "', which is not a number from 0 to " +
                      std::to_string(most));
  }
  return value;
}

const Family& find_family() {
  for (const Family& family : families) {
    if (variable(family.rank)) return family;
  }
  std::string cause = "the rank of this process is unknown: set";
  for (const Family& family : families) {
    cause += &family == &families.front() ? " " : ", or ";
    cause += std::string(family.rank) + " and " + family.size;
  }
  throw ConfigError(cause);
}

void require_consistent(const Family& family, const Place& place) {
  if (place.rank < place.size) return;
  throw ConfigError(std::string(family.rank) + " is " + std::to_string(place.rank) +
                    ", but must be less than " + family.size + ", which is " +
                    std::to_string(place.size));
}

std::optional<std::string> mpi_rank() {
  for (const char* name : mpi_ranks) {
    if (auto rank = variable(name)) return rank;
  }
  return std::nullopt;
}

std::uint32_t port_beside(const std::string& master_port) {
  constexpr std::uint32_t last = 65535;
  const std::uint32_t port = number("MASTER_PORT", master_port);
  if (port == 0 || port > last) {
    throw ConfigError("MASTER_PORT is " + master_port + ", but ports are 1 to 65535");
  }
  return port < last ? port + 1 : port - 1;
}

std::string job_name() {
  if (const auto run = variable("TORCHELASTIC_RUN_ID")) return "/" + *run;
  const auto job = variable("SLURM_JOB_ID");
  return job ? "/" + *job + "." + variable("SLURM_STEP_ID").value_or("") : "";
}

std::span<char*> environment() {
  char** end = environ;
  while (*end != nullptr) ++end;
  return {environ, end};
}

bool says_where_ranks_go(std::string_view variable) {
  if (variable.starts_with(open_mpi_oversubscription)) return false;
  return std::ranges::any_of(open_mpi_bindings, [variable](std::string_view beginning) {
    return variable.starts_with(beginning);
  });
}

}  // namespace

Launch how_launched() {
  if (variable(explicit_address)) return Launch::rendezvous;
  if (mpi_rank()) return Launch::mpi;
  const bool by_torchrun =
      variable(torchrun.rank) && variable(torchrun.size) && variable("MASTER_ADDR");
  return by_torchrun ? Launch::rendezvous : Launch::alone;
}

int launched_rank() try {
  const Launch launch = how_launched();
  if (launch == Launch::mpi) return std::atoi(mpi_rank()->c_str());
  return launch == Launch::alone ? 0 : static_cast<int>(launched_place().rank);
} catch (const ConfigError&) {  // thrown again when the rank joins its group
  return 0;
}

Place launched_place() {
  const Family& family = find_family();
  Place place;
  place.rank = number(family.rank, *variable(family.rank));
  place.size = number(family.size, required(family.size, family.rank));
  place.local_rank = number(family.local_rank, variable(family.local_rank).value_or("0"));
  require_consistent(family, place);
  return place;
}

std::string rendezvous_address() {
  if (const auto address = variable(explicit_address)) return *address;
  if (!variable("MASTER_ADDR")) {
    throw ConfigError(
        "the ranks have no rendezvous address: set SAFESHUFFLE_RENDEZVOUS to tcp://HOST:PORT, or "
        "set MASTER_ADDR and MASTER_PORT");
  }
  std::string host = *variable("MASTER_ADDR");
  if (host.find(':') != std::string::npos && host.front() != '[') host = "[" + host + "]";
  const std::uint32_t port = port_beside(required("MASTER_PORT", "MASTER_ADDR"));
  return "tcp://" + host + ":" + std::to_string(port) + job_name();
}

std::optional<std::string> directory_of_job() {
  return variable("PMIX_SERVER_TMPDIR");
}

bool is_bound_by_default() {
  return variable("OMPI_MCA_orte_bound_at_launch") &&
         std::ranges::none_of(environment(), says_where_ranks_go);
}

}  // namespace safeshuffle::core
