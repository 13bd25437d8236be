/* The page of a run, from small sample files: present results are shown, missing ones omitted, and
 * no content of a run becomes markup. */
#include "core/json.h"
#include "core/safetensors.h"
#include "report/page.h"
#include "report/report.h"
#include "tests/scratch.h"

#include <math.h>

/* ---- A run made up ---- */

static char *run_folder(const char *name) /* a new folder with a run.json; memory_free */
{
    char *folder = path_join(directory, name), *about = path_join(folder, "run.json");
    succeed(directory_remove(folder));
    succeed(directory_make(folder));
    succeed(file_replace(about, "{\"precision\":\"f32\",\"recipe\":\"r.yaml\"}", 37));
    memory_free(about);
    return folder;
}

static void put(const char *run, const char *stage, const char *name, const char *content)
{
    char *folder = path_join(run, stage), *path = path_join(folder, name);
    succeed(directory_make(folder));
    succeed(file_replace(path, content, (i64)strlen(content)));
    memory_free(folder);
    memory_free(path);
}

static void put_done(const char *run, const char *stage, const char *kind)
{
    char *done =
        string_format("{\"hash\":\"0\",\"identity\":{\"kind\":\"%s\",\"seed\":7,\"settings\":{\"steps\":3}}}", kind);
    put(run, stage, "done.json", done);
    memory_free(done);
}

/* ---- The page ---- */

static bool is_void(const char *tag)
{
    static const char *const names[] = {"meta", "link", "img", "!doctype"};
    for (i64 i = 0; i < COUNT_OF(names); i++)
        if (strcmp(tag, names[i]) == 0)
            return true;
    return false;
}

/* Every element is closed in order. Text contains neither < nor >. */
static void assert_well_formed(const char *html)
{
    char open[64][16];
    i64 depth = 0;
    const char *style = strstr(html, "<style>"), *style_end = strstr(html, "</style>");
    const char *script = strstr(html, "<script>"), *script_end = strstr(html, "</script>");
    for (const char *at = style; at; at = strchr(at + 1, '<')) {
        char tag[16] = "";
        if ((at > style && at < style_end) || (at > script && at < script_end))
            continue;
        sscanf(at + 1, *(at + 1) == '/' ? "/%15[a-z0-9!]" : "%15[a-z0-9!]", tag);
        if (!*tag || is_void(tag) || strcmp(tag, "path") == 0 || strcmp(tag, "rect") == 0 || strcmp(tag, "circle") == 0)
            continue;
        if (at[1] != '/') {
            assert_true(depth < 64);
            strcpy(open[depth++], tag);
        } else if (depth > 0) {
            if (strcmp(open[depth - 1], tag) != 0)
                fail_msg("<%s> is closed by </%s>: %.80s", open[depth - 1], tag, at);
            depth--;
        } else
            assert_true(strcmp(tag, "head") == 0 || strcmp(tag, "html") == 0); /* opened before the style element */
    }
    assert_int_equal(depth, 0);
}

static bool has_word(const char *text, const char *word)
{
    for (const char *at = text; (at = strstr(at, word)) != NULL; at++) {
        bool begins = at == text || strchr(" >'(,;", at[-1]), ends = strchr(" <'),.;%", at[strlen(word)]);
        if (begins && ends)
            return true;
    }
    return false;
}

static struct buffer page_of(const char *const *runs, i64 count)
{
    struct buffer html = {0};
    const char *path = path_of("page.html");
    succeed(report_write(path, runs, count));
    succeed(file_read(&html, path));
    assert_well_formed(html.data);
    const char *body = strstr(html.data, "<body>");
    assert_false(has_word(body, "nan") || has_word(body, "-nan") || has_word(body, "inf") || has_word(body, "(null)"));
    return html;
}

static void shows(const struct buffer *page, const char *words)
{
    if (!strstr(page->data, words))
        fail_msg("the page does not show \"%s\"", words);
}

static void lacks(const struct buffer *page, const char *words)
{
    const char *at = strstr(page->data, words);
    if (at)
        fail_msg("the page holds \"%s\": %.120s", words, at);
}

/* ---- Parts ---- */

static void test_a_run_of_nothing(void **state)
{
    char *run = run_folder("empty");
    (void)state;
    struct buffer page = page_of((const char *const *)&run, 1);
    shows(&page, "Nothing is finished here yet");
    lacks(&page, "<section");
    lacks(&page, "<figure");
    buffer_release(&page);
    memory_free(run);
}

static void test_a_folder_that_is_no_run(void **state)
{
    const char *none = path_of("none");
    (void)state;
    succeed(directory_make(none));
    assert_int_equal(report_write(path_of("page.html"), &none, 1), -1);
    assert_says("no run.json there");
}

static void test_what_was_not_measured_is_not_printed(void **state)
{
    char *run = run_folder("bare"), *timings = path_join(run, "timings.jsonl");
    (void)state;
    put_done(run, "base", "pretrain");
    put(run, "base", "metrics.jsonl",
        "{\"step\":1,\"loss/text\":3}\n{\"step\":2,\"loss/text\":2.5,\"loss/audio\":null}\n{\"st");
    put_done(run, "more", "pretrain");
    const char *lines = "{\"stage\":\"base\",\"kind\":\"pretrain\",\"seconds\":2,\"matrix_peak_gflops\":0}\n"
                        "{\"stage\":\"more\",\"kind\":\"pretrain\",\"seconds\":\"two\"}\n";
    succeed(file_replace(timings, lines, (i64)strlen(lines)));
    struct buffer page = page_of((const char *const *)&run, 1);
    shows(&page, "Loss on text");
    lacks(&page, "Loss on codes of sound");
    lacks(&page, "GFLOP/s");
    lacks(&page, "Share of the matrix peak");
    lacks(&page, "tokens/s");
    lacks(&page, "MiB");
    lacks(&page, "0.0\u00a0s");
    buffer_release(&page);
    memory_free(timings);
    memory_free(run);
}

static void test_time_of_what_was_made_anew(void **state)
{
    char *run = run_folder("anew"), *timings = path_join(run, "timings.jsonl");
    (void)state;
    put_done(run, "base", "pretrain");
    const char *lines = "{\"stage\":\"base\",\"seconds\":1000,\"peak_bytes\":9e9,\"finished\":true}\n"
                        "{\"stage\":\"base\",\"seconds\":20,\"peak_bytes\":3e9}\n"
                        "{\"stage\":\"base\",\"seconds\":22,\"peak_bytes\":2e9,\"finished\":true}\n";
    succeed(file_replace(timings, lines, (i64)strlen(lines)));
    struct buffer page = page_of((const char *const *)&run, 1);
    shows(&page, "42\u00a0s");
    lacks(&page, "17\u00a0min");
    shows(&page, "<td>2.8\u00a0GiB</td>"); /* the most of the calls since it was begun anew */
    buffer_release(&page);
    memory_free(timings);
    memory_free(run);
}

static void test_stages_that_are_not_finished(void **state)
{
    char *run = run_folder("half");
    (void)state;
    put(run, "base.partial", "identity.json", "{\"kind\":\"pretrain\"}");
    put(run, "report.partial", "identity.json", "{\"kind\":\"report\"}"); /* the page being written */
    put(run, "strange", "notes.txt", "no stage");
    struct buffer page = page_of((const char *const *)&run, 1);
    shows(&page, "not finished");
    shows(&page, "Nothing is finished here yet. 1 stage is not finished: base.");
    lacks(&page, ">report<");
    lacks(&page, "strange");
    buffer_release(&page);
    put_done(run, "data", "prepare");
    put(run, "base.partial", "identity.json", "{\"kind\":\"pretrain\",\"settings\":{\"steps\":200}}");
    put(run, "base.partial", "metrics.jsonl", "{\"step\":39,\"loss/text\":3}\n{\"step\":40,\"loss/text\":3}\n");
    page = page_of((const char *const *)&run, 1);
    shows(&page, "No tokenizer and no model is finished yet. 1 stage is not finished: base, at step 40 of 200.");
    buffer_release(&page);
    memory_free(run);
}

/* Metrics of `steps` measured steps of a model of `layers` layers. The load of layer l at step s is
 * 1 + l + s / 4, and each sub-model is 0.02 s above the full model. */
