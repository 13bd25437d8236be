/* Records: the same rows in every file format; column names select the kind of sample; unknown
 * names are refused with a list of those present. */
#include "core/json.h"
#include "data/sources/sources.h"
#include "tests/scratch.h"

static char *form(const char *name, const char *suffix)
{
    return string_format("%s/tables/forms/%s.%s", GOLDEN, name, suffix);
}

static void draw_sample(struct buffer *out, const struct sample *sample)
{
    static const char *const layouts[] = {"plain", "captioned", "chat", "mixed"}, *const kinds[] = {"text", "image",
                                                                                                    "video", "audio",
                                                                                                    "ids"};
    buffer_printf(out, "%s", layouts[sample->layout]);
    for (i64 i = 0; i < sample->count; i++) {
        const struct sample_part *part = &sample->parts[i];
        const char *slash = part->path ? strrchr(part->path, '/') : NULL;
        buffer_printf(out, part->role ? " <%s> %s" : "%s %s", part->role ? part->role : "", kinds[part->kind]);
        if (slash)
            buffer_printf(out, "@%s", slash + 1);
        if (part->bytes.length)
            buffer_printf(out, "'%s'", part->bytes.data);
        if (part->keys) {
            buffer_printf(out, " ");
            json_print(out, part->keys, 0);
        }
    }
    if (sample->variables) {
        buffer_printf(out, " with ");
        json_print(out, sample->variables, 0);
    }
    buffer_printf(out, "\n");
}

/* Appends one line per sample; errors appear without the file name. */
static void draw(struct buffer *out, const char *path, const struct source_columns *columns)
{
    struct source *source = source_open(path, &(struct source_request){.columns = columns});
    struct sample sample;
    enum source_result result;
    if (!source)
        fail_msg("%s", error_text());
    while ((result = source_next(source, &sample)) != SOURCE_END) {
        const char *why = result == SOURCE_SAMPLE ? "" : strstr(error_text(), path);
        if (result == SOURCE_SAMPLE)
            draw_sample(out, &sample);
        else
            buffer_printf(out, "%s: %s\n", result == SOURCE_BAD ? "bad" : "damaged",
                          why ? why + strlen(path) : error_text());
        sample_release(&sample);
    }
    source_close(source);
}

static void expect(char *path, const struct source_columns *columns, const char *expected)
{
    struct buffer drawn = {0};
    draw(&drawn, path, columns);
    assert_string_equal(drawn.data ? drawn.data : "", expected);
    buffer_release(&drawn);
    memory_free(path);
}

static void records_are_the_same_in_every_format(void **state)
{
    static const struct {
        const char *name, *expected;
        bool flat;
    } forms[] = {
        {"text", "plain text'first\nline'\nplain text'said \"so\", they say'\n", true},
        {"content", "plain text'one'\nplain text'three'\n", true},
        {"qa",
         "chat <user> text'1+1?' <assistant> text'It is\n#### 2'\nchat <user> text'2*3?' <assistant> text'#### 6'\n",
         true},
        {"alpaca",
         "chat <user> text'Add.\n1 and 2' <assistant> text'3'\nchat <user> text'Greet.' <assistant> text'Hello'\n",
         true},
        {"chat", "chat <user> text'Hi' <assistant> text'Hello'\n", false},
    };
    static const char *const suffixes[] = {"parquet", "arrow", "jsonl", "json", "csv"};
    for (i64 i = 0; i < COUNT_OF(forms); i++)
        for (i64 k = 0; k < 4 + forms[i].flat; k++)
            expect(form(forms[i].name, suffixes[k]), NULL, forms[i].expected);
    for (i64 k = 0; k < 3; k++)
        expect(form("sharegpt", suffixes[k]), NULL,
               "chat <system> text'Be kind.' <user> text'Hi' <assistant> text'Hello' <assistant> "
               "text {\"tool_calls\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":{}}}]} <tool> "
               "text'7'\n"
               "bad: :2: message 1 has the role \"wizard\": expected system, user, assistant or tool\n");
    (void)state;
}

