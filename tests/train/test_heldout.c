/* Held-out measures of a model with uniform predictions (its last norm is zero, so all logits are):
 * losses are logarithms of the number of choices, and unigram entropies and text bytes are
 * recounted from the written shards. */
#define _GNU_SOURCE /* posix_openpt */
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include "baselines/baselines.h"
#include "rl/eval.h"
#include "train/heldout_inside.h"
#include "tests/scratch.h"
#include "tests/shard_fixture.h"
#include "tests/toy.h"

enum { TEXTS = 5, PICTURES = 4, HEARD = 3, LENGTH = 96 };
static const char words[] =
    "the words of this text, and these words \xc3\xa9t\xc3\xa9 again"; /* 2 letters of 2 bytes each */

static struct device device;
static struct model model;
static struct submodel full;
static struct text_tokenizer *tokenizer;
static struct id_list ids; /* ids of `words` */

/* ---- Shards: texts of the same words, each after a captioned picture; pictures of 1 position;
 * sounds ---- */

static struct shard_part write_words(struct shard_writer *writer)
{
    struct shard_part part = {.kind = STREAM_TEXT, .count = (u32)ids.count};
    shard_write_payload(writer, &part, ids.ids, ids.count * 4);
    return part;
}

static void write_sample(struct shard_writer *writer, enum direction direction, struct shard_part *parts, i64 count)
{
    shard_write_sample(writer, direction, "made", parts, count);
    shard_write_break(writer);
}

static void write_texts(struct shard_writer *writer)
{
    for (i64 i = 0; i < TEXTS; i++) {
        struct shard_part described[2] = {fixture_medium(writer, i, STREAM_IMAGE_IN), write_words(writer)};
        described[0].condition = 1;
        write_sample(writer, DIRECTION_IMAGE_IN, described, 2);
        struct shard_part text = write_words(writer);
        write_sample(writer, DIRECTION_TEXT, &text, 1);
    }
}

/* Bits are signs. Over 4 pictures, bit 0 is set in all, 1 in
 * two, 2 in one, 3 in three, 4 in none, 5 in two. */
static struct shard_part write_picture(struct shard_writer *writer, i64 i)
{
    const bool set[] = {true, i % 2, i == 0, i != 0, false, i >= 2};
    struct shard_part part = {.kind = STREAM_IMAGE_OUT, .frames = 1, .height = 1, .width = 1};
    bf16 latent[6];
    for (i64 b = 0; b < 6; b++)
        latent[b] = bf16_from_f32(set[b] ? 0.5f : -0.5f);
    shard_write_payload(writer, &part, latent, sizeof latent);
    return part;
}

/* Three frames: level 0 has the same code 3 times, level 1 two codes. The end follows. */
static struct shard_part write_sound(struct shard_writer *writer)
{
    static const u16 codes[3][2] = {{3, 1}, {3, 2}, {3, 1}};
    struct shard_part part = {.kind = STREAM_AUDIO, .count = 3};
    shard_write_payload(writer, &part, codes, sizeof codes);
    return part;
}

static void write_media(struct shard_writer *writer)
{
    for (i64 i = 0; i < PICTURES; i++) {
        struct shard_part parts[2] = {write_words(writer), write_picture(writer, i)};
        parts[0].condition = 1;
        write_sample(writer, DIRECTION_IMAGE_OUT, parts, 2);
        parts[0] = write_words(writer);
        parts[0].condition = 1;
        parts[1] = write_sound(writer);
        write_sample(writer, DIRECTION_AUDIO_OUT, parts, 2);
    }
}

