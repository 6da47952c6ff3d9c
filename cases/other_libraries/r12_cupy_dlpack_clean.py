"""torch takes an array from CuPy by DLPack, which lets its stream wait for that of CuPy.

rule: E2
kind: R12-INTEROP
verdict: clean
source: Python array API standard, __dlpack__
twin: r12_cupy_dlpack_race
only: cuda
why: __dlpack__ is given the stream that takes the array, and has it wait for the producer.
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
        cupy.add(array, 1, out=array)
        with torch.cuda.stream(consumer):
            tensor = torch.from_dlpack(array)
            torch.mul(tensor, 2.0, out=result)

    torch.cuda.synchronize()
    print(float(result[0]) >= 0)


if __name__ == "__main__":
    main()
