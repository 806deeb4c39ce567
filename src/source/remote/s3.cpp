// s3://BUCKET/KEY: Amazon S3, and what speaks its language.
#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <map>
#include <mutex>
#include <set>
#include <string_view>
#include <utility>

#include "safeshuffle/error.hpp"

#include "source/remote/aws_credentials.hpp"
#include "source/remote/client.hpp"
#include "source/remote/store.hpp"

namespace safeshuffle::source {
namespace {

struct Location {
  std::string bucket;
  std::string key;
};

Location parse_location(const std::string& path) {
  constexpr std::string_view scheme = "s3://";
  const std::string_view rest = std::string_view(path).substr(scheme.size());
  const std::size_t slash = std::min(rest.find('/'), rest.size());
  const std::string_view bucket = rest.substr(0, slash);
  const bool is_name = !bucket.empty() && std::ranges::all_of(bucket, [](unsigned char c) {
    return std::isalnum(c) || c == '.' || c == '-' || c == '_';
  });
  if (!is_name) throw IoError(ErrorRecord{.file = path, .cause = "must be s3://BUCKET/PREFIX"});
  return {std::string(bucket), std::string(rest.substr(std::min(slash + 1, rest.size())))};
}

std::string percent_decoded(std::string_view text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size()) {
      const std::string digits(text.substr(i + 1, 2));
      result += static_cast<char>(std::strtol(digits.c_str(), nullptr, 16));
      i += 2;
    } else {
      result += text[i] == '+' ? ' ' : text[i];
    }
  }
  return result;
}

std::string without_entities(std::string text) {
  constexpr std::array<std::pair<std::string_view, char>, 5> entities{
      {{"&lt;", '<'}, {"&gt;", '>'}, {"&quot;", '"'}, {"&apos;", '\''}, {"&amp;", '&'}}};
  for (const auto& [entity, character] : entities) {
    for (std::size_t at = text.find(entity); at != std::string::npos;
         at = text.find(entity, at + 1)) {
      text.replace(at, entity.size(), 1, character);
    }
  }
  return text;
}

// "eu-west-3": it becomes part of a host's name.
bool is_region(const std::string& text) {
  return !text.empty() && std::ranges::all_of(text, [](unsigned char c) {
    return std::islower(c) || std::isdigit(c) || c == '-';
  });
}

class S3 final : public Store {
 public:
  S3(HttpClient& client, std::vector<std::string> headers)
      : client_(client),
        headers_(std::move(headers)),
        profile_(read_aws_profile()),
        endpoint_(
            aws_setting(profile_, {"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"}, "endpoint_url")),
        region_(aws_setting(profile_, {"AWS_REGION", "AWS_DEFAULT_REGION"}, "region")),
        credentials_(client, profile_, region_.empty() ? first_region : region_) {
    if (region_.empty()) region_ = first_region;
    if (!is_region(region_)) throw ConfigError("'" + region_ + "' is no region of AWS");
    while (endpoint_.ends_with('/')) endpoint_.pop_back();
    const bool is_web = endpoint_.starts_with("http://") || endpoint_.starts_with("https://");
    if (!endpoint_.empty() && !is_web) {
      throw ConfigError("the endpoint of S3 must begin with https:// or http://");
    }
  }

  HttpRequest request(const std::string& path) const override {
    const Location location = parse_location(path);
    return signed_request(location.bucket, "/" + percent_encoded(location.key, "/"));
  }

  bool forbids_what_is_absent() const override { return true; }

  // A bucket may be in another region than was thought, and keys may have expired.
  bool renew(const std::string& path, const HttpRequest& made,
             const HttpResponse& answer) const override {
    if (!answer.failure.empty() || !same_origin(answer.url, made.url)) return false;
    std::string region(answer.header("x-amz-bucket-region"));
    if (region.empty()) region = between(answer.body, "<Region>", "</Region>");
    const std::string bucket = parse_location(path).bucket;
    if (is_region(region) && is_for_another(made, region)) {
      const std::scoped_lock lock(mutex_);
      regions_[bucket] = region;
      return true;
    }
    const std::string code = between(answer.body, "<Code>", "</Code>");
    if (code != "ExpiredToken" && code != "TokenRefreshRequired") return false;
    credentials_.forget();
    return true;
  }

  std::string explain(const HttpResponse& answer) const override {
    if (answer.status != 401 && answer.status != 403) return {};
    if (credentials_.has_some()) return {};
    return "no AWS credentials were found, so the request was not signed";
  }