static void tables_carry_media(void **state)
{
    expect(form("pictures", "parquet"), NULL,
           "captioned image'\xff\xd8picture 1' text'a red apple'\ncaptioned image@x.jpg text'a file'\n");
    expect(form("members", "parquet"), NULL, "captioned image'\xff\xd8picture 1' text'a red apple'\n");
    expect(form("seen", "parquet"), NULL,
           "chat <user> image'\xff\xd8picture 1' text' or ' image'\xff\xd8picture 2' text'?' <assistant> text'both'\n");
    expect(form("cauldron", "parquet"), NULL,
           "chat <user> image'\xff\xd8picture 1' image'\xff\xd8picture 2' text'Which?' <assistant> text'The first' "
           "<user> text'Why?' <assistant> text'It is red'\n");
    expect(form("llava", "parquet"), NULL,
           "chat <user> image'\xff\xd8picture 1' text'\nWhat?' <assistant> text'an apple'\n");
    (void)state;
}

static void links_are_no_pictures(void **state)
{
    struct buffer drawn = {0};
    char *table = form("links", "parquet");
    draw(&drawn, table, NULL);
    assert_memory_equal(drawn.data, "damaged: : pictures are named by \"url\" alone", 44);
    assert_non_null(strstr(drawn.data, "{text: caption}"));
    buffer_clear(&drawn);
    char *lines = put_text("links.jsonl", "{\"url\": \"http://a\", \"caption\": \"x\"}\n");
    draw(&drawn, lines, NULL);
    assert_memory_equal(drawn.data, "bad: :1: pictures are named by", 30);
    buffer_release(&drawn);
    expect(table, &(struct source_columns){.modality[MODALITY_TEXT] = "caption"}, "plain text'a red apple'\n");
    memory_free(lines);
    (void)state;
}

static void unknown_columns_are_named(void **state)
{
    struct buffer drawn = {0};
    char *table = form("unknown", "parquet");
    draw(&drawn, table, NULL);
    assert_non_null(strstr(drawn.data, "Its columns are: id, body."));
    assert_non_null(strstr(drawn.data, "columns: {image: NAME, text: NAME}"));
    buffer_clear(&drawn);
    draw(&drawn, table, &(struct source_columns){.modality[MODALITY_TEXT] = "Body"});
    assert_non_null(strstr(drawn.data, "Expected those that `columns`"));
    buffer_release(&drawn);
    expect(table, &(struct source_columns){.modality[MODALITY_TEXT] = "body"}, "plain text'a text'\n");
    (void)state;
}

static void named_columns_are_the_only_ones(void **state)
{
    const char text[] = "{\"q\": \"1?\", \"a\": \"2\", \"text\": \"all\"}\n{\"text\": \"no\"}\n";
    struct source_columns turn = {.question = "q", .answer = "a"},
                          picture = {.modality = {[MODALITY_IMAGE] = "file", [MODALITY_TEXT] = "alt"}};
    expect(put_text("turn.jsonl", text), &turn, "chat <user> text'1?' <assistant> text'2'\n");
    expect(put_text("pic.csv", "file,alt,text\na.png,red,x\n"), &picture, "captioned image@a.png text'red'\n");
    (void)state;
}

