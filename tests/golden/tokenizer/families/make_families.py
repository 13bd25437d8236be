"""Stand-ins for the tokenizers of published models: the pipeline configurations that those publish, trained small.

    python make_families.py [DIR] [--full]     DIR (default: this folder) receives NAME.json, NAME.model, NAME.tiktoken, their
                                      NAME.ids.jsonl, and texts.jsonl; --full: larger, with the whole nmt_nfkc table

Needs tokenizers 0.23.3, sentencepiece 0.2.3, tiktoken 0.14.0; reads ../train/text.txt. See README.md.
"""
import base64, io, json, os, random, sys, tempfile
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, ".."))
from make import LINES, SPACES, random_char  # noqa: E402

FULL = "--full" in sys.argv
VOCAB = 3000 if FULL else 400
N, P, D = normalizers, pre_tokenizers, decoders
TEXT = open(os.path.join(HERE, "..", "train", "text.txt"), encoding="utf-8", newline="").read()
CORPUS = TEXT.splitlines(keepends=True) + [s for v in LINES.values() for s in v] * 20

LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = LLAMA3.replace("{1,3}", "")
O200K = "|".join([
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
CL100K = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
R50K = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"
HAN = r"[\p{Han}]+"
KIMI = "|".join([
    HAN,
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
DEEPSEEK = (r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"""
            r"""|\s*[\r\n]+|\s+(?!\S)|\s+""")


def split(pattern, behavior="isolated", invert=False):
    return P.Split(Regex(pattern), behavior, invert)


def special(*contents, **flags):
    return [AddedToken(c, special=True, normalized=False, **flags) for c in contents]


def template(tok, single):
    names = [w for w in single.split() if w not in ("$A",)]
    return processors.TemplateProcessing(single=single, special_tokens=[(n, tok.token_to_id(n)) for n in dict.fromkeys(names)])


def reload(tok, change):
    """The tokenizer with `change` applied to its JSON."""
    data = json.loads(tok.to_str())
    change(data)
    return Tokenizer.from_str(json.dumps(data))


# ---- byte-level BPE ----
def byte_bpe(pre, normalizer=None, specials=(), vocab=None, first=False, **model):
    tok = Tokenizer(models.BPE(**model))
    tok.pre_tokenizer = pre
    if normalizer:
        tok.normalizer = normalizer
    tok.decoder = D.ByteLevel()
    tok.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=vocab or VOCAB, show_progress=False, special_tokens=list(specials) if first else [],
                                                        initial_alphabet=sorted(P.ByteLevel.alphabet()), **({"end_of_word_suffix": model["end_of_word_suffix"]} if "end_of_word_suffix" in model else {})))
    if not first:
        tok.add_tokens(list(specials))
    return tok


BYTES = P.ByteLevel(add_prefix_space=False, use_regex=False)


def llama3():
    tok = byte_bpe(P.Sequence([split(LLAMA3), BYTES]), specials=special("<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"))
    tok = reload(tok, lambda d: d["model"].update(ignore_merges=True))
    tok.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), template(tok, "<|begin_of_text|> $A")])
    return tok


def qwen2():
    return byte_bpe(P.Sequence([split(QWEN2), BYTES]), N.NFC(), special("<|endoftext|>", "<|im_start|>", "<|im_end|>") + [AddedToken("<think>", normalized=False)])


def gpt4o():
    return byte_bpe(P.Sequence([split(O200K, "removed", True), BYTES]), specials=special("<|endoftext|>"))


def deepseek3():
    tok = byte_bpe(P.Sequence([split(r"\p{N}{1,3}"), split("[一-龥぀-ゟ゠-ヿ]+"), split(DEEPSEEK), BYTES]),
                   specials=special("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>") + [AddedToken("<｜User｜>", normalized=False), AddedToken("<｜fim▁hole｜>", normalized=True)])
    tok.post_processor = template(tok, "<｜begin▁of▁sentence｜> $A")
    return tok


def deepseek_coder():
    pre = P.Sequence([split(r"[\r\n]"), split(r"\s?\p{L}+"), split(r"\s?\p{P}+"), split("[一-龥ࠀ-一가-퟿]+"), P.Digits(individual_digits=True), BYTES])
    return byte_bpe(pre, specials=special("<｜begin▁of▁sentence｜>"))


def phi():
    """CodeGen: GPT-2's expression and runs of spaces and tabs as added tokens."""
    runs = [AddedToken(" " * n, normalized=True) for n in range(8, 1, -1)] + [AddedToken("\t" * n, normalized=True) for n in range(4, 1, -1)]
    return byte_bpe(P.ByteLevel(add_prefix_space=False), specials=special("<|endoftext|>") + runs)


def bloom():
    return byte_bpe(P.Sequence([split(r" ?[^(\s|[.,!?…。，、।۔،])]+"), BYTES]), specials=special("<unk>", "<s>", "</s>", "<pad>"), first=True)


def neox():
    return byte_bpe(P.ByteLevel(add_prefix_space=False), N.NFC(), special("<|endoftext|>", "<|padding|>") + [AddedToken(" " * n, normalized=False) for n in (5, 4, 3, 2)])


def roberta():
    tok = byte_bpe(P.ByteLevel(add_prefix_space=True), specials=special("<s>", "<pad>", "</s>", "<unk>") + special("<mask>", lstrip=True), first=True)
    tok.post_processor = processors.RobertaProcessing(("</s>", tok.token_to_id("</s>")), ("<s>", tok.token_to_id("<s>")))
    return tok


def clip():
    pattern = r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
    tok = byte_bpe(P.Sequence([split(pattern, "removed", True), P.ByteLevel(add_prefix_space=False)]),
                   N.Sequence([N.NFC(), N.Replace(Regex(r"\s+"), " "), N.Lowercase()]), special("<|startoftext|>", "<|endoftext|>"),
                   vocab=VOCAB + 256, first=True, unk_token="<|endoftext|>", end_of_word_suffix="</w>", continuing_subword_prefix="")
    tok.post_processor = processors.RobertaProcessing(("<|endoftext|>", tok.token_to_id("<|endoftext|>")), ("<|startoftext|>", tok.token_to_id("<|startoftext|>")), False, False)
    return tok


# ---- BPE on characters ----
def char_bpe(specials, fallback=True, pre=None, **model):
    """As converted from SentencePiece: specials, bytes, pieces."""
    tok = Tokenizer(models.BPE())
    tok.normalizer = N.Sequence([N.Prepend("▁"), N.Replace(" ", "▁")])
    tok.pre_tokenizer = pre or split("▁[^▁]*|\n+|[^▁\n]+")
    tok.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=VOCAB, show_progress=False, limit_alphabet=120 if not FULL else 600))
    trained = json.loads(tok.to_str())["model"]
    vocab = {}
    for name in specials + ([f"<0x{b:02X}>" for b in range(256)] if fallback else []) + sorted(trained["vocab"], key=trained["vocab"].get):
        vocab.setdefault(name, len(vocab))
    return Tokenizer(models.BPE(vocab, [tuple(m) for m in trained["merges"]], byte_fallback=fallback, **model))


SP_DECODER = [D.Replace("▁", " "), D.ByteFallback(), D.Fuse()]


def llama2():
    tok = char_bpe(["<unk>", "<s>", "</s>"], unk_token="<unk>", fuse_unk=True)
    tok.normalizer = N.Sequence([N.Prepend("▁"), N.Replace(" ", "▁")])
    tok.decoder = D.Sequence(SP_DECODER + [D.Strip(" ", 1, 0)])
    tok.add_special_tokens(special("<unk>", "<s>", "</s>"))
    tok.post_processor = template(tok, "<s> $A")
    return tok


def mistral():
    tok = char_bpe(["<unk>", "<s>", "</s>"], unk_token="<unk>", fuse_unk=True)
    tok.pre_tokenizer = P.Metaspace("▁", "first", False)
    tok.decoder = D.Sequence(SP_DECODER + [D.Strip(" ", 1, 0)])
    tok.add_special_tokens(special("<unk>", "<s>", "</s>", "[INST]"))
    tok.post_processor = template(tok, "<s> $A")
    return tok


def gemma():
    tok = char_bpe(["<pad>", "<eos>", "<bos>", "<unk>"], unk_token="<unk>", fuse_unk=True)
    tok.normalizer = N.Replace(" ", "▁")
    tok.pre_tokenizer = P.Split(" ", "merged_with_previous")
    tok.decoder = D.Sequence(SP_DECODER)
    tok.add_special_tokens(special("<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>"))
    tok.add_tokens([AddedToken("\n" * n, normalized=False) for n in (2, 3, 4)] + [AddedToken("▁" * n, normalized=False) for n in (2, 3, 4, 5)])
    tok.post_processor = template(tok, "<bos> $A")
    return tok


def phi3():
    tok = llama2()
    tok.add_special_tokens(special("<|end|>", rstrip=True) + special("<|user|>", rstrip=True))
    tok.post_processor = template(tok, "$A")
    return tok


def chars_unknown():
    """No fallback: unknown characters, fused or not; a cut at script changes."""
    tok = char_bpe(["<unk>"], fallback=False, unk_token="<unk>", fuse_unk=True)
    tok.normalizer = N.Sequence([N.NFKC(), N.Nmt(), N.Replace(" ", "▁")])
    tok.pre_tokenizer = P.UnicodeScripts()
    return tok


def chars_unknown_apart():
    tok = char_bpe(["<unk>"], fallback=False, unk_token="<unk>", fuse_unk=False)
    tok.normalizer = N.Sequence([N.NFKD(), N.Strip(), N.Replace(" ", "▁")])
    tok.pre_tokenizer = P.Metaspace("▁", "first")
    tok.decoder = D.Metaspace("▁", "first")
    return tok


def some_bytes():
    """Byte fallback with half of the bytes: the others are unknown, in HF's order."""
    tok = char_bpe(["<unk>"], unk_token="<unk>", fuse_unk=True)
    def thin(d):
        keep = [k for k in sorted(d["model"]["vocab"], key=d["model"]["vocab"].get) if not (k.startswith("<0x") and int(k[3:5], 16) % 7 == 3)]
        d["model"]["vocab"] = {k: i for i, k in enumerate(keep)}
        d["model"]["fuse_unk"] = True
    tok = reload(tok, thin)
    tok.pre_tokenizer = P.Sequence([P.WhitespaceSplit(), P.Metaspace()])
    tok.decoder = D.Sequence([D.ByteFallback(), D.Metaspace()])
    return tok


def gpt1():
    tok = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    tok.normalizer = N.BertNormalizer(lowercase=True)
    tok.pre_tokenizer = P.BertPreTokenizer()
    tok.decoder = D.BPEDecoder(suffix="</w>")
    tok.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=VOCAB + 400, show_progress=False, special_tokens=["<unk>"], end_of_word_suffix="</w>", limit_alphabet=150))
    return tok


def prefixed():
    tok = Tokenizer(models.BPE(unk_token="[UNK]", continuing_subword_prefix="##", fuse_unk=True))
    tok.normalizer = N.Sequence([N.NFD(), N.StripAccents(), N.Lowercase()])
    tok.pre_tokenizer = P.Sequence([P.Whitespace(), P.Digits(individual_digits=False)])
    tok.decoder = D.WordPiece(cleanup=False)
    tok.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=VOCAB + 300, show_progress=False, special_tokens=["[UNK]"], continuing_subword_prefix="##", limit_alphabet=150))
    return tok


