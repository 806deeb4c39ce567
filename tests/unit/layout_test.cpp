// synth: layouts, their two forms, and the true sizes of real checkpoints.
#include "synth/layout.hpp"

#include <filesystem>

#include "safeshuffle/error.hpp"

#include "support/catch.hpp"
#include "synth/expression.hpp"
#include "synth/header_style.hpp"

using namespace safeshuffle;
using namespace safeshuffle::synth;

namespace {

const std::string tiny = R"({
  "name": "tiny",
  "config": {"model_type": "tiny", "hidden": 8, "layers": 2, "heads": 2},
  "dtypes": {"default": "BF16", "head.weight": "F32"},
  "widths": ["hidden"],
  "layers": "layers",
  "dimensions": {"head_dim": "hidden / heads"},
  "tensors": {
    "embed.weight": ["hidden", "hidden"],
    "h.*.up.weight": ["4 * hidden", "hidden"],
    "h.*.norm.bias": ["head_dim"],
    "head.weight": ["3", "hidden"]
  },
  "files": {"name": "part-{index}-of-{count}.safetensors", "starts": ["embed.weight", "h.1.up.weight"]}
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

// The project's shared facts lie beside the source directory on some machines only.
std::filesystem::path shared_layouts() {
  std::filesystem::path directory = TEST_SOURCE_DIR;
  for (; directory != directory.root_path(); directory = directory.parent_path()) {
    if (exists(directory / "shared/data/layouts")) return directory / "shared/data/layouts";
  }
  return {};
}

void check_equal(const LayoutFile& a, const LayoutFile& b) {
  CHECK(a.name == b.name);
  CHECK(a.size == b.size);
  REQUIRE(names_of(a) == names_of(b));
  for (std::size_t i = 0; i < a.tensors.size(); ++i) {
    CHECK(a.tensors[i].dtype == b.tensors[i].dtype);
    CHECK(a.tensors[i].shape == b.tensors[i].shape);
  }
}

void check_equal(const Layout& a, const Layout& b) {
  CHECK(a.name == b.name);
  CHECK(a.config == b.config);
  CHECK(a.metadata == b.metadata);
  CHECK(a.alignment == b.alignment);
  CHECK(a.rules.widths == b.rules.widths);
  CHECK(a.rules.dimensions == b.rules.dimensions);
  CHECK(a.rules.extents == b.rules.extents);
  REQUIRE(a.files.size() == b.files.size());
  for (std::size_t i = 0; i < a.files.size(); ++i) check_equal(a.files[i], b.files[i]);
}

const format::TensorSpec& tensor(const Layout& layout, const std::string& name) {
  for (const auto& file : layout.files) {
    for (const auto& candidate : file.tensors) {
      if (candidate.name == name) return candidate;
    }
  }
  throw ConfigError("no tensor " + name);
}

}  // namespace