/* Common Voice: tables beside the folder clips. */
static void recordings_are_known_by_path_and_sentence(void **state)
{
    static const char table[] =
        "client_id\tpath\tsentence\tup_votes\ns1\ta.mp3\t\"Yes\", he said.\t2\ns2\tb.mp3\t\t2\n";
    char *folder = path_join(directory, "cv/clips");
    assert_int_equal(directory_make(folder), 0);
    memory_free(put_text("cv/clips/a.mp3", "ID3"));
    char *path = put_text("cv/validated.tsv", table), *clip = path_join(folder, "a.mp3");
    struct source *source = source_open(path, NULL);
    struct sample sample;
    assert_int_equal(source_next(source, &sample), SOURCE_SAMPLE);
    assert_int_equal(sample.layout, SAMPLE_CAPTIONED);
    assert_string_equal(sample.parts[0].path, clip);
    assert_string_equal(sample.parts[1].bytes.data, "\"Yes\", he said.");
    assert_string_equal(sample.speaker, "s1");
    sample_release(&sample);
    assert_int_equal(source_next(source, &sample), SOURCE_END);
    i64 notes;
    const struct source_note *note = source_notes(source, &notes);
    assert_int_equal(notes, 2); /* up_votes is the other */
    assert_string_equal(note[1].what, "records whose key \"sentence\" is empty, so that their medium has no caption");
    source_close(source);
    memory_free(put_text("cv/b.mp3", "ID3"));
    expect(put_text("cv/beside.tsv", "path\tsentence\nb.mp3\tbeside\n"), NULL, "captioned audio@b.mp3 text'beside'\n");
    expect(put_text("cv/bare.tsv", "path\tsentence\nb\tbare\n"), &(struct source_columns){.ending = "mp3"},
           "captioned audio@b.mp3 text'bare'\n");
    expect(put_text("cv/audio.jsonl", "{\"audio\": \"c.wav\", \"sentence\": \"said\"}\n"), NULL,
           "captioned audio@c.wav text'said'\n");
    memory_free(path);
    memory_free(clip);
    memory_free(folder);
    (void)state;
}

/* LJSpeech: no header, fields between bars, names without an ending, files in a folder. */
static void tables_may_have_no_header(void **state)
{
    static const char table[] = "LJ001-0001|\"No. 1|\"Number one\nLJ001-0002|a, b|a and b\nLJ|short\n";
    struct source_columns c = {.modality = {[MODALITY_AUDIO] = "1", [MODALITY_TEXT] = "3"},
                               .separator = "|",
                               .header = 1,
                               .folder = "wavs",
                               .ending = "wav"};
    char *path = put_text("metadata.csv", table), *file = path_join(directory, "wavs/LJ001-0001.wav");
    expect(string_copy(path), &c,
           "captioned audio@LJ001-0001.wav text'\"Number one'\ncaptioned audio@LJ001-0002.wav text'a and b'\n"
           "bad: :3: 2 fields, but the first row has 3\n");
    struct source *source = source_open(path, &(struct source_request){.columns = &c});
    struct sample sample;
    assert_int_equal(source_next(source, &sample), SOURCE_SAMPLE);
    assert_string_equal(sample.parts[0].path, file);
    sample_release(&sample);
    source_close(source);
    c.ending = ".flac";
    c.folder = NULL;
    c.separator = "tab";
    expect(put_text("tabs.csv", "a\tx\ty\nb.mp3\tx\t/z\n"), &c,
           "captioned audio@a.flac text'y'\ncaptioned audio@b.mp3 text'/z'\n");
    c.separator = "two";
    struct buffer drawn = {0};
    draw(&drawn, path, &c);
    assert_non_null(strstr(drawn.data, "columns.separator: 'two': expected one character, or tab"));
    buffer_release(&drawn);
    c = (struct source_columns){.separator = ";"};
    expect(put_text("semi.csv", "text;n\n\"a;b\";1\n"), &c, "plain text'a;b'\n");
    memory_free(path);
    memory_free(file);
    (void)state;
}

static void roles_are_known_by_other_names(void **state)
{
    const char text[] =
        "{\"messages\": [{\"role\": \"developer\", \"content\": \"a\"}, {\"from\": \"human\", \"value\": \"b\"}, "
        "{\"role\": \"model\", \"content\": \"c\"}, {\"role\": \"function\", \"content\": \"d\"}]}\n"
        "{\"messages\": [{\"role\": \"narrator\", \"content\": \"a\"}]}\n";
    expect(put_text("roles.jsonl", text), NULL,
           "chat <system> text'a' {\"role\":\"developer\"} <user> text'b' <assistant> text'c' <tool> text'd' "
           "{\"role\":\"function\"}\n"
           "bad: :2: message 1 has the role \"narrator\": expected system, user, assistant or tool\n");
    (void)state;
}

