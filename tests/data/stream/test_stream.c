/* Shards prepared while they are read: the rows are those of a folder prepared before, after any
 * kill and resume, and the number of shards on disk stays within the limit. */
#define _GNU_SOURCE
#include <fcntl.h>
#include "data/stream/tokens.h"
#include "tests/stream_fixture.h"

/* ---- Settings and rows of a stream ---- */

TEST(settings_come_back_as_they_were)
{
    char *names[] = {"text", "chat"}, *out = in_folder("promise");
    struct prepare_settings s = {.data = "out/a b: #c \"d\"",
                                 .tokenizer[TOKENIZER_TEXT] = tokenizer,
                                 .directions = {names, 2},
                                 .columns = {.modality[MODALITY_TEXT] = "null"},
                                 .validation = 1.0 / 3,
                                 .pictures = {.background = "00ff00", .most_pixels = 77},
                                 .dropout_copies = 3,
                                 .audio_seconds = 0.1,
                                 .shard_bytes = 123456,
                                 .filter = {.against = "./x\nout/y\nhttps://host/z",
                                            .seen = "out/p\n./q",
                                            .memory_bytes = 4096,
                                            .against_words = 2,
                                            .personal = 1},
                                 .stream = {true, 2, 3, 1000000, true}};
    struct shard_stream stream;
    struct buffer before = {0}, after = {0};
    assert_int_equal(directory_make(out) || shard_stream_save(out, &s, ~(u64)4, DTYPE_BF16), 0);
    if (shard_stream_load(&stream, out) < 0)
        fail_msg("%s", error_text());
    char *text = path_join(out, "text");
    assert_string_equal(stream.settings.tokenizer[TOKENIZER_TEXT], text);
    s.tokenizer[TOKENIZER_TEXT] = text;
    s.data = "./out/a b: #c \"d\"";
    s.filter.against = "./x\n./out/y\nhttps://host/z";
    s.filter.seen = "./out/p\n./q";
    struct json *was = settings_to_json(&s, prepare_table), *is = settings_to_json(&stream.settings, prepare_table);
    json_print(&before, was, 0);
    json_print(&after, is, 0);
    assert_string_equal(before.data, after.data);
    assert_true(stream.seed == ~(u64)4 && stream.dtype == DTYPE_BF16);
    shard_stream_release(&stream);
    json_free(was);
    json_free(is);
    buffer_release(&before);
    buffer_release(&after);
    memory_free(text);
    memory_free(out);
}

static const struct {
    const char *name, *folder, *stream;
    struct loader_variant variant;
} cases[] = {
    {"one part", "whole", "stream", {1, false, 1}},
    {"windows of two shards, one and a half times", "whole", "stream", {2, false, 1.5}},
    {"rows change their length", "whole", "stream", {1, true, 0.7}},
    {"parts in turns", "parts", "streams", {2, true, 1}},
};

TEST(a_stream_has_the_rows_of_the_folder)
{
    for (i64 i = 0; i < COUNT_OF(cases); i++) {
        char **lines = lines_of(cases[i].folder, &cases[i].variant);
        clear_ring();
        struct loader *l = open_data(cases[i].stream, "ring", &cases[i].variant);
        print_message("%s\n", cases[i].name);
        for (i64 step = 0; step < STEPS; step++) {
            expect_lines(l, lines, step, step + 1);
            struct loader_cursor cursor = loader_cursor(l);
            assert_int_equal(loader_passed(l, &cursor), 0); /* acts like a checkpoint at each step */
        }
        loader_close(l);
        string_list_free(lines, STEPS);
    }
}

/* ---- Resuming ---- */

/* The cursor in a checkpoint after `done` steps. */
static struct loader_cursor cursor_behind(const char *name, const struct loader_variant *v, i64 done)
{
    struct loader *l = open_data(name, NULL, v);
    for (i64 step = 0; step < done; step++)
        assert_non_null(plan_step(l, step));
    struct loader_cursor cursor = loader_cursor(l);
    loader_close(l);
    return cursor;
}

TEST(a_run_goes_on_at_any_step)
{
    for (i64 i = 0; i < COUNT_OF(cases); i++) {
        char **lines = lines_of(cases[i].folder, &cases[i].variant);
        for (i64 done = 1; done < STEPS; done += 11) {
            struct loader_cursor cursor = cursor_behind(cases[i].folder, &cases[i].variant, done);
            struct loader *l = open_data(cases[i].folder, NULL, &cases[i].variant);
            assert_true(done < 40 || cursor.round > 0 || cursor.pass > 0);
            loader_begin_at(l, &cursor);
            expect_lines(l, lines, done, STEPS);
            loader_close(l);
        }
        string_list_free(lines, STEPS);
    }
}