static void put_measured(const char *run, i64 layers, i64 steps)
{
    struct buffer lines = {0};
    put(run, "base.partial", "identity.json", "{\"kind\":\"pretrain\",\"settings\":{\"steps\":200}}");
    for (i64 s = 1; s <= steps; s++) {
        double x = (double)s;
        buffer_printf(&lines, "{\"step\":%lld,\"loss/text\":%.3f,\"heldout/text\":%.3f", (long long)s, 4 - 0.1 * x,
                      4.5 - 0.1 * x);
        for (i64 l = 0; l < layers; l++)
            buffer_printf(&lines,
                          ",\"routing/%lld/load\":%.3f,\"routing/%lld/entropy\":0.9,\"routing/%lld/bias\":0.01,"
                          "\"routing/%lld/overlap/image-in/video-in\":0.33,\"routing/%lld/entropy/text\":0.8,"
                          "\"routing/%lld/entropy/audio\":0.7",
                          (long long)l, 1 + (double)l + 0.25 * x, (long long)l, (long long)l, (long long)l,
                          (long long)l, (long long)l);
        buffer_printf(&lines, ",\"grid/full/text\":4,\"grid/k/2/text\":%.3f,\"grid/<b>/text\":%.3f}\n", 4 + 0.02 * x,
                      4 + 0.02 * x);
    }
    put(run, "base.partial", "metrics.jsonl", lines.data);
    buffer_release(&lines);
}

static void test_what_a_stage_measures_while_it_trains(void **state)
{
    char *run = run_folder("measured");
    (void)state;
    put_measured(run, 3, 4);
    struct buffer page = page_of((const char *const *)&run, 1);
    shows(&page, ">training 3.60<");
    shows(&page, ">held-out 4.10<");
    shows(&page, "not their level");
    shows(&page, "base: the router over steps");
    shows(&page, "Load of the most used expert<");
    shows(&page, ">layer 2<");
    lacks(&page, ">layer 3<");
    shows(&page, "image-in, video-in<");
    lacks(&page, "image-out, video-out<");
    shows(&page, "Most used experts in common, layer 2<");
    shows(&page, "Entropy of a stream&#39;s use of experts, mean of the layers");
    shows(&page, "base: sub-models over steps");
    shows(&page, "<i></i>k/2<");
    shows(&page, "<i></i>&#60;b");
    shows(&page, ">80<"); /* thousandths of a nat */
    buffer_release(&page);
    put_measured(run, 9, 4);
    page = page_of((const char *const *)&run, 1);
    shows(&page, "Load of the most used expert, from 1.25 (faint) to 10 times the mean");
    shows(&page, "fill-opacity='1.000'");
    buffer_release(&page);
    put_measured(run, 9, 300); /* columns of 4 steps each, the last of them 297 to 300 */
    page = page_of((const char *const *)&run, 1);
    shows(&page, "from 1.62 (faint) to 83.6 times the mean");
    buffer_release(&page);
    put(run, "base.partial", "metrics.jsonl", "{\"step\":1,\"loss/text\":3}\n{\"step\":2,\"loss/text\":2}\n");
    page = page_of((const char *const *)&run, 1);
    shows(&page, "Loss on text");
    lacks(&page, "over steps<");
    lacks(&page, "held-out");
    lacks(&page, "Held-out:");
    buffer_release(&page);
    memory_free(run);
}

/* A stage that fails before it writes anything leaves only its time. */
static void test_stages_that_failed_at_once(void **state)
{
    char *run = run_folder("failed"), *timings = path_join(run, "timings.jsonl");
    (void)state;
    put_done(run, "base", "pretrain");
    put(run, "tune.partial", "metrics.jsonl", "{\"step\":3}\n"); /* without an identity */
    put(run, "none", "done.json", "{\"skipped\":\"no media\"}");
    const char *lines = "{\"stage\":\"tune\",\"kind\":\"sft\",\"seconds\":1}\n"
                        "{\"stage\":\"base\",\"kind\":\"pretrain\",\"seconds\":2,\"finished\":true}\n"
                        "{\"stage\":\"gone\",\"kind\":\"grid\",\"seconds\":2,\"finished\":true}\n"
                        "{\"stage\":\"none\",\"kind\":\"eval\",\"seconds\":0}\n"
                        "{\"stage\":\"reward\",\"kind\":\"rl\",\"seconds\":0}\n"
                        "{\"stage\":\"page\",\"kind\":\"report\",\"seconds\":0}\n";
    succeed(file_replace(timings, lines, (i64)strlen(lines)));
    struct buffer page = page_of((const char *const *)&run, 1);
    shows(&page, "2 stages are not finished: tune, at step 3; reward.");
    shows(&page, "<td>reward</td><td class='kind'>rl, <b>not finished</b></td>");
    lacks(&page, "<td>gone</td>");
    lacks(&page, "<td>none</td>");
    lacks(&page, "<td>page</td>");
    buffer_release(&page);
    memory_free(timings);
    memory_free(run);
}

/* Files of every section that are empty, contain null for numbers, or are truncated. */
static void test_damaged_files_leave_their_part_out(void **state)
{
    static const char *const files[] = {"heldout.json", "grid.json",   "rl.json",   "routing.json",
                                        "samples.json", "report.json", "eval.json", "metrics.jsonl"};
    static const char *const contents[] = {
        "",
        "{",
        "[]",
        "{}",
        "null",
        "[{}]",
        "[[],null,1,\"x\"]",
        "{\"start\":[],\"end\":[{}],\"heldout\":{\"start\":{},\"end\":[]},\"layers\":[],\"streams\":[],\"shown\":[]}",
        "{\"end\":[{\"stream\":\"text\",\"target\":\"text\",\"loss\":null}],\"streams\":[\"text\"],\"positions\":{"
        "\"text\":0},"
        "\"layers\":[{\"experts\":[]}],\"stills_held_out\":{\"psnr_db\":null,\"scales\":[],\"sheet\":{\"file\":\"x."
        "png\","
        "\"pairs\":-1,\"rows\":0,\"columns\":0}},\"stills_training\":{\"shapes\":[{},{\"psnr_db\":null,\"sheet\":{}}]},"
        "\"train/image\":{\"shown\":[{}]},\"validation/"
        "audio\":{\"shown\":[{}]},"
        "\"train/image-to-text\":{\"shown\":[{}]},\"text\":[{}],\"reward\":null}"};
    (void)state;
    for (i64 c = 0; c < COUNT_OF(contents); c++) {
        char *run = run_folder("damaged");
        put_done(run, "one", "pretrain");
        for (i64 f = 0; f < COUNT_OF(files); f++)
            put(run, "one", files[f], contents[c]);
        const char *two[] = {run, run};
        struct buffer alone = page_of(two, 1), both = page_of(two, 2);
        shows(&alone, "Settings");
        shows(&both, "2 runs");
        buffer_release(&alone);
        buffer_release(&both);
        memory_free(run);
    }
}

static void test_hostile_words_stay_words(void **state)
{
    static const char bad[] = "<script>alert(1)</script>'\\\" onload='x' &amp; ]]>";
    char *run = run_folder("<img src=x onerror=alert(2)> 'run'"), *text = NULL;
    (void)state;
    text = string_format(
        "{\"text\":[{\"prompt\":\"%s\",\"said\":\"%s\"}],\"%s\":{},\"train/image-to-text\":{\"media\":1,\"exact\":0,"
        "\"shown\":[{\"text\":\"%s\",\"said\":\"%s\",\"original\":\"%s\"}]}}",
        bad, bad, bad, bad, bad, bad);
    put_done(run, "base", "pre<b>train");
    put_done(run, "<i>name", "rl");
    put(run, "base", "samples.json", text);
    memory_free(text);
    text = string_format(
        "{\"heldout\":{\"start\":{\"answers\":[{\"prompt\":\"%s\",\"ground_truth\":\"%s\",\"answer\":\"%s\","
        "\"reward\":1}]}}}",
        bad, bad, bad);
    put(run, "<i>name", "rl.json", text);
    memory_free(text);
    text = string_format("[{\"name\":\"%s\",\"active\":10,\"loss_all\":1}]", bad);
    put(run, "base", "grid.json", text);
    memory_free(text);
    struct buffer page = page_of((const char *const *)&run, 1);
    lacks(&page, "alert(1)</script>");
    lacks(&page, "<img src=x");
    lacks(&page, "<b>train");
    lacks(&page, "<i>name");
    lacks(&page, "' onload='");
    shows(&page, "&#60;script&#62;alert(1)&#60;/script&#62;&#39;&#34; onload=&#39;x&#39; &#38;amp;");
    buffer_release(&page);
    memory_free(run);
}

