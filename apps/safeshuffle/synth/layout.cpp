#include "synth/layout.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "safeshuffle/error.hpp"

#include "core/embedded.hpp"
#include "core/posix_file.hpp"

namespace safeshuffle::synth {
namespace {

using Json = nlohmann::ordered_json;
using Widths = std::map<std::string, std::uint64_t>;  // extents that scale, by name

constexpr std::uint64_t max_layout_bytes = std::uint64_t{64} << 20;
constexpr std::uint64_t largest_world = 64;

// A page: no known writer uses more padding, so with more the size must be wrong.
constexpr std::uint64_t max_padding = 4096;

void check_keys(const Json& object, const std::set<std::string>& known) {
  for (const auto& [key, value] : object.items()) {
    if (!known.contains(key)) throw ConfigError("unknown key '" + key + "'");
  }
}

std::uint64_t whole(const Json& value) {
  if (!value.is_number_unsigned()) throw ConfigError(value.dump() + " is not a whole number");
  return value.get<std::uint64_t>();
}

// --- widths

// The most equal parts of an extent such that any number of them is a multiple of each number up to
// the largest world that divides the extent.
std::uint64_t parts_of(std::uint64_t extent) {
  if (extent == 0) throw ConfigError("a width is 0");
  std::uint64_t part = 1;
  for (std::uint64_t world = 2; world <= largest_world; ++world) {
    if (extent % world == 0) part = std::lcm(part, world);
  }
  return extent / part;
}

// The number of parts nearest to `ideal` by ratio, at least 1 and at most `all`.
std::uint64_t nearest(double ideal, std::uint64_t all) {
  const double below = std::max(1.0, std::floor(ideal));
  const double count = ideal * ideal > below * (below + 1) ? below + 1 : below;
  return std::min(static_cast<std::uint64_t>(count), all);
}

// Weights are mostly products of the main width, which comes first, and another one: the others
// compensate for the rounding of the main width.
Widths scaled_widths(const Json& groups, double scale) {
  if (!(scale > 0 && scale <= 1)) throw ConfigError("the scale must lie in (0, 1]");
  Widths widths;
  double factor = std::sqrt(scale);
  for (const Json& group : groups) {
    if (!group.is_object() || group.empty()) throw ConfigError("widths are not in groups");
    std::uint64_t parts = 0;
    for (const Json& width : group) parts = std::gcd(parts, parts_of(whole(width)));
    const std::uint64_t kept = nearest(static_cast<double>(parts) * factor, parts);
    if (widths.empty()) factor = scale * static_cast<double>(parts) / static_cast<double>(kept);
    for (const auto& [name, width] : group.items()) {
      widths[name] = width.get<std::uint64_t>() / parts * kept;
    }
  }
  return widths;
}

std::string config_of(Json config, const Widths& widths) {
  for (const auto& [name, width] : widths) {
    if (config.contains(name)) config[name] = width;
  }
  return config.dump(2) + "\n";
}

// --- tensors

struct Tensor {
  std::string pattern;
  format::TensorSpec spec;
};

std::uint64_t extent_of(const Json& extent, const Widths& widths) {
  if (!extent.is_string()) return whole(extent);
  const auto found = widths.find(extent.get<std::string>());
  if (found == widths.end()) throw ConfigError("no width is called " + extent.dump());
  return found->second;
}

Tensor tensor_of(const std::string& pattern, const Json& type, const Widths& widths) {
  const auto dtype = parse_dtype(type.at(0).get<std::string>());
  if (!dtype) throw ConfigError("unknown dtype " + type.at(0).dump());
  Tensor tensor{pattern, {.name = pattern, .dtype = *dtype, .shape = {}}};
  for (std::size_t axis = 1; axis < type.size(); ++axis) {
    tensor.spec.shape.push_back(extent_of(type.at(axis), widths));
  }
  return tensor;
}

// Adjacent patterns with `{layer}` form one layer and are repeated together.
std::vector<Tensor> tensors_of(const Json& doc, const Widths& widths) {
  std::vector<Tensor> tensors;
  std::vector<Tensor> layer;
  const auto repeat = [&] {
    const std::uint64_t layers = layer.empty() ? 0 : whole(doc.at("layers"));
    for (std::uint64_t i = 0; i < layers; ++i) {
      for (Tensor tensor : layer) {
        tensor.spec.name = fmt::format(fmt::runtime(tensor.pattern), fmt::arg("layer", i));
        tensors.push_back(std::move(tensor));
      }
    }
    layer.clear();
  };
  for (const auto& [pattern, type] : doc.at("tensors").items()) {
    const bool repeated = pattern.find("{layer") != pattern.npos;
    if (!repeated) repeat();
    (repeated ? layer : tensors).push_back(tensor_of(pattern, type, widths));
  }
  repeat();
  return tensors;
}

// --- files

std::vector<LayoutFile> cut_into_files(std::vector<Tensor> tensors,
                                       const std::set<std::string>& starts) {
  std::set<std::string> unused = starts;
  std::vector<LayoutFile> files;
  for (auto& [pattern, spec] : tensors) {
    unused.erase(spec.name);
    unused.erase(pattern);
    if (starts.contains(spec.name) || starts.contains(pattern)) files.emplace_back();
    if (files.empty()) throw ConfigError("no file starts with the first tensor, " + spec.name);
    files.back().tensors.push_back(std::move(spec));
  }
  if (!unused.empty()) throw ConfigError("no tensor is called '" + *unused.begin() + "'");
  if (files.empty()) throw ConfigError("a layout needs at least one tensor");
  return files;
}

void name_files(std::vector<LayoutFile>& files, const std::string& pattern) {
  std::set<std::string> names;
  for (LayoutFile& file : files) {
    file.name = fmt::format(fmt::runtime(pattern), fmt::arg("index", names.size() + 1),
                            fmt::arg("count", files.size()));
    const std::filesystem::path path(file.name);
    if (path.filename() != path || path.extension() != ".safetensors") {
      throw ConfigError("'" + file.name + "' is not the name of a .safetensors file");
    }
    if (!names.insert(file.name).second) throw ConfigError("duplicate file '" + file.name + "'");
  }
}

void set_sizes(std::vector<LayoutFile>& files, const Json& sizes) {
  if (sizes.size() != files.size()) {
    throw ConfigError(fmt::format("{} sizes are given for {} files", sizes.size(), files.size()));
  }
  for (std::size_t i = 0; i < files.size(); ++i) files[i].size = whole(sizes.at(i));
}

// By type, widest first, then by name, as the reference library writes them.
void sort(std::vector<format::TensorSpec>& tensors) {
  std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
    return std::tie(b.dtype, a.name) < std::tie(a.dtype, b.name);
  });
}

