// A pipeline: a layer is computed on while the next ones are loaded. Rank 0 draws what it did when.
//   mpirun -np 2 example_pipeline CHECKPOINT [BYTES PER WAVE]
#include <algorithm>
#include <future>
#include <string>
#include <utility>

#include <safeshuffle/loader.hpp>

#include "mpi_program.hpp"

using namespace safeshuffle;
using Step = std::shared_future<Span>;

/// Stands for the kernels of a layer, which need those of the one before: reads all weights.
Span compute(const std::vector<Ready>& weights, const Step& before, double start) {
  if (before.valid()) before.wait();
  Span span{.name = "computed", .begin = now() - start};
  std::int64_t zeros = 0;
  for (const Ready& ready : weights) {
    zeros += std::count(ready.tensor->data, ready.tensor->data + ready.tensor->bytes, std::byte{0});
  }
  span.name += ": " + std::to_string(zeros) + " zeros";
  span.seconds = now() - start - span.begin;
  return span;
}

void draw(const Span& span, double columns) {  // per second
  std::cout << std::string(std::size_t(columns * span.begin), ' ')
            << std::string(std::size_t(columns * span.seconds) + 1, '#') << ' ' << span.name << ": "
            << span.begin << " + " << span.seconds << " s\n";
}

void load_and_compute(const Communicator& comm, int argc, char** argv) {
  const double start = now();
  std::vector<Ready> weights;  // of the layer that is about to be complete
  std::vector<Step> steps;
  Options options;
  options.trace = true;
  options.plan.order = Order::layer;
  if (argc > 2) options.plan.window = std::stoull(argv[2]);
  options.on_ready = [&](const Ready& ready) {
    if (ready.what == Ready::What::tensor) weights.push_back(ready);
    if (ready.what != Ready::What::layer) return;
    steps.push_back(std::async(std::launch::async, compute, std::exchange(weights, {}),
                               steps.empty() ? Step() : steps.back(), start));
  };
  const auto model = load(argv[1], comm, options);
  if (comm.rank() != 0) return;
  auto spans = model.report().ranks[0].spans;
  std::erase_if(spans, [](const auto& span) { return span.name != "read"; });
  for (const Step& step : steps) spans.push_back(step.get());
  std::ranges::sort(spans, {}, &Span::begin);
  for (const Span& span : spans) draw(span, 50 / model.report().seconds);
}

int main(int argc, char** argv) {
  return run_with_mpi(load_and_compute, Device::host(), argc, argv);
}
