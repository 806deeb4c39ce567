#include "synth/generate.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <system_error>
#include <utility>

#include <nlohmann/json.hpp>

#include "safeshuffle/error.hpp"

#include "core/process.hpp"
#include "core/thread_pool.hpp"
#include "synth/contents.hpp"
#include "synth/file_set.hpp"

namespace safeshuffle::synth {
namespace {

constexpr std::size_t chunk_bytes = std::size_t{4} << 20;
constexpr const char* index_name = "model.safetensors.index.json";

[[noreturn]] void refuse(const std::filesystem::path& path, std::string cause) {
  throw ConfigError(ErrorRecord{.file = path.string(), .cause = std::move(cause)});
}

void check_vacant(const std::filesystem::path& directory) {
  std::error_code error;
  if (!std::filesystem::exists(directory, error)) return;
  if (!std::filesystem::is_directory(directory, error)) refuse(directory, "not a directory");
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    if (entry.path().extension() == ".safetensors") {
      refuse(directory, "already holds .safetensors files");
    }
  }
}

void check_space(const std::filesystem::path& directory, std::uint64_t needed) {
  std::error_code error;
  const auto space = std::filesystem::space(directory, error);
  if (error || space.available >= needed) return;
  throw IoError(ErrorRecord{.file = directory.string(),
                            .cause = "the checkpoint takes " + std::to_string(needed) +
                                     " bytes, but only " + std::to_string(space.available) +
                                     " are free"});
}

const char* torch_name(DTypePolicy policy) {
  switch (policy) {
    case DTypePolicy::f16:
      return "float16";
    case DTypePolicy::bf16:
      return "bfloat16";
    default:
      return "float32";
  }
}

Layout with_dtype(Layout layout, DTypePolicy policy) {
  if (policy == DTypePolicy::keep) return layout;
  auto config = nlohmann::ordered_json::parse(layout.config);
  config["torch_dtype"] = torch_name(policy);
  layout.config = config.dump(2) + "\n";
  for (LayoutFile& file : layout.files) {
    file.size.reset();
    for (auto& tensor : file.tensors) tensor.dtype = converted(tensor.dtype, policy);
  }
  return layout;
}

std::string index_of(const Layout& layout) {
  nlohmann::json index;
  index["metadata"]["total_size"] = tensor_bytes(layout);
  nlohmann::json& map = index["weight_map"] = nlohmann::json::object();
  for (const LayoutFile& file : layout.files) {
    for (const auto& tensor : file.tensors) map[tensor.name] = file.name;
  }
  return index.dump(2) + "\n";
}

std::uint64_t tensor_end(const format::HeaderLayout& header, std::size_t tensor) {
  return tensor + 1 < header.file_offset.size() ? header.file_offset[tensor + 1] : header.file_size;
}

// Writes the contents of all files, several at a time. The first failure stops all of them.
class Filler {
 public:
  Filler(const Layout& layout, std::vector<output::FileWriter*> writers,
         const GenerateOptions& options)
      : layout_(layout),
        writers_(std::move(writers)),
        options_(options),
        total_(tensor_bytes(layout)) {}

  void run() {
    const std::size_t threads = options_.threads != 0 ? options_.threads : core::available_cores();
    core::ThreadPool helpers(std::min(threads, writers_.size()) - 1);
    helpers.parallel_for(writers_.size(), [this](std::size_t file) { fill_guarded(file); });
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  void fill_guarded(std::size_t file) {
    try {
      fill(file);
    } catch (...) {
      const std::scoped_lock lock(mutex_);
      if (!failed_.exchange(true)) failure_ = std::current_exception();
    }
  }

  void fill(std::size_t file) {
    std::vector<std::byte> buffer(chunk_bytes);
    for (std::size_t i = 0; i < layout_.files[file].tensors.size(); ++i) {
      fill_tensor(file, i, buffer);
    }
  }

  void fill_tensor(std::size_t file, std::size_t index, std::span<std::byte> buffer) {
    const format::TensorSpec& tensor = layout_.files[file].tensors[index];
    const format::HeaderLayout& header = writers_[file]->layout();
    const std::uint64_t bytes = tensor_end(header, index) - header.file_offset[index];
    const Contents contents(options_.seed, tensor.name, tensor.dtype);
    for (std::uint64_t at = 0; at < bytes && !failed_; at += buffer.size()) {
      const auto chunk = buffer.first(std::min<std::uint64_t>(buffer.size(), bytes - at));
      contents.fill(at, chunk);
      writers_[file]->write(index, at, chunk);
      advance(chunk.size());
    }
  }

  void advance(std::uint64_t bytes) {
    const std::scoped_lock lock(mutex_);
    done_ += bytes;
    if (options_.progress) options_.progress(done_, total_);
  }

  const Layout& layout_;
  std::vector<output::FileWriter*> writers_;
  const GenerateOptions& options_;
  std::uint64_t total_;
  std::mutex mutex_;
  std::uint64_t done_ = 0;      // guarded by mutex_
  std::exception_ptr failure_;  // guarded by mutex_ until all are done
  std::atomic<bool> failed_ = false;
};

Generated write(const Layout& layout, const std::filesystem::path& directory,
                const GenerateOptions& options) {
  FileSet files(directory);
  Generated result{.files = layout.files.size(), .tensor_bytes = tensor_bytes(layout)};
  std::vector<output::FileWriter*> writers;
  for (const LayoutFile& file : layout.files) {
    writers.push_back(&files.add(file.name, header_of(layout, file)));
    result.file_bytes += writers.back()->layout().file_size;
  }
  files.add_text("config.json", layout.config);
  files.add_text(index_name, index_of(layout));
  if (options.sparse) {
    for (output::FileWriter* writer : writers) writer->extend();
  } else {
    check_space(directory, result.file_bytes);
    Filler(layout, writers, options).run();
  }
  files.commit();
  return result;
}

}  // namespace

Generated generate(const Layout& layout, const std::filesystem::path& directory,
                   const GenerateOptions& options) {
  check_vacant(directory);
  return write(with_dtype(layout, options.dtype), directory, options);
}

}  // namespace safeshuffle::synth