static void test_no_file_from_outside_comes_in(void **state)
{
    static const char *const names[] = {
        "../secret.png", "../../outside/secret.png", "/etc/hostname", "a/../../secret.png", "..", "", "secret.txt"};
    char *run = run_folder("outside");
    (void)state;
    put_done(run, "base", "generate");
    put(run, ".", "secret.png", "SECRET SECRET SECRET");
    put(run, "base", "secret.txt", "SECRET SECRET SECRET");
    put(run, "base", "inside.png", "INSIDE INSIDE INSIDE");
    for (i64 i = 0; i < COUNT_OF(names); i++) {
        char *text = string_format(
            "{\"train/image\":{\"shown\":[{\"text\":\"x\",\"made\":\"%s\",\"original\":\"inside.png\"}]}}", names[i]);
        put(run, "base", "samples.json", text);
        struct buffer page = page_of((const char *const *)&run, 1);
        shows(&page, "SU5TSURFIElOU0lERSBJTlNJREU="); /* base64 of INSIDE */
        shows(&page, "no output");
        lacks(&page, "U0VDUkVU");
        buffer_release(&page);
        memory_free(text);
    }
    memory_free(run);
}

static void comes_before(const struct buffer *page, const char *first, const char *then)
{
    const char *a = strstr(page->data, first), *b = strstr(page->data, then);
    if (!a || !b || a > b)
        fail_msg("\"%s\" does not come before \"%s\"", first, then);
}

static void test_pictures_come_before_tables(void **state)
{
    char *run = run_folder("pictures");
    (void)state;
    put_done(run, "base", "pretrain");
    put(run, "base", "heldout.json", "{\"parameters\":1000,\"start\":[],\"end\":[]}");
    put_done(run, "samples", "generate");
    put(run, "samples", "own.png", "OWN");
    put(run, "samples", "made.png", "MADE");
    put(run, "samples", "samples.json",
        "{\"test/image\":{\"captions\":4,\"pair\":0.5,\"shown\":[{\"text\":\"a hat\",\"original\":\"own.png\",\"made\":"
        "\"made.png\"},{\"text\":\"lost\",\"original\":\"own.png\"}]},\"test/image-to-text\":{\"media\":4,\"exact\":1,"
        "\"shown\":[{\"text\":\"a cap\",\"said\":\"a mug\",\"original\":\"own.png\"}]}}");
    struct buffer page = page_of((const char *const *)&run, 1);
    comes_before(&page, "<div class='strip'><figure>", "<dl class='tiles'>");
    comes_before(&page, "<dl class='tiles'>", "<table>");
    comes_before(&page, "<div class='two-up'>", "<table>");
    comes_before(&page, "a mug", "word for word</th>");
    comes_before(&page, "id='samples'", "id='stages'");
    shows(&page, "Original above, made from the words below. From captions it never saw, test:");
    lacks(&page, "<figcaption>lost</figcaption></figure></div><dl"); /* the strip has whole pairs alone */
    buffer_release(&page);
    const char *two[] = {run, run};
    page = page_of(two, 2);
    lacks(&page, "<div class='strip'>");
    buffer_release(&page);
    memory_free(run);
}

/* A continuation begins within a word or with its own space, and has its own lines. */
static void test_texts_go_on_where_their_prompt_ends(void **state)
{
    char *run = run_folder("texts");
    (void)state;
    put_done(run, "samples", "generate");
    put(run, "samples", "samples.json",
        "{\"text\":[{\"prompt\":\"el perr\",\"said\":\"o come\"},{\"prompt\":\"Das ist\",\"said\":\" gut\\n-- X\"}]}");
    struct buffer page = page_of((const char *const *)&run, 1);
    shows(&page, "<p class='said answer'><b>el perr</b>o come</p><p class='said answer'><b>Das ist</b> gut\n-- X</p>");
    buffer_release(&page);
    memory_free(run);
}

/* What a column means is said where it is shown, and only there. */
static void test_columns_are_explained(void **state)
{
    char *run = run_folder("columns");
    (void)state;
    put_done(run, "vis", "tokenizer-vision");
    put(run, "vis", "report.json",
        "{\"stills_held_out\":{\"items\":3,\"psnr_db\":19,\"scales\":[{\"entropy_bits\":0.5,\"dead_bits\":2}]}}");
    put_done(run, "aud", "tokenizer-audio");
    put(run, "aud", "report.json",
        "{\"held_out_distance\":{\"log_mel\":0.5},\"held_out\":{\"levels\":[{\"perplexity\":107,\"dead\":56}]}}");
    put_done(run, "samples", "generate");
    put(run, "samples", "samples.json", "{\"test/image\":{\"captions\":4,\"pair\":0.5,\"first\":2}}");
    put_done(run, "base", "pretrain");
    put(run, "base", "metrics.jsonl", "{\"step\":1,\"gflops_per_s\":9}\n");
    struct buffer page = page_of((const char *const *)&run, 1);
    shows(&page, "A bit is dead if more than 99\u00a0% of its values are equal.");
    shows(&page, "<td>log-mel distance on new voices, in nats, all levels</td><td>0.500</td>");
    shows(&page, "<td>codes of level 0 in even use on new voices (56 never used)</td><td>107</td>");
    shows(&page, "as many codes, all used equally often, have the same entropy");
    shows(&page, "Nearest of all counts the outputs to which no original is nearer than their own.");
    shows(&page, "in 10\u2079 a second");
    buffer_release(&page);
    put(run, "vis", "report.json", "{}");
    put(run, "aud", "report.json", "{\"held_out_distance\":{\"log_mel\":0.5}}");
    page = page_of((const char *const *)&run, 1);
    lacks(&page, "dead");
    lacks(&page, "equally often");
    buffer_release(&page);
    memory_free(run);
}

/* What `weft run` prints at the end of a run. */
static struct buffer log_of(const char *run)
{
    struct buffer said = {0};
    fflush(NULL);
    int before = dup(STDERR_FILENO);
    assert_non_null(freopen(path_of("said"), "w", stderr));
    int status = report_log(run, "page.html");
    fflush(stderr);
    assert_int_equal(dup2(before, STDERR_FILENO), STDERR_FILENO);
    close(before);
    succeed(status);
    succeed(file_read(&said, path_of("said")));
    buffer_append(&said, "", 1);
    return said;
}

/* The last model of a run that was trained on conversations is one to chat with. */
static void test_commands_to_try(void **state)
{
    char *run = run_folder("tried");
    (void)state;
    put_done(run, "base", "pretrain");
    struct buffer said = log_of(run);
    char *generate = string_format("try:     weft generate %s/base --prompt ", run);
    char *after = string_format("\n         weft generate %s/base --prompt ", run);
    char *tuned = string_format("try:     weft chat %s/tune\n", run);
    char *rewarded = string_format("try:     weft chat %s/best\n", run);
    shows(&said, generate);
    lacks(&said, "weft chat");
    buffer_release(&said);
    put_done(run, "tune", "sft");
    put(run, "best.partial", "identity.json", "{\"kind\":\"rl\"}"); /* not finished */
    said = log_of(run);
    shows(&said, tuned);
    shows(&said, after);
    buffer_release(&said);
    put_done(run, "best", "rl");
    put(run, ".", "timings.jsonl",
        "{\"stage\":\"base\",\"kind\":\"pretrain\",\"seconds\":1}\n{\"stage\":\"tune\",\"kind\":\"sft\",\"seconds\":1}"
        "\n"
        "{\"stage\":\"best\",\"kind\":\"rl\",\"seconds\":1}\n");
    said = log_of(run);
    shows(&said, rewarded);
    lacks(&said, tuned);
    buffer_release(&said);
    memory_free(run);
    run = run_folder("it's in"); /* a path that a shell would take apart, and a program called by its own */
    put_done(run, "base", "pretrain");
    program_called("../build of mine/weft");
    said = log_of(run);
    program_called("weft");
    char *scratch = path_of("it"),
         *quoted =
             string_format("try:     '../build of mine/weft' generate '%s'\\''s in/base' --prompt Once\n", scratch);
    shows(&said, quoted);
    buffer_release(&said);
    memory_free(quoted);
    memory_free(run);
    run = run_folder("tuned"); /* a model from elsewhere was tuned */
    put_done(run, "tune", "sft");
    memory_free(tuned);
    tuned = string_format("try:     weft chat %s/tune\n", run);
    said = log_of(run);
    shows(&said, tuned);
    lacks(&said, "weft generate");
    buffer_release(&said);
    memory_free(generate);
    memory_free(after);
    memory_free(tuned);
    memory_free(rewarded);
    memory_free(run);
}

