// All ranks of a test, and the data they share.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <mpi.h>

#include "safeshuffle/error.hpp"

#include "comm/control/mpi_control.hpp"
#include "core/error_wire.hpp"
#include "core/launcher.hpp"
#include "support/temporary_directory.hpp"

namespace safeshuffle::testing {

/// The time limit of short collective steps.
inline constexpr std::chrono::seconds mpi_patience{300};

inline std::uint32_t world_rank() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return static_cast<std::uint32_t>(rank);
}

inline std::uint32_t world_size() {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return static_cast<std::uint32_t>(size);
}

inline bool is_last_rank() {
  return world_rank() + 1 == world_size();
}

inline core::Place world_place() {
  return {.rank = world_rank(), .size = world_size()};
}

/// Collective.
inline std::shared_ptr<comm::MpiGroup> world_mpi_group() {
  return std::make_shared<comm::MpiGroup>(MPI_COMM_WORLD, mpi_patience);
}

/// Collective.
inline std::unique_ptr<comm::Control> make_world_control() {
  return comm::make_mpi_control(world_mpi_group());
}

/// Every rank's text. Collective.
inline std::vector<std::string> gather_texts(const std::string& mine) {
  return make_world_control()->all_gather(mine, core::Deadline(mpi_patience));
}

/// Whether all ranks have the same text. Collective.
inline bool same_on_all(const std::string& mine) {
  const std::vector<std::string> all = gather_texts(mine);
  return std::all_of(all.begin(), all.end(), [&](const auto& text) { return text == all.front(); });
}

/// A directory that rank 0 creates and, when all ranks have finished with it, removes. Collective.
class SharedDirectory {
 public:
  SharedDirectory() {
    if (world_rank() == 0) directory_ = std::make_unique<testing::TemporaryDirectory>();
    path_ = gather_texts(directory_ ? directory_->path().string() : "").front();
  }
  ~SharedDirectory() { MPI_Barrier(MPI_COMM_WORLD); }
  SharedDirectory(const SharedDirectory&) = delete;
  SharedDirectory& operator=(const SharedDirectory&) = delete;

  const std::string& path() const noexcept { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

  /// Runs `write` on rank 0; the others wait for it. Collective.
  template <typename Write>
  void fill(const Write& write) const {
    if (directory_) write();
    MPI_Barrier(MPI_COMM_WORLD);
  }

 private:
  std::unique_ptr<testing::TemporaryDirectory> directory_;  // on rank 0
  std::string path_;
};

/// The error that `call` throws; empty if it throws none.
template <typename Call>
std::optional<ErrorRecord> error_of(const Call& call) {
  try {
    call();
  } catch (const Error& thrown) {
    return thrown.record();
  }
  return {};
}

/// The error that `call` throws on all ranks; empty if it throws none, or different ones.
/// Collective if `call` is.
template <typename Call>
std::optional<ErrorRecord> common_error(const Call& call) {
  const std::optional<ErrorRecord> error = error_of(call);
  if (!same_on_all(error ? core::encode(*error) : std::string())) return {};
  return error;
}

}  // namespace safeshuffle::testing
