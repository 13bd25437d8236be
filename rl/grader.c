#include "rl/grader.h"

#include "core/temporary.h"
#include "data/media/media.h"
#include "rl/program.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct reward_line { /* a line of rewards.jsonl */
    i64 step, prompt, rollout, turn;
    u64 answer;
    double score;
    char *observation; /* NULL: the line has a score */
    bool failed;       /* the program gave neither */
    char *read;        /* what the judge says; NULL: none was asked */
};
struct grader {
    const struct grader_settings *s;
    const struct text_tokenizer *tokenizer;
    struct generator *media; /* NULL: answers are text */
    struct judge *judge;     /* NULL: none */
    struct chat *chat;       /* for observations; NULL: there are none */
    char *path, **argv;
    int file; /* descriptor; -1: none */
    struct reward_line *old;
    i64 old_count, old_capacity;
    i64 failures;        /* consecutive failures of the program */
    struct buffer fresh; /* lines not yet written */
};

/* ---- rewards.jsonl ---- */

static void read_line(struct grader *j, const char *at, i64 length, i64 from_step)
{
    struct json *o = json_parse(at, length, j->path);
    struct reward_line line = {json_integer(json_get(o, "step"), -2),
                               json_integer(json_get(o, "prompt"), -1),
                               json_integer(json_get(o, "rollout"), -1),
                               json_integer(json_get(o, "turn"), 0),
                               0,
                               json_number(json_get(o, "score"), 0),
                               NULL,
                               json_get(o, "failed") != NULL,
                               NULL};
    unsigned long long answer;
    if (line.step >= from_step && sscanf(json_string(json_get(o, "answer"), ""), "%llx", &answer) == 1) {
        const char *observation = json_string(json_get(o, "observation"), NULL);
        line.answer = answer;
        line.observation = observation ? string_copy(observation) : NULL;
        if (j->old_count == j->old_capacity) {
            i64 next = max_i64(64, 2 * j->old_capacity);
            j->old = memory_resize(j->old, j->old_capacity * (i64)sizeof line, next * (i64)sizeof line);
            j->old_capacity = next;
        }
        j->old[j->old_count++] = line;
    }
    json_free(o);
}

/* Truncates an incomplete last line; its answer is graded again. */
static int read_lines(struct grader *j, i64 from_step)
{
    struct buffer all = {0};
    if (!file_exists(j->path))
        return 0;
    if (file_read(&all, j->path))
        return -1;
    char *line = all.data;
    for (char *end; (end = strchr(line, '\n')); line = end + 1)
        read_line(j, line, end - line, from_step);
    int status = *line && truncate(j->path, line - all.data) ? error_errno("%s", j->path) : 0;
    buffer_release(&all);
    return status;
}

static const struct reward_line *find_line(const struct grader *j, i64 step, const struct rollout_group *c, i64 rollout,
                                           u64 answer)
{
    for (i64 i = 0; i < j->old_count; i++) {
        const struct reward_line *l = &j->old[i];
        if (l->step == step && l->prompt == c->number && l->rollout == rollout &&
            l->turn == c->rollouts[rollout].turns && l->answer == answer)
            return l;
    }
    return NULL;
}

static int write_lines(struct grader *j)
{
    i64 written = 0;
    while (j->file >= 0 && written < j->fresh.length) {
        ssize_t n = write(j->file, j->fresh.data + written, (size_t)(j->fresh.length - written));
        if (n <= 0)
            return error_errno("%s", j->path);
        written += n;
    }
    if (j->file >= 0 && written && fsync(j->file))
        return error_errno("%s", j->path);
    buffer_clear(&j->fresh);
    return 0;
}