# ---- WordPiece, WordLevel ----
def bert(lowercase, **normal):
    tok = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tok.normalizer = N.BertNormalizer(lowercase=lowercase, **normal)
    tok.pre_tokenizer = P.BertPreTokenizer()
    tok.decoder = D.WordPiece()
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tok.train_from_iterator(CORPUS, trainers.WordPieceTrainer(vocab_size=VOCAB + 400, show_progress=False, special_tokens=names, limit_alphabet=300))
    tok.post_processor = template(tok, "[CLS] $A [SEP]")
    return tok


def bert_uncased():
    return bert(True)


def bert_cased():
    tok = bert(False, handle_chinese_chars=True, strip_accents=None)
    tok.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return tok


def wordlevel():
    tok = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    tok.normalizer = N.Sequence([N.Strip(left=True, right=False), N.Lowercase()])
    tok.pre_tokenizer = P.Sequence([P.Punctuation("merged_with_previous"), P.CharDelimiterSplit(" "), P.Digits(individual_digits=True)])
    tok.train_from_iterator(CORPUS, trainers.WordLevelTrainer(vocab_size=VOCAB, show_progress=False, special_tokens=["[UNK]"]))
    tok.add_tokens([AddedToken("thé", normalized=True), AddedToken("Was", single_word=True, normalized=True), AddedToken("İx", normalized=True, lstrip=True, rstrip=True)])
    return tok