/* As Python's json writes them. In a key that is read they count as null. */
static void numbers_that_are_none_lose_no_record(void **state)
{
    expect(put_text("nan.jsonl",
                    "{\"text\": \"a NaN in \\\"NaN\", \"score\": NaN}\n"
                    "{\"score\": [Infinity, -Infinity, 1.5, -2, 123456789012345678901234567890], \"text\": \"b\"}\n"
                    "{\"text\": NaN}\n{\"text\": \"c\", \"score\": nan}\n"),
           NULL,
           "plain text'a NaN in \"NaN'\nplain text'b'\n"
           "bad: :4:26: not valid JSON: invalid token near 'nan'\n");
    expect(put_text("nan.json", "[{\"text\": \"a\", \"score\": -Infinity}, {\"text\": \"b\"}]"), NULL,
           "plain text'a'\nplain text'b'\n");
    (void)state;
}

/* Keys of messages that change what is learned are honoured or refused by name; others are noted. */
static void keys_of_messages_are_not_dropped(void **state)
{
    static const char *const refused[][2] = {
        {"\"mask\": false", "key mask: it changes what is learned"},
        {"\"train_detail\": [{\"begin_offset\": 0}]", "key train_detail: it changes"},
        {"\"weight\": 0.5", "key weight: expected 0, 1, false or true"},
        {"\"loss\": \"no\"", "key loss: expected 0, 1, false or true"}};
    for (i64 i = 0; i < COUNT_OF(refused); i++) {
        struct buffer drawn = {0};
        char *line =
            string_format("{\"messages\": [{\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\", "
                          "\"content\": \"a\", %s}]}\n",
                          refused[i][0]);
        char *path = put_text("refused.jsonl", line);
        draw(&drawn, path, NULL);
        if (!strstr(drawn.data, "bad: :1: message 2: ") || !strstr(drawn.data, refused[i][1]))
            fail_msg("%s: %s", refused[i][0], drawn.data);
        buffer_release(&drawn);
        memory_free(line);
        memory_free(path);
    }
    char *path =
        put_text("keys.jsonl", "{\"conversations\": [{\"from\": \"human\", \"value\": \"q\", \"weight\": 1, \"train\": "
                               "false}, {\"from\": \"gpt\", "
                               "\"value\": \"a\", \"weight\": 0, \"reasoning_content\": null, \"thinking\": \"\"}, "
                               "{\"from\": \"gpt\", \"value\": \"b\", "
                               "\"training\": true}]}\n"
                               "{\"messages\": [{\"role\": \"user\", \"content\": \"q\", \"name\": \"Ann\"}, "
                               "{\"role\": \"user\", \"content\": \"r\", "
                               "\"name\": \"Bob\"}, {\"role\": \"assistant\", \"content\": null, \"function_call\": "
                               "{\"name\": \"f\", \"arguments\": "
                               "\"{}\"}, \"id\": 5}]}\n"
                               "{\"messages\": [{\"role\": \"user\", \"content\": \"q\", \"train\": true}]}\n");
    expect(
        string_copy(path), NULL,
        "chat <user> text'q' <assistant> text'a' <assistant> text'b'\n"
        "chat <user> text'q' {\"name\":\"Ann\"} <user> text'r' {\"name\":\"Bob\"} <assistant> "
        "text {\"id\":5,\"tool_calls\":[{\"type\":"
        "\"function\",\"function\":{\"name\":\"f\",\"arguments\":{}}}]}\n"
        "bad: :3: message 1: key train: this message is no answer, and only answers are learned: leave the key out\n");
    struct source *source = source_open(path, NULL);
    struct sample sample;
    i64 count;
    assert_int_equal(source_next(source, &sample), SOURCE_SAMPLE);
    assert_true(sample.parts[0].unlearned && sample.parts[1].unlearned && !sample.parts[2].unlearned);
    sample_release(&sample);
    while (source_next(source, &sample) != SOURCE_END)
        sample_release(&sample);
    const struct source_note *notes = source_notes(source, &count);
    assert_int_equal(count, 1);
    assert_string_equal(notes[0].what, "keys \"id\" of messages, which only a chat template may read");
    assert_int_equal(source_files(source, &count)->passed, 0);
    source_close(source);
    memory_free(path);
    (void)state;
}

