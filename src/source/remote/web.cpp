// http:// and https://
#include <algorithm>
#include <array>
#include <filesystem>
#include <span>
#include <utility>

#include "safeshuffle/error.hpp"

#include "format/index.hpp"
#include "source/remote/client.hpp"
#include "source/remote/store.hpp"

namespace safeshuffle::source {
namespace {

constexpr const char* index_name = "model.safetensors.index.json";
constexpr const char* single_name = "model.safetensors";

// Web servers do not list directories in a way that programs can rely on.
class Web final : public Store {
 public:
  Web(HttpClient& client, std::vector<std::string> headers)
      : client_(client), headers_(std::move(headers)) {}

  // Names in an index are as they are, and paths may be encoded already.
  HttpRequest request(const std::string& path) const override {
    return {
        .url = percent_encoded(path, ":/%!$&'()*+,;=@[]"), .secrets = headers_, .with_netrc = true};
  }

  std::string explain(const HttpResponse& answer) const override {
    if (answer.status != 401 && answer.status != 403) return {};
    return "if it needs a password or a token, put it into ~/.netrc or give it with --header";
  }

  // Buckets, for example, that may not be listed.
  bool forbids_what_is_absent() const override { return true; }

  std::vector<std::string> names_in(const std::string& directory) const override {
    const auto path_of = [&](const char* name) {
      return (std::filesystem::path(directory) / name).string();
    };
    const HttpResponse answer = get(path_of(index_name));
    if (answer.status == 200) {
      const format::Index index = format::parse_index(answer.body, path_of(index_name));
      std::vector<std::string> names{index_name};
      for (const format::IndexedFile& file : index.files) names.push_back(file.name);
      std::ranges::sort(names);
      return names;
    }
    std::array<std::byte, 1> beginning;
    const HttpResponse single = get(path_of(single_name), beginning);
    if (single.status == 206 || single.status == 200) return {single_name};
    if (answer.status != 404) raise_answer(*this, path_of(index_name), answer);
    if (single.status != 404) raise_answer(*this, path_of(single_name), single);
    throw IoError(ErrorRecord{
        .file = directory,
        .cause = std::string("there is neither ") + index_name + " nor " + single_name +
                 ": a web server does not list its files, so give the URLs of an index or of "
                 "files"});
  }

 private:
  // Of a range, its beginning.
  HttpResponse get(const std::string& path, std::span<std::byte> to = {}) const {
    HttpResponse answer = client_.fetch(
        [&] {
          HttpRequest made = request(path);
          if (!to.empty())
            made.headers.push_back("Range: bytes=0-" + std::to_string(to.size() - 1));
          return made;
        },
        to);
    if (!answer.failure.empty()) raise_answer(*this, path, answer);
    return answer;
  }

  HttpClient& client_;
  const std::vector<std::string> headers_;
};

}  // namespace

std::unique_ptr<Store> make_web_store(HttpClient& client, std::vector<std::string> headers) {
  return std::make_unique<Web>(client, std::move(headers));
}

}  // namespace safeshuffle::source