# ---- Unigram ----
def charsmap():
    """The table of replacements that sentencepiece compiles: nmt_nfkc, or small rules of the same kinds."""
    import sentencepiece
    out = io.BytesIO()
    rules = tempfile.NamedTemporaryFile("w", suffix=".tsv", delete=False)
    for a, b in RULES:
        rules.write(" ".join("%X" % ord(c) for c in a) + "\t" + " ".join("%X" % ord(c) for c in b) + "\n")
    rules.close()
    how = {"normalization_rule_name": "nmt_nfkc"} if FULL else {"normalization_rule_tsv": rules.name}
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(CORPUS), model_writer=out, vocab_size=400, character_coverage=0.98, hard_vocab_limit=False, minloglevel=2, **how)
    os.unlink(rules.name)
    from sentencepiece import sentencepiece_model_pb2 as pb
    model = pb.ModelProto()
    model.ParseFromString(out.getvalue())
    return base64.b64encode(model.normalizer_spec.precompiled_charsmap).decode()


RULES = ([(chr(c), " ") for c in (9, 10, 13, 0xA0, 0x1680, 0x2000, 0x2009, 0x200B, 0x2028, 0x3000, 0xFEFF)] + [("\r\n", " ")]
         + [(chr(c), "") for c in (1, 2, 8, 0x7F, 0x8F, 0xAD)] + [(chr(0xFF01 + i), chr(0x21 + i)) for i in range(94)]
         + [("\ufb01", "fi"), ("\ufb02", "fl"), ("\u2126", "\u03a9"), ("\u212b", "\u00c5"), ("\u00bd", "1\u20442"), ("\u00b2", "2"), ("\u2460", "1"), ("\u33a5", "m3"), ("\u3251", "21"),
            ("A\u030a", "\u00c5"), ("e\u0301", "\u00e9"), ("a\u0308", "\u00e4"), ("o\u0302\u0301", "\u1ed1"), ("\u304b\u3099", "\u304c"), ("\uff76\uff9e", "\u30ac"), ("\uff76", "\u30ab"),
            ("\u1100\u1161", "\uac00"), ("\u1100\u1161\u11a8", "\uac01"), ("\u0958", "\u0915\u093c"), ("\u2026", "..."), ("\u2122", "TM"), ("\u01c4", "D\u017d")])
