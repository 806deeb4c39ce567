// How fast files are read into host memory, almost as loads read them: window by window, into as
// many slabs in turn. Configurations are taken in turns; before each, the files are dropped from
// the page cache, which is checked. Prints GB/s and seconds of CPU time, median (minimum-maximum).
// Usage: read_bench DIRECTORY TURNS ENGINE,DIRECT,THREADS,CHUNK_KIB... (such as posix,on,4,2048).
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <exception>
#include <filesystem>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/deadline.hpp"
#include "core/process.hpp"
#include "device/host/host_device.hpp"
#include "io/reader.hpp"
#include "plan/schedule.hpp"
#include "source/files.hpp"
#include "support/sample_file.hpp"

using namespace safeshuffle;

namespace {

constexpr std::uint64_t window = std::uint64_t{64} << 20;

struct Sample {
  double gigabytes_per_second = 0;
  double cpu_seconds = 0;
};

std::vector<FileInfo> files_in(const std::string& directory) {
  std::vector<FileInfo> files;
  for (const std::string& name : source::files().names_in(directory)) {
    if (!name.ends_with(".safetensors")) continue;
    files.push_back(testing::describe_file(directory + "/" + name));
  }
  return files;
}

void make_cold(const std::vector<FileInfo>& files) {
  for (const FileInfo& file : files) {
    const auto handle = source::files().open(file.path, source::Access::cached);
    handle->drop_cached(0, file.size);
    if (handle->cached_bytes(0, file.size) != 0) {
      throw std::runtime_error("not cold: " + file.path);
    }
  }
}

/// The ranges of all waves, each of one window, offsets congruent to those in the slab.
std::vector<io::ReadRange> waves(const std::vector<FileInfo>& files) {
  std::vector<io::ReadRange> ranges;
  for (std::uint32_t file = 0; file < files.size(); ++file) {
    for (std::uint64_t at = 0; at < files[file].size; at += window) {
      ranges.push_back({file, at, std::min(window, files[file].size - at), nullptr});
    }
  }
  return ranges;
}

io::ReaderOptions parse(const std::string& text) {
  static const std::map<std::string, IoEngine> engines{
      {"posix", IoEngine::posix}, {"uring", IoEngine::uring}, {"auto", IoEngine::automatic}};
  static const std::map<std::string, DirectIo> modes{
      {"on", DirectIo::on}, {"off", DirectIo::off}, {"auto", DirectIo::automatic}};
  std::istringstream in(text);
  std::array<std::string, 4> fields;
  for (std::string& field : fields) std::getline(in, field, ',');
  return {engines.at(fields[0]), modes.at(fields[1]), static_cast<unsigned>(std::stoul(fields[2])),
          std::stoull(fields[3]) << 10};
}

using Slabs = std::array<std::shared_ptr<std::byte>, plan::slabs_per_rank>;

void wait_for_first(io::Reader& reader, std::deque<io::BatchId>& begun) {
  io::BatchStatus status;
  while (!status.done) status = reader.poll(begun.front(), std::chrono::milliseconds(1));
  begun.pop_front();
  if (status.error) throw std::runtime_error(describe(*status.error));
}

Sample measure(const io::ReaderOptions& options, const std::vector<FileInfo>& files,
               device::Device& device, const Slabs& slabs) {
  std::uint64_t bytes = 0;
  const double cpu = core::cpu_seconds();
  const core::Clock::time_point start = core::Clock::now();
  {
    const auto staging = device.make_staging(options.chunk, 1);
    const auto reader = io::make_reader(options, source::files(), files, *staging);
    std::deque<io::BatchId> begun;
    for (io::ReadRange range : waves(files)) {
      const std::size_t wave = static_cast<std::size_t>(bytes / window);
      range.destination = slabs[wave % slabs.size()].get();
      bytes += window;
      begun.push_back(reader->submit({&range, 1}));
      if (begun.size() == slabs.size()) wait_for_first(*reader, begun);
    }
    while (!begun.empty()) wait_for_first(*reader, begun);
    if (!reader->path().fallbacks.empty()) throw std::runtime_error(reader->path().fallbacks[0]);
    bytes = reader->path().direct_bytes + reader->path().buffered_bytes;
  }
  const double seconds = core::seconds_since(start);
  return {static_cast<double>(bytes) * 1e-9 / seconds, core::cpu_seconds() - cpu};
}

std::string spread(const std::vector<Sample>& samples, double Sample::*field) {
  std::vector<double> values;
  for (const Sample& sample : samples) values.push_back(sample.*field);
  std::ranges::sort(values);
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%5.2f (%.2f-%.2f)", values.at(values.size() / 2),
                values.at(0), values.at(values.size() - 1));
  return text.data();
}

int run(const std::vector<std::string>& arguments) {
  if (arguments.size() < 3) throw std::runtime_error("usage: see the source");
  const std::vector<FileInfo> files = files_in(arguments[0]);
  device::HostDevice device;
  Slabs slabs;
  for (auto& slab : slabs) {
    slab = device.allocate(window);
    std::fill_n(slab.get(), window, std::byte{1});
  }
  std::map<std::string, std::vector<Sample>> samples;
  std::vector<std::string> order(arguments.begin() + 2, arguments.end());
  for (int turn = 0; turn < std::stoi(arguments[1]); ++turn) {
    for (const std::string& text : order) {
      make_cold(files);
      samples[text].push_back(measure(parse(text), files, device, slabs));
    }
    std::ranges::reverse(order);
  }
  for (const auto& [text, measured] : samples) {
    std::printf("%-24s %s GB/s, CPU %s s\n", text.c_str(),
                spread(measured, &Sample::gigabytes_per_second).c_str(),
                spread(measured, &Sample::cpu_seconds).c_str());
  }
  return EXIT_SUCCESS;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "read_bench: %s\n", error.what());
    return EXIT_FAILURE;
  }
}
