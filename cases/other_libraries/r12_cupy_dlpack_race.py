"""torch takes an array from CuPy by its address, without asking CuPy's stream.

rule: E2
kind: R12-INTEROP
verdict: race
source: Python array API standard, __dlpack__; torch.as_tensor
twin: r12_cupy_dlpack_clean
only: cuda
why: as_tensor reads __cuda_array_interface__ and orders nothing behind the stream that writes it.
"""

import cupy
import torch

SIZE = 1 << 18


def main() -> None:
    consumer = torch.cuda.Stream()
    producer = cupy.cuda.Stream(non_blocking=True)
    result = torch.empty(SIZE, device="cuda")
    array = cupy.zeros(SIZE, dtype=cupy.float32)
    torch.cuda.synchronize()

    with producer:
        cupy.add(array, 1, out=array)  # RACE a
        with torch.cuda.stream(consumer):
            tensor = torch.as_tensor(array, device="cuda")
            torch.mul(tensor, 2.0, out=result)  # RACE a

    torch.cuda.synchronize()
    print(float(result[0]) >= 0)


if __name__ == "__main__":
    main()
