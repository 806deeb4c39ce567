#include "safeshuffle/bootstrap.hpp"

#include <array>
#include <charconv>
#include <cstdlib>
#include <optional>
#include <system_error>

#include "safeshuffle/error.hpp"

namespace safeshuffle {
namespace {

/// The variables by which one launcher tells a process its place.
struct Launcher {
  const char* rank;
  const char* size;
  const char* local_rank;
};

constexpr std::array launchers{
    Launcher{"RANK", "WORLD_SIZE", "LOCAL_RANK"},
    Launcher{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
    Launcher{"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"},
    Launcher{"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"},
};

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

const Launcher& find_launcher() {
  for (const Launcher& launcher : launchers) {
    if (variable(launcher.rank)) return launcher;
  }
  std::string cause = "no launcher has told this process its rank: set";
  for (const Launcher& launcher : launchers) {
    cause += &launcher == &launchers.front() ? " " : ", or ";
    cause += std::string(launcher.rank) + " and " + launcher.size;
  }
  throw ConfigError(cause);
}

void require_place(const Launcher& launcher, const Bootstrap& place) {
  if (place.rank < place.size) return;
  throw ConfigError(std::string(launcher.rank) + " is " + std::to_string(place.rank) +
                    ", but must be less than " + launcher.size + ", which is " +
                    std::to_string(place.size));
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

std::string meeting_address() {
  if (const auto address = variable("SAFESHUFFLE_RENDEZVOUS")) return *address;
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

}  // namespace

Bootstrap Bootstrap::from_environment() {
  const Launcher& launcher = find_launcher();
  Bootstrap place;
  place.rank = number(launcher.rank, *variable(launcher.rank));
  place.size = number(launcher.size, required(launcher.size, launcher.rank));
  place.local_rank = number(launcher.local_rank, variable(launcher.local_rank).value_or("0"));
  require_place(launcher, place);
  if (place.size > 1) place.address = meeting_address();
  return place;
}

}  // namespace safeshuffle
