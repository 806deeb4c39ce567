// safeshuffle inspect: the contents of a checkpoint, from its headers alone.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "safeshuffle/loader.hpp"

#include "commands.hpp"
#include "core/page.hpp"
#include "core/text.hpp"
#include "output.hpp"
#include "shared_options.hpp"
#include "size.hpp"
#include "table.hpp"

namespace safeshuffle::app {
namespace {

using Json = nlohmann::ordered_json;

struct InspectOptions {
  std::vector<std::string> paths;
  bool json = false;
  bool files_only = false;
  RemoteOptions remote;
};

// The largest power of two, up to a page, that divides the offset.
std::uint64_t alignment_of(std::uint64_t offset) {
  return offset % core::page_bytes == 0 ? core::page_bytes : offset & (~offset + 1);
}

std::string format_shape(const Shape& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

struct DtypeTotal {
  std::uint64_t tensors = 0;
  std::uint64_t bytes = 0;
};

std::map<std::string, DtypeTotal> totals_by_dtype(const Catalog& catalog) {
  std::map<std::string, DtypeTotal> totals;
  for (const TensorInfo& tensor : catalog.tensors()) {
    DtypeTotal& total = totals[std::string(name(tensor.dtype))];
    ++total.tensors;
    total.bytes += tensor.bytes;
  }
  return totals;
}

std::uint64_t file_bytes(const Catalog& catalog) {
  std::uint64_t bytes = 0;
  for (const FileInfo& file : catalog.files()) bytes += file.size;
  return bytes;
}

Json file_json(const Catalog& catalog, const FileInfo& file) {
  Json json{{"path", file.path},
            {"bytes", file.size},
            {"data_start", file.data_start},
            {"data_alignment", alignment_of(file.data_start)},
            {"tensors", Json::array()}};
  for (const TensorInfo& tensor : catalog.tensors_of(file)) {
    json["tensors"].push_back({{"name", tensor.name},
                               {"dtype", name(tensor.dtype)},
                               {"shape", tensor.shape},
                               {"offset", tensor.file_offset},
                               {"bytes", tensor.bytes}});
  }
  return json;
}

void print_json(const Catalog& catalog) {
  Json json{{"files", Json::array()}};
  for (const FileInfo& file : catalog.files()) json["files"].push_back(file_json(catalog, file));
  json["totals"] = {{"files", catalog.files().size()},
                    {"tensors", catalog.tensors().size()},
                    {"file_bytes", file_bytes(catalog)},
                    {"tensor_bytes", catalog.tensor_bytes()}};
  for (const auto& [dtype, total] : totals_by_dtype(catalog)) {
    json["totals"]["dtypes"][dtype] = {{"tensors", total.tensors}, {"bytes", total.bytes}};
  }
  print_result(json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

void print_tensors(const Catalog& catalog) {
  Table table({{"tensor", Align::left},
               {"dtype", Align::left},
               {"shape", Align::left},
               {"bytes"},
               {"offset"},
               {"file"}});
  for (const TensorInfo& tensor : catalog.tensors()) {
    table.add({tensor.name, std::string(name(tensor.dtype)), format_shape(tensor.shape),
               std::to_string(tensor.bytes), std::to_string(tensor.file_offset),
               std::to_string(tensor.file)});
  }
  print_result(table.text() + "\n");
}

void print_files(const Catalog& catalog) {
  Table table(
      {{"file"}, {"bytes"}, {"data start"}, {"aligned to"}, {"tensors"}, {"path", Align::left}});
  for (std::size_t i = 0; i < catalog.files().size(); ++i) {
    const FileInfo& file = catalog.files()[i];
    table.add({std::to_string(i), std::to_string(file.size), std::to_string(file.data_start),
               std::to_string(alignment_of(file.data_start)), std::to_string(file.tensor_count),
               file.path});
  }
  print_result(table.text() + "\n");
}

void print_totals(const Catalog& catalog) {
  Table table({{"dtype", Align::left}, {"tensors"}, {"size"}});
  for (const auto& [dtype, total] : totals_by_dtype(catalog)) {
    table.add({dtype, std::to_string(total.tensors), format_size(total.bytes)});
  }
  print_result(
      fmt::format("{}\n{} of {} in {} of {}\n", table.text(),
                  count(catalog.tensors().size(), "tensor"), format_size(catalog.tensor_bytes()),
                  count(catalog.files().size(), "file"), format_size(file_bytes(catalog))));
}

// The index of another model may disagree on every tensor.
void print_mismatches(const std::vector<ErrorRecord>& mismatches) {
  const std::size_t shown = std::min(mismatches.size(), core::most_enumerated);
  for (std::size_t i = 0; i < shown; ++i) print_warnings({describe(mismatches[i])});
  if (shown == mismatches.size()) return;
  print_warnings(
      {fmt::format("index and headers disagree on {} more tensors", mismatches.size() - shown)});
}

void inspect(const InspectOptions& options) {
  const Checkpoint checkpoint = open_checkpoint(options.paths, options.remote);
  print_warnings(checkpoint.warnings);
  print_mismatches(checkpoint.index_mismatches);
  const Catalog& catalog = checkpoint.catalog;
  if (options.json) return print_json(catalog);
  if (!options.files_only) print_tensors(catalog);
  print_files(catalog);
  print_totals(catalog);
}

}  // namespace

void add_inspect(CLI::App& parser) {
  const auto options = std::make_shared<InspectOptions>();
  CLI::App* command =
      parser.add_subcommand("inspect", "Show the contents of a checkpoint, from its headers alone");
  command
      ->add_option("PATH", options->paths,
                   "A directory, an .index.json, .safetensors files, or URLs")
      ->required();
  add_remote(*command, options->remote);
  command->add_flag("--json", options->json, "Print JSON");
  command->add_flag("--files-only", options->files_only, "Do not list the tensors");
  command->callback([options] { inspect(*options); });
}

}  // namespace safeshuffle::app