/* The ring may be left over or lost: missing shards are made again. */
TEST(a_stream_goes_on_with_and_without_its_ring)
{
    static const i64 stops[] = {5, 38, 41, 74};
    for (i64 i = 2; i < COUNT_OF(cases); i++) {
        char **lines = lines_of(cases[i].folder, &cases[i].variant);
        clear_ring();
        for (i64 k = 0, begin = 0; k <= COUNT_OF(stops); k++) {
            i64 end = k < COUNT_OF(stops) ? stops[k] : STEPS;
            struct loader *l = open_data(cases[i].stream, "ring", &cases[i].variant);
            struct loader_cursor cursor = cursor_behind(cases[i].folder, &cases[i].variant, begin);
            loader_begin_at(l, &cursor);
            assert_int_equal(loader_passed(l, &cursor), 0);
            expect_lines(l, lines, begin, end);
            loader_close(l);
            if (k & 1)
                clear_ring();
            begin = end;
        }
        string_list_free(lines, STEPS);
    }
}

/* ---- Killed ---- */

static i64 kill_children(void)
{
    char *path = string_format("/proc/self/task/%ld/children", (long)getpid()), words[256] = "";
    FILE *file = fopen(path, "r");
    i64 count = 0;
    if (file && !fgets(words, sizeof words, file))
        words[0] = 0;
    if (file)
        fclose(file);
    for (char *at = words, *end; strtol(at, &end, 10) > 0; at = end)
        count += kill((pid_t)strtol(at, NULL, 10), SIGKILL) == 0;
    memory_free(path);
    return count;
}

TEST(what_fills_it_may_be_killed_at_any_time)
{
    char **lines = lines_of("parts", &cases[3].variant);
    clear_ring();
    struct loader *l = open_data("streams", "ring", &cases[3].variant);
    i64 killed = 0;
    for (i64 step = 0; step < STEPS; step++) {
        expect_lines(l, lines, step, step + 1);
        usleep((u32)(step * 997 % 20000)); /* another moment each time */
        killed += step % 3 == 0 ? kill_children() : 0;
    }
    assert_true(killed >= 3);
    assert_true(loader_restarts(l) > 0);
    loader_close(l);
    string_list_free(lines, STEPS);
}

/* ---- Number of shards on disk ---- */

static i64 highest(const char *part)
{
    char **names;
    i64 count, found = -1;
    if (directory_list(&names, &count, part) < 0)
        return -1;
    for (i64 i = 0; i < count; i++)
        if (strlen(names[i]) == 8)
            found = max_i64(found, strtoll(names[i], NULL, 10));
    string_list_free(names, count);
    return found;
}

static void expect_bounded(const char *stream, i64 ahead)
{
    char *ring = in_folder("ring"), *data = in_folder(stream), *part = path_join(ring, "0"), *directory;
    assert_int_equal(directory_remove(ring), 0);
    struct ring *r = ring_open(ring, data, filler);
    for (i64 number = 0, status = 0; status == 0; number++) {
        status = ring_shard(&directory, r, 0, 0, number);
        assert_true(status >= 0);
        for (int look = 0; look < 20; look++, usleep(1000))
            assert_true(highest(part) <= number + ahead);
        if (status == 0) {
            assert_true(file_is_directory(directory));
            memory_free(directory);
            assert_int_equal(ring_passed(r, 0, 0, number), 0);
            assert_true(!ring_has(part, number - 1));
        } else {
            assert_true(number > 5 && number == ring_end(part));
        }
    }
    ring_close(r);
    memory_free(ring);
    memory_free(data);
    memory_free(part);
}

TEST(no_more_shards_stand_than_were_asked_for)
{
    expect_bounded("stream", 2);
    assert_int_equal(prepare("narrow", NULL, 1, 100, 5000), 0); /* a shard has at least 4096 bytes */
    expect_bounded("narrow", 2);
}

/* ---- The whole program ---- */

