"""A kernel of the program's own is launched by its address beside torch's default stream.

rule: E2
kind: R12-INTEROP
verdict: possible
source: own
twin: r12_raw_kernel_clean
only: cuda
why: the kernel is given a pointer to slots, which the default stream rewrites without a wait.
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

    smooth((SIZE // 256, 1, 1), (256, 1, 1), (slots, smoothed, SIZE), stream=side)  # POSSIBLE a
    slots.zero_()  # POSSIBLE a

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