static void add_line(struct grader *j, const struct reward_line *line)
{
    struct json *o = json_object();
    char answer[20];
    snprintf(answer, sizeof answer, "%016llx", (unsigned long long)line->answer);
    json_set(o, "step", json_of_integer(line->step));
    json_set(o, "prompt", json_of_integer(line->prompt));
    json_set(o, "rollout", json_of_integer(line->rollout));
    json_set(o, "turn", json_of_integer(line->turn));
    json_set(o, "answer", json_of_string(answer));
    if (line->observation)
        json_set(o, "observation", json_of_string(line->observation));
    else if (line->failed)
        json_set(o, "failed", json_of_bool(true));
    else
        json_set(o, "score", json_of_number(line->score));
    if (line->read)
        json_set(o, "read", json_of_utf8(line->read, (i64)strlen(line->read)));
    json_print(&j->fresh, o, 0);
    buffer_append(&j->fresh, "\n", 1);
    json_free(o);
}

/* ---- Opening ---- */

int grader_check_settings(const struct grader_settings *s)
{
    if (s->verifier == VERIFY_PROGRAM && !s->program.count)
        return error_usage(
            "verifier: program needs a verifier program, and none is set: program: [NAME, ARGUMENT, ...]");
    bool judged = s->judge && *s->judge;
    if (s->verifier == VERIFY_MODEL && !judged)
        return error_usage("verifier: model needs a model that reads the answers, and none is set: judge: DIR");
    if (judged && s->verifier != VERIFY_MODEL && s->verifier != VERIFY_AUTO)
        return error_usage("judge: %s is asked by no answer: expected verifier: model or auto", s->judge);
    return 0;
}

int grader_check_machine(const struct grader_settings *s)
{
    return s->verifier == VERIFY_PROGRAM && s->limits.sandbox ? program_check_sandbox() : 0;
}

struct grader *grader_open(const struct grader_settings *s, const struct text_tokenizer *tokenizer,
                           struct generator *media, struct judge *judge, const char *directory, i64 from_step)
{
    struct grader *j = memory_alloc(sizeof *j);
    j->s = s;
    j->tokenizer = tokenizer;
    j->media = media;
    j->judge = judge;
    j->file = -1;
    j->argv = memory_alloc((s->program.count + 1) * (i64)sizeof *j->argv);
    for (i64 i = 0; i < s->program.count; i++)
        j->argv[i] = s->program.values[i];
    if (!directory)
        return j;
    j->path = path_join(directory, "rewards.jsonl");
    if (read_lines(j, from_step) == 0) {
        j->file = file_open_append(j->path);
    }
    if (j->file >= 0)
        return j;
    grader_close(j);
    return NULL;
}

void grader_close(struct grader *j)
{
    if (!j)
        return;
    if (j->file >= 0)
        close(j->file);
    text_chat_close(j->chat);
    for (i64 i = 0; i < j->old_count; i++)
        memory_free(j->old[i].observation);
    memory_free(j->old);
    memory_free(j->argv);
    memory_free(j->path);
    buffer_release(&j->fresh);
    memory_free(j);
}

static int verifier_for(enum verifier *out, const struct grader *j, const struct task *p)
{
    *out = (enum verifier)j->s->verifier;
    return *out == VERIFY_AUTO ? verifier_of(out, p) : 0;
}

/* The words that a judge should find: the ground truth, else the prompt's text. */
static const char *words_of(const struct task *p)
{
    const struct json *prompt = json_get(p->source, "prompt");
    const char *text = json_string(prompt, json_string(json_get(json_at(prompt, 0), "content"), ""));
    return p->ground_truth[strspn(p->ground_truth, " \t\r\n")] ? p->ground_truth : text;
}

/* judged: kinds of media that were checked before. */
static int check_judged(const struct grader *j, const struct task *p, bool judged[MODALITIES])
{
    double score;
    enum modality kind = task_makes(p);
    if (kind == MODALITY_TEXT)
        return error_usage("%s: a judge reads made media, and this prompt asks for text: expected another verifier, "
                           "or \"to\" with \"image\", \"video\" or \"audio\"",
                           p->origin);
    if (!j->judge)
        return error_usage("%s: needs a model that reads the answers, and none is set: judge: DIR", p->origin);
    if (!judged[kind] && judge_check(j->judge, j->media, kind))
        return -1;
    judged[kind] = true;
    return verify(&score, VERIFY_WER, words_of(p), "") ? error_prefix("%s", p->origin) : 0;
}

