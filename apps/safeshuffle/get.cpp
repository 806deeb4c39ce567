// safeshuffle get: one tensor, or a part of it, as a file.
#include <charconv>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "safeshuffle/error.hpp"
#include "safeshuffle/session.hpp"

#include "commands.hpp"
#include "core/new_files.hpp"
#include "output.hpp"
#include "output/file_writer.hpp"
#include "shared_options.hpp"
#include "size.hpp"
#include "source/select.hpp"

namespace safeshuffle::app {
namespace {

struct GetCommand {
  std::string path;
  std::string tensor;
  std::string slice;
  std::string output;
  DTypePolicy dtype = DTypePolicy::keep;
  RemoteOptions remote;
};

[[noreturn]] void fail_slice(std::string_view range) {
  throw ConfigError(fmt::format(
      "--slice: '{}' is none of BEGIN:END, BEGIN:, :END, : and INDEX, in whole numbers", range));
}

std::uint64_t parse_index(std::string_view text, std::string_view range) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) fail_slice(range);
  return value;
}

// One dimension of `extent` indices. An end behind its last index is left to the session.
Interval parse_range(std::string_view range, std::uint64_t extent) {
  const std::size_t colon = range.find(':');
  if (colon == std::string_view::npos) return {parse_index(range, range), 1};
  const std::string_view first = range.substr(0, colon);
  const std::string_view last = range.substr(colon + 1);
  const std::uint64_t begin = first.empty() ? 0 : parse_index(first, range);
  const std::uint64_t end = last.empty() ? extent : parse_index(last, range);
  if (end < begin) fail_slice(range);
  return {begin, end - begin};
}

std::vector<Interval> parse_slice(std::string_view slice, const Shape& shape) {
  std::vector<Interval> ranges;
  while (!slice.empty()) {
    const std::size_t comma = std::min(slice.find(','), slice.size());
    const std::size_t dim = ranges.size();
    ranges.push_back(parse_range(slice.substr(0, comma), dim < shape.size() ? shape[dim] : 0));
    slice.remove_prefix(std::min(comma + 1, slice.size()));
  }
  return ranges;
}

void write_raw(const std::string& path, std::span<const std::byte> bytes) {
  core::NewFile file(path);
  file.content().write(0, bytes);
  file.commit();
}

void write_safetensors(const std::string& path, const TensorView& tensor,
                       std::span<const std::byte> bytes) {
  const Shape shape(tensor.shape.begin(), tensor.shape.end());
  output::FileWriter file(path,
                          format::layout_header({{std::string(tensor.name), tensor.dtype, shape}}));
  file.write(0, 0, bytes);
  file.commit();
}

// Not over what it is read from.
void check_output(const std::string& output, const std::vector<std::string>& inputs) {
  source::refuse_to_write(output);
  const auto place = [](const std::string& path) {
    return std::filesystem::weakly_canonical(std::filesystem::absolute(path));
  };
  for (const std::string& input : inputs) {
    if (place(input) != place(output)) continue;
    throw ConfigError(ErrorRecord{.file = output, .cause = "is a file of the checkpoint"});
  }
}

void get(const GetCommand& command) {
  Options options;
  options.tp_plan = "replicate";
  options.plan.dtype = command.dtype;
  options.remote = command.remote;
  Session session(command.path, self(), options);
  check_output(command.output, session.inputs());
  const TensorInfo* const stored = session.catalog().find(command.tensor);
  const TensorSet loaded = session.get_slice(
      command.tensor, parse_slice(command.slice, stored ? stored->shape : Shape{}));
  const TensorView& tensor = *loaded.begin();
  std::vector<std::byte> bytes(tensor.bytes);
  loaded.copy_to_host(tensor, bytes);
  if (command.output.ends_with(".safetensors")) {
    write_safetensors(command.output, tensor, bytes);
  } else {
    write_raw(command.output, bytes);
  }
  print_result(fmt::format("{}: {} [{}], {}\n", command.output, name(tensor.dtype),
                           fmt::join(tensor.shape, ", "), format_binary_size(tensor.bytes)));
}

}  // namespace

void add_get(CLI::App& parser) {
  const auto command = std::make_shared<GetCommand>();
  CLI::App* sub = parser.add_subcommand("get", "Write one tensor, or a part of it, to a file");
  sub->add_option("MODEL", command->path,
                  "A directory, an .index.json, a .safetensors file, or a URL")
      ->required();
  sub->add_option("NAME", command->tensor, "Name of the tensor, as stored")->required();
  add_remote(*sub, command->remote);
  sub->add_option("--slice", command->slice, "Indices of each dimension, such as 0:128,:,5")
      ->type_name("RANGES");
  add_dtype(*sub, command->dtype, "Convert it, if it is F16, BF16 or F32");
  sub->add_option("--output", command->output,
                  "A .safetensors file with this tensor; any other name: its bytes alone")
      ->type_name("FILE")
      ->required();
  sub->callback([command] { get(*command); });
}

}  // namespace safeshuffle::app
