/* The grammar: small cases of every kind of part, written by hand, one line per position:
 *     NUMBER stream input t,h,w sees-from [hole] -> prediction target
 * Also: drawing what the grammar wants, counting without building, and laying into a batch agree
 * with the hand-written cases. */
#include "sequence/grammar.h"
#include "tests/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    END = 1,
    IM_START = 2,
    IM_END = 3,
    BOI = 4,
    EOI,
    BOV,
    EOV,
    NEXT,
    BOA,
    STILL = 20,
    CLIP = 21,
    DEEP = 22,
    LONG = 23
};
static const struct vocabulary vocabulary = {
    .bracket[BRACKET_BOI] = BOI,
    .bracket[BRACKET_EOI] = EOI,
    .bracket[BRACKET_BOV] = BOV,
    .bracket[BRACKET_EOV] = EOV,
    .bracket[BRACKET_NEXT] = NEXT,
    .bracket[BRACKET_BOA] = BOA,
    .end = END,
    .message_begin = IM_START,
    .message_end = IM_END,
    .shape = {STILL, CLIP, DEEP, LONG},
    .shape_count = 4,
    .shapes = {{.scale_count = 2, .scales = {{1, 1}, {2, 2}}, .frames = 1},
               {.scale_count = 2, .scales = {{1, 1}, {2, 2}}, .video = true, .frames = 3},
               {.scale_count = 3, .scales = {{1, 1}, {2, 2}, {4, 4}}, .frames = 1},
               {.scale_count = 3, .scales = {{1, 1}, {1, 3}, {2, 6}}, .frames = 1}}};

static const char *id_name(i32 id)
{
    static char number[16];
    static const char *const names[] = {"BOI", "EOI", "BOV", "EOV", "NEXT", "BOA"};
    if (id >= BOI && id <= BOA)
        return names[id - BOI];
    snprintf(number, sizeof number, "%d", id);
    return id == END ? "END" : id == STILL ? "STILL" : id == CLIP ? "CLIP" : number;
}

static void draw_input(struct buffer *out, const struct position *p)
{
    if (p->input == INPUT_TEXT)
        buffer_printf(out, " %s", id_name(p->id));
    else if (p->input == INPUT_VOICE)
        buffer_printf(out, " voice[%d]", p->in.block);
    else if (p->input == INPUT_VISION_OUT)
        buffer_printf(out, " sum[%d,%d,k%d]", p->in.frame, p->in.row, p->in.scale);
    else
        buffer_printf(out, p->input == INPUT_AUDIO ? " frame[%d]" : " cell[%d,%d]", p->in.frame, p->in.row);
}

static void draw_targets(struct buffer *out, const struct position *p)
{
    if (p->text >= 0) {
        buffer_printf(out, " -> %s", id_name(p->text));
        if (p->text_stream != p->stream)
            buffer_printf(out, "(%s)", stream_rows[p->text_stream].name);
        if (p->text_weight != 1)
            buffer_printf(out, "*%g", p->text_weight);
    }
    if (p->out == TARGET_VISION)
        buffer_printf(out, " -> bits[%d,%d,k%d]", p->target.frame, p->target.row, p->target.scale);
    if (p->out == TARGET_AUDIO)
        buffer_printf(out, " -> codes[%d]", p->target.frame);
    if (p->out != TARGETS && p->out_weight != 1)
        buffer_printf(out, "*%g", p->out_weight);
}

static void draw(struct buffer *out, const struct grammar *g)
{
    for (i64 i = 0; i < g->count; i++) {
        const struct position *p = &g->positions[i];
        buffer_printf(out, "%d %s", (int)i, stream_rows[p->stream].name);
        draw_input(out, p);
        buffer_printf(out, " %g,%g,%g %d", p->at[0], p->at[1], p->at[2], p->begin);
        if (p->hole_end > p->hole_begin)
            buffer_printf(out, " [%d,%d)", p->hole_begin, p->hole_end);
        draw_targets(out, p);
        buffer_printf(out, "\n");
    }
}

static void give(struct grammar *g, const struct part *parts, i64 count, i32 end)
{
    grammar_begin(g);
    for (i64 i = 0; i < count; i++)
        if (grammar_part(g, &parts[i]) < 0)
            fail_msg("part %d: %s", (int)i, error_text());
    if (grammar_end(g, end) < 0)
        fail_msg("%s", error_text());
}

