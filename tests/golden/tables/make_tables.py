"""Small tables in every form that pyarrow writes, and what they hold as JSON lines: what test_parquet.c compares with.

    python tests/golden/tables/make_tables.py        (pyarrow 26.0.1)

Bytes stand as {"$bytes": HEX}. values.jsonl is what every values_*.parquet holds, nested.jsonl what nested_* do; times and decimals
are compared as the integers they are stored as.
"""
import gzip
import lzma
import json, os, sys
import pyarrow as pa, pyarrow.ipc as ipc, pyarrow.parquet as pq

HERE = os.path.dirname(os.path.abspath(__file__))
ROWS = 60
WORDS = ["", "a", "red apple", "Äpfel und Birnen", "苹果", "a" * 70, "apple", "apples", "application", "zebra\nstripes"]


def column(kind, i):
    return {"bool": i % 3 == 0, "i32": (i * 7919) ** 2 % 2**31 - 2**30, "i64": (i * 104729) ** 4 % 2**64 - 2**63,
            "f32": [0.0, 1.5, -2.25, 3e38, 1e-40][i % 5], "f64": [0.0, 1.1, -2.2e300, 5e-324, i / 7][i % 5], "u32": 2**32 - 1 - i,
            "text": WORDS[i % len(WORDS)] + str(i // 20), "bytes": bytes(range(i % 23)), "fixed": bytes([i, 255 - i, 7]),
            "i16": i * 900 - 30000}[kind]


TYPES = {"bool": pa.bool_(), "i32": pa.int32(), "i64": pa.int64(), "f32": pa.float32(), "f64": pa.float64(), "u32": pa.uint32(),
         "text": pa.string(), "bytes": pa.binary(), "fixed": pa.binary(3), "i16": pa.int16()}
ENCODINGS = {"bool": ["PLAIN", "RLE"], "i32": ["PLAIN", "DELTA_BINARY_PACKED", "BYTE_STREAM_SPLIT"],
             "i64": ["PLAIN", "DELTA_BINARY_PACKED", "BYTE_STREAM_SPLIT"], "f32": ["PLAIN", "BYTE_STREAM_SPLIT"],
             "f64": ["PLAIN", "BYTE_STREAM_SPLIT"], "text": ["PLAIN", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"],
             "bytes": ["PLAIN", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"],
             "fixed": ["PLAIN", "DELTA_BYTE_ARRAY", "BYTE_STREAM_SPLIT"], "u32": ["PLAIN"], "i16": ["DELTA_BINARY_PACKED"]}


def values():
    fields, arrays, encodings, dictionary = [], [], {}, []
    for kind, type in TYPES.items():
        for encoding in ENCODINGS[kind] + (["DICTIONARY"] if kind != "bool" else []):
            for nullable in (False, True):
                name = f"{kind}_{encoding.lower()}_{'optional' if nullable else 'required'}"
                fields.append(pa.field(name, type, nullable))
                cells = [None if nullable and (i % 5 == 2 or 20 <= i < 35) else column(kind, i) for i in range(ROWS)]
                arrays.append(pa.array(cells, type))
                if encoding == "DICTIONARY":
                    dictionary.append(name)
                else:
                    encodings[name] = encoding
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields)), encodings, dictionary


def nested():
    message = pa.struct([("role", pa.string()), ("content", pa.string())])
    fields = [("image", pa.struct([("bytes", pa.binary()), ("path", pa.string())])), ("words", pa.list_(pa.string())),
              ("messages", pa.list_(message)), ("deep", pa.list_(pa.list_(pa.int32()))), ("pairs", pa.map_(pa.string(), pa.int64())),
              ("both", pa.struct([("list", pa.list_(pa.struct([("n", pa.int32()), ("tags", pa.list_(pa.string()))]))), ("n", pa.int8())])),
              ("large", pa.large_list(pa.large_string()))]
    rows = []
    for i in range(ROWS):
        rows.append({
            "image": None if i % 7 == 3 else {"bytes": None if i % 5 == 4 else bytes([255, 216, i]), "path": f"{i}.jpg" if i % 2 else None},
            "words": None if i % 6 == 5 else [WORDS[(i + k) % 10] if (i + k) % 4 else None for k in range(i % 4)],
            "messages": [{"role": ["user", "assistant"][k % 2], "content": f"turn {k} of {i}"} for k in range(i % 5)] + ([None] if i % 9 == 8 else []),
            "deep": None if i % 8 == 7 else [None if k % 3 == 2 else list(range(k)) for k in range(i % 5)],
            "pairs": None if i % 10 == 1 else [(f"k{k}", None if k == 1 else i * k) for k in range(i % 3)],
            "both": None if i % 11 == 1 else {"list": None if i % 4 == 0 else [{"n": k, "tags": [None, "x"][: k % 3]} for k in range(i % 3)], "n": i},
            "large": [f"{i}-{k}" for k in range(i % 3)]})
    return pa.Table.from_pylist(rows, schema=pa.schema(fields))


def arrow_types():
    """name, type, cells, and the cells as they are compared (times as integers)."""
    def some(make):
        return [None if i % 5 == 2 or 20 <= i < 35 else make(i) for i in range(ROWS)]
    for name, type in (("i8", pa.int8()), ("u8", pa.uint8()), ("i16", pa.int16()), ("u16", pa.uint16()), ("i32", pa.int32()), ("i64", pa.int64())):
        yield name, type, some(lambda i: i * 2 - (50 if name[0] == "i" else 0)), None
    yield "u32", pa.uint32(), some(lambda i: 2**32 - 1 - i), None
    yield "u64", pa.uint64(), some(lambda i: 2**60 + i), None
    yield "f16", pa.float16(), some(lambda i: [0.0, 1.5, -2.25, 65504.0, 2.0**-24][i % 5]), None
    yield "f32", pa.float32(), some(lambda i: column("f32", i)), None
    yield "f64", pa.float64(), some(lambda i: column("f64", i)), None
    yield "bool", pa.bool_(), some(lambda i: i % 3 == 0), None
    for name, type in (("text", pa.string()), ("large_text", pa.large_string()), ("text_view", pa.string_view())):
        yield name, type, some(lambda i: column("text", i)), None
    for name, type in (("bytes", pa.binary()), ("large_bytes", pa.large_binary()), ("bytes_view", pa.binary_view())):
        yield name, type, some(lambda i: column("bytes", i)), None
    yield "fixed", pa.binary(3), some(lambda i: column("fixed", i)), None
    yield "null", pa.null(), [None] * ROWS, None
    yield "words", pa.dictionary(pa.int8(), pa.string()), some(lambda i: WORDS[i * 7 % 10]), None
    yield "numbers", pa.dictionary(pa.uint16(), pa.int64()), some(lambda i: i // 3 * 10**12), None
    for name, type in (("list", pa.list_(pa.int32())), ("large_list", pa.large_list(pa.int32()))):
        yield name, type, some(lambda i: [None if k == 1 else i * k for k in range(i % 4)]), None
    yield "fixed_list", pa.list_(pa.int16(), 2), some(lambda i: [i, None]), None
    yield "lists", pa.list_(pa.list_(pa.string())), some(lambda i: [["a", None], [], None][: i % 4]), None
    yield "chat", pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())])), \
        some(lambda i: [{"role": "user", "content": f"{i}"}, None, {"role": None, "content": "x"}][: i % 4]), None
    yield "listed_words", pa.list_(pa.dictionary(pa.int32(), pa.string())), some(lambda i: [WORDS[(i + k) % 10] for k in range(i % 3)]), None
    yield "map", pa.map_(pa.string(), pa.int32()), some(lambda i: [(f"k{k}", k) for k in range(i % 3)]), None
    yield "date", pa.date32(), [None if v is None else v for v in some(lambda i: i * 100)], "int"
    yield "time", pa.timestamp("us"), some(lambda i: i * 10**12), "int"


