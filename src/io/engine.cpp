// Choice of the engine.
#include "io/posix_reader.hpp"

namespace safeshuffle::io {

std::unique_ptr<Reader> make_reader(const ReaderOptions& options, const source::Source& source,
                                    std::vector<FileInfo> files, device::Staging& staging) {
  switch (options.engine) {
    case IoEngine::automatic:
    case IoEngine::posix:
      return make_posix_reader(options, source, std::move(files), staging);
  }
  throw ConfigError("unknown I/O engine");
}

}  // namespace safeshuffle::io