/* Three directions with a sound or a picture, and conversations. Prompts are no targets. */
static void write_heard(struct shard_writer *writer)
{
    for (i64 i = 0; i < HEARD; i++) {
        struct shard_part text = write_words(writer), sound = write_sound(writer), given, heard = sound;
        heard.condition = 1;
        write_sample(writer, DIRECTION_AUDIO_IN, (struct shard_part[]){heard, text}, 2);
        given = write_words(writer);
        given.condition = 1;
        sound = write_sound(writer);
        write_sample(writer, DIRECTION_AUDIO_OUT, (struct shard_part[]){given, sound}, 2);
        given = write_words(writer);
        given.condition = 1;
        write_sample(writer, DIRECTION_IMAGE_OUT, (struct shard_part[]){given, write_picture(writer, i)}, 2);
        given = write_words(writer);
        given.condition = 1;
        write_sample(writer, DIRECTION_CHAT, (struct shard_part[]){given, write_words(writer)}, 2);
    }
}

static void write_one(struct shard_writer *writer)
{
    struct shard_part parts[2] = {write_words(writer), write_picture(writer, 0)};
    parts[0].condition = 1;
    write_sample(writer, DIRECTION_IMAGE_OUT, parts, 2);
    parts[0] = write_words(writer);
    parts[0].condition = 1;
    parts[1] = write_sound(writer);
    write_sample(writer, DIRECTION_AUDIO_OUT, parts, 2);
}

/* Pictures that are described, and made from words; no two samples of a direction have a part in common. */
static void write_apart(struct shard_writer *writer)
{
    for (i64 i = 0; i < PICTURES; i++) {
        struct shard_part text = {.kind = STREAM_TEXT, .count = (u32)(ids.count - i)};
        struct shard_part described[2] = {fixture_medium(writer, i, STREAM_IMAGE_IN), text};
        described[0].condition = 1;
        shard_write_payload(writer, &described[1], ids.ids, (ids.count - i) * 4);
        write_sample(writer, DIRECTION_IMAGE_IN, described, 2);
        struct shard_part made[2] = {text, write_picture(writer, i)};
        made[0].condition = 1;
        shard_write_payload(writer, &made[0], ids.ids, (ids.count - i) * 4);
        write_sample(writer, DIRECTION_IMAGE_OUT, made, 2);
        struct shard_part alone = write_words(writer);
        write_sample(writer, DIRECTION_TEXT, &alone, 1);
    }
}

static void make_part(const char *name, const char *split, void (*write)(struct shard_writer *writer))
{
    char *folder = path_join(directory, name), *part = path_join(folder, split);
    succeed(directory_make(folder));
    fixture_tokenizer(folder);
    succeed(shard_meta_save(&fixture_meta, folder));
    if (!tokenizer) {
        char *text = path_join(folder, "text");
        tokenizer = text_tokenizer_load(text);
        memory_free(text);
        succeed(text_encode(tokenizer, &ids, words, sizeof words - 1, NULL));
    }
    struct shard_writer *writer = shard_writer_open(part, &fixture_meta, 1 << 20);
    assert_non_null(writer);
    write(writer);
    succeed(shard_writer_close(writer));
    memory_free(folder);
    memory_free(part);
}

static void make_folder(const char *name, void (*write)(struct shard_writer *writer))
{
    make_part(name, "validation", write);
}

static void clear_weight(struct weight *w)
{
    float *zeros = memory_alloc(weight_elements(w) * 4);
    toy_set_weight(&model.weights, w, zeros);
    memory_free(zeros);
}

static int setup(void **state)
{
    make_directory(state);
    device_open_cpu(&device);
    fixture_meta.shapes[0] = (struct shard_shape){{.scale_count = 1, .scales = {{1, 1}}, .frames = 1}, 1, 1, {0.5f}};
    make_folder("texts", write_texts);
    make_folder("media", write_media);
    make_folder("heard", write_heard);
    make_folder("apart", write_apart);
    make_folder("learnt", write_media);
    make_folder("taught", write_texts);
    make_part("taught", "train", write_texts);
    make_part("learnt", "train", write_one);
    struct model_config c = toy_config(2, TOY_ALL);
    c.vocabulary = round_up(fixture_meta.vocabulary, 16);
    toy_open(&model, &device, &c, false);
    clear_weight(model.norm);
    clear_weight(model.vision_norm);
    for (i64 l = 0; l < c.levels; l++)
        clear_weight(model.audio_norm[l]);
    submodel_full(&full, &model.config);
    return 0;
}

