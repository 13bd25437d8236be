"""Small tokenizers that differ in one setting each, and ids of HF tokenizers: cases.jsonl.

python make.py [DIR]
"""
import copy
import json
import pathlib
import sys

from tokenizers import Tokenizer

BERT_SPLIT = {"type": "BertPreTokenizer"}
SPACE_SPLIT = {"type": "WhitespaceSplit"}


def document(model, added=(), **parts):
    empty = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": list(added), "normalizer": None,
             "pre_tokenizer": None, "post_processor": None, "decoder": None, "model": model}
    return {**empty, **parts}


def added(number, content, **flags):
    empty = {"id": number, "content": content, "single_word": False, "lstrip": False, "rstrip": False,
             "normalized": False, "special": False}
    return {**empty, **flags}


def numbered(*tokens):
    return {token: number for number, token in enumerate(tokens)}


def wordpiece(**settings):
    vocab = numbered("[UNK]", "a", "b", "##a", "##b", "ä", "##ä", "@@a", "@@b")
    model = {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
             "max_input_chars_per_word": 100, "vocab": vocab}
    model.update(settings)
    return {key: value for key, value in model.items() if value != "absent"}


def bpe(tokens, merges, **settings):
    model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
             "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
             "vocab": numbered(*tokens), "merges": merges}
    return {**model, **settings}


def unigram(**settings):
    vocab = [["<unk>", 0.0], ["a", -1.0], ["b", -1.5], ["ab", -1.2], ["<other>", 0.0], ["ba", -9.0]]
    return {"type": "Unigram", "unk_id": 0, "vocab": vocab, "byte_fallback": False, **settings}


def bytes_of(text):
    return ["<0x%02X>" % byte for byte in text.encode()]