  bool is_directory(const std::string& path) const override {
    const std::string key = parse_location(path).key;
    return key.empty() || key.ends_with('/');
  }

  std::vector<std::string> names_in(const std::string& directory) const override {
    const Location location = parse_location(directory);
    std::string prefix = location.key;
    if (!prefix.empty() && !prefix.ends_with('/')) prefix += '/';
    std::vector<std::string> names;
    std::string next;
    std::set<std::string> tokens;
    do {
      const std::string page = list(directory, location.bucket, prefix, next);
      if (page.find("</ListBucketResult>") == std::string::npos) refuse_list(directory);
      add_names(page, prefix, names);
      next.clear();
      if (between(page, "<IsTruncated>", "</IsTruncated>") != "true") break;
      next = without_entities(between(page, "<NextContinuationToken>", "</NextContinuationToken>"));
      if (next.empty() || !tokens.insert(next).second) refuse_list(directory);
    } while (true);
    std::ranges::sort(names);
    return names;
  }

 private:
  [[noreturn]] static void refuse_list(const std::string& directory) {
    throw IoError(
        ErrorRecord{.file = directory, .cause = "the list of its objects is not complete"});
  }

  // Path style where the endpoint is given, and for names that are no host names of a certificate.
  std::string base_of(const std::string& bucket, const std::string& region) const {
    if (!endpoint_.empty()) return endpoint_ + "/" + bucket;
    const std::string host = "s3." + region + aws_domain(region);
    if (bucket.find_first_of("._") != std::string::npos) return "https://" + host + "/" + bucket;
    return "https://" + bucket + "." + host;
  }

  static std::string signature_name(const std::string& region) {
    return "aws:amz:" + region + ":s3";
  }

  bool is_for_another(const HttpRequest& made, const std::string& region) const {
    if (!made.sign_as.empty()) return made.sign_as != signature_name(region);
    return endpoint_.empty() && made.url.find("s3." + region + ".") == std::string::npos;
  }

  HttpRequest signed_request(const std::string& bucket, const std::string& rest) const {
    const std::string region = region_of(bucket);
    HttpRequest request{.url = base_of(bucket, region) + rest, .secrets = headers_};
    const auto keys = credentials_.current();
    if (!keys) return request;
    request.sign_as = signature_name(region);
    request.user = keys->id + ":" + keys->secret;
    if (!keys->token.empty()) request.secrets.push_back("x-amz-security-token: " + keys->token);
    return request;
  }

  // Signatures are made of the query as it is here: sorted, and with all encoded.
  std::string list(const std::string& directory, const std::string& bucket,
                   const std::string& prefix, const std::string& next) const {
    return fetch_text(client_, *this, directory, [&] {
      const std::string token =
          next.empty() ? std::string() : "continuation-token=" + percent_encoded(next) + "&";
      return signed_request(bucket, "?" + token +
                                        "delimiter=%2F&encoding-type=url&list-type=2&prefix=" +
                                        percent_encoded(prefix));
    });
  }

  // Of the objects right in this directory.
  static void add_names(std::string_view page, const std::string& prefix,
                        std::vector<std::string>& names) {
    constexpr std::string_view begin = "<Key>";
    const bool is_encoded = between(page, "<EncodingType>", "</EncodingType>") == "url";
    for (std::size_t at = page.find(begin); at != std::string_view::npos;
         at = page.find(begin, at + begin.size())) {
      std::string key = without_entities(between(page.substr(at), begin, "</Key>"));
      if (is_encoded) key = percent_decoded(key);
      if (!key.starts_with(prefix)) continue;
      std::string name = key.substr(prefix.size());
      const bool is_here = !name.empty() && name.find('/') == std::string::npos;
      if (is_here && !name.starts_with('.')) names.push_back(std::move(name));
    }
  }

  std::string region_of(const std::string& bucket) const {
    const std::scoped_lock lock(mutex_);
    const auto found = regions_.find(bucket);
    return found == regions_.end() ? region_ : found->second;
  }

  static constexpr const char* first_region = "us-east-1";

  HttpClient& client_;
  const std::vector<std::string> headers_;
  const AwsProfile profile_;
  std::string endpoint_;
  std::string region_;
  mutable std::mutex mutex_;                            // guards the next member
  mutable std::map<std::string, std::string> regions_;  // of buckets that are in another one
  mutable AwsCredentials credentials_;
};

}  // namespace

std::unique_ptr<Store> make_s3_store(HttpClient& client, std::vector<std::string> headers) {
  return std::make_unique<S3>(client, std::move(headers));
}

}  // namespace safeshuffle::source