static int teardown(void **state)
{
    model_close(&model);
    text_tokenizer_free(tokenizer);
    id_list_release(&ids);
    device_close(&device);
    return remove_directory(state);
}

/* ---- Counting ---- */

static struct heldout measured(const char *folder)
{
    struct heldout h;
    succeed(heldout_measure(&h, &model, &full, path_of(folder), "validation", LENGTH, 0));
    return h;
}

static double part_of(double p) /* one term of an entropy */
{
    return p > 0 ? -p * log(p) : 0;
}

/* All ids of a text sample except the first are targets, and so is the end. */
TEST(text_is_counted_by_its_ids)
{
    struct heldout h = measured("texts");
    double n = (double)ids.count, entropy = part_of(1 / n);
    for (i64 i = 1; i < ids.count; i++) {
        double same = 0;
        for (i64 j = 1; j < ids.count; j++)
            same += ids.ids[j] == ids.ids[i];
        entropy += part_of(same / n) / same;
    }
    assert_float_equal(h.sums.weight[STREAM_TEXT][TARGET_TEXT], TEXTS * n, 1e-9);
    assert_float_equal(h.unigram[STREAM_TEXT][TARGET_TEXT], entropy, 1e-9);
    assert_float_equal(heldout_loss(&h, STREAM_TEXT, TARGET_TEXT), log((double)model.config.vocabulary), 1e-5);
    assert_int_equal(left_out_total(&h.left_out), 0);
}

/* Text after a picture counts for the picture's stream: the first id is a target too. */
TEST(words_behind_a_picture_are_of_its_stream)
{
    struct heldout h = measured("texts");
    assert_float_equal(h.sums.weight[STREAM_IMAGE_IN][TARGET_TEXT], TEXTS * ((double)ids.count + 1), 1e-9);
    assert_true(isnan(h.unigram[STREAM_AUDIO][TARGET_TEXT]) && isnan(heldout_loss(&h, STREAM_AUDIO, TARGET_AUDIO)));
}

/* What is heard, and the end that is heard too. The id that begins a sound the model makes, the
 * shape of a picture and the ends behind both are marks; captions that are prompts count nowhere. */
TEST(only_words_that_are_heard_count_for_sounds)
{
    struct heldout h = measured("heard");
    double n = (double)ids.count;
    assert_float_equal(h.sums.weight[STREAM_AUDIO][TARGET_TEXT], HEARD * (n + 1), 1e-9);
    assert_float_equal(h.sums.weight[STREAM_IMAGE_OUT][TARGET_TEXT], 0, 0);
    assert_float_equal(h.sums.weight[STREAM_TEXT][TARGET_TEXT], 0, 0);
    assert_float_equal(h.sums.weight[LOSS_MARKS][TARGET_TEXT], HEARD * 4, 1e-9);
    assert_float_equal(h.sums.weight[STREAM_AUDIO][TARGET_AUDIO], HEARD * 4, 1e-9);
    assert_float_equal(h.unigram[LOSS_MARKS][TARGET_TEXT], 2 * part_of(0.25) + part_of(0.5), 1e-9);
    assert_float_equal(h.uniform[TARGET_TEXT], log((double)model.config.vocabulary), 1e-9);
    assert_float_equal(h.uniform[TARGET_VISION], log(2), 1e-9);
}

