"""The host waits for the sampled tokens and reads their log-probabilities as well.

rule: E3, C3
kind: R08-D2H-HOST-READ
verdict: race
source: CUDA Runtime API, cudaEventSynchronize
twin: e3_second_download_clean
why: the event was recorded before the second download, so the host reads it in flight.
"""

import torch

TOKENS = 4096


def main() -> None:
    torch.manual_seed(0)
    tokens = torch.randint(0, 100, (TOKENS,), device="cuda")
    log_probabilities = torch.rand(TOKENS, device="cuda")
    host_tokens = torch.zeros(TOKENS, dtype=torch.int64, pin_memory=True)
    host_log_probabilities = torch.zeros(TOKENS, pin_memory=True)
    output_stream = torch.cuda.Stream()
    tokens_done, all_done = torch.cuda.Event(), torch.cuda.Event()
    torch.cuda.synchronize()

    with torch.cuda.stream(output_stream):
        host_tokens.copy_(tokens, non_blocking=True)
        tokens_done.record()
        host_log_probabilities.copy_(log_probabilities, non_blocking=True)  # RACE a
        all_done.record()
    tokens_done.synchronize()
    last_token = int(host_tokens[-1])
    score = float(host_log_probabilities.sum())  # RACE a

    torch.cuda.synchronize()
    print(last_token, score >= 0.0)


if __name__ == "__main__":
    main()