MAP = []


def unigram(specials, unk, pre, normalizer=None, fallback=False):
    tok = Tokenizer(models.Unigram())
    if not MAP:
        MAP.append(charsmap())
    steps = [s for s in (normalizer or [])]
    if "map" in steps:  # the module has no way to make one of bytes but JSON
        tok.normalizer = N.NFKC()
    elif steps:
        tok.normalizer = N.Sequence(steps)
    tok.pre_tokenizer = pre
    tok.train_from_iterator(CORPUS, trainers.UnigramTrainer(vocab_size=VOCAB, show_progress=False, special_tokens=specials, unk_token=unk, max_piece_length=12))
    def change(d):
        if "map" in steps:
            parts = [{"type": "Precompiled", "precompiled_charsmap": MAP[0]} if s == "map" else json.loads(s.__getstate__().decode()) for s in steps]
            d["normalizer"] = parts[0] if len(parts) == 1 else {"type": "Sequence", "normalizers": parts}
        if fallback:
            d["model"]["vocab"] += [[f"<0x{b:02X}>", 0.0] for b in range(256)]
            d["model"]["byte_fallback"] = True
    return reload(tok, change)


def t5():
    tok = unigram(["<pad>", "</s>", "<unk>"], "<unk>", P.Metaspace(), ["map"])
    tok.decoder = D.Metaspace()
    tok.add_special_tokens([AddedToken(f"<extra_id_{i}>", special=True, normalized=False, lstrip=True, rstrip=True) for i in (2, 1, 0)])
    tok.post_processor = template(tok, "$A </s>")
    return tok