TEST(conversations_are_measured_alone_where_asked)
{
    struct heldout h, all = measured("heard"), none;
    double n = (double)ids.count;
    succeed(heldout_measure_chats(&h, &model, &full, path_of("heard"), "validation", LENGTH, 0));
    assert_float_equal(h.sums.weight[LOSS_CHAT][TARGET_TEXT], HEARD * (n + 1), 1e-9);
    assert_float_equal(all.sums.weight[LOSS_CHAT][TARGET_TEXT], HEARD * (n + 1), 1e-9);
    assert_int_equal(h.positions, HEARD * 2 * ids.count);
    assert_true(all.positions > h.positions && isnan(heldout_loss(&h, STREAM_AUDIO, TARGET_TEXT)));
    struct json *j = heldout_json(&h);
    assert_int_equal(json_count(j), 2); /* text and mtp */
    assert_string_equal(json_string(json_get(json_at(j, 0), "stream"), ""), "chat");
    json_free(j);
    succeed(heldout_measure_chats(&none, &model, &full, path_of("texts"), "validation", LENGTH, 0));
    assert_true(none.positions == 0 && isnan(heldout_mean(&none, TARGET_TEXT)));
}

TEST(bits_have_the_mean_entropy_of_each)
{
    struct heldout h = measured("media");
    double half = log(2), quarter = part_of(0.25) + part_of(0.75);
    assert_float_equal(h.sums.weight[STREAM_IMAGE_OUT][TARGET_VISION], PICTURES, 1e-9);
    assert_float_equal(h.unigram[STREAM_IMAGE_OUT][TARGET_VISION], (2 * half + 2 * quarter) / 6, 1e-9);
    assert_float_equal(heldout_loss(&h, STREAM_IMAGE_OUT, TARGET_VISION), log(2), 1e-5); /* the same unit: 1 bit */
    assert_float_equal(heldout_mean(&h, TARGET_VISION), log(2), 1e-5);
}

TEST(codes_have_the_mean_entropy_of_levels)
{
    struct heldout h = measured("media");
    double first = part_of(0.75) + part_of(0.25), second = part_of(0.5) + 2 * part_of(0.25);
    assert_float_equal(h.sums.weight[STREAM_AUDIO][TARGET_AUDIO], 4 * PICTURES, 1e-9);
    assert_float_equal(h.unigram[STREAM_AUDIO][TARGET_AUDIO], (first + second) / 2, 1e-9);
    /* one extra code ends the sound */
    assert_float_equal(heldout_loss(&h, STREAM_AUDIO, TARGET_AUDIO), log(TOY_CODES + 1), 1e-5);
}

/* The training part has one picture, of bits 1 0 1 0 0 0, and one sound. By Witten and Bell a value that
 * it has n times of N, among k kinds of K, is expected with (n + k / K) / (N + k). */
TEST(frequencies_are_those_of_the_training_part)
{
    struct heldout h = measured("learnt");
    double same = -log((1 + 0.5) / 2), other = -log(0.5 / 2), classes = TOY_CODES + 1;
    assert_float_equal(h.unigram[STREAM_IMAGE_OUT][TARGET_VISION], (3.5 * same + 2.5 * other) / 6, 1e-9);
    double first = -0.75 * log((3 + 2 / classes) / 6) - 0.25 * log((1 + 2 / classes) / 6),
           second = -0.5 * log((2 + 3 / classes) / 7) - 0.5 * log((1 + 3 / classes) / 7);
    assert_float_equal(h.unigram[STREAM_AUDIO][TARGET_AUDIO], (first + second) / 2, 1e-9);
}

/* Each text has ids.count targets of log2(vocabulary) bits, spread over all bytes except those of
 * the first id. */
TEST(bits_a_byte_are_of_all_bytes)
{
    struct buffer first = {0};
    succeed(text_decode(tokenizer, &first, ids.ids, 1, true));
    double bytes = (double)((i64)sizeof words - 1 - first.length), n = (double)ids.count;
    assert_true(bytes > n && first.length > 0);
    assert_float_equal(measured("texts").bytes_of_text, TEXTS * bytes, 1e-9);
    struct eval_settings s = {.data = path_of("texts"), .split = (char *)"validation", .length = LENGTH};
    struct json *j = eval_model(&model, &full, &s, 1);
    assert_non_null(j);
    assert_float_equal(json_number(json_get(j, "bits_per_byte"), -1), n * log2((double)model.config.vocabulary) / bytes,
                       1e-4);
    json_free(j);
    buffer_release(&first);
}

