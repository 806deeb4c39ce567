// synth: layouts, the true sizes of real checkpoints, and smaller versions that remain divisible.
#include "synth/layout.hpp"

#include <limits>

#include <nlohmann/json.hpp>

#include "safeshuffle/error.hpp"

#include "support/catch.hpp"

using namespace safeshuffle;
using namespace safeshuffle::synth;

namespace {

const std::string tiny = R"({
  "source": "made up",
  "config": {"model_type": "tiny", "hidden": 256, "layers": 2},
  "metadata": {"format": "np"},
  "alignment": 1,
  "widths": [{"hidden": 256, "mlp": 1024}, {"vocab": 90}],
  "layers": 2,
  "tensors": {
    "embed.weight": ["BF16", "vocab", "hidden"],
    "h.{layer}.up.weight": ["BF16", "mlp", "hidden"],
    "h.{layer}.norm.bias": ["BF16", 4],
    "head.weight": ["F32", 3, "hidden"]
  },
  "files": {"name": "part-{index:02}-of-{count}.safetensors", "starts": ["embed.weight", "h.1.up.weight"]}
})";

// `tiny` with the first occurrence of one text replaced by another.
std::string tiny_with(const std::string& from, const std::string& to) {
  std::string text = tiny;
  const std::size_t at = text.find(from);
  REQUIRE(at != text.npos);
  return text.replace(at, from.size(), to);
}

std::vector<std::string> names_of(const LayoutFile& file) {
  std::vector<std::string> names;
  for (const auto& tensor : file.tensors) names.push_back(tensor.name);
  return names;
}

const format::TensorSpec& tensor(const Layout& layout, const std::string& name) {
  for (const auto& file : layout.files) {
    for (const auto& candidate : file.tensors) {
      if (candidate.name == name) return candidate;
    }
  }
  throw ConfigError("no tensor " + name);
}

bool keeps_divisors(std::uint64_t original, std::uint64_t extent) {
  for (std::uint64_t world = 1; world <= 64; ++world) {
    if (original % world == 0 && extent % world != 0) return false;
  }
  return extent > 0 && extent <= original;
}

// The number of extents that lost a divisor, of two layouts with the same tensors.
std::size_t lost_divisors(const Layout& original, const Layout& scaled) {
  std::size_t lost = 0;
  for (std::size_t f = 0; f < original.files.size(); ++f) {
    const auto& before = original.files[f].tensors;
    const auto& after = scaled.files[f].tensors;
    REQUIRE(before.size() == after.size());
    for (std::size_t t = 0; t < before.size(); ++t) {
      REQUIRE(before[t].name == after[t].name);
      REQUIRE(before[t].shape.size() == after[t].shape.size());
      for (std::size_t axis = 0; axis < before[t].shape.size(); ++axis) {
        if (!keeps_divisors(before[t].shape[axis], after[t].shape[axis])) ++lost;
      }
    }
  }
  return lost;
}

}  // namespace

TEST_CASE("a layout's patterns expand to tensors and files", "[synth]") {
  const Layout layout = parse_layout(tiny, "tiny");
  REQUIRE(layout.files.size() == 2);
  CHECK(layout.files[0].name == "part-01-of-2.safetensors");
  CHECK(names_of(layout.files[0]) ==
        std::vector<std::string>{"embed.weight", "h.0.norm.bias", "h.0.up.weight"});
  CHECK(names_of(layout.files[1]) ==
        std::vector<std::string>{"head.weight", "h.1.norm.bias", "h.1.up.weight"});  // F32 first
  CHECK(tensor(layout, "h.1.up.weight").shape == Shape{1024, 256});
  CHECK(tensor(layout, "h.0.norm.bias").shape == Shape{4});
  CHECK(tensor(layout, "head.weight").dtype == DType::F32);
  CHECK(tensor_bytes(layout) == 90 * 256 * 2 + 2 * (1024 * 256 * 2 + 4 * 2) + 3 * 256 * 4);
  CHECK(layout.metadata == std::map<std::string, std::string>{{"format", "np"}});
  CHECK(layout.alignment == 1);
}

