#include "source/header_reader.hpp"

#include <algorithm>
#include <memory>
#include <utility>

#include "source/discover.hpp"

namespace safeshuffle::source {
namespace {

/// More than there are cores, because they wait.
constexpr std::size_t most_readers = 8;

/// So that none idles while the caller uses what has been read.
constexpr std::size_t most_ahead = 2 * most_readers;

/// One header is read by the caller itself.
std::size_t readers_for(std::size_t paths) {
  return paths == 1 ? 0 : std::min(paths, most_readers);
}

}  // namespace

HeaderReader::HeaderReader(const Source& source, std::vector<std::string> paths)
    : source_(source), paths_(std::move(paths)), pool_(readers_for(paths_.size())) {}

format::RawHeader HeaderReader::next() {
  if (paths_.size() == 1) return read_header(source_, paths_.front());
  read_ahead();
  std::future<format::RawHeader> header = std::move(ahead_.front());
  ahead_.pop_front();
  return header.get();
}

void HeaderReader::read_ahead() {
  while (submitted_ < paths_.size() && ahead_.size() < most_ahead) {
    const auto read = std::make_shared<std::packaged_task<format::RawHeader()>>(
        [this, &path = paths_[submitted_++]] { return read_header(source_, path); });
    ahead_.push_back(read->get_future());
    pool_.submit([read] { (*read)(); });
  }
}

}  // namespace safeshuffle::source