/* What the template of a model reads beside roles and contents stays with the message. */
static void a_template_gets_the_keys_of_messages(void **state)
{
    expect(
        put_text("carried.jsonl",
                 "{\"messages\": [{\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\", "
                 "\"reasoning_content\": \"so\", \"content\": \"a\"}]}\n"
                 "{\"messages\": [{\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\", \"thinking\": "
                 "\"so\", \"content\": \"a\", \"weight\": 1}]}\n"
                 "{\"messages\": [{\"role\": \"assistant\", \"content\": \"a\", \"tool_calls\": [{\"id\": \"c1\", "
                 "\"type\": \"function\", \"function\": {\"name\": \"f\", \"arguments\": \"{\\\"n\\\": 1}\"}}]}, "
                 "{\"role\": \"tool\", \"tool_call_id\": \"c1\", \"name\": \"f\", \"content\": \"2\"}]}\n"
                 "{\"conversations\": [{\"from\": \"human\", \"value\": \"q\"}, {\"from\": \"function_call\", "
                 "\"value\": \"no json\"}]}\n"),
        NULL,
        "chat <user> text'q' <assistant> text'a' {\"reasoning_content\":\"so\"}\n"
        "chat <user> text'q' <assistant> text'a' {\"thinking\":\"so\"}\n"
        "chat <assistant> text'a' {\"tool_calls\":[{\"id\":\"c1\",\"type\":\"function\",\"function\":{\"name\":\"f\","
        "\"arguments\":{\"n\":1}}}]} "
        "<tool> text'2' {\"tool_call_id\":\"c1\",\"name\":\"f\"}\n"
        "bad: :4: message 2: a call of a tool has no name: expected {\"function\": {\"name\", \"arguments\"}}\n");
    (void)state;
}

static void a_template_gets_tools_and_variables(void **state)
{
    expect(
        put_text("variables.jsonl",
                 "{\"messages\": [{\"role\": \"user\", \"content\": \"q\"}], \"tools\": [{\"type\": \"function\", "
                 "\"function\": {\"name\": \"f\"}}], \"documents\": [{\"title\": \"t\", \"text\": \"d\"}], "
                 "\"chat_template_kwargs\": {\"enable_thinking\": false}}\n"
                 "{\"conversations\": [{\"from\": \"human\", \"value\": \"q\"}], \"tools\": \"[{\\\"name\\\": "
                 "\\\"f\\\"}]\"}\n"
                 "{\"question\": \"q\", \"answer\": \"a\", \"functions\": [{\"name\": \"f\"}], \"documents\": []}\n"
                 "{\"prompt\": \"q\", \"completion\": \"a\", \"tools\": \"\", \"functions\": null}\n"
                 "{\"question\": \"q\", \"answer\": \"a\", \"tools\": \"a hammer\"}\n"),
        NULL,
        "chat <user> text'q' with {\"enable_thinking\":false,\"tools\":[{\"type\":\"function\",\"function\":{\"name\":"
        "\"f\"}}],\"documents\":[{\"title\":\"t\",\"text\":\"d\"}]}\n"
        "chat <user> text'q' with {\"tools\":[{\"name\":\"f\"}]}\n"
        "chat <user> text'q' <assistant> text'a' with "
        "{\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]}"
        "\n"
        "chat <user> text'q' <assistant> text'a'\n"
        "bad: :5: key tools: expected a list, or one as a string of JSON\n");
    (void)state;
}

