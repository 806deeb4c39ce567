#include "source/hub_path.hpp"

#include "safeshuffle/error.hpp"

namespace safeshuffle::source {
namespace {

constexpr std::string_view hub_scheme = "hf://";

}  // namespace

bool is_hub_path(std::string_view path) noexcept {
  return path.starts_with(hub_scheme);
}

HubPath parse_hub_path(const std::string& path) {
  const std::string_view rest = std::string_view(path).substr(hub_scheme.size());
  const std::size_t slash = rest.find('/');
  const std::size_t end = slash == std::string_view::npos ? slash : rest.find('/', slash + 1);
  const std::string_view repository = rest.substr(0, end);
  const std::size_t at = repository.find('@');
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
