/* Words of a model: what it says of media, beside their captions, and how it goes on with texts. */
#include "inference/samples_inside.h"
#include "inference/words_right.h"

#include <stdio.h>
#include <string.h>

static int tell_medium(struct prompt *p, struct studio *s, int kind, const char *path)
{
    return kind == KIND_PICTURE ? prompt_image(p, s, path)
           : kind == KIND_CLIP  ? prompt_video(p, s, path)
                                : prompt_audio(p, s, path);
}

/* *readable: the file was; where it was not, that is no failure. */
static int describe_one(struct text *out, bool *readable, struct studio_run *r, int kind, const char *path, i64 index)
{
    struct prompt p;
    struct answer a = {0};
    struct studio_options o = {.sampling = {0, 1, 0, {r->stage->seed, RNG_SAMPLING}}, .seats = 1};
    prompt_init(&p, ANSWER_TEXT);
    *readable = tell_medium(&p, &r->studio, kind, path) == 0;
    if (!*readable) {
        log_warn("skipped: %s", error_text());
        prompt_release(&p);
        return 0;
    }
    int status = prompt_ask(&p, &r->studio, NULL, 40);
    struct generate_request request = prompt_request(&p, (u32)index, 1);
    if (status == 0)
        status = studio_generate(&a, &r->studio, &request, 1, &o);
    if (status == 0)
        status = answer_text(out, &r->studio, &p, &a);
    answer_release(&a);
    prompt_release(&p);
    return status;
}

/* The medium itself stands beside what was made of its caption, or is put there. */
static int show_description(struct json *list, const struct studio_run *r, const struct sample_set *set, i64 i,
                            const struct text *said)
{
    struct json *j = json_object();
    char *own = sample_path(r, set, i, "-original", kind_ends[set->kind]);
    json_set(j, "text", json_of_string(set->items[i].text));
    json_set(j, "said", json_of_bytes(said->data ? said->data : "", said->length));
    json_set(j, "original", file_name(own));
    json_push(list, j);
    int status = file_copy(own, set->items[i].path);
    memory_free(own);
    return status;
}

/* Counts of what was told right, of those whose medium could be read. */
static struct json *tell_right(const struct studio_run *r, const struct sample_set *set)
{
    struct json *j = json_object();
    char **captions = memory_alloc(max_i64(set->count, 1) * 2 * (i64)sizeof *captions), **said = captions + set->count;
    i64 told = 0, exact = 0;
    for (i64 i = 0; i < set->count; i++)
        if (set->items[i].said) {
            captions[told] = set->items[i].text;
            said[told++] = set->items[i].said;
            exact += strcmp(set->items[i].text, set->items[i].said) == 0;
        }
    json_set(j, "media", json_of_integer(told));
    json_set(j, "unreadable", json_of_integer(set->unreadable));
    json_set(j, "exact", json_of_integer(exact));
    if (told) {
        struct words_right w = words_right_all(captions, said, told, (struct rng_key){r->stage->seed, RNG_RESAMPLE});
        json_set(j, "words", json_of_number(w.right));
        json_set(j, "words_low", json_of_number(w.low));
        json_set(j, "words_high", json_of_number(w.high));
        json_set(j, "words_exchanged", json_of_number(w.exchanged));
        log_info("%s %s to text: %lld of %lld word for word; of the words %.0f %% (%.0f to %.0f), of other captions' "
                 "%.0f %%",
                 set->part, kind_keys[set->kind], (long long)exact, (long long)told, 100 * w.right, 100 * w.low,
                 100 * w.high, 100 * w.exchanged);
    }
    memory_free(captions);
    return j;
}

int describe_set(struct studio_run *r, int kind, const char *part)
{
    struct sample_set set;
    struct json *shown = json_array();
    char key[64];
    int status = sample_set_choose(&set, r, kind, part, r->s->texts);
    for (i64 i = 0; i < set.count && status == 0; i++) {
        struct text said = {0};
        bool readable;
        status = describe_one(&said, &readable, r, kind, set.items[i].path, i);
        set.unreadable += !readable;
        if (status == 0 && readable)
            set.items[i].said = string_copy(said.data ? said.data : "");
        if (status == 0 && readable && i < r->s->show)
            status = show_description(shown, r, &set, i, &said);
        text_release(&said);
    }
    snprintf(key, sizeof key, "%s/%s-to-text", part, kind_keys[kind]);
    struct json *j = tell_right(r, &set);
    json_set(j, "shown", shown);
    json_set(r->report, key, j);
    sample_set_release(&set);
    return status;
}

/* ---- Texts gone on with ---- */

int go_on_from(struct studio_run *r)
{
    struct json *list = json_array();
    int status = 0;
    for (i64 i = 0; i < r->s->prompts.count && status == 0; i++) {
        struct prompt p;
        struct answer a = {0};
        struct text said = {0};
        struct studio_options o = {.sampling = {0.8f, 0.95f, 0, {r->stage->seed, RNG_SAMPLING}}, .seats = 1};
        prompt_init(&p, ANSWER_TEXT);
        status = prompt_text(&p, &r->studio, r->s->prompts.values[i]);
        if (status == 0)
            status = prompt_ask(&p, &r->studio, NULL, 40);
        struct generate_request request = prompt_request(&p, (u32)i, 1);
        if (status == 0)
            status = studio_generate(&a, &r->studio, &request, 1, &o);
        if (status == 0)
            status = answer_text(&said, &r->studio, &p, &a);
        struct json *j = json_object();
        json_set(j, "prompt", json_of_string(r->s->prompts.values[i]));
        json_set(j, "said", json_of_bytes(said.data ? said.data : "", said.length));
        json_push(list, j);
        text_release(&said);
        answer_release(&a);
        prompt_release(&p);
    }
    json_set(r->report, "text", list);
    return status;
}