Layout layout_of(const Json& doc, double scale) {
  check_keys(doc,
             {"source", "config", "widths", "layers", "tensors", "files", "metadata", "alignment"});
  const Json& files = doc.at("files");
  check_keys(files, {"name", "starts", "sizes"});
  const Widths widths = scaled_widths(doc.value("widths", Json::array()), scale);
  Layout layout;
  layout.config = config_of(doc.at("config"), widths);
  layout.metadata = doc.value("metadata", layout.metadata);
  layout.alignment = doc.value("alignment", layout.alignment);
  layout.files = cut_into_files(tensors_of(doc, widths), files.at("starts"));
  name_files(layout.files, files.at("name"));
  if (files.contains("sizes") && scale == 1) set_sizes(layout.files, files.at("sizes"));
  for (LayoutFile& file : layout.files) sort(file.tensors);
  return layout;
}

}  // namespace

Layout parse_layout(std::string_view json, const std::string& origin, double scale) try {
  return layout_of(Json::parse(json), scale);
} catch (const ConfigError& error) {
  throw ConfigError("layout '" + origin + "': " + error.record().cause);
} catch (const Json::exception& error) {
  throw ConfigError("layout '" + origin + "': " + error.what());
} catch (const fmt::format_error& error) {
  throw ConfigError("layout '" + origin + "': the pattern of a name: " + error.what());
}

std::vector<std::string> builtin_layouts() {
  std::vector<std::string> names;
  for (const core::EmbeddedFile& file : core::embedded_layouts()) names.emplace_back(file.stem);
  std::sort(names.begin(), names.end());
  return names;
}

Layout load_layout(std::string_view name_or_path, double scale) {
  const std::string path(name_or_path);
  for (const core::EmbeddedFile& file : core::embedded_layouts()) {
    if (file.stem == path) return parse_layout(file.text, path, scale);
  }
  if (!std::filesystem::is_regular_file(path)) {
    throw ConfigError(fmt::format("'{}' is neither a layout file nor a built-in layout ({})", path,
                                  fmt::join(builtin_layouts(), ", ")));
  }
  return parse_layout(core::read_text(path, max_layout_bytes), path, scale);
}

format::HeaderLayout header_of(const Layout& layout, const LayoutFile& file) {
  auto header = format::layout_header(file.tensors, layout.metadata, layout.alignment);
  if (!file.size || header.file_size == *file.size) return header;
  const std::uint64_t padding = *file.size - header.file_size;
  if (header.file_size > *file.size || padding > max_padding) {
    throw ConfigError(
        {.file = file.name,
         .cause = fmt::format("declared with {} bytes, but its tensors and header take {}",
                              *file.size, header.file_size)});
  }
  return format::layout_header(file.tensors, layout.metadata, header.bytes.size() + padding);
}

std::uint64_t tensor_bytes(const Layout& layout) {
  std::uint64_t total = 0;
  for (const LayoutFile& file : layout.files) {
    const auto header = format::layout_header(file.tensors);
    total += header.file_size - header.bytes.size();
  }
  return total;
}

}  // namespace safeshuffle::synth