static void test_sizes_of_models(void **state)
{
    static const char config[] =
        "{\"num_hidden_layers\":6,\"moe_num_experts\":8,\"moe_k\":3,\"moe_layer_start_index\":0}";
    static const char dense[] = "{\"num_hidden_layers\":5}";
    const float values[12] = {0};
    const struct tensor_source tensor = {.name = "w", .dtype = DTYPE_F32, .rank = 1, .shape = {12}, .data = values};
    char *run = run_folder("sizes"), *folder, *weights;
    (void)state;
    put_done(run, "base", "pretrain");
    put(run, "base", "config.json", config);
    put(run, "base", "heldout.json", "{\"parameters\":2500000}");
    put(run, "tune", "done.json", "{\"identity\":{\"kind\":\"sft\",\"settings\":{\"from\":\"base\"}}}");
    put(run, "tune", "config.json", dense); /* its own model has other sizes */
    put(run, "tune", "metrics.jsonl", "{\"step\":1,\"loss\":1}\n{\"step\":2,\"loss\":1}\n");
    folder = path_join(run, "tune/weft");
    succeed(directory_make(folder));
    for (int k = 0; k < 2; k++) {
        weights = path_join(run, k ? "tune/weft/extra.safetensors" : "tune/model.safetensors");
        succeed(safetensors_save(weights, &tensor, 1, NULL));
        memory_free(weights);
    }
    memory_free(folder);
    put(run, "look", "done.json", "{\"identity\":{\"kind\":\"routing\",\"settings\":{\"from\":\"base\"}}}");
    put(run, "ring", "done.json", "{\"identity\":{\"kind\":\"routing\",\"settings\":{\"from\":\"ring\"}}}");
    put(run, "away", "done.json", "{\"identity\":{\"kind\":\"routing\",\"settings\":{\"from\":\"../x\"}}}");
    struct buffer page = page_of((const char *const *)&run, 1);
    shows(&page, "The model base: 6 layers, 8 experts, top-3, 2.50\u00a0M parameters.");
    shows(&page, "From base: 5 layers, 24 parameters.");
    const char *look = strstr(page.data, "<td>look</td>");
    assert_non_null(look);
    assert_non_null(strstr(look, "6 layers, 8 experts, top-3, 2.50\u00a0M parameters"));
    buffer_release(&page);
    memory_free(run);
}

static void test_speeds_and_parameters_of_both_kinds_of_runs(void **state)
{
    char *run = run_folder("speeds"), *timings = path_join(run, "timings.jsonl");
    (void)state;
    const char *lines = "{\"stage\":\"old\",\"seconds\":2,\"matrix_peak_gflops\":6000,\"finished\":true}\n";
    succeed(file_replace(timings, lines, (i64)strlen(lines)));
    put_done(run, "old", "pretrain");
    put(run, "old", "metrics.jsonl", "{\"step\":1,\"tokens_per_s\":7,\"peak_share\":0.03}\n");
    put(run, "old", "heldout.json", "{\"parameters\":1300}");
    put_done(run, "new", "pretrain");
    put(run, "new", "metrics.jsonl", "{\"step\":1,\"tokens_per_s\":9,\"gflops_per_s\":211,\"product_share\":0.47}\n");
    put(run, "grid", "done.json", "{\"identity\":{\"kind\":\"grid\",\"settings\":{\"from\":\"old\"}}}");
    put(run, "grid", "grid.json",
        "[{\"name\":\"full\",\"parameters\":1200,\"active\":5},{\"name\":\"less\",\"parameters\":700,\"active\":4}]");
    struct buffer page = page_of((const char *const *)&run, 1);
    shows(&page, "<td>180</td>"); /* 3 % of 6000 */
    shows(&page, "<td>211</td><td>47\u00a0%</td>");
    shows(&page, "180\u00a0GFLOP/s");
    shows(&page, "<td>1.30\u00a0k</td>");
    shows(&page, "<td>800</td>"); /* 100 in encoders and heads */
    buffer_release(&page);
    memory_free(timings);
    memory_free(run);
}

static void test_the_full_model_is_marked(void **state)
{
    char *run = run_folder("grid");
    (void)state;
    put_done(run, "grid", "grid");
    put(run, "grid", "grid.json",
        "[{\"name\":\"small\",\"submodel\":{\"layers\":[0],\"experts\":2,\"topk\":1},\"parameters\":100,\"active\":50,"
        "\"loss\":{\"text\":2.5},\"loss_all\":2.5,\"tokens_per_s\":10},{\"name\":\"whole\",\"submodel\":{\"layers\":[0,"
        "1],"
        "\"experts\":4,\"topk\":2},\"parameters\":200,\"active\":120,\"loss\":{\"text\":2},\"loss_all\":2,\"tokens_per_"
        "s\":5,\"streams\":{\"image-out/vision\":0.125,\"<b>/text\":3}}]");
    struct buffer page = page_of((const char *const *)&run, 1);
    shows(&page, "<b>whole</b>");
    shows(&page, ">full</text>");
    shows(&page, "class='r c"); /* ring around a mark */
    shows(&page, "Loss on text");
    lacks(&page, "Loss on codes of sound");
    lacks(&page, "{&#34;"); /* no JSON */
    lacks(&page, "of full");
    shows(&page, "<th>image-out/vision</th>");
    shows(&page, "whole</td><td>0.125</td><td>3.000</td></tr>");
    shows(&page, "small</td><td></td><td></td></tr>"); /* has none */
    lacks(&page, "<b>/text");
    buffer_release(&page);
    put(run, "grid", "grid.json",
        "[{\"name\":\"small\",\"submodel\":{\"layers\":[0],\"experts\":2,\"topk\":1},\"active\":50,\"loss_all\":2.5,"
        "\"tokens_per_s\":10,\"decode\":{\"per_s\":10,\"ratio\":1.5,\"ratio_low\":1.25,\"ratio_high\":1.75},"
        "\"prefill\":{\"per_s\":77,\"ratio\":3.5,\"ratio_low\":3.25,\"ratio_high\":3.75}}]");
    page = page_of((const char *const *)&run, 1);
    shows(&page, "<td>10</td><td>1.50 (1.25\u20131.75)</td><td>77</td><td>3.50 (3.25\u20133.75)</td>");
    buffer_release(&page);
    memory_free(run);
}

static void test_routing_maps_say_what_they_show(void **state)
{
    char *run = run_folder("routing");
    (void)state;
    put_done(run, "look", "routing");
    put(run, "look", "routing.json",
        "{\"streams\":[\"text\",\"image-in\",\"audio\"],\"positions\":{\"text\":10,\"image-in\":0,\"audio\":4},"
        "\"topk\":1,\"experts\":2,"
        "\"layers\":[{\"layer\":3,\"experts\":[0,5],\"streams\":{\"text\":{\"counts\":[10,0],\"entropy\":0},\"audio\":{"
        "\"counts\":[1,3],"
        "\"entropy\":0.8}},\"overlap\":[[1,null,0.25],[null,null,null],[0.25,null,1]]}]}");
    struct buffer page = page_of((const char *const *)&run, 1);
    shows(&page, "Layer 3: who chooses which expert");
    shows(&page, "the colour is the share of the stream&#39;s positions that choose it (top-1 of 2; even use would be "
                 "50.0\u00a0%)");
    shows(&page, "<span>100\u00a0%</span>"); /* text at expert 0 */
    shows(&page, "fill-opacity='0.750'");    /* audio at expert 5 */
    shows(&page, ">0.25</text>");
    shows(&page, ">\u2013</text>");   /* a stream beside itself */
    lacks(&page, ">image-in</text>"); /* without positions */
    buffer_release(&page);
    memory_free(run);
}

static void test_answers_before_and_after(void **state)
{
    char *run = run_folder("rl");
    (void)state;
    put_done(run, "rl", "rl");
    put(run, "rl", "metrics.jsonl", "{\"step\":1,\"reward\":0.25}\n{\"step\":2,\"reward\":0.75}\n");
    put(run, "rl", "rl.json",
        "{\"steps\":2,\"heldout_prompts\":8,\"trained_on\":3,\"constant\":0.25,\"heldout\":{\"start\":{\"sampled\":"
        "{\"reward\":0.125,\"reordered\":0.625},\"answers\":[{\"prompt\":[{\"role\":"
        "\"system\",\"content\":"
        "\"be short\"},{\"role\":\"user\",\"content\":\"sort "
        "21\"}],\"ground_truth\":\"12\",\"answer\":\"21\",\"reward\":0}]},"
        "\"end\":{\"sampled\":{\"reward\":0.875,\"reordered\":0},\"answers\":[{\"prompt\":[{\"role\":\"user\","
        "\"content\":\"sort "
        "21\"}],"
        "\"ground_truth\":\"12\",\"answer\":\"12\",\"reward\":1}]}}}");
    struct buffer page = page_of((const char *const *)&run, 1);
    shows(&page, "0.12 \u2192 </i>0.88"); /* the summary at the top */
    shows(&page, "before, 62\u00a0% of the answers were right but for their order");
    shows(&page, "3 of the 8 held-out prompts are training prompts too.");
    shows(&page, "right for 25.0\u00a0% of the held-out ones");
    shows(&page,
          "62.5\u00a0% of the drawn answers before, and 0.0\u00a0% after, have the characters of the right answer");
    lacks(&page, "never trained on");
    shows(&page, "sort 21</div>");
    shows(&page, "<div class='answer'>21</div></td><td>0</td>");
    shows(&page, "<div class='answer'>12</div></td><td class='same'>1</td>");
    shows(&page, "weft run r.yaml run=");
    shows(&page, " seed=7 rl</code>");
    lacks(&page, "be short");
    lacks(&page, "{&#34;");
    buffer_release(&page);
    memory_free(run);
}

