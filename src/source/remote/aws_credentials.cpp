#include "source/remote/aws_credentials.hpp"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "safeshuffle/error.hpp"

#include "core/deadline.hpp"
#include "source/remote/client.hpp"
#include "source/remote/store.hpp"

namespace safeshuffle::source {
namespace {

namespace fs = std::filesystem;
using std::chrono::system_clock;

using namespace std::chrono_literals;

constexpr std::chrono::minutes early{5};  // before they expire, they are fetched anew
constexpr std::chrono::seconds between_looks{10};
constexpr std::chrono::seconds metadata_stall{1};
constexpr std::chrono::milliseconds hasty_patience{1500};
constexpr const char* instance_metadata = "http://169.254.169.254";
constexpr const char* container_metadata = "http://169.254.170.2";

std::string content_of(const std::string& path) {
  std::ifstream in(path);
  std::ostringstream content;
  content << in.rdbuf();
  if (!in) throw IoError(ErrorRecord{.file = path, .cause = "cannot read AWS credentials"});
  return trimmed(content.str());
}

// The fields of one section of an .ini file are added to `profile`.
void read_section(const fs::path& path, const std::string& section, AwsProfile& profile) {
  std::ifstream in(path);
  bool is_in_section = false;
  for (std::string line; std::getline(in, line);) {
    const bool is_nested = line.starts_with(' ') || line.starts_with('\t');
    line = trimmed(line);
    if (line.empty() || line.front() == '#' || line.front() == ';') continue;
    if (line.front() == '[') {
      is_in_section = trimmed(line.substr(1, line.find(']') - 1)) == section;
    } else if (const std::size_t equals = line.find('=');
               is_in_section && !is_nested && equals != std::string::npos) {
      profile[trimmed(line.substr(0, equals))] = trimmed(line.substr(equals + 1));
    }
  }
}

// Empty if there is none.
fs::path aws_file(const char* given_by, const char* name) {
  const std::string given = variable(given_by);
  const std::string home = variable("HOME");
  if (!given.empty() || home.empty()) return given;
  return fs::path(home) / ".aws" / name;
}

std::string field(const AwsProfile& profile, const std::string& name) {
  const auto found = profile.find(name);
  return found == profile.end() ? std::string() : found->second;
}

// "2026-11-28T20:00:00Z"
std::optional<system_clock::time_point> parse_time(const std::string& text) {
  int year = 0;
  int month = 0;
  int day = 0;
  int hour = 0;
  int minute = 0;
  int second = 0;
  if (std::sscanf(text.c_str(), "%d-%d-%dT%d:%d:%d", &year, &month, &day, &hour, &minute,
                  &second) != 6) {
    return {};
  }
  const std::chrono::year_month_day date{std::chrono::year(year),
                                         std::chrono::month(static_cast<unsigned>(month)),
                                         std::chrono::day(static_cast<unsigned>(day))};
  return std::chrono::sys_days(date) + std::chrono::hours(hour) + std::chrono::minutes(minute) +
         std::chrono::seconds(second);
}

[[noreturn]] void fail(const std::string& what, const HttpResponse& answer) {
  std::string why = answer.failure;
  if (why.empty()) why = "HTTP " + std::to_string(answer.status);
  if (const std::string said = said_in(answer); !said.empty()) why += ": " + said;
  throw IoError("no AWS credentials: " + what + ": " + why);
}

bool is_good(const HttpResponse& answer) {
  return answer.failure.empty() && answer.status == 200;
}

std::shared_ptr<const AwsKeys> complete(AwsKeys keys, const std::string& what) {
  if (!keys.id.empty() && !keys.secret.empty()) return std::make_shared<AwsKeys>(std::move(keys));
  throw IoError("no AWS credentials: " + what + ": the answer has none");
}

// As containers and instances answer.
std::shared_ptr<const AwsKeys> keys_in(const HttpResponse& answer, const std::string& what) {
  if (!is_good(answer)) fail(what, answer);
  const nlohmann::json json = nlohmann::json::parse(answer.body, nullptr, false);
  const auto text = [&](const char* name) {
    const auto found = json.is_object() ? json.find(name) : json.end();
    return found != json.end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  return complete(
      {text("AccessKeyId"), text("SecretAccessKey"), text("Token"), parse_time(text("Expiration"))},
      what);
}

HttpRequest metadata_request(std::string url, std::vector<std::string> headers = {}) {
  return {.url = std::move(url),
          .secrets = std::move(headers),
          .through_proxy = false,
          .stall = metadata_stall};
}

}  // namespace

AwsProfile read_aws_profile() {
  std::string name = variable("AWS_PROFILE");
  if (name.empty()) name = "default";
  AwsProfile profile;
  const fs::path config = aws_file("AWS_CONFIG_FILE", "config");
  read_section(config, "profile " + name, profile);
  if (name == "default") read_section(config, name, profile);
  read_section(aws_file("AWS_SHARED_CREDENTIALS_FILE", "credentials"), name, profile);
  if (profile.empty() && !variable("AWS_PROFILE").empty()) {
    throw ConfigError("AWS_PROFILE is '" + name + "', but there is no such profile in " +
                      config.string() + " or beside it");
  }
  return profile;
}

std::string aws_setting(const AwsProfile& profile, std::initializer_list<const char*> variables,
                        const std::string& name) {
  for (const char* const each : variables) {
    if (std::string value = variable(each); !value.empty()) return value;
  }
  return field(profile, name);
}

std::string aws_domain(const std::string& region) {
  return region.starts_with("cn-") ? ".amazonaws.com.cn" : ".amazonaws.com";
}

AwsCredentials::AwsCredentials(HttpClient& client, AwsProfile profile, std::string region)
    : client_(client), profile_(std::move(profile)), region_(std::move(region)) {}

std::shared_ptr<const AwsKeys> AwsCredentials::current() {
  const std::scoped_lock lock(mutex_);
  const auto expires_within = [this](auto time) {
    return keys_ && keys_->expire && *keys_->expire - time < system_clock::now();
  };
  const bool has_looked = core::Clock::now() - looked_ < between_looks;
  if (is_known_ && (!expires_within(early) || (has_looked && !expires_within(0s)))) return keys_;
  if (failure_ && has_looked) std::rethrow_exception(failure_);
  looked_ = core::Clock::now();
  try {
    auto found = find();
    if (found || !keys_ || expires_within(0s)) keys_ = std::move(found);
    is_known_ = true;
    failure_ = nullptr;
  } catch (...) {
    failure_ = std::current_exception();
    if (!keys_ || expires_within(0s)) throw;
  }
  return keys_;
}

bool AwsCredentials::has_some() {
  const std::scoped_lock lock(mutex_);
  return keys_ != nullptr;
}

void AwsCredentials::forget() {
  const std::scoped_lock lock(mutex_);
  is_known_ = false;
  keys_ = nullptr;
}

std::shared_ptr<const AwsKeys> AwsCredentials::find() const {
  const std::string unsigned_wanted = variable("AWS_NO_SIGN_REQUEST");
  if (unsigned_wanted == "YES" || unsigned_wanted == "true") return nullptr;
  if (const std::string id = variable("AWS_ACCESS_KEY_ID"); !id.empty()) {
    return std::make_shared<AwsKeys>(
        AwsKeys{id, variable("AWS_SECRET_ACCESS_KEY"), variable("AWS_SESSION_TOKEN"), {}});
  }
  const std::string role = variable("AWS_ROLE_ARN");
  const std::string token_file = variable("AWS_WEB_IDENTITY_TOKEN_FILE");
  if (!role.empty() && !token_file.empty()) return by_web_identity(role, token_file);
  if (auto keys = of_profile()) return keys;
  if (auto keys = of_container()) return keys;
  return of_instance();
}

std::shared_ptr<const AwsKeys> AwsCredentials::by_web_identity(
    const std::string& role, const std::string& token_file) const {
  std::string session = variable("AWS_ROLE_SESSION_NAME");
  if (session.empty()) session = "safeshuffle";
  const std::string given = aws_setting(profile_, {"AWS_ENDPOINT_URL_STS", "AWS_ENDPOINT_URL"}, "");
  const std::string token = content_of(token_file);
  const HttpRequest request{
      .url = given.empty() ? "https://sts." + region_ + aws_domain(region_) + "/" : given,
      .method = "POST",
      .content = "Action=AssumeRoleWithWebIdentity&Version=2011-06-15&RoleArn=" +
                 percent_encoded(role) + "&RoleSessionName=" + percent_encoded(session) +
                 "&WebIdentityToken=" + percent_encoded(token),
      .secret = token};
  const HttpResponse answer = client_.fetch([&] { return request; });
  const std::string what = request.url + " does not accept the web identity";
  if (!is_good(answer)) fail(what, answer);
  const auto part = [&](const std::string& name) {
    return between(answer.body, "<" + name + ">", "</" + name + ">");
  };
  return complete({part("AccessKeyId"), part("SecretAccessKey"), part("SessionToken"),
                   parse_time(part("Expiration"))},
                  "the security token service");
}

std::shared_ptr<const AwsKeys> AwsCredentials::of_profile() const {
  const std::string id = field(profile_, "aws_access_key_id");
  const std::string role = field(profile_, "role_arn");
  const std::string token_file = field(profile_, "web_identity_token_file");
  if (!role.empty() && !token_file.empty()) return by_web_identity(role, token_file);
  for (const char* const kind :
       {"role_arn", "sso_session", "sso_start_url", "credential_process", "login_session"}) {
    if (field(profile_, kind).empty() || (!id.empty() && role.empty())) continue;
    throw ConfigError("the AWS profile has credentials by " + std::string(kind) +
                      ", which is not supported; run: eval \"$(aws configure export-credentials "
                      "--format env)\"");
  }
  if (id.empty()) return nullptr;
  return std::make_shared<AwsKeys>(AwsKeys{
      id, field(profile_, "aws_secret_access_key"), field(profile_, "aws_session_token"), {}});
}

std::shared_ptr<const AwsKeys> AwsCredentials::of_container() const {
  const std::string relative = variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
  const std::string full = variable("AWS_CONTAINER_CREDENTIALS_FULL_URI");
  if (relative.empty() && full.empty()) return nullptr;
  std::string token = variable("AWS_CONTAINER_AUTHORIZATION_TOKEN");
  const std::string token_file = variable("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
  if (!token_file.empty()) token = content_of(token_file);
  std::vector<std::string> headers;
  if (!token.empty()) headers.push_back("Authorization: " + token);
  const std::string url = relative.empty() ? full : container_metadata + relative;
  const HttpResponse answer = client_.fetch([&] { return metadata_request(url, headers); });
  return keys_in(answer, "the metadata of the container");
}

// Most machines are no instances of AWS, and nothing answers there.
std::shared_ptr<const AwsKeys> AwsCredentials::of_instance() const {
  if (variable("AWS_EC2_METADATA_DISABLED") == "true") return nullptr;
  std::string base = variable("AWS_EC2_METADATA_SERVICE_ENDPOINT");
  while (base.ends_with('/')) base.pop_back();
  if (base.empty()) base = instance_metadata;
  HttpClient hasty({.patience = hasty_patience});
  const HttpResponse token = hasty.fetch([&] {
    HttpRequest request = metadata_request(base + "/latest/api/token",
                                           {"x-aws-ec2-metadata-token-ttl-seconds: 21600"});
    request.method = "PUT";
    return request;
  });
  if (!is_good(token)) return nullptr;
  const auto get = [&](const std::string& name) {
    return client_.fetch([&] {
      return metadata_request(base + "/latest/meta-data/iam/security-credentials/" + name,
                              {"x-aws-ec2-metadata-token: " + token.body});
    });
  };
  const HttpResponse role = get("");
  if (role.failure.empty() && role.status == 404) return nullptr;
  const std::string what = "the metadata of the instance";
  if (!is_good(role)) fail(what, role);
  return keys_in(get(trimmed(role.body.substr(0, role.body.find('\n')))), what);
}

}  // namespace safeshuffle::source
