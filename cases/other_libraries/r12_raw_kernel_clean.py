"""A kernel of the program's own is launched by its address before torch's default stream waits.

rule: E2
kind: R12-INTEROP
verdict: clean
source: own
twin: r12_raw_kernel_possible
only: cuda
why: the default stream waits for the kernel before it rewrites what the kernel reads.
"""

import torch

SIZE = 1 << 16
SOURCE = """
extern "C" __global__ void smooth(const float *source, float *target, int size) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < size) target[i] = 0.5f * source[i];
}
"""


def main() -> None:
    smooth = torch.cuda._compile_kernel(SOURCE, "smooth")
    slots = torch.ones(SIZE, device="cuda")
    smoothed = torch.empty_like(slots)
    side = torch.cuda.Stream()
    torch.cuda.synchronize()

    smooth((SIZE // 256, 1, 1), (256, 1, 1), (slots, smoothed, SIZE), stream=side)
    torch.cuda.current_stream().wait_stream(side)
    slots.zero_()

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