/* The start is above ln 8192 for text, below ln 2 for bits. */
static void test_a_start_above_a_guess_is_shown_beside_it(void **state)
{
    char *run = run_folder("guess");
    (void)state;
    put_done(run, "base", "pretrain");
    put(run, "base", "heldout.json",
        "{\"samples\":9,\"trained_on\":2,\"parameters\":14000000,\"active\":2000000,\"start\":[{\"stream\":\"text\","
        "\"target\":\"text\",\"loss\":11.5},{\"stream\":\"image-out\",\"target\":\"vision\",\"loss\":0.6}],\"end\":["
        "{\"stream\":\"text\",\"target\":\"text\",\"loss\":5,\"unigram\":7,\"uniform\":9.0109},{\"stream\":"
        "\"image-out\",\"target\":\"vision\",\"loss\":0.5,\"unigram\":0.6,\"uniform\":0.6931}]}");
    struct buffer page = page_of((const char *const *)&run, 1);
    shows(&page, "by frequency alone 7.00, by a uniform guess 9.01");
    shows(&page, "<td><b>5.000</b></td><td>7.000</td><td>9.011</td>");
    shows(&page, "2 of the 9 held-out samples are training samples too");
    shows(&page, "with encoders and heads of media");
    put(run, "base", "heldout.json",
        "{\"start\":[{\"stream\":\"text\",\"target\":\"text\",\"loss\":8.5}],\"end\":[{\"stream\":\"text\","
        "\"target\":\"text\",\"loss\":5,\"unigram\":7,\"uniform\":9.0109}]}");
    buffer_release(&page);
    page = page_of((const char *const *)&run, 1);
    shows(&page, "by frequency alone 7.00");
    lacks(&page, "by a uniform guess");
    lacks(&page, "training samples");
    buffer_release(&page);
    memory_free(run);
}

/* Where no held-out sample fits a row, there are no losses to say so. */
static void test_samples_longer_than_a_row_are_named_by_stream(void **state)
{
    char *run = run_folder("long");
    (void)state;
    put_done(run, "base", "pretrain");
    put(run, "base", "metrics.jsonl", "{\"step\":1,\"loss\":1}\n{\"step\":2,\"loss\":1}\n");
    put(run, "base", "heldout.json",
        "{\"start\":[],\"end\":[],\"not_measured\":{\"chat\":4},\"left_out\":{\"image-out\":3,\"chat\":12}}");
    put_done(run, "eval", "eval");
    put(run, "eval", "eval.json", "{\"positions\":9,\"losses\":[],\"not_measured\":{\"audio-in\":2}}");
    struct buffer page = page_of((const char *const *)&run, 1);
    shows(&page, "Samples longer than a row, left out of training: 3 image-out, 12 chat.");
    shows(&page, "Samples longer than a row, not measured: 4 chat.");
    shows(&page, "Samples longer than a row, not measured: 2 audio-in.");
    buffer_release(&page);
    const char *two[] = {run, run};
    page = page_of(two, 2);
    shows(&page, "long (1): samples longer than a row, left out of training: 3 image-out, 12 chat.");
    buffer_release(&page);
    put(run, "base", "heldout.json", "{\"start\":[],\"end\":[]}");
    page = page_of((const char *const *)&run, 1);
    lacks(&page, "left out of training");
    lacks(&page, "id='heldout'");
    buffer_release(&page);
    memory_free(run);
}

static void test_several_runs_have_their_spread(void **state)
{
    static const double losses[] = {1, 3, 5};
    char *runs[3];
    (void)state;
    for (int r = 0; r < 3; r++) {
        char name[8], *heldout = string_format(
                          "{\"end\":[{\"stream\":\"text\",\"target\":\"text\",\"loss\":%g,\"unigram\":6}]}", losses[r]);
        snprintf(name, sizeof name, "run%d", r);
        runs[r] = run_folder(name);
        put_done(runs[r], "base", "pretrain");
        put(runs[r], "base", "heldout.json", heldout);
        put(runs[r], "base", "metrics.jsonl", "{\"step\":1,\"loss/text\":3}\n{\"step\":2,\"loss/text\":2}\n");
        memory_free(heldout);
    }
    put(runs[2], "base", "done.json", "{\"identity\":{\"kind\":\"pretrain\",\"seed\":8,\"settings\":{\"steps\":4}}}");
    struct buffer page = page_of((const char *const *)runs, 3);
    shows(&page, "<td class='w'>held-out loss, text</td><td>3.000</td><td>2.000</td><td>1.000 to 5.000</td>"
                 "<td>1.000</td><td>3.000</td><td>5.000</td>"); /* nothing has a part or a baseline */
    shows(&page, "<title>Weft: 3 runs</title>");
    shows(&page, "What differs between the runs");
    lacks(&page, "Settings of every stage");
    shows(&page, "<td><b>3.000</b></td><td>6.000</td><td>2.000</td>"); /* held out: standard deviation over runs */
    shows(&page, "<td>seed</td><td class='w'>7</td><td class='w'>7</td><td class='w'>8</td>");
    shows(&page, "<td>base.steps</td><td class='w'>3</td><td class='w'>3</td><td class='w'>4</td>");
    for (int r = 0; r < 3; r++) {
        char label[24];
        snprintf(label, sizeof label, ">run%d</text>", r); /* one line per run, labelled at its end */
        shows(&page, label);
        memory_free(runs[r]);
    }
    buffer_release(&page);
}

/* Marks of sub-models have no words beside them: a key says whose they are. Runs with one name get
 * their places. */
static void test_each_of_several_runs_can_be_told(void **state)
{
    char *a = run_folder("a"), *b = run_folder("b"), *c = run_folder("a-name-\u00e9-long-\u00e9t\u00e9-2");
    char *runs[4] = {path_join(a, "out"), path_join(b, "out"), a, c};
    (void)state;
    for (int r = 0; r < 4; r++) {
        put(runs[r], ".", "run.json", "{}");
        put_done(runs[r], "grid", "grid");
        put(runs[r], "grid", "grid.json", "[{\"name\":\"full\",\"active\":5,\"loss_all\":1}]");
        put_done(runs[r], "base", "pretrain");
        put(runs[r], "base", "metrics.jsonl", "{\"step\":1,\"loss/text\":3}\n{\"step\":2,\"loss/text\":2}\n");
        put(runs[r], "base", "heldout.json", "{\"parameters\":1000000}");
    }
    put(runs[0], "base", "heldout.json",
        "{\"parameters\":1000000,\"end\":[{\"stream\":\"text\",\"target\":\"text\",\"loss\":2}]}");
    struct buffer page = page_of((const char *const *)runs, 4);
    shows(&page, "<span class='c0'><i></i>out (1)</span><span class='c1'><i></i>out (2)</span>"
                 "<span class='c2'><i></i>a</span>");
    shows(&page, "nats a token of held-out texts; of a single run<");
    shows(&page, ">out (1)</text>");
    shows(&page, ">..-long-\u00e9t\u00e9-2</text>");
    shows(&page, "<th>out (2)</th>");
    shows(&page, "the same in 4 runs<"); /* parameters */
    lacks(&page, "1.00\u00a0M to");
    lacks(&page, "numbers are those of the table");
    buffer_release(&page);
    page = page_of((const char *const *)runs, 1);
    lacks(&page, "out (1)");
    lacks(&page, "<i></i>");
    shows(&page, "numbers are those of the table");
    buffer_release(&page);
    memory_free(runs[0]);
    memory_free(runs[1]);
    memory_free(a);
    memory_free(b);
    memory_free(c);
}

/* Squares of these losses differ by less than a double shows. */
static void test_a_small_spread_of_large_losses_is_kept(void **state)
{
    char *runs[3];
    (void)state;
    for (int r = 0; r < 3; r++) {
        char name[8],
            *heldout = string_format("{\"end\":[{\"stream\":\"text\",\"target\":\"text\",\"loss\":%d,\"unigram\":6}]}",
                                     1000000001 + 2 * r);
        snprintf(name, sizeof name, "far%d", r);
        runs[r] = run_folder(name);
        put_done(runs[r], "base", "pretrain");
        put(runs[r], "base", "heldout.json", heldout);
        memory_free(heldout);
    }
    struct buffer page = page_of((const char *const *)runs, 3);
    shows(&page, "</b></td><td>6.000</td><td>2.000</td>");
    for (int r = 0; r < 3; r++)
        memory_free(runs[r]);
    buffer_release(&page);
}

