// What moves file data into memory, one range at a time.
#pragma once

#include <exception>
#include <memory>
#include <string>

#include "io/range_read.hpp"

namespace safeshuffle::io {

/// One range to read, on its way through an engine: `begin`, then the calls of its result, then
/// `end`, one after the other, on any thread.
class Job {
 public:
  virtual ~Job() = default;

  /// Opens the file and decides how to read it. The result lives as long as the job. Throws Error,
  /// also if the job was cancelled: then there is nothing to call, but `end`.
  virtual RangeRead& begin() = 0;

  /// Always called, and last: the range is read, or `error`, from `begin` or from a call.
  virtual void end(std::exception_ptr error) noexcept = 0;
};

/// Thread-safe. Destroyed only when all jobs have ended.
class Engine {
 public:
  virtual ~Engine() = default;

  /// Returns at once. Jobs begin in the order of these calls. Throws std::bad_alloc; the job is
  /// then dropped without `end`.
  virtual void start(std::unique_ptr<Job> job) = 0;

  /// For the report.
  virtual std::string name() const = 0;

  /// That read.
  virtual unsigned threads() const noexcept = 0;
};

/// Reads with `threads` > 0 threads that make blocking calls. Throws MemoryError.
std::unique_ptr<Engine> make_posix_engine(unsigned threads);

}  // namespace safeshuffle::io