static pid_t begin_run(const char *recipe)
{
    char *err = in_folder("stderr");
    pid_t child = fork();
    if (child == 0) {
        int descriptor = open(err, O_WRONLY | O_CREAT | O_TRUNC, 0644);
        if (descriptor < 0 || dup2(descriptor, 2) < 0 || setenv("WEFT_THREADS", "1", 1))
            _exit(9);
        weft_become((char *[]){"weft", "run", (char *)(uintptr_t)recipe, NULL});
    }
    memory_free(err);
    return child;
}

static int end_of(pid_t child)
{
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void expect_in_stderr(const char *words)
{
    struct buffer said = {0};
    char *err = in_folder("stderr");
    assert_int_equal(file_read(&said, err), 0);
    if (!strstr(said.data, words))
        fail_msg("\"%s\" is not in:\n%s", words, said.data);
    buffer_release(&said);
    memory_free(err);
}

/* Kills the trainer once it has a checkpoint of at least `step`; its fillers exit with it. */
static bool kill_behind(pid_t child, const char *name, i64 step)
{
    char *checkpoint = string_format("%s/run-%s/base.partial/checkpoints/step-%06lld", folder, name, (long long)step);
    char *done = string_format("%s/run-%s/base/done.json", folder, name);
    while (!file_exists(checkpoint) && !file_exists(done))
        usleep(500);
    bool killed = !file_exists(done) && kill(child, SIGKILL) == 0;
    memory_free(checkpoint);
    memory_free(done);
    return killed;
}

TEST(a_killed_trainer_makes_the_same_model)
{
    char *before = write_recipe("before", "", ""), *during = write_recipe("during", ", stream: {on: true}", "");
    char *ring = in_folder("run-during/base/ring"), *waiting = in_folder("run-during/base/waiting.json");
    assert_int_equal(end_of(begin_run(before)), 0);
    for (i64 step = 6; step <= 12; step += 6) {
        pid_t child = begin_run(during);
        bool killed = kill_behind(child, "during", step);
        assert_int_equal(end_of(child), killed ? 128 + SIGKILL : 0);
    }
    assert_int_equal(end_of(begin_run(during)), 0);
    assert_true(hash_of_model("before") == hash_of_model("during"));
    struct json *j = json_load(waiting);
    double first = json_number(json_get(j, "first_s"), -1);
    assert_true(first >= 0 && first <= json_number(json_get(j, "waited_s"), -1) && !file_exists(ring));
    json_free(j);
    memory_free(before);
    memory_free(during);
    memory_free(ring);
    memory_free(waiting);
}

static void expect_refusal(const char *name, const char *stream, const char *more, int status, const char *words)
{
    char *recipe = write_recipe(name, stream, more);
    assert_int_equal(end_of(begin_run(recipe)), status);
    expect_in_stderr(words);
    memory_free(recipe);
}

TEST(what_cannot_be_is_said)
{
    char *stream = in_folder("stream");
    struct loader_settings s = {
        .rows = {steps_at, some_rows, 1}, .length = {steps_at, one_length, 1}, .micro_rows = 1, .in_order = true};
    assert_null(loader_open(stream, "validation", &s, 1));
    assert_non_null(strstr(error_text(), "name a folder with finished shards"));
    s.in_order = false;
    assert_null(loader_open(stream, "train", &s, 1));
    assert_non_null(strstr(error_text(), "expected a folder with finished shards"));
    struct data_source source = {.name = "web", .data = stream, .epochs = 1};
    struct source_list list = {.values = &source, .count = 1};
    s.ring.directory = folder;
    assert_null(mixer_open(&list, "train", &s, 1));
    assert_non_null(strstr(error_text(), "expected a share, and no epochs"));
    struct shard_stream none;
    assert_int_equal(shard_stream_load(&none, "/dev/shm"), -1);
    assert_non_null(strstr(error_text(), "no stream: expected the folder of a stage"));
    expect_refusal("measured", ", stream: {on: true}", "}\n  eval: {kind: eval, from: base, data: shards", 2,
                   "data: shards prepares shards during training (stream.on): only `data` of pretrain and sft");
    expect_refusal("model", ", stream: {on: true}", "}\n  tune: {kind: sft, from: shards, data: shards, steps: 1", 2,
                   "from: shards prepares shards during training (stream.on): only `data` of pretrain and sft");
    expect_refusal("part", ", part: 0/2, stream: {on: true}", "", 2, "leave part out");
    expect_refusal("long", ", stream: {on: true}, filter: {chars_least: 100000}", "", 1, "no sample for training");
    expect_in_stderr("see its messages above");
    memory_free(stream);
}

/* Killed behind each shard, and so more often than what never writes one. */
TEST(a_filler_that_writes_a_shard_each_time_may_die_at_any)
{
    char *ring = in_folder("ring"), *stream = in_folder("stream"), *directory;
    i64 killed = 0;
    clear_ring();
    struct ring *r = ring_open(ring, stream, filler);
    for (i64 pass = 0; pass < 12; pass++)
        for (i64 number = 0, status = 0; status == 0 && killed < 40; number++) {
            status = ring_shard(&directory, r, 0, pass, number);
            if (status < 0)
                fail_msg("behind %lld: %s", (long long)killed, error_text());
            if (status == 0) {
                memory_free(directory);
                killed += kill_children();
                assert_int_equal(ring_passed(r, 0, pass, number), 0);
            }
        }
    assert_in_range(ring_restarts(r), 9, killed); /* 8 in vain are the most */
    ring_close(r);
    memory_free(ring);
    memory_free(stream);
}

static void read_source(struct mixer *m, i64 number, i64 first, i64 end)
{
    struct loader_step step;
    for (i64 i = first; i < end; i++)
        if (mixer_source_step(m, number, i, &step) < 0)
            fail_msg("%s", error_text());
}

TEST(restarts_are_of_all_sources)
{
    static double shares[] = {1, 1};
    static const struct loader_variant *v = &cases[0].variant;
    char *ring = in_folder("ring"), *stream = in_folder("stream");
    struct data_source all[] = {
        {.name = "a", .data = stream, .share = {steps_at, shares, 1}},
        {.name = "b", .data = stream, .share = {steps_at, shares + 1, 1}},
    };
    struct source_list list = {.values = all, .count = 2};
    struct loader_settings s = {.rows = {steps_at, some_rows, 1},
                                .length = {steps_at, one_length, 1},
                                .micro_rows = ROWS,
                                .mixture = {v->mixture, 1, 1, 1, 1, 1, 1, 1},
                                .condition[MODALITY_TEXT] = 1,
                                .shuffle_shards = v->shuffle_shards,
                                .ring = {ring, filler}};
    clear_ring();
    struct mixer *m = mixer_open(&list, "train", &s, 9);
    if (!m)
        fail_msg("%s", error_text());
    read_source(m, 0, 0, 1);
    assert_true(kill_children() > 0);
    read_source(m, 0, 1, STEPS / 2);
    i64 of_first = mixer_restarts(m);
    assert_true(of_first > 0);
    read_source(m, 1, 0, 1);
    kill_children();
    read_source(m, 1, 1, STEPS / 2);
    assert_true(mixer_restarts(m) > of_first);
    mixer_close(m);
    memory_free(ring);
    memory_free(stream);
}

/* ---- Identities ---- */

/* Gives a setting another value; false of lists. */
static bool change_setting(void *values, const struct setting *row)
{
    void *at = (char *)values + row->offset;
    switch (row->type) {
    case SETTING_INTEGER:
        *(i64 *)at += 1;
        return true;
    case SETTING_NUMBER:
        *(double *)at += 1;
        return true;
    case SETTING_BOOL:
        *(bool *)at = !*(bool *)at;
        return true;
    case SETTING_CHOICE:
        *(int *)at = *(int *)at == 0;
        return true;
    case SETTING_STRING:
    case SETTING_REFERENCE:
    case SETTING_REFERENCES:
        *(const char **)at = "other";
        return true;
    default:
        return false;
    }
}

static u64 identity_of(const struct shard_stream *stream, const char *directory)
{
    u64 identity;
    if (tokens_identity(&identity, stream, directory) < 0)
        fail_msg("%s", error_text());
    return identity;
}

/* True of settings that say where something lies, or how many shards stand ready. */
static bool says_where(const struct setting *row)
{
    static const char *const names[] = {"data", "part", "text", "vision", "audio"};
    for (i64 i = 0; i < COUNT_OF(names); i++)
        if (strcmp(row->key, names[i]) == 0)
            return true;
    return strncmp(row->key, "stream.", 7) == 0 && strcmp(row->key, "stream.parts") != 0;
}

/* Servers refuse a stream of another identity (tokens.h): each setting but places, the seed, the dtype, and
 * every byte of the tokenizer and of shards.json decide it. */
TEST(what_decides_the_tokens_decides_their_identity)
{
    static const char *const files[] = {"text/tokenizer.json", "shards.json"};
    struct shard_stream stream;
    struct buffer bytes = {0};
    char *directory = in_folder("streams");
    i64 tried = 0;
    assert_int_equal(shard_stream_load(&stream, directory), 0);
    u64 identity = identity_of(&stream, directory);
    for (const struct setting *row = prepare_table; row->key; row++) {
        struct shard_stream changed = stream;
        if (!change_setting(&changed.settings, row))
            continue;
        if ((identity_of(&changed, directory) == identity) != says_where(row))
            fail_msg("%s", row->key);
        tried++;
    }
    assert_true(tried > 40);
    struct shard_stream seeded = stream, narrow = stream;
    seeded.seed++;
    narrow.dtype = DTYPE_BF16;
    assert_true(stream.dtype == DTYPE_F32 && identity_of(&narrow, directory) != identity);
    assert_true(identity_of(&seeded, directory) != identity);
    for (i64 i = 0; i < COUNT_OF(files); i++) {
        char *path = path_join(directory, files[i]), *digit;
        buffer_clear(&bytes);
        assert_int_equal(file_read(&bytes, path), 0);
        digit = strstr(bytes.data, i ? "\"vocabulary\"" : "\"vocab\"");
        digit += strcspn(digit, "0123456789");
        *digit ^= 1;
        assert_int_equal(file_replace(path, bytes.data, bytes.length), 0);
        assert_true(identity_of(&stream, directory) != identity);
        *digit ^= 1;
        assert_int_equal(file_replace(path, bytes.data, bytes.length), 0);
        memory_free(path);
    }
    assert_true(identity_of(&stream, directory) == identity);
    buffer_release(&bytes);
    shard_stream_release(&stream);
    memory_free(directory);
}

/* What is written to progress.json by a run that has no room; memory_free. */
static char *identity_of_progress(const struct prepare_settings *s, u64 seed, enum dtype dtype)
{
    char *out = in_folder("stopped"), *path = path_join(out, "progress.json");
    assert_int_equal(directory_remove(out) || directory_make(out), 0);
    assert_int_equal(prepare_stage(s, out, seed, &device, dtype), -1);
    assert_non_null(strstr(error_text(), "free disk space"));
    struct json *j = json_load(path);
    char *identity = string_copy(json_string(json_get(j, "identity"), ""));
    json_free(j);
    memory_free(out);
    memory_free(path);
    return identity;
}

/* prepare goes on with its own shards alone: those of another seed, precision or setting are made anew. */
TEST(what_decides_the_shards_decides_their_identity)
{
    struct prepare_settings s = {.data = corpus,
                                 .tokenizer[TOKENIZER_TEXT] = tokenizer,
                                 .dropout_copies = 2,
                                 .audio_seconds = 30,
                                 .shard_bytes = 4096};
    char *found[5];
    setenv("WEFT_SPARE_BYTES", "1e18", 1);
    found[0] = identity_of_progress(&s, 5, DTYPE_F32);
    found[1] = identity_of_progress(&s, 6, DTYPE_F32);
    found[2] = identity_of_progress(&s, 5, DTYPE_BF16);
    s.dropout = 0.5;
    found[3] = identity_of_progress(&s, 5, DTYPE_F32);
    s.dropout = 0;
    found[4] = identity_of_progress(&s, 5, DTYPE_F32);
    unsetenv("WEFT_SPARE_BYTES");
    assert_int_equal(strlen(found[0]), 16);
    for (i64 i = 1; i < COUNT_OF(found); i++)
        assert_true((strcmp(found[i], found[0]) == 0) == (i == 4));
    for (i64 i = 0; i < COUNT_OF(found); i++)
        memory_free(found[i]);
}

TEST(a_filler_that_cannot_live_is_given_up)
{
    static const char *const killed[] = {"/bin/sh", "-c", "kill -9 $$", NULL};
    char *ring = in_folder("ring"), *stream = in_folder("stream"), *directory;
    assert_int_equal(directory_remove(ring), 0);
    struct ring *r = ring_open(ring, stream, killed);
    assert_int_equal(ring_shard(&directory, r, 0, 0, 0), -1);
    assert_non_null(strstr(error_text(), "signal 9, 8 times"));
    ring_close(r);
    memory_free(ring);
    memory_free(stream);
}

int main(void)
{
    setenv("WEFT_THREADS", "1", 1);
    return tests_run(make, clear);
}
