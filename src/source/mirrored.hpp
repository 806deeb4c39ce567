// Objects that are in several places.
#pragma once

#include <cerrno>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "safeshuffle/error.hpp"

#include "source/source.hpp"

namespace safeshuffle::source {

/// Paths of `source`. Where an object, or part of it, cannot be had, it is taken from the next of
/// `places`, directories or URLs, where it must have the same name and size, and the same bytes at
/// some offsets. Identities are made of size and these bytes, so that they are the same everywhere.
std::unique_ptr<Source> make_mirrored(std::unique_ptr<const Source> source,
                                      std::vector<std::string> places);

/// Adds what `another` says to the first failure.
void add_failure(std::optional<ErrorRecord>& first, const ErrorRecord& another);

/// What `open()` returns with the first place of `source` with which it throws no IoError: so that
/// all that it opens is of one place, and not of two versions of a model. If there is none, throws
/// the first error, with what the others say. An object that changes is looked for nowhere else.
template <class Open>
auto from_one_place(const Source& source, const Open& open) {
  struct Kept {
    const Source& source;
    ~Kept() { source.keep_to({}); }
  };
  const Kept kept{source};
  std::optional<ErrorRecord> failure;
  for (std::size_t place = 0; place < source.places(); ++place) {
    source.keep_to(place);
    try {
      return open();
    } catch (const IoError& error) {
      if (source.places() == 1 || error.record().code == ESTALE) throw;
      add_failure(failure, error.record());
    }
  }
  throw IoError(std::move(*failure));
}

}  // namespace safeshuffle::source
