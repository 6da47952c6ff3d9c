"""Host memory that the program had pinned by itself is cleared during its upload.

rule: C3, H1
kind: R09-H2D-SRC-WRITE
verdict: race
source: CUDA Runtime API, cudaHostRegister
only: cuda
twin: c3_registered_source_clean
why: the upload is asynchronous since its source is registered with CUDA, and the host does not wait for it.
"""

import torch

SIZE = 1 << 18


def main() -> None:
    source = torch.ones(SIZE)
    status = torch.cuda.cudart().cudaHostRegister(source.data_ptr(), source.nbytes, 0)
    batch = torch.empty(SIZE, device="cuda")
    upload_stream = torch.cuda.Stream()
    torch.cuda.synchronize()

    with torch.cuda.stream(upload_stream):
        batch.copy_(source, non_blocking=True)  # RACE a
    source.zero_()  # RACE a

    torch.cuda.synchronize()
    if int(status) == 0:
        torch.cuda.cudart().cudaHostUnregister(source.data_ptr())


if __name__ == "__main__":
    main()
