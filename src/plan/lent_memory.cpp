#include "plan/lent_memory.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <tuple>

#include "safeshuffle/error.hpp"

#include "core/arithmetic.hpp"
#include "core/page.hpp"
#include "plan/strided_bytes.hpp"

namespace safeshuffle::plan {
namespace {

// What two bindings write can be told apart as far as this.
constexpr std::uint64_t most_bytes = std::uint64_t{1} << 60;

[[noreturn]] void fail_binding(const Binding& binding, const std::string& cause) {
  throw PlanError(ErrorRecord{.tensor = binding.box.tensor,
                              .cause = "'" + binding.name + "' cannot be filled: " + cause});
}

bool has_no_element(const Binding& binding) {
  return std::ranges::find(binding.box.sizes, 0) != binding.box.sizes.end();
}

// One past the last of the elements that loops reach, if that can be counted.
template <class Loops, class Stride>
std::optional<std::uint64_t> span_in_elements(const Loops& loops, Stride stride) {
  std::optional<std::uint64_t> span = 1;
  for (const auto& loop : loops) {
    const auto reach = core::checked_mul(loop.count - 1, loop.*stride);
    span = reach ? core::checked_add(*span, *reach) : std::nullopt;
    if (!span) break;
  }
  return span;
}

// Makes the copy of a binding that is not empty: first in elements, since only what is merged has
// to begin and end at whole bytes. Zeros are copied from a tensor like their destination.
class BindingCopy {
 public:
  BindingCopy(const Catalog& catalog, const Binding& binding)
      : catalog_(catalog), binding_(binding) {}

  StridedCopy make(const std::byte* base) {
    copy_.run_bytes = 1;
    make_loops();
    check_destination();
    DType from = binding_.dtype;
    if (!binding_.box.is_zeros) {
      const TensorInfo& tensor = source();
      check_source(tensor);
      from = tensor.dtype;
    }
    merge_loops(copy_);
    scale(from);
    copy_.destination = static_cast<std::uint64_t>(binding_.data - base);
    if (overlaps_itself(destination_of(copy_))) fail("two of its elements are at one place");
    return std::move(copy_);
  }

 private:
  using Loop = StridedCopy::Loop;

  [[noreturn]] void fail(const std::string& cause) const { fail_binding(binding_, cause); }

  void make_loops() {
    const Box& box = binding_.box;
    const auto& source_strides = binding_.box.is_zeros ? binding_.strides : box.strides;
    for (std::size_t i = 0; i < box.sizes.size(); ++i) {
      if (box.sizes[i] == 1) continue;
      copy_.loops.push_back({box.sizes[i], source_strides[i], binding_.strides[i]});
    }
    std::stable_sort(copy_.loops.begin(), copy_.loops.end(), [](const Loop& a, const Loop& b) {
      return a.source_stride > b.source_stride;
    });
  }

  void check_destination() const {
    if (binding_.data == nullptr) fail("it has no memory");
    const auto span = span_in_elements(copy_.loops, &Loop::destination_stride);
    if (!span || *span > most_bytes / bits(binding_.dtype)) fail("it is larger than any memory");
    for (const Loop& loop : copy_.loops) {
      if (loop.destination_stride == 0) fail("two of its elements are at one place");
    }
  }

  const TensorInfo& source() {
    const TensorInfo& tensor = *catalog_.find(binding_.box.tensor);
    copy_.tensor = static_cast<std::uint32_t>(&tensor - catalog_.tensors().data());
    return tensor;
  }

  void check_source(const TensorInfo& tensor) {
    const std::uint64_t elements = tensor.bytes * 8 / bits(tensor.dtype);
    const auto span = span_in_elements(copy_.loops, &Loop::source_stride);
    if (!span || !core::in_bounds(binding_.box.offset, *span, elements)) {
      fail("its box ends after the tensor");
    }
    std::uint64_t inner = 1;
    for (auto loop = copy_.loops.rbegin(); loop != copy_.loops.rend(); ++loop) {
      if (loop->source_stride < inner) {
        fail("the strides of its box are too small: an element would be read twice");
      }
      inner += (loop->count - 1) * loop->source_stride;
    }
    copy_.source = binding_.box.offset;
    const bool converts = is_convertible(tensor.dtype) && is_convertible(binding_.dtype);
    if (tensor.dtype != binding_.dtype && !converts) {
      fail(std::string(name(tensor.dtype)) + " cannot become " + std::string(name(binding_.dtype)));
    }
  }

