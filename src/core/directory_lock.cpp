#include "core/directory_lock.hpp"

#include <chrono>
#include <ctime>
#include <span>
#include <sstream>
#include <string>
#include <system_error>
#include <unistd.h>

#include "safeshuffle/error.hpp"

#include "core/backoff.hpp"
#include "core/deadline.hpp"
#include "core/process.hpp"

namespace safeshuffle::core {
namespace {

namespace fs = std::filesystem;

constexpr const char* lock_name = ".safeshuffle.lock";

// How long a new holder may take to write its identity; until then, the file may name the last one.
constexpr std::chrono::seconds grace{1};

/// The content of a lock file: one line with these words.
struct Holder {
  std::string group;
  std::uint32_t rank = 0;
  std::string host;
  pid_t process = 0;
  std::string since;
};

std::string now_as_text() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[32];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc)};
}

std::string encode(const Holder& holder) {
  std::ostringstream line;
  line << holder.group << ' ' << holder.rank << ' ' << holder.host << ' ' << holder.process << ' '
       << holder.since << '\n';
  return line.str();
}

/// Empty unless the line is complete.
std::optional<Holder> read_holder(const std::string& path) try {
  constexpr std::uint64_t limit = 4096;
  const std::string text = read_text(path, limit);
  if (!text.ends_with('\n')) return {};
  std::istringstream line(text);
  Holder holder;
  line >> holder.group >> holder.rank >> holder.host >> holder.process >> holder.since;
  return line ? std::optional(holder) : std::nullopt;
} catch (const IoError&) {  // the holder has removed it in the meantime
  return {};
}

[[noreturn]] void raise_held(const fs::path& path, const std::optional<Holder>& holder) {
  std::string cause = "another process is saving into this directory";
  if (holder) {
    cause += ": process " + std::to_string(holder->process) + " on " + holder->host + ", since " +
             holder->since;
  }
  throw ConfigError(ErrorRecord{.file = path.parent_path().string(), .cause = std::move(cause)});
}

}  // namespace

DirectoryLock::DirectoryLock(const fs::path& directory, const std::string& group,
                             std::uint32_t rank)
    : path_(directory / lock_name) {
  Deadline patience(grace);
  for (Backoff backoff; !acquire(group, rank); backoff.pause()) {
    const std::optional<Holder> holder = read_holder(path_.string());
    if (holder && holder->group == group) {
      holder_ = holder->rank;
      return;
    }
    if (patience.expired()) raise_held(path_, holder);
  }
}

DirectoryLock::~DirectoryLock() {
  const UnfinishedLock lock = lock_unfinished();
  roll_back();
  forget();
}

/// Whether this object now holds the lock. A holder removes the file before it releases the lock,
/// so locking a file that no longer exists has no effect.
bool DirectoryLock::acquire(const std::string& group, std::uint32_t rank) {
  const UnfinishedLock lock = lock_unfinished();
  PosixFile file = PosixFile::open_or_create(path_.string());
  if (!file.try_lock() || !file.has_name(path_.string())) return false;
  file_ = std::move(file);
  holder_ = rank;
  try {
    const std::string line = encode({group, rank, host_name(), ::getpid(), now_as_text()});
    file_->resize(0);
    file_->write(0, std::as_bytes(std::span(line)));
    file_->sync();  // makes it visible to other nodes
    track();
  } catch (...) {
    roll_back();
    throw;
  }
  return true;
}

void DirectoryLock::roll_back() noexcept {
  if (!file_) return;
  std::error_code ignored;
  fs::remove(path_, ignored);
  file_->unlock();
}

}  // namespace safeshuffle::core
