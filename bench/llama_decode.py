#!/usr/bin/env python3
"""Prefill and decoding of llama.cpp beside `weft bench decode`, in alternation: the model of `weft bench step`, bf16 and
numbers of 8 and 4 bits (Q8_0, Q4_0), the same threads.

    python3 -m venv /tmp/torch && /tmp/torch/bin/pip install torch transformers llama-cpp-python
    /tmp/torch/bin/python bench/llama_decode.py build/weft FOLDER

FOLDER holds a tokenizer.json of at most 8192 tokens, which a GGUF file needs (a recipe's text tokenizer, say)."""
import json, os, random, shutil, statistics, subprocess, sys, tempfile, time
import llama_cpp
from transformers import AutoModelForCausalLM

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import torch_step

PROMPT, MADE, ROUNDS, TURNS = 512, 64, 5, 3
KINDS = {"decode": None, "decode-int8": llama_cpp.LLAMA_FTYPE_MOSTLY_Q8_0, "decode-int4": llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_0}


def export(program, tokenizer, folder):
    model = AutoModelForCausalLM.from_config(torch_step.config("eager"), dtype=torch_step.torch.bfloat16)
    model.save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(os.path.join(tokenizer, name), folder)
    whole = folder + "/decode.gguf"
    subprocess.run([program, "export", folder, "-o", whole, "--to", "gguf", "--dtype", "bf16"], check=True)
    for kind, ftype in KINDS.items():
        if ftype is not None:
            options = llama_cpp.llama_model_quantize_default_params()
            options.ftype, options.pure = ftype, True
            llama_cpp.llama_model_quantize(whole.encode(), f"{folder}/{kind}.gguf".encode(), options)


def llama(model, threads):
    model = llama_cpp.Llama(model, n_ctx=1024, n_batch=PROMPT, n_threads=threads, n_threads_batch=threads,
                            verbose=False)
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


def weft(program, kind):
    """Prefill, and one answer's rate."""
    lines = subprocess.run([program, "bench", kind, "--json"], capture_output=True, text=True, check=True).stdout
    rows = [json.loads(line) for line in lines.splitlines()]
    return [row["value"] for row in rows][:2]


def main():
    program, tokenizer = sys.argv[1:3]
    threads = int(os.environ.get("WEFT_THREADS", os.cpu_count()))
    with tempfile.TemporaryDirectory() as folder:
        export(program, tokenizer, folder)
        for kind in KINDS:
            turns = [(*llama(f"{folder}/{kind}.gguf", threads), *weft(program, kind)) for _ in range(TURNS)]
            for theirs_prefill, theirs, prefill, ours in turns:
                print(f"{kind}: llama.cpp prefill {theirs_prefill:.0f}, decode {theirs:.0f} tokens/s; "
                      f"weft {prefill:.0f}, {ours:.0f}", flush=True)
            print(f"{kind}: weft / llama.cpp, medians: prefill {statistics.median(t[2] / t[0] for t in turns):.2f}, "
                  f"decode {statistics.median(t[3] / t[1] for t in turns):.2f}", flush=True)


main()
