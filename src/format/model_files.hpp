// Which files of a directory without an index are the model, by their names. Pure: no file access.
#pragma once

#include <string>
#include <vector>

namespace safeshuffle::format {

/// Names of files, sorted, by what they hold.
struct ModelFiles {
  std::vector<std::string> model;     ///< or adapters, if there is nothing else
  std::vector<std::string> copies;    ///< Mistral's copy of a model under other names
  std::vector<std::string> adapters;  ///< of the model
};

/// `names`: of all .safetensors files of a directory.
ModelFiles sort_model_files(const std::vector<std::string>& names);

/// Whether a name is that of an adapter, such as a LoRA.
bool is_adapter_file(const std::string& name);

/// That these files of adapters are left out; and the error if there is nothing else.
std::string adapters_warning(const std::vector<std::string>& names);
std::string only_adapters(const std::vector<std::string>& names);

/// The names that numbered series lack, such as model-00002-of-00003.safetensors, or a part before
/// the last one of a rank of a sharded state: "a, b and 4 more". Empty if they are complete.
std::string missing_files(const std::vector<std::string>& names);

}  // namespace safeshuffle::format
