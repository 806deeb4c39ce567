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
constexpr std::size_t most_blocks_ahead = 2 * most_readers;

/// A slow answer of storage delays the rest of its block.
constexpr std::size_t most_per_block = 16;

/// One header is read by the caller itself.
std::size_t readers_for(std::size_t paths) {
  return paths == 1 ? 0 : std::min(paths, most_readers);
}

/// Each reader has several blocks, so that all end at about the same time.
std::size_t block_for(std::size_t paths) {
  constexpr std::size_t blocks_per_reader = 8;
  return std::clamp<std::size_t>(paths / (blocks_per_reader * most_readers), 1, most_per_block);
}

}  // namespace

HeaderReader::HeaderReader(const Source& source, std::vector<std::string> paths)
    : source_(source),
      paths_(std::move(paths)),
      per_block_(block_for(paths_.size())),
      pool_(readers_for(paths_.size())) {}

format::RawHeader HeaderReader::next() {
  Outcome outcome = paths_.size() == 1 ? read(paths_.front()) : take();
  if (outcome.error) std::rethrow_exception(outcome.error);
  return std::move(outcome.header);
}

HeaderReader::Outcome HeaderReader::take() {
  if (taken_ == block_.size()) {
    read_ahead();
    block_ = ahead_.front().get();
    ahead_.pop_front();
    taken_ = 0;
  }
  return std::move(block_[taken_++]);
}

void HeaderReader::read_ahead() {
  while (submitted_ < paths_.size() && ahead_.size() < most_blocks_ahead) {
    const auto read = std::make_shared<std::packaged_task<Block()>>(
        [this, first = submitted_] { return read_block(first); });
    ahead_.push_back(read->get_future());
    pool_.submit([read] { (*read)(); });
    submitted_ += per_block_;
  }
}

HeaderReader::Block HeaderReader::read_block(std::size_t first) const {
  const std::size_t last = std::min(first + per_block_, paths_.size());
  Block block;
  block.reserve(last - first);
  for (std::size_t i = first; i < last; ++i) block.push_back(read(paths_[i]));
  return block;
}

HeaderReader::Outcome HeaderReader::read(const std::string& path) const noexcept {
  try {
    return {read_header(source_, path), nullptr};
  } catch (...) {
    return {{}, std::current_exception()};
  }
}

}  // namespace safeshuffle::source
