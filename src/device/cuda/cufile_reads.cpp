#include "device/cuda/cufile_reads.hpp"

#include <cerrno>
#include <cstddef>
#include <dlfcn.h>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "safeshuffle/error.hpp"

#include "device/cuda/cufile_api.hpp"

namespace safeshuffle::device {
namespace {

std::string text_of(int code) {
  return "cuFile error " + std::to_string(code);
}

std::string text_of(const cufile::Status& status) {
  if (status.code != cufile::cuda_driver_error) return text_of(status.code);
  return text_of(status.code) + ", CUDA error " + std::to_string(status.cuda);
}

void check(const cufile::Status& status, const std::string& function) {
  if (status.code == 0) return;
  throw IoError(ErrorRecord{.code = status.code, .cause = function + ": " + text_of(status)});
}

void* load_library() {
  void* const library = ::dlopen("libcufile.so.0", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw IoError("cannot load cuFile: " + std::string(::dlerror()));
  return library;
}

/// cuFile with its driver open. Never unloaded and never closed: it has threads of its own, and
/// others in this process may use it, too.
class CuFile {
 public:
  /// Opens the driver when it is first called. Throws IoError; the next call then tries again.
  static const CuFile& opened(const Gpu& gpu) {
    static const CuFile cufile(gpu);
    return cufile;
  }

 private:
  template <class Function>
  Function* find(const char* name) const {
    void* const function = ::dlsym(library_, name);
    if (function == nullptr) throw IoError("cuFile has no function " + std::string(name));
    return reinterpret_cast<Function*>(function);
  }

  void* const library_ = load_library();  // before the functions, which are looked up in it

 public:
  cufile::DriverGetProperties* const driver_get_properties =
      find<cufile::DriverGetProperties>("cuFileDriverGetProperties");
  cufile::HandleRegister* const handle_register =
      find<cufile::HandleRegister>("cuFileHandleRegister");
  cufile::HandleDeregister* const handle_deregister =
      find<cufile::HandleDeregister>("cuFileHandleDeregister");
  cufile::BufRegister* const buf_register = find<cufile::BufRegister>("cuFileBufRegister");
  cufile::BufDeregister* const buf_deregister = find<cufile::BufDeregister>("cuFileBufDeregister");
  cufile::Read* const read = find<cufile::Read>("cuFileRead");

 private:
  explicit CuFile(const Gpu& gpu) {
    const GpuScope scope(gpu);
    const cufile::Status status = find<cufile::DriverOpen>("cuFileDriverOpen")();
    if (status.code != cufile::driver_already_open) check(status, "cuFileDriverOpen");
  }
};

/// Memory that is registered, so that cuFile reads into it without a buffer of its own. Immutable.
class Registered {
 public:
  Registered(SharedSession session, const CuFile& cufile, std::span<std::byte> memory)
      : session_(std::move(session)), cufile_(cufile), memory_(memory) {
    check(cufile_.buf_register(memory_.data(), memory_.size(), 0), "cuFileBufRegister");
  }
  ~Registered() {
    session_->give_back([this] {
      cufile_.buf_deregister(memory_.data());
      return cudaSuccess;
    });
  }
  Registered(const Registered&) = delete;
  Registered& operator=(const Registered&) = delete;

  bool contains(const std::byte* address) const noexcept {
    return memory_.data() <= address && address < memory_.data() + memory_.size();
  }
  std::byte* begin() const noexcept { return memory_.data(); }

 private:
  const SharedSession session_;
  const CuFile& cufile_;
  const std::span<std::byte> memory_;
};

class CuFileReads final : public DeviceReads {
 public:
  CuFileReads(SharedSession session, std::span<const std::span<std::byte>> memory)
      : session_(std::move(session)), cufile_(CuFile::opened(session_->gpu())) {
    const GpuScope scope(session_->gpu());
    note_compatibility_mode();
    try {
      for (const std::span<std::byte> part : memory) {
        registered_.push_back(std::make_unique<const Registered>(session_, cufile_, part));
      }
    } catch (const IoError& error) {  // cuFile then copies within the GPU
      if (detour_.empty()) detour_ = "into buffers of cuFile: " + error.record().cause;
    }
  }

  std::unique_ptr<DeviceFile> open(int descriptor) override {
    return std::make_unique<File>(*this, descriptor);
  }

  std::string detour() const override { return detour_; }

 private:
  /// A file that is registered.
  class File final : public DeviceFile {
   public:
    File(const CuFileReads& reads, int descriptor) : reads_(reads) {
      const GpuScope scope(reads_.session_->gpu());
      cufile::FileDescription description;
      description.handle.descriptor = descriptor;
      check(reads_.cufile_.handle_register(&handle_, &description), "cuFileHandleRegister");
    }
    ~File() override {
      reads_.session_->give_back([this] {
        reads_.cufile_.handle_deregister(handle_);
        return cudaSuccess;
      });
    }
    File(const File&) = delete;
    File& operator=(const File&) = delete;

    std::size_t read_some(std::uint64_t offset, std::span<std::byte> to) const override {
      const GpuScope scope(reads_.session_->gpu());
      std::byte* const base = reads_.base_of(to.data());
      const ssize_t result = reads_.cufile_.read(handle_, base, to.size(),
                                                 static_cast<off_t>(offset), to.data() - base);
      if (result < 0) raise(result, errno, offset);
      return static_cast<std::size_t>(result);
    }

   private:
    [[noreturn]] static void raise(ssize_t result, int error, std::uint64_t offset) {
      const int code = result == -1 ? error : static_cast<int>(-result);
      const std::string cause =
          result == -1 ? std::generic_category().message(error) : text_of(code);
      throw IoError(ErrorRecord{.code = code, .offset = offset, .cause = "cuFileRead: " + cause});
    }

    const CuFileReads& reads_;
    cufile::FileHandle handle_ = nullptr;
  };

  /// In compatibility mode, cuFile reads by pread and copies. What it does for one file of a
  /// filesystem that it does not support, it does not tell.
  void note_compatibility_mode() {
    cufile::Properties properties;
    check(cufile_.driver_get_properties(&properties), "cuFileDriverGetProperties");
    const bool has_driver = (properties.nvfs.major_version | properties.nvfs.minor_version) != 0;
    if (has_driver || (properties.features & cufile::peer_to_peer_feature) != 0) return;
    detour_ = "through host memory: cuFile is in compatibility mode, without nvidia-fs";
  }

  /// Reads name registered memory by where it begins.
  std::byte* base_of(std::byte* address) const noexcept {
    for (const auto& registered : registered_) {
      if (registered->contains(address)) return registered->begin();
    }
    return address;
  }

  const SharedSession session_;
  const CuFile& cufile_;
  std::vector<std::unique_ptr<const Registered>> registered_;
  std::string detour_;
};

}  // namespace

std::unique_ptr<DeviceReads> make_cufile_reads(SharedSession session,
                                               std::span<const std::span<std::byte>> memory) {
  return std::make_unique<CuFileReads>(std::move(session), memory);
}

}  // namespace safeshuffle::device
