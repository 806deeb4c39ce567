// Invented bindings of several ranks, and what they must bring, element by element.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "safeshuffle/binding.hpp"
#include "safeshuffle/metadata.hpp"

#include "device/convert.hpp"
#include "support/catalogs.hpp"
#include "support/pseudo_random.hpp"

namespace safeshuffle::testing {

/// Memory that nobody touches: planning needs its address only.
inline std::byte* invented_memory(std::uint64_t offset) {
  return reinterpret_cast<std::byte*>(std::uintptr_t{0x10'0000} + offset);
}

/// Calls visit(source element, destination element) for every element of a binding.
template <class Visit>
void for_each_element(const Binding& binding, Visit visit) {
  std::uint64_t count = 1;
  for (const std::uint64_t size : binding.box.sizes) count *= size;
  for (std::uint64_t element = 0; element < count; ++element) {
    std::uint64_t source = binding.box.offset;
    std::uint64_t destination = 0;
    std::uint64_t rest = element;
    for (std::size_t i = binding.box.sizes.size(); i-- > 0; rest /= binding.box.sizes[i]) {
      const std::uint64_t index = rest % binding.box.sizes[i];
      if (!binding.box.is_zeros) source += index * binding.box.strides[i];
      destination += index * binding.strides[i];
    }
    visit(source, destination);
  }
}

/// Copies one element, of whole bytes or of half a byte, to another place, converted.
inline void copy_element(const std::byte* source, std::uint64_t from_index, DType from,
                         std::byte* destination, std::uint64_t to_index, DType to) {
  if (bits(from) == 4) {
    const auto value =
        static_cast<unsigned>(source[from_index / 2]) >> (4 * (from_index % 2)) & 15U;
    destination[to_index / 2] |= static_cast<std::byte>(value << (4 * (to_index % 2)));
    return;
  }
  const std::byte* const at = source + from_index * bits(from) / 8;
  std::byte* const target = destination + to_index * bits(to) / 8;
  if (from == to) {
    std::copy_n(at, bits(from) / 8, target);
  } else {
    device::scalar_convert(from, to)(at, target, 1);
  }
}

/// What memory from `base` on holds in the end, and which bytes of it are written.
struct FilledMemory {
  std::vector<std::byte> bytes;
  std::vector<int> writes;
};

/// `stored(name)`: the bytes of a stored tensor.
template <class Stored>
FilledMemory fill_naively(const Catalog& catalog, const std::vector<Binding>& bindings,
                          const std::byte* base, std::size_t size, Stored stored) {
  FilledMemory memory{std::vector<std::byte>(size), std::vector<int>(size)};
  for (const Binding& binding : bindings) {
    const bool zeros = binding.box.is_zeros;
    const std::vector<std::byte> from =
        zeros ? std::vector<std::byte>() : stored(binding.box.tensor);
    const auto begin = binding.data - base;
    for_each_element(binding, [&](std::uint64_t source, std::uint64_t destination) {
      if (!zeros) {
        copy_element(from.data(), source, catalog.find(binding.box.tensor)->dtype,
                     memory.bytes.data() + begin, destination, binding.dtype);
      }
      const std::uint64_t bit = destination * bits(binding.dtype);
      for (std::uint64_t byte = bit / 8; byte <= (bit + bits(binding.dtype) - 1) / 8; ++byte) {
        memory.writes[static_cast<std::size_t>(begin) + byte] = 1;
      }
    });
  }
  return memory;
}

/// A model, and bindings of each of `world` ranks to it.
struct BoundModel {
  Catalog catalog;
  std::vector<std::vector<Binding>> bindings;
};

/// Boxes of tensors: whole, strided, of some columns or rows; alike on all ranks, or different.
/// Destinations: dense, transposed, padded, converted, several interleaved in one parameter.
class BoundModelMaker {
 public:
  BoundModelMaker(std::uint32_t seed, std::uint32_t world)
      : random_(seed), model_{make_model(), std::vector<std::vector<Binding>>(world)} {}

  BoundModel make() {
    ends_.assign(model_.bindings.size(), random_.below(64));
    for (const TensorInfo& tensor : model_.catalog.tensors()) {
      switch (random_.below(5)) {
        case 0:
          break;
        case 1:
          bind_alike(tensor);
          break;
        case 2:
          bind_somewhere(tensor, some_rank());
          break;
        case 3:
          bind_columns(tensor);
          break;
        default:
          for (std::uint32_t i = 1 + below(2 * world()); i > 0; --i) {
            bind_somewhere(tensor, some_rank());
          }
          break;
      }
    }
    for (std::uint32_t i = below(3); i > 0; --i) bind_zeros(some_rank());
    return std::move(model_);
  }

 private:
  std::uint32_t below(std::uint64_t n) { return static_cast<std::uint32_t>(random_.below(n)); }
  std::uint32_t world() const { return static_cast<std::uint32_t>(model_.bindings.size()); }
  std::uint32_t some_rank() { return below(world()); }

  Catalog make_model() {
    static constexpr DType dtypes[] = {DType::U8,  DType::BF16, DType::F16,
                                       DType::F32, DType::F64,  DType::F4};
    std::vector<std::vector<Made>> files(1 + below(4));
    std::size_t made = 0;
    for (auto& file : files) {
      for (std::uint32_t i = 1 + below(3); i > 0; --i) {
        Made tensor{numbered("t", made++), dtypes[below(6)], {}};
        for (std::uint32_t dims = below(4); dims > 0; --dims) {
          tensor.shape.push_back(1 + below(random_.below(6) == 0 ? 150 : 12));
        }
        if (tensor.dtype == DType::F4) tensor.shape.push_back(2);
        file.push_back(std::move(tensor));
      }
    }
    return make_catalog(files);
  }

  // Every n-th element, whatever the shape is.
  Box comb(const TensorInfo& tensor) {
    const std::uint64_t elements = tensor.bytes * 8 / bits(tensor.dtype);
    const std::uint64_t step = 1 + random_.below(6);
    const std::uint64_t begin = random_.below(std::min(step, elements));
    return {tensor.name, begin, {(elements - begin + step - 1) / step}, {step}};
  }

  // Along each dimension, every n-th index of an interval.
  Box random_box(const TensorInfo& tensor) {
    if (tensor.dtype != DType::F4 && random_.below(6) == 0) return comb(tensor);
    Box box{tensor.name, 0, tensor.shape, dense_strides(tensor.shape)};
    const std::size_t dims = tensor.shape.size();
    for (std::size_t i = 0; i < dims; ++i) {
      // Of elements of half a byte, whole last dimensions only.
      if (random_.below(2) == 0 || (tensor.dtype == DType::F4 && i + 1 == dims)) continue;
      const std::uint64_t begin = random_.below(tensor.shape[i]);
      const std::uint64_t step = random_.below(3) == 0 ? 1 + random_.below(3) : 1;
      const std::uint64_t most = (tensor.shape[i] - begin + step - 1) / step;
      box.offset += begin * box.strides[i];
      box.sizes[i] = random_.below(10) == 0 ? 0 : 1 + random_.below(most);
      box.strides[i] *= step;
    }
    return box;
  }

  DType destination_type(DType stored) {
    static constexpr DType dtypes[] = {DType::BF16, DType::F16, DType::F32};
    return is_convertible(stored) && random_.below(2) == 0 ? dtypes[below(3)] : stored;
  }

  // In a random order of the dimensions, with gaps; those of half bytes stay together.
  std::vector<std::uint64_t> random_strides(const Shape& sizes, DType dtype) {
    std::vector<std::size_t> order(sizes.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = order.size() - 1 - i;
    const std::size_t fixed = bits(dtype) == 4 && !order.empty() ? 1 : 0;
    for (std::size_t i = order.size(); i > fixed + 1 && random_.below(2) == 0; --i) {
      std::swap(order[i - 1], order[fixed + random_.below(i - fixed)]);
    }
    std::vector<std::uint64_t> strides(sizes.size());
    std::uint64_t stride = 1;
    for (const std::size_t dim : order) {
      strides[dim] = stride;
      stride *= std::max<std::uint64_t>(sizes[dim], 1);
      if (fixed == 0 && random_.below(4) == 0) stride += random_.below(4);
    }
    return strides;
  }

  static std::uint64_t bytes_of(const Binding& binding) {
    std::uint64_t last = 0;
    for_each_element(binding,
                     [&](std::uint64_t, std::uint64_t at) { last = std::max(last, at + 1); });
    return (last * bits(binding.dtype) + 7) / 8;
  }

  // Behind all that the rank has, at any alignment.
  void place(Binding binding, std::uint32_t rank) {
    ends_[rank] += random_.below(3) == 0 ? random_.below(40) : 0;
    binding.data = invented_memory(ends_[rank]);
    binding.name = numbered("p", named_++);
    ends_[rank] += bytes_of(binding);
    model_.bindings[rank].push_back(std::move(binding));
  }

  void bind_somewhere(const TensorInfo& tensor, std::uint32_t rank) {
    bind(random_box(tensor), tensor, rank);
  }

  void bind(Box box, const TensorInfo& tensor, std::uint32_t rank) {
    const DType dtype = destination_type(tensor.dtype);
    std::vector<std::uint64_t> strides = random_strides(box.sizes, dtype);
    place({std::move(box), nullptr, dtype, std::move(strides), {}}, rank);
  }

  void bind_alike(const TensorInfo& tensor) {
    const Box box = random_box(tensor);
    for (std::uint32_t rank = 0; rank < world(); ++rank) bind(box, tensor, rank);
  }

  // Each rank has some of the last dimension; pairs of them are interleaved in one parameter.
  void bind_columns(const TensorInfo& tensor) {
    if (tensor.shape.size() < 2 || tensor.dtype == DType::F4) return bind_alike(tensor);
    std::vector<Interval> indices;
    for (const std::uint64_t extent : tensor.shape) indices.push_back({0, extent});
    const std::uint64_t extent = tensor.shape.back();
    for (std::uint32_t rank = 0; rank < world(); ++rank) {
      const std::uint64_t begin = extent * rank / world();
      const std::uint64_t length = extent * (rank + 1) / world() - begin;
      if (length == 0) continue;
      indices.back() = {begin, length};
      Binding half{box_of(tensor, indices), nullptr, tensor.dtype, {}, {}};
      Shape joined = half.box.sizes;
      joined.back() *= 2;
      half.strides = dense_strides(joined);
      Binding other = half;
      place(half, rank);
      other.data = model_.bindings[rank].back().data + length * bits(tensor.dtype) / 8;
      other.name = numbered("p", named_++);
      ends_[rank] += length * bits(tensor.dtype) / 8;
      model_.bindings[rank].push_back(std::move(other));
    }
  }

  void bind_zeros(std::uint32_t rank) {
    Binding binding{{}, nullptr, DType::F32, {}, {}};
    binding.box.is_zeros = true;
    for (std::uint32_t dims = below(4); dims > 0; --dims) binding.box.sizes.push_back(below(6));
    binding.strides = random_strides(binding.box.sizes, binding.dtype);
    place(std::move(binding), rank);
  }

  PseudoRandom random_;
  std::size_t named_ = 0;
  BoundModel model_;
  std::vector<std::uint64_t> ends_;  // by rank
};

inline BoundModel random_bindings(std::uint32_t seed, std::uint32_t world) {
  return BoundModelMaker(seed, world).make();
}

}  // namespace safeshuffle::testing