/* The first id of a text is no target. All text begins with ASCII, so no character is cut. */
TEST(bytes_are_those_of_the_decoded_text)
{
    static const char *const families[] = {"llama2", "mistral", "gemma",         "bert_uncased", "bert_cased", "t5",
                                           "xlmr",   "albert",  "unigram_bytes", "qwen2",        "roberta",    "gpt1"};
    static const char text[] = "one \xe4\xbd\xa0\xe5\xa5\xbd\xef\xbc\x8c\xe4\xb8\x96 \xc3\xa9t\xc3\xa9, two! three";
    for (i64 i = 0; i < COUNT_OF(families); i++) {
        char *from = string_format(GOLDEN "/tokenizer/families/%s.json", families[i]);
        struct text_tokenizer *family = text_tokenizer_load(from);
        struct id_list list = {0};
        struct buffer all = {0}, first = {0};
        struct model_config c = model.config;
        struct model other;
        struct heldout h;
        assert_non_null(family);
        succeed(text_encode(family, &list, text, sizeof text - 1, NULL));
        succeed(text_decode(family, &all, list.ids, list.count, true));
        succeed(text_decode(family, &first, list.ids, 1, true));

        char *folder = path_of(families[i]), *held = path_join(folder, "validation"), *to = path_join(folder, "text");
        struct shard_meta meta = {.vocabulary = text_vocabulary(family)};
        succeed(directory_make(to));
        char *file = path_join(to, "tokenizer.json");
        succeed(file_copy(file, from));
        succeed(shard_meta_save(&meta, folder));
        struct shard_writer *writer = shard_writer_open(held, &meta, 1 << 20);
        struct shard_part part = {.kind = STREAM_TEXT, .count = (u32)list.count};
        shard_write_payload(writer, &part, list.ids, list.count * 4);
        write_sample(writer, DIRECTION_TEXT, &part, 1);
        succeed(shard_writer_close(writer));

        c.vocabulary = round_up(meta.vocabulary, 16);
        toy_open(&other, &device, &c, false);
        succeed(heldout_measure(&h, &other, &full, folder, "validation", LENGTH, 0));
        if (h.bytes_of_text != (double)(all.length - first.length))
            fail_msg("%s: %.0f bytes of %lld - %lld", families[i], h.bytes_of_text, (long long)all.length,
                     (long long)first.length);
        model_close(&other);
        text_tokenizer_free(family);
        id_list_release(&list);
        buffer_release(&all);
        buffer_release(&first);
        char *paths[] = {from, held, to, file};
        for (i64 k = 0; k < COUNT_OF(paths); k++)
            memory_free(paths[k]);
    }
}

/* The targets stay, so their number does; texts have no prompt. Where all captions are alike there is no
 * other one. */
TEST(exchanged_prompts_leave_the_targets)
{
    struct heldout h = measured("apart");
    assert_true(isnan(heldout_loss_exchanged(&h, STREAM_IMAGE_IN, TARGET_TEXT)));
    succeed(heldout_measure_exchanged(&h, &model, &full, path_of("apart"), "validation", LENGTH, 0));
    for (int stream = 0; stream < STREAMS; stream++)
        for (int kind = 0; kind < TARGETS; kind++)
            assert_float_equal(h.exchanged.weight[stream][kind],
                               stream == STREAM_TEXT ? 0 : h.sums.weight[stream][kind], 1e-9);
    assert_float_equal(heldout_loss_exchanged(&h, STREAM_IMAGE_IN, TARGET_TEXT), log((double)model.config.vocabulary),
                       1e-5);
    assert_float_equal(heldout_loss_exchanged(&h, STREAM_IMAGE_OUT, TARGET_VISION), log(2), 1e-5);
    h = measured("media");
    succeed(heldout_measure_exchanged(&h, &model, &full, path_of("media"), "validation", LENGTH, 0));
    assert_true(isnan(heldout_loss_exchanged(&h, STREAM_IMAGE_OUT, TARGET_VISION)));
}