static int check_program(const struct grader *j, const struct task *p, bool *checked)
{
    if (!j->argv[0])
        return error_usage("%s: needs a verifier program, and none is set: program: [NAME, ARGUMENT, ...]", p->origin);
    if (j->s->limits.sandbox && !*checked && program_check_sandbox())
        return -1;
    *checked = true;
    return 0;
}

int grader_check(const struct grader *j, const struct prompts *prompts)
{
    bool checked = false, judged[MODALITIES] = {false};
    for (i64 i = 0; i < prompts->count; i++) {
        enum verifier verifier;
        double score;
        const struct task *p = &prompts->list[i];
        if (verifier_for(&verifier, j, p))
            return -1;
        if (task_makes(p) != MODALITY_TEXT && verifier != VERIFY_PROGRAM && verifier != VERIFY_MODEL)
            return error_usage("%s: rules score text, and this prompt asks for %s: expected verifier: program, or "
                               "model with a judge",
                               p->origin, modality_rows[task_makes(p)].many);
        int status = verifier == VERIFY_PROGRAM ? check_program(j, p, &checked)
                     : verifier == VERIFY_MODEL ? check_judged(j, p, judged)
                                                : verify(&score, verifier, p->ground_truth, "");
        if (status && verifier < VERIFY_PROGRAM)
            return error_prefix("%s", p->origin);
        if (status)
            return -1;
    }
    return 0;
}

/* ---- Grading ---- */

struct graded_answer { /* one graded answer */
    struct rollout_group *rollout_group;
    i64 rollout;
    struct reward_line line;
    struct json *question; /* for the program; NULL: no need to ask it */
    bool judged;           /* the judge is to read it */
    bool known;
};

static struct json *program_request(const struct graded_answer *c, const char *response, i64 id)
{
    static const char *const keys[] = {"data_source", "ability", "prompt", "extra_info"};
    struct json *q = json_object();
    json_set(q, "id", json_of_integer(id));
    for (i64 i = 0; i < COUNT_OF(keys); i++) {
        const struct json *value = json_get(c->rollout_group->prompt->source, keys[i]);
        if (value)
            json_set(q, keys[i], json_copy(value));
    }
    json_set(q, "response", json_of_string(response));
    const struct json *truth = json_get(json_get(c->rollout_group->prompt->source, "reward_model"), "ground_truth");
    if (truth)
        json_set(q, "ground_truth", json_copy(truth));
    json_set(q, "turn", json_of_integer(c->line.turn));
    return q;
}

/* Tells an answer apart from others: its text, and the values of its medium. */
static u64 hash_answer(const struct grader *j, const struct answer *a, const struct buffer *text)
{
    u64 hash = hash_bytes(text->data, text->length, 0);
    const struct media_block *m = &a->medium;
    if (!a->has_medium)
        return hash;
    i64 levels = j->media->model.config.levels, bits = j->media->model.config.bits;
    return m->bits ? hash_bytes(m->bits, m->frames * shape_tokens(&j->media->vocabulary.shapes[m->shape]) * bits, hash)
                   : hash_bytes(m->codes, m->frames * levels * 4, hash);
}

/* Grades by a reward read from the file or by a rule; otherwise leaves it to the judge, or prepares a
 * question for the program and counts it in `asked`. */