static void expect(const struct part *parts, i64 count, const struct grammar_options *options, const char *expected)
{
    struct grammar g;
    struct buffer drawn = {0};
    grammar_init(&g, &vocabulary, options);
    give(&g, parts, count, END);
    draw(&drawn, &g);
    assert_string_equal(drawn.data, expected);
    buffer_release(&drawn);
    grammar_release(&g);
}
#define EXPECT(parts, options, ...) expect(parts, COUNT_OF(parts), options, __VA_ARGS__)

static const i32 words[] = {50, 51, 52, 53};
static const struct part one_word = {.kind = STREAM_TEXT, .weight = 1, .ids = words, .count = 1};
static const struct part still = {.kind = STREAM_IMAGE_OUT, .weight = 1, .frames = 1, .shape = 0};
static const struct part clip = {.kind = STREAM_VIDEO_OUT, .weight = 1, .frames = 3, .shape = 1};
static const struct part given_image = {.kind = STREAM_IMAGE_IN, .weight = 1, .frames = 1, .height = 1, .width = 3};
static const struct part given_clip = {.kind = STREAM_VIDEO_IN, .weight = 1, .frames = 2, .height = 1, .width = 2};
static const struct part sound = {.kind = STREAM_AUDIO, .weight = 1, .count = 2};
static const struct part voice = {.kind = STREAM_AUDIO, .voice = true};

TEST(text_predicts_the_next_id)
{
    struct part parts[] = {{.kind = STREAM_TEXT, .weight = 1, .ids = words, .count = 3}};
    EXPECT(parts, NULL,
           "0 text 50 0,0,0 0 -> 51\n"
           "1 text 51 1,1,1 1 -> 52\n"
           "2 text 52 2,2,2 2 -> END\n");
}

TEST(prompts_have_no_weight)
{
    struct part parts[] = {{.kind = STREAM_TEXT, .weight = 0, .ids = words, .count = 2},
                           {.kind = STREAM_TEXT, .weight = 1, .ids = words + 2, .count = 1}};
    EXPECT(parts, NULL,
           "0 text 50 0,0,0 0 -> 51*0\n"
           "1 text 51 1,1,1 1 -> 52\n"
           "2 text 52 2,2,2 2 -> END\n");
}

TEST(image_in_is_seen_whole_and_predicts_nothing)
{
    struct part parts[] = {one_word, given_image, one_word};
    EXPECT(parts, NULL,
           "0 text 50 0,0,0 0\n"
           "1 image-in BOI 1,1,1 1\n"
           "2 image-in cell[0,0] 2,2,2 2\n"
           "3 image-in cell[0,1] 2,2,3 2\n"
           "4 image-in cell[0,2] 2,2,4 2\n"
           "5 image-in EOI 5,5,5 5 -> 50(text)\n"
           "6 text 50 6,6,6 6 -> END\n");
}

TEST(video_in_is_seen_frame_by_frame)
{
    struct part parts[] = {given_clip, one_word};
    EXPECT(parts, NULL,
           "0 video-in BOV 0,0,0 0\n"
           "1 video-in cell[0,0] 1,1,1 1\n"
           "2 video-in cell[0,1] 1,1,2 1\n"
           "3 video-in cell[1,0] 2,1,1 3\n"
           "4 video-in cell[1,1] 2,1,2 3\n"
           "5 video-in EOV 3,3,3 5 -> 50(text)\n"
           "6 text 50 4,4,4 6 -> END\n");
}

TEST(image_out_is_predicted_scale_by_scale)
{
    struct part parts[] = {one_word, still, one_word};
    EXPECT(parts, NULL,
           "0 text 50 0,0,0 0 -> STILL(image-out)\n"
           "1 image-out STILL 1,1,1 1\n"
           "2 image-out BOI 2,2,2 2 -> bits[0,0,k0]\n"
           "3 image-out sum[0,0,k1] 3,3,3 3 -> bits[0,1,k1]\n"
           "4 image-out sum[0,1,k1] 3,3,4 3 -> bits[0,2,k1]\n"
           "5 image-out sum[0,2,k1] 3,4,3 3 -> bits[0,3,k1]\n"
           "6 image-out sum[0,3,k1] 3,4,4 3 -> bits[0,4,k1]\n"
           "7 image-out sum[0,4,k2] 3,3.5,3.5 7\n"
           "8 image-out EOI 5,5,5 8 -> 50(text)\n"
           "9 text 50 6,6,6 9 -> END\n");
}