static void bytes_that_are_no_text_are_refused(void **state)
{
    expect(form("not_utf8", "parquet"), NULL, "bad: :1: byte 2 of a text is not UTF-8\nplain text'fine'\n");
    expect(put_text("latin.csv", "text,n\nab\xff,1\nfine,2\n"), NULL,
           "bad: :2: column text is not UTF-8\nplain text'fine'\n");
    (void)state;
}

static void fields_may_hold_anything(void **state)
{
    expect(put_text("a.csv", "\xef\xbb\xbftext,n\r\n\"a \"\"b\"\"\r\n\nc, d\",1\r\n\r\ne,\r\n,2\n\"x\"y,3\nz\nlast,4"),
           NULL,
           "plain text'a \"b\"\r\n\nc, d'\nplain text'e'\nbad: :8: text behind a quote that closes a field\n"
           "bad: :9: 1 fields, but the header has 2\nplain text'last'\n");
    expect(put_text("b.tsv", "text\tn\na, b\t1\n"), NULL, "plain text'a, b'\n");
    expect(put_text("c.csv", "text\n\"never closed\n"), NULL, "bad: :2: a quote that is not closed\n");
    expect(put_text("d.csv", ""), NULL, "damaged: : is empty: expected a line with the names of its columns\n");
    (void)state;
}

/* In tab-separated files quotes are characters. In CSV a quote that is not closed swallows lines,
 * and each of them is counted. */
static void stray_quotes_lose_no_row_uncounted(void **state)
{
    struct buffer rows = {0}, expected = {0};
    expect(
        put_text("q.tsv", "text\tn\n\"Yes, said\t1\nplain\t2\nsaid \"no\"\t3\n\"all\"\t4\n\"\t5\n"), NULL,
        "plain text'\"Yes, said'\nplain text'plain'\nplain text'said \"no\"'\nplain text'\"all\"'\nplain text'\"'\n");
    expect(put_text("q.csv", "text,n\n\"Yes,1\nplain,2\n\nsaid \"no\",3\nlast,4\n"), NULL,
           "bad: :2: text behind a quote that closes a field\n"
           "bad: :2: a further line of the bad row that begins there: is a quote not closed?\n"
           "bad: :2: a further line of the bad row that begins there: is a quote not closed?\n"
           "plain text'last'\n");
    expect(put_text("r.csv", "text,n,m\n\"Yes,1,2\nsaid no\",3\nlast,4,5\n"), NULL,
           "bad: :2: 2 fields, but the header has 3\n"
           "bad: :2: a further line of the bad row that begins there: is a quote not closed?\n"
           "plain text'last'\n");
    buffer_printf(&rows, "text,n\nfirst,1\n\"open,2\n");
    buffer_printf(&expected, "plain text'first'\nbad: :3: a quote that is not closed\n");
    for (int i = 0; i < 100; i++) {
        buffer_printf(&rows, "row,%d\n", i);
        buffer_printf(&expected, "bad: :3: a further line of the bad row that begins there: is a quote not closed?\n");
    }
    expect(put_text("s.csv", rows.data), NULL, expected.data);
    buffer_release(&rows);
    buffer_release(&expected);
    (void)state;
}

static void lists_of_objects_have_any_layout(void **state)
{
    expect(put_text("a.json", " [\n{\"text\":\n \"a ]}\\\" b\"} ,{\"text\": \"c\"}, 5, {\"n\": 1}]\n"), NULL,
           "plain text'a ]}\" b'\nplain text'c'\nbad: :3: expected a JSON object\n");
    expect(put_text("b.json", "{\"text\": \"a\"}\n{\"text\": \"b\"} {\"text\": \"c\"}"), NULL,
           "plain text'a'\nplain text'b'\nplain text'c'\n");
    expect(put_text("c.json", "[{\"text\": \"a\"}, {\"text\": \"b"), NULL,
           "plain text'a'\ndamaged: :1: the file ends within what begins there: it is cut short\n");
    expect(put_text("d.json", "[{\"text\": \"a\"}"), NULL,
           "plain text'a'\ndamaged: :1: the file ends within what begins there: it is cut short\n");
    expect(put_text("e.json", "[{\"text\": \"a\"}] x"), NULL,
           "plain text'a'\ndamaged: :1: something behind the list that the file is\n");
    expect(put_text("f.json", "{\"text\": \"settings of something\"}\n"), NULL, "");
    expect(put_text("g.json", "[]"), NULL, "");
    (void)state;
}