/* ---- Charts and numbers ---- */

static i64 count_of(const char *text, const char *word)
{
    i64 n = 0;
    for (const char *at = text; (at = strstr(at, word)) != NULL; at++)
        n++;
    return n;
}

static void test_charts_leave_out_what_is_not_finite(void **state)
{
    const struct chart_mark marks[] = {{"a", 1, NAN, 0, false}, {"b", INFINITY, 2, 0, false}, {"c", 3, 4, 1, true}};
    struct buffer svg = {0};
    (void)state;
    assert_false(
        chart_draw(&svg, &(struct chart){.about = "", .x_name = "", .y_name = "", .marks = marks, .mark_count = 2}));
    assert_int_equal(svg.length, 0);
    assert_true(
        chart_draw(&svg, &(struct chart){.about = "", .x_name = "", .y_name = "", .marks = marks, .mark_count = 3}));
    assert_int_equal(count_of(svg.data, "<circle"), 2); /* a mark and its ring */
    assert_null(strstr(svg.data, "nan"));
    buffer_clear(&svg);
    assert_false(chart_ranges(&svg, "", "", &(struct chart_range){"x", NAN, NAN, NAN, 0}, 1));
    assert_true(chart_ranges(&svg, "", "", &(struct chart_range){"x", NAN, 2, NAN, 0}, 1));
    assert_null(strstr(svg.data, "nan"));
    buffer_release(&svg);
}

/* Neighbouring ticks have different labels, at every magnitude. */
static void test_ticks_differ(void **state)
{
    static const double centres[] = {0, 12.55, 0.6854, 1e-7, 123456, 2.3e9, -5};
    static const double widths[] = {1, 0.02, 0.0005, 3e-8, 40, 1e8, 1e-3};
    (void)state;
    for (i64 i = 0; i < COUNT_OF(centres); i++) {
        double x[] = {1, 2}, y[] = {centres[i], centres[i] + widths[i]};
        const struct chart_line line = {"", 0, x, y, 2};
        struct buffer svg = {0};
        char before[32] = "";
        i64 ticks = 0;
        chart_draw(&svg, &(struct chart){.about = "", .x_name = "", .y_name = "", .lines = &line, .line_count = 1});
        for (const char *at = svg.data; (at = strstr(at, "class='e'>")) != NULL; at++, ticks++) {
            char tick[32];
            assert_int_equal(sscanf(at, "class='e'>%31[^<]", tick), 1);
            assert_string_not_equal(tick, before);
            strcpy(before, tick);
        }
        assert_in_range(ticks, 2, 12);
        buffer_release(&svg);
    }
}

/* Thousands on one axis are all in thousands. */
static void test_ticks_of_an_axis_have_one_unit(void **state)
{
    const double x[] = {1, 2}, y[] = {0, 11900};
    const struct chart_line line = {"", 0, x, y, 2};
    struct buffer svg = {0};
    (void)state;
    chart_draw(&svg, &(struct chart){.about = "", .x_name = "", .y_name = "", .lines = &line, .line_count = 1});
    assert_non_null(strstr(svg.data, ">2\u00a0k</text>"));
    assert_non_null(strstr(svg.data, ">10\u00a0k</text>"));
    assert_null(strstr(svg.data, ">2000</text>"));
    buffer_release(&svg);
}

/* The ring of the least mark does not touch the axis. */
static void test_marks_stay_off_the_axis(void **state)
{
    const struct chart_mark marks[] = {{"a", 1, 2, 0, false}, {"b", 2, 1, 0, true}};
    struct buffer svg = {0};
    double axis = NAN, centre = NAN;
    (void)state;
    chart_draw(&svg, &(struct chart){.about = "", .x_name = "", .y_name = "", .marks = marks, .mark_count = 2});
    assert_int_equal(sscanf(strstr(svg.data, "class='k' d='M"), "class='k' d='M%*f %lf", &axis), 1);
    assert_int_equal(sscanf(strstr(strstr(svg.data, "class='r c0'"), "cy='"), "cy='%lf", &centre), 1);
    assert_true(centre + 8 + 4 < axis);
    buffer_release(&svg);
}

/* Points a little outside of the means' range are inside of the frame, below the name of the axis. */
static void test_bands_are_inside_of_the_frame(void **state)
{
    enum { N = 1008, TOP = 26 }; /* bins of 9 points */
    double x[N], y[N], least = INFINITY;
    const struct chart_line line = {"end", 0, x, y, N};
    struct buffer svg = {0};
    (void)state;
    for (i64 i = 0; i < N; i++) {
        x[i] = (double)i;
        y[i] = (double)i / N + (i % 2 ? 0.15 : -0.15);
    }
    chart_draw(&svg, &(struct chart){.about = "", .x_name = "", .y_name = "", .lines = &line, .line_count = 1});
    const char *band = strstr(svg.data, "class='b c0'"), *end = strstr(band, "Z'/>");
    for (const char *at = band; at < end; at++) {
        double height;
        if ((*at == 'L' || *at == 'M') && sscanf(at + 1, "%*f %lf", &height) == 1)
            least = fmin(least, height);
    }
    assert_true(least >= TOP);
    buffer_release(&svg);
}

static void test_last_values_have_three_digits(void **state)
{
    char *run = run_folder("digits");
    (void)state;
    put_done(run, "vis", "tokenizer-vision");
    put(run, "vis", "metrics.jsonl",
        "{\"step\":1,\"stills/psnr_db\":20.04,\"grad_norm\":0,\"product_share\":0.0123,\"peak_share\":0.123,"
        "\"pictures_per_s\":12345,\"stills/loss\":1.5}\n");
    struct buffer page = page_of((const char *const *)&run, 1);
    shows(&page, ">20.0</text>");
    shows(&page, ">1.50</text>");
    shows(&page, ">0</text>");
    shows(&page, ">1.2\u00a0%</text>");
    shows(&page, ">12\u00a0%</text>");
    shows(&page, ">12.3\u00a0k</text>");
    buffer_release(&page);
    memory_free(run);
}

static void test_long_lines_become_means_with_a_band(void **state)
{
    enum { N = 10000 };
    double *x = memory_alloc(N * 8), *y = memory_alloc(N * 8);
    struct buffer svg = {0};
    (void)state;
    for (i64 i = 0; i < N; i++) {
        x[i] = (double)i;
        y[i] = i % 2 ? 1 : -1;
    }
    const struct chart_line line = {"end", 0, x, y, N};
    assert_true(
        chart_draw(&svg, &(struct chart){.about = "", .x_name = "", .y_name = "", .lines = &line, .line_count = 1}));
    assert_true(svg.length < 12000);
    assert_non_null(strstr(svg.data, "class='b c0'"));
    double top = NAN, bottom = NAN;
    const char *band = strstr(svg.data, "class='b c0' d='"), *last = strstr(band, "Z'/>");
    while (*last != 'L')
        last--;
    assert_int_equal(sscanf(strchr(band, 'M'), "M%*f %lf", &top), 1);
    assert_int_equal(sscanf(last, "L%*f %lf", &bottom), 1);
    assert_true(bottom - top > 140); /* minimum and maximum are 156 apart */
    assert_non_null(strstr(svg.data, ">end</text>"));
    buffer_release(&svg);
    memory_free(x);
    memory_free(y);
}

static void test_figures_are_told_in_their_units(void **state)
{
    static const struct {
        double value;
        enum unit unit;
        int digits;
        const char *told;
    } rows[] = {{14950000, UNIT_COUNT, 0, "14.9\u00a0M"},
                {999.7, UNIT_COUNT, 0, "1000"},
                {12, UNIT_COUNT, 0, "12"},
                {1184632832, UNIT_BYTES, 0, "1.1\u00a0GiB"},
                {406929408, UNIT_BYTES, 0, "388\u00a0MiB"},
                {0.26, UNIT_SECONDS, 0, "0.3\u00a0s"},
                {490.2, UNIT_SECONDS, 0, "8\u00a0min 10\u00a0s"},
                {59.7, UNIT_SECONDS, 0, "1\u00a0min 0\u00a0s"},
                {7322, UNIT_SECONDS, 0, "2\u00a0h 2\u00a0min"},
                {0.753, UNIT_SHARE, 0, "75\u00a0%"},
                {NAN, UNIT_NUMBER, 2, "\u2013"},
                {INFINITY, UNIT_BYTES, 0, "\u2013"},
                {20.4549, UNIT_DECIBEL, 1, "20.5\u00a0dB"},
                {-0.5, UNIT_NUMBER, 3, "-0.500"}};
    struct buffer told = {0};
    (void)state;
    for (i64 i = 0; i < COUNT_OF(rows); i++) {
        buffer_clear(&told);
        put_figure(&told, rows[i].value, rows[i].unit, rows[i].digits);
        assert_string_equal(told.data, rows[i].told);
    }
    buffer_release(&told);
}