#define CLIP_TEXT(hole0, last0, hole1, last1, hole2)                                                                   \
    "0 video-out CLIP 0,0,0 0\n"                                                                                       \
    "1 video-out BOV 1,1,1 1 -> bits[0,0,k0]\n"                                                                        \
    "2 video-out sum[0,0,k1] 2,2,2 2" hole0 " -> bits[0,1,k1]\n"                                                       \
    "3 video-out sum[0,1,k1] 2,2,3 2" hole0 " -> bits[0,2,k1]\n"                                                       \
    "4 video-out sum[0,2,k1] 2,3,2 2" hole0 " -> bits[0,3,k1]\n"                                                       \
    "5 video-out sum[0,3,k1] 2,3,3 2" hole0 " -> bits[0,4,k1]\n"                                                       \
    "6 video-out sum[0,4,k2] 2,2.5,2.5 6" last0 " -> NEXT -> bits[1,0,k0]\n"                                           \
    "7 video-out sum[1,0,k1] 3,2,2 7" hole1 " -> bits[1,1,k1]\n"                                                       \
    "8 video-out sum[1,1,k1] 3,2,3 7" hole1 " -> bits[1,2,k1]\n"                                                       \
    "9 video-out sum[1,2,k1] 3,3,2 7" hole1 " -> bits[1,3,k1]\n"                                                       \
    "10 video-out sum[1,3,k1] 3,3,3 7" hole1 " -> bits[1,4,k1]\n"                                                      \
    "11 video-out sum[1,4,k2] 3,2.5,2.5 11" last1 " -> NEXT -> bits[2,0,k0]\n"                                         \
    "12 video-out sum[2,0,k1] 4,2,2 12" hole2 " -> bits[2,1,k1]\n"                                                     \
    "13 video-out sum[2,1,k1] 4,2,3 12" hole2 " -> bits[2,2,k1]\n"                                                     \
    "14 video-out sum[2,2,k1] 4,3,2 12" hole2 " -> bits[2,3,k1]\n"                                                     \
    "15 video-out sum[2,3,k1] 4,3,3 12" hole2 " -> bits[2,4,k1]\n"                                                     \
    "16 video-out sum[2,4,k2] 4,2.5,2.5 16 -> EOV\n"                                                                   \
    "17 video-out EOV 5,5,5 17 -> END(text)\n"

TEST(video_out_goes_from_frame_to_frame)
{
    struct part parts[] = {clip};
    struct grammar_options window = {.window = 1}, masked = {.mask_share = 1};
    EXPECT(parts, NULL, CLIP_TEXT("", "", "", "", ""));
    /* targets of frame 2, from its first scale at position 11 on, do not see frame 0; later
     * positions do */
    EXPECT(parts, &window, CLIP_TEXT(" [11,17)", " [11,17)", " [16,17)", " [16,17)", ""));
    EXPECT(parts, &masked, CLIP_TEXT(" [6,17)", " [7,17)", " [11,17)", " [12,17)", " [16,17)"));
}

TEST(audio_ends_with_a_frame_where_text_speaks)
{
    struct part parts[] = {one_word, sound, one_word};
    EXPECT(parts, NULL,
           "0 text 50 0,0,0 0 -> BOA(audio)\n"
           "1 audio BOA 1,1,1 1 -> codes[0]\n"
           "2 audio frame[0] 2,2,2 2 -> codes[1]\n"
           "3 audio frame[1] 3,3,3 3 -> codes[2]\n"
           "4 audio frame[2] 4,4,4 4 -> 50(text)\n"
           "5 text 50 5,5,5 5 -> END\n");
}

TEST(a_voice_is_one_position_before_the_text)
{
    struct part parts[] = {voice, one_word, sound};
    EXPECT(parts, NULL,
           "0 audio voice[0] 0,0,0 0 -> 50(text)\n"
           "1 text 50 1,1,1 1 -> BOA(audio)\n"
           "2 audio BOA 2,2,2 2 -> codes[0]\n"
           "3 audio frame[0] 3,3,3 3 -> codes[1]\n"
           "4 audio frame[1] 4,4,4 4 -> codes[2]\n"
           "5 audio frame[2] 5,5,5 5 -> END(text)\n");
}

