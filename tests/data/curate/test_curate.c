/* Curation: the samples that each rule drops, against independent references; with bounded memory,
 * and with the same result after a stop and resume. */
#include <math.h>
#include "data/curate/curate.h"
#include "tests/cases.h"
#include "tests/prepare_fixture.h"

enum { TEXTS = 300, WORDS = 60, VOCABULARY = 3000 };
static const struct rng_key key = {23, RNG_TEST};

static struct curation *open_curation(const struct curate_settings *s)
{
    int status;
    struct curation *c = curation_open(s, &status);
    if (!c)
        fail_msg("%s", error_text());
    return c;
}

/* True if a plain text is kept; *out receives the text as changed by the rules. */
static bool keeps(struct curation *c, const char *text, struct buffer *out)
{
    struct sample sample = {.name = string_copy("a.jsonl:1")};
    struct curate_item item = {0};
    buffer_append(&sample_add(&sample, MODALITY_TEXT)->bytes, text, (i64)strlen(text));
    curation_inspect(c, &item, &sample);
    bool kept = curation_keep(c, &item, &sample);
    if (out)
        buffer_printf(out, "%s", sample.parts[0].bytes.data);
    curate_item_release(&item);
    sample_release(&sample);
    return kept;
}

static i64 count_of(const struct curation *c, const char *rule)
{
    struct json *j = curation_json(c);
    const struct json *rules = json_get(j, "rules");
    i64 count = 0;
    for (i64 i = 0; i < json_count(rules); i++)
        if (strstr(json_string(json_get(json_at(rules, i), "rule"), ""), rule))
            count = json_integer(json_get(json_at(rules, i), "count"), 0);
    json_free(j);
    return count;
}

/* ---- Texts ---- */

/* Words that are compared, masks of persons, and letters of the main script. */
TEST(texts_are_read_by_rules)
{
    EACH_CASE (c, "curate_texts.jsonl") {
        const char *rule = case_text(c, "rule"), *text = case_text(c, "text");
        struct word_runs words = {0};
        if (strcmp(rule, "words") == 0)
            words_add(&words, text, (i64)strlen(text));
        if (strcmp(rule, "personal") == 0)
            personal_mask(&words.text, text, (i64)strlen(text));
        if (strcmp(rule, "letters") == 0)
            script_letters_of_main(&words.text, text, (i64)strlen(text));
        case_expect(c, "gives", words.text.data ? words.text.data : "");
        words_release(&words);
    }
}

TEST(persons_are_masked_and_numbers_are_not)
{
    struct curate_settings drop = {.personal = PERSONAL_DROP, .memory_bytes = 4096},
                           mask = {.personal = PERSONAL_MASK, .memory_bytes = 4096};
    struct curation *c = open_curation(&drop);
    assert_false(keeps(c, "mail me@example.com", NULL));
    assert_true(keeps(c, "no mail", NULL));
    curation_close(c);
    c = open_curation(&mask);
    struct buffer out = {0};
    assert_true(keeps(c, "mail me@example.com", &out));
    assert_string_equal(out.data, "mail <email>");
    buffer_release(&out);
    curation_close(c);
}

TEST(lengths_and_scripts)
{
    char *scripts[] = {"latin", "greek"};
    struct curate_settings s = {
        .chars_least = 3, .chars_most = 12, .scripts = {scripts, 2}, .script_share = 0.5, .memory_bytes = 4096};
    struct curation *c = open_curation(&s);
    assert_false(keeps(c, "ab", NULL));
    assert_true(keeps(c, "abc", NULL));
    assert_true(keeps(
        c, "\xce\xb1\xce\xb2\xce\xb3\xce\xb1\xce\xb2\xce\xb3\xce\xb1\xce\xb2\xce\xb3\xce\xb1\xce\xb2\xce\xb3", NULL));
    assert_false(keeps(c, "abcdefghijklm", NULL));
    assert_false(keeps(c, "\xd0\xb0\xd0\xb1\xd0\xb2 a", NULL));
    assert_true(keeps(c, "\xd0\xb0\xd0\xb1 ab", NULL));
    assert_false(keeps(c, "\xe4\xbd\xa0\xe5\xa5\xbd\xe5\x90\x97", NULL));
    assert_true(keeps(c, "1234", NULL));
    assert_int_equal(count_of(c, "shorter"), 1);
    assert_int_equal(count_of(c, "longer than"), 1);
    assert_int_equal(count_of(c, "other scripts"), 2);
    curation_close(c);
    scripts[1] = "greak";
    int status;
    assert_null(curation_open(&s, &status));
    assert_true(status == -1 && strstr(error_text(), "greak"));
}

