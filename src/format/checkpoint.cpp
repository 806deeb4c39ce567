#include "format/checkpoint.hpp"

#include <algorithm>
#include <map>
#include <span>
#include <string_view>
#include <utility>

#include "safeshuffle/error.hpp"

#include "core/tensor_bytes.hpp"
#include "core/text.hpp"
#include "format/header.hpp"
#include "format/sharded_state.hpp"

namespace safeshuffle::format {
namespace {

ErrorRecord mismatch(const std::string& file, const std::string& tensor, std::string cause) {
  return {.kind = ErrorKind::format,
          .code = static_cast<std::int32_t>(FormatErrc::index_mismatch),
          .file = file,
          .tensor = tensor,
          .cause = std::move(cause)};
}

/// An index names most tensors where they are, so only the others are looked up a second time.
class IndexComparison {
 public:
  IndexComparison(const Listing& listing, const Contents& contents)
      : listing_(listing),
        catalog_(contents.catalog),
        aliases_(contents.aliases),
        first_named_(catalog_.tensors().size()) {}

  IndexFindings run() {
    std::vector<const IndexEntry*> elsewhere;
    for (const IndexEntry& entry : listing_.index.entries) {
      const TensorInfo* tensor = catalog_.find(entry.tensor);
      if (tensor == nullptr) {
        if (is_alias(entry.tensor)) continue;
        add(entry.file, entry.tensor, "the index names this tensor, but no file has it");
        continue;
      }
      first_named_[number(*tensor)] = true;
      if (tensor->file != entry.file) elsewhere.push_back(&entry);
    }
    std::vector<std::uint32_t> unnamed = find_copies();
    for (const IndexEntry* entry : elsewhere) choose(*entry);
    for (const std::uint32_t tensor : unnamed) add_unnamed(catalog_.tensors()[tensor]);
    for (const auto& [name, tensor] : copies_) findings_.copies.push_back(tensor);
    std::ranges::sort(findings_.copies);
    return std::move(findings_);
  }

 private:
  std::uint32_t number(const TensorInfo& tensor) const {
    return static_cast<std::uint32_t>(&tensor - catalog_.tensors().data());
  }

  bool is_alias(const std::string& name) const {
    const auto found = std::ranges::lower_bound(aliases_, name, {}, &Alias::name);
    return found != aliases_.end() && found->name == name;
  }

  void add(std::uint32_t file, const std::string& tensor, std::string cause) {
    findings_.mismatches.push_back(mismatch(listing_.files[file], tensor, std::move(cause)));
  }

  void add_unnamed(const TensorInfo& tensor) {
    add(tensor.file, tensor.name,
        "the file has this tensor, but the index " + listing_.index_path + " does not name it");
  }

  /// All but the first of a name. Returns the first ones that the index does not name.
  std::vector<std::uint32_t> find_copies() {
    std::vector<std::uint32_t> unnamed;
    for (std::uint32_t i = 0; i < first_named_.size(); ++i) {
      if (first_named_[i]) continue;
      const std::string& name = catalog_.tensors()[i].name;
      if (number(*catalog_.find(name)) == i) {
        unnamed.push_back(i);
      } else {
        copies_.emplace(name, i);
      }
    }
    return unnamed;
  }

  /// Exchanges the first of a name for the one in the file that the index names.
  void choose(const IndexEntry& entry) {
    const TensorInfo& first = *catalog_.find(entry.tensor);
    const auto [begin, end] = copies_.equal_range(entry.tensor);
    const auto named = std::find_if(begin, end, [&](const auto& copy) {
      return catalog_.tensors()[copy.second].file == entry.file;
    });
    if (named != end) {
      named->second = number(first);
    } else {
      add(entry.file, entry.tensor,
          "the index names this file, but the tensor is in " + listing_.files[first.file]);
    }
  }

