// The pack kernel on the CPU, for a simulated GPU.
#pragma once

/// Runs a whole launch, thread after thread. `arguments` are those of cudaLaunchKernel for the pack
/// kernel; the memory they lead to is found with simulated_gpu::host_view.
void run_pack_kernel_on_host(void** arguments, unsigned grid_x, unsigned block_x);
