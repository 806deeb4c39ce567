// Faults of the simulated hardware.
#pragma once

namespace simulated_gpu {

/// Thrown by an operation that touches memory it must not; ends the work of its GPU.
struct DeviceFault {};

/// Counts one operation; whether it is the one that fail_after has chosen.
bool next_operation_fails();

}  // namespace simulated_gpu
