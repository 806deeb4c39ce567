// Files as a source, of which a test changes how they are opened and read.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "source/files.hpp"

namespace safeshuffle::testing {

/// For tests to derive from: all but `open` is that of the files.
class WrappedFiles : public source::Source {
 public:
  source::Entry look_up(const std::string& path) const override { return files_.look_up(path); }
  std::vector<std::string> names_in(const std::string& directory) const override {
    return files_.names_in(directory);
  }
  std::string canonical(const std::string& path) const override { return files_.canonical(path); }
  core::FileIdentity identify(const std::string& path) const override {
    return files_.identify(path);
  }

 protected:
  const source::Source& files_ = source::files();
};

/// For those who share a source: one that outlives them.
inline std::shared_ptr<const source::Source> borrowed(const source::Source& source) {
  return {std::shared_ptr<void>(), &source};
}

}  // namespace safeshuffle::testing