TEST(scales_are_aligned_on_their_centre)
{
    struct part parts[] = {{.kind = STREAM_IMAGE_OUT, .weight = 1, .frames = 1, .shape = 2}};
    struct grammar g;
    grammar_init(&g, &vocabulary, NULL);
    give(&g, parts, 1, END);
    assert_float_equal(g.positions[2].at[1], 2 + 0.5, 0); /* scale 2: cells 2 wide, centres at 0.5 and 2.5 */
    assert_float_equal(g.positions[5].at[2], 2 + 2.5, 0);
    assert_float_equal(g.positions[6].at[1], 2, 0); /* finest scale: whole numbers */
    assert_float_equal(g.positions[21].at[2], 2 + 3, 0);
    assert_float_equal(g.positions[22].at[1], 2 + 1.5, 0);
    assert_float_equal(g.positions[23].at[0], 2 + 4, 0); /* counters continue at max + 1 */
    grammar_release(&g);
}

/* 2 rows of 6 cells: the 1 x 3 scale is centred between the
 * rows, each of its cells between two columns. */
TEST(long_pictures_have_long_scales)
{
    struct part parts[] = {{.kind = STREAM_IMAGE_OUT, .weight = 1, .frames = 1, .shape = 3}};
    struct grammar g;
    struct sample_measure measured;
    grammar_init(&g, &vocabulary, NULL);
    give(&g, parts, 1, END);
    grammar_measure(&measured, &vocabulary, parts, 1, END);
    assert_int_equal(shape_tokens(&vocabulary.shapes[3]), 1 + 3 + 12);
    assert_int_equal(g.count, 2 + 3 + 12 + 1 + 1);
    assert_int_equal(measured.length, g.count);
    for (i64 i = 0; i < 3; i++) {
        assert_float_equal(g.positions[2 + i].at[1], 2 + 0.5, 0);
        assert_float_equal(g.positions[2 + i].at[2], 2 + 0.5 + 2 * (double)i, 0);
        assert_int_equal(g.positions[2 + i].begin, 2);
    }
    for (i64 i = 0; i < 12; i++) {
        assert_float_equal(g.positions[5 + i].at[1], 2 + (double)(i / 6), 0);
        assert_float_equal(g.positions[5 + i].at[2], 2 + (double)(i % 6), 0);
        assert_int_equal(g.positions[5 + i].begin, 5);
    }
    assert_float_equal(g.positions[17].at[1], 2 + 0.5, 0);
    assert_float_equal(g.positions[17].at[2], 2 + 2.5, 0);
    assert_float_equal(g.positions[18].at[0], 2 + 6, 0);
    grammar_release(&g);
}

TEST(scale_weights_have_mean_one)
{
    struct part parts[] = {{.kind = STREAM_IMAGE_OUT, .weight = 2, .frames = 1, .shape = 2}};
    struct grammar g;
    double sum = 0;
    grammar_init(&g, &vocabulary, &(struct grammar_options){.reweight = true});
    give(&g, parts, 1, END);
    for (i64 i = 0; i < g.count; i++)
        sum += g.positions[i].out == TARGET_VISION ? g.positions[i].out_weight : 0;
    assert_float_equal(sum / 21, 2, 1e-5);
    assert_float_equal(g.positions[1].out_weight, 4 * g.positions[6].out_weight, 1e-5);
    grammar_release(&g);
}

/* Answers like the generator: whatever the grammar wants, from the same sample. An id without
 * alternative needs no draw. */
static void answer(struct grammar *g, const struct part *part, i64 *told)
{
    i32 only[2];
    i64 choices = grammar_choices(g, only), frames = part->kind == STREAM_AUDIO ? part->count : part->frames;
    if (g->want == WANT_BITS)
        grammar_bits(g);
    else if (g->want == WANT_FRAME)
        grammar_frame(g, g->frame == frames);
    else if (choices == 2)
        assert_int_equal(grammar_id(g, g->frame + 1 < frames ? only[0] : only[1]), 0);
    else if (choices == 1)
        assert_int_equal(grammar_id(g, only[0]), 0);
    else if (part->kind == STREAM_TEXT)
        assert_int_equal(grammar_id(g, part->ids[(*told)++]), 0);
    else
        assert_int_equal(grammar_id(g, part->kind == STREAM_AUDIO ? BOA : vocabulary.shape[part->shape]), 0);
}

