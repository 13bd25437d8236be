/* Figures of the page: spreads, charts, units, shares, samples. */
#include "tests/report_fixture.h"

/* Each shape has its PSNR and its sheet, with cells in the shape's proportions. */
TEST(shapes_of_pictures_are_shown_each)
{
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

/* Rows of codecs beside a tokenizer, the views of a sheet, and the sounds of codecs. */
TEST(codecs_stand_beside_tokenizers)
{
    char *run = run_folder("codecs");
    put_done(run, "vis", "tokenizer-vision");
    put(run, "vis", "report.json",
        "{\"stills_held_out\":{\"items\":3,\"psnr_db\":19,\"scales\":[],\"codecs\":{\"items\":3,\"rows\":["
        "{\"name\":\"tokens\",\"bytes\":120,\"psnr_db\":20.25,\"ssim\":0.704,\"edges\":0.77},"
        "{\"name\":\"WebP <whole> file\",\"bytes\":118.4,\"psnr_db\":18.81,\"ssim\":0.641,\"edges\":null}],"
        "\"sheet\":{\"file\":\"samples/a.png\",\"pairs\":4,\"frames\":1,\"rows\":4,\"columns\":3,\"height\":64,"
        "\"width\":64,\"views\":[\"original\",\"from tokens\",\"<WebP>\"]}}}}");
    put(run, "vis/samples", "a.png", "a picture");
    put_done(run, "aud", "tokenizer-audio");
    put(run, "aud", "report.json",
        "{\"training\":{},\"held_out_distance\":{\"log_mel\":0.5},\"held_out_codecs\":{\"recordings\":24,\"rows\":["
        "{\"name\":\"tokens\",\"bits_per_s\":400,\"log_mel\":0.587,\"log_mel_low\":0.645},"
        "{\"name\":\"8 kHz, not coded\",\"log_mel\":0.954,\"log_mel_low\":0.001}]},"
        "\"shown\":[{\"text\":\"two\",\"original\":\"samples/o.wav\",\"reconstructed\":\"samples/o.wav\","
        "\"opus\":\"samples/o.wav\"}]}");
    put(run, "aud/samples", "o.wav", "a sound");
    const char *one[] = {run};
    struct buffer page = page_of(one, 1);
    assert_well_formed(page.data);
    assert_non_null(strstr(page.data, "Beside codecs of as many bytes, 3 new pictures"));
    assert_non_null(strstr(page.data, "WebP &#60;whole&#62; file"));
    assert_non_null(strstr(page.data, "New picture 1, &#60;WebP&#62;'"));
    /* the third of three columns, the second of four rows */
    assert_non_null(strstr(page.data, "background-position:100.000% 33.333%"));
    assert_non_null(strstr(page.data, "Beside codecs of speech, 24 new recordings"));
    assert_non_null(strstr(page.data, "0.645"));
    assert_non_null(strstr(page.data, ">Opus<"));
    assert_null(strstr(page.data, ">codec2<"));
    buffer_release(&page);
    memory_free(run);
}

TEST(test_several_runs_have_their_spread)
{
    static const double losses[] = {1, 3, 5};
    char *runs[3];
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

static void comes_before(const struct buffer *page, const char *first, const char *then)
{
    const char *a = strstr(page->data, first), *b = strstr(page->data, then);
    if (!a || !b || a > b)
        fail_msg("\"%s\" does not come before \"%s\"", first, then);
}

/* Of two runs: a value, a setting that only the second has, one that only the first has, a list, a stage
 * that one lacks, the files of a folder; what is equal and what other stages made is left out. */
TEST(test_settings_that_differ_stand_side_by_side)
{
    static const char *const base[] = {
        "{\"identity\":{\"kind\":\"pretrain\",\"seed\":7,\"settings\":{\"steps\":3,\"optimizer\":{\"lr\":0.0031234567,"
        "\"old\":true},\"layers\":[1,2],\"shape\":\"w|d\"},\"inputs\":{\"./pictures\":\"aa11\",\"made/x\":\"1\"}}}",
        "{\"identity\":{\"kind\":\"pretrain\",\"seed\":7,\"settings\":{\"steps\":3,\"optimizer\":{\"lr\":0.0031234568,"
        "\"new\":5},\"layers\":[1],\"shape\":\"<b>\"},\"inputs\":{\"./pictures\":\"bb22\",\"made/x\":\"2\"}}}"};
    char *runs[2] = {run_folder("one"), run_folder("two")};
    struct buffer text = {0}, line = {0};
    for (int r = 0; r < 2; r++) {
        put(runs[r], "base", "done.json", base[r]);
        put_done(runs[r], "made", r ? "command" : "prepare");
    }
    put(runs[0], "base", "heldout.json", "{\"end\":[{\"stream\":\"text\",\"target\":\"text\",\"loss\":2}]}");
    put_done(runs[1], "more", "sft");
    struct buffer page = page_of((const char *const *)runs, 2);
    shows(&page, "<h2>Settings that differ</h2>");
    comes_before(&page, "<section id='again'>", "<section id='figures'>");
    shows(&page, "<th>setting</th><th class='w'>one</th><th class='w'>two</th></tr><tr>"
                 "<td>base.optimizer.lr</td><td class='w'>0.0031234567</td><td class='w'>0.0031234568</td></tr><tr>"
                 "<td>base.optimizer.old</td><td class='w'>true</td><td class='w'></td></tr><tr>"
                 "<td>base.optimizer.new</td><td class='w'></td><td class='w'>5</td></tr><tr>"
                 "<td>base.layers</td><td class='w'>[1,2]</td><td class='w'>[1]</td></tr><tr>"
                 "<td>base.shape</td><td class='w'>w|d</td><td class='w'>&#60;b&#62;</td></tr><tr>"
                 "<td>base: content of ./pictures</td><td class='w'>aa11</td><td class='w'>bb22</td></tr><tr>"
                 "<td>made.kind</td><td class='w'>prepare</td><td class='w'>command</td></tr><tr>"
                 "<td>stage more</td><td class='w'></td><td class='w'>sft</td></tr></table>");
    succeed(report_markdown(&text, (const char *const *)runs, 2));
    shows(&text, "\n\n| setting | one | two |\n|---|---|---|\n| base.optimizer.lr | 0.0031234567 | 0.0031234568 |\n");
    shows(&text, "| base.shape | w\\|d | <b> |\n");
    succeed(report_json(&line, (const char *const *)runs, 2, NULL));
    shows(&line,
          "\"settings\":[{\"setting\":\"base.optimizer.lr\",\"values\":{\"one\":0.0031234567,\"two\":0.0031234568}},"
          "{\"setting\":\"base.optimizer.old\",\"values\":{\"one\":true}},");
    buffer_release(&page);
    buffer_release(&text);
    put(runs[1], "base", "done.json", base[0]);
    const char *same[] = {runs[0], runs[0]};
    page = page_of(same, 2);
    shows(&page, "<td colspan='3'>nothing</td>");
    succeed(report_markdown(&text, same, 2));
    lacks(&text, "setting");
    buffer_release(&page);
    buffer_release(&text);
    buffer_release(&line);
    memory_free(runs[0]);
    memory_free(runs[1]);
}

/* Marks of sub-models have no words beside them: a key says whose they are. Runs with one name get
 * their places. */
TEST(test_each_of_several_runs_can_be_told)
{
    char *a = run_folder("a"), *b = run_folder("b"), *c = run_folder("a-name-\u00e9-long-\u00e9t\u00e9-2");
    char *runs[4] = {path_join(a, "out"), path_join(b, "out"), a, c};
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
TEST(test_a_small_spread_of_large_losses_is_kept)
{
    char *runs[3];
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

TEST(test_charts_leave_out_what_is_not_finite)
{
    const struct chart_mark marks[] = {{"a", 1, NAN, 0, false}, {"b", INFINITY, 2, 0, false}, {"c", 3, 4, 1, true}};
    struct buffer svg = {0};
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
TEST(test_ticks_differ)
{
    static const double centres[] = {0, 12.55, 0.6854, 1e-7, 123456, 2.3e9, -5};
    static const double widths[] = {1, 0.02, 0.0005, 3e-8, 40, 1e8, 1e-3};
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
TEST(test_ticks_of_an_axis_have_one_unit)
{
    const double x[] = {1, 2}, y[] = {0, 11900};
    const struct chart_line line = {"", 0, x, y, 2};
    struct buffer svg = {0};
    chart_draw(&svg, &(struct chart){.about = "", .x_name = "", .y_name = "", .lines = &line, .line_count = 1});
    assert_non_null(strstr(svg.data, ">2\u00a0k</text>"));
    assert_non_null(strstr(svg.data, ">10\u00a0k</text>"));
    assert_null(strstr(svg.data, ">2000</text>"));
    buffer_release(&svg);
}

/* The ring of the least mark does not touch the axis. */
TEST(test_marks_stay_off_the_axis)
{
    const struct chart_mark marks[] = {{"a", 1, 2, 0, false}, {"b", 2, 1, 0, true}};
    struct buffer svg = {0};
    double axis = NAN, centre = NAN;
    chart_draw(&svg, &(struct chart){.about = "", .x_name = "", .y_name = "", .marks = marks, .mark_count = 2});
    assert_int_equal(sscanf(strstr(svg.data, "class='k' d='M"), "class='k' d='M%*f %lf", &axis), 1);
    assert_int_equal(sscanf(strstr(strstr(svg.data, "class='r c0'"), "cy='"), "cy='%lf", &centre), 1);
    assert_true(centre + 8 + 4 < axis);
    buffer_release(&svg);
}

/* Points a little outside of the means' range are inside of the frame, below the name of the axis. */
TEST(test_bands_are_inside_of_the_frame)
{
    enum { N = 1008, TOP = 26 }; /* bins of 9 points */
    double x[N], y[N], least = INFINITY;
    const struct chart_line line = {"end", 0, x, y, N};
    struct buffer svg = {0};
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

TEST(test_last_values_have_three_digits)
{
    char *run = run_folder("digits");
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

/* What a stage uses beside its losses: the rate in powers of ten, memory in GiB, waits as shares. */
TEST(test_rate_memory_and_waiting_are_charts)
{
    char *run = run_folder("uses");
    put_done(run, "base", "pretrain");
    put(run, "base", "metrics.jsonl",
        "{\"step\":1,\"lr\":0.00002,\"wait_share\":0.5,\"sum_share\":0.25,\"memory_bytes\":1073741824}\n"
        "{\"step\":2,\"lr\":0.000065,\"wait_share\":0.07,\"sum_share\":0.02,\"rank_s/0\":0.125,\"rank_s/1\":0.5,"
        "\"memory_bytes\":1610612736,"
        "\"device_bytes\":2684354560}\n");
    put_done(run, "rl", "rl");
    put(run, "rl", "metrics.jsonl", "{\"step\":1,\"reward\":1,\"lr\":0.0003,\"memory_bytes\":805306368}\n");
    struct buffer page = page_of((const char *const *)&run, 1);
    shows(&page, "<figcaption>Learning rate</figcaption>");
    shows(&page, ">6.50e-5</text>");
    shows(&page, ">4e-5</text>"); /* a tick */
    shows(&page, "<figcaption>Waiting for data</figcaption>");
    shows(&page, ">7.0\u00a0%</text>");
    shows(&page, "<figcaption>Waiting for other ranks&#39; gradients</figcaption>");
    shows(&page, ">2.0\u00a0%</text>");
    shows(&page, "<figcaption>Time for a micro-batch, by rank</figcaption>");
    shows(&page, "rank 1</text>");
    shows(&page, "<figcaption>Memory of the process</figcaption>");
    shows(&page, ">1.50</text>");
    shows(&page, "<figcaption>Memory on the GPU</figcaption>");
    shows(&page, ">2.50</text>");
    shows(&page, ">3.00e-4</text>"); /* of reinforcement learning */
    shows(&page, ">0.750</text>");
    buffer_release(&page);
    put(run, "base", "metrics.jsonl", "{\"step\":1,\"loss/text\":2}\n");
    put(run, "rl", "metrics.jsonl", "{\"step\":1,\"reward\":1}\n");
    page = page_of((const char *const *)&run, 1);
    lacks(&page, "Learning rate");
    lacks(&page, "Waiting");
    lacks(&page, "by rank");
    lacks(&page, "Memory");
    buffer_release(&page);
    memory_free(run);
}

TEST(test_long_lines_become_means_with_a_band)
{
    enum { N = 10000 };
    double *x = memory_alloc(N * 8), *y = memory_alloc(N * 8);
    struct buffer svg = {0};
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

TEST(test_figures_are_told_in_their_units)
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
    for (i64 i = 0; i < COUNT_OF(rows); i++) {
        buffer_clear(&told);
        put_figure(&told, rows[i].value, rows[i].unit, rows[i].digits);
        assert_string_equal(told.data, rows[i].told);
    }
    buffer_release(&told);
}

/* 5 of 20 samples were dropped. */
TEST(test_shares_of_curation_are_of_all_samples)
{
    char *run = run_folder("curated");
    put_done(run, "data", "prepare");
    put(run, "data", "curation.json",
        "{\"samples\":20,\"kept\":15,\"rules\":[{\"rule\":\"short\",\"count\":5,\"examples\":[]}]}");
    struct buffer page = page_of((const char *const *)&run, 1);
    shows(&page, "15 of 20 samples kept");
    shows(&page, "<td>25.0\u00a0%</td>");
    buffer_release(&page);
    memory_free(run);
}

TEST(test_medians_stand_in_the_middle)
{
    double x[5] = {0}, y[5] = {1, 100, 3, 2, 4};
    assert_true(series_median(&(struct metric_series){x, y, 5}) == 3);
    assert_true(series_median(&(struct metric_series){x, y, 4}) == 2.5);
    assert_true(series_median(&(struct metric_series){x, y, 1}) == 1);
    assert_true(isnan(series_median(&(struct metric_series){x, y, 0})));
}

TEST(test_commands_are_quoted_for_a_shell)
{
    static const char *const words[][2] = {
        {"out/quickstart", "out/quickstart"}, {"my run", "'my run'"}, {"it's", "'it'\\''s'"}, {"", "''"},
        {"$(rm -r x)", "'$(rm -r x)'"},       {"a;b", "'a;b'"}};
    struct buffer told = {0};
    for (i64 i = 0; i < COUNT_OF(words); i++) {
        buffer_clear(&told);
        shell_word(&told, words[i][0]);
        assert_string_equal(told.data, words[i][1]);
    }
    buffer_release(&told);
}

/* ---- Samples ---- */

static void put_samples_of(const char *run, double pair)
{
    char *text = string_format(
        "{\"test/image\":{\"captions\":75,\"pair\":%g,\"pair_low\":0.801,\"pair_high\":0.883,\"first\":17,"
        "\"retrieval\":0.818,\"ridge\":0.831,\"shown\":[{\"text\":\"from test\"}]},"
        "\"validation/image\":{\"captions\":70,\"pair\":0.7,\"shown\":[{\"text\":\"from validation\"}]},"
        "\"test/audio\":{\"captions\":60,\"pair\":0.881,\"first\":22,\"retrieval\":0.6,\"length\":0.805,"
        "\"aligned\":{\"pair\":0.857,\"retrieval\":0.612,\"length\":0.5},\"shown\":[]},"
        "\"test/video-to-text\":{\"media\":40,\"exact\":10,\"words\":0.451,\"words_low\":0.41,\"words_high\":0.52,"
        "\"words_exchanged\":0.31,\"words_fixed\":0.428,\"words_nearest\":0.44,\"words_fixed_answer\":\"the <b> "
        "moves\",\"classes\":["
        "{\"words\":[\"left\",\"<right>\"],\"media\":23,\"right\":0.348,\"low\":0.13,\"high\":0.52,\"fixed\":0.174,"
        "\"nearest\":"
        "0.9},"
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
TEST(test_shares_stand_beside_part_baseline_and_error)
{
    char *run = run_folder("samples");
    put_samples_of(run, 0.842);
    struct buffer page = page_of((const char *const *)&run, 1);
    shows(&page, "on test (95\u00a0%: 80 to 88\u00a0%); without a network 83\u00a0%; chance is "
                 "50\u00a0%");
    shows(&page, "<td class='w'>test</td><td>75</td><td>84.2\u00a0%</td><td>80 to 88\u00a0%</td><td>81.8\u00a0%</td>"
                 "<td>83.1\u00a0%</td><td>50\u00a0%</td><td>17</td>");
    shows(&page, "<td class='w'>validation</td><td>70</td><td>70.0\u00a0%</td><td></td><td></td>");
    shows(&page, "<td class='w'>test, at equal length</td><td>60</td><td>85.7\u00a0%</td><td></td><td>61.2\u00a0%</td>"
                 "<td>50.0\u00a0%</td>");
    shows(&page, "<td class='w'>test, as it sounds</td><td>60</td><td>88.1\u00a0%</td><td></td><td>60.0\u00a0%</td>"
                 "<td>80.5\u00a0%</td>");
    shows(&page, "<td>10</td><td>14 to 40\u00a0%</td><td>45.1\u00a0%</td><td>41 to "
                 "52\u00a0%</td><td>42.8\u00a0%</td><td>44.0\u00a0%</td>"
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

TEST(test_figures_of_several_runs_are_a_markdown_table)
{
    static const double pairs[] = {0.8, 0.9, 0.85}, losses[] = {1, 3, 5};
    char *runs[3];
    struct buffer table = {0};
    for (int r = 0; r < 3; r++) {
        char name[8];
        snprintf(name, sizeof name, "table%d", r);
        runs[r] = run_folder(name);
        char *text =
            string_format("{\"parameters\":%d,\"start\":[{\"stream\":\"text\",\"target\":\"text\",\"loss\":8}],"
                          "\"end\":[{\"stream\":\"text\",\"target\":\"text\",\"loss\":%g,\"error\":1,\"unigram\":6}]}",
                          100 + r, losses[r]);
        put_done(runs[r], "base", "pretrain");
        put(runs[r], "base", "heldout.json", text);
        put(runs[r], "half", "done.json", "{\"identity\":{\"kind\":\"extract\",\"settings\":{\"from\":\"base\"}}}");
        put(runs[r], "more", "done.json", "{\"identity\":{\"kind\":\"pretrain\",\"settings\":{\"from\":\"half\"}}}");
        put(runs[r], "more", "heldout.json", "{\"parameters\":50}");
        put_done(runs[r], "aud", "tokenizer-audio");
        put(runs[r], "aud", "report.json",
            "{\"held_out_distance\":{\"log_mel\":0.54,\"log_mel_error\":0.01,\"log_mel_mean_spectrum\":1.53},"
            "\"stills_held_out\":{\"psnr_db\":20,\"psnr_db_error\":0.5,\"psnr_db_components\":19.5,\"edges\":0.75,"
            "\"scales\":[{\"entropy_bits\":0.25,\"dead_bits\":7},{\"entropy_bits\":0.9,\"dead_bits\":2}]},"
            "\"held_out\":{\"levels\":[{\"dead\":30},{\"dead\":12}]}}");
        put_samples_of(runs[r], pairs[r]);
        put_done(runs[r], "r|l", "rl");
        put(runs[r], "r|l", "rl.json",
            "{\"heldout\":{\"start\":{\"sampled\":{\"reward\":0.25}},\"end\":{\"sampled\":{\"reward\":0.875}}}}");
        memory_free(text);
    }
    /* t of 2 degrees is 4.303: of losses, 4.303 * 2 / sqrt(3) from seeds, and 1.96 * 1 from files */
    succeed(report_markdown(&table, (const char *const *)runs, 3));
    says(&table, "| mean (95 % over files and seeds) |\n|---|");
    says(&table, "| base | held-out loss, text: text | validation | 8.00 | 6.00 | 3.00 (-2.34 to 8.34) |\n");
    says(&table, "| samples | pictures from words nearer to their own, test | test |  | 83.1\u00a0% | 85.0\u00a0% "
                 "(71.9\u00a0% to 98.1\u00a0%) |\n");
    says(&table, "| samples | speech from words nearer to its own by length and sound, test | test |  | 80.5\u00a0% | "
                 "88.1\u00a0%");
    says(&table, "| samples | speech from words nearer to its own at equal length, test | test |  | 61.2\u00a0% |");
    says(&table, "| samples | test/video-to-text, words right | test |  | 44.0\u00a0% | 45.1\u00a0%");
    says(&table, "| samples | test/video-to-text, word for word | test |  |  | 25.0\u00a0%");
    says(&table, "| aud | log-mel distance of new sounds | validation |  | 1.530 | 0.540 (0.520 to 0.560) |\n");
    says(&table, "| aud | dead codes of new sounds | validation |  |  | 42 |\n");
    says(&table, "| aud | dead bits of new pictures | validation |  |  | 9 |\n");
    says(&table, "| aud | edges of new pictures, of the originals' | validation |  |  | 75.0\u00a0% |\n");
    says(&table, "| aud | entropy of a bit of new pictures at scale 1 | validation |  |  | 0.25 |\n");
    says(&table, "| aud | PSNR of new pictures | validation |  | 19.5\u00a0dB | 20.0\u00a0dB (19.0\u00a0dB to "
                 "21.0\u00a0dB) |\n");
    says(&table, "| more | parameters of half, of those of base |  |  |  | 49.5\u00a0% (48.3\u00a0% to 50.7\u00a0%; "
                 "seeds alone) |\n");
    says(&table, "| r\\|l | reward, sampled answers | held-out prompts | 0.25 |  | 0.88 |\n");
    buffer_clear(&table);
    succeed(report_markdown(&table, (const char *const *)runs, 1));
    says(&table, "| 80.0\u00a0% (95 %: 80.1\u00a0% to 88.3\u00a0%) |\n");
    says(&table, "| held-out loss, text: text | validation | 8.00 | 6.00 | 1.00 (95 %: -0.96 to 2.96) |\n");
    buffer_release(&table);
    struct buffer page = page_of((const char *const *)runs, 3);
    shows(&page, "<td class='w'>pictures from words nearer to their own</td><td class='kind'>test</td>"
                 "<td>83.1\u00a0%</td><td>85.0\u00a0%</td><td>5.0\u00a0%</td><td>80.0\u00a0% to 90.0\u00a0%</td>");
    shows(&page, "<td class='w'>video-to-text, words right</td><td class='kind'>test</td>");
    shows(&page, "<td class='w'>log-mel distance of new sounds</td><td class='kind'>validation</td><td>1.530</td>"
                 "<td>0.540</td><td>0.000</td><td>0.540</td>"); /* the least is the most */
    buffer_release(&page);
    for (int r = 0; r < 3; r++)
        memory_free(runs[r]);
}

/* Captions of pictures are worth 1 to the loss, and three quarters of it to the mean of two runs. */
TEST(test_exchanged_prompts_have_a_row)
{
    static const double exchanged[] = {4, 5};
    char *runs[2];
    struct buffer table = {0};
    for (int r = 0; r < 2; r++) {
        char name[16];
        snprintf(name, sizeof name, "exchanged%d", r);
        runs[r] = run_folder(name);
        char *text =
            string_format("{\"part\":\"test\",\"positions\":9,\"losses\":[{\"stream\":\"image-in\",\"target\":"
                          "\"text\",\"loss\":3,\"error\":0.25,\"exchanged\":%g,\"unigram\":6},{\"stream\":"
                          "\"text\",\"target\":\"text\",\"loss\":2,\"unigram\":7,\"bigram\":6.5,\"trigram\":6.75}]}",
                          exchanged[r]);
        put_done(runs[r], "look", "eval");
        put(runs[r], "look", "eval.json", text);
        memory_free(text);
    }
    succeed(report_markdown(&table, (const char *const *)runs, 2));
    says(&table, "| look | loss, image-in: text | test |  | 6.00 | 3.00 (2.51 to 3.49) |\n");
    says(&table, "| look | loss, image-in: text, after another sample's prompt | test |  | 6.00 | 4.50 (-1.85 to "
                 "10.85; seeds alone) |\n");
    says(&table, "| look | loss, text: text | test |  | 6.50 | 2.00 |\n");
    lacks(&table, "loss, text: text, after");
    buffer_release(&table);
    struct buffer page = page_of((const char *const *)runs, 1);
    shows(&page, "bigrams of training texts reach 6.500 and trigrams 6.750 ");
    shows(&page, "<th>after another&#39;s prompt</th>");
    shows(&page, "<td>image-in: text</td><td><b>3.000</b></td><td>2.510 to 3.490</td><td>4.000</td><td>6.000</td>");
    buffer_release(&page);
    memory_free(runs[0]);
    memory_free(runs[1]);
}

/* 12 s waited in 104 s, 4 s of them before the first step: 8 of 100 s. Greedy answers grow from 3 to 5 ids. */
TEST(test_waits_and_lengths_are_those_measured)
{
    char *run = run_folder("waits");
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
          "<td>0.250</td><td>0.750</td><td>3.0</td><td>5.0</td><td>8</td><td>12.5\u00a0%</td><td>6.2\u00a0%</td>");
    buffer_release(&page);
    memory_free(run);
}

int main(void)
{
    return tests_run(make_directory, remove_directory);
}
