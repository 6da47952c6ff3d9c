"""An array over memory that the program had pinned by itself is summed during its download.

rule: C3, H1
kind: R08-D2H-HOST-READ
verdict: race
source: CUDA Runtime API, cudaHostRegister
only: cuda
twin: c3_registered_landing_clean
why: the download is asynchronous since its target is registered with CUDA, and the host does not wait for it.
"""

import torch

SIZE = 1 << 14


def main() -> float:
    landing = torch.zeros(SIZE)
    rows = landing.numpy()
    status = torch.cuda.cudart().cudaHostRegister(landing.data_ptr(), landing.nbytes, 0)
    scores = torch.ones(SIZE, device="cuda")
    download_stream = torch.cuda.Stream()
    torch.cuda.synchronize()

    with torch.cuda.stream(download_stream):
        landing.copy_(scores, non_blocking=True)  # RACE a
    total = rows.sum()  # RACE a

    torch.cuda.synchronize()
    if int(status) == 0:
        torch.cuda.cudart().cudaHostUnregister(landing.data_ptr())
    return float(total)


if __name__ == "__main__":
    main()
