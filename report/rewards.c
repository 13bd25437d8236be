/* Reinforcement learning: rewards over steps, and prompts with
 * their answers before and after; evaluation. */
#include "report/media.h"

#include <math.h>
#include <string.h>

/* ---- Over steps ---- */

static const struct panel panels[] = {
    {"entropy", "Entropy of an id", "nats", 4, true, false},
    {"length", "Length of answers that are trained on", "ids", 5, true, false},
    {"length_drawn", "Length of answers that ended in the step", "ids", 5, true, false},
    {"age", "Age of the ids that are trained on", "steps", 6, true, false},
    {"oldest", "Age of the oldest answer that is trained on", "steps", 6, true, false},
    {"spread", "Prompts whose answers differ in reward", "of the step's prompts", 1, true, true},
    {"media_distance", "How far two media of one prompt are apart", "of their bits or codes", 2, true, true},
    {"redrawn", "Groups of equal rewards that were drawn again", "groups", 2, true, false},
    {"clipped", "Answers whose ratio was clipped", "of answers", 6, true, true},
    {"masked", "Ids masked for their mismatch", "of ids", 6, true, true},
    {"masked_answers", "Answers masked as a whole", "of answers", 6, true, true},
    {"mismatch", "Distance of sampler and trainer, |log k|", "nats", 6, true, false},
    {"well_learned", "Answers weighed less as well learned", "of answers", 2, true, true},
    {"hint/prompts", "Prompts with a hint", "of prompts", 3, true, true},
    {"hint/solved", "Right answers behind a hint", "of answers", 3, true, true},
    {"hint/solved_without", "Right answers without a hint", "of answers", 3, true, true},
    {"heldout/solved", "Held-out prompts that are solved", "of prompts", 1, true, true},
    {"kl", "Divergence from the start", "nats", 3, true, false},
    {"grad_norm", "Norm of the gradient before clipping", "L2", 7, true, false},
    {"lr", "Learning rate", "", 3, true, false},
    {"memory_bytes", "Memory of the process", "GiB", 0, true, false, {NULL}, 1 << 30},
    {"device_bytes", "Memory on the GPU", "GiB", 0, true, false, {NULL}, 1 << 30},
    {"drawn_per_s", "Speed of drawing answers", "ids/s", 4, true, false},
    {"tokens_per_s", "Speed of learning", "tokens/s", 4, true, false},
    {"peak_share", "Share of the matrix peak in learning", "of the FMA peak, measured before the stage", 5, true, true},
};

/* Training rewards of one run, with rewards on held-out
 * prompts before, during and after training. */
static void put_rewards_of_one(struct page *p, const struct run_stage *s, const struct json *rl)
{
    struct metric_series reward = series_of(&s->metrics, "reward"), heldout = series_of(&s->metrics, "heldout/reward");
    const struct json *at = json_get(rl, "heldout");
    double before = number_at(json_get(json_get(at, "start"), "sampled"), "reward");
    double after = number_at(json_get(json_get(at, "end"), "sampled"), "reward");
    double best = best_step(s);
    const struct chart_line lines[] = {{"in training", 0, reward.x, reward.y, reward.n},
                                       {"held out", 1, heldout.x, heldout.y, heldout.n}};
    const struct chart_mark marks[] = {{"before", 0, before, 1, true},
                                       {"after", isfinite(best) ? best : number_at(rl, "steps"), after, 1, true}};
    figure_chart(p, "Mean reward, and on held-out prompts (ringed)",
                 &(struct chart){.about = "Mean reward over steps, and on held-out prompts before and after",
                                 .x_name = "step",
                                 .y_name = "reward",
                                 .lines = lines,
                                 .line_count = 2,
                                 .marks = marks,
                                 .mark_count = 2,
                                 .from_zero = true});
    series_release(&reward);
    series_release(&heldout);
}

/* ---- By set of prompts ---- */

enum { SETS_MOST = 8 }; /* lines of a chart */

struct set_names {
    char *list[SETS_MOST];
    i64 count;
};

