// Reads the section `pipeline`.
#include <algorithm>
#include <numeric>

#include <nlohmann/json.hpp>

#include "core/arithmetic.hpp"
#include "core/text.hpp"
#include "placement/pipeline.hpp"

namespace safeshuffle::placement {
namespace {

using nlohmann::json;

void add_module(Pipeline& pipeline, const std::string& key, Role role, const std::string& path,
                const Document& document) {
  check_key({key, path}, document);
  const std::size_t index = pipeline.modules.size();
  if (pipeline.matcher.add(key, index) != index) {
    fail_config(document, path, "\"" + key + "\" matches the same names as another entry");
  }
  pipeline.modules.push_back({key, role});
}

bool has_role(const Pipeline& pipeline, Role role) {
  return std::ranges::count(pipeline.modules, role, &Pipeline::Module::role) != 0;
}

std::vector<std::uint64_t> parse_layers_per_stage(const JsonObject& section) {
  constexpr const char* field = "layers_per_stage";
  const json* list = section.find(field);
  if (list == nullptr) return {};
  if (!list->is_array() || list->empty()) section.fail(field, "not a list of numbers of layers");
  std::vector<std::uint64_t> counts;
  std::uint64_t total = 0;
  for (const json& count : *list) {
    if (!count.is_number_unsigned() || count == 0) section.fail(field, "not positive integers");
    counts.push_back(count.get<std::uint64_t>());
    const auto sum = core::checked_add(total, counts.back());
    if (!sum) section.fail(field, "the numbers are too large");
    total = *sum;
  }
  return counts;
}

/// The numbers by stage tell how many layers there are if nothing else does.
void count_layers(Pipeline& pipeline, const JsonObject& section) {
  const std::vector<std::uint64_t>& counts = pipeline.layers_per_stage;
  if (counts.empty()) return;
  const std::uint64_t total = std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
  if (!pipeline.layers) pipeline.layers = total;
  if (pipeline.layers == total) return;
  section.fail("layers_per_stage", "adds up to " + core::plural(total, "layer") +
                                       ", but the model has " + std::to_string(*pipeline.layers));
}

void check_tied(const Pipeline& pipeline, const JsonObject& section) {
  if (!pipeline.tied.value_or(false)) return;
  for (const auto& [field, role] : {pipeline_fields.front(), pipeline_fields.back()}) {
    if (has_role(pipeline, role)) continue;
    section.fail(field,
                 "missing: \"tie_word_embeddings\" in config.json is true, so the first "
                 "and the last stage share the embedding");
  }
}

}  // namespace

Pipeline parse_pipeline(const JsonObject& section, const RuleParser& parser,
                        const Quantities& quantities, std::vector<std::string> prefixes) {
  section.allow_only({"embedding", "first", "layers", "last", "head", "count", "layers_per_stage"});
  Pipeline pipeline;
  pipeline.matcher = Matcher(std::move(prefixes));
  for (const auto& [field, role] : pipeline_fields) {
    for (const std::string& key : section.strings(field)) {
      add_module(pipeline, key, role, section.path(field), section.document());
    }
  }
  if (!has_role(pipeline, Role::layers)) section.fail("layers", "missing");
  pipeline.layers = parser.parse_count(section, "count", "layers");
  pipeline.layers_per_stage = parse_layers_per_stage(section);
  pipeline.tied = quantities.tied();
  count_layers(pipeline, section);
  check_tied(pipeline, section);
  return pipeline;
}

}  // namespace safeshuffle::placement
