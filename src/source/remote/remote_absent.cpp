#include "safeshuffle/error.hpp"

#include "source/remote/remote.hpp"

namespace safeshuffle::source {

std::unique_ptr<Source> make_remote(const RemoteOptions&, std::chrono::milliseconds) {
  throw ConfigError(
      "this safeshuffle was built without libcurl, which URLs need: install libcurl's headers "
      "(libcurl4-openssl-dev) and build it again, or download the files");
}

}  // namespace safeshuffle::source