static void add_name(struct set_names *names, const char *name, size_t length)
{
    bool known = names->count == SETS_MOST;
    for (i64 i = 0; i < names->count; i++)
        known |= strlen(names->list[i]) == length && strncmp(names->list[i], name, length) == 0;
    if (!known)
        names->list[names->count++] = string_format("%.*s", (int)length, name);
}

/* The first sets that have figures, set/NAME/reward. */
static struct set_names sets_of(const struct json_lines *lines)
{
    static const char begin[] = "set/", end[] = "/reward";
    struct set_names names = {.count = 0};
    struct json_iterator at;
    for (i64 i = 0; i < lines->count; i++)
        for (bool more = json_first(&at, lines->list[i]); more; more = json_next(&at, lines->list[i])) {
            size_t length = strlen(at.key), around = strlen(begin) + strlen(end);
            if (length > around && strncmp(at.key, begin, strlen(begin)) == 0 &&
                strcmp(at.key + length - strlen(end), end) == 0)
                add_name(&names, at.key + strlen(begin), length - around);
        }
    return names;
}

static void put_set_figure(struct page *p, const struct run_stage *s, const struct set_names *names, const char *figure,
                           const char *title, const char *unit)
{
    struct metric_series series[SETS_MOST];
    struct chart_line lines[SETS_MOST];
    for (i64 i = 0; i < names->count; i++) {
        char *key = string_format("set/%s/%s", names->list[i], figure);
        series[i] = series_of(&s->metrics, key);
        lines[i] = (struct chart_line){names->list[i], (int)i, series[i].x, series[i].y, series[i].n};
        memory_free(key);
    }
    figure_chart(p, title,
                 &(struct chart){.about = title,
                                 .x_name = "step",
                                 .y_name = unit,
                                 .lines = lines,
                                 .line_count = (int)names->count,
                                 .from_zero = true});
    for (i64 i = 0; i < names->count; i++)
        series_release(&series[i]);
}

/* Of one run. */
static void put_sets(struct page *p, const struct run_stage *s)
{
    struct set_names names = sets_of(&s->metrics);
    if (names.count) {
        put_set_figure(p, s, &names, "reward", "Mean reward in training, by set", "reward");
        put_set_figure(p, s, &names, "length", "Length of answers, by set", "tokens");
        put_set_figure(p, s, &names, "spread", "Share of prompts whose answers differ in reward, by set",
                       "of the set's prompts");
    }
    for (i64 i = 0; i < names.count; i++)
        memory_free(names.list[i]);
}

static void put_training_rewards(struct page *p, const char *stage, const struct run_stage *s, const struct json *rl)
{
    static const struct panel reward = {"reward", "Mean reward in training", "reward", 0, true, false};
    buffer_printf(&p->html, "<div class='charts'>");
    if (p->run_count == 1)
        put_rewards_of_one(p, s, rl);
    else
        figure_panel(p, stage, &reward);
    for (i64 i = 0; i < COUNT_OF(panels); i++)
        figure_panel(p, stage, &panels[i]);
    if (p->run_count == 1)
        put_sets(p, s);
    buffer_printf(&p->html, "</div>");
}

/* ---- Before and after ---- */

/* Where the rewards may come from: training prompts among the held-out ones, an answer that never
 * looks at the prompt, and answers that were right but for their order. */
static void put_origins(struct page *p, const struct json *rl)
{
    const struct json *heldout = json_get(rl, "heldout");
    const struct json *start = json_get(heldout, "start"), *end = json_get(heldout, "end");
    double prompts = number_at(rl, "heldout_prompts"), common = number_at(rl, "trained_on");
    double before = number_at(json_get(start, "sampled"), "reordered");
    double after = number_at(json_get(end, "sampled"), "reordered");
    if (isfinite(common) && common == 0)
        put_note(p, "None of the %.0f held-out prompts is a training prompt.", prompts);
    else if (isfinite(common))
        put_note(p, "%.0f of the %.0f held-out prompts are training prompts too.", common, prompts);
    if (isfinite(number_at(rl, "constant")))
        put_note(
            p, "The most frequent right answer of the training prompts is right for %.1f\u00a0%% of the held-out ones.",
            100 * number_at(rl, "constant"));
    if (isfinite(before) && isfinite(after))
        put_note(p,
                 "%.1f\u00a0%% of the drawn answers before, and %.1f\u00a0%% after, have the characters of the right "
                 "answer in "
                 "another order. Where this share falls as the reward rises, the model learns which of the orders in "
                 "its earlier training data the verifier wants, and not to order.",
                 100 * before, 100 * after);
}