static bool part_done(const struct grammar *g, const struct part *part, i64 told, i64 begun)
{
    return g->want == WANT_ID && (part->kind == STREAM_TEXT ? told == part->count : grammar_length(g) > begun);
}

static void generate(struct grammar *g, const struct part *parts, i64 count, bool take)
{
    for (i64 i = 0; i < count; i++) {
        i64 told = 0, begun = grammar_length(g);
        while (!part_done(g, &parts[i], told, begun)) {
            answer(g, &parts[i], &told);
            for (i64 at = g->want_first; take && at < g->want_first + g->want_count; at++)
                assert_in_range(at, 0, grammar_length(g) - 1);
            if (take)
                grammar_take(g, g->count);
        }
    }
    assert_true(grammar_allows(g, END));
    assert_int_equal(grammar_end(g, END), 0);
    assert_int_equal(g->want, WANT_NOTHING);
}

TEST(drawing_what_is_wanted_gives_the_same_sample)
{
    static const struct part words_part = {.kind = STREAM_TEXT, .weight = 1, .ids = words, .count = 4};
    struct part parts[] = {words_part, still, words_part, clip, sound, sound, still, words_part};
    struct grammar_options window = {.window = 1};
    struct grammar known, drawn;
    struct buffer a = {0}, b = {0};
    grammar_init(&known, &vocabulary, &window);
    grammar_init(&drawn, &vocabulary, &window);
    give(&known, parts, COUNT_OF(parts), END);
    grammar_begin(&drawn);
    generate(&drawn, parts, COUNT_OF(parts), false);
    draw(&a, &known);
    draw(&b, &drawn);
    assert_string_equal(a.data, b.data);
    grammar_begin(&drawn);
    generate(&drawn, parts, COUNT_OF(parts), true); /* without the earlier parts at hand */
    assert_int_equal(grammar_length(&drawn), known.count);
    assert_int_equal(drawn.counter, known.counter);
    buffer_release(&a);
    buffer_release(&b);
    grammar_release(&known);
    grammar_release(&drawn);
}

/* A video's holes stay open while it is generated; when it ends, the generator closes those of its
 * own columns. */
TEST(holes_are_open_until_the_video_ends)
{
    struct grammar g;
    grammar_init(&g, &vocabulary, &(struct grammar_options){.window = 1});
    assert_int_equal(grammar_id(&g, CLIP), 0);
    assert_int_equal(grammar_id(&g, BOV), 0);
    grammar_take(&g, g.count);
    grammar_bits(&g);
    assert_int_equal(g.positions[0].hole_begin, 11);
    assert_int_equal(g.positions[0].hole_end, HOLE_OPEN);
    grammar_bits(&g);
    grammar_take(&g, g.count);
    assert_int_equal(g.block_end, 0);
    assert_int_equal(grammar_id(&g, EOV), 0);
    assert_int_equal(g.block_first, 2);
    assert_int_equal(g.block_end, 7);
    grammar_release(&g);
}

static void refuse(struct grammar *g, i32 id, const char *says)
{
    assert_false(grammar_allows(g, id));
    assert_int_equal(grammar_id(g, id), -1);
    assert_non_null(strstr(error_text(), says));
}

TEST(ids_out_of_place_are_refused)
{
    struct grammar g;
    grammar_init(&g, &vocabulary, NULL);
    for (i32 id = BOI; id <= NEXT; id++)
        refuse(&g, id, "an id of text");
    assert_int_equal(grammar_id(&g, STILL), 0);
    refuse(&g, BOV, "the bracket");
    refuse(&g, 50, "the bracket");
    assert_int_equal(grammar_end(&g, END), -1);
    assert_int_equal(grammar_id(&g, BOI), 0);
    refuse(&g, 50, "bits");
    grammar_bits(&g);
    grammar_bits(&g);
    refuse(&g, NEXT, "the end of a picture");
    assert_int_equal(grammar_cells(&g, STREAM_IMAGE_IN, 1, 1, 1), -1);
    assert_int_equal(grammar_part(&g, &voice), -1);
    assert_non_null(strstr(error_text(), "a voice is given"));
    struct part bad[] = {{.kind = STREAM_TEXT, .ids = (i32[]){BOA}, .count = 1},
                         {.kind = STREAM_IMAGE_OUT, .shape = 1, .frames = 1},
                         {.kind = STREAM_VIDEO_OUT, .shape = 7, .frames = 1},
                         {.kind = STREAM_VIDEO_OUT, .shape = 1, .frames = 0}};
    for (i64 i = 0; i < COUNT_OF(bad); i++) {
        grammar_begin(&g);
        assert_int_equal(grammar_part(&g, &bad[i]), -1);
    }
    grammar_release(&g);
}