def xlmr():
    tok = unigram(["<s>", "<pad>", "</s>", "<unk>"], "<unk>", P.Sequence([P.WhitespaceSplit(), P.Metaspace()]), ["map"])
    tok.decoder = D.Metaspace()
    tok.add_special_tokens(special("<mask>", lstrip=True))
    tok.post_processor = template(tok, "<s> $A </s>")
    return tok


def albert():
    tok = unigram(["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"], "<unk>", P.Sequence([P.WhitespaceSplit(), P.Metaspace()]),
                  [N.Replace("``", '"'), N.Replace("''", '"'), N.NFKD(), N.StripAccents(), N.Lowercase(), "map", N.Replace(Regex(" {2,}"), " ")])
    tok.decoder = D.Metaspace()
    tok.post_processor = template(tok, "[CLS] $A [SEP]")
    return tok


def unigram_bytes():
    """Whole texts, byte fallback, a Metaspace that never prepends."""
    tok = unigram(["<unk>"], "<unk>", P.Metaspace("▁", "never", False), [N.Strip(left=False, right=True), N.NFC()], fallback=True)
    tok.pre_tokenizer = P.Sequence([P.Metaspace("▁", "first", False)])
    tok.decoder = D.Sequence([D.Replace("▁", " "), D.ByteFallback(), D.Fuse(), D.Strip(" ", 1, 0)])
    return tok


FAMILIES = [llama3, qwen2, gpt4o, deepseek3, deepseek_coder, phi, bloom, neox, roberta, clip, llama2, mistral, gemma, phi3, chars_unknown, chars_unknown_apart, some_bytes, gpt1, prefixed,
            bert_uncased, bert_cased, wordlevel, t5, xlmr, albert, unigram_bytes]


# ---- SentencePiece ----
def sp_train(**options):
    import sentencepiece
    out = io.BytesIO()
    settings = dict(vocab_size=VOCAB, character_coverage=0.98, hard_vocab_limit=False, minloglevel=2, num_threads=1, sentence_iterator=iter(CORPUS), model_writer=out)
    if not FULL and options.get("normalization_rule_name", "nmt_nfkc") != "identity":
        rules = tempfile.NamedTemporaryFile("w", suffix=".tsv", delete=False)
        for a, b in RULES:
            rules.write(" ".join("%X" % ord(c) for c in a) + "\t" + " ".join("%X" % ord(c) for c in b) + "\n")
        rules.close()
        options.pop("normalization_rule_name", None)
        settings["normalization_rule_tsv"] = rules.name
    settings.update(options)
    sentencepiece.SentencePieceTrainer.train(**settings)
    return out.getvalue()


def sp_unused(blob):
    """Every ninth normal piece of two characters or more is not to be used."""
    from sentencepiece import sentencepiece_model_pb2 as pb
    model = pb.ModelProto()
    model.ParseFromString(blob)
    for i, piece in enumerate(model.pieces):
        if piece.type == 1 and len(piece.piece) > 1 and i % 9 == 0:
            piece.type = 5
    return model.SerializeToString()


