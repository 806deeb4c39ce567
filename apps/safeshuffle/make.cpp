// safeshuffle make: a synthetic checkpoint in the form of a real model's.
#include <memory>
#include <string>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "commands.hpp"
#include "option_names.hpp"
#include "progress.hpp"
#include "size.hpp"
#include "synth/generate.hpp"
#include "synth/layout.hpp"
#include "synth/scale.hpp"

namespace safeshuffle::app {
namespace {

struct MakeCommand {
  std::string directory;
  std::string layout;
  double scale = 1;
  ProgressStyle progress = ProgressStyle::automatic;
  synth::GenerateOptions options;
};

std::string builtin_names() {
  return fmt::format("{}", fmt::join(synth::builtin_layouts(), ", "));
}

void make(MakeCommand& command) {
  const synth::Layout layout = synth::scaled(synth::load_layout(command.layout), command.scale);
  ProgressPrinter printer(command.progress, "writing");
  command.options.progress = [&printer](std::uint64_t done, std::uint64_t total) {
    printer.update(done, total);
  };
  const synth::Generated made = synth::generate(layout, command.directory, command.options);
  printer.finish();
  fmt::print("{}: {} files, {} of tensors, {} in all{}\n", command.directory, made.files,
             format_size(made.tensor_bytes), format_size(made.file_bytes),
             command.options.sparse ? " (sparse)" : "");
}

}  // namespace

Command add_make(CLI::App& parser) {
  const auto command = std::make_shared<MakeCommand>();
  CLI::App* sub = parser.add_subcommand("make", "Make a synthetic checkpoint");
  sub->add_option("DIR", command->directory, "Directory to create")->required();
  sub->add_option("--like", command->layout, "Layout: " + builtin_names() + ", or a layout file")
      ->required()
      ->type_name("LAYOUT");
  sub->add_option("--scale", command->scale, "Part of the bytes, above 0 and up to 1")
      ->capture_default_str();
  sub->add_option("--seed", command->options.seed, "Of the contents")->capture_default_str();
  sub->add_flag("--sparse", command->options.sparse, "Leave holes instead of contents");
  add_dtype(*sub, command->options.dtype, "Store F16, BF16 and F32 tensors as this type");
  add_progress(*sub, command->progress);
  return [command] { make(*command); };
}

}  // namespace safeshuffle::app
