// hf://ORG/NAME[@REVISION][/DIRECTORY…]: the Hugging Face hub, and what speaks its language.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "safeshuffle/error.hpp"

#include "source/hub_path.hpp"
#include "source/remote/client.hpp"
#include "source/remote/store.hpp"

namespace safeshuffle::source {
namespace {

namespace fs = std::filesystem;

std::string first_line(const fs::path& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return trimmed(line);
}

// As huggingface_hub looks for it.
std::string find_token() {
  for (const char* const name : {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"}) {
    if (std::string token = trimmed(variable(name)); !token.empty()) return token;
  }
  if (const std::string path = variable("HF_TOKEN_PATH"); !path.empty()) return first_line(path);
  if (const std::string home = variable("HF_HOME"); !home.empty()) {
    return first_line(fs::path(home) / "token");
  }
  const std::string cache = variable("XDG_CACHE_HOME");
  if (!cache.empty()) return first_line(fs::path(cache) / "huggingface" / "token");
  const std::string home = variable("HOME");
  return home.empty() ? home : first_line(fs::path(home) / ".cache" / "huggingface" / "token");
}

std::string find_endpoint() {
  std::string endpoint = variable("HF_ENDPOINT");
  while (endpoint.ends_with('/')) endpoint.pop_back();
  return endpoint.empty() ? "https://huggingface.co" : endpoint;
}

std::string text_of(const nlohmann::json& json, const char* field) {
  const auto found = json.find(field);
  return found != json.end() && found->is_string() ? found->get<std::string>() : std::string();
}

// Names may be encoded already.
std::string at_revision(const HubPath& place, const std::string& between) {
  return percent_encoded(place.model, "/%") + between + percent_encoded(place.revision, "%");
}

class Hub final : public Store {
 public:
  Hub(HttpClient& client, std::vector<std::string> headers)
      : client_(client), endpoint_(find_endpoint()), secrets_(std::move(headers)) {
    const std::string token = find_token();
    has_token_ = !token.empty();
    if (has_token_) secrets_.push_back("Authorization: Bearer " + token);
  }

  HttpRequest request(const std::string& path) const override {
    const HubPath place = parse_hub_path(path);
    return {.url = endpoint_ + "/" + at_revision(place, "/resolve/") + "/" +
                   percent_encoded(place.inside, "/"),
            .secrets = secrets_};
  }

  std::string explain(const HttpResponse& answer) const override {
    std::string said = excerpt_of(answer.header("x-error-message"));
    if (answer.status != 401 && answer.status != 403) return said;
    if (!said.empty()) said += ": ";
    return said + (has_token_ ? "the token gives no access to this repository"
                              : "private and gated repositories need a token, in HF_TOKEN");
  }

  bool is_directory(const std::string& path) const override {
    return parse_hub_path(path).inside.empty();
  }

  std::vector<std::string> names_in(const std::string& directory) const override {
    auto names = names_of(revision_of(directory), parse_hub_path(directory).inside);
    if (!names) refuse(directory, "lists no files");
    return *std::move(names);
  }

  Pinned pinned(const std::string& directory) const override {
    const HubPath place = parse_hub_path(directory);
    const nlohmann::json revision = revision_of(directory);
    const std::string commit = text_of(revision, "sha");
    if (commit.empty()) return {directory, {}};
    const std::string root = "hf://" + place.model + "@" + commit;
    return {place.inside.empty() ? root : root + "/" + place.inside,
            names_of(revision, place.inside)};
  }

 private:
  // Of the files in a directory; empty if none are listed.
  static std::optional<std::vector<std::string>> names_of(const nlohmann::json& revision,
                                                          const std::string& directory) {
    const auto files = revision.find("siblings");
    if (files == revision.end() || !files->is_array()) return {};
    std::vector<std::string> names;
    for (const nlohmann::json& file : *files) {
      const fs::path path = text_of(file, "rfilename");
      std::string name = path.filename().string();
      const bool is_hidden = name.starts_with('.');
      if (path.parent_path() == directory && !is_hidden) names.push_back(std::move(name));
    }
    std::ranges::sort(names);
    return names;
  }

  nlohmann::json revision_of(const std::string& path) const {
    const HubPath place = parse_hub_path(path);
    const std::string text = fetch_text(client_, *this, path, [&] {
      return HttpRequest{.url = endpoint_ + "/api/models/" + at_revision(place, "/revision/"),
                         .secrets = secrets_};
    });
    nlohmann::json revision = nlohmann::json::parse(text, nullptr, false);
    if (revision.is_object()) return revision;
    refuse(path, "is not a JSON object");
  }

  [[noreturn]] static void refuse(const std::string& path, const std::string& cause) {
    throw IoError(ErrorRecord{.file = path, .cause = "the hub's answer " + cause});
  }

  HttpClient& client_;
  const std::string endpoint_;
  std::vector<std::string> secrets_;
  bool has_token_ = false;
};

}  // namespace

std::unique_ptr<Store> make_hub_store(HttpClient& client, std::vector<std::string> headers) {
  return std::make_unique<Hub>(client, std::move(headers));
}

}  // namespace safeshuffle::source