SENTENCEPIECE = {
    "sp_llama2": lambda: sp_train(model_type="bpe", byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False, vocab_size=VOCAB + 400, split_digits=True, allow_whitespace_only_pieces=True),
    "sp_gemma": lambda: sp_train(model_type="bpe", byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False, add_dummy_prefix=False, vocab_size=VOCAB + 450,
                                 split_digits=True, user_defined_symbols=["<start_of_turn>", "<end_of_turn>", "\n", "\n\n", "▁▁", "▁▁▁", "<table>", "ing"], control_symbols=["<mask>"], pad_id=3),
    "sp_ernie": lambda: sp_train(model_type="bpe", byte_fallback=True, vocab_size=VOCAB + 400, user_defined_symbols=["<|begin_of_sentence|>", "<mask:4>", "0", "1", "2"], add_dummy_prefix=False),
    "sp_bpe_plain": lambda: sp_train(model_type="bpe"),
    "sp_bpe_unused": lambda: sp_unused(sp_train(model_type="bpe", byte_fallback=True, vocab_size=VOCAB + 400)),
    "sp_unigram": lambda: sp_train(model_type="unigram"),
    "sp_unigram_bytes": lambda: sp_train(model_type="unigram", byte_fallback=True, vocab_size=VOCAB + 400, user_defined_symbols=["<sep>", "the", "▁of"], control_symbols=["<ctl>"], unk_surface=" <?> "),
    "sp_unigram_suffix": lambda: sp_train(model_type="unigram", treat_whitespace_as_suffix=True, remove_extra_whitespaces=False),
    "sp_unigram_unused": lambda: sp_unused(sp_train(model_type="unigram")),
    "sp_word": lambda: sp_train(model_type="word", user_defined_symbols=["<sep>", "▁of"]),
    "sp_char": lambda: sp_train(model_type="char", vocab_size=150),
}


# ---- tiktoken ----
def ranks():
    """Merges of byte-level BPE as ranks of byte strings."""
    tok = byte_bpe(P.Sequence([split(LLAMA3), BYTES]), vocab=VOCAB + 200)
    data = json.loads(tok.to_str())["model"]
    to_byte = {c: b for b, c in byte_characters().items()}
    rows = sorted(data["vocab"].items(), key=lambda kv: kv[1])
    return {bytes(to_byte[c] for c in k): i for i, (k, _) in enumerate(rows)}


def byte_characters():
    printable = list(range(0x21, 0x7F)) + list(range(0xA1, 0xAD)) + list(range(0xAE, 0x100))
    out, n = {b: chr(b) for b in printable}, 0
    for b in range(256):
        if b not in out:
            out[b] = chr(256 + n)
            n += 1
    return out


TIKTOKEN = {"tt_cl100k": ("cl100k", CL100K), "tt_o200k": ("o200k", O200K), "tt_r50k": ("r50k", R50K), "tt_qwen": ("qwen", QWEN2), "tt_kimi": ("kimi", KIMI)}


# ---- Texts ----
def texts(seed, count):
    r = random.Random(seed)
    pool = [s for v in LINES.values() for s in v]
    yield from ["", " ", "  ", "\n", "\r\n", "\t", " \n ", "a", " a", "a ", "  a  b  ", "▁", "▁▁a▁b", "a▁ b", "'s 'S 'll 'LL don't DON'T''s", "``quoted'' text", "\u0301x", "e\u0301 é E\u0301", "İstanbul ΑΣ ẞ ǅ",
                "\ufb01x \ufb01\u0301 ａｂｃ １２３ ｶﾞ ㎥ ½", "ก็ำ น้ำ", "क्षि ज़", "\u1100\u1161\u11a8 각", "0123456789 12,345.67 ١٢٣", "x" * 120, " " * 40 + "x", "\n\n\n\n\n", "<s> </s><unk>[MASK] [CLS]", " <mask> x<mask>",
                "<|begin_of_text|>x<|eot_id|>", "a<extra_id_1> b", "<0x41><0xE4>", "was Was  thé the\u0301 wasp", "a\u0000b", "\ud7a3\U0010ffff\ue000", "a\u200db \u200b\ufeff", "١a۱b𝟙", "ﷺ ﷲ", "Ａ\u030a", "x\u0378y", "#include <a.h>\r\n\tint x = 0;",
                "HTTPServer getURLForID camelCaseString", "你好世界hello世界 안녕 こんにちはカタカナー", "!!!??..,, -- ==>", "👩\u200d👩\u200d👧 🇩🇪 ❤\ufe0f ©\u200d®", "\u0600a \u0601\u0301", "a\n b\n\nc \n\n d\r\r\n"]
    yield from pool
    for _ in range(count):
        kind = r.randrange(4)
        if kind == 0:
            yield "".join(random_char(r) for _ in range(r.randrange(1, 24)))
        elif kind == 1:
            yield "".join(r.choice(pool)[:r.randrange(1, 20)] + r.choice(["", " ", "  ", "\n", "\t", chr(r.choice(SPACES))]) for _ in range(r.randrange(1, 5)))
        elif kind == 2:
            at = r.randrange(len(TEXT) - 200)
            yield TEXT[at:at + r.randrange(5, 120)]
        else:
            yield "".join(r.choice([random_char(r), r.choice("abcXYZ019'.,- ▁\n"), chr(r.randrange(0x300, 0x370)), chr(r.choice(SPACES))]) for _ in range(r.randrange(1, 30)))


