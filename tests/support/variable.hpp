// Variables of the environment.
#pragma once

#include <cstdlib>
#include <optional>
#include <string>

namespace safeshuffle::testing {

/// Sets a variable, or unsets it (null), for as long as it lives; then it is what it was before.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    value == nullptr ? ::unsetenv(name) : ::setenv(name, value, 1);
  }
  ~Variable() { before_ ? ::setenv(name_, before_->c_str(), 1) : ::unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_;
};

}  // namespace safeshuffle::testing