static int grade_by_rule(struct grader *j, struct graded_answer *c, i64 step, i64 *asked, struct buffer *answer)
{
    struct rollout *r = &c->rollout_group->rollouts[c->rollout];
    enum verifier verifier;
    if (rollout_text(answer, c->rollout_group, c->rollout, j->tokenizer) ||
        verifier_for(&verifier, j, c->rollout_group->prompt))
        return -1;
    c->line = (struct reward_line){
        step, c->rollout_group->number, c->rollout, r->turns, hash_answer(j, &r->answer, answer), 0, NULL, false, NULL};
    const struct reward_line *old = find_line(j, step, c->rollout_group, c->rollout, c->line.answer);
    c->known = old != NULL;
    if (old) {
        c->line.score = old->score;
        c->line.failed = old->failed;
        c->line.observation = old->observation ? string_copy(old->observation) : NULL;
        return 0;
    }
    if (verifier == VERIFY_PROGRAM) {
        c->question = program_request(c, answer->data, (*asked)++);
        return 0;
    }
    c->judged = verifier == VERIFY_MODEL && r->answer.has_medium;
    if (verifier == VERIFY_MODEL) /* what is no medium scores 0 */
        return 0;
    return verify(&c->line.score, verifier, c->rollout_group->prompt->ground_truth, answer->data)
               ? error_prefix("%s", c->rollout_group->prompt->origin)
               : 0;
}

/* ---- Files of media ---- */

/* A folder for the files of one step. Programs in a sandbox see no files below /dev. */
static char *make_folder(void)
{
    const char *room = getenv("TMPDIR");
    char *beside = path_join(room && *room == '/' && strncmp(room, "/dev/", 5) != 0 ? room : "/tmp", "weft-answers");
    char *folder = directory_make_temporary(beside);
    memory_free(beside);
    if (!folder)
        error_prefix("files of answers for the program, in TMPDIR or else /tmp");
    return folder;
}

static int write_file(const char *path, const struct buffer *bytes)
{
    FILE *file = fopen(path, "wbe");
    bool written = file && fwrite(bytes->data, 1, (size_t)bytes->length, file) == (size_t)bytes->length;
    if (file && fclose(file) != 0)
        written = false;
    return written ? 0 : error_errno("%s: cannot be written", path);
}

static const struct answer *answer_of(const struct graded_answer *c)
{
    return &c->rollout_group->rollouts[c->rollout].answer;
}

/* A sound that ends at once becomes a frame of silence, which any reader of sounds takes. */
static int encode_medium(struct buffer *out, struct grader *j, const struct answer *a, u64 seed)
{
    struct sound silence;
    if (!a->medium.codes || a->medium.frames)
        return answer_encode(out, j->media, a, seed);
    sound_init(&silence, AUDIO_FRAME_SAMPLES, AUDIO_RATE_HZ);
    memset(silence.values, 0, AUDIO_FRAME_SAMPLES * sizeof *silence.values);
    sound_encode_wav(out, &silence);
    sound_release(&silence);
    return 0;
}

/* Writes the answer's medium, if it has one, and names the file in the question. */
static int add_file(struct grader *j, struct graded_answer *c, const char *folder, i64 number)
{
    const struct answer *a = answer_of(c);
    struct buffer bytes = {0};
    if (!a->has_medium)
        return 0;
    const struct modality_row *row = &modality_rows[stream_rows[a->medium.kind].modality];
    int status = encode_medium(&bytes, j, a, (u64)c->rollout_group->number);
    char *path = string_format("%s/%lld.%s", folder, (long long)number, row->ending);
    if (status == 0)
        status = write_file(path, &bytes);
    json_set(c->question, row->name, json_of_string(path));
    memory_free(path);
    buffer_release(&bytes);
    return status;
}

/* *folder: of the files, to be removed; NULL: there are none. */
static int add_files(char **folder, struct grader *j, struct graded_answer *cases, i64 count)
{
    int status = 0;
    bool any = false;
    *folder = NULL;
    for (i64 i = 0; i < count; i++)
        any |= cases[i].question && answer_of(&cases[i])->has_medium;
    if (any && !(*folder = make_folder()))
        return -1;
    for (i64 i = 0; i < count && status == 0 && any; i++)
        status = cases[i].question ? add_file(j, &cases[i], *folder, i) : 0;
    return status;
}

static void remove_files(char *folder)
{
    if (folder && directory_remove(folder))
        log_warn("%s", error_text());
    if (folder)
        temporary_forget(folder);
    memory_free(folder);
}