static struct part random_part(u32 sample, u32 index)
{
    struct rng_key key = {7, RNG_TEST};
    struct part p = {.kind = (enum stream)rng_below(key, STREAM_AUDIO + 1, sample, index, 0, 0)};
    p.weight = 0.5f * (float)rng_below(key, 3, sample, index, 1, 0);
    p.count = rng_below(key, 5, sample, index, 2, 0);
    p.ids = words;
    p.voice = p.kind == STREAM_AUDIO && rng_below(key, 2, sample, index, 7, 0);
    p.count = p.kind == STREAM_TEXT ? min_i64(p.count, 4) : p.count;
    p.frames = p.kind == STREAM_VIDEO_OUT || p.kind == STREAM_VIDEO_IN ? 1 + rng_below(key, 3, sample, index, 3, 0) : 1;
    p.height = 1 + rng_below(key, 3, sample, index, 4, 0);
    p.width = 1 + rng_below(key, 3, sample, index, 5, 0);
    p.shape = p.kind == STREAM_VIDEO_OUT ? 1 : 2 * rng_below(key, 2, sample, index, 6, 0);
    return p;
}

static void check_lists(const struct batch *b)
{
    i64 inputs = 0;
    for (int kind = 0; kind < INPUTS; kind++) {
        inputs += b->inputs[kind].n;
        for (i64 i = 1; i < b->inputs[kind].n; i++)
            assert_true(b->inputs[kind].position[i] > b->inputs[kind].position[i - 1]);
    }
    assert_int_equal(inputs, b->n); /* each position has exactly one input */
    for (int kind = 0; kind < TARGETS; kind++)
        for (i64 i = 1; i < b->targets[kind].n; i++)
            assert_true(b->targets[kind].position[i] > b->targets[kind].position[i - 1]);
}

static void lay_and_measure(struct grammar *g, struct arena *arena, u32 sample)
{
    struct part parts[6];
    struct batch batch;
    struct sample_measure measured;
    i64 count = 1 + rng_below((struct rng_key){7, RNG_TEST}, 6, sample, 99, 0, 0);
    for (i64 i = 0; i < count; i++)
        parts[i] = random_part(sample, (u32)i);
    give(g, parts, count, END);
    grammar_measure(&measured, &vocabulary, parts, count, END);
    assert_int_equal(measured.length, g->count);
    batch_init(&batch, arena, g->count + 5,
               &(struct token_sizes){.bits = 4, .levels = 2, .cell_features = 8, .patch_values = 3, .voice = 3});
    batch_pad(&batch, 0, 3);
    batch_lay(&batch, 3, g, 8);
    batch_pad(&batch, 3 + g->count, 2);
    check_lists(&batch);
    assert_int_equal(measured.seen, batch.inputs[INPUT_VISION_IN].n);
    for (int kind = 0; kind < TARGETS; kind++) {
        double sum = 0;
        for (i64 i = 0; i < batch.targets[kind].n; i++)
            sum += batch.targets[kind].weight[i];
        assert_float_equal(sum, measured.totals[kind], 1e-4);
    }
}

TEST(measured_lengths_and_totals_are_those_built)
{
    struct arena arena;
    struct grammar g;
    arena_open(&arena, 1 << 28);
    grammar_init(&g, &vocabulary, &(struct grammar_options){.reweight = true});
    for (u32 sample = 0; sample < 2000; sample++) {
        arena_reset(&arena, 0);
        lay_and_measure(&g, &arena, sample);
    }
    grammar_release(&g);
    arena_close(&arena);
}