/* With exchanged: true, eval gives the losses of both. */
TEST(eval_has_exchanged_losses_where_asked)
{
    struct buffer text = {0};
    struct eval_settings s = {
        .data = path_of("apart"), .split = (char *)"validation", .length = LENGTH, .exchanged = true};
    struct json *both = eval_model(&model, &full, &s, 1);
    assert_non_null(both);
    i64 exchanged = 0;
    for (i64 i = 0; i < json_count(json_get(both, "losses")); i++)
        exchanged += json_get(json_at(json_get(both, "losses"), i), "exchanged") != NULL;
    assert_int_equal(exchanged, 3); /* words of pictures, those after the next, bits */
    eval_print(&text, both);
    assert_non_null(strstr(text.data, " exchanged "));
    buffer_clear(&text);
    json_free(both);
    s.exchanged = false;
    both = eval_model(&model, &full, &s, 1);
    eval_print(&text, both);
    assert_null(strstr(text.data, "exchanged"));
    buffer_release(&text);
    json_free(both);
}

/* Training and held-out texts are the words, whole: each bigram of a text is certain but for what the
 * discount gives away. Recounted by n-grams of the words. */
TEST(eval_measures_ngrams_of_training_texts)
{
    struct eval_settings s = {.data = path_of("taught"), .split = (char *)"validation", .length = LENGTH, .ngrams = 1};
    struct ngrams *n = ngrams_open(fixture_meta.vocabulary);
    struct vocabulary v;
    struct shape shapes[] = {fixture_meta.shapes[0].shape, fixture_meta.shapes[1].shape};
    double nats[2] = {0};
    succeed(vocabulary_init(&v, tokenizer, shapes, 2));
    i32 *text = memory_alloc((ids.count + 3) * 4);
    text[0] = text[1] = NGRAM_NONE;
    memcpy(text + 2, ids.ids, (size_t)ids.count * 4);
    text[ids.count + 2] = v.end;
    for (i64 i = 0; i < TEXTS; i++)
        ngrams_add(n, text + 2, ids.count + 1);
    for (i64 i = 3; i < ids.count + 3; i++) { /* the first id is no target */
        nats[0] -= log(ngrams_probability(n, 2, text + i - 1, text[i])) / (double)ids.count;
        nats[1] -= log(ngrams_probability(n, 3, text + i - 2, text[i])) / (double)ids.count;
    }
    struct json *j = eval_model(&model, &full, &s, 1);
    assert_non_null(j);
    const struct json *loss = json_at(json_get(j, "losses"), 0);
    assert_string_equal(json_string(json_get(loss, "stream"), ""), "text");
    assert_float_equal(json_number(json_get(loss, "bigram"), -1), nats[0], 1e-9);
    assert_float_equal(json_number(json_get(loss, "trigram"), -1), nats[1], 1e-9);
    assert_true(nats[1] < nats[0]);
    json_free(j);
    s.data = path_of("texts");
    assert_null(eval_model(&model, &full, &s, 1)); /* it has no training part */
    assert_non_null(strstr(error_text(), "ngrams are counted on the training part"));
    memory_free(text);
    ngrams_close(n);
}

/* The model is uniform in ids, so all targets have one loss, and the error is 0. */
TEST(samples_that_are_alike_have_no_error)
{
    struct heldout h = measured("apart");
    assert_float_equal(h.error[STREAM_IMAGE_IN][TARGET_TEXT], 0, 1e-5);
    assert_true(isnan(h.error[STREAM_AUDIO][TARGET_AUDIO]));
}

/* Three samples with 2, 1 and 1 targets and losses of 1, 2, 3 and 6: the ratio is 3, the residuals -3, 0
 * and 3, and the variance 18 * 3 / 2 / 4^2. Bits stay apart. */