/* ---- The judge ---- */

/* Reads up to JUDGE_MEDIA answers together. */
static int judge_some(struct grader *j, struct graded_answer *const *list, i64 count)
{
    struct judged_medium media[JUDGE_MEDIA] = {0};
    struct buffer texts[JUDGE_MEDIA] = {0};
    int status = 0;
    for (i64 i = 0; i < count && status == 0; i++) {
        const struct answer *a = answer_of(list[i]);
        media[i].kind = stream_rows[a->medium.kind].modality;
        status = encode_medium(&media[i].file, j, a, (u64)list[i]->rollout_group->number);
    }
    if (status == 0)
        status = judge_describe(texts, j->judge, media, count);
    for (i64 i = 0; i < count && status == 0; i++) {
        list[i]->line.read = string_copy(texts[i].data);
        status = verify(&list[i]->line.score, VERIFY_WER, words_of(list[i]->rollout_group->prompt), texts[i].data);
    }
    for (i64 i = 0; i < count; i++) {
        buffer_release(&media[i].file);
        buffer_release(&texts[i]);
    }
    return status && interrupted() ? ROLLOUT_STOPPED : status;
}

static int ask_judge(struct grader *j, struct graded_answer *cases, i64 count)
{
    struct graded_answer *some[JUDGE_MEDIA];
    i64 n = 0;
    int status = 0;
    for (i64 i = 0; i < count && status == 0; i++) {
        if (cases[i].judged)
            some[n++] = &cases[i];
        if (n == JUDGE_MEDIA || (n && i == count - 1)) {
            status = judge_some(j, some, n);
            n = 0;
        }
    }
    return status;
}

/* ---- Replies ---- */

/* A medium has no turns: its reply must be a score. */
static int check_replies(const struct grader *j, const struct graded_answer *cases, i64 count,
                         struct json *const *answers)
{
    i64 n = 0;
    for (i64 i = 0; i < count; i++) {
        if (!cases[i].question)
            continue;
        enum json_kind kind = json_kind(json_get(answers[n++], "score"));
        if (answer_of(&cases[i])->has_medium && kind != JSON_INTEGER && kind != JSON_REAL)
            return error_set("%s gave no score for line %lld, a medium: expected {\"score\": NUMBER}", j->argv[0],
                             (long long)n);
    }
    return 0;
}

/* A score takes precedence over an observation in the same answer; a null score is ignored. */
static void read_reply(struct reward_line *line, const struct json *answer)
{
    const struct json *score = json_get(answer, "score");
    enum json_kind kind = json_kind(score);
    bool scored = kind == JSON_INTEGER || kind == JSON_REAL;
    line->score = json_number(score, 0);
    line->observation = scored ? NULL : string_copy(json_string(json_get(answer, "observation"), ""));
}

/* Tolerates a failure of the program: the rollouts it should have graded are skipped in this step.
 * -1 once there are too many in a row. */
static int tolerate_failure(struct grader *j, struct graded_answer *cases, i64 count, i64 asked)
{
    if (error_status() == STATUS_INTERRUPTED)
        return -1;
    if (++j->failures > j->s->failures)
        return error_prefix("%lld %s in a row (program_failures), now", (long long)j->failures,
                            plural(j->failures, "time", "times"));
    log_warn("%s; the prompts of %lld %s are skipped in this step", error_text(), (long long)asked,
             plural(asked, "answer", "answers"));
    for (i64 i = 0; i < count; i++)
        cases[i].line.failed |= cases[i].question != NULL;
    return 0;
}