TEST_CASE("built-in layouts have the true sizes of every file", "[synth]") {
  CHECK(builtin_layouts() == std::vector<std::string>{"bloom-176b", "falcon-180b", "falcon-40b",
                                                      "llama-2-13b", "llama-2-70b", "llama-2-7b"});
  const auto [name, files, known, bytes] =
      GENERATE(table<std::string, std::size_t, std::size_t, std::uint64_t>(
          {{"llama-2-7b", 2, 0, 13'476'831'232},
           {"llama-2-13b", 3, 0, 26'031'728'640},
           {"llama-2-70b", 15, 15, 139'001'872'384},
           {"bloom-176b", 72, 72, 352'494'542'848},
           {"falcon-40b", 9, 0, 83'671'941'120},
           {"falcon-180b", 81, 0, 359'045'130'240}}));
  const Layout layout = load_layout(name);
  REQUIRE(layout.files.size() == files);
  CHECK(tensor_bytes(layout) == bytes);
  std::size_t met = 0;
  for (const LayoutFile& file : layout.files) {
    if (file.size && header_of(layout, file).file_size == *file.size) ++met;
  }
  CHECK(met == known);
}

TEST_CASE("sizes and shapes are the published ones", "[synth]") {
  const Layout bloom = load_layout("bloom-176b");
  CHECK(bloom.files.back().size == 57'530);
  CHECK(header_of(bloom, bloom.files[2]).bytes.size() % 2 == 1);
  CHECK(tensor(bloom, "h.69.self_attention.query_key_value.weight").shape == Shape{43008, 14336});
  const Layout falcon = load_layout("falcon-180b");
  CHECK(tensor(falcon, "transformer.h.0.self_attention.query_key_value.weight").shape ==
        Shape{15872, 14848});
  const Layout llama = load_layout("llama-2-70b");
  CHECK(header_of(llama, llama.files[0]).file_size == 10'376'877'880);
  CHECK(tensor(llama, "model.layers.79.self_attn.k_proj.weight").shape == Shape{1024, 8192});
}

TEST_CASE("layouts without known sizes have the files that a limit of 10 GB gives", "[synth]") {
  const std::string name = GENERATE("llama-2-7b", "llama-2-13b", "falcon-40b");
  const Layout layout = load_layout(name);
  constexpr std::uint64_t limit = 10'000'000'000;
  for (std::size_t at = 0; at + 1 < layout.files.size(); ++at) {
    const std::uint64_t size = header_of(layout, layout.files[at]).file_size;
    CHECK(size < limit);
    CHECK(size > limit * 9 / 10);
  }
}

TEST_CASE("a declared size is met by padding, if the tensors allow it", "[synth]") {
  Layout layout = parse_layout(tiny, "tiny");
  LayoutFile& file = layout.files[0];
  const std::uint64_t natural = header_of(layout, file).file_size;
  for (const std::uint64_t padding : {0U, 1U, 4096U}) {
    file.size = natural + padding;
    const auto header = header_of(layout, file);
    CHECK(header.file_size == file.size);
    CHECK(header.file_size - header.bytes.size() == 90 * 256 * 2 + 1024 * 256 * 2 + 4 * 2);
  }
  for (const std::uint64_t wrong : {natural - 1, natural + 4097}) {
    file.size = wrong;
    try {
      header_of(layout, file);
      FAIL("no exception");
    } catch (const ConfigError& error) {
      CHECK(error.record().file == "part-01-of-2.safetensors");
      CHECK(error.record().cause.find(std::to_string(wrong)) != std::string::npos);
      CHECK(error.record().cause.find(std::to_string(natural)) != std::string::npos);
    }
  }
}

TEST_CASE("malformed layouts are config errors", "[synth]") {
  const std::vector<std::pair<std::string, std::string>> defects{
      {"\"F32\"", "\"F33\""},
      {"\"F32\"", "32"},
      {"[\"F32\", 3, \"hidden\"]", "[]"},
      {"3, \"hidden\"", "\"3\", \"hidden\""},
      {"3, \"hidden\"", "-3, \"hidden\""},
      {"3, \"hidden\"", "\"depth\", \"hidden\""},
      {"\"hidden\": 256, \"mlp\": 1024}", "\"hidden\": 0, \"mlp\": 1024}"},
      {"{\"vocab\": 90}", "{\"vocab\": 1.5}"},
      {"{\"vocab\": 90}", "{\"vocab\": 90}, {}"},
      {"{\"vocab\": 90}", "{\"vocab\": 90}, 7"},
      {"\"layers\": 2,\n", ""},
      {"\"layers\": 2,\n", "\"layers\": \"layers\",\n"},
      {"\"layers\": 2,\n", "\"lairs\": 2,\n"},
      {"\"alignment\": 1", "\"alignment\": \"1\""},
      {"h.{layer}.up", "h.{layer}.{expert}.up"},
      {"h.{layer}.up", "h.{layer.up"},
      {"\"embed.weight\", \"h.1.up", "\"h.1.up"},
      {"\"h.1.up.weight\"]", "\"h.7.up.weight\"]"},
      {"\"part-{index:02}", "\"../part-{index}"},
      {"\"part-{index:02}", "\"part-{number}"},
      {"\"part-{index:02}", "\"part"},
      {"-of-{count}.safetensors", ".bin"},
      {"\"starts\"", "\"sizes\": [1], \"starts\""},
      {"\"starts\"", "\"sizes\": [1, -1], \"starts\""},
      {"\"config\": {", "\"unused\": {"},
      {"}", ""},
  };
  for (const auto& [from, to] : defects) {
    INFO(from << " -> " << to);
    CHECK_THROWS_AS(parse_layout(tiny_with(from, to), "tiny"), ConfigError);
  }
  for (const char* text : {"", "[]", "7", "null", "{", "\xff"}) {
    INFO(text);
    CHECK_THROWS_AS(parse_layout(text, "bad"), ConfigError);
  }
}

TEST_CASE("an unknown layout is an error that lists the known ones", "[synth]") {
  try {
    load_layout("llama-3");
    FAIL("no exception");
  } catch (const ConfigError& error) {
    CHECK(error.record().cause.find("llama-2-70b") != std::string::npos);
  }
  CHECK_THROWS_AS(load_layout("/"), ConfigError);
}

TEST_CASE("the widths of a group are scaled alike, also in config.json", "[synth]") {
  const Layout layout = parse_layout(tiny, "tiny", 0.25);
  CHECK(tensor(layout, "h.1.up.weight").shape == Shape{512, 128});
  CHECK(tensor(layout, "embed.weight").shape == Shape{90, 128});
  CHECK(nlohmann::json::parse(layout.config).at("hidden") == 128);
  const Layout llama = load_layout("llama-2-70b", 0.01);
  const auto config = nlohmann::json::parse(llama.config);
  const std::uint64_t hidden = config.at("hidden_size");
  CHECK(hidden < 8192);
  CHECK(hidden % 64 == 0);
  CHECK_FALSE(config.contains("kv_size"));
  CHECK(config.at("num_attention_heads") == 64);
  CHECK(config.at("num_key_value_heads") == 8);
  CHECK(config.at("num_hidden_layers") == 80);
  CHECK(tensor(llama, "model.layers.3.self_attn.k_proj.weight").shape ==
        Shape{8 * (hidden / 64), hidden});
  CHECK(tensor(llama, "model.layers.3.mlp.up_proj.weight").shape ==
        Shape{config.at("intermediate_size").get<std::uint64_t>(), hidden});
  CHECK(tensor(llama, "lm_head.weight").shape ==
        Shape{config.at("vocab_size").get<std::uint64_t>(), hidden});
}

TEST_CASE("scaling keeps every division that a group up to 64 can ask for", "[synth]") {
  const std::string name = GENERATE("llama-2-7b", "llama-2-13b", "llama-2-70b", "bloom-176b",
                                    "falcon-40b", "falcon-180b");
  const double scale = GENERATE(0.7, 0.2, 0.02, 0.001);
  CHECK(lost_divisors(load_layout(name), load_layout(name, scale)) == 0);
}

TEST_CASE("the scaled size is near the wanted one", "[synth]") {
  const auto [name, scale] = GENERATE(table<std::string, double>({{"llama-2-7b", 0.05},
                                                                  {"llama-2-13b", 0.03},
                                                                  {"falcon-40b", 0.0155},
                                                                  {"llama-2-70b", 0.5},
                                                                  {"llama-2-70b", 0.1},
                                                                  {"llama-2-70b", 0.01},
                                                                  {"llama-2-70b", 0.003},
                                                                  {"bloom-176b", 0.5},
                                                                  {"bloom-176b", 0.1},
                                                                  {"bloom-176b", 0.01},
                                                                  {"bloom-176b", 0.005},
                                                                  {"falcon-180b", 0.5},
                                                                  {"falcon-180b", 0.25},
                                                                  {"falcon-180b", 0.06},
                                                                  {"falcon-180b", 0.016}}));
  const double reached = static_cast<double>(tensor_bytes(load_layout(name, scale))) /
                         static_cast<double>(tensor_bytes(load_layout(name))) / scale;
  INFO(name << " at " << scale << ": " << reached);
  CHECK(reached > 0.65);
  CHECK(reached < 1.35);
}

TEST_CASE("fused dimensions stay whole heads", "[synth]") {
  const Layout falcon = load_layout("falcon-180b", 0.02);
  const std::uint64_t hidden = nlohmann::json::parse(falcon.config).at("hidden_size");
  CHECK(hidden % 232 == 0);
  CHECK(tensor(falcon, "transformer.h.5.self_attention.query_key_value.weight").shape ==
        Shape{hidden + 2 * 8 * (hidden / 232), hidden});
  const Layout bloom = load_layout("bloom-176b", 0.002);
  const std::uint64_t embed = nlohmann::json::parse(bloom.config).at("n_embed");
  CHECK(embed % 112 == 0);
  CHECK(tensor(bloom, "h.5.mlp.dense_h_to_4h.bias").shape == Shape{4 * embed});
}

TEST_CASE("a scaled layout has no declared sizes, but all files", "[synth]") {
  const Layout smaller = load_layout("bloom-176b", 0.5);
  CHECK(smaller.files.size() == 72);
  for (const LayoutFile& file : smaller.files) CHECK_FALSE(file.size);
}

TEST_CASE("a scale of 0 or less, or above 1, is refused", "[synth]") {
  for (const double bad : {0.0, -0.5, 1.01, std::numeric_limits<double>::quiet_NaN(),
                           std::numeric_limits<double>::infinity()}) {
    CHECK_THROWS_AS(load_layout("llama-2-70b", bad), ConfigError);
  }
  CHECK_NOTHROW(load_layout("llama-2-70b", 1e-300));
}