def arrow_table():
    names, arrays, fields = [], [], []
    rows = [{} for _ in range(ROWS)]
    for name, type, cells, how in arrow_types():
        array = pa.array(cells, pa.int32() if type == pa.date32() else pa.int64()).cast(type) if how == "int" else pa.array(cells, type)
        arrays.append(array)
        fields.append(pa.field(name, type))
        for row, cell in zip(rows, cells if how == "int" else array.to_pylist()):
            row[name] = cell
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields)), rows


def write_arrow(name, table, stream, codec, chunk=25):
    options = ipc.IpcWriteOptions(compression=codec, emit_dictionary_deltas=stream)
    new = ipc.new_stream if stream else ipc.new_file
    with new(os.path.join(HERE, name), table.schema, options=options) as out:
        out.write_table(table, max_chunksize=chunk)


def arrows():
    table, rows = arrow_table()
    with open(os.path.join(HERE, "arrow.jsonl"), "w", encoding="utf-8") as out:
        for row in rows:
            out.write(json.dumps(plain(row), ensure_ascii=False) + "\n")
    for stream in (False, True):
        for codec in (None, "lz4", "zstd"):
            write_arrow(f"{'stream' if stream else 'file'}_{codec or 'none'}.arrow", table, stream, codec)
    few = table.slice(0, 4).select(["text", "words", "chat", "text_view", "f16"])
    write_arrow("../../fuzz/arrow/none.arrow", few, True, None)
    write_arrow("../../fuzz/arrow/zstd.arrow", few, False, "zstd")
    with ipc.new_stream(os.path.join(HERE, "deltas.arrow"), pa.schema([("w", pa.dictionary(pa.int8(), pa.string()))]),
                        options=ipc.IpcWriteOptions(emit_dictionary_deltas=True)) as out:
        for words in (["a", "b"], ["a", "b", "c"], ["x"]):
            out.write_batch(pa.record_batch([pa.DictionaryArray.from_arrays(pa.array(range(len(words)), pa.int8()), words)], names=["w"]))
    union = pa.UnionArray.from_sparse(pa.array([0, 1], pa.int8()), [pa.array([1, 2]), pa.array(["a", "b"])])
    ends = pa.RunEndEncodedArray.from_arrays(pa.array([2], pa.int32()), pa.array(["r"]))
    views = pa.array([[1], [2]], pa.list_view(pa.int64()))
    write_arrow("unread.arrow", pa.table({"union": union, "ends": ends, "views": views, "text": ["one", "two"]}), True, None)


