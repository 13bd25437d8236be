/* The page of a run, from small sample files: present results are shown, missing ones omitted, and
 * no content of a run becomes markup. */
#include "core/processes.h"
#include "tests/report_fixture.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* ---- Parts ---- */

TEST(test_a_run_of_nothing)
{
    char *run = run_folder("empty");
    struct buffer page = page_of((const char *const *)&run, 1);
    shows(&page, "Nothing is finished here yet");
    lacks(&page, "<section");
    lacks(&page, "<figure");
    buffer_release(&page);
    memory_free(run);
}

TEST(test_a_folder_that_is_no_run)
{
    const char *none = path_of("none");
    succeed(directory_make(none));
    assert_int_equal(report_write(path_of("page.html"), &none, 1), -1);
    assert_says("no run.json there");
}

TEST(test_what_was_not_measured_is_not_printed)
{
    char *run = run_folder("bare"), *timings = path_join(run, "timings.jsonl");
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

TEST(test_time_of_what_was_made_anew)
{
    char *run = run_folder("anew"), *timings = path_join(run, "timings.jsonl");
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

TEST(test_stages_that_are_not_finished)
{
    char *run = run_folder("half");
    put(run, "base.partial", "identity.json", "{\"kind\":\"pretrain\"}");
    put(run, "report.partial", "identity.json", "{\"kind\":\"report\"}"); /* the page being written */
    put(run, "strange", "notes.txt", "no stage");
    struct buffer page = page_of((const char *const *)&run, 1);
    shows(&page, "Nothing is finished here yet.");
    shows(&page, "<p class='state'>base is not finished.</p>");
    shows(&page, "pretrain, <b>not finished</b></td>");
    lacks(&page, ">report<");
    lacks(&page, "strange");
    buffer_release(&page);
    put_done(run, "data", "prepare");
    put(run, "base.partial", "identity.json", "{\"kind\":\"pretrain\",\"settings\":{\"steps\":200}}");
    put(run, "base.partial", "metrics.jsonl", "{\"step\":39,\"loss/text\":3}\n{\"step\":40,\"loss/text\":3}\n");
    page = page_of((const char *const *)&run, 1);
    shows(&page, "No tokenizer and no model is finished yet.");
    shows(&page, "<p class='state'>base is not finished, at step 40 of 200.</p>");
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

TEST(test_what_a_stage_measures_while_it_trains)
{
    char *run = run_folder("measured");
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

/* A tokenizer's use of its code, of a run that goes on: charts with a line for each scale or level. */
TEST(test_use_of_a_code_over_steps)
{
    char *run = run_folder("use");
    put(run, "vis.partial", "identity.json", "{\"kind\":\"tokenizer-vision\",\"settings\":{\"steps\":200}}");
    put(run, "vis.partial", "metrics.jsonl",
        "{\"step\":1,\"stills/loss\":3}\n"
        "{\"step\":2,\"stills/loss\":2,\"use/stills/training/1/entropy\":0.5,\"use/stills/training/1/dead\":7,"
        "\"use/stills/heldout/2/entropy\":0.25}\n"
        "{\"step\":4,\"stills/loss\":2,\"use/stills/training/1/entropy\":0.75,\"use/stills/training/1/dead\":3,"
        "\"use/stills/heldout/2/entropy\":0.5}\n");
    put(run, "aud.partial", "identity.json", "{\"kind\":\"tokenizer-audio\",\"settings\":{\"steps\":200}}");
    put(run, "aud.partial", "metrics.jsonl",
        "{\"step\":1,\"loss\":3,\"use/codes/heldout/0/perplexity\":110}\n"
        "{\"step\":2,\"loss\":2,\"use/codes/heldout/0/perplexity\":140}\n");
    struct buffer page = page_of((const char *const *)&run, 1);
    shows(&page, "vis: how evenly its code is used, over steps");
    shows(&page, "Entropy of a bit, new pictures<");
    shows(&page, "Entropy of a bit, training pictures<");
    shows(&page, "Dead bits, training pictures<");
    lacks(&page, "Dead bits, new pictures<");
    lacks(&page, "Entropy of a bit, new clips<");
    shows(&page, ">scale 1<");
    shows(&page, ">scale 2<");
    lacks(&page, ">scale 3<");
    shows(&page, "aud: how evenly its code is used, over steps");
    shows(&page, "Codes in even use, new sounds<");
    shows(&page, ">level 0<");
    buffer_release(&page);
    memory_free(run);
}

/* A stage that fails before it writes anything leaves only its time. */
TEST(test_stages_that_failed_at_once)
{
    char *run = run_folder("failed"), *timings = path_join(run, "timings.jsonl");
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
    shows(&page, "<p class='state'>tune is not finished, at step 3.</p><p class='state'>reward is not finished.</p>");
    shows(&page, "<td>reward</td><td class='kind'>rl, <b>not finished</b></td>");
    lacks(&page, "<td>gone</td>");
    lacks(&page, "<td>none</td>");
    lacks(&page, "<td>page</td>");
    buffer_release(&page);
    memory_free(timings);
    memory_free(run);
}

/* Lines of timings.jsonl at 2023-11-14 22:13:20 UTC and later, and what the page says then. */
TEST(test_a_failed_stage_is_told_from_a_running_one)
{
    enum { NOW, BEFORE, ELSEWHERE }; /* the process that began the stage */
    static const struct {
        int process;
        const char *lines, *says, *lacks; /* lines: behind the line that begins */
    } rows[] = {
        {NOW, "",
         "<p class='state on'>base is running, at step 3 of 200, since 2023-11-14 22:13:20 UTC. Last sign of life: "
         "2023-11-14 22:14:00 UTC. This page was written: 2",
         "failed"},
        {BEFORE, "",
         "<p class='state'>base stopped without an error, at step 3 of 200: it was killed, or its machine went down. "
         "The "
         "same command goes on from its last checkpoint. Last sign of life: 2023-11-14 22:14:00 UTC.</p>",
         "running"},
        {ELSEWHERE, "",
         "<p class='state'>base was begun, at step 3 of 200 on far&#60;away, where alone it can be seen whether it "
         "goes "
         "on, since 2023-11-14 22:13:20 UTC. Last sign of life: 2023-11-14 22:14:00 UTC. This page",
         "running"},
        {NOW,
         "{\"stage\":\"base\",\"time\":1700000050,\"seconds\":50,\"ended\":\"failed\",\"error\":\"<x>: no such "
         "file\"}\n",
         "<p class='state'>base failed, at step 3 of 200, 2023-11-14 22:14:10 UTC: &#60;x&#62;: no such file.</p>",
         "running"},
        {NOW, "{\"stage\":\"base\",\"time\":1700000050,\"seconds\":50,\"ended\":\"interrupted\"}\n",
         "<p class='state'>base was interrupted, at step 3 of 200, 2023-11-14 22:14:10 UTC. The same command goes on "
         "from there.</p>",
         "running"},
        {BEFORE,
         "{\"stage\":\"base\",\"time\":1700000050,\"seconds\":50,\"ended\":\"failed\",\"error\":\"old\"}\n"
         "{\"stage\":\"base\",\"time\":1700000060,\"begun\":true,\"host\":\"far<away\"}\n",
         "base was begun, at step 3 of 200 on far&#60;away, where alone it can be seen whether it goes on, since "
         "2023-11-14 22:14:20 UTC.",
         "failed"},
    };
    char *run = run_folder("states"), host[256] = "";
    setenv("TZ", "UTC", 1);
    tzset();
    gethostname(host, sizeof host - 1);
    put(run, "base.partial", "identity.json", "{\"kind\":\"pretrain\",\"settings\":{\"steps\":200}}");
    put(run, "base.partial", "metrics.jsonl", "{\"step\":3,\"loss/text\":3,\"time\":1700000040}\n");
    for (i64 i = 0; i < COUNT_OF(rows); i++) {
        i64 began = process_began(getpid());
        assert_true(began > 0);
        char *lines = string_format("{\"stage\":\"base\",\"time\":1700000000,\"begun\":true,\"host\":\"%s\","
                                    "\"process\":%d,\"process_began\":%lld}\n%s",
                                    rows[i].process == ELSEWHERE ? "far<away" : host, (int)getpid(),
                                    (long long)began - (rows[i].process == BEFORE), rows[i].lines);
        put(run, ".", "timings.jsonl", lines);
        struct buffer page = page_of((const char *const *)&run, 1);
        shows(&page, rows[i].says);
        lacks(&page, rows[i].lacks);
        buffer_release(&page);
        memory_free(lines);
    }
    memory_free(run);
}

/* Of a program that wrote no such lines, and of one without an end. */
TEST(test_a_locked_stage_is_running)
{
    char *run = run_folder("locked"), *folder = path_join(run, "base.partial");
    put(run, "base.partial", "identity.json", "{\"kind\":\"pretrain\"}");
    int lock = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(lock >= 0 && flock(lock, LOCK_EX) == 0);
    assert_int_equal(lock_holder(folder), getpid());
    assert_int_equal(lock_holder(run), 0);
    struct buffer page = page_of((const char *const *)&run, 1);
    shows(&page, "<p class='state on'>base is running. Last sign of life: 2");
    shows(&page, "pretrain, <b>running</b></td>");
    buffer_release(&page);
    const char *two[] = {run, run};
    page = page_of(two, 2);
    shows(&page, "<p class='state on'>locked (2): base is running.");
    buffer_release(&page);
    close(lock);
    page = page_of((const char *const *)&run, 1);
    shows(&page, "<p class='state'>base is not finished.</p>");
    buffer_release(&page);
    memory_free(folder);
    memory_free(run);
}

/* A process that ended stays in the list until its parent asks how. */
TEST(test_a_process_that_ended_is_gone)
{
    siginfo_t info;
    pid_t child = fork();
    if (child == 0) {
        pause();
        _exit(0);
    }
    assert_true(process_began(child) >= process_began(getpid()));
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT), 0);
    assert_int_equal(process_began(child), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(process_began(child), 0);
}

TEST(test_a_finished_run_says_since_when)
{
    char *run = run_folder("ready");
    setenv("TZ", "UTC", 1);
    tzset();
    put_done(run, "base", "pretrain");
    put_done(run, "more", "pretrain");
    put(run, ".", "timings.jsonl",
        "{\"stage\":\"base\",\"time\":1700000000,\"begun\":true}\n"
        "{\"stage\":\"base\",\"time\":1700000004,\"seconds\":4,\"ended\":\"interrupted\"}\n"
        "{\"stage\":\"base\",\"time\":1700000004,\"begun\":true}\n"
        "{\"stage\":\"base\",\"time\":1700000009,\"seconds\":5,\"finished\":true}\n"
        "{\"stage\":\"more\",\"time\":1700000010,\"begun\":true}\n"
        "{\"stage\":\"more\",\"time\":1700000040,\"seconds\":30,\"finished\":true}\n");
    struct buffer page = page_of((const char *const *)&run, 1);
    shows(&page, "Finished: 2023-11-14 22:14:00 UTC.");
    shows(&page, ">39\u00a0s<"); /* lines of a begin have no time */
    lacks(&page, "class='state");
    lacks(&page, "This page was written");
    buffer_release(&page);
    memory_free(run);
}

/* Files of every section that are empty, contain null for numbers, or are truncated. */
TEST(test_damaged_files_leave_their_part_out)
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

TEST(test_hostile_words_stay_words)
{
    static const char bad[] = "<script>alert(1)</script>'\\\" onload='x' &amp; ]]>";
    char *run = run_folder("<img src=x onerror=alert(2)> 'run'"), *text = NULL;
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

TEST(test_no_file_from_outside_comes_in)
{
    static const char *const names[] = {
        "../secret.png", "../../outside/secret.png", "/etc/hostname", "a/../../secret.png", "..", "", "secret.txt"};
    char *run = run_folder("outside");
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

TEST(test_pictures_come_before_tables)
{
    char *run = run_folder("pictures");
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

/* Sub-models, the point of a run, follow the first screen; the contents lead to every section. */
TEST(test_sub_models_come_first)
{
    static const char *const order[] = {"<dl class='tiles'>",      "<section id='sub-models'>",
                                        "<section id='samples'>",  "<section id='tokenizers'>",
                                        "<section id='training'>", "<section id='again'>"};
    char *run = run_folder("order");
    put_done(run, "base", "pretrain");
    put(run, "base", "metrics.jsonl", "{\"step\":1,\"loss/text\":3}\n{\"step\":2,\"loss/text\":2}\n");
    put_done(run, "grid", "grid");
    put(run, "grid", "grid.json", "[{\"name\":\"full\",\"parameters\":12,\"active\":5,\"loss_all\":2}]");
    put_done(run, "vis", "tokenizer-vision");
    put(run, "vis", "report.json", "{\"stills_held_out\":{\"items\":3,\"psnr_db\":19}}");
    put_done(run, "samples", "generate");
    put(run, "samples", "samples.json", "{\"text\":[{\"prompt\":\"a\",\"said\":\"b\"}]}");
    struct buffer page = page_of((const char *const *)&run, 1);
    for (i64 i = 1; i < COUNT_OF(order); i++)
        comes_before(&page, order[i - 1], order[i]);
    comes_before(&page,
                 "<nav class='side' aria-label='Sections'><a href='#sub-models'>Sub-models</a><a href='#samples'>",
                 "<header>");
    comes_before(&page, "<details class='toc'><summary>Contents</summary><nav", "<header>");
    buffer_release(&page);
    memory_free(run);
}

static i64 count_of(const char *begin, const char *end, const char *words)
{
    i64 count = 0;
    for (const char *at = begin; (at = strstr(at, words)) != NULL && at < end; at++)
        count++;
    return count;
}

/* Six pictures of the part test and one of train: a row of four, and three behind a fold. */
TEST(test_media_beyond_a_row_are_folded)
{
    struct buffer samples = {0};
    char *run = run_folder("rows");
    put_done(run, "samples", "generate");
    put(run, "samples", "own.png", "OWN");
    put(run, "samples", "sheet.png", "SHEET");
    buffer_printf(&samples, "{\"test/image\":{\"shown\":[");
    for (int i = 0; i < 6; i++)
        buffer_printf(&samples, "%s{\"text\":\"hat %d\",\"original\":\"own.png\",\"made\":\"own.png\"}", i ? "," : "",
                      i);
    buffer_printf(&samples, "]},\"train/image\":{\"shown\":[{\"text\":\"cap\",\"original\":\"own.png\"}]}}");
    put(run, "samples", "samples.json", samples.data);
    put(run, "samples", "report.json",
        "{\"stills_held_out\":{\"sheet\":{\"file\":\"sheet.png\",\"pairs\":7,\"rows\":7,\"columns\":2}}}");
    struct buffer page = page_of((const char *const *)&run, 1);
    const char *row = strstr(page.data, "<div class='media row' tabindex='0'>");
    const char *fold = strstr(page.data, "<details class='more'><summary>2 more. From captions it was trained on: 1<");
    assert_true(row && fold && row < fold);
    const char *end = strstr(fold, "</details>");
    assert_int_equal(count_of(row, fold, "<figure class='pair'>"), 4);
    assert_int_equal(count_of(fold, end, "<figure class='pair'>"), 3);
    row = strstr(page.data, "<div class='media sheet row' tabindex='0'>");
    fold = row ? strstr(row, "<details class='more'><summary>2 more</summary>") : NULL;
    assert_true(row && fold);
    assert_int_equal(count_of(row, fold, "<figure class='pair'>"), 5);
    buffer_release(&samples);
    buffer_release(&page);
    memory_free(run);
}

/* Each figure of refined pictures beside that of bicubic ones; pictures in threes. */
TEST(test_refined_pictures_stand_beside_bicubic_ones)
{
    char *run = run_folder("refined");
    put_done(run, "ref", "refiner");
    put(run, "ref", "sheet.png", "SHEET");
    put(run, "ref", "report.json",
        "{\"refined_stills_training\":{\"items\":4},\"refined_stills_held_out\":{\"items\":7,\"bicubic\":"
        "{\"psnr_db\":19.25,\"ssim\":0.7,\"edges\":0.625},\"refined\":{\"psnr_db\":20.5,\"ssim\":0.75,"
        "\"edges\":0.9},\"sheet\":{\"file\":\"sheet.png\",\"pairs\":2,\"parts\":3,\"rows\":1,\"columns\":24}}}");
    struct buffer page = page_of((const char *const *)&run, 1), table = {0};
    shows(
        &page,
        "<td class='w'>Pictures it never saw, bicubic</td><td>19.25</td><td>0.700</td><td>62.5\u00a0%</td><td>7</td>");
    shows(
        &page,
        "<td class='w'>Pictures it never saw, refined</td><td>20.50</td><td>0.750</td><td>90.0\u00a0%</td><td>7</td>");
    shows(&page, "aria-label='New picture 2, refined' class='s0' style='background-position:21.739% 0.000%'");
    assert_int_equal(count_of(page.data, page.data + page.length, "<small>enlarged</small>"), 2);
    assert_int_equal(report_markdown(&table, (const char *const *)&run, 1), 0);
    assert_non_null(strstr(table.data,
                           "| edges of refined new pictures, of the originals' | validation |  | 62.5\u00a0% | "
                           "90.0\u00a0% |"));
    buffer_release(&table);
    buffer_release(&page);
    memory_free(run);
}

/* A continuation begins within a word or with its own space, and has its own lines. */
TEST(test_texts_go_on_where_their_prompt_ends)
{
    char *run = run_folder("texts");
    put_done(run, "samples", "generate");
    put(run, "samples", "samples.json",
        "{\"text\":[{\"prompt\":\"el perr\",\"said\":\"o come\"},{\"prompt\":\"Das ist\",\"said\":\" gut\\n-- X\"}]}");
    struct buffer page = page_of((const char *const *)&run, 1);
    shows(&page, "<p class='said answer'><b>el perr</b>o come</p><p class='said answer'><b>Das ist</b> gut\n-- X</p>");
    buffer_release(&page);
    memory_free(run);
}

/* What a column means is said where it is shown, and only there. */
TEST(test_columns_are_explained)
{
    char *run = run_folder("columns");
    put_done(run, "vis", "tokenizer-vision");
    put(run, "vis", "report.json",
        "{\"stills_held_out\":{\"items\":3,\"psnr_db\":19,\"scales\":[{\"entropy_bits\":0.5,\"dead_bits\":2}]}}");
    put_done(run, "aud", "tokenizer-audio");
    put(run, "aud", "report.json",
        "{\"held_out_distance\":{\"log_mel\":0.5},\"held_out\":{\"levels\":[{\"perplexity\":107,\"dead\":56}]}}");
    put_done(run, "samples", "generate");
    put(run, "samples", "samples.json",
        "{\"test/image\":{\"captions\":4,\"pair\":0.5,\"first\":2},\"test/video\":{\"captions\":4,\"pair\":0.5,"
        "\"first\":2}}");
    put_done(run, "base", "pretrain");
    put(run, "base", "metrics.jsonl", "{\"step\":1,\"gflops_per_s\":9}\n");
    struct buffer page = page_of((const char *const *)&run, 1);
    shows(&page, "A bit is dead if more than 99\u00a0% of its values are equal.");
    shows(&page, "<td>log-mel distance on new voices, in nats, all levels</td><td>0.500</td>");
    shows(&page, "<td>codes of level 0 in even use on new voices (56 never used)</td><td>107</td>");
    shows(&page, "as many codes, all used equally often, have the same entropy");
    shows(&page, "Nearest of all counts the outputs to which no original is nearer than their own.");
    assert_int_equal(count_of(page.data, page.data + page.length, "Nearest of all counts"), 1);
    lacks(&page, "By length:");
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
TEST(test_commands_to_try)
{
    char *run = run_folder("tried");
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

TEST(test_sizes_of_models)
{
    static const char config[] =
        "{\"num_hidden_layers\":6,\"moe_num_experts\":8,\"moe_k\":3,\"moe_layer_start_index\":0}";
    static const char dense[] = "{\"num_hidden_layers\":5}";
    const float values[12] = {0};
    const struct tensor_source tensor = {.name = "w", .dtype = DTYPE_F32, .rank = 1, .shape = {12}, .data = values};
    char *run = run_folder("sizes"), *folder, *weights;
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

TEST(test_speeds_and_parameters_of_both_kinds_of_runs)
{
    char *run = run_folder("speeds"), *timings = path_join(run, "timings.jsonl");
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

TEST(test_the_full_model_is_marked)
{
    char *run = run_folder("grid");
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

TEST(test_the_grid_says_how_its_sub_models_were_chosen)
{
    static const char *const chosen[] = {"\"chosen\":\"data\",\"chosen_on\":\"validation\",", "\"chosen\":\"use\",",
                                         "\"chosen\":\"order\",", ""};
    char *run = run_folder("chosen");
    put_done(run, "grid", "grid");
    for (i64 i = 0; i < COUNT_OF(chosen); i++) {
        char *points = string_format("[{\"name\":\"full\",\"active\":5,\"loss_all\":1},"
                                     "{\"name\":\"half\",%s\"active\":2,\"loss_all\":2}]",
                                     chosen[i]);
        put(run, "grid", "grid.json", points);
        struct buffer page = page_of((const char *const *)&run, 1);
        bool data = strstr(page.data, "those that samples of the part validation need most") != NULL;
        bool use = strstr(page.data, "those that training used most; layers: evenly spread") != NULL;
        bool order = strstr(page.data, "the first of the order in which they were trained; layers") != NULL;
        assert_true(data == (i == 0) && use == (i == 1) && order == (i == 2));
        buffer_release(&page);
        memory_free(points);
    }
    memory_free(run);
}

TEST(test_routing_maps_say_what_they_show)
{
    char *run = run_folder("routing");
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

TEST(test_answers_before_and_after)
{
    char *run = run_folder("rl");
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

/* Pictures stand side by side with their rewards, and nothing is said of texts. */
TEST(test_drawings_before_and_after)
{
    static const char one[] = "[{\"prompt\":\"a red ball\",\"ground_truth\":\"a red ball\",\"answer\":\"\","
                              "\"file\":\"%s\",\"reward\":%s}]";
    char *run = run_folder("drawn"), *before = string_format(one, "before.png", "0.25"),
         *after = string_format(one, "after.png", "0.5");
    char *text = string_format("{\"steps\":2,\"heldout\":{\"start\":{\"sampled\":{\"reward\":0.25},\"answers\":%s},"
                               "\"end\":{\"sampled\":{\"reward\":0.5},\"answers\":%s}}}",
                               before, after);
    put_done(run, "rl", "rl");
    put(run, "rl", "metrics.jsonl",
        "{\"step\":1,\"reward\":0.25,\"media_distance\":0.25}\n"
        "{\"step\":2,\"reward\":0.75,\"media_distance\":0.125}\n");
    put(run, "rl", "rl.json", text);
    put(run, "rl", "before.png", "before");
    put(run, "rl", "after.png", "after");
    struct buffer page = page_of((const char *const *)&run, 1);
    shows(&page, "<small>before: 0.25</small><img alt='a red ball' src='data:image/png;base64,YmVmb3Jl'>");
    shows(&page, "<small>after: 0.50</small><img alt='a red ball' src='data:image/png;base64,YWZ0ZXI='>");
    shows(&page, "How far two media of one prompt are apart");
    lacks(&page, "other order");
    lacks(&page, "held-out prompt and");
    lacks(&page, "most frequent right answer");
    buffer_release(&page);
    memory_free(run);
    memory_free(before);
    memory_free(after);
    memory_free(text);
}

/* Lines of the sets, in their order; a set may lack a step. */
TEST(test_rewards_by_set)
{
    char *run = run_folder("sets");
    put_done(run, "rl", "rl");
    put(run, "rl", "metrics.jsonl",
        "{\"step\":1,\"reward\":0.25,\"set/sums/reward\":0.25,\"set/sums/length\":9,\"set/sums/spread\":0.5}\n"
        "{\"step\":2,\"reward\":0.5,\"set/sums/reward\":0.25,\"set/sums/length\":8,\"set/sums/spread\":0.5,"
        "\"set/art/reward\":0.75,\"set/art/length\":30,\"set/art/spread\":1}\n"
        "{\"step\":3,\"reward\":0.5,\"set/sums/reward\":0.5,\"set/sums/length\":8,\"set/sums/spread\":0.5,"
        "\"set/art/reward\":0.5,\"set/art/length\":30,\"set/art/spread\":1}\n");
    struct buffer page = page_of((const char *const *)&run, 1);
    shows(&page, "Mean reward in training, by set");
    shows(&page, "Length of answers, by set");
    shows(&page, "Share of prompts whose answers differ in reward, by set");
    shows(&page, ">sums</text>");
    shows(&page, ">art</text>");
    put(run, "rl", "metrics.jsonl", "{\"step\":1,\"reward\":0.25}\n{\"step\":2,\"reward\":0.75}\n");
    buffer_release(&page);
    page = page_of((const char *const *)&run, 1);
    lacks(&page, "by set");
    buffer_release(&page);
    memory_free(run);
}

/* The start is above ln 8192 for text, below ln 2 for bits. */
TEST(test_a_start_above_a_guess_is_shown_beside_it)
{
    char *run = run_folder("guess");
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
TEST(test_samples_longer_than_a_row_are_named_by_stream)
{
    char *run = run_folder("long");
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

int main(void)
{
    return tests_run(make_directory, remove_directory);
}
