#!/usr/bin/env python3
"""Prefill and decoding of llama.cpp beside `weft bench decode`: the model of `weft bench step`, bf16, the same threads.

    python3 -m venv /tmp/torch && /tmp/torch/bin/pip install torch transformers llama-cpp-python
    /tmp/torch/bin/python bench/llama_decode.py build/weft FOLDER

FOLDER holds a tokenizer.json of at most 8192 tokens, which a GGUF file needs (a recipe's text tokenizer, say)."""
import os, random, shutil, statistics, subprocess, sys, tempfile, time
from llama_cpp import Llama
from transformers import AutoModelForCausalLM

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import torch_step

PROMPT, MADE, ROUNDS = 512, 64, 5


def export(program, tokenizer, folder):
    model = AutoModelForCausalLM.from_config(torch_step.config("eager"), dtype=torch_step.torch.bfloat16)
    model.save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(os.path.join(tokenizer, name), folder)
    subprocess.run([program, "export", folder, "-o", folder + "/m.gguf", "--to", "gguf", "--dtype", "bf16"], check=True)
    return folder + "/m.gguf"


def llama(model, threads):
    model = Llama(model, n_ctx=1024, n_batch=PROMPT, n_threads=threads, n_threads_batch=threads, verbose=False)
    prefill, decode = [], []
    for _ in range(ROUNDS + 1):
        model.reset()
        begin = time.perf_counter()
        model.eval([random.randrange(4000) for _ in range(PROMPT)])
        middle = time.perf_counter()
        for _ in range(MADE):
            model.eval([random.randrange(4000)])
        prefill.append(PROMPT / (middle - begin))
        decode.append(MADE / (time.perf_counter() - middle))
    return statistics.median(prefill[1:]), statistics.median(decode[1:])


def main():
    program, tokenizer = sys.argv[1:3]
    with tempfile.TemporaryDirectory() as folder:
        file = export(program, tokenizer, folder)
        for _ in range(2):
            print("llama.cpp: prefill %.0f tokens/s, decode %.0f tokens/s" % llama(file, os.cpu_count()), flush=True)
            subprocess.run([program, "bench", "decode"], check=True)


main()