/* Rewards of drawn answers by set of held-out prompts. */
static void put_heldout_sets(struct page *p, const struct json *start, const struct json *end)
{
    static const char *const heads[] = {"set", "reward before", "reward after", "prompts"};
    const struct json *any = start ? start : end;
    struct json_iterator it;
    if (!any)
        return;
    table_open(p, heads, COUNT_OF(heads));
    for (bool more = json_first(&it, any); more; more = json_next(&it, any)) {
        buffer_printf(&p->html, "<tr>");
        cell_words(p, "%s", it.key);
        cell_figure(p, number_at(json_get(start, it.key), "reward"), UNIT_NUMBER, 3);
        cell_figure(p, number_at(json_get(end, it.key), "reward"), UNIT_NUMBER, 3);
        cell_figure(p, number_at(it.value, "prompts"), UNIT_NUMBER, 0);
        buffer_printf(&p->html, "</tr>");
    }
    table_close(p);
}

static void put_scores(struct page *p, const struct json *heldout)
{
    static const char *const heads[] = {"held-out prompts", "reward before", "reward after",       "length before",
                                        "length after",     "prompts",       "other order before", "other order after"};
    static const char *const how[][2] = {{"greedy", "likeliest answer"}, {"sampled", "drawn answer"}};
    const struct json *start = json_get(heldout, "start"), *end = json_get(heldout, "end");
    if (!start && !end)
        return;
    const struct json *any = start ? start : end;
    bool texts = json_get(json_get(any, "sampled"), "reordered") || json_get(json_get(any, "greedy"), "reordered");
    table_open(p, heads, COUNT_OF(heads) - (texts ? 0 : 2));
    for (i64 i = 0; i < COUNT_OF(how); i++) {
        const struct json *before = json_get(start, how[i][0]), *after = json_get(end, how[i][0]);
        buffer_printf(&p->html, "<tr>");
        cell_words(p, "%s", how[i][1]);
        cell_figure(p, number_at(before, "reward"), UNIT_NUMBER, 3);
        cell_figure(p, number_at(after, "reward"), UNIT_NUMBER, 3);
        cell_figure(p, number_at(before, "length"), UNIT_NUMBER, 1);
        cell_figure(p, number_at(after, "length"), UNIT_NUMBER, 1);
        cell_figure(p, number_at(before ? before : after, "prompts"), UNIT_NUMBER, 0);
        if (texts) {
            cell_figure(p, number_at(before, "reordered"), UNIT_SHARE, 1);
            cell_figure(p, number_at(after, "reordered"), UNIT_SHARE, 1);
        }
        buffer_printf(&p->html, "</tr>");
    }
    table_close(p);
    put_heldout_sets(p, json_get(start, "sets"), json_get(end, "sets"));
}

/* Text of a prompt: a string, or the last of a list of messages. */
static const char *prompt_string(const struct json *prompt)
{
    const struct json *last = json_at(prompt, json_count(prompt) - 1);
    return json_kind(prompt) == JSON_STRING ? json_string(prompt, "") : json_string(json_get(last, "content"), "");
}

static void put_answer(struct page *p, const struct json *answer)
{
    buffer_printf(&p->html, "<td class='w'><div class='answer'>");
    html_text(&p->html, json_string(json_get(answer, "answer"), ""));
    buffer_printf(&p->html, "</div></td><td%s>", number_at(answer, "reward") > 0 ? " class='same'" : "");
    if (isfinite(number_at(answer, "reward")))
        buffer_printf(&p->html, "%.3g", number_at(answer, "reward"));
    buffer_printf(&p->html, "</td>");
}

