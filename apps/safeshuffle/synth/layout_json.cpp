// The two JSON forms of a layout (docs/layouts.md): compact, by rules, and explicit, by a list of
// all tensors.
#include <algorithm>
#include <filesystem>
#include <iterator>
#include <set>
#include <utility>

#include <nlohmann/json.hpp>

#include "safeshuffle/error.hpp"

#include "synth/embedded_layouts.hpp"
#include "synth/header_style.hpp"
#include "synth/layout.hpp"

namespace safeshuffle::synth {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::uint64_t max_layers = 100'000;

void check_keys(const Json& object, const std::set<std::string>& known) {
  for (const auto& [key, value] : object.items()) {
    if (!known.contains(key)) throw ConfigError("unknown key '" + key + "'");
  }
}

std::uint64_t whole(const std::string& expression, const Values& values) {
  const auto value = evaluate(expression, values);
  if (!value) throw ConfigError("expression '" + expression + "' is not a whole number");
  return *value;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (std::size_t at = text.find(from); at != text.npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
  return text;
}

// --- rules

ShapeRules rules_of(const Json& doc) {
  ShapeRules rules;
  doc.at("widths").get_to(rules.widths);
  const Json dimensions = doc.value("dimensions", Json::object());
  for (const auto& [name, expression] : dimensions.items()) {
    rules.dimensions.emplace_back(name, expression.get<std::string>());
  }
  for (const auto& [pattern, extents] : doc.at("tensors").items()) {
    rules.extents.emplace(pattern_of(pattern), extents.get<std::vector<std::string>>());
  }
  return rules;
}

std::string model_type(const Json& doc) {
  return doc.at("config").value("model_type", std::string());
}

ShapeRules builtin_rules(const std::string& type) {
  std::string known;
  for (const core::EmbeddedFile& file : core::embedded_layouts()) {
    const Json doc = Json::parse(file.text);
    if (model_type(doc) == type) return rules_of(doc);
    known += (known.empty() ? "" : ", ") + model_type(doc);
  }
  throw ConfigError("no shapes are known for model_type '" + type + "' (known: " + known +
                    "): state them as 'tensors' and 'widths'");
}

Values checked_values(const Layout& layout) {
  auto values = values_of(layout.config, layout.rules);
  if (!values) throw ConfigError("a dimension is not a whole number");
  for (const std::string& width : layout.rules.widths) {
    if (!values->contains(width)) throw ConfigError("width '" + width + "' is not in config");
  }
  return *std::move(values);
}

// --- files, at first with the names of their tensors only

void add_tensor(LayoutFile& file, std::string name) {
  file.tensors.push_back({.name = std::move(name), .dtype = DType::U8, .shape = {}});
}

std::optional<std::uint64_t> declared_size(const Json& value) {
  if (value.is_null()) return std::nullopt;
  if (!value.is_number_unsigned()) throw ConfigError("a file size is not a whole number");
  return value.get<std::uint64_t>();
}

std::vector<LayoutFile> listed_files(const Json& doc) {
  std::vector<LayoutFile> files;
  std::map<std::string, std::size_t> index;
  for (const auto& [name, size] : doc.at("files").items()) {
    index.emplace(name, files.size());
    files.push_back({.name = name, .size = declared_size(size), .tensors = {}});
  }
  for (const auto& [tensor, file] : doc.at("weight_map").items()) {
    const auto found = index.find(file.get<std::string>());
    if (found == index.end()) {
      throw ConfigError("weight_map names file '" + file.get<std::string>() +
                        "', which is not in files");
    }
    add_tensor(files[found->second], tensor);
  }
  return files;
}

// Adjacent patterns with a `*` form one layer and are repeated together.
std::vector<std::string> tensor_names(const Json& tensors, std::uint64_t layers) {
  std::vector<std::string> names;
  std::vector<std::string> block;
  const auto flush = [&] {
    for (std::uint64_t layer = 0; layer < layers && !block.empty(); ++layer) {
      for (const auto& name : block) names.push_back(replaced(name, "*", std::to_string(layer)));
    }
    block.clear();
  };
  for (const auto& [pattern, extents] : tensors.items()) {
    if (pattern.find('*') != pattern.npos) {
      block.push_back(pattern);
    } else {
      flush();
      names.push_back(pattern);
    }
  }
  flush();
  return names;
}

std::vector<LayoutFile> cut_into_files(std::vector<std::string> names,
                                       const std::vector<std::string>& starts) {
  std::set<std::string> unused(starts.begin(), starts.end());
  const std::set<std::string> all = unused;
  std::vector<LayoutFile> files;
  for (std::string& name : names) {
    const std::string start = all.contains(name) ? name : pattern_of(name);
    if (all.contains(start)) files.emplace_back();
    if (files.empty()) throw ConfigError("no file starts with the first tensor, '" + name + "'");
    unused.erase(start);
    add_tensor(files.back(), std::move(name));
  }
  if (!unused.empty()) throw ConfigError("no tensor is called '" + *unused.begin() + "'");
  return files;
}

std::string five_digits(std::size_t number) {
  const std::string digits = std::to_string(number);
  return std::string(5 - std::min<std::size_t>(5, digits.size()), '0') + digits;
}

void name_files(std::vector<LayoutFile>& files, const std::string& pattern) {
  const std::string name = replaced(pattern, "{count}", five_digits(files.size()));
  for (std::size_t i = 0; i < files.size(); ++i) {
    files[i].name = replaced(name, "{index}", five_digits(i + 1));
  }
}

void set_sizes(std::vector<LayoutFile>& files, const Json& sizes) {
  if (sizes.size() != files.size()) {
    throw ConfigError(std::to_string(sizes.size()) + " sizes are given for " +
                      std::to_string(files.size()) + " files");
  }
  for (std::size_t i = 0; i < files.size(); ++i) files[i].size = declared_size(sizes.at(i));
}

std::vector<LayoutFile> ruled_files(const Json& doc, const Values& values) {
  const std::uint64_t layers = whole(doc.at("layers").get<std::string>(), values);
  if (layers > max_layers) throw ConfigError("more than " + std::to_string(max_layers) + " layers");
  const Json& rule = doc.at("files");
  check_keys(rule, {"name", "starts", "sizes"});
  auto files = cut_into_files(tensor_names(doc.at("tensors"), layers),
                              rule.at("starts").get<std::vector<std::string>>());
  name_files(files, rule.at("name").get<std::string>());
  if (rule.contains("sizes")) set_sizes(files, rule.at("sizes"));
  return files;
}

// --- types and shapes

DType dtype_of(const Json& name) {
  const auto dtype = parse_dtype(name.get<std::string>());
  if (!dtype) throw ConfigError("unknown dtype '" + name.get<std::string>() + "'");
  return *dtype;
}

void complete_tensors(Layout& layout, const Json& dtypes, const Values& values) {
  std::size_t named = 0;
  for (LayoutFile& file : layout.files) {
    for (format::TensorSpec& tensor : file.tensors) {
      const bool own = dtypes.contains(tensor.name);
      if (own) ++named;
      tensor.dtype = dtype_of(dtypes.at(own ? tensor.name : "default"));
      tensor.shape = shape_of(tensor.name, layout.rules, values);
    }
  }
  if (named + 1 != dtypes.size()) throw ConfigError("dtypes names a tensor that does not exist");
}

// --- checks of the whole

bool is_plain_file_name(const std::string& name) {
  const std::filesystem::path path(name);
  return path.filename() == path && path.extension() == ".safetensors";
}

void check_names(const Layout& layout) {
  std::set<std::string> files;
  std::set<std::string> tensors;
  for (const LayoutFile& file : layout.files) {
    if (!is_plain_file_name(file.name)) {
      throw ConfigError("'" + file.name + "' is not the name of a .safetensors file");
    }
    if (!files.insert(file.name).second) throw ConfigError("duplicate file '" + file.name + "'");
    for (const auto& tensor : file.tensors) {
      if (!tensors.insert(tensor.name).second)
        throw ConfigError("duplicate tensor '" + tensor.name + "'");
    }
  }
  if (files.empty()) throw ConfigError("a layout needs at least one file");
}

void check_total(const Layout& layout, const Json& doc) {
  const Json declared = doc.value("total_size", Json());
  const auto total = declared_size(declared);
  if (!total || *total == tensor_bytes(layout)) return;
  throw ConfigError("total_size is " + std::to_string(*total) + ", but the tensors take " +
                    std::to_string(tensor_bytes(layout)) + " bytes");
}

// --- header

HeaderStyle style_of(const Json& header) {
  check_keys(header, {"order", "metadata", "alignment", "fill"});
  HeaderStyle style;
  const auto order = header.at("order").get<std::string>();
  if (order != "sorted" && order != "hashed") throw ConfigError("unknown order '" + order + "'");
  style.order = order == "sorted" ? HeaderStyle::Order::sorted : HeaderStyle::Order::hashed;
  header.at("metadata").get_to(style.metadata);
  header.at("alignment").get_to(style.alignment);
  style.fill = header.value("fill", false);
  if (style.alignment == 0 || style.alignment > max_fill) {
    throw ConfigError("alignment must lie between 1 and " + std::to_string(max_fill));
  }
  return style;
}

Layout layout_of(const Json& doc) {
  check_keys(doc, {"name", "source", "config", "dtypes", "total_size", "widths", "layers",
                   "dimensions", "header", "tensors", "files", "weight_map"});
  Layout layout;
  doc.at("name").get_to(layout.name);
  layout.config = doc.at("config").dump(2) + "\n";
  layout.rules = doc.contains("tensors") ? rules_of(doc) : builtin_rules(model_type(doc));
  const Values values = checked_values(layout);
  layout.files = doc.contains("weight_map") ? listed_files(doc) : ruled_files(doc, values);
  complete_tensors(layout, doc.at("dtypes"), values);
  check_names(layout);
  check_total(layout, doc);
  if (doc.contains("header")) {
    apply_style(layout, style_of(doc.at("header")));
  } else {
    apply_known_style(layout);
  }
  return layout;
}

}  // namespace

Layout parse_layout(std::string_view json, const std::string& origin) {
  const auto fail = [&](ErrorRecord record) {
    record.cause = "layout '" + origin + "': " + record.cause;
    throw ConfigError(std::move(record));
  };
  try {
    return layout_of(Json::parse(json));
  } catch (const Error& error) {
    fail(error.record());
  } catch (const nlohmann::json::exception& error) {
    fail({.cause = error.what()});
  }
  return {};
}

}  // namespace safeshuffle::synth
