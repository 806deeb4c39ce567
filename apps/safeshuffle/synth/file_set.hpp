// Several files that appear together or not at all.
#pragma once

#include <filesystem>
#include <list>
#include <string>
#include <string_view>

#include "core/atomic_file.hpp"
#include "core/new_directory.hpp"
#include "output/file_writer.hpp"

namespace safeshuffle::synth {

/// A directory and the new files in it. If destroyed without a successful `commit`, it removes the
/// files and the directories that it created. Not thread-safe; different writers may be used by
/// different threads.
class FileSet {
 public:
  /// Creates `directory` if needed. Throws IoError.
  explicit FileSet(std::filesystem::path directory);

  /// Adds a file; the reference is valid as long as the set. Throws ConfigError if a file with that
  /// name exists.
  output::FileWriter& add(const std::string& name, format::HeaderLayout layout);

  /// Adds a file that contains just `text`. Throws as `add`.
  void add_text(const std::string& name, std::string_view text);

  /// Makes all files appear under their names, the texts last. Throws IoError.
  void commit();

 private:
  std::filesystem::path vacant(const std::string& name) const;

  std::filesystem::path directory_;
  core::NewDirectory new_directory_;
  std::list<output::FileWriter> writers_;
  std::list<core::AtomicFile> texts_;
};

}  // namespace safeshuffle::synth