#ifdef WEFT_WITH_LANGUAGES
TEST(languages_are_told_apart)
{
    char *wanted[] = {"en", "de", "zh"};
    const struct curate_settings least = {.languages = {wanted, 3}, .language_least = 1, .memory_bytes = 4096},
                                 none = {.languages = {wanted, 3}, .memory_bytes = 4096}; /* every language passes */
    struct curation *asked = open_curation(&least), *all = open_curation(&none);
    i64 others = 0;
    EACH_CASE (c, "languages.jsonl") {
        bool kept = false;
        for (i64 k = 0; k < COUNT_OF(wanted); k++)
            kept |= strcmp(case_text(c, "language"), wanted[k]) == 0;
        others += !kept;
        if (keeps(asked, case_text(c, "text"), NULL) != kept || !keeps(all, case_text(c, "text"), NULL))
            case_wrong(c, "it is taken for another language");
    }
    assert_true(keeps(asked, "12 + 30 = 42", NULL));
    assert_int_equal(count_of(asked, "other languages"), others);
    curation_close(asked);
    curation_close(all);
}

/* Dutch with English at both ends counts as Dutch; a conversation is judged as a whole. */
TEST(languages_of_long_texts_and_conversations)
{
    char *wanted[] = {"nl"};
    struct curate_settings s = {.languages = {wanted, 1}, .language_least = 1, .memory_bytes = 4096};
    struct curation *c = open_curation(&s);
    static const char english[] =
        "The old bridge was closed last winter, and since then everybody has had to walk around the hill.";
    static const char dutch[] =
        "De oude brug werd afgelopen winter gesloten en sindsdien moet iedereen om de heuvel heen lopen.";
    struct buffer text = {0};
    for (i64 i = 0; i < 300; i++)
        buffer_printf(&text, "%s ", i < 5 || i >= 295 ? english : dutch);
    assert_true(keeps(c, text.data, NULL));
    struct sample chat = {.layout = SAMPLE_CHAT, .name = string_copy("a.jsonl:1")};
    struct curate_item item = {0};
    buffer_append(&sample_add(&chat, MODALITY_TEXT)->bytes, "Yes", 3);
    buffer_append(&sample_add(&chat, MODALITY_TEXT)->bytes, dutch, sizeof dutch - 1);
    curation_inspect(c, &item, &chat);
    assert_true(curation_keep(c, &item, &chat));
    curate_item_release(&item);
    sample_release(&chat);
    buffer_release(&text);
    curation_close(c);
}

TEST(a_language_without_profile_is_named)
{
    char *wanted[] = {"en", "klingon"};
    struct curate_settings s = {.languages = {wanted, 2}, .memory_bytes = 4096};
    int status;
    assert_null(curation_open(&s, &status));
    assert_int_equal(status, -1);
    assert_non_null(strstr(error_text(), "\"klingon\""));
}
#else
TEST(languages_need_their_library)
{
    char *wanted[] = {"en"};
    struct curate_settings s = {.languages = {wanted, 1}, .memory_bytes = 4096};
    int status;
    assert_null(curation_open(&s, &status));
    assert_true(status == -1 && strstr(error_text(), "libexttextcat-dev"));
}
#endif

