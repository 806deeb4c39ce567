#include "placement/json_object.hpp"

#include <algorithm>

#include <nlohmann/json.hpp>

namespace safeshuffle::placement {

JsonObject::JsonObject(const nlohmann::json& value, std::string path, const Document& document)
    : value_(value), path_(std::move(path)), document_(document) {
  if (!value.is_object()) fail_config(document, path_, "not a JSON object");
}

void JsonObject::allow_only(std::initializer_list<std::string_view> fields) const {
  for (const auto& item : value_.items()) {
    if (std::find(fields.begin(), fields.end(), item.key()) == fields.end()) {
      fail(item.key(), "unknown field");
    }
  }
}

const nlohmann::json* JsonObject::find(std::string_view field) const {
  const auto found = value_.find(std::string(field));
  return found == value_.end() ? nullptr : &*found;
}

bool JsonObject::flag(std::string_view field, bool otherwise) const {
  const nlohmann::json* value = find(field);
  if (value == nullptr) return otherwise;
  if (!value->is_boolean()) fail(field, "not true or false");
  return value->get<bool>();
}

std::string JsonObject::text(std::string_view field) const {
  const nlohmann::json* value = find(field);
  if (value == nullptr) fail(field, "missing");
  if (!value->is_string()) fail(field, "not a string");
  return value->get<std::string>();
}

std::vector<std::string> JsonObject::strings(std::string_view field) const {
  const nlohmann::json* value = find(field);
  if (value == nullptr) return {};
  std::vector<std::string> list;
  for (const auto& item : value->is_array() ? *value : nlohmann::json::array({*value})) {
    if (!item.is_string()) fail(field, "not a string or a list of strings");
    list.push_back(item.get<std::string>());
  }
  return list;
}

std::string JsonObject::path(std::string_view field) const {
  return (path_.empty() ? "" : path_ + ".") + std::string(field);
}

void JsonObject::fail(std::string_view field, const std::string& cause) const {
  fail_config(document_, path(field), cause);
}

}  // namespace safeshuffle::placement
