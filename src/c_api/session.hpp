// What is behind the handle of a session.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "safeshuffle/communicator.hpp"
#include "safeshuffle/options.hpp"
#include "safeshuffle/safeshuffle.h"
#include "safeshuffle/session.hpp"

struct safeshuffle_session {
  /// Throws ConfigError if no checkpoint is open.
  safeshuffle::Session& open();

  /// Describes what has been opened.
  void describe();

  safeshuffle::Communicator comm;
  safeshuffle::Options options;
  std::optional<safeshuffle::Session> session = {};
  std::vector<safeshuffle_tensor> tensors = {};
  std::vector<safeshuffle_pair> metadata = {};
  std::vector<const char*> warnings = {};
  std::string report = {};
};

namespace safeshuffle::c_api {

std::vector<std::string> texts(const char* const* begin, std::size_t count);

}  // namespace safeshuffle::c_api