  const Listing& listing_;
  const Catalog& catalog_;
  const std::vector<Alias>& aliases_;
  std::vector<bool> first_named_;                          // by tensor
  std::multimap<std::string_view, std::uint32_t> copies_;  // by name
  IndexFindings findings_;
};

/// Those that libraries write for tensors that share memory ("lm_head.weight":
/// "model.embed_tokens.weight"); all other metadata names no tensor.
std::vector<std::pair<std::string, std::uint32_t>> find_aliases(const Header& header) {
  std::multimap<std::string_view, std::string_view> names;  // by what they would be names of
  for (const auto& [key, value] : header.metadata) names.emplace(value, key);
  std::vector<std::pair<std::string, std::uint32_t>> aliases;
  for (std::uint32_t i = 0; i < header.tensors.size(); ++i) {
    const auto [begin, end] = names.equal_range(header.tensors[i].name);
    for (auto name = begin; name != end; ++name) aliases.emplace_back(name->second, i);
  }
  return aliases;
}

/// By name, each once and none of a tensor.
std::vector<Alias> unique_aliases(std::vector<Alias> aliases, const Catalog& catalog) {
  std::erase_if(aliases, [&](const Alias& alias) { return catalog.find(alias.name) != nullptr; });
  std::ranges::stable_sort(aliases, {}, &Alias::name);
  const auto is_same = [](const Alias& a, const Alias& b) { return a.name == b.name; };
  aliases.erase(std::unique(aliases.begin(), aliases.end(), is_same), aliases.end());
  return aliases;
}

void append(FileHeader header, std::uint32_t file, std::vector<TensorInfo>& tensors) {
  for (TensorInfo& tensor : header.tensors) {
    tensor.file = file;
    tensors.push_back(std::move(tensor));
  }
}

}  // namespace

FileHeader parse_file_header(const RawHeader& raw, const std::string& path) {
  Header header = parse_header(raw.json, raw.file_size, path);
  auto aliases = find_aliases(header);
  FileHeader file{raw.file_size,
                  header.data_start,
                  raw.modified_ns,
                  raw.inode,
                  raw.cached_share,
                  std::move(header.tensors),
                  {},
                  {},
                  std::move(aliases)};
  for (auto& [key, value] : header.metadata) {
    if (key == shard_record_key) {
      file.shard_record = std::move(value);
    } else {
      file.metadata.emplace_back(key, std::move(value));
    }
  }
  return file;
}

// Offsets and sizes follow from types and shapes, for tensors lie one after the other.
void encode(const FileHeader& header, core::WireWriter& out) {
  put(out, std::tie(header.file_size, header.data_start, header.modified_ns, header.cached_share,
                    header.metadata, header.shard_record, header.aliases));
  out.put(std::uint64_t{header.tensors.size()});
  for (const TensorInfo& tensor : header.tensors) {
    put(out, std::tie(tensor.name, tensor.dtype, tensor.shape));
  }
}

FileHeader decode_file_header(core::WireReader& in) {
  FileHeader header;
  auto values = std::tie(header.file_size, header.data_start, header.modified_ns,
                         header.cached_share, header.metadata, header.shard_record, header.aliases);
  get(in, values);
  header.tensors.resize(in.number());
  std::uint64_t offset = header.data_start;
  for (TensorInfo& tensor : header.tensors) {
    auto tensor_values = std::tie(tensor.name, tensor.dtype, tensor.shape);
    get(in, tensor_values);
    tensor.bytes = core::tensor_bytes(tensor.shape, tensor.dtype);
    tensor.file_offset = std::exchange(offset, offset + tensor.bytes);
  }
  return header;
}

Contents join_headers(const Listing& listing, const std::function<FileHeader()>& next) {
  const bool sharded = listing.index_path.empty() && is_sharded_state(listing.files);
  std::vector<FileInfo> files;
  std::vector<TensorInfo> tensors;
  std::vector<std::string> records;
  std::vector<Alias> aliases;
  for (const std::string& path : listing.files) {
    FileHeader header = next();
    files.push_back({.path = path,
                     .size = header.file_size,
                     .data_start = header.data_start,
                     .modified_ns = header.modified_ns,
                     .inode = header.inode,
                     .metadata = std::move(header.metadata)});
    if (sharded) records.push_back(std::move(header.shard_record));
    for (auto& [name, tensor] : header.aliases) {
      aliases.push_back({std::move(name), header.tensors[tensor].name});
    }
    append(std::move(header), static_cast<std::uint32_t>(files.size() - 1), tensors);
  }
  tensors.shrink_to_fit();  // it is kept as long as the catalog
  Catalog catalog(
      std::move(files), std::move(tensors),
      sharded || !listing.index_path.empty() ? Catalog::Names::by_file : Catalog::Names::unique);
  if (!sharded) {
    aliases = unique_aliases(std::move(aliases), catalog);
    return {std::move(catalog), nullptr, std::move(aliases)};
  }
  auto state = std::make_shared<const ShardedState>(parse_sharded_state(catalog, records));
  return {std::move(catalog), std::move(state), {}};
}

IndexFindings compare_with_index(const Listing& listing, const Contents& contents) {
  if (listing.index_path.empty()) return {};
  return IndexComparison(listing, contents).run();
}

std::string copies_warning(const Catalog& catalog, const std::vector<std::uint32_t>& copies) {
  std::vector<std::string> texts;
  for (const std::uint32_t copy : copies) {
    const TensorInfo& tensor = catalog.tensors()[copy];
    texts.push_back("'" + tensor.name + "' in " + catalog.files()[tensor.file].path);
    if (texts.size() == core::most_enumerated) break;
  }
  return "left out because the index gives the tensor to another file: " +
         core::enumerate(texts, copies.size());
}

std::vector<FileInfo> adapter_files(const Catalog& catalog) {
  const auto is_adapters = [](const TensorInfo& tensor) {
    return tensor.name.find("lora_") != std::string::npos;
  };
  std::vector<FileInfo> adapters;
  for (const FileInfo& file : catalog.files()) {
    const auto tensors = catalog.tensors_of(file);
    if (!tensors.empty() && std::ranges::all_of(tensors, is_adapters)) adapters.push_back(file);
  }
  return adapters;
}

Catalog without(const Catalog& catalog, const std::vector<std::uint32_t>& left_out) {
  const std::span<const FileInfo> files = catalog.files();
  std::vector<TensorInfo> tensors;
  auto next = left_out.begin();
  for (std::uint32_t i = 0; i < catalog.tensors().size(); ++i) {
    if (next != left_out.end() && *next == i) {
      ++next;
    } else {
      tensors.push_back(catalog.tensors()[i]);
    }
  }
  return {{files.begin(), files.end()}, std::move(tensors)};
}

}  // namespace safeshuffle::format