TEST(later_ids_are_predicted_where_both_are_text)
{
    struct part parts[] = {{.kind = STREAM_TEXT, .weight = 1, .ids = words, .count = 3},
                           still,
                           {.kind = STREAM_TEXT, .weight = 1, .ids = words, .count = 2}};
    struct arena arena;
    struct grammar g;
    struct batch b;
    arena_open(&arena, 1 << 24);
    grammar_init(&g, &vocabulary, NULL);
    give(&g, parts, COUNT_OF(parts), END);
    batch_init(&b, &arena, g.count, &(struct token_sizes){.bits = 4});
    batch_lay(&b, 0, &g, 0);
    const struct target_list *mtp = &b.targets[TARGET_MTP];
    assert_int_equal(mtp->n, 3);
    const i32 position[] = {0, 10, 11}, ids[] = {52, 51, END}; /* EOI is at position 10 */
    assert_memory_equal(mtp->position, position, sizeof position);
    assert_memory_equal(mtp->ids, ids, sizeof ids);
    grammar_release(&g);
    arena_close(&arena);
}

TEST(batches_hold_samples_apart)
{
    struct part parts[] = {one_word, clip};
    struct arena arena;
    struct grammar g;
    struct batch b;
    arena_open(&arena, 1 << 24);
    grammar_init(&g, &vocabulary, &(struct grammar_options){.window = 1});
    give(&g, parts, COUNT_OF(parts), END);
    batch_init(&b, &arena, 2 * g.count + 1, &(struct token_sizes){.bits = 4});
    batch_lay(&b, 0, &g, 0);
    batch_lay(&b, g.count, &g, 1);
    batch_pad(&b, 2 * g.count, 1);
    for (i64 i = 0; i < b.n; i++)
        for (i64 j = 0; j < b.n; j++) {
            bool sees = b.begin[j] <= i && i < b.end[j] && !(b.hole_begin[j] <= i && i < b.hole_end[j]);
            if (b.sample[i] != b.sample[j])
                assert_false(sees);
            else if (i == j)
                assert_true(sees);
        }
    assert_int_equal(b.hole_begin[g.count + 3], g.count + 12);
    assert_int_equal(b.inputs[INPUT_TEXT].ids[b.inputs[INPUT_TEXT].n - 1], -1);
    grammar_release(&g);
    arena_close(&arena);
}

TEST(special_tokens_give_the_vocabulary)
{
    struct vocabulary v;
    struct text_trainer *trainer =
        text_trainer_open(&(struct text_training){.vocabulary = 400, .special_tokens = grammar_special_tokens});
    assert_int_equal(text_trainer_feed(trainer, "some words", 10), 0);
    struct text_tokenizer *tokenizer = text_trainer_finish(trainer);
    assert_int_equal(vocabulary_load(&v, tokenizer, NULL), 0);
    const i32 ids[] = {v.bracket[BRACKET_BOI],
                       v.bracket[BRACKET_EOI],
                       v.bracket[BRACKET_BOV],
                       v.bracket[BRACKET_EOV],
                       v.bracket[BRACKET_NEXT],
                       v.bracket[BRACKET_BOA],
                       v.end,
                       v.message_begin,
                       v.message_end};
    for (i64 i = 0; i < COUNT_OF(ids); i++)
        assert_true(ids[i] >= 0);
    text_tokenizer_free(tokenizer);
}

/* A document ends with the token of documents, if there is one; that of answers is the last resort. */
TEST(documents_end_with_the_first_end_known)
{
    static const char *const tokens[][5] = {{"</s>", "<|im_end|>", "<|end_of_text|>", "<|endoftext|>"},
                                            {"</s>", "<|im_end|>", "<|end_of_text|>"},
                                            {"<|im_end|>", "</s>"},
                                            {"<|im_end|>"}};
    static const char *const ends[] = {"<|endoftext|>", "<|end_of_text|>", "</s>", "<|im_end|>"};
    for (i64 i = 0; i < COUNT_OF(tokens); i++) {
        struct vocabulary v;
        struct text_trainer *trainer =
            text_trainer_open(&(struct text_training){.vocabulary = 400, .special_tokens = tokens[i]});
        assert_int_equal(text_trainer_feed(trainer, "some words", 10), 0);
        struct text_tokenizer *tokenizer = text_trainer_finish(trainer);
        assert_int_equal(vocabulary_init(&v, tokenizer, NULL, 0), 0);
        assert_true(v.end >= 0);
        assert_int_equal(v.end, text_token_id(tokenizer, ends[i]));
        text_tokenizer_free(tokenizer);
    }
}

int main(void)
{
    return tests_run(NULL, NULL);
}
