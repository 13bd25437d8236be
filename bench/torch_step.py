#!/usr/bin/env python3
"""The training step of `weft bench step` in PyTorch and transformers, in alternation with `weft bench step`.

    python3 -m venv /tmp/torch && /tmp/torch/bin/pip install torch transformers
    /tmp/torch/bin/python bench/torch_step.py build/weft [experts implementation, ...]

Both count the same model flops (FLOPS, what `weft bench step` counts) and are divided by the same kind of peak: a bf16
product of 2048^3 on all cores, each by its own library, measured beside the steps."""
import json, statistics, subprocess, sys, time
import torch
from transformers import AutoModelForCausalLM, Ernie4_5_MoeConfig

ROWS, LENGTH, ROUNDS = 4, 1024, 5


def config(experts):
    c = Ernie4_5_MoeConfig(vocab_size=8192, hidden_size=512, intermediate_size=1536, num_hidden_layers=8,
                           num_attention_heads=8, num_key_value_heads=2, head_dim=64, moe_intermediate_size=256,
                           moe_k=4, moe_num_experts=32, moe_num_shared_experts=1, moe_layer_start_index=1,
                           moe_layer_end_index=7, moe_layer_interval=1, tie_word_embeddings=False,
                           max_position_embeddings=LENGTH, use_bias=False, use_cache=False)
    c._experts_implementation = experts
    return c


def flops():
    """Model flops of a step: two per weight and position, and four per head channel and visible pair; backward twice."""
    c, width, kv = config("eager"), 512, 2 * 64
    layer = width * (512 + 2 * kv) + 512 * width
    dense, experts = 3 * width * 1536, 3 * width * 256 * 5 + width * 32
    weights = 8 * layer + dense + 7 * experts + width * 8192
    attention = 8 * 2 * 512 * (LENGTH + 1) / 2 * 2
    return 3 * ROWS * LENGTH * (2 * weights + attention)


def peak():
    a, b = torch.randn(2048, 2048).bfloat16(), torch.randn(2048, 2048).bfloat16()
    times = []
    begin = time.perf_counter()
    while len(times) < 3 or time.perf_counter() - begin < 1:
        start = time.perf_counter()
        a @ b.T
        times.append(time.perf_counter() - start)
    return 2 * 2048**3 / statistics.median(times) * 1e-9


class Stepper:
    def __init__(self, experts):
        torch.manual_seed(1)
        self.model = AutoModelForCausalLM.from_config(config(experts), dtype=torch.bfloat16, attn_implementation="sdpa")
        self.model.train()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=True)

    def step(self):
        ids = torch.randint(0, 8192, (ROWS, LENGTH))
        self.model(input_ids=ids, labels=ids).loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def rate(self):
        begin, steps = time.perf_counter(), 0
        while time.perf_counter() - begin < 1:
            self.step()
            steps += 1
        return steps * flops() / (time.perf_counter() - begin) * 1e-9


def weft(program):
    line = json.loads(subprocess.run([program, "bench", "step", "--json"], capture_output=True, text=True,
                                     check=True).stdout.splitlines()[-1])
    return line["value"], line["ratio"]


def main():
    program, ways = sys.argv[1], sys.argv[2:] or ["eager", "grouped_mm"]
    for way in ways:
        stepper = Stepper(way)
        for _ in range(3):
            stepper.step()
        rows = []
        for _ in range(ROUNDS):
            rows.append((stepper.rate(), peak(), *weft(program)))
        rate, top, ours, share = (statistics.median(column) for column in zip(*rows))
        print(f"torch {torch.__version__}, experts {way}: {rate:.1f} GFLOP/s, {rate / top:.3f} of its peak ({top:.0f}); "
              f"weft {ours:.1f} GFLOP/s, {share:.3f} of its peak; weft / torch {ours / rate:.2f}", flush=True)


if __name__ == "__main__":
    main()
