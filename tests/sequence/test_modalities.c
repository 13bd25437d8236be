/* The tables of modalities fit each other: every row is reached, nothing has two owners, and each
 * setting and token that a row needs exists. */
#include "data/prepare/prepare.h"
#include "data/sources/source_readers.h"
#include "sequence/grammar.h"
#include "tests/test.h"
#include "train/pretrain.h"

#include <stdio.h>
#include <string.h>

static const struct setting *setting_of(const struct setting *table, const char *key)
{
    while (table->key && strcmp(table->key, key) != 0)
        table++;
    return table->key ? table : NULL;
}

/* The setting PREFIX.NAME writes to the given offset; dashes of the name are underscores. */
static void expect_setting(const struct setting *table, const char *prefix, const char *name, size_t offset)
{
    char key[64];
    snprintf(key, sizeof key, "%s%s", prefix, name);
    for (char *at = key; *at; at++)
        *at = *at == '-' ? '_' : *at;
    const struct setting *setting = setting_of(table, key);
    if (!setting || setting->offset != offset)
        fail_msg("setting %s: %s", key, setting ? "writes to another member" : "there is none");
}

#define EXPECT_UNIQUE(rows, count, member)                                                                             \
    for (i64 i = 0; i < (count); i++)                                                                                  \
        for (i64 k = 0; k < i; k++)                                                                                    \
            if (strcmp((rows)[i].member, (rows)[k].member) == 0)                                                       \
    fail_msg(#rows ": two rows are called %s", (rows)[i].member)

TEST(names_are_unique)
{
    EXPECT_UNIQUE(modality_rows, MODALITIES, name);
    EXPECT_UNIQUE(modality_rows, MODALITIES, ending);
    EXPECT_UNIQUE(direction_rows, DIRECTIONS, name);
    EXPECT_UNIQUE(target_rows, TARGETS, name);
    EXPECT_UNIQUE(stream_rows, STREAMS, name);
    for (int i = 0; i < MODALITIES; i++)
        assert_int_equal(modality_named(modality_rows[i].name), i);
    for (int i = 0; i < STREAMS; i++)
        for (int k = 0; k < i; k++)
            assert_int_not_equal(stream_rows[i].colour, stream_rows[k].colour);
    for (int i = 0; i < BRACKETS; i++)
        for (int k = 0; k < i; k++)
            assert_string_not_equal(bracket_tokens[i], bracket_tokens[k]);
}

/* A suffix has one owner, the files that answers are written to are read again, and column names of
 * media are suffixes of theirs. */
TEST(suffixes_name_one_modality)
{
    char word[32];
    for (int i = 0; i < MODALITIES; i++) {
        const struct modality_row *row = &modality_rows[i];
        int length;
        for (const char *at = row->suffixes; sscanf(at, " %31s%n", word, &length) == 1; at += length)
            if (medium_kind(word) != i)
                fail_msg("suffix %s of %s belongs to another", word, row->name);
        for (const char *at = row->members; at && sscanf(at, " %31s%n", word, &length) == 1; at += length)
            if (medium_kind(word) != i)
                fail_msg("%s: %s is no suffix of its files", row->name, word);
        assert_int_equal(medium_kind(row->ending), i);
        for (const char *at = row->unread ? row->unread : ""; sscanf(at, " %31s%n", word, &length) == 1; at += length)
            if (medium_kind(word) >= 0 || medium_kind_unread(word) != i)
                fail_msg(".%s is read, and is said not to be", word);
    }
}

/* A medium has all that records need, and one place in the order of files of the same name. */
TEST(media_have_keys_and_a_place)
{
    int media = 0, led = 0;
    for (int i = 0; i < MODALITIES; i++) {
        const struct modality_row *row = &modality_rows[i];
        if (i == MODALITY_TEXT)
            continue;
        media++;
        assert_true(row->one && row->many && row->members && row->list_key && row->url_key && row->mark &&
                    row->captioned && row->prompt);
        assert_int_equal(strncmp(row->url_key, row->name, strlen(row->name)), 0);
    }
    while (medium_leading(led) >= 0)
        led++;
    assert_int_equal(led, media);
}

/* Each medium can be learned in both directions, each stream belongs to a modality that has
 * directions, and every list is some stream's, but for targets that help another. */
TEST(rows_refer_to_each_other)
{
    bool input[INPUTS] = {[INPUT_VOICE] = true}, target[TARGETS] = {false}, bracket[BRACKETS] = {[BRACKET_NEXT] = true};
    bool has_stream[MODALITIES] = {false};
    for (int i = 0; i < STREAMS; i++) {
        const struct stream_row *row = &stream_rows[i];
        assert_true(row->modality < MODALITIES && row->input < INPUTS);
        has_stream[row->modality] = input[row->input] = true;
        assert_int_equal(row->target == TARGETS, row->form == FORM_CELLS);
        if (row->target != TARGETS)
            target[row->target] = true;
        assert_int_equal(row->begin == BRACKETS, row->form == FORM_IDS);
        assert_int_equal(row->end == BRACKETS, row->form == FORM_IDS || row->form == FORM_CODES);
        if (row->begin != BRACKETS)
            bracket[row->begin] = true;
        if (row->end != BRACKETS)
            bracket[row->end] = true;
    }
    for (int i = 0; i < MODALITIES; i++) {
        assert_true(has_stream[i]);
        assert_int_not_equal(direction_of((enum modality)i, false), DIRECTIONS);
        assert_int_equal(direction_of((enum modality)i, true) == DIRECTIONS, i == MODALITY_TEXT);
        assert_true(modality_rows[i].tokenizer < TOKENIZERS);
    }
    for (int i = 0; i < INPUTS; i++)
        assert_true(input[i]);
    for (int i = 0; i < TARGETS; i++) {
        assert_int_not_equal(target[i], target_rows[i].helps);
        assert_int_equal(target_rows[target_rows[i].counted].counted, target_rows[i].counted);
    }
    for (int i = 0; i < BRACKETS; i++)
        assert_true(bracket[i]);
}

/* Lists have entries if and only if their tokenizer is there. The forms of streams ask for ids,
 * features or bits. */
TEST(widths_follow_from_the_tokenizers)
{
    struct token_sizes none = {0}, all;
    for (i64 i = 0; i < TOKEN_SIZE_ROWS; i++) {
        *token_size(&all, &token_size_rows[i]) = 2;
        for (i64 k = 0; k < i; k++)
            assert_int_not_equal(token_size_rows[i].member, token_size_rows[k].member);
    }
    assert_int_equal(TOKEN_SIZE_ROWS * sizeof(i64), sizeof(struct token_sizes));
    for (int i = 0; i < STREAMS; i++) {
        const struct stream_row *row = &stream_rows[i];
        const struct input_row *input = &input_rows[row->input];
        const struct target_row *target = row->target == TARGETS ? NULL : &target_rows[row->target];
        assert_true(input_is_read(&all, row->input));
        assert_int_equal(input_is_read(&none, row->input), row->form == FORM_IDS);
        assert_int_equal(list_width(input->ids, &all) > 0, row->form == FORM_IDS || row->form == FORM_CODES);
        assert_int_equal(list_width(input->features, &all) > 0, row->form == FORM_CELLS || row->form == FORM_SCALES);
        assert_int_equal(input->scaled, row->form == FORM_SCALES);
        assert_int_equal(input->by_level, row->form == FORM_CODES);
        if (!target)
            continue;
        assert_int_equal(list_width(target->bits, &all) > 0, row->form == FORM_SCALES);
        assert_int_equal(list_width(target->ids, &all) > 0, row->form != FORM_SCALES);
        assert_int_equal(list_width(target->classes, &all) > 0, row->form != FORM_SCALES);
        assert_int_equal(target->by_level, row->form == FORM_CODES);
    }
}

#define IN_PRETRAIN(member) offsetof(struct pretrain_settings, member)

/* Each row that a setting belongs to has one, and it writes to the row's place. */
TEST(data_that_a_model_does_not_read_is_refused)
{
    const struct token_sizes model = {.bits = 4, .levels = 2, .codes = 64};
    struct token_sizes blind = model, deaf = model;
    assert_int_equal(token_sizes_check(&model, &model, "../shards"), 0);
    blind.bits = 0;
    assert_int_equal(token_sizes_check(&blind, &model, "../shards"), -1);
    assert_non_null(strstr(error_text(), "../shards holds pictures, which this model does not read"));
    deaf.levels = 0;
    assert_int_equal(token_sizes_check(&deaf, &model, "../shards"), -1);
    assert_non_null(strstr(error_text(), "../shards holds sounds, which this model does not read"));
    assert_int_equal(token_sizes_check(&model, &blind, "../shards"), 0); /* less is read */
    struct token_sizes voiced = model;
    voiced.voice = 160;
    assert_int_equal(token_sizes_check(&model, &voiced, "../shards"), -1);
    assert_non_null(strstr(error_text(), "../shards holds values of a speaker vector, which this model does not read"));
    assert_int_equal(token_sizes_check(&voiced, &model, "../shards"), 0);
}

TEST(settings_are_those_of_the_rows)
{
    for (int i = 0; i < TARGETS; i++)
        if (!target_rows[i].helps)
            expect_setting(pretrain_table, "loss.", target_rows[i].name, IN_PRETRAIN(loss_weight) + i * sizeof(double));
        else
            assert_non_null(setting_of(pretrain_table, "loss.mtp"));
    for (int i = 0; i < DIRECTIONS; i++)
        expect_setting(sft_table, "mixture.", direction_rows[i].name, IN_PRETRAIN(loader.mixture) + i * sizeof(double));
    for (int i = 0; i < MODALITIES; i++)
        expect_setting(prepare_table, "columns.", modality_rows[i].name,
                       offsetof(struct prepare_settings, columns.modality) + i * sizeof(char *));
    for (int i = 0; i < TOKENIZERS; i++)
        expect_setting(prepare_table, "", tokenizer_names[i],
                       offsetof(struct prepare_settings, tokenizer) + i * sizeof(char *));
    for (int i = 0; i < STREAMS; i++) /* a stream that is both given and predicted has a weight as a condition */
        if (stream_rows[i].form == FORM_IDS || (stream_rows[i].gives && stream_rows[i].target != TARGETS)) {
            enum modality modality = stream_rows[i].modality;
            char key[64];
            snprintf(key, sizeof key, "pack.%s_condition", modality_rows[modality].name);
            expect_setting(pretrain_table, "", key, IN_PRETRAIN(loader.condition) + modality * sizeof(double));
        }
}

TEST(text_tokenizers_are_trained_with_all_brackets)
{
    for (int i = 0; i < BRACKETS; i++) {
        const char *const *token = grammar_special_tokens;
        while (*token && strcmp(*token, bracket_tokens[i]) != 0)
            token++;
        if (!*token)
            fail_msg("%s is no special token of tokenizer-text", bracket_tokens[i]);
    }
}

int main(void)
{
    return tests_run(NULL, NULL);
}