TEST(media_are_looked_at)
{
    struct curate_settings s = {
        .side_least = 32, .aspect_most = 3, .dark = 0.1, .silence_db = -60, .memory_bytes = 4096};
    struct curation *c = open_curation(&s);
    static u8 black[2 * 300], bright[2 * 300], near[2][300];
    static float quiet[8000], loud[8000], level[2][1600];
    memset(bright + 300, 200, 300); /* second frame only */
    loud[7999] = 0.5f;
    for (i64 i = 0; i < 300; i++) {
        near[0][i] = i < 160 ? 26 : 25; /* a mean of 25.53; a tenth of white is 25.5 */
        near[1][i] = i < 140 ? 26 : 25; /* of 25.47 */
    }
    for (i64 i = 0; i < 1600; i++) {
        level[0][i] = i % 2 ? 0.00102f : -0.00102f; /* -59.8 dB */
        level[1][i] = i % 2 ? 0.00098f : -0.00098f; /* -60.2 dB */
    }
    struct curate_item items[11] = {{0}};
    curation_size(c, &items[0], 31, 100);
    curation_size(c, &items[1], 32, 97);
    curation_size(c, &items[2], 96, 32);
    curation_light(c, &items[3], black, 2, 300);
    curation_light(c, &items[4], bright, 2, 300);
    curation_sound(c, &items[5], quiet, 8000, 16000);
    curation_sound(c, &items[6], loud, 8000, 16000);
    curation_light(c, &items[7], near[0], 1, 300);
    curation_light(c, &items[8], near[1], 1, 300);
    curation_sound(c, &items[9], level[0], 1600, 16000);
    curation_sound(c, &items[10], level[1], 1600, 16000);
    static const enum curate_rule expected[] = {CURATE_SMALL, CURATE_ASPECT, CURATE_KEPT,  CURATE_DARK,
                                                CURATE_KEPT,  CURATE_SILENT, CURATE_KEPT,  CURATE_KEPT,
                                                CURATE_DARK,  CURATE_KEPT,   CURATE_SILENT};
    for (i64 i = 0; i < COUNT_OF(expected); i++)
        assert_int_equal(items[i].rule ? items[i].rule : items[i].shown, expected[i]);
    curation_close(c);
}

/* Saves and closes a curation; returns one that goes on behind it. */
static struct curation *gone_on_with(struct curation *c, const struct curate_settings *s)
{
    char *path = path_join(directory, "seen.part");
    struct json *reached = curation_state(c);
    succeed(curation_save(c, path));
    curation_close(c);
    c = open_curation(s);
    succeed(curation_resume(c, reached, path));
    json_free(reached);
    memory_free(path);
    return c;
}

TEST(pieces_of_a_text_stay_together)
{
    struct curate_settings s = {.chars_least = 100, .duplicates = DUPLICATES_EXACT, .memory_bytes = 4096};
    struct curation *c = open_curation(&s);
    struct sample piece = {.name = string_copy("a.txt:1"), .goes_on = true};
    struct curate_item item = {0};
    buffer_append(&sample_add(&piece, MODALITY_TEXT)->bytes, "short", 5);
    curation_inspect(c, &item, &piece);
    assert_true(curation_keep(c, &item, &piece));
    c = gone_on_with(c, &s);
    piece.goes_on = false;
    assert_true(curation_keep(c, &item, &piece)); /* last piece */
    c = gone_on_with(c, &s);
    assert_false(curation_keep(c, &item, &piece));
    curate_item_release(&item);
    sample_release(&piece);
    curation_close(c);
}

/* ---- Duplicates ---- */

TEST(what_was_seen_takes_bounded_memory)
{
    struct seen_keys *s = seen_open(16384);
    i64 known = 0;
    for (u64 i = 1; i <= 100000; i++) {
        assert_false(seen_has(s, i * 7919));
        seen_add(s, i * 7919);
        assert_true(seen_has(s, i * 7919));
    }
    for (u64 i = 1; i <= 100000; i++)
        known += seen_has(s, i * 7919);
    assert_in_range(known, 16384 / 16 * 3 / 4, 16384 / 8 * 3 / 4);
    /* Two tables of 16384 / 16 keys, 3/4 full: 130 times the other one is taken, and the first time it is empty. */
    assert_int_equal(seen_forgotten(s), 129);
    for (u64 i = 100000 - 16384 / 16 * 3 / 4 + 1; i <= 100000; i++)
        assert_true(seen_has(s, i * 7919)); /* newest keys */
    seen_close(s);
}

/* Text i is random, or an earlier text with some words changed; case and punctuation vary. */
static char *text_at(i64 i)
{
    struct buffer out = {0};
    i64 of = i, changed = 0;
    if (i % 4 == 3) {
        of = rng_below(key, i, (u32)i, 1, 0, 0);
        changed = rng_below(key, 4, (u32)i, 2, 0, 0) * rng_below(key, 8, (u32)i, 3, 0, 0);
    }
    while (of % 4 == 3)
        of = rng_below(key, of, (u32)of, 1, 0, 0);
    for (i64 w = 0; w < WORDS; w++) {
        bool other = w < changed;
        buffer_printf(&out, "%s%c%lld%s", w ? " " : "", (i + w) % 5 ? 'w' : 'W',
                      (long long)rng_below(key, VOCABULARY, (u32)(other ? i : of), 10, (u32)w, 0),
                      (i * w) % 7 == 3 ? "," : "");
    }
    return out.data;
}