/* 5 of 20 samples were dropped. */
static void test_shares_of_curation_are_of_all_samples(void **state)
{
    char *run = run_folder("curated");
    (void)state;
    put_done(run, "data", "prepare");
    put(run, "data", "curation.json",
        "{\"samples\":20,\"kept\":15,\"rules\":[{\"rule\":\"short\",\"count\":5,\"examples\":[]}]}");
    struct buffer page = page_of((const char *const *)&run, 1);
    shows(&page, "15 of 20 samples kept");
    shows(&page, "<td>25.0\u00a0%</td>");
    buffer_release(&page);
    memory_free(run);
}

static void test_medians_stand_in_the_middle(void **state)
{
    double x[5] = {0}, y[5] = {1, 100, 3, 2, 4};
    (void)state;
    assert_true(series_median(&(struct metric_series){x, y, 5}) == 3);
    assert_true(series_median(&(struct metric_series){x, y, 4}) == 2.5);
    assert_true(series_median(&(struct metric_series){x, y, 1}) == 1);
    assert_true(isnan(series_median(&(struct metric_series){x, y, 0})));
}

static void test_commands_are_quoted_for_a_shell(void **state)
{
    static const char *const words[][2] = {
        {"out/quickstart", "out/quickstart"}, {"my run", "'my run'"}, {"it's", "'it'\\''s'"}, {"", "''"},
        {"$(rm -r x)", "'$(rm -r x)'"},       {"a;b", "'a;b'"}};
    struct buffer told = {0};
    (void)state;
    for (i64 i = 0; i < COUNT_OF(words); i++) {
        buffer_clear(&told);
        shell_word(&told, words[i][0]);
        assert_string_equal(told.data, words[i][1]);
    }
    buffer_release(&told);
}

/* Each shape has its PSNR and its sheet, with cells in the shape's proportions. */
static void shapes_of_pictures_are_shown_each(void **state)
{
    (void)state;
    char *run = run_folder("shapes");
    put_done(run, "vis", "tokenizer-vision");
    put(run, "vis", "report.json",
        "{\"stills_held_out\":{\"items\":3,\"psnr_db\":19,\"scales\":[],\"shapes\":["
        "{\"shape\":\"80x48\",\"items\":2,\"psnr_db\":19.25,\"sheet\":{\"file\":\"samples/"
        "a.png\",\"pairs\":2,\"frames\":1,"
        "\"rows\":1,\"columns\":16,\"height\":48,\"width\":80}},"
        "{\"shape\":\"64x64\",\"items\":1,\"psnr_db\":null,\"sheet\":{\"file\":\"samples/"
        "a.png\",\"pairs\":1,\"frames\":1,"
        "\"rows\":1,\"columns\":16}}]},"
        "\"clips_held_out\":{\"items\":1,\"psnr_db\":18,\"scales\":[],\"sheet\":{\"file\":\"samples/"
        "a.png\",\"pairs\":1,"
        "\"frames\":9,\"rate_hz\":4,\"rows\":2,\"columns\":9}},"
        "\"clips_training\":{\"items\":1,\"psnr_db\":18,\"scales\":[],\"sheet\":{\"file\":\"samples/"
        "a.png\",\"pairs\":1,"
        "\"frames\":9,\"rate_hz\":0,\"rows\":2,\"columns\":9}}}");
    put(run, "vis/samples", "a.png", "a picture");
    const char *one[] = {run};
    struct buffer page = page_of(one, 1);
    assert_well_formed(page.data);
    assert_non_null(strstr(page.data, "Pictures it never saw, 80x48: 19.25\u00a0dB<"));
    assert_non_null(strstr(page.data, "Pictures it never saw, 64x64<"));
    assert_non_null(strstr(page.data, ".sheet .s0{aspect-ratio:80/48}"));
    assert_non_null(strstr(page.data, ".sheet .s1{aspect-ratio:1/1}"));
    /* 9 frames at 4 a second; and at 8, which clips without a rate are played at */
    assert_non_null(strstr(page.data, "class='s2' style='background-position:0.000% 0.000%;animation:play 2.250s"));
    assert_non_null(strstr(page.data, "class='s2' style='background-position:0.000% 100.000%;animation:play 2.250s"));
    assert_non_null(strstr(page.data, "class='s3' style='background-position:0.000% 0.000%;animation:play 1.125s"));
    buffer_release(&page);
    memory_free(run);
}

/* ---- Samples ---- */

static void put_samples_of(const char *run, double pair)
{
    char *text = string_format(
        "{\"test/image\":{\"captions\":75,\"pair\":%g,\"pair_low\":0.801,\"pair_high\":0.883,\"first\":17,"
        "\"retrieval\":0.818,\"shown\":[{\"text\":\"from test\"}]},"
        "\"validation/image\":{\"captions\":70,\"pair\":0.7,\"shown\":[{\"text\":\"from validation\"}]},"
        "\"test/audio\":{\"captions\":60,\"pair\":0.881,\"first\":22,\"retrieval\":0.6,\"length\":0.805,"
        "\"aligned\":{\"pair\":0.857,\"retrieval\":0.612,\"length\":0.5},\"shown\":[]},"
        "\"test/video-to-text\":{\"media\":40,\"exact\":10,\"words\":0.451,\"words_low\":0.41,\"words_high\":0.52,"
        "\"words_exchanged\":0.31,\"words_fixed\":0.428,\"words_fixed_answer\":\"the <b> moves\",\"classes\":["
        "{\"words\":[\"left\",\"<right>\"],\"media\":23,\"right\":0.348,\"low\":0.13,\"high\":0.52,\"fixed\":0.174},"
        "{\"words\":[\"a\",\"b\",\"c\",\"d\",\"e\",\"f\"],\"media\":6,\"right\":0,\"low\":0,\"high\":0,\"fixed\":0},"
        "{\"words\":[\"a\",\"b\",\"c\",\"d\",\"e\",\"f\",\"g\"],\"media\":7,\"right\":0,\"low\":0,\"high\":0,\"fixed\":"
        "0},"
        "{\"words\":[],\"media\":40,\"right\":0.04,\"low\":0,\"high\":0.1,\"fixed\":0.03}],\"shown\":[]}}",
        pair);
    put_done(run, "samples", "generate");
    put(run, "samples", "samples.json", text);
    memory_free(text);
}

/* 10 of 40: (0.25 + 0.048 -+ 1.96 sqrt(0.1875 / 40 + 0.0006)) / 1.096. */
static void test_shares_stand_beside_part_baseline_and_error(void **state)
{
    char *run = run_folder("samples");
    (void)state;
    put_samples_of(run, 0.842);
    struct buffer page = page_of((const char *const *)&run, 1);
    shows(&page, "on test (95\u00a0%: 80 to 88\u00a0%); training pictures of the nearest captions 82\u00a0%; chance is "
                 "50\u00a0%");
    shows(&page, "<td class='w'>test</td><td>75</td><td>84.2\u00a0%</td><td>80 to 88\u00a0%</td><td>81.8\u00a0%</td>"
                 "<td>50\u00a0%</td><td>17</td>");
    shows(&page, "<td class='w'>validation</td><td>70</td><td>70.0\u00a0%</td><td></td><td></td>");
    shows(&page, "<td class='w'>test, at equal length</td><td>60</td><td>85.7\u00a0%</td><td></td><td>61.2\u00a0%</td>"
                 "<td>50.0\u00a0%</td>");
    shows(&page, "<td class='w'>test, as it sounds</td><td>60</td><td>88.1\u00a0%</td><td></td><td>60.0\u00a0%</td>"
                 "<td>80.5\u00a0%</td>");
    shows(&page, "<td>10</td><td>14 to 40\u00a0%</td><td>45.1\u00a0%</td><td>41 to 52\u00a0%</td><td>42.8\u00a0%</td>"
                 "<td>31.0\u00a0%</td>");
    shows(&page, "left, &#60;right&#62;</td><td>23</td><td>35\u00a0%</td><td>13 to 52\u00a0%</td><td>17\u00a0%</td>");
    shows(&page, "rarer words</td><td>40</td><td>4\u00a0%</td>");
    shows(&page, "<td class='w'>a, b, c, d, e, f</td><td>6</td>"); /* the first 6 words, and a mark of more */
    shows(&page, "<td class='w'>a, b, c, d, e, f, ..</td><td>7</td>");
    shows(&page, "One seed");
    shows(&page, "from test");
    lacks(&page, "from validation"); /* its samples give way to those of test */
    buffer_release(&page);
    memory_free(run);
}