def plain(value):
    if isinstance(value, bytes):
        return {"$bytes": value.hex()}
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, tuple):  # of a map
        return {"key": plain(value[0]), "value": plain(value[1])}
    return [plain(v) for v in value] if isinstance(value, list) else value


def write_lines(name, table):
    with open(os.path.join(HERE, name), "w", encoding="utf-8") as out:
        for row in table.to_pylist():
            out.write(json.dumps(plain(row), ensure_ascii=False) + "\n")


def write_parquet(name, table, **options):
    pq.write_table(table, os.path.join(HERE, name), row_group_size=25, data_page_size=64, write_batch_size=7, store_schema=False, **options)


def forms():
    """Records that stages know, the same in each format."""
    chat = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))
    shared = pa.list_(pa.struct([("from", pa.string()), ("value", pa.string())]))
    yield "text", [{"id": 1, "text": "first\nline", "url": "http://a"}, {"id": 2, "text": "said \"so\", they say", "url": None}], None
    yield "content", [{"content": "one", "stars": 3}, {"content": "", "stars": 1}, {"content": "three", "stars": None}], None
    yield "qa", [{"question": "1+1?", "answer": "It is\n#### 2"}, {"question": "2*3?", "answer": "#### 6"}], None
    yield "alpaca", [{"instruction": "Add.", "input": "1 and 2", "output": "3"}, {"instruction": "Greet.", "input": "", "output": "Hello"}], None
    yield "kto", [{"prompt": "2+2", "completion": "4", "label": True}, {"prompt": "2+2", "completion": "5", "label": False}], None
    yield "squad", [{"id": "1", "context": "Ada has it.", "question": "Who?", "answers": {"text": ["Ada", "Ada L."], "answer_start": [0, 0]}},
                    {"id": "2", "context": "Ada has it.", "question": "Why?", "answers": {"text": [], "answer_start": []}}], \
        pa.schema([("id", pa.string()), ("context", pa.string()), ("question", pa.string()),
                   ("answers", pa.struct([("text", pa.list_(pa.string())), ("answer_start", pa.list_(pa.int32()))]))])
    yield "mmlu", [{"question": "2+2", "subject": "sums", "choices": ["3", "4", "2"], "answer": 1}], \
        pa.schema([("question", pa.string()), ("subject", pa.string()), ("choices", pa.list_(pa.string())), ("answer", pa.int64())])
    call = pa.struct([("type", pa.string()), ("function", pa.struct([("name", pa.string()), ("arguments", pa.struct([("a", pa.int64()), ("b", pa.int64())]))]))])
    said = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string()), ("thinking", pa.string()), ("tool_calls", pa.list_(call))]))
    yield "calls", [{"messages": [{"role": "user", "content": "f?", "thinking": None, "tool_calls": None},
                                  {"role": "assistant", "content": None, "thinking": "so", "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": {"a": 1}}}]}],
                     "tools": '[{"name": "f"}]', "context": None, "history": [], "weight": None}], \
        pa.schema([("messages", said), ("tools", pa.string()), ("context", pa.string()), ("history", pa.list_(pa.list_(pa.string()))), ("weight", pa.float64())])
    yield "chat", [{"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]}], pa.schema([("messages", chat)])
    yield "sharegpt", [{"id": "a", "system": "Be kind.", "conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello"},
                       {"from": "function_call", "value": '{"name": "f", "arguments": {}}'}, {"from": "observation", "value": "7"}]},
                       {"id": "b", "system": None, "conversations": [{"from": "wizard", "value": "?"}]}], \
        pa.schema([("id", pa.string()), ("system", pa.string()), ("conversations", shared)])


