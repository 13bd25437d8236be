"""What HF tokenizers (0.23.3, Oniguruma) takes as \\w, and how it cuts at words: words.json. python words.py"""
import json
import random

from tokenizers import Regex, pre_tokenizers

CHARACTERS = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]


def members(pattern):
    split = pre_tokenizers.Split(Regex(pattern), "removed")
    found = []
    for c in CHARACTERS:
        kept = "".join(piece for piece, _ in split.pre_tokenize_str("\n" + chr(c) + "\n"))
        if chr(c) not in kept:
            found.append(c)
    return found


def ranges(characters):
    out = []
    for c in characters:
        if out and out[-1][1] == c - 1:
            out[-1][1] = c
        else:
            out.append([c, c])
    return out


def cases():
    alphabet = "ab1 _-\u0301\u00b2\u00bd\u200d\u203f\u24d0\u2167\u0915\u093f\u4e2d\u0663\n'.\U0001f130\u00aa"
    draw = random.Random(7)
    for pattern in [r"\w+", r"\W+", r"\w+|[^\w\s]+", r"[\W\s]+", r"[\w']+", r"\b", r"\B", r"\bab\b", r"[[:word:]]+", r"\d+"]:
        split = pre_tokenizers.Split(Regex(pattern), "isolated")
        for _ in range(6):
            text = "".join(draw.choice(alphabet) for _ in range(24))
            pieces = [piece for piece, _ in split.pre_tokenize_str(text)]
            yield {"pattern": pattern, "text": text, "pieces": pieces}


word = members(r"\w")
inside = members(r"[\w]")
json.dump(
    {"word": ranges(word), "only_outside_brackets": sorted(set(word) - set(inside)), "cases": list(cases())},
    open("words.json", "w"),
    separators=(",", ":"),
)