def dump(path, rows):
    with open(path, "w", encoding="utf-8", newline="") as f:
        for row in rows:
            f.write(json.dumps(row, ensure_ascii=True, separators=(",", ":")) + "\n")


def row_of(text, ids, decoded, shown=None):
    """decoded: where it is not the text; shown: without special tokens, where it is not as decoded."""
    row = {"ids": ids}
    if decoded != text:
        row["decoded"] = decoded
    if shown is not None and shown != decoded:
        row["shown"] = shown
    return row


def main(out):
    os.makedirs(out, exist_ok=True)
    lines = list(texts(5, 4000 if FULL else 60))
    dump(os.path.join(out, "texts.jsonl"), [{"text": t} for t in lines])
    for make in FAMILIES:
        name, tok = make.__name__, make()
        text = tok.to_str(pretty=FULL)
        open(os.path.join(out, name + ".json"), "w", encoding="utf-8").write(text)
        tok = Tokenizer.from_str(text)
        ids = [tok.encode(t).ids for t in lines]
        dump(os.path.join(out, name + ".ids.jsonl"),
             [row_of(t, i, tok.decode(i, skip_special_tokens=False), tok.decode(i, skip_special_tokens=True)) for t, i in zip(lines, ids)])
        print(name, tok.get_vocab_size())
    import sentencepiece
    for name, make in SENTENCEPIECE.items():
        blob = make()
        open(os.path.join(out, name + ".model"), "wb").write(blob)
        sp = sentencepiece.SentencePieceProcessor(model_proto=blob)
        ids = [sp.encode(t) for t in lines]
        dump(os.path.join(out, name + ".ids.jsonl"), [row_of(t, i, sp.decode(i)) for t, i in zip(lines, ids)])
        print(name, sp.get_piece_size())
    import tiktoken
    table = ranks()
    for name, (pattern, expression) in TIKTOKEN.items():
        specials = {"<|endoftext|>": len(table), "<|eot_id|>": len(table) + 5}
        os.makedirs(os.path.join(out, name), exist_ok=True)
        with open(os.path.join(out, name, "tokenizer.tiktoken"), "wb") as f:
            f.write(b"".join(base64.b64encode(k) + b" %d\n" % v for k, v in table.items()))
        config = {"pattern": pattern, "added_tokens_decoder": {str(i): {"content": c, "special": True} for c, i in specials.items()}}
        json.dump(config, open(os.path.join(out, name, "tokenizer_config.json"), "w"))
        enc = tiktoken.Encoding(name, pat_str=expression, mergeable_ranks=table, special_tokens=specials)
        ids = [enc.encode(t, allowed_special="all") for t in lines]
        dump(os.path.join(out, name + ".ids.jsonl"), [row_of(t, i, enc.decode(i)) for t, i in zip(lines, ids)])
        print(name, len(table))


if __name__ == "__main__":
    folders = [a for a in sys.argv[1:] if not a.startswith("-")]
    main(folders[0] if folders else HERE)
