"""The event of a key-value cache write is recorded after keys and values.

rule: E1
kind: R04-EDGE-WRONG
verdict: clean
source: CUDA Runtime API, cudaEventRecord
twin: e1_two_layer_cache_race
why: the event captures both writes, and attention waits for it.
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
        values.copy_(new_values)
        written.record()
    torch.cuda.current_stream().wait_event(written)
    torch.addcmul(keys, keys, values, out=attention)

    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