TEST(errors_are_those_of_a_ratio_over_samples)
{
    i32 position[] = {0, 1, 3, 5}, sample[] = {0, 0, 0, 1, 1, 2};
    float weight[] = {1, 1, 1, 1}, *value = device_alloc(&device, 16);
    u8 stream[] = {STREAM_AUDIO, STREAM_AUDIO, STREAM_AUDIO, STREAM_AUDIO};
    struct batch b = {.n = 6, .sample = sample};
    struct forward forward = {0};
    struct heldout_spread spread = {0};
    struct step_result sums = {0};
    double error[LOSS_STREAMS][TARGETS];
    device_put(&device, value, (const float[]){1, 2, 3, 6}, 16);
    b.targets[TARGET_TEXT] = (struct target_list){.n = 4, .position = position, .weight = weight, .stream = stream};
    forward.loss[TARGET_TEXT][0] = (struct loss){.value = value, .n = 4};
    sums.loss[STREAM_AUDIO][TARGET_TEXT] = 12;
    sums.weight[STREAM_AUDIO][TARGET_TEXT] = 4;
    heldout_spread_add(&spread, &device, &b, &forward, &model.config);
    heldout_spread_errors(error, &spread, &model, &sums);
    assert_float_equal(error[STREAM_AUDIO][TARGET_TEXT], sqrt(18 * 1.5) / 4, 1e-6);
    assert_true(isnan(error[STREAM_TEXT][TARGET_TEXT]));
    device_free(&device, value, 16);
}

/* Weights of 1, 2 and 3; kinds without targets and multi-token targets add nothing. */
TEST(the_sum_is_weighted)
{
    struct heldout h = measured("media");
    const double weights[TARGETS] = {[TARGET_TEXT] = 1, [TARGET_MTP] = 100, [TARGET_VISION] = 2, [TARGET_AUDIO] = 3};
    double text = log((double)model.config.vocabulary);
    assert_float_equal(heldout_sum(&h, weights), text + 2 * log(2) + 3 * log(TOY_CODES + 1), 1e-4);
    h = measured("texts");
    assert_float_equal(heldout_sum(&h, weights), text, 1e-4);
    h = (struct heldout){0};
    assert_true(isnan(heldout_sum(&h, weights))); /* nothing was measured */
}

TEST(a_few_rows_are_measured_where_asked)
{
    struct heldout all = measured("texts"), few, one, none;
    succeed(heldout_measure(&few, &model, &full, path_of("texts"), "validation", LENGTH, 2));
    assert_true(few.positions > 0 && few.positions <= 2 * LENGTH && few.positions < all.positions);
    succeed(heldout_measure(&one, &model, &full, path_of("texts"), "validation", LENGTH, 1));
    assert_true(one.positions > 0 && one.positions <= LENGTH);
    succeed(heldout_measure(&none, &model, &full, path_of("texts"), "validation", 8, 0));
    assert_int_equal(none.left_out.samples[DIRECTION_IMAGE_IN], TEXTS); /* with their words; a text is cut instead */
    assert_int_equal(left_out_total(&none.left_out), TEXTS);
}

/* A terminal shows the bar of a pass, at the latest when it ends, and an empty line behind it. */
TEST(a_pass_has_a_bar)
{
    struct heldout h;
    char said[4096];
    int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK), before = dup(STDERR_FILENO);
    assert_true(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0);
    int terminal = open(ptsname(master), O_RDWR | O_NOCTTY | O_CLOEXEC);
    enum log_level level = log_set_level(LOG_NORMAL);
    assert_int_equal(dup2(terminal, STDERR_FILENO), STDERR_FILENO);
    int status = heldout_measure(&h, &model, &full, path_of("texts"), "validation", LENGTH, 2);
    assert_int_equal(dup2(before, STDERR_FILENO), STDERR_FILENO);
    log_set_level(level);
    succeed(status);
    ssize_t count = read(master, said, sizeof said - 1);
    assert_true(count > 0);
    said[count] = 0;
    assert_non_null(strstr(said, "\rheld-out rows [########################] 100% "));
    assert_string_equal(said + count - 4, "\r\033[K");
    close(before);
    close(terminal);
    close(master);
}

int main(void)
{
    return tests_run(setup, teardown);
}
