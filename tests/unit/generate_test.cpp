// synth: what is written, that it is reproducible, and that nothing half-written remains.
#include "synth/generate.hpp"

#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <random>
#include <stdexcept>

#include <nlohmann/json.hpp>

#include "safeshuffle/error.hpp"
#include "safeshuffle/loader.hpp"

#include "core/posix_file.hpp"
#include "support/catch.hpp"
#include "synth/contents.hpp"

using namespace safeshuffle;
using namespace safeshuffle::synth;
namespace fs = std::filesystem;

namespace {

// A directory that is gone after the test.
class Scratch {
 public:
  Scratch()
      : path_(fs::temp_directory_path() / ("synth-" + std::to_string(std::random_device{}()))) {
    fs::create_directory(path_);
  }
  ~Scratch() { fs::remove_all(path_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  fs::path operator/(const char* name) const { return path_ / name; }

 private:
  fs::path path_;
};

Layout small_layout() {
  return parse_layout(R"({
    "config": {"model_type": "small", "hidden": 64},
    "alignment": 1,
    "layers": 3,
    "tensors": {
      "embed.weight": ["BF16", 7, 64],
      "h.{layer}.up.weight": ["BF16", 256, 64],
      "h.{layer}.scale.bias": ["U8", 7],
      "head.weight": ["F32", 64, 7]
    },
    "files": {"name": "p{index}.safetensors", "starts": ["embed.weight", "h.1.up.weight"]}
  })",
                      "small");
}

std::string text_of(const fs::path& path) {
  return core::read_text(path.string(), 1 << 20);
}

Catalog catalog_of(const fs::path& directory) {
  return open_checkpoint(directory.string()).catalog;
}

std::vector<std::byte> bytes_of(DType dtype, std::size_t bytes, std::uint64_t seed = 0) {
  std::vector<std::byte> out(bytes);
  Contents(seed, "tensor", dtype).fill(0, out);
  return out;
}

// Counts the elements, as unsigned integers of their width, that satisfy a predicate.
template <typename Bits, typename Predicate>
std::size_t count(DType dtype, Predicate&& predicate) {
  const auto bytes = bytes_of(dtype, 1 << 20);
  std::size_t found = 0;
  for (std::size_t at = 0; at < bytes.size(); at += sizeof(Bits)) {
    Bits element = 0;
    std::memcpy(&element, &bytes[at], sizeof(element));
    if (predicate(element)) ++found;
  }
  return found;
}

float from_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(std::uint32_t{bits} << 16);
}

}  // namespace

TEST_CASE("a generated checkpoint reads back as its layout", "[synth]") {
  const Scratch scratch;
  const Layout layout = small_layout();
  const Generated result = generate(layout, scratch / "new/model");
  const Catalog catalog = catalog_of(scratch / "new/model");
  CHECK(result.files == 2);
  CHECK(result.tensor_bytes == catalog.tensor_bytes());
  CHECK(result.file_bytes == catalog.files()[0].size + catalog.files()[1].size);
  REQUIRE(catalog.find("h.2.up.weight") != nullptr);
  CHECK(catalog.find("h.2.up.weight")->shape == Shape{256, 64});
  CHECK(catalog.find("head.weight")->dtype == DType::F32);
  CHECK(text_of(scratch / "new/model/config.json") == layout.config);
  const auto index =
      nlohmann::json::parse(text_of(scratch / "new/model/model.safetensors.index.json"));
  CHECK(index.at("metadata").at("total_size") == catalog.tensor_bytes());
  CHECK(index.at("weight_map").size() == catalog.tensors().size());
}

TEST_CASE("contents depend on the seed and the tensor, not on its neighbours", "[synth]") {
  const Scratch scratch;
  const Layout layout = small_layout();
  generate(layout, scratch / "a", {.seed = 7});
  generate(layout, scratch / "b", {.seed = 8});
  for (const LayoutFile& file : layout.files) {
    const std::string a = text_of(scratch / "a" / file.name);
    CHECK(a != text_of(scratch / "b" / file.name));
    const format::HeaderLayout header = header_of(layout, file);
    for (std::size_t t = 0; t + 1 < file.tensors.size(); ++t) {
      std::vector<std::byte> expected(header.file_offset[t + 1] - header.file_offset[t]);
      Contents(7, file.tensors[t].name, file.tensors[t].dtype).fill(0, expected);
      CHECK(std::memcmp(&a[header.file_offset[t]], expected.data(), expected.size()) == 0);
    }
  }
}

TEST_CASE("contents can be made in pieces", "[synth]") {
  const DType dtype = GENERATE(DType::BF16, DType::F32, DType::I64);
  const auto whole = bytes_of(dtype, 1003);
  std::vector<std::byte> pieces(whole.size());
  const Contents contents(0, "tensor", dtype);
  contents.fill(496, std::span(pieces).subspan(496));
  contents.fill(0, std::span(pieces).first(496));
  CHECK(pieces == whole);
  CHECK(bytes_of(dtype, 1003, 1) != whole);
}

