#include "source/header_reader.hpp"

#include <algorithm>
#include <utility>

#include "source/discover.hpp"

namespace safeshuffle::source {
namespace {

/// More than there are cores, because they wait.
constexpr std::size_t most_readers = 8;

/// Many per reader, because the slowest one is waited for at the end.
constexpr std::size_t most_ahead = 8 * most_readers;

std::size_t helpers_for(std::size_t paths) {
  return std::clamp<std::size_t>(paths, 1, most_readers) - 1;
}

}  // namespace

HeaderReader::HeaderReader(const Source& source, std::vector<std::string> paths)
    : source_(source), paths_(std::move(paths)), pool_(helpers_for(paths_.size())) {}

format::RawHeader HeaderReader::next() {
  if (next_ == ahead_begin_ + ahead_.size()) read_ahead();
  Outcome& outcome = ahead_[next_++ - ahead_begin_];
  if (outcome.error) std::rethrow_exception(outcome.error);
  return std::move(outcome.header);
}

HeaderReader::Outcome HeaderReader::read(const std::string& path) const try {
  return {read_header(source_, path), nullptr};
} catch (...) {
  return {{}, std::current_exception()};
}

void HeaderReader::read_ahead() {
  ahead_begin_ = next_;
  ahead_.assign(std::min(paths_.size() - next_, most_ahead), {});
  pool_.parallel_for(ahead_.size(),
                     [this](std::size_t i) { ahead_[i] = read(paths_[ahead_begin_ + i]); });
}

}  // namespace safeshuffle::source
