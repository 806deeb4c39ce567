// What a load leaves in the page cache of the files that it reads.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "safeshuffle/metadata.hpp"
#include "safeshuffle/report.hpp"

#include "comm/control/agreement.hpp"
#include "plan/schedule.hpp"
#include "plan/segments.hpp"
#include "source/source.hpp"

namespace safeshuffle::pipeline {

/// Ascending and disjoint.
using Ranges = std::vector<plan::Range>;

/// The parts of the first `size` bytes of an object that the page cache has, in whole pages. Empty
/// if the system does not tell.
std::optional<Ranges> cached_ranges(const source::Handle& object, std::uint64_t size);

/// What `range` has outside of `ranges`.
Ranges outside(const Ranges& ranges, plan::Range range);

/// Bytes that are in both.
std::uint64_t overlap(const Ranges& a, const Ranges& b);

/// What the page cache had of some files at one time, to drop what it has gained since. A file of
/// which the system did not tell is left alone. Failures to open a file are ignored: what reads it
/// reports them.
class CachedBefore {
 public:
  /// `source` and `files` must outlive it; `chosen` are indexes into `files`.
  CachedBefore(const source::Source& source, std::span<const FileInfo> files,
               std::span<const std::uint32_t> chosen, const comm::Heartbeat& beat);

  /// Null if unknown.
  const Ranges* of(std::uint32_t file) const;

  /// Drops whole pages of a range that were not there. Returns how many bytes of them are gone.
  std::uint64_t drop(std::uint32_t file, plan::Range range) const;

  /// The same of all files, with what is still being read ahead. Nobody may be reading them for the
  /// load any more.
  std::uint64_t drop_all(const comm::Heartbeat& beat) const;

  /// What the page cache has of a file now; empty if unknown.
  std::optional<Ranges> now(std::uint32_t file) const;

 private:
  std::unique_ptr<source::Handle> open(std::uint32_t file) const;
  using Drop = std::uint64_t (*)(const source::Handle&, plan::Range);
  std::uint64_t drop_gained(std::uint32_t file, plan::Range range, Drop drop_part) const;

  const source::Source& source_;
  const std::span<const FileInfo> files_;
  std::map<std::uint32_t, std::optional<Ranges>> cached_;
};

/// The same of what one rank reads according to a schedule, which must outlive it.
class CacheFootprint {
 public:
  /// To be made before any rank of the node reads.
  CacheFootprint(const source::Source& source, const plan::Schedule& schedule, std::uint32_t rank,
                 const comm::Heartbeat& beat);

  /// Drops what reading `wave` has brought into the page cache, which all ranks must have read:
  /// several may read the same bytes. Waves in order.
  void drop(std::uint32_t wave);

  /// Drops the rest, such as what the system has read ahead, after the last wave of all ranks.
  void drop_all(const comm::Heartbeat& beat);

  CacheUse use(const comm::Heartbeat& beat) const;

 private:
  void drop(std::uint32_t file, plan::Range range);

  const plan::Schedule& schedule_;
  const std::uint32_t rank_;
  const CachedBefore before_;
  std::map<std::uint32_t, Ranges> reads_;         // by file: in all waves
  std::map<std::uint32_t, plan::Range> dropped_;  // by file: of the last waves, without a gap
  std::uint64_t dropped_bytes_ = 0;
};

/// Another source, of which nothing stays in the page cache that was not there: what a handle has
/// brought there is dropped with it. So nobody else may be reading the object.
class DroppingSource final : public source::Source {
 public:
  explicit DroppingSource(const source::Source& source) : source_(source) {}

  source::Entry look_up(const std::string& path) const override { return source_.look_up(path); }
  std::vector<std::string> names_in(const std::string& directory) const override {
    return source_.names_in(directory);
  }
  std::string canonical(const std::string& path) const override { return source_.canonical(path); }
  core::FileIdentity identify(const std::string& path) const override {
    return source_.identify(path);
  }
  std::unique_ptr<source::Handle> open(const std::string& path,
                                       source::Access access) const override;

 private:
  const source::Source& source_;
};

}  // namespace safeshuffle::pipeline