TEST_CASE("16-bit floats are finite, mostly near 1, sometimes beyond F16", "[synth]") {
  constexpr std::size_t all = (1 << 20) / 2;
  const auto bf16 = [](auto predicate) {
    return count<std::uint16_t>(DType::BF16, [&](auto bits) { return predicate(from_bf16(bits)); });
  };
  CHECK(bf16([](float x) { return std::isfinite(x); }) == all);
  CHECK(bf16([](float x) { return x < 0; }) > all * 49 / 100);
  CHECK(bf16([](float x) { return std::fabs(x) >= 0x1p-12F && std::fabs(x) < 16; }) > all * 9 / 10);
  const std::size_t subnormal = bf16([](float x) { return std::fabs(x) < 0x1p-14F; });
  const std::size_t too_large = bf16([](float x) { return std::fabs(x) > 65504; });
  CHECK(subnormal > all / 50);
  CHECK(subnormal < all / 20);
  CHECK(too_large > all / 1000);
  CHECK(too_large < all / 50);

  const auto f16_exponents = [](unsigned exponent) {
    return count<std::uint16_t>(DType::F16, [&](auto x) { return (x >> 10 & 31U) == exponent; });
  };
  CHECK(f16_exponents(31) == 0);
  CHECK(f16_exponents(0) > all / 50);
  CHECK(f16_exponents(30) > all / 50);
}

TEST_CASE("F32 is finite too, other types have all values", "[synth]") {
  CHECK(count<std::uint32_t>(DType::F32, [](auto x) { return (x >> 23 & 0xFF) == 0xFF; }) == 0);
  CHECK(count<std::uint8_t>(DType::U8, [](unsigned b) { return b == 0xFF; }) > 0);
}

TEST_CASE("a sparse checkpoint has its true size and takes no space", "[synth]") {
  const Scratch scratch;
  const Layout layout = load_layout("bloom-176b");
  const Generated result = generate(layout, scratch / "bloom", {.sparse = true});
  CHECK(result.tensor_bytes == 352'494'542'848);
  CHECK(fs::file_size(scratch / "bloom/model_00001-of-00072.safetensors") == 7'193'289'031);
  CHECK(fs::file_size(scratch / "bloom/model_00072-of-00072.safetensors") == 57'530);
  const Catalog catalog = catalog_of(scratch / "bloom");
  CHECK(catalog.tensor_bytes() == result.tensor_bytes);
  CHECK(catalog.files()[2].data_start % 2 == 1);
}

TEST_CASE("the dtype override replaces F16, BF16 and F32, also in config.json", "[synth]") {
  const Scratch scratch;
  generate(small_layout(), scratch / "m", {.dtype = DTypePolicy::f16});
  const Catalog catalog = catalog_of(scratch / "m");
  CHECK(catalog.find("head.weight")->dtype == DType::F16);
  CHECK(catalog.find("h.0.up.weight")->dtype == DType::F16);
  CHECK(catalog.find("h.1.scale.bias")->dtype == DType::U8);
  const auto config = nlohmann::json::parse(text_of(scratch / "m/config.json"));
  CHECK(config.at("torch_dtype") == "float16");
}

TEST_CASE("the dtype override works on layouts with declared sizes", "[synth]") {
  const Scratch scratch;
  generate(load_layout("llama-2-70b"), scratch / "m", {.sparse = true, .dtype = DTypePolicy::f32});
  CHECK(catalog_of(scratch / "m").find("model.norm.weight")->bytes == 8192 * 4);
}

TEST_CASE("a directory that holds a checkpoint is left alone", "[synth]") {
  const Scratch scratch;
  generate(small_layout(), scratch / "m", {.sparse = true});
  const std::string before = text_of(scratch / "m/p1.safetensors");
  CHECK_THROWS_AS(generate(small_layout(), scratch / "m"), ConfigError);
  CHECK(text_of(scratch / "m/p1.safetensors") == before);

  fs::create_directory(scratch / "n");
  std::ofstream(scratch / "n/config.json") << "mine";
  CHECK_THROWS_AS(generate(small_layout(), scratch / "n"), ConfigError);
  CHECK(text_of(scratch / "n/config.json") == "mine");
  CHECK(std::distance(fs::directory_iterator(scratch / "n"), {}) == 1);
  CHECK_THROWS_AS(generate(small_layout(), scratch / "n/config.json"), ConfigError);
}

TEST_CASE("interrupted work leaves nothing behind", "[synth]") {
  const Scratch scratch;
  struct Interrupted {};
  GenerateOptions options;
  options.progress = [](std::uint64_t done, std::uint64_t total) {
    if (done > total / 2) throw Interrupted{};
  };
  CHECK_THROWS_AS(generate(small_layout(), scratch / "new", options), Interrupted);
  CHECK_FALSE(fs::exists(scratch / "new"));
  fs::create_directory(scratch / "old");
  CHECK_THROWS_AS(generate(small_layout(), scratch / "old", options), Interrupted);
  CHECK(fs::is_empty(scratch / "old"));
}

TEST_CASE("what a killed run left is removed by the next one", "[synth]") {
  const Scratch scratch;
  fs::create_directory(scratch / "m");
  const std::string left = scratch / "m/.p7.safetensors.safeshuffle-new-01234567";
  std::ofstream(left) << "half";
  generate(small_layout(), scratch / "m", {.sparse = true});
  CHECK_FALSE(fs::exists(left));
}

TEST_CASE("files appear together or not at all", "[synth]") {
  const Scratch scratch;
  GenerateOptions options;
  options.progress = [&](std::uint64_t, std::uint64_t) {
    fs::create_directories(scratch / "m/config.json");
  };
  CHECK_THROWS_AS(generate(small_layout(), scratch / "m", options), IoError);
  fs::remove(scratch / "m/config.json");
  CHECK(fs::is_empty(scratch / "m"));
}

TEST_CASE("progress counts all tensor bytes", "[synth]") {
  const Scratch scratch;
  std::uint64_t last = 0;
  GenerateOptions options;
  options.progress = [&](std::uint64_t done, std::uint64_t total) {
    CHECK(done > last);
    CHECK(total == tensor_bytes(small_layout()));
    last = done;
  };
  generate(small_layout(), scratch / "m", options);
  CHECK(last == tensor_bytes(small_layout()));
}
