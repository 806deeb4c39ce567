#include "core/leftovers.hpp"

#include <algorithm>
#include <exception>
#include <string_view>
#include <system_error>
#include <vector>

#include "core/posix_file.hpp"
#include "core/random.hpp"

namespace safeshuffle::core {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t random_part = 8;  // bytes, in two digits each

const char* infix(HiddenFile kind) {
  return kind == HiddenFile::unfinished ? ".tmp-" : ".old-";
}

struct Leftover {
  fs::path path;
  fs::path target;  // the name that it was to get, or had
};

/// NAME in a name made by `hidden_beside`; empty if it is not such a name.
std::string target_name(std::string_view name, HiddenFile kind) {
  const std::string_view middle = infix(kind);
  if (name.size() <= 1 + middle.size() + 2 * random_part || name.front() != '.') return {};
  const std::string_view digits = name.substr(name.size() - 2 * random_part);
  if (digits.find_first_not_of("0123456789abcdef") != digits.npos) return {};
  name.remove_suffix(digits.size());
  return name.ends_with(middle) ? std::string(name.substr(1, name.size() - 1 - middle.size())) : "";
}

std::vector<Leftover> find(const fs::path& directory, HiddenFile kind, const NameFilter& chosen) {
  std::vector<Leftover> found;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory)) {
    const std::string target = target_name(entry.path().filename().string(), kind);
    if (!target.empty() && chosen(target)) found.push_back({entry.path(), directory / target});
  }
  return found;
}

bool is_vacant(const fs::path& path) {
  return fs::symlink_status(path).type() == fs::file_type::not_found;
}

/// Those whose writer no longer runs. Between the renames of a running one, its file has only the
/// temporary name.
std::vector<Leftover> abandoned_earlier_files(const fs::path& directory, const NameFilter& chosen) {
  const std::vector<Leftover> unfinished = find(directory, HiddenFile::unfinished, chosen);
  std::vector<Leftover> earlier = find(directory, HiddenFile::earlier, chosen);
  std::erase_if(earlier, [&](const Leftover& file) {
    const auto is_its_writers = [&](const Leftover& other) {
      return other.target == file.target && !is_unlocked(other.path.string());
    };
    return std::any_of(unfinished.begin(), unfinished.end(), is_its_writers) ||
           (!is_vacant(file.target) && !is_unlocked(file.target.string()));
  });
  return earlier;
}

}  // namespace

fs::path directory_of(const fs::path& path) {
  const fs::path directory = path.parent_path();
  return directory.empty() ? "." : directory;
}

fs::path hidden_beside(const fs::path& path, HiddenFile kind) {
  std::string name = path.filename().string();
  name.insert(name.begin(), '.');
  return path.parent_path() /
         name.append(infix(kind)).append(hexadecimal(random_bytes(random_part)));
}

void recover_leftovers(const fs::path& directory, const NameFilter& chosen) noexcept try {
  std::error_code ignored;
  for (const Leftover& file : abandoned_earlier_files(directory, chosen)) {
    if (is_vacant(file.target)) fs::rename(file.path, file.target, ignored);
  }
  for (const Leftover& file : find(directory, HiddenFile::unfinished, chosen)) {
    if (is_unlocked(file.path.string())) fs::remove(file.path, ignored);
  }
} catch (const std::exception&) {  // another time
}

void remove_superseded(const fs::path& directory, const NameFilter& chosen) noexcept try {
  std::error_code ignored;
  for (const Leftover& file : abandoned_earlier_files(directory, chosen)) {
    if (!is_vacant(file.target)) fs::remove(file.path, ignored);
  }
} catch (const std::exception&) {  // another time
}

}  // namespace safeshuffle::core