TEST_CASE("expressions have the usual precedence, and refuse nonsense", "[synth]") {
  const Values values{{"h", 12}, {"heads", 5}};
  CHECK(evaluate("2 + 3*h", values) == 38);
  CHECK(evaluate("(2+3) * h / 4", values) == 15);
  CHECK(evaluate(" h ", values) == 12);
  CHECK_FALSE(evaluate("h / heads", values));
  CHECK_FALSE(evaluate("h / heads * heads", values));
  for (const char* bad :
       {"", "h +", "(h", "h)", "x", "1x", "h / 0", "h - 1", "h h", "2 ** 3", "18446744073709551616",
        "18446744073709551615 + 1", "4294967296 * 4294967296", "h / heads + x"}) {
    INFO(bad);
    CHECK_THROWS_AS(evaluate(bad, values), ConfigError);
  }
  CHECK_THROWS_AS(evaluate(std::string(100'000, '('), values), ConfigError);
}

TEST_CASE("only whole components of a name become a pattern", "[synth]") {
  CHECK(pattern_of("h.12.mlp.dense_4h_to_h.weight") == "h.*.mlp.dense_4h_to_h.weight");
  CHECK(pattern_of("a.0.b.17") == "a.*.b.*");
  CHECK(pattern_of("weight") == "weight");
  CHECK(pattern_of("") == "");
}

TEST_CASE("a compact layout expands by its rules", "[synth]") {
  const Layout layout = parse_layout(tiny, "tiny");
  REQUIRE(layout.files.size() == 2);
  CHECK(layout.files[0].name == "part-00001-of-00002.safetensors");
  CHECK(names_of(layout.files[0]) ==
        std::vector<std::string>{"embed.weight", "h.0.norm.bias", "h.0.up.weight"});
  CHECK(names_of(layout.files[1]) ==
        std::vector<std::string>{"head.weight", "h.1.norm.bias", "h.1.up.weight"});  // F32 first
  CHECK(tensor(layout, "h.1.up.weight").shape == Shape{32, 8});
  CHECK(tensor(layout, "h.0.norm.bias").shape == Shape{4});
  CHECK(tensor(layout, "head.weight").dtype == DType::F32);
  CHECK(tensor_bytes(layout) == 8 * 8 * 2 + 2 * (32 * 8 * 2 + 4 * 2) + 3 * 8 * 4);
}

TEST_CASE("built-in layouts have the true sizes of every file", "[synth]") {
  CHECK(builtin_layouts() == std::vector<std::string>{"bloom-176b", "falcon-180b", "falcon-40b",
                                                      "llama-2-13b", "llama-2-70b", "llama-2-7b"});
  const auto [name, files, known] =
      GENERATE(table<std::string, std::size_t, std::size_t>({{"llama-2-7b", 2, 0},
                                                             {"llama-2-13b", 3, 0},
                                                             {"llama-2-70b", 15, 15},
                                                             {"bloom-176b", 72, 72},
                                                             {"falcon-40b", 9, 0},
                                                             {"falcon-180b", 81, 0}}));
  const Layout layout = load_layout(name);
  CHECK(layout.name == name);
  REQUIRE(layout.files.size() == files);
  std::size_t met = 0;
  for (const LayoutFile& file : layout.files) {
    if (file.size && header_of(layout, file).file_size == *file.size) ++met;
  }
  CHECK(met == known);
}

TEST_CASE("sizes and shapes are the published ones", "[synth]") {
  const Layout bloom = load_layout("bloom-176b");
  CHECK(tensor_bytes(bloom) == 352'494'542'848);
  CHECK(bloom.files.back().size == 57'530);
  CHECK(header_of(bloom, bloom.files[2]).bytes.size() % 2 == 1);
  CHECK(tensor(bloom, "h.69.self_attention.query_key_value.weight").shape == Shape{43008, 14336});
  const Layout falcon = load_layout("falcon-180b");
  CHECK(tensor_bytes(falcon) == 359'045'130'240);
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

TEST_CASE("a header in no particular order needs no extra padding", "[synth]") {
  const Layout bloom = load_layout("bloom-176b");
  for (const LayoutFile& file : bloom.files) {
    CHECK(header_of(bloom, file).bytes.back() == '}');
  }
}

TEST_CASE("explicit and compact form are the same layout", "[synth]") {
  const auto directory = shared_layouts();
  if (directory.empty()) {
    WARN("skipped: no shared/data/layouts beside the source directory");
    return;
  }
  for (const std::string name : {"bloom-176b", "falcon-180b", "llama-2-70b"}) {
    check_equal(load_layout((directory / (name + ".json")).string()), load_layout(name));
  }
}

TEST_CASE("an explicit layout takes its shapes from the built-in one of its type", "[synth]") {
  const std::string text = R"({
    "name": "two",
    "config": {"model_type": "llama", "hidden_size": 8, "num_attention_heads": 2,
               "num_key_value_heads": 1, "intermediate_size": 24, "vocab_size": 10},
    "dtypes": {"default": "F16"},
    "files": {"a.safetensors": null, "b.safetensors": 408},
    "weight_map": {"model.layers.7.self_attn.k_proj.weight": "a.safetensors",
                   "model.layers.7.mlp.down_proj.weight": "a.safetensors",
                   "model.norm.weight": "b.safetensors",
                   "lm_head.weight": "b.safetensors"}
  })";
  const auto with_size = [&](const std::string& size) {
    return std::string(text).replace(text.find("408"), 3, size);
  };
  const Layout layout = parse_layout(with_size("null"), "two");
  CHECK(tensor(layout, "model.layers.7.self_attn.k_proj.weight").shape == Shape{4, 8});
  CHECK(tensor(layout, "model.layers.7.mlp.down_proj.weight").shape == Shape{8, 24});
  const auto natural = header_of(layout, layout.files[1]).file_size;
  CHECK_NOTHROW(parse_layout(with_size(std::to_string(natural)), "two"));
  CHECK(parse_layout(with_size(std::to_string(natural + 64)), "two").files[1].size == natural + 64);
  CHECK_THROWS_AS(parse_layout(with_size(std::to_string(natural + max_fill + 8)), "two"),
                  ConfigError);
  CHECK_THROWS_AS(parse_layout(with_size("100"), "two"), ConfigError);
}

TEST_CASE("a declared size that the tensors do not give is an error that says so", "[synth]") {
  Layout layout = load_layout("llama-2-70b");
  layout.files[3].size = *layout.files[3].size + 8;
  const HeaderStyle style{.order = HeaderStyle::Order::sorted, .metadata = {{"format", "pt"}}};
  layout.files.erase(layout.files.begin(), layout.files.begin() + 3);
  try {
    apply_style(layout, style);
    FAIL("no exception");
  } catch (const ConfigError& error) {
    CHECK(error.record().file == "model-00004-of-00015.safetensors");
    CHECK(error.record().cause.find("9798063968") != std::string::npos);
  }
}

TEST_CASE("malformed layouts are config errors", "[synth]") {
  const std::vector<std::pair<std::string, std::string>> defects{
      {"\"BF16\"", "\"BF17\""},
      {"\"default\"", "\"defolt\""},
      {"\"head.weight\": \"F32\"", "\"tail.weight\": \"F32\""},
      {"\"hidden / heads\"", "\"hidden / 3\""},
      {"\"hidden / heads\"", "\"hidden / mouths\""},
      {"\"hidden / heads\"", "7"},
      {"\"widths\": [\"hidden\"]", "\"widths\": [\"height\"]"},
      {"\"layers\": \"layers\"", "\"layers\": \"1000000000\""},
      {"\"layers\": \"layers\"", "\"lairs\": \"layers\""},
      {"[\"3\", \"hidden\"]", "[\"3 / 2\", \"hidden\"]"},
      {"[\"3\", \"hidden\"]", "[3, \"hidden\"]"},
      {"[\"3\", \"hidden\"]", "[\"4611686018427387904\", \"hidden\"]"},
      {"\"embed.weight\", \"h.1.up", "\"h.1.up"},
      {"\"h.1.up.weight\"]", "\"h.7.up.weight\"]"},
      {"\"part-{index}", "\"../part-{index}"},
      {"\"part-{index}", "\"part"},
      {"-of-{count}.safetensors", ".bin"},
      {"\"starts\"", "\"sizes\": [1], \"starts\""},
      {"\"starts\"", "\"sizes\": [1, -1], \"starts\""},
      {"\"starts\"", "\"sizes\": [1, 1], \"starts\""},
      {"\"layers\": \"layers\"", "\"layers\": \"layers\", \"total_size\": 1"},
      {"\"layers\": \"layers\"", "\"layers\": \"layers\", \"header\": {}"},
      {"\"layers\": \"layers\"",
       R"("layers": "layers", "header": {"order": "none", "metadata": {}, "alignment": 8})"},
      {"\"layers\": \"layers\"",
       R"("layers": "layers", "header": {"order": "sorted", "metadata": {}, "alignment": 0})"},
      {"\"config\": {", "\"config\": [], \"unused\": {"},
      {"\"name\": \"tiny\",", ""},
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