def cases():
    long = ["ab", "a" * 4, "ab" * 3, "a" * 99, "a" * 100, "a" * 101, "b" * 200, "b" * 201, "ä" * 100, "ä" * 101]
    for name, most in [("most 4", 4), ("most 100", 100), ("most 200", 200), ("most 0", 0)]:
        yield "WordPiece, " + name, document(wordpiece(max_input_chars_per_word=most), pre_tokenizer=SPACE_SPLIT), long
    yield "WordPiece, prefix @@", document(wordpiece(continuing_subword_prefix="@@"), pre_tokenizer=SPACE_SPLIT), \
        ["ab ba", "aä"]
    yield "WordPiece, another unknown", document(wordpiece(unk_token="ä"), pre_tokenizer=SPACE_SPLIT), ["ac b", "x"]

    words = {"type": "WordLevel", "vocab": numbered("x", "a", "<unk>", "[UNK]"), "unk_token": "<unk>"}
    yield "WordLevel", document(words, pre_tokenizer=SPACE_SPLIT), ["a x", "a y x"]
    yield "WordLevel, another unknown", document({**words, "unk_token": "[UNK]"}, pre_tokenizer=SPACE_SPLIT), ["a y y"]

    letters = ["<unk>", "a", "b", "c", "ab", "abc"]
    texts = ["abc", "abzc", "azzzb", "zz", "cab"]
    for fuse in (False, True):
        yield f"BPE, fuse_unk {fuse}", \
            document(bpe(letters, [["a", "b"]], unk_token="<unk>", fuse_unk=fuse)), texts
    for ignore in (False, True):
        yield f"BPE, ignore_merges {ignore}", \
            document(bpe(letters, [["a", "b"]], unk_token="<unk>", ignore_merges=ignore)), texts
    for fallback in (False, True):
        yield f"BPE, byte_fallback {fallback}", \
            document(bpe(letters + bytes_of("é"), [["a", "b"]], unk_token="<unk>", byte_fallback=fallback)), \
            ["aéb", "éé", "aüb"]
    ended = ["<unk>", "a", "b", "a</w>", "b</w>", "ab</w>", "ab"]
    for suffix in (None, "</w>"):
        merges = [["a", "b</w>"]] if suffix else [["a", "b"]]
        yield f"BPE, suffix {suffix}", document(
            bpe(ended, merges, unk_token="<unk>", end_of_word_suffix=suffix), pre_tokenizer=SPACE_SPLIT), \
            ["ab a", "b ba"]
    begun = ["<unk>", "a", "b", "##a", "##b", "ab"]
    for prefix in (None, "##"):
        merges = [["a", "##b"]] if prefix else [["a", "b"]]
        yield f"BPE, prefix {prefix}", document(
            bpe(begun, merges, unk_token="<unk>", continuing_subword_prefix=prefix), pre_tokenizer=SPACE_SPLIT), \
            ["ab a", "b ba"]

    yield "Unigram", document(unigram()), ["abab", "aczb", "ba"]
    yield "Unigram, another unknown", document(unigram(unk_id=4)), ["aczb"]
    with_bytes = unigram(byte_fallback=True)
    with_bytes["vocab"] = with_bytes["vocab"] + [[token, 0.0] for token in bytes_of("é")]
    yield "Unigram, byte_fallback", document(with_bytes), ["aéb", "aüb"]
    yield "Unigram, no byte_fallback", document({**copy.deepcopy(with_bytes), "byte_fallback": False}), ["aéb", "aüb"]

    small = bpe(["<unk>", "a", "b", " ", "A", "x"], [], unk_token="<unk>")
    around = ["a<t>b", "a <t> b", "a  <t>  b", "<t>", " <t> ", "a<T>b", "x<t>x", "a<t><t>b", "<t>x", "x <t>"]
    for flag in ("single_word", "lstrip", "rstrip", "normalized"):
        for special in (False, True):
            for value in (False, True):
                yield f"added token, special {special}, {flag} {value}", \
                    document(small, [added(6, "<t>", special=special, **{flag: value})],
                             normalizer={"type": "Lowercase"}), around

    both = bpe(["<unk>", "a", "é", "e", "A", " ", "中", "́"], [], unk_token="<unk>")
    marks = ["aé", "Aa", "a中a", "a\u0001\ta", "É"]
    for key in ("clean_text", "handle_chinese_chars", "lowercase", "strip_accents"):
        for value in (False, True, None) if key == "strip_accents" else (False, True):
            for lower in (False, True):
                settings = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True,
                            "strip_accents": None, "lowercase": lower, key: value}
                yield f"BertNormalizer, lowercase {lower}, {key} {value}", \
                    document(both, normalizer=settings), marks
    for left in (False, True):
        for right in (False, True):
            yield f"Strip, {left} {right}", document(
                both, normalizer={"type": "Strip", "strip_left": left, "strip_right": right}), [" a ", "  a  a ", " "]

    ends = [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
            {"SpecialToken": {"id": "</s>", "type_id": 0}}]
    framed = bpe(["<unk>", "a", "<s>", "</s>"], [], unk_token="<unk>")
    tokens = {token: {"id": token, "ids": [number], "tokens": [token]} for token, number in (("<s>", 2), ("</s>", 3))}
    for name, first, last in [("both ends", 0, 3), ("begin", 0, 2), ("end", 1, 3)]:
        yield "TemplateProcessing, " + name, document(
            framed, [added(2, "<s>", special=True), added(3, "</s>", special=True)],
            post_processor={"type": "TemplateProcessing", "single": ends[first:last],
                            "pair": ends + [{"Sequence": {"id": "B", "type_id": 1}}], "special_tokens": tokens}), \
            ["a", "", "<s>a"]


def rows(tokenizer, texts):
    for text in texts:
        ids = tokenizer.encode(text).ids
        yield {"text": text, "ids": ids, "decoded": tokenizer.decode(ids, skip_special_tokens=False),
               "shown": tokenizer.decode(ids)}


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent)
    with open(folder / "cases.jsonl", "w", encoding="utf-8") as out:
        for name, settings, texts in cases():
            tokenizer = Tokenizer.from_str(json.dumps(settings))
            case = {"name": name, "tokenizer": settings, "texts": list(rows(tokenizer, texts))}
            out.write(json.dumps(case, ensure_ascii=True, separators=(",", ":")) + "\n")


main()
