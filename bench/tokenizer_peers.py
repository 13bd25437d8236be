"""Weft beside HF tokenizers, tiktoken and SentencePiece: one thread each, WordNet's glosses, in turns in one run.

    python bench/tokenizer_peers.py [WEFT] [ROUNDS]      WEFT: the program (build/weft)

Trains tokenizers of 16 k tokens with the libraries into out/tokenizers (kept for the next run), encodes with each library, and with
`weft bench tokenizers`, in alternation; then training of byte-level BPE by both. Needs tokenizers, tiktoken, sentencepiece, protobuf; the text
that HF trains on and encodes comes in documents of a line, as HF's cache and threads like it best.
"""
import base64, io, json, os, statistics, subprocess, sys, time

os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tests", "golden", "tokenizer", "families"))
import make_families as families  # noqa: E402

OUT = "out/tokenizers"
VOCAB = 16384
NAMES = ["llama3", "qwen2", "gpt4o", "deepseek3", "llama2", "gemma", "t5", "bert_uncased"]


def glosses():
    lines = []
    for part in ("noun", "verb", "adj", "adv"):
        with open("/usr/share/wordnet/data." + part, encoding="utf-8") as f:
            lines += [line.split("| ", 1)[1] for line in f if "| " in line and not line.startswith(" ")]
    return lines


def make(lines):
    import sentencepiece
    os.makedirs(OUT, exist_ok=True)
    families.CORPUS, families.VOCAB = lines, VOCAB
    families.FULL = True
    for name in NAMES:
        path = f"{OUT}/{name}.json"
        if not os.path.exists(path):
            tok = getattr(families, name)()
            open(path, "w", encoding="utf-8").write(tok.to_str())
    for kind in ("bpe", "unigram"):
        path = f"{OUT}/sp_{kind}.model"
        if not os.path.exists(path):
            out = io.BytesIO()
            sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(lines), model_writer=out, vocab_size=VOCAB, model_type=kind, minloglevel=2)
            open(path, "wb").write(out.getvalue())
    for name, (pattern, _) in families.TIKTOKEN.items():
        if name not in ("tt_cl100k", "tt_o200k") or os.path.exists(f"{OUT}/{name}"):
            continue
        os.makedirs(f"{OUT}/{name}")
        with open(f"{OUT}/{name}/tokenizer.tiktoken", "wb") as f:
            f.write(b"".join(base64.b64encode(k) + b" %d\n" % v for k, v in ranks().items()))
        json.dump({"pattern": pattern}, open(f"{OUT}/{name}/tokenizer_config.json", "w"))


def ranks():
    data = json.load(open(f"{OUT}/llama3.json", encoding="utf-8"))["model"]["vocab"]
    to_byte = {c: b for b, c in families.byte_characters().items()}
    rows = sorted((i, k) for k, i in data.items() if all(c in to_byte for c in k))
    return {bytes(to_byte[c] for c in k): n for n, (_, k) in enumerate(rows)}


def encoders():
    import sentencepiece, tiktoken
    from tokenizers import Tokenizer
    out = {}
    for name in NAMES:
        tok = Tokenizer.from_file(f"{OUT}/{name}.json")
        out[name + ".json"] = lambda lines, tok=tok: [tok.encode(line) for line in lines]
    for kind in ("bpe", "unigram"):
        sp = sentencepiece.SentencePieceProcessor(model_file=f"{OUT}/sp_{kind}.model")
        out[f"sp_{kind}.model"] = lambda lines, sp=sp: [sp.encode(line) for line in lines]
    table = ranks()
    for name in ("tt_cl100k", "tt_o200k"):
        enc = tiktoken.Encoding(name, pat_str=families.TIKTOKEN[name][1], mergeable_ranks=table, special_tokens={})
        out[name] = lambda lines, enc=enc: [enc.encode_ordinary(line) for line in lines]
    return out


def weft(program, bench):
    run = subprocess.run([program, "bench", bench, "--json"], capture_output=True, text=True, env={**os.environ, "WEFT_THREADS": "1"})
    if run.returncode:
        sys.exit(run.stderr)
    return {row["what"]: row["value"] for row in map(json.loads, run.stdout.splitlines())}


def train_hf(lines):
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.Sequence([families.split(families.QWEN2), families.BYTES])
    trainer = trainers.BpeTrainer(vocab_size=VOCAB, show_progress=False, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    begin = time.perf_counter()
    tok.train_from_iterator(lines, trainer)
    return time.perf_counter() - begin


def main():
    program = sys.argv[1] if len(sys.argv) > 1 else "build/weft"
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    lines = glosses()
    size = sum(len(line.encode()) for line in lines) * 1e-6
    make(lines)
    libraries, theirs, ours, training = encoders(), {}, {}, ([], [])
    for _ in range(rounds):
        for name, encode in libraries.items():
            begin = time.perf_counter()
            encode(lines)
            theirs.setdefault(name, []).append(size / (time.perf_counter() - begin))
        for name, rate in weft(program, "tokenizers").items():
            ours.setdefault(name, []).append(rate)
        training[0].append(size / train_hf(lines))
        training[1].append(weft(program, "bpe")["training, 16 k merges"])
    print("| tokenizer | its library, MB/s | weft, MB/s | ratio |\n|---|---|---|---|")
    for name in libraries:
        a, b = statistics.median(theirs[name]), statistics.median(ours[name])
        print(f"| {name} | {a:.2f} | {b:.1f} | {b / a:.1f} |")
    a, b = map(statistics.median, training)
    print(f"| training, byte-level BPE | {a:.2f} | {b:.1f} | {b / a:.1f} |")


if __name__ == "__main__":
    main()
