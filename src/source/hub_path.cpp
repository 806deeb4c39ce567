#include "source/hub_path.hpp"

#include <array>

#include "safeshuffle/error.hpp"

namespace safeshuffle::source {
namespace {

constexpr std::string_view hub_scheme = "hf://";

// Of other revisions, slashes must be encoded, as for huggingface_hub.
constexpr std::array<std::string_view, 2> with_slashes{"refs/pr/", "refs/convert/"};

}  // namespace

bool is_hub_path(std::string_view path) noexcept {
  return path.starts_with(hub_scheme);
}

HubPath parse_hub_path(const std::string& path) {
  const std::string_view rest = std::string_view(path).substr(hub_scheme.size());
  const std::size_t slash = rest.find('/');
  std::size_t end = slash == std::string_view::npos ? slash : rest.find('/', slash + 1);
  const std::size_t at = rest.substr(0, end).find('@');
  for (const std::string_view prefix : with_slashes) {
    const bool is_such = at != std::string_view::npos && rest.substr(at + 1).starts_with(prefix);
    if (is_such) end = rest.find('/', at + 1 + prefix.size());
  }
  const std::string_view repository = rest.substr(0, end);
  HubPath place{std::string(repository.substr(0, at)), "main", {}};
  if (at != std::string_view::npos) place.revision = repository.substr(at + 1);
  if (end != std::string_view::npos) place.inside = rest.substr(end + 1);
  while (place.inside.starts_with('/')) place.inside.erase(0, 1);
  while (place.inside.ends_with('/')) place.inside.pop_back();
  if (slash == std::string_view::npos || place.model.ends_with('/') || place.revision.empty()) {
    throw IoError(
        ErrorRecord{.file = path, .cause = "must be hf://ORG/NAME or hf://ORG/NAME@REVISION"});
  }
  return place;
}

}  // namespace safeshuffle::source
