// GPUDirect Storage with a stand-in for cuFile: what is asked of it, and what it does wrong.
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "contract/reader_contract.hpp"
#include "support/simulated_gpu/inspect.hpp"

using namespace safeshuffle;
using namespace safeshuffle::testing;

namespace {

bool reads_directly(const std::string& path) {
  try {
    source::files().open(path, source::Access::direct);
    return true;
  } catch (const IoError& error) {
    WARN("skipped: " << error.record().cause);
    return false;
  }
}

constexpr std::uint64_t file_size = 300'001;

/// A file, a GPU with memory for it, and a stand-in that is told what to do.
class Bench {
 public:
  explicit Bench(const std::string& settings, DirectIo direct = DirectIo::on) {
    const std::string all = settings + " log=" + log_;
    ::setenv("CUFILE_STAND_IN", all.c_str(), 1);
    reader = io::make_reader({IoEngine::gds, direct, 2, contract_chunk}, source::files(), {file},
                             *staging_, parts_);
  }

  ~Bench() { ::unsetenv("CUFILE_STAND_IN"); }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  bool is_usable() const { return reads_directly(file.path); }

  /// Reads to the place of the same offset, or `shift` bytes behind it.
  io::BatchStatus read(std::uint64_t offset, std::uint64_t bytes, std::size_t shift = 0) {
    const io::ReadRange range{0, offset, bytes, memory.data() + offset + shift};
    return wait_for(*reader, reader->submit({&range, 1}));
  }

  /// Reads everything and checks what arrives.
  void read_all() {
    CHECK_FALSE(read(0, file_size).error);
    CHECK(is_sample(memory.contents(0, file_size), 0, 0));
  }

  /// The lines of the log that begin so, without that.
  std::multiset<std::string> calls(const std::string& function) const {
    std::multiset<std::string> found;
    std::ifstream log(log_);
    for (std::string line; std::getline(log, line);) {
      if (line.starts_with(function)) found.insert(line.substr(function.size()));
    }
    return found;
  }

 private:
  const ScratchDirectory directory_;
  const std::string log_ = directory_.file("log");
  const std::shared_ptr<device::Device> device_ = device::open_device(Device::cuda());
  const std::unique_ptr<device::Staging> staging_ = device_->make_staging(contract_chunk, 2);

 public:
  const FileInfo file = write_sample(directory_.file("a"), 0, file_size);
  const DeviceMemory memory{*device_, file_size + 4096};
  std::unique_ptr<io::Reader> reader;

 private:
  const std::vector<std::span<std::byte>> parts_{{memory.data(), file_size + 4096}};
};

constexpr std::uint64_t whole_pages = 299'008;

}  // namespace

TEST_CASE("cuFile reads whole pages into memory that it knows, and nothing else", "[gds]") {
  Bench bench("");
  if (!bench.is_usable()) return;
  CHECK_FALSE(bench.read(4095, 2 * 4096).error);
  CHECK(is_sample(bench.memory.contents(4095, 2 * 4096), 0, 4095));
  CHECK(bench.calls("cuFileRead") == std::multiset<std::string>{" 4096 4096 registered"});
  bench.read_all();
  CHECK(bench.reader->path().device_bytes == 4096 + whole_pages);
  CHECK(bench.reader->path().fallbacks.empty());
  bench.reader.reset();
  for (const char* what : {"Handle", "Buf"}) {
    CHECK(bench.calls(std::string("cuFile") + what + "Register").size() == 1);
    CHECK(bench.calls(std::string("cuFile") + what + "Deregister").size() == 1);
  }
}

