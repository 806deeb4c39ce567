#include "comm/mpi/mpi_library.hpp"

#include <dlfcn.h>
#include <filesystem>
#include <link.h>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "safeshuffle/error.hpp"

namespace safeshuffle::comm {
namespace {

constexpr const char* mpi_table_file = "libsafeshuffle_mpi.so";
constexpr const char* mpi_table_function = "safeshuffle_mpi_library";

// Of the program or library that contains this code, with symbolic links resolved; empty if
// unknown.
std::filesystem::path own_directory() {
  std::filesystem::path file = "/proc/self/exe";
  Dl_info info;
  link_map* object = nullptr;
  if (::dladdr1(reinterpret_cast<void*>(&mpi), &info, reinterpret_cast<void**>(&object),
                RTLD_DL_LINKMAP) != 0 &&
      *object->l_name != '\0') {  // as it is for the program itself
    file = object->l_name;
  }
  std::error_code error;
  return std::filesystem::canonical(file, error).parent_path();
}

std::vector<std::filesystem::path> mpi_table_paths() {
  std::vector<std::filesystem::path> paths;
  if (const auto directory = own_directory(); !directory.empty()) {
    paths.push_back(directory / mpi_table_file);
    paths.push_back((directory / SAFESHUFFLE_LIB_FROM_BIN / mpi_table_file).lexically_normal());
  }
  paths.emplace_back(mpi_table_file);
  return paths;
}

// Why `path` was not opened. Where another library is missing, dlerror does not name `path`.
std::string reason_for(const std::string& path) {
  const std::string reason = ::dlerror();
  return reason.starts_with(path) ? reason : path + ": " + reason;
}

// As dlsym takes it. Open MPI's plugins need MPI's symbols to be global.
void* open_mpi_table() {
  if (::dlsym(RTLD_DEFAULT, mpi_table_function) != nullptr) return RTLD_DEFAULT;
  if (::dlopen(SAFESHUFFLE_MPI_LIBRARY, RTLD_NOW | RTLD_GLOBAL) == nullptr) {
    throw ConfigError("cannot load MPI: " + reason_for(SAFESHUFFLE_MPI_LIBRARY));
  }
  std::string reasons;
  for (const std::filesystem::path& path : mpi_table_paths()) {
    if (void* const table = ::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL)) return table;
    reasons += (reasons.empty() ? "" : "; ") + reason_for(path.string());
  }
  throw ConfigError("cannot load MPI: " + reasons);
}

const MpiLibrary& load_mpi_table() {
  const auto table = reinterpret_cast<decltype(&safeshuffle_mpi_library)>(
      ::dlsym(open_mpi_table(), mpi_table_function));
  if (table != nullptr && std::string_view(table()->version) == SAFESHUFFLE_VERSION) {
    return *table();
  }
  throw ConfigError(std::string(mpi_table_file) + " is not of safeshuffle " SAFESHUFFLE_VERSION);
}

}  // namespace

const MpiLibrary& mpi() {
  static const MpiLibrary& library = load_mpi_table();
  return library;
}

}  // namespace safeshuffle::comm
