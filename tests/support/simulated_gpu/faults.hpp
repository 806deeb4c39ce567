// Faults of the simulated hardware.
#pragma once

namespace simulated_gpu {

/// Thrown by an operation that accesses memory it must not; ends the work of its GPU.
struct DeviceFault {};

/// Counts one operation; returns whether it is the one selected by fail_after.
bool next_operation_fails();

}  // namespace simulated_gpu
