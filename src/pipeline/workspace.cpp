#include "pipeline/workspace.hpp"

#include <algorithm>
#include <future>
#include <span>
#include <utility>

#include "safeshuffle/error.hpp"

#include "core/thread.hpp"
#include "plan/schedule.hpp"

namespace safeshuffle::pipeline {
namespace {

std::shared_ptr<std::byte> allocate(device::Device& device, std::uint64_t bytes) {
  return bytes == 0 ? nullptr : device.allocate(bytes);
}

std::vector<FileInfo> files_of(const Catalog& catalog) {
  return {catalog.files().begin(), catalog.files().end()};
}

bool reads_remotely(const source::Source& source, const Catalog& catalog) {
  return std::ranges::any_of(catalog.files(),
                             [&](const FileInfo& file) { return source.is_remote(file.path); });
}

}  // namespace

Workspace::Workspace(std::shared_ptr<const source::Source> source, Communicator comm,
                     Options options)
    : source_(std::move(source)),
      comm_(std::move(comm)),
      options_(std::move(options)),
      device_(comm_.device_handle()),
      abandoned_(std::make_unique<Abandoned>()) {}

void Workspace::reserve() {
  if (std::exchange(is_reserved_, true)) {
    throw ConfigError("a load or stream of this session has begun and is not at its end");
  }
}

void Workspace::end_reservation() noexcept {
  is_reserved_ = false;
  if (reader_) reader_->start_over({});
}

// Locking the pages of the ring takes milliseconds, in which the rest is allocated.
std::shared_ptr<Buffers> Workspace::prepare(const Plan& plan, const plan::LentMemory* lent,
                                            unsigned sharers) {
  if (packer_) {
    queue_->follow_caller();
  } else {
    queue_ = device_->make_queue();
    packer_ = device_->make_packer(*queue_);
  }
  if (!abandoned_) abandoned_ = std::make_unique<Abandoned>();
  const RankSummary& rank = plan.ranks()[comm_.rank()];
  const bool is_enough = reader_ && is_kept(rank.slab_bytes, slab_bytes_) &&
                         is_kept(rank.pack_bytes + rank.landing_bytes, pack_bytes_);
  std::future<std::unique_ptr<device::Staging>> ring;
  if (!is_enough) {
    release_scratch();
    if (options_.plan.memory_budget != 0) slab_bytes_ = pack_bytes_ = 0;
    slab_bytes_ = std::max(slab_bytes_, rank.slab_bytes);
    pack_bytes_ = std::max(pack_bytes_, rank.pack_bytes + rank.landing_bytes);
    place_ = io::reading_place(*device_, sharers);
    place_.is_remote = reads_remotely(*source_, plan.catalog());
    reader_options_ = io::reader_options(options_, place_);
    ring = core::start_async([&] { return make_ring(); });
  }
  const auto buffers = std::make_shared<Buffers>();
  arena_bytes_ = lent == nullptr ? rank.arena_bytes : lent->new_bytes.value_or(0);
  buffers->arena = allocate(*device_, arena_bytes_);
  if (lent != nullptr && !lent->new_bytes) buffers->arena = {lent->owner, lent->base};
  if (is_enough) {
    reader_->start_over(files_of(plan.catalog()));
  } else {
    allocate_scratch(plan.schedule().slabs);
    staging_ = ring.get();
    make_reader(plan.catalog());
  }
  buffers->slabs = slabs_;
  buffers->pack_buffer = pack_buffer_;
  return buffers;
}

void Workspace::release() noexcept {
  release_scratch();
  slab_bytes_ = pack_bytes_ = 0;
  packer_.reset();
  queue_.reset();
}

void Workspace::abandon(std::shared_ptr<Buffers> buffers) noexcept {
  abandoned_->threads.emplace();
  abandoned_->source = source_;
  abandoned_->device = device_;
  abandoned_->buffers = std::move(buffers);
  abandoned_->staging = std::move(staging_);
  abandoned_->reader = std::move(reader_);
  static_cast<void>(abandoned_.release());  // never freed
}

void Workspace::release_scratch() noexcept {
  reader_.reset();
  staging_.reset();
  slabs_.clear();
  pack_buffer_.reset();
}

// A budget is that of each plan, so no load keeps for it what an earlier one needed.
bool Workspace::is_kept(std::uint64_t needed, std::uint64_t bytes) const noexcept {
  return options_.plan.memory_budget == 0 ? needed <= bytes : needed == bytes;
}

void Workspace::allocate_scratch(std::uint32_t slabs) {
  while (slabs_.size() < slabs) slabs_.push_back(allocate(*device_, slab_bytes_));
  pack_buffer_ = allocate(*device_, pack_bytes_);
}

// Near the CPUs that fill it. No piece is larger than a slab, whatever the chunk.
std::unique_ptr<device::Staging> Workspace::make_ring() const {
  const std::uint64_t slot_bytes = std::min(reader_options_.chunk, slab_bytes_);
  std::unique_ptr<device::Staging> ring;
  core::run_on(io::reader_cpus(place_, reader_options_.threads), [&] {
    ring = device_->make_staging(slot_bytes, io::ring_slots(reader_options_, slot_bytes));
  });
  return ring;
}

// Its threads stay on the CPUs that this one runs on meanwhile.
void Workspace::make_reader(const Catalog& catalog) {
  std::vector<std::span<std::byte>> slabs;
  for (const auto& slab : slabs_) {
    if (slab) slabs.emplace_back(slab.get(), slab_bytes_);
  }
  core::run_on(io::reader_cpus(place_, reader_options_.threads), [&] {
    reader_ = io::make_reader(reader_options_, *source_, files_of(catalog), *staging_, slabs);
    reading_ = {core::allowed_cpus(), reader_->path().threads, reader_options_.chunk};
  });
}

}  // namespace safeshuffle::pipeline
