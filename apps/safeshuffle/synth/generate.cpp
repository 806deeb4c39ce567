#include "synth/generate.hpp"

#include <algorithm>
#include <atomic>
#include <deque>
#include <exception>
#include <mutex>
#include <span>
#include <system_error>
#include <utility>

#include <nlohmann/json.hpp>

#include "safeshuffle/error.hpp"

#include "core/new_files.hpp"
#include "core/process.hpp"
#include "core/thread_pool.hpp"
#include "output/file_writer.hpp"
#include "synth/contents.hpp"

namespace safeshuffle::synth {
namespace {

constexpr std::size_t chunk_bytes = std::size_t{4} << 20;
constexpr const char* config_name = "config.json";
constexpr const char* index_name = "model.safetensors.index.json";

[[noreturn]] void refuse(const std::filesystem::path& path, std::string cause) {
  throw ConfigError(ErrorRecord{.file = path.string(), .cause = std::move(cause)});
}

void check_vacant(const std::filesystem::path& directory) {
  std::error_code error;
  if (!std::filesystem::exists(directory, error)) return;
  if (!std::filesystem::is_directory(directory, error)) refuse(directory, "not a directory");
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    const std::filesystem::path& path = entry.path();
    if (path.extension() == ".safetensors" || path.filename() == config_name ||
        path.filename() == index_name) {
      refuse(path, "already exists");
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

// The files of a checkpoint, which appear together or not at all.
class Files {
 public:
  Files(const Layout& layout, const std::filesystem::path& directory)
      : directory_(directory), config_(directory / config_name), index_(directory / index_name) {
    for (const LayoutFile& file : layout.files) {
      writers_.emplace_back(directory / file.name, header_of(layout, file));
    }
    config_.content().write(0, std::as_bytes(std::span(layout.config)));
    const std::string index = index_of(layout);
    index_.content().write(0, std::as_bytes(std::span(index)));
  }

  std::deque<output::FileWriter>& writers() { return writers_; }

  void commit() {
    for (output::FileWriter& writer : writers_) writer.flush();
    for (output::FileWriter& writer : writers_) writer.publish();
    for (core::NewFile* text : {&config_, &index_}) text->publish();
    for (output::FileWriter& writer : writers_) writer.commit();
    for (core::NewFile* text : {&config_, &index_}) text->commit();
  }

 private:
  core::NewDirectory directory_;
  std::deque<output::FileWriter> writers_;
  core::NewFile config_;
  core::NewFile index_;
};

// Writes the contents of all files, several at a time. The first failure stops all of them.
class Filler {
 public:
  Filler(const Layout& layout, std::deque<output::FileWriter>& writers,
         const GenerateOptions& options)
      : layout_(layout), writers_(writers), options_(options), total_(tensor_bytes(layout)) {}

  void run() {
    const std::size_t threads = std::min<std::size_t>(core::available_cores(), writers_.size());
    core::ThreadPool helpers(threads - 1);
    helpers.parallel_for(writers_.size(), [this](std::size_t file) { fill_guarded(file); });
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  void fill_guarded(std::size_t file) {
    try {
      fill(layout_.files[file], writers_[file]);
    } catch (...) {
      const std::scoped_lock lock(mutex_);
      if (!failed_.exchange(true)) failure_ = std::current_exception();
    }
  }

  void fill(const LayoutFile& file, output::FileWriter& writer) {
    std::vector<std::byte> buffer(chunk_bytes);
    const format::HeaderLayout& header = writer.layout();
    for (std::size_t i = 0; i < file.tensors.size(); ++i) {
      const bool is_last = i + 1 == file.tensors.size();
      const std::uint64_t end = is_last ? header.file_size : header.file_offset[i + 1];
      const std::uint64_t bytes = end - header.file_offset[i];
      const Contents contents(options_.seed, file.tensors[i].name, file.tensors[i].dtype);
      for (std::uint64_t at = 0; at < bytes && !failed_; at += buffer.size()) {
        const auto chunk =
            std::span(buffer).first(std::min<std::uint64_t>(buffer.size(), bytes - at));
        contents.fill(at, chunk);
        writer.write(i, at, chunk);
        advance(chunk.size());
      }
    }
  }

  void advance(std::uint64_t bytes) {
    const std::scoped_lock lock(mutex_);
    done_ += bytes;
    if (options_.progress) options_.progress(done_, total_);
  }

  const Layout& layout_;
  std::deque<output::FileWriter>& writers_;
  const GenerateOptions& options_;
  std::uint64_t total_;
  std::mutex mutex_;
  std::uint64_t done_ = 0;      // guarded by mutex_
  std::exception_ptr failure_;  // guarded by mutex_ until all are done
  std::atomic<bool> failed_ = false;
};

}  // namespace

Generated generate(const Layout& original, const std::filesystem::path& directory,
                   const GenerateOptions& options) {
  check_vacant(directory);
  core::remove_leftovers(directory, [](const std::string&) { return true; });
  const Layout layout = with_dtype(original, options.dtype);
  Files files(layout, directory);
  Generated made{.files = layout.files.size(), .tensor_bytes = tensor_bytes(layout)};
  for (const auto& writer : files.writers()) made.file_bytes += writer.layout().file_size;
  if (options.sparse) {
    for (output::FileWriter& writer : files.writers()) writer.extend();
  } else {
    check_space(directory, made.file_bytes);
    Filler(layout, files.writers(), options).run();
  }
  files.commit();
  return made;
}

}  // namespace safeshuffle::synth