/* Reference normalization: lower-case letters and digits, single spaces between words. */
static char *plain(const char *text)
{
    struct buffer out = {0};
    for (; *text; text++) {
        char c = *text >= 'A' && *text <= 'Z' ? (char)(*text + 32) : *text;
        bool word = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
        if (word)
            buffer_append(&out, &c, 1);
        else if (out.length && out.data[out.length - 1] != ' ')
            buffer_append(&out, " ", 1);
    }
    if (out.length && out.data[out.length - 1] == ' ')
        out.data[--out.length] = 0;
    return out.data;
}

TEST(exact_duplicates_are_those_that_strcmp_finds)
{
    struct curate_settings s = {.duplicates = DUPLICATES_EXACT, .memory_bytes = 1 << 20};
    struct curation *c = open_curation(&s);
    char *known[TEXTS];
    i64 expected = 0;
    for (i64 i = 0; i < TEXTS; i++) {
        char *text = text_at(i);
        bool before = false;
        known[i] = plain(text);
        for (i64 k = 0; k < i; k++)
            before |= strcmp(known[i], known[k]) == 0;
        expected += before;
        assert_int_equal(keeps(c, text, NULL), !before);
        memory_free(text);
    }
    assert_true(expected > 10 && expected < TEXTS / 4);
    assert_int_equal(count_of(c, "duplicates"), expected);
    for (i64 i = 0; i < TEXTS; i++)
        memory_free(known[i]);
    curation_close(c);
}

static i64 shingles_of(char **out, const char *text)
{
    i64 count = 0;
    for (const char *at = text; at; at = strchr(at, ' ') ? strchr(at, ' ') + 1 : NULL) {
        const char *end = at;
        for (int words = 0; end && words < NEAR_WORDS; words++)
            end = words + 1 < NEAR_WORDS ? (strchr(end, ' ') ? strchr(end, ' ') + 1 : NULL) : end + strcspn(end, " ");
        if (end)
            out[count++] = string_format("%.*s", (int)(end - at), at);
    }
    return count;
}

/* Jaccard similarity of the two texts' word shingles. */
static double jaccard(const char *a, const char *b)
{
    char *left[WORDS], *right[WORDS];
    i64 n = shingles_of(left, a), m = shingles_of(right, b), both = 0;
    for (i64 i = 0; i < n; i++)
        for (i64 k = 0; k < m; k++)
            both += strcmp(left[i], right[k]) == 0;
    for (i64 i = 0; i < n; i++)
        memory_free(left[i]);
    for (i64 k = 0; k < m; k++)
        memory_free(right[k]);
    return (double)both / (double)(n + m - both);
}

/* Texts with similarity s to a kept one are dropped with probability 1 - (1 - s^8)^14 (MinHash LSH
 * with 14 bands of 8). */
TEST(near_duplicates_are_those_that_share_their_runs)
{
    struct curate_settings s = {.duplicates = DUPLICATES_NEAR, .memory_bytes = 1 << 20};
    struct curation *c = open_curation(&s);
    char *kept[TEXTS];
    i64 count = 0, dropped = 0, between = 0;
    double due = 0;
    for (i64 i = 0; i < TEXTS; i++) {
        char *text = text_at(i), *words = plain(text);
        double most = 0;
        for (i64 k = 0; k < count; k++)
            most = fmax(most, jaccard(words, kept[k]));
        bool stays = keeps(c, text, NULL);
        if (most < 0.2)
            assert_true(stays);
        if (most > 0.95)
            assert_false(stays);
        dropped += !stays;
        between += most >= 0.2 && most <= 0.95;
        due += 1 - pow(1 - pow(most, NEAR_ROWS), NEAR_BANDS);
        if (stays)
            kept[count++] = words;
        else
            memory_free(words);
        memory_free(text);
    }
    assert_true(between > 20);
    assert_float_equal((double)dropped, due, 3 * sqrt((double)between) / 2 + 1);
    for (i64 i = 0; i < count; i++)
        memory_free(kept[i]);
    curation_close(c);
}

