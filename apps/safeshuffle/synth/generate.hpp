// Writing synthetic checkpoints.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>

#include "safeshuffle/dtype.hpp"

#include "synth/layout.hpp"

namespace safeshuffle::synth {

struct GenerateOptions {
  std::uint64_t seed = 0;                 ///< of the contents; see synth/contents.hpp
  bool sparse = false;                    ///< leave holes, which read as zeros and take no space
  DTypePolicy dtype = DTypePolicy::keep;  ///< stores F16, BF16 and F32 tensors as this type instead

  /// Called from time to time with the tensor bytes written so far and in total, by one thread at a
  /// time. What it throws stops the work and is rethrown by `generate` after removing all files.
  std::function<void(std::uint64_t done, std::uint64_t total)> progress = {};
};

/// What was written.
struct Generated {
  std::size_t files = 0;           ///< .safetensors files
  std::uint64_t file_bytes = 0;    ///< their sizes
  std::uint64_t tensor_bytes = 0;  ///< without headers
};

/// Writes the .safetensors files of `layout`, config.json and model.safetensors.index.json into
/// `directory`, which is created if needed. Nothing appears under its final name until all of it is
/// written. The bytes depend on the layout, seed, sparse and dtype only. Throws ConfigError if
/// `directory` already holds such files; IoError if it cannot be written or has too little space.
Generated generate(const Layout& layout, const std::filesystem::path& directory,
                   const GenerateOptions& options = {});

}  // namespace safeshuffle::synth
