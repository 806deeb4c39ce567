// Sessions of the C interface, and what they tell of a checkpoint.
#include "c_api/session.hpp"

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string_view>
#include <utility>

#include "safeshuffle/error.hpp"

#include "c_api/error.hpp"
#include "c_api/group.hpp"
#include "c_api/options.hpp"
#include "c_api/set.hpp"

using namespace safeshuffle;
using c_api::guarded;

namespace {

void obey(std::int32_t code) {
  if (code == 0) return;
  throw CancelledError(ErrorRecord{.code = code, .cause = "a callback cancelled the load"});
}

std::function<void(const Progress&)> progress_callback(const safeshuffle_callbacks& callbacks) {
  if (callbacks.progress == nullptr) return {};
  return [callbacks](const Progress& progress) {
    obey(callbacks.progress(callbacks.context, progress.bytes, progress.total_bytes));
  };
}

std::function<void(const Ready&)> ready_callback(const safeshuffle_callbacks& callbacks) {
  if (callbacks.ready == nullptr) return {};
  return [callbacks](const Ready& ready) {
    safeshuffle_tensor tensor{};
    if (ready.tensor != nullptr) tensor = c_api::describe(*ready.tensor);
    obey(callbacks.ready(callbacks.context, ready.tensor == nullptr ? nullptr : &tensor,
                         ready.layer, ready.what == Ready::What::layer_everywhere ? 1 : 0));
  };
}

Options make_options(const safeshuffle_pair* options, std::size_t count,
                     const safeshuffle_callbacks* callbacks) {
  Options made;
  for (std::size_t i = 0; i < count; ++i) {
    c_api::set_option(made, options[i].name, options[i].value);
  }
  made.cancel = std::make_shared<CancelFlag>(0);
  if (callbacks != nullptr) {
    made.on_progress = progress_callback(*callbacks);
    made.on_ready = ready_callback(*callbacks);
  }
  return made;
}

/// Names end with a zero, so there must be none within.
void check_name(const TensorInfo& tensor, const Catalog& catalog) {
  if (tensor.name.find('\0') == std::string::npos) return;
  throw ConfigError(ErrorRecord{.file = catalog.files()[tensor.file].path,
                                .cause = "the name of a tensor has a zero byte"});
}

std::vector<safeshuffle_tensor> describe_tensors(const Catalog& catalog) {
  std::vector<safeshuffle_tensor> tensors;
  tensors.reserve(catalog.tensors().size());
  for (const TensorInfo& tensor : catalog.tensors()) {
    check_name(tensor, catalog);
    tensors.push_back({.name = tensor.name.c_str(),
                       .dtype = name(tensor.dtype).data(),
                       .dims = tensor.shape.size(),
                       .shape = tensor.shape.data(),
                       .bytes = tensor.bytes,
                       .data = nullptr,
                       .file = catalog.files()[tensor.file].path.c_str(),
                       .order = static_cast<std::uint32_t>(tensors.size())});
  }
  return tensors;
}

std::vector<safeshuffle_pair> describe_metadata(const Catalog& catalog) {
  std::map<std::string_view, const char*> by_key;
  for (const FileInfo& file : catalog.files()) {
    for (const auto& [key, value] : file.metadata) by_key.emplace(key, value.c_str());
  }
  std::vector<safeshuffle_pair> metadata;
  for (const auto& [key, value] : by_key) metadata.push_back({key.data(), value});
  return metadata;
}

}  // namespace

namespace safeshuffle::c_api {

std::vector<std::string> texts(const char* const* begin, std::size_t count) {
  return {begin, begin + count};
}

}  // namespace safeshuffle::c_api

Session& safeshuffle_session::open() {
  if (!session) throw ConfigError("no checkpoint is open");
  return *session;
}

void safeshuffle_session::describe() {
  tensors = describe_tensors(session->catalog());
  metadata = describe_metadata(session->catalog());
  warnings.clear();
  for (const std::string& warning : session->warnings()) warnings.push_back(warning.c_str());
}

safeshuffle_error* safeshuffle_session_new(const safeshuffle_group* group,
                                           const safeshuffle_pair* options, size_t option_count,
                                           const safeshuffle_callbacks* callbacks,
                                           safeshuffle_session** session) {
  return guarded([&] {
    *session = new safeshuffle_session{group == nullptr ? self() : group->comm,
                                       make_options(options, option_count, callbacks)};
  });
}

void safeshuffle_session_free(safeshuffle_session* session) {
  delete session;
}

safeshuffle_error* safeshuffle_session_open(safeshuffle_session* session, const char* const* paths,
                                            size_t path_count) {
  return guarded([&] {
    const std::vector<std::string> list = c_api::texts(paths, path_count);
    if (session->session) {
      session->session->reopen(list);
    } else {
      session->session.emplace(list, session->comm, session->options);
    }
    session->describe();
  });
}

const safeshuffle_tensor* safeshuffle_session_tensors(const safeshuffle_session* session,
                                                      size_t* count) {
  *count = session->tensors.size();
  return session->tensors.data();
}

const safeshuffle_pair* safeshuffle_session_metadata(const safeshuffle_session* session,
                                                     size_t* count) {
  *count = session->metadata.size();
  return session->metadata.data();
}

const char* const* safeshuffle_session_warnings(const safeshuffle_session* session, size_t* count) {
  *count = session->warnings.size();
  return session->warnings.data();
}

void safeshuffle_session_cancel(safeshuffle_session* session, int32_t code) {
  *session->options.cancel = code;
}

const char* safeshuffle_session_report(const safeshuffle_session* session) {
  return session->report.c_str();
}