/* Every seventh text names two addresses. memory_free */
static char *text_with_address(i64 i)
{
    char *text = text_at(i), *more = string_format("%s%s", text, i % 7 ? "" : " me@example.org you@example.org");
    memory_free(text);
    return more;
}

TEST(it_goes_on_to_the_same_end)
{
    struct curate_settings s = {
        .duplicates = DUPLICATES_NEAR, .chars_least = 300, .personal = PERSONAL_MASK, .memory_bytes = 16384};
    struct curation *whole = open_curation(&s), *part = open_curation(&s);
    bool kept[TEXTS];
    struct buffer one = {0}, other = {0};
    for (i64 i = 0; i < TEXTS; i++) {
        char *text = text_with_address(i);
        kept[i] = keeps(whole, text, NULL);
        memory_free(text);
    }
    for (i64 i = 0; i < TEXTS; i++) {
        char *text = text_with_address(i);
        assert_int_equal(keeps(part, text, NULL), kept[i]);
        memory_free(text);
        if (i % 97 == 50)
            part = gone_on_with(part, &s);
    }
    struct json *a = curation_json(whole), *b = curation_json(part);
    json_print(&one, a, 0);
    json_print(&other, b, 0);
    assert_string_equal(one.data, other.data);
    assert_true(json_integer(json_get(a, "masked_samples"), 0) > 1);
    assert_true(json_integer(json_get(a, "masked"), 0) > json_integer(json_get(a, "masked_samples"), 0));
    json_free(a);
    json_free(b);
    buffer_release(&one);
    buffer_release(&other);
    curation_close(whole);
    curation_close(part);
}

/* Two pictures per caption are kept, in any order. */
TEST(captions_stand_at_so_many_media)
{
    static const char *const captions[] = {"image",       "a red house", "Image!",      "image",
                                           "a red house", "image",       "a blue house"};
    static const bool kept[] = {true, true, true, false, true, false, true};
    struct curate_settings s = {.caption_times = 2, .memory_bytes = 4096};
    struct curation *c = open_curation(&s);
    for (i64 i = 0; i < COUNT_OF(captions); i++) {
        struct sample sample = {.layout = SAMPLE_CAPTIONED, .name = string_copy("a.tar:1")};
        struct curate_item item = {0};
        sample_add(&sample, MODALITY_IMAGE);
        buffer_append(&sample_add(&sample, MODALITY_TEXT)->bytes, captions[i], (i64)strlen(captions[i]));
        curation_inspect(c, &item, &sample);
        assert_int_equal(curation_keep(c, &item, &sample), kept[i]);
        curate_item_release(&item);
        sample_release(&sample);
    }
    assert_true(keeps(c, "image", NULL)); /* plain text is not a caption */
    assert_int_equal(count_of(c, "with a caption"), 2);
    curation_close(c);
}

/* ---- Against ---- */

TEST(runs_of_evaluation_texts_are_left_out)
{
    char *data = path_join(directory, "against.jsonl");
    static const char lines[] =
        "{\"question\": \"How many apples are left in the old basket on the shelf?\", \"answer\": \"three of them\"}\n"
        "{\"text\": \"to be or not\"}\n";
    assert_int_equal(file_replace(data, lines, (i64)sizeof lines - 1), 0);
    struct curate_settings s = {.against = data, .against_words = 8, .memory_bytes = 4096};
    struct curation *c = open_curation(&s);
    assert_false(keeps(c, "He asked: how many APPLES are left in the old bag?", NULL));
    assert_true(keeps(c, "How many apples are left in the new basket", NULL)); /* runs of 7 words */
    assert_false(keeps(c, "To be, or not!", NULL));
    /* a short text must match as a whole */
    assert_true(keeps(c, "to be or not to be, that is the question of a prince", NULL));
    assert_int_equal(count_of(c, "filter.against"), 2);
    curation_close(c);
    memory_free(data);
}

/* ---- Curation during prepare ---- */