static void says(const struct buffer *text, const char *line)
{
    if (!strstr(text->data, line))
        fail_msg("no \"%s\" in:\n%s", line, text->data);
}

static void test_figures_of_several_runs_are_a_markdown_table(void **state)
{
    static const double pairs[] = {0.8, 0.9, 0.85}, losses[] = {1, 3, 5};
    char *runs[3];
    struct buffer table = {0};
    (void)state;
    for (int r = 0; r < 3; r++) {
        char name[8];
        snprintf(name, sizeof name, "table%d", r);
        runs[r] = run_folder(name);
        char *text =
            string_format("{\"parameters\":%d,\"start\":[{\"stream\":\"text\",\"target\":\"text\",\"loss\":8}],"
                          "\"end\":[{\"stream\":\"text\",\"target\":\"text\",\"loss\":%g,\"unigram\":6}]}",
                          100 + r, losses[r]);
        put_done(runs[r], "base", "pretrain");
        put(runs[r], "base", "heldout.json", text);
        put(runs[r], "half", "done.json", "{\"identity\":{\"kind\":\"extract\",\"settings\":{\"from\":\"base\"}}}");
        put(runs[r], "more", "done.json", "{\"identity\":{\"kind\":\"pretrain\",\"settings\":{\"from\":\"half\"}}}");
        put(runs[r], "more", "heldout.json", "{\"parameters\":50}");
        put_done(runs[r], "aud", "tokenizer-audio");
        put(runs[r], "aud", "report.json", "{\"held_out_distance\":{\"log_mel\":0.54,\"log_mel_mean_spectrum\":1.53}}");
        put_samples_of(runs[r], pairs[r]);
        put_done(runs[r], "r|l", "rl");
        put(runs[r], "r|l", "rl.json",
            "{\"heldout\":{\"start\":{\"sampled\":{\"reward\":0.25}},\"end\":{\"sampled\":{\"reward\":0.875}}}}");
        memory_free(text);
    }
    succeed(report_markdown(&table, (const char *const *)runs, 3));
    says(&table, "| mean (lowest to highest) |\n|---|");
    says(&table, "| base | held-out loss, text: text | validation | 8.00 | 6.00 | 3.00 (1.00 to 5.00) |\n");
    says(&table, "| samples | pictures from words nearer to their own, test | test |  | 81.8\u00a0% | 85.0\u00a0% "
                 "(80.0\u00a0% to 90.0\u00a0%) |\n");
    says(&table, "| samples | speech from words nearer to its own by length and sound, test | test |  | 80.5\u00a0% | "
                 "88.1\u00a0%");
    says(&table, "| samples | speech from words nearer to its own at equal length, test | test |  | 61.2\u00a0% |");
    says(&table, "| samples | test/video-to-text, words right | test |  | 42.8\u00a0% | 45.1\u00a0%");
    says(&table, "| samples | test/video-to-text, word for word | test |  |  | 25.0\u00a0%");
    says(&table, "| aud | log-mel distance of new sounds | validation |  | 1.530 | 0.540 (0.540 to 0.540) |\n");
    says(&table,
         "| more | parameters of half, of those of base |  |  |  | 49.5\u00a0% (49.0\u00a0% to 50.0\u00a0%) |\n");
    says(&table, "| r\\|l | reward, sampled answers | held-out prompts | 0.25 |  | 0.88 (0.88 to 0.88) |\n");
    buffer_clear(&table);
    succeed(report_markdown(&table, (const char *const *)runs, 1));
    says(&table, "| 80.0\u00a0% (95 %: 80.1\u00a0% to 88.3\u00a0%) |\n");
    says(&table, "| held-out loss, text: text | validation | 8.00 | 6.00 | 1.00 |\n");
    buffer_release(&table);
    struct buffer page = page_of((const char *const *)runs, 3);
    shows(&page, "<td class='w'>pictures from words nearer to their own</td><td class='kind'>test</td>"
                 "<td>81.8\u00a0%</td><td>85.0\u00a0%</td><td>5.0\u00a0%</td><td>80.0\u00a0% to 90.0\u00a0%</td>");
    shows(&page, "<td class='w'>video-to-text, words right</td><td class='kind'>test</td>");
    shows(&page, "<td class='w'>log-mel distance of new sounds</td><td class='kind'>validation</td><td>1.530</td>"
                 "<td>0.540</td><td>0.000</td><td>0.540</td>"); /* the least is the most */
    buffer_release(&page);
    for (int r = 0; r < 3; r++)
        memory_free(runs[r]);
}

/* 12 s waited in 104 s, 4 s of them before the first step: 8 of 100 s. Greedy answers grow from 3 to 5 ids. */
static void test_waits_and_lengths_are_those_measured(void **state)
{
    char *run = run_folder("waits");
    (void)state;
    put_done(run, "base", "pretrain");
    put(run, "base", "waiting.json", "{\"waited_s\":12,\"first_s\":4,\"seconds\":104,\"restarts\":2}");
    put_done(run, "rl", "rl");
    put(run, "rl", "rl.json",
        "{\"heldout\":{\"start\":{\"greedy\":{\"reward\":0.25,\"reordered\":0.125,\"length\":3,\"prompts\":8}},"
        "\"end\":{\"greedy\":{\"reward\":0.75,\"reordered\":0.0625,\"length\":5,\"prompts\":8}}}}");
    struct buffer page = page_of((const char *const *)&run, 1);
    shows(&page, "Waiting for data: 8.0\u00a0% of the steps&#39; time (8.0 s), and 4.0 s before the first.");
    shows(&page, "restarted 2 times");
    shows(&page,
          "<td>0.250</td><td>0.750</td><td>12.5\u00a0%</td><td>6.2\u00a0%</td><td>3.0</td><td>5.0</td><td>8</td>");
    buffer_release(&page);
    memory_free(run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapes_of_pictures_are_shown_each),
        cmocka_unit_test(test_a_run_of_nothing),
        cmocka_unit_test(test_a_folder_that_is_no_run),
        cmocka_unit_test(test_what_was_not_measured_is_not_printed),
        cmocka_unit_test(test_time_of_what_was_made_anew),
        cmocka_unit_test(test_stages_that_are_not_finished),
        cmocka_unit_test(test_what_a_stage_measures_while_it_trains),
        cmocka_unit_test(test_stages_that_failed_at_once),
        cmocka_unit_test(test_damaged_files_leave_their_part_out),
        cmocka_unit_test(test_hostile_words_stay_words),
        cmocka_unit_test(test_no_file_from_outside_comes_in),
        cmocka_unit_test(test_pictures_come_before_tables),
        cmocka_unit_test(test_texts_go_on_where_their_prompt_ends),
        cmocka_unit_test(test_columns_are_explained),
        cmocka_unit_test(test_commands_to_try),
        cmocka_unit_test(test_sizes_of_models),
        cmocka_unit_test(test_speeds_and_parameters_of_both_kinds_of_runs),
        cmocka_unit_test(test_the_full_model_is_marked),
        cmocka_unit_test(test_routing_maps_say_what_they_show),
        cmocka_unit_test(test_answers_before_and_after),
        cmocka_unit_test(test_a_start_above_a_guess_is_shown_beside_it),
        cmocka_unit_test(test_samples_longer_than_a_row_are_named_by_stream),
        cmocka_unit_test(test_several_runs_have_their_spread),
        cmocka_unit_test(test_each_of_several_runs_can_be_told),
        cmocka_unit_test(test_a_small_spread_of_large_losses_is_kept),
        cmocka_unit_test(test_charts_leave_out_what_is_not_finite),
        cmocka_unit_test(test_ticks_differ),
        cmocka_unit_test(test_ticks_of_an_axis_have_one_unit),
        cmocka_unit_test(test_marks_stay_off_the_axis),
        cmocka_unit_test(test_bands_are_inside_of_the_frame),
        cmocka_unit_test(test_last_values_have_three_digits),
        cmocka_unit_test(test_long_lines_become_means_with_a_band),
        cmocka_unit_test(test_figures_are_told_in_their_units),
        cmocka_unit_test(test_shares_of_curation_are_of_all_samples),
        cmocka_unit_test(test_medians_stand_in_the_middle),
        cmocka_unit_test(test_commands_are_quoted_for_a_shell),
        cmocka_unit_test(test_shares_stand_beside_part_baseline_and_error),
        cmocka_unit_test(test_figures_of_several_runs_are_a_markdown_table),
        cmocka_unit_test(test_waits_and_lengths_are_those_measured),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