  // From elements to bytes.
  void scale(DType from) {
    copy_.from = from;
    copy_.to = binding_.dtype;
    const unsigned source_bits = bits(copy_.from);
    const unsigned destination_bits = bits(copy_.to);
    copy_.source = whole_bytes(copy_.source, source_bits);
    copy_.run_bytes = whole_bytes(copy_.run_bytes, source_bits);
    for (Loop& loop : copy_.loops) {
      loop.source_stride = whole_bytes(loop.source_stride, source_bits);
      loop.destination_stride = whole_bytes(loop.destination_stride, destination_bits);
    }
  }

  // Of so many elements, of which a tensor, or memory, has as many.
  std::uint64_t whole_bytes(std::uint64_t elements, unsigned bits_each) const {
    const std::uint64_t bit_count = elements * bits_each;
    if (bit_count % 8 != 0) fail("a part of it begins or ends inside a byte");
    return bit_count / 8;
  }

  const Catalog& catalog_;
  const Binding& binding_;
  StridedCopy copy_;
};

// All bytes of a destination as zeros.
void append_zero_rows(const StridedBytes& bytes, std::size_t depth, std::uint64_t begin,
                      std::vector<Zeros>& zeros) {
  if (bytes.loops.empty()) {
    zeros.push_back({begin, 1, bytes.run_bytes, bytes.run_bytes});
    return;
  }
  const StridedBytes::Loop& loop = bytes.loops[depth];
  if (depth + 1 == bytes.loops.size()) {
    zeros.push_back({begin, loop.count, bytes.run_bytes, loop.stride});
    return;
  }
  for (std::uint64_t i = 0; i < loop.count; ++i) {
    append_zero_rows(bytes, depth + 1, begin + i * loop.stride, zeros);
  }
}

// What one binding writes.
struct Destination {
  const Binding* binding = nullptr;
  StridedBytes bytes;
};

void check_overlaps(std::vector<Destination>& written) {
  std::ranges::sort(written, {}, [](const Destination& each) { return each.bytes.begin; });
  for (std::size_t i = 0; i < written.size(); ++i) {
    const std::uint64_t end = written[i].bytes.begin + span_of(written[i].bytes);
    for (std::size_t j = i + 1; j < written.size() && written[j].bytes.begin < end; ++j) {
      if (!overlap(written[i].bytes, written[j].bytes)) continue;
      fail_binding(*written[i].binding, "it overlaps '" + written[j].binding->name + "' in memory");
    }
  }
}

void check_dimensions(const Binding& binding) {
  const std::size_t sizes = binding.box.sizes.size();
  const bool is_one = binding.strides.size() == sizes &&
                      (binding.box.is_zeros || binding.box.strides.size() == sizes);
  if (!is_one) fail_binding(binding, "its sizes and strides differ in number");
}

void check_tensor(const Catalog& catalog, const Binding& binding) {
  if (catalog.find(binding.box.tensor) != nullptr) return;
  fail_binding(binding, "the checkpoint has no such tensor");
}

std::byte* base_of(std::span<const Binding> bindings) {
  std::byte* lowest = nullptr;
  for (const Binding& binding : bindings) {
    if (has_no_element(binding) || binding.data == nullptr) continue;
    if (lowest == nullptr || binding.data < lowest) lowest = binding.data;
  }
  return lowest - reinterpret_cast<std::uintptr_t>(lowest) % core::page_bytes;
}

}  // namespace

LentMemory lend(const Catalog& catalog, std::span<const Binding> bindings) {
  LentMemory lent;
  lent.base = base_of(bindings);
  std::vector<Destination> written;
  written.reserve(bindings.size());
  for (const Binding& binding : bindings) {
    check_dimensions(binding);
    if (!binding.box.is_zeros) check_tensor(catalog, binding);
    if (has_no_element(binding)) continue;
    StridedCopy copy = BindingCopy(catalog, binding).make(lent.base);
    written.push_back({&binding, destination_of(copy)});
    if (binding.box.is_zeros) {
      append_zero_rows(written.back().bytes, 0, copy.destination, lent.zeros);
    } else {
      lent.copies.push_back(std::move(copy));
    }
  }
  check_overlaps(written);
  std::ranges::sort(lent.copies, {},
                    [](const StridedCopy& copy) { return std::tuple(copy.tensor, copy.source); });
  return lent;
}

std::span<const StridedCopy> copies_of(const LentMemory& lent, std::uint32_t tensor) {
  const auto first = std::ranges::lower_bound(lent.copies, tensor, {}, &StridedCopy::tensor);
  const auto end = std::ranges::upper_bound(lent.copies, tensor, {}, &StridedCopy::tensor);
  return {first, end};
}

void append_copy_items(const LentMemory& lent, std::uint32_t tensor, const Range& part,
                       const KeptPlace& place, std::vector<PackItem>& items) {
  for (const StridedCopy& copy : copies_of(lent, tensor)) {
    append_copy_items(copy, part, place, items);
  }
}

}  // namespace safeshuffle::plan