static void put_drawn(struct page *p, const struct run_stage *s, const char *when, const struct json *answer)
{
    const char *about = prompt_string(json_get(answer, "prompt"));
    char *title = string_format("%s: %.2f", when, number_at(answer, "reward"));
    put_titled_medium(p, s, title, json_string(json_get(answer, "file"), NULL), about);
    memory_free(title);
}

/* A medium that was asked for, before and after training, with its rewards. */
static void put_drawing(struct page *p, const struct run_stage *s, const struct json *both, int kind)
{
    (void)kind;
    buffer_printf(&p->html, "<figure class='pair'><div class='two-up'>");
    put_drawn(p, s, "before", json_get(both, "before"));
    put_drawn(p, s, "after", json_get(both, "after"));
    buffer_printf(&p->html, "</div><figcaption>");
    html_text(&p->html, prompt_string(json_get(json_get(both, "after"), "prompt")));
    buffer_printf(&p->html, "</figcaption></figure>");
}

static void put_drawings(struct page *p, const struct run_stage *s, const struct json *before, const struct json *after)
{
    enum { A_ROW = 4 };
    struct json *list = json_array();
    for (i64 i = 0; i < min_i64(json_count(before), json_count(after)); i++) {
        const struct json *then = json_at(before, i), *now = json_at(after, i);
        if (!json_get(then, "file") && !json_get(now, "file"))
            continue;
        struct json *both = json_object();
        json_set(both, "before", json_copy(then));
        json_set(both, "after", json_copy(now));
        json_push(list, both);
    }
    const struct media_set set = {"Held-out prompts: the likeliest answer before and after, with its reward", list};
    put_media_sets(p, s, &set, 1, "media", A_ROW, 0, put_drawing);
    json_free(list);
}

/* True for the answers of a prompt for text. */
static bool is_text(const struct json *answer)
{
    return answer && !json_get(answer, "file");
}

static void put_answers(struct page *p, const struct json *before, const struct json *after)
{
    static const char *const heads[] = {"<prompt", "<right answer", "<before", "reward", "<after", "reward"};
    i64 count = max_i64(json_count(before), json_count(after)), texts = 0;
    for (i64 i = 0; i < count; i++)
        texts += is_text(json_at(before, i)) || is_text(json_at(after, i));
    if (texts == 0)
        return;
    fold_open(p, "%lld held-out %s and their likeliest answers", (long long)texts, plural(texts, "prompt", "prompts"));
    table_open(p, heads, COUNT_OF(heads));
    for (i64 i = 0; i < count; i++) {
        const struct json *one = json_at(after, i) ? json_at(after, i) : json_at(before, i);
        if (!is_text(one))
            continue;
        buffer_printf(&p->html, "<tr><td class='w'><div class='answer'>");
        html_text(&p->html, prompt_string(json_get(one, "prompt")));
        buffer_printf(&p->html, "</div></td><td class='w'><div class='answer'>");
        html_text(&p->html, json_string(json_get(one, "ground_truth"), ""));
        buffer_printf(&p->html, "</div></td>");
        put_answer(p, json_at(before, i));
        put_answer(p, json_at(after, i));
        buffer_printf(&p->html, "</tr>");
    }
    table_close(p);
    fold_close(p);
}

/* ---- Evaluation ---- */

