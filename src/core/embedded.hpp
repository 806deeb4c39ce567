// Text files that are part of the program (cmake/SafeshuffleEmbed.cmake).
#pragma once

#include <span>
#include <string_view>

namespace safeshuffle::core {

/// One file: its name without directory and extension, and its text.
struct EmbeddedFile {
  std::string_view stem;
  std::string_view text;
};

/// configs/tp/*.json; defined by the build.
std::span<const EmbeddedFile> embedded_tp_rules();

/// configs/defaults.json alone; likewise.
std::span<const EmbeddedFile> embedded_defaults();

/// configs/machines/*.json; likewise.
std::span<const EmbeddedFile> embedded_machines();

/// configs/layouts/*.json; likewise, in the command only.
std::span<const EmbeddedFile> embedded_layouts();

}  // namespace safeshuffle::core
