// Credentials, region and endpoint, from where AWS's own tools have them.
#pragma once

#include <chrono>
#include <exception>
#include <initializer_list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

namespace safeshuffle::source {

class HttpClient;

struct AwsKeys {
  std::string id;
  std::string secret;
  std::string token;  ///< empty if they are not temporary
  std::optional<std::chrono::system_clock::time_point> expire;
};

/// Of ~/.aws/config and ~/.aws/credentials: what they say of the profile in AWS_PROFILE.
/// https://docs.aws.amazon.com/sdkref/latest/guide/file-format.html
using AwsProfile = std::map<std::string, std::string>;
AwsProfile read_aws_profile();

/// The first of these variables of the environment that is set, or else this field of the profile.
std::string aws_setting(const AwsProfile& profile, std::initializer_list<const char*> variables,
                        const std::string& field);

/// ".amazonaws.com", or that of China's regions.
std::string aws_domain(const std::string& region);

/// Looks, in this order, in the environment; at a web identity, as of a Kubernetes service account;
/// in the profile; at the metadata of a container; at those of the instance.
/// https://docs.aws.amazon.com/sdkref/latest/guide/standardized-credentials.html
/// Thread-safe.
class AwsCredentials {
 public:
  AwsCredentials(HttpClient& client, AwsProfile profile, std::string region);

  /// Those to sign with now; null if there are none anywhere. Throws IoError if they should be
  /// somewhere, but cannot be had; ConfigError if that is of a kind that is not supported; the same
  /// for some seconds.
  std::shared_ptr<const AwsKeys> current();

  /// Whether the last look found some.
  bool has_some();

  /// What `current` returns next is looked for anew.
  void forget();

 private:
  std::shared_ptr<const AwsKeys> find() const;
  std::shared_ptr<const AwsKeys> by_web_identity(const std::string& role,
                                                 const std::string& token_file) const;
  std::shared_ptr<const AwsKeys> of_profile() const;
  std::shared_ptr<const AwsKeys> of_container() const;
  std::shared_ptr<const AwsKeys> of_instance() const;

  HttpClient& client_;
  const AwsProfile profile_;
  const std::string region_;
  std::mutex mutex_;  // guards what follows
  bool is_known_ = false;
  std::shared_ptr<const AwsKeys> keys_;
  std::exception_ptr failure_;
  std::chrono::steady_clock::time_point looked_;
};

}  // namespace safeshuffle::source
