/* A source resumed in front of any of its results knows and gives what one does that was never stopped: its
 * position, samples, notes, prompts, bytes read and lost. */
#include "core/json.h"
#include "tests/sample_text.h"

#define PROMPT "{\"prompt\": \"2 + 2\", \"reward_model\": {\"ground_truth\": \"4\"}}\n"

/* Pictures that lines name in front of and behind other files, pairs whose JSON has no caption, prompts,
 * bad lines, empty files, and a tar that is none. */
static const char *const files[][2] = {
    {"all/a.jsonl", "{\"image\": \"m/1.png\", \"text\": \"one\"}\n" PROMPT "no json\n{\"text\": \"a text\"}\n"},
    {"all/b.txt", "a text\n"},
    {"all/c.txt", ""},
    {"all/d.png", "D"},
    {"all/d.json", "{\"width\": 3}"},
    {"all/e.png", "E"},
    {"all/e.json", "{\"width\": 3}"},
    {"all/f.png", "F"},
    {"all/f.txt", "six"},
    {"all/g.jsonl", PROMPT PROMPT "{\"x\": 1}\n{\"y\": 2}\n{\"text\": \"g\"}\nno json\n"},
    {"all/h.tar", "no archive"},
    {"all/i.txt", ""},
    {"all/m/1.png", "M"},
    {"all/m/2.png", "MM"},
    {"all/m/3.png", "MMM"},
    {"all/z.csv", "image,text,n\nm/2.png,two,1\ne.png,five,2\n"},
};

static const struct source_columns with_texts = {.lone_texts = LONE_TEXTS_READ};
static const struct source_request requests[] = {
    {.seed = 1, .columns = &with_texts}, {.seed = 2, .validation = 0.5},   {.seed = 1, .media_alone = true},
    {.seed = 1, .job = 0, .jobs = 2},    {.seed = 1, .job = 1, .jobs = 2},
};

/* One result as a line; false at the end. */
static bool read_one(struct buffer *out, struct source *source)
{
    struct sample sample;
    enum source_result result = source_next(source, &sample);
    if (result == SOURCE_END)
        return false;
    buffer_printf(out, "%d %s", (int)sample.split, result == SOURCE_SAMPLE ? "" : error_text());
    if (result == SOURCE_SAMPLE)
        put_sample(out, &sample);
    buffer_printf(out, "\n");
    if (result == SOURCE_SAMPLE)
        sample_release(&sample);
    return true;
}

static void write_knowledge(struct buffer *out, struct source *source)
{
    struct json *position = source_state(source);
    i64 done, total, count;
    json_print(out, position, 0);
    source_progress(source, &done, &total);
    buffer_printf(out, "\n%lld of %lld bytes, lost %.3f, %lld prompts\n", (long long)done, (long long)total,
                  source_lost(source), (long long)source_prompts(source));
    const struct source_note *notes = source_notes(source, &count);
    for (i64 i = 0; i < count; i++)
        buffer_printf(out, "%lld %s (%s)\n", (long long)notes[i].count, notes[i].what, notes[i].first);
    json_free(position);
}

static struct source *opened(const struct source_request *request)
{
    struct source *source = source_open(path_of("all"), request);
    if (!source)
        fail_msg("%s", error_text());
    return source;
}

/* The folder has what a position must carry: without it the other test compares nothing. */
TEST(the_folder_has_all_that_is_carried)
{
    static const char *const members[] = {"file", "lost", "notes", "prompts", "named", "waiting"};
    struct buffer passed = {0};
    i64 count, most = 0;
    put_all(files, COUNT_OF(files));
    struct source *source = opened(&requests[0]);
    while (read_one(&passed, source))
        ;
    struct json *position = source_state(source);
    for (i64 i = 0; i < COUNT_OF(members); i++)
        if (!json_count(json_get(position, members[i])) && json_integer(json_get(position, members[i]), 0) <= 0)
            fail_msg("%s is nothing", members[i]);
    const struct source_note *notes = source_notes(source, &count);
    for (i64 i = 0; i < count; i++)
        most = max_i64(most, notes[i].count);
    assert_true(count > 2 && most > 1);
    json_free(position);
    source_close(source);
    buffer_release(&passed);
}

/* Reads `count` results, then saves, closes, resumes, and compares with `whole` from there to the end. */
static bool goes_on(const struct source_request *request, i64 count)
{
    struct buffer before = {0}, after = {0}, rest = {0}, again = {0}, passed = {0};
    struct source *source = opened(request), *resumed = opened(request);
    bool more = true;
    for (i64 i = 0; more && i < count; i++)
        more = read_one(&passed, source);
    struct json *position = source_state(source);
    write_knowledge(&before, source);
    succeed(source_resume(resumed, position));
    write_knowledge(&after, resumed);
    assert_string_equal(after.data, before.data);
    while (read_one(&rest, source))
        ;
    while (read_one(&again, resumed))
        ;
    write_knowledge(&rest, source);
    write_knowledge(&again, resumed);
    assert_string_equal(again.data, rest.data);
    source_close(source);
    source_close(resumed);
    json_free(position);
    struct buffer *texts[] = {&before, &after, &rest, &again, &passed};
    for (i64 i = 0; i < COUNT_OF(texts); i++)
        buffer_release(texts[i]);
    return more;
}

TEST(a_resumed_source_is_one_that_was_never_stopped)
{
    i64 count = 0;
    put_all(files, COUNT_OF(files));
    for (i64 k = 0; k < COUNT_OF(requests); k++)
        for (i64 i = 0; goes_on(&requests[k], i); i++)
            count++;
    assert_true(count > 40); /* results of all requests */
}

int main(void)
{
    return tests_run(make_directory, remove_directory);
}