/* The losses of the stage eval: with the sample's own prompt, with another's, and by frequency. */
static void put_evaluated_losses(struct page *p, const struct json *losses)
{
    static const char *const heads[] = {"stream: target", "loss", "95\u00a0% over samples", "after another's prompt",
                                        "by frequency"};
    if (json_count(losses) == 0)
        return;
    table_open(p, heads, COUNT_OF(heads));
    for (i64 i = 0; i < json_count(losses); i++) {
        const struct json *j = json_at(losses, i);
        double loss = number_at(j, "loss"), reach = 1.96 * number_at(j, "error");
        buffer_printf(&p->html, "<tr>");
        cell_words(p, "%s: %s", json_string(json_get(j, "stream"), ""), json_string(json_get(j, "target"), ""));
        buffer_printf(&p->html, "<td><b>%.3f</b></td><td>", loss);
        if (isfinite(reach))
            buffer_printf(&p->html, "%.3f to %.3f", loss - reach, loss + reach);
        buffer_printf(&p->html, "</td>");
        cell_figure(p, number_at(j, "exchanged"), UNIT_NUMBER, 3);
        cell_figure(p, number_at(j, "unigram"), UNIT_NUMBER, 3);
        buffer_printf(&p->html, "</tr>");
    }
    table_close(p);
    for (i64 i = 0; i < json_count(losses); i++)
        if (isfinite(number_at(json_at(losses, i), "bigram")))
            put_note(p, "On text, bigrams of training texts reach %.3f and trigrams %.3f (interpolated Kneser-Ney).",
                     number_at(json_at(losses, i), "bigram"), number_at(json_at(losses, i), "trigram"));
}

static void put_evaluation(struct page *p, const struct run_stage *s)
{
    static const struct {
        const char *key, *name;
        enum unit unit;
        int digits;
    } rows[] = {{"reward", "mean reward", UNIT_NUMBER, 3},
                {"standard_error", "its standard error", UNIT_NUMBER, 3},
                {"bits_per_byte", "bits per byte of text", UNIT_NUMBER, 3},
                {"positions", "positions measured", UNIT_COUNT, 0},
                {"prompts", "prompts answered", UNIT_COUNT, 0}};
    static const char *const heads[] = {"figure", "value"};
    struct json *j = stage_json(s, "eval.json");
    i64 shown = 0;
    group_open(p, "%s: evaluation", s->name);
    for (i64 i = 0; i < COUNT_OF(rows); i++)
        if (isfinite(number_at(j, rows[i].key))) {
            if (shown++ == 0)
                table_open(p, heads, 2);
            buffer_printf(&p->html, "<tr>");
            cell_words(p, "%s", rows[i].name);
            cell_figure(p, number_at(j, rows[i].key), rows[i].unit, rows[i].digits);
            buffer_printf(&p->html, "</tr>");
        }
    if (shown)
        table_close(p);
    put_evaluated_losses(p, json_get(j, "losses"));
    put_long_samples(p, s->name, "eval.json", "not_measured", "not measured");
    group_close(p, s);
    json_free(j);
}

static void put_stage(struct page *p, const char *stage)
{
    const struct run_stage *s = NULL;
    for (i64 r = p->run_count - 1; r >= 0; r--)
        s = run_find(&p->runs[r], stage) ? run_find(&p->runs[r], stage) : s;
    bool rewarded = s && s->metrics.count && json_get(s->metrics.list[0], "reward");
    struct json *rl = s ? stage_json(s, "rl.json") : NULL;
    const struct json *heldout = json_get(rl, "heldout");
    if (rewarded || heldout) {
        group_open(p, "%s: reinforcement learning", stage);
        if (p->run_count == 1) {
            put_scores(p, heldout);
            put_origins(p, rl);
        }
        if (rewarded)
            put_training_rewards(p, stage, s, rl);
        if (p->run_count == 1) {
            const struct json *before = json_get(json_get(heldout, "start"), "answers");
            const struct json *after = json_get(json_get(heldout, "end"), "answers");
            put_drawings(p, s, before, after);
            put_answers(p, before, after);
        }
        group_close(p, s);
    }
    json_free(rl);
    if (s && p->run_count == 1)
        put_evaluation(p, s);
}

void put_rewards(struct page *p)
{
    section_open(p, "rewards", "Rewards", "Rewards come from a verifier that knows the right answer.");
    for (i64 i = 0; i < p->stage_count; i++)
        put_stage(p, p->stages[i]);
    section_close(p);
}