TEST_CASE("small ranges, and those not congruent to the file, go by the ring", "[gds]") {
  Bench bench("");
  if (!bench.is_usable()) return;
  CHECK_FALSE(bench.read(4097, 8190).error);
  CHECK(is_sample(bench.memory.contents(4097, 8190), 0, 4097));
  CHECK_FALSE(bench.read(8192, 50'000, 1).error);
  CHECK(is_sample(bench.memory.contents(8193, 50'000), 0, 8192));
  CHECK(bench.calls("cuFileRead").empty());
  CHECK(bench.reader->path().device_bytes == 0);
}

TEST_CASE("what is read through the page cache is not read by cuFile", "[gds]") {
  Bench bench("", DirectIo::off);
  bench.read_all();
  CHECK(bench.calls("cuFileHandleRegister").empty());
  CHECK(bench.reader->path().engine == "posix");
  CHECK(bench.reader->path().fallbacks.empty());
}

TEST_CASE("short reads of cuFile are continued, by itself while they are whole pages", "[gds]") {
  Bench whole("at_most=8192");
  if (!whole.is_usable()) return;
  whole.read_all();
  CHECK(whole.reader->path().device_bytes == whole_pages);
  CHECK(whole.reader->path().fallbacks.empty());
  for (const char* settings : {"at_most=5000", "at_most=0"}) {
    Bench bench(settings);
    bench.read_all();
    const io::IoPath path = bench.reader->path();
    CHECK(path.direct_bytes == file_size);
    CHECK(path.device_bytes == (settings == std::string("at_most=0") ? 0 : 5 * 5000));
    REQUIRE(path.fallbacks.size() == 1);
    CHECK(path.fallbacks[0].starts_with(bench.file.path + ": gds fell back to posix"));
    CHECK(path.fallbacks[0].ends_with(": a read returned fewer bytes than requested"));
  }
}

TEST_CASE("a file that ends early is the error that it always is", "[gds]") {
  Bench bench("");
  if (!bench.is_usable()) return;
  const io::BatchStatus status = bench.read(282'624, 20'480);  // whole pages
  REQUIRE(status.error);
  CHECK(status.error->cause == "file ended early");
  CHECK(status.error->offset == file_size);
  CHECK(status.error->file == bench.file.path);
}

TEST_CASE("an error of cuFileRead names file, offset and cause", "[gds]") {
  struct Case {
    const char* settings;
    int code;
    const char* cause;
  };
  for (const auto& [settings, code, cause] :
       {Case{"read=5 from=131072", EIO, "cuFileRead: Input/output error"},
        Case{"read=22 from=131072", EINVAL, "cuFileRead: Invalid argument"},
        Case{"read=5008 from=131072", 5008, "cuFileRead: cuFile error 5008"}}) {
    Bench bench(settings);
    if (!bench.is_usable()) return;
    const io::BatchStatus status = bench.read(0, file_size);
    REQUIRE(status.error);
    CHECK(status.error->kind == ErrorKind::io);
    CHECK(status.error->code == code);
    CHECK(status.error->file == bench.file.path);
    CHECK(status.error->offset == 131'072);
    CHECK(status.error->cause == cause);
  }
}

TEST_CASE("a file that cuFile rejects is read by threads, as a fallback", "[gds]") {
  Bench bench("file=5008");
  if (!bench.is_usable()) return;
  bench.read_all();
  const io::IoPath path = bench.reader->path();
  CHECK(path.engine == "posix");
  CHECK(path.mode == "direct");
  CHECK(path.fallbacks ==
        std::vector<std::string>{bench.file.path + ": gds fell back to posix: "
                                                   "cuFileHandleRegister: cuFile error 5008"});
}

TEST_CASE("roundabout ways of cuFile are reported", "[gds]") {
  struct Case {
    const char* settings;
    const char* fallback;
  };
  for (const auto& [settings, fallback] :
       {Case{"memory=5036",
             "gds reads into buffers of cuFile: "
             "cuFileBufRegister: cuFile error 5036"},
        Case{"nvfs=0",
             "gds reads through host memory: "
             "cuFile is in compatibility mode, without nvidia-fs"}}) {
    Bench bench(settings);
    if (!bench.is_usable()) return;
    bench.read_all();
    CHECK(bench.reader->path().device_bytes == whole_pages);
    CHECK(bench.reader->path().fallbacks == std::vector<std::string>{fallback});
  }
}

TEST_CASE("reading into a GPU by cuFile breaks no rule", "[gds]") {
  CHECK(simulated_gpu::violations().empty());
}
