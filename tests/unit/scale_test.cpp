// synth: scaled layouts remain divisible, consistent and of about the wanted size.
#include "synth/scale.hpp"

#include <limits>

#include <nlohmann/json.hpp>

#include "safeshuffle/error.hpp"

#include "support/catch.hpp"

using namespace safeshuffle;
using namespace safeshuffle::synth;

namespace {

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

Shape shape_of_tensor(const Layout& layout, const std::string& name) {
  return shape_of(name, layout.rules, values_of(layout.config, layout.rules).value());
}

}  // namespace

TEST_CASE("scaling keeps every division that a group up to 64 can ask for", "[synth]") {
  const std::string name = GENERATE("llama-2-7b", "llama-2-13b", "llama-2-70b", "bloom-176b",
                                    "falcon-40b", "falcon-180b");
  const double scale = GENERATE(0.7, 0.2, 0.02, 0.001);
  const Layout original = load_layout(name);
  CHECK(lost_divisors(original, scaled(original, scale)) == 0);
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
  const Layout original = load_layout(name);
  const double reached = scale_of(scaled(original, scale), original) / scale;
  INFO(name << " at " << scale << ": " << reached);
  CHECK(reached > 0.65);
  CHECK(reached < 1.35);
}

TEST_CASE("config.json follows the shapes", "[synth]") {
  const Layout llama = scaled(load_layout("llama-2-70b"), 0.01);
  const auto config = nlohmann::json::parse(llama.config);
  const std::uint64_t hidden = config.at("hidden_size");
  CHECK(hidden < 8192);
  CHECK(hidden % 64 == 0);
  CHECK(config.at("num_attention_heads") == 64);
  CHECK(config.at("num_key_value_heads") == 8);
  CHECK(config.at("num_hidden_layers") == 80);
  CHECK(shape_of_tensor(llama, "model.layers.3.self_attn.k_proj.weight") ==
        Shape{8 * (hidden / 64), hidden});
  CHECK(shape_of_tensor(llama, "model.layers.3.mlp.up_proj.weight") ==
        Shape{config.at("intermediate_size").get<std::uint64_t>(), hidden});
  CHECK(shape_of_tensor(llama, "lm_head.weight") ==
        Shape{config.at("vocab_size").get<std::uint64_t>(), hidden});
}

TEST_CASE("fused dimensions stay whole heads", "[synth]") {
  const Layout falcon = scaled(load_layout("falcon-180b"), 0.02);
  const std::uint64_t hidden = nlohmann::json::parse(falcon.config).at("hidden_size");
  CHECK(hidden % 232 == 0);
  CHECK(shape_of_tensor(falcon, "transformer.h.5.self_attention.query_key_value.weight") ==
        Shape{hidden + 2 * 8 * (hidden / 232), hidden});
  const Layout bloom = scaled(load_layout("bloom-176b"), 0.002);
  const std::uint64_t embed = nlohmann::json::parse(bloom.config).at("n_embed");
  CHECK(embed % 112 == 0);
  CHECK(shape_of_tensor(bloom, "h.5.mlp.dense_h_to_4h.bias") == Shape{4 * embed});
}

TEST_CASE("scale 1 changes nothing, other scales drop the declared sizes", "[synth]") {
  const Layout original = load_layout("bloom-176b");
  const Layout same = scaled(original, 1);
  CHECK(same.config == original.config);
  CHECK(same.files[5].size == original.files[5].size);
  const Layout smaller = scaled(original, 0.5);
  CHECK_FALSE(smaller.files[5].size);
  CHECK(smaller.files.size() == original.files.size());
}

TEST_CASE("a scale of 0 or less, or above 1, is refused", "[synth]") {
  const Layout layout = load_layout("llama-2-70b");
  for (const double bad : {0.0, -0.5, 1.01, std::numeric_limits<double>::quiet_NaN(),
                           std::numeric_limits<double>::infinity()}) {
    CHECK_THROWS_AS(scaled(layout, bad), ConfigError);
  }
  CHECK_NOTHROW(scaled(layout, 1e-300));
}