static void tables_may_be_empty(void **state)
{
    expect(form("empty", "parquet"), NULL, "");
    (void)state;
}

/* {"text": "packed"}, compressed by xz, bzip2 and lz4. */
static void other_compressions_are_read(void **state)
{
    static const char *const suffixes[] = {"jsonl.xz", "json.bz2", "csv.lz4"};
    for (i64 i = 0; i < COUNT_OF(suffixes); i++)
        expect(form("packed", suffixes[i]), NULL, "plain text'packed'\n");
    (void)state;
}

static void parts_are_named_by_shards_of_tables(void **state)
{
    static const char *const names[] = {"set/main/train-00000-of-00001.parquet",
                                        "set/main/test-00000-of-00001.parquet"};
    struct buffer bytes = {0};
    struct sample sample;
    char *from = form("qa", "parquet"), *below = path_join(directory, "set/main"), *set = path_join(directory, "set");
    i64 count[SPLITS] = {0};
    assert_int_equal(directory_make(below) || file_read(&bytes, from), 0);
    for (i64 i = 0; i < 2; i++) {
        char *path = path_join(directory, names[i]);
        assert_int_equal(file_replace(path, bytes.data, bytes.length), 0);
        memory_free(path);
    }
    struct source *source = source_open(set, NULL);
    for (; source_next(source, &sample) == SOURCE_SAMPLE; sample_release(&sample))
        count[sample.split]++;
    assert_int_equal(count[SPLIT_TRAIN], 2);
    assert_int_equal(count[SPLIT_TEST], 2);
    source_close(source);
    buffer_release(&bytes);
    memory_free(from);
    memory_free(below);
    memory_free(set);
    (void)state;
}

/* img2dataset output: 0.parquet describes 0.tar, stats.json is a log. */
static void tables_beside_tars_are_no_collections(void **state)
{
    char *path = path_join(directory, "laion");
    assert_int_equal(directory_make(path), 0);
    memory_free(put_text("laion/0.parquet", "?"));
    memory_free(put_text("laion/0.tar", ""));
    memory_free(put_text("laion/0_stats.json", "{\"count\": 1}"));
    expect(path, NULL, "");
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(records_are_the_same_in_every_format),
        cmocka_unit_test(tables_carry_media),
        cmocka_unit_test(links_are_no_pictures),
        cmocka_unit_test(unknown_columns_are_named),
        cmocka_unit_test(named_columns_are_the_only_ones),
        cmocka_unit_test(recordings_are_known_by_path_and_sentence),
        cmocka_unit_test(tables_may_have_no_header),
        cmocka_unit_test(roles_are_known_by_other_names),
        cmocka_unit_test(numbers_that_are_none_lose_no_record),
        cmocka_unit_test(keys_of_messages_are_not_dropped),
        cmocka_unit_test(a_template_gets_the_keys_of_messages),
        cmocka_unit_test(a_template_gets_tools_and_variables),
        cmocka_unit_test(bytes_that_are_no_text_are_refused),
        cmocka_unit_test(fields_may_hold_anything),
        cmocka_unit_test(stray_quotes_lose_no_row_uncounted),
        cmocka_unit_test(lists_of_objects_have_any_layout),
        cmocka_unit_test(other_compressions_are_read),
        cmocka_unit_test(tables_may_be_empty),
        cmocka_unit_test(parts_are_named_by_shards_of_tables),
        cmocka_unit_test(tables_beside_tars_are_no_collections),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