def write_forms():
    import csv
    os.makedirs(os.path.join(HERE, "forms"), exist_ok=True)
    for name, rows, schema in forms():
        path = os.path.join(HERE, "forms", name)
        write_arrow(f"forms/{name}.arrow", pa.Table.from_pylist(rows, schema=schema), True, None)
        pq.write_table(pa.Table.from_pylist(rows, schema=schema), path + ".parquet", store_schema=False)
        open(path + ".jsonl", "w").write("".join(json.dumps(row) + "\n" for row in rows))
        json.dump(rows, open(path + ".json", "w"), indent=1)
        if schema is None:
            with open(path + ".csv", "w", newline="") as out:
                writer = csv.DictWriter(out, rows[0].keys())
                writer.writeheader()
                writer.writerows(rows)
    for name, pack in (("qa.jsonl.gz", lambda b: gzip.compress(b, mtime=0)), ("qa.json.xz", lzma.compress)):
        with open(os.path.join(HERE, "forms", name[:-3]), "rb") as whole:
            open(os.path.join(HERE, "forms", "packed_" + name), "wb").write(pack(whole.read()))
    picture = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    bytes_of = lambda i: b"\xff\xd8picture %d" % i
    write_small("pictures", [{"image": {"bytes": bytes_of(1), "path": "1.jpg"}, "caption": "a red apple"},
                             {"image": {"bytes": None, "path": "x.jpg"}, "caption": "a file"}, {"image": None, "caption": "nothing"}],
                pa.schema([("image", picture), ("caption", pa.string())]))
    write_small("members", [{"jpg": bytes_of(1), "txt": b"a red apple", "__key__": "1"}],
                pa.schema([("jpg", pa.binary()), ("txt", pa.binary()), ("__key__", pa.string())]))
    write_small("seen", [{"images": [{"bytes": bytes_of(1), "path": None}, {"bytes": bytes_of(2), "path": None}],
                          "conversations": [{"from": "human", "value": "<image> or <image>?"}, {"from": "gpt", "value": "both"}]}], None)
    write_small("llava", [{"image": {"bytes": bytes_of(1), "path": None}, "conversations": [{"from": "human", "value": "<image>\nWhat?"}, {"from": "gpt", "value": "an apple"}]}], None)
    write_small("cauldron", [{"images": [{"bytes": bytes_of(1), "path": None}, {"bytes": bytes_of(2), "path": None}],
                              "texts": [{"user": "Which?", "assistant": "The first", "source": "x"}, {"user": "Why?", "assistant": "It is red", "source": "x"}]}], None)
    write_small("vqa", [{"image": {"bytes": bytes_of(1), "path": "1.jpg"}, "image_path": "1.jpg", "question": "What?", "answer": "an apple", "id": 1}], None)
    write_small("asked", [{"images": [{"bytes": bytes_of(1), "path": None}, {"bytes": bytes_of(2), "path": None}], "messages": [{"role": "user", "content": "Both?"}, {"role": "assistant", "content": "yes"}]}], None)
    write_small("links", [{"url": "http://a/b.jpg", "caption": "a red apple", "width": 3}], None)
    write_small("unknown", [{"id": 1, "body": "a text"}, {"id": 2, "body": None}], None)
    prompt = [{"role": "user", "content": "2*3?"}]
    write_small("verl", [{"data_source": "openai/gsm8k", "prompt": prompt, "ability": "math", "reward_model": {"style": "rule", "ground_truth": "6"},
                          "extra_info": {"split": "test", "index": 0}}], None)
    png = open(os.path.join(HERE, "../../fuzz/png/rgb.png"), "rb").read()
    write_small("png", [{"id": 1, "alt": "red apple", "jpeg": None, "picture": {"bytes": png, "path": "1.png"}},
                        {"id": 2, "alt": "a torn one", "jpeg": None, "picture": {"bytes": png[:40], "path": "2.png"}}], None)
    asked = [{"role": "user", "content": "<image>What is it?"}]
    truth = {"style": "rule", "ground_truth": "an apple"}
    write_small("verl_seen", [{"prompt": asked, "images": [{"bytes": png, "path": None}], "reward_model": truth},
                              {"prompt": asked, "images": [{"bytes": png[:40], "path": None}], "reward_model": truth}], None)
    write_small("empty", [], pa.schema([("text", pa.string())]))
    write_small("not_utf8", [{"text": b"ab\xff"}, {"text": b"fine"}], pa.schema([("text", pa.binary())]))


