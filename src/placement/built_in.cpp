#include "placement/built_in.hpp"

#include "core/embedded.hpp"
#include "placement/rule_set.hpp"

namespace safeshuffle::placement {

namespace {

Document document_of(const core::EmbeddedFile& file) {
  return {"built-in rules '" + std::string(file.stem) + "'", std::string(file.text)};
}

}  // namespace

std::optional<Document> built_in_document(std::string_view name) {
  for (const core::EmbeddedFile& file : core::embedded_tp_rules()) {
    if (file.stem == name) return document_of(file);
  }
  return std::nullopt;
}

std::vector<BuiltIn> built_in_rules() {
  std::vector<BuiltIn> all;
  for (const core::EmbeddedFile& file : core::embedded_tp_rules()) {
    const Document document = document_of(file);
    all.push_back({std::string(file.stem), model_types_of(document), document});
  }
  return all;
}

}  // namespace safeshuffle::placement
