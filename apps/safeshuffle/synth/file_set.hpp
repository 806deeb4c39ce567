// Several files that appear together or not at all.
#pragma once

#include <filesystem>
#include <list>
#include <string>
#include <string_view>

#include "core/atomic_file.hpp"
#include "format/writer.hpp"

namespace safeshuffle::synth {

/// A directory and the new files in it. Destroyed without a `commit` that succeeded, it removes the
/// files, and the directory if it created that. Not thread-safe; distinct writers may be used by
/// distinct threads.
class FileSet {
 public:
  /// Creates `directory` if needed. Throws IoError.
  explicit FileSet(std::filesystem::path directory);
  ~FileSet();
  FileSet(const FileSet&) = delete;
  FileSet& operator=(const FileSet&) = delete;

  /// Adds a file; the reference is valid as long as the set. Throws ConfigError if a file of that
  /// name exists.
  format::FileWriter& add(const std::string& name, format::HeaderLayout layout);

  /// Adds a file that holds just `text`. Throws as `add`.
  void add_text(const std::string& name, std::string_view text);

  /// Makes all files appear under their names, the texts last. Throws IoError.
  void commit();

 private:
  std::filesystem::path vacant(const std::string& name) const;
  void discard() noexcept;

  std::filesystem::path directory_;
  bool created_ = false;
  bool committed_ = false;
  std::list<format::FileWriter> writers_;
  std::list<core::AtomicFile> texts_;
};

}  // namespace safeshuffle::synth
