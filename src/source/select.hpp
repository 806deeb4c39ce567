// Files of this machine, and objects at URLs.
#pragma once

#include <memory>
#include <string_view>

#include "source/remote/remote.hpp"
#include "source/source.hpp"

namespace safeshuffle::source {

/// Whether a path begins with http://, https://, s3:// or hf://.
bool is_url(std::string_view path) noexcept;

/// Throws ConfigError if an output would go to a URL.
void refuse_to_write(const std::string& path);

/// Paths are URLs, or else those of files (source/files.hpp). What takes half of the time-out
/// fails, or its share of that where there are several sources.
std::shared_ptr<const Source> make_source(const RemoteOptions& options,
                                          std::chrono::milliseconds timeout = Options().timeout);

}  // namespace safeshuffle::source
