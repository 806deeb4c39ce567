// Strict access to one JSON object: an unknown field, or one of the wrong type, is an error that
// names the key.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "placement/document.hpp"

namespace safeshuffle::placement {

/// A view: the value and the document must outlive it.
class JsonObject {
 public:
  /// `path` names the object in messages, such as "rules[2]"; empty for the whole file. Throws
  /// ConfigError if `value` is not an object.
  JsonObject(const nlohmann::json& value, std::string path, const Document& document);

  const nlohmann::json& value() const noexcept { return value_; }
  const Document& document() const noexcept { return document_; }

  /// Throws ConfigError if there is a field other than these.
  void allow_only(std::initializer_list<std::string_view> fields) const;

  /// Null if absent.
  const nlohmann::json* find(std::string_view field) const;
  bool has(std::string_view field) const { return find(field) != nullptr; }

  /// Throw ConfigError if the field has another type or, for `text`, is absent.
  bool flag(std::string_view field, bool otherwise) const;
  std::string text(std::string_view field) const;

  /// A string or a list of strings; empty if absent. Throws ConfigError if it is something else.
  std::vector<std::string> strings(std::string_view field) const;

  /// "rules[2].units"
  std::string path(std::string_view field) const;

  /// Throws ConfigError about a field.
  [[noreturn]] void fail(std::string_view field, const std::string& cause) const;

 private:
  const nlohmann::json& value_;
  std::string path_;
  const Document& document_;
};

}  // namespace safeshuffle::placement
