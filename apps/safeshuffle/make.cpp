// safeshuffle make: a synthetic checkpoint modelled on a real one.
#include <cmath>
#include <memory>
#include <string>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "commands.hpp"
#include "output.hpp"
#include "progress.hpp"
#include "shared_options.hpp"
#include "size.hpp"
#include "synth/generate.hpp"
#include "synth/layout.hpp"

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

// Not an error: users who request a very small checkpoint often just want the smallest.
void warn_if_far_off(double made, double wanted) {
  if (std::abs(made - wanted) <= wanted / 3) return;
  print_warnings(
      {fmt::format("scale {:g} cannot be met because dimensions must stay divisible; making scale "
                   "{:.3g} instead",
                   wanted, made)});
}

std::string text_result(const MakeCommand& command, double scale, const synth::Generated& made) {
  return fmt::format("{}: {}, {} of tensors, {} in all{}; scale {:.3g}\n", command.directory,
                     count(made.files, "file"), format_size(made.tensor_bytes),
                     format_size(made.file_bytes), command.options.sparse ? " (sparse)" : "",
                     scale);
}

void make(MakeCommand& command) {
  const synth::Layout layout = synth::load_layout(command.layout, command.scale);
  const double scale = static_cast<double>(tensor_bytes(layout)) /
                       static_cast<double>(tensor_bytes(synth::load_layout(command.layout)));
  warn_if_far_off(scale, command.scale);
  ProgressPrinter printer(command.progress, "writing");
  command.options.progress = [&printer](std::uint64_t done, std::uint64_t total) {
    printer.update(done, total);
  };
  const synth::Generated made = synth::generate(layout, command.directory, command.options);
  printer.finish();
  print_result(text_result(command, scale, made));
}

}  // namespace

void add_make(CLI::App& parser) {
  const auto command = std::make_shared<MakeCommand>();
  CLI::App* sub =
      parser.add_subcommand("make", "Make a synthetic checkpoint modelled on a real one");
  sub->add_option("DIR", command->directory, "Directory to create it in")->required();
  sub->add_option("--like", command->layout, "Layout: " + builtin_names() + ", or a layout file")
      ->required()
      ->type_name("LAYOUT");
  sub->add_option("--scale", command->scale, "Size relative to the real one, above 0 and up to 1")
      ->type_name("F")
      ->capture_default_str();
  sub->add_option("--seed", command->options.seed, "Seed of the contents")
      ->type_name("N")
      ->capture_default_str();
  sub->add_flag("--sparse", command->options.sparse, "Leave holes instead of writing contents");
  add_dtype(*sub, command->options.dtype, "Store F16, BF16 and F32 tensors as this type");
  add_progress(*sub, command->progress);
  sub->callback([command] { make(*command); });
}

}  // namespace safeshuffle::app