TEST(prepare_leaves_out_and_tells)
{
    char *data = path_join(directory, "corpus"), *text = path_join(directory, "bpe"),
         *out = path_join(directory, "shards"), *report = path_join(out, "curation.json");
    struct prepare_settings s = prepare_text_settings(data, text);
    struct shards shards;
    prepare_tokenizer(text);
    succeed(directory_make(data));
    memory_free(put_text("corpus/a.jsonl",
                         "{\"text\": \"some words\"}\n{\"text\": \"Some words!\"}\n{\"text\": \"x\"}\n"
                         "{\"text\": \"write to me@example.com\"}\n{\"text\": \"other words\"}\n"));
    s.filter = (struct curate_settings){
        .chars_least = 2, .personal = PERSONAL_MASK, .duplicates = DUPLICATES_EXACT, .memory_bytes = 4096};
    prepare_in(&s, out, "", "");
    succeed(shards_open(&shards, out, "train"));
    assert_int_equal(shards.sample_count, 3);
    shards_close(&shards);
    struct json *j = json_load(report);
    assert_int_equal(json_integer(json_get(j, "samples"), 0), 5);
    assert_int_equal(json_integer(json_get(j, "kept"), 0), 3);
    assert_int_equal(json_integer(json_get(j, "masked"), 0), 1);
    const struct json *rules = json_get(j, "rules"), *last = json_at(rules, 1);
    assert_int_equal(json_count(rules), 2);
    assert_string_equal(json_string(json_get(last, "rule"), ""), "duplicates");
    assert_string_equal(json_string(json_get(json_at(json_get(last, "examples"), 0), "text"), ""), "Some words!");
    json_free(j);
    char *all[] = {data, text, out, report};
    for (i64 i = 0; i < COUNT_OF(all); i++)
        memory_free(all[i]);
}

/* Writes files in which most texts occur several times. */
static void put_copies(const char *data, int files, int texts)
{
    for (int file = 0; file < files; file++) {
        struct buffer lines = {0};
        char *path = string_format("%s/%d.jsonl", data, file);
        for (int i = 0; i < texts; i++)
            buffer_printf(&lines, "{\"text\": \"%s number %d\"}\n", i % 2 ? "one" : "another",
                          (i + file * texts) * 7 % 53);
        assert_int_equal(file_replace(path, lines.data, lines.length), 0);
        buffer_release(&lines);
        memory_free(path);
    }
}

TEST(parts_that_see_those_before_them_keep_what_one_call_does)
{
    enum { FILES = 6, TEXTS_A_FILE = 30, DISTINCT = 106 };
    char *data = path_join(directory, "copies"), *text = path_join(directory, "copies-bpe"),
         *whole = path_join(directory, "whole");
    char *parts[3], *two = NULL, *all = NULL;
    struct prepare_settings s = prepare_text_settings(data, text);
    struct device device;
    prepare_tokenizer(text);
    succeed(directory_make(data));
    put_copies(data, FILES, TEXTS_A_FILE);
    s.filter.duplicates = DUPLICATES_EXACT;
    prepare_in(&s, whole, "", "");
    for (int i = 0; i < 3; i++) {
        char *part = string_format("%d/3", i);
        parts[i] = string_format("%s/copies-%d", directory, i);
        prepare_in(&s, parts[i], part, i == 0 ? "" : i == 1 ? parts[0] : two);
        if (i == 1)
            two = string_format("%s\n%s", parts[0], parts[1]);
        memory_free(part);
    }
    all = string_format("%s\n%s", two, parts[2]);
    char *once = samples_of(whole), *thrice = samples_of(all);
    i64 lines = 0;
    for (const char *c = once; *c; c++)
        lines += *c == '\n';
    assert_int_equal(lines, DISTINCT);
    assert_string_equal(once, thrice);
    char *keys = path_join(parts[0], "keys");
    s.filter.seen = parts[0];
    device_open_cpu(&device);
    memory_free(put_text("copies-0/keys", "01234567 older")); /* an older format with 8 bytes per key */
    assert_int_equal(prepare_stage(&s, whole, 1, &device, DTYPE_F32), -1);
    assert_says("invalid key entry");
    assert_int_equal(remove(keys), 0);
    assert_int_equal(prepare_stage(&s, whole, 1, &device, DTYPE_F32), -1);
    assert_says("filter.seen: ");
    assert_says("prepared with filter.duplicates");
    device_close(&device);
    char *names[] = {data, text, whole, parts[0], parts[1], parts[2], two, all, once, thrice, keys};
    for (i64 i = 0; i < COUNT_OF(names); i++)
        memory_free(names[i]);
}

int main(void)
{
    return tests_run(make_directory, remove_directory);
}
