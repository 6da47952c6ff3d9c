"""The event of a key-value cache write is recorded between the keys and the values.

rule: E1
kind: R04-EDGE-WRONG
verdict: race
source: CUDA Runtime API, cudaEventRecord
twin: e1_two_layer_cache_clean
why: the event captures the keys only; attention reads the values with no order.
"""

import torch

HEADS, TOKENS = 16, 4096


def main() -> None:
    torch.manual_seed(0)
    new_keys = torch.randn(HEADS, TOKENS, device="cuda")
    new_values = torch.randn(HEADS, TOKENS, device="cuda")
    keys = torch.zeros(HEADS, TOKENS, device="cuda")
    values = torch.zeros(HEADS, TOKENS, device="cuda")
    attention = torch.empty(HEADS, TOKENS, device="cuda")
    cache_stream = torch.cuda.Stream()
    written = torch.cuda.Event()
    torch.cuda.synchronize()

    with torch.cuda.stream(cache_stream):
        keys.copy_(new_keys)
        written.record()
        values.copy_(new_values)  # RACE a
    torch.cuda.current_stream().wait_event(written)
    torch.addcmul(keys, keys, values, out=attention)  # RACE a

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