def write_small(name, rows, schema):
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), os.path.join(HERE, "forms", name + ".parquet"), store_schema=False)


def main():
    write_forms()
    arrows()
    table, encodings, dictionary = values()
    write_lines("values.jsonl", table)
    for codec in ("NONE", "SNAPPY", "GZIP", "ZSTD", "LZ4"):
        for version in ("1.0", "2.0"):
            write_parquet(f"values_{codec.lower()}_{version[0]}.parquet", table, compression=codec, data_page_version=version,
                          use_dictionary=dictionary, column_encoding=encodings, write_page_checksum=codec == "GZIP",
                          write_statistics=codec == "NONE")
    table = nested()
    write_lines("nested.jsonl", table)
    write_parquet("nested_1.parquet", table, compression="SNAPPY")
    write_parquet("nested_2.parquet", table, compression="ZSTD", data_page_version="2.0")
    write_parquet("nested_old_names.parquet", table, compression="NONE", use_compliant_nested_type=False)
    write_parquet("brotli.parquet", table.slice(0, 4).select(["words"]), compression="BROTLI")
    for version, codec in (("1.0", "NONE"), ("2.0", "SNAPPY"), ("2.0", "ZSTD")):
        write_parquet(f"../../fuzz/parquet/{codec.lower()}.parquet", table.slice(0, 4), compression=codec, data_page_version=version, write_statistics=False)


main()