static int ask_program(struct grader *j, struct graded_answer *cases, i64 count, i64 asked)
{
    struct json **questions = memory_alloc(max_i64(asked, 1) * (i64)sizeof *questions);
    struct json **answers = memory_alloc(max_i64(asked, 1) * (i64)sizeof *answers);
    i64 n = 0;
    for (i64 i = 0; i < count; i++)
        if (cases[i].question)
            questions[n++] = cases[i].question;
    char *folder;
    int status = add_files(&folder, j, cases, count);
    bool made = status == 0;
    if (made && asked)
        status = program_ask(answers, j->argv, questions, asked, &j->s->limits);
    remove_files(folder);
    if (made && status == 0 && asked && (status = check_replies(j, cases, count, answers)))
        for (i64 i = 0; i < asked; i++)
            json_free(answers[i]);
    bool answered = status == 0;
    if (answered && asked)
        j->failures = 0;
    else if (made && !answered)
        status = tolerate_failure(j, cases, count, asked);
    n = 0;
    for (i64 i = 0; i < count && answered; i++) {
        if (!cases[i].question)
            continue;
        read_reply(&cases[i].line, answers[n]);
        json_free(answers[n++]);
    }
    memory_free(questions);
    memory_free(answers);
    return status;
}

/* Appends an observation as a user message, which the model then answers. Without room or turns
 * left the rollout ends with reward 0. */
static int append_observation(struct grader *j, struct rollout *r, const char *observation, i64 most)
{
    struct id_list ids = {0};
    if (!j->chat)
        j->chat = text_chat_open(j->tokenizer);
    int status = j->chat ? text_chat_after_answer(&ids, j->chat, observation) : -1;
    bool room =
        r->answer.ended && !r->answer.has_medium && r->turns < j->s->turns && r->answer.count + ids.count < most;
    if (status == 0 && room) {
        for (i64 i = 0; i < ids.count; i++)
            answer_push(&r->answer, ids.ids[i], 0, 0, true);
        r->turns++;
        r->answer.done = r->answer.ended = false;
    } else {
        r->graded = true;
        r->reward = 0;
    }
    id_list_release(&ids);
    return status;
}

static int apply(i64 *open, struct grader *j, struct graded_answer *c, i64 most)
{
    struct rollout *r = &c->rollout_group->rollouts[c->rollout];
    if (!c->line.observation) {
        r->graded = true;
        r->ungraded = c->line.failed;
        r->reward = c->line.score;
        return 0;
    }
    int status = append_observation(j, r, c->line.observation, most);
    *open += !r->answer.done;
    return status;
}

static i64 collect_ungraded(struct graded_answer *cases, struct rollout_group *const *rollout_groups, i64 count)
{
    i64 n = 0;
    for (i64 i = 0; i < count; i++)
        for (i64 c = 0; c < rollout_groups[i]->size; c++) {
            const struct rollout *r = &rollout_groups[i]->rollouts[c];
            if (!r->answer.done || r->graded)
                continue;
            if (cases)
                cases[n] = (struct graded_answer){.rollout_group = rollout_groups[i], .rollout = c};
            n++;
        }
    return n;
}

int grade_rollouts(i64 *open, struct grader *j, struct rollout_group *const *rollout_groups, i64 count, i64 step,
                   i64 most)
{
    i64 n = collect_ungraded(NULL, rollout_groups, count), asked = 0;
    struct graded_answer *cases = memory_alloc(max_i64(n, 1) * (i64)sizeof *cases);
    struct buffer answer = {0};
    int status = 0;
    *open = 0;
    collect_ungraded(cases, rollout_groups, count);
    for (i64 i = 0; i < n && status == 0; i++)
        status = grade_by_rule(j, &cases[i], step, &asked, &answer);
    if (status == 0)
        status = ask_judge(j, cases, n);
    if (status == 0)
        status = ask_program(j, cases, n, asked);
    for (i64 i = 0; i < n && status == 0; i++)
        if (!cases[i].known && j->file >= 0)
            add_line(j, &cases[i].line);
    if (status == 0)
        status = write_lines(j);
    for (i64 i = 0; i < n && status == 0; i++)
        status = apply(open, j, &cases[i], most);
    for (i64 i = 0; i < n; i++) {
        json_free(cases[i].question);
        memory_free(cases[i].line.observation);
        memory_free(cases[i].line.read);
    }
    buffer_release(&answer);
    memory_free(cases);
    return status;
}
