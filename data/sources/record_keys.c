/* Keys of records beside those of their form, in one table: docs/collections.md has the same one. */
#include "data/sources/source_build.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { KEY_NAME_MOST = 64 };
struct record_key_row {
    const char *names;
    enum key_use use[FORM_CLASSES]; /* by the form of the record */
};

/* Names are those of TRL, LLaMA-Factory, ms-swift, axolotl, OpenAI, and of published corpora. */
static const struct record_key_row rows[] = {
    {"system system_prompt system_message system_instruction sys_prompt",
     {KEY_SYSTEM, KEY_SYSTEM, KEY_NOTE, KEY_SYSTEM}},
    {"tools functions documents chat_template_kwargs", {KEY_VARIABLE, KEY_VARIABLE, KEY_NOTE, KEY_VARIABLE}},
    {"context contexts passage passages document article paragraph paragraphs story support background evidence "
     "knowledge fact fact1 fact2 fact3 facts premise table schema sql_context db_schema starter_code",
     {KEY_CONTEXT, KEY_CONTEXT, KEY_NOTE, KEY_CONTEXT}},
    {"hint", {KEY_CONTEXT, KEY_CONTEXT, KEY_NOTE, KEY_NOTE}},
    {"input query", {KEY_NOTE, KEY_INPUT, KEY_NOTE, KEY_INPUT}},
    {"history chat_history conversation_history dialogue_history dialog_history previous_messages previous_turns",
     {KEY_HISTORY, KEY_HISTORY, KEY_NOTE, KEY_HISTORY}},
    {"choices options candidates endings", {KEY_CHOICES, KEY_CHOICES, KEY_NOTE, KEY_CHOICES}},
    {"A B C D E F G H I J a b c d e f opa opb opc opd ope option_a option_b option_c option_d option_e option1 option2 "
     "option3 option4 option5 option_1 option_2 option_3 option_4 option_5 choice_a choice_b choice_c choice_d "
     "choice_e "
     "choice_1 choice_2 choice_3 choice_4 choice_5 choice1 choice2 choice3 choice4 choice5 ending0 ending1 ending2 "
     "ending3",
     {KEY_CHOICE, KEY_CHOICE, KEY_NOTE, KEY_CHOICE}},
    {"reasoning_content reasoning thinking thought thoughts think cot chain_of_thought",
     {KEY_REASONING, KEY_REASONING, KEY_NOTE, KEY_NOTE}},
    {"chosen", {KEY_CHOSEN, KEY_CHOSEN, KEY_NOTE, KEY_NOTE}},
    {"response completion output answer", {KEY_CHOSEN, KEY_NOTE, KEY_NOTE, KEY_NOTE}},
    {"weight weights loss_weight sample_weight", {KEY_WEIGHT, KEY_WEIGHT, KEY_WEIGHT, KEY_WEIGHT}},
    {"train training learn keep include use used", {KEY_GOOD, KEY_GOOD, KEY_GOOD, KEY_GOOD}},
    {"label labels kto_tag loss loss_mask correct good valid approved accept accepted desirable preferred passed "
     "success "
     "successful verified thumbs_up review_result",
     {KEY_GOOD, KEY_GOOD, KEY_NOTE, KEY_NOTE}},
    {"ignore ignored skip skipped exclude excluded deleted discard discarded remove removed drop dropped filtered "
     "hidden",
     {KEY_BAD, KEY_BAD, KEY_BAD, KEY_BAD}},
    {"bad wrong incorrect undesirable negative rejected masked thumbs_down", {KEY_BAD, KEY_BAD, KEY_NOTE, KEY_NOTE}},
    {"rejected_response rejected_messages rejected_answer non_preferred_output negatives incorrect_answer "
     "incorrect_answers wrong_answer wrong_answers bad_answer distractors distractor1 distractor2 distractor3",
     {KEY_REJECTED, KEY_REJECTED, KEY_NOTE, KEY_NOTE}},
    {"mask train_detail training_detail loss_scale objects", {KEY_REFUSE, KEY_REFUSE, KEY_NOTE, KEY_REFUSE}},
    {"best best_idx best_index chosen_idx chosen_index", {KEY_NOTE, KEY_REFUSE, KEY_NOTE, KEY_NOTE}},
    {"offset", {KEY_PIECE, KEY_PIECE, KEY_PIECE, KEY_NOTE}},
    {"pixel_values image_embeds image_features point_cloud point_clouds pointcloud pointclouds depth depths mesh "
     "meshes imu tactile",
     {KEY_SHOWN, KEY_SHOWN, KEY_NOTE, KEY_SHOWN}},
    {"split", {KEY_SPLIT, KEY_SPLIT, KEY_SPLIT, KEY_NOTE}},
};

static const struct record_key_row *row_named(const char *name)
{
    for (i64 i = 0; i < COUNT_OF(rows); i++)
        if (has_word(rows[i].names, name))
            return &rows[i];
    return NULL;
}

/* The name in small letters, its words joined by underscores: isCorrect and Is-Correct are is_correct. */
static void plain_name(char out[KEY_NAME_MOST], const char *name)
{
    i64 n = 0;
    for (const char *at = name; *at && n < KEY_NAME_MOST - 2; at++) {
        bool capital = isupper((u8)*at), begins = capital && at > name && (islower((u8)at[-1]) || isdigit((u8)at[-1]));
        if (begins)
            out[n++] = '_';
        out[n++] = strchr("- .", *at) ? '_' : (char)tolower((u8)*at);
    }
    out[n] = 0;
}

/* The row of a key, also in other spellings of its name: Context, isCorrect, is_valid. */
static const struct record_key_row *row_of(const char *name)
{
    const struct record_key_row *row = row_named(name);
    char plain[KEY_NAME_MOST];
    plain_name(plain, name);
    bool long_enough = strlen(plain) > 2;
    if (!row && long_enough)
        row = row_named(plain);
    if (!row && strncmp(plain, "is_", 3) == 0)
        row = row_named(plain + 3);
    return row;
}

bool record_has_choices(const struct json *object)
{
    struct json_iterator it;
    i64 single = 0;
    for (bool more = json_first(&it, object); more; more = json_next(&it, object)) {
        const struct record_key_row *row = json_says_nothing(it.value) ? NULL : row_of(it.key);
        if (row && row->use[FORM_TURNS] == KEY_CHOICES)
            return true;
        single += row && row->use[FORM_TURNS] == KEY_CHOICE;
    }
    return single > 1;
}

bool record_names_media(const struct json *object)
{
    struct json_iterator it;
    bool names = false;
    for (bool more = json_first(&it, object); more && !names; more = json_next(&it, object))
        names = !json_says_nothing(it.value) && listed_names(it.key);
    return names;
}

const struct record_key *record_key_of(const struct sample_builder *b, enum key_use use, i64 nth)
{
    for (i64 i = 0; i < b->key_count; i++)
        if (b->keys[i].use == use && nth-- == 0)
            return &b->keys[i];
    return NULL;
}

void note_key(const struct sample_builder *b, const char *key, const char *what)
{
    struct skip_notes *notes = b->place->notes;
    if (!notes)
        return;
    notes_add(notes, b->place->origin, "keys \"%.60s\" %s", key, what);
    notes->total--; /* the record is a sample nevertheless */
}

int leave_out(struct sample_builder *b, const char *key, const char *what)
{
    if (b->place->notes)
        notes_add(b->place->notes, b->place->origin, "records whose key \"%.60s\" %s", key, what);
    return 1;
}

/* ---- Marks ---- */

/* 1: true, 0: false, -1: neither. Tables of text have words. */
static int truth_of(const struct json *value)
{
    if (json_kind(value) == JSON_BOOL)
        return json_bool(value, false);
    if (json_kind(value) == JSON_INTEGER || json_kind(value) == JSON_REAL) {
        double number = json_number(value, 2);
        return number == 0 ? 0 : number == 1 ? 1 : -1;
    }
    const char *word = json_string(value, "");
    return is_one_of("false 0 0.0 no bad wrong incorrect undesirable rejected", word) ? 0
           : is_one_of("true 1 1.0 yes good right correct desirable accepted", word)  ? 1
                                                                                      : -1;
}

/* ---- Names that speak of learning ---- */

/* How many words of a name are in a list. */
static i64 count_words(const char *plain, const char *list)
{
    i64 count = 0;
    char word[KEY_NAME_MOST];
    for (const char *at = plain; *at; at += strcspn(at, "_"), at += *at == '_') {
        i64 length = (i64)strcspn(at, "_");
        memcpy(word, at, (size_t)length);
        word[length] = 0;
        count += length > 0 && has_word(list, word);
    }
    return count;
}

/* A list of flags or numbers; in a table of text it is a string. */
static bool is_flags(const struct json *value)
{
    if (*json_string(value, "") == '[') {
        struct json *list = json_parsed(value);
        bool are = json_kind(list) == JSON_ARRAY && is_flags(list);
        json_free(list);
        return are;
    }
    bool flags = json_kind(value) == JSON_ARRAY && json_count(value) > 0;
    for (i64 i = 0; flags && i < json_count(value); i++) {
        enum json_kind kind = json_kind(json_at(value, i));
        flags = kind == JSON_BOOL || kind == JSON_INTEGER || kind == JSON_REAL || kind == JSON_NULL;
    }
    return flags;
}

/* True if a name that is in no row has a word of learning, and is no count or place. */
static bool speaks_of_learning(const char *name, const char *plain)
{
    return count_words(plain, "loss losses train trained training trainable learn learned learnable masked mask masks "
                              "masking supervise supervised backprop") &&
           !row_of(name) &&
           !count_words(plain, "id index idx step steps epoch epochs rate count num set sets split samples size token "
                               "tokens time date file");
}

bool record_key_is_known(const char *name)
{
    char plain[KEY_NAME_MOST];
    plain_name(plain, name);
    return row_of(name) || listed_names(name) || speaks_of_learning(name, plain) ||
           count_words(plain, "image images img picture photo screenshot figure video clip audio sound speech");
}

enum learning record_key_learning(const char *name, const struct json *value)
{
    char plain[KEY_NAME_MOST];
    plain_name(plain, name);
    int truth = truth_of(value);
    bool masks = count_words(plain, "mask masks masking");
    if (!speaks_of_learning(name, plain))
        return LEARNING_UNSAID;
    if (is_flags(value) || (masks && truth >= 0))
        return LEARNING_UNCLEAR;
    if (truth < 0)
        return LEARNING_UNSAID;
    if (count_words(plain, "history prompt prompts input inputs last first user system question context tools"))
        return truth ? LEARNING_UNCLEAR : LEARNING_UNSAID;
    bool denies = count_words(plain, "no not non never skip skipped ignore ignored exclude excluded without disable "
                                     "disabled masked") %
                  2;
    return truth != denies ? LEARNING_YES : LEARNING_NO;
}

bool record_key_denies(const char *name, const struct json *value)
{
    if (record_key_learning(name, value) == LEARNING_NO)
        return true;
    const struct record_key_row *row = row_of(name);
    enum key_use use = row ? row->use[FORM_TURNS] : KEY_NOTE;
    int truth = truth_of(value);
    return ((use == KEY_WEIGHT || use == KEY_GOOD) && truth == 0) || (use == KEY_BAD && truth == 1) ||
           (use == KEY_CHOSEN && json_kind(value) == JSON_BOOL && truth == 0);
}

static int read_weight(struct sample_builder *b, const struct record_key *key, enum form_class form)
{
    int truth = truth_of(key->value);
    if (truth == 0)
        return leave_out(b, key->name, "is 0: they are not learned");
    if (truth < 0 && form != FORM_OTHERS)
        return error_set("key %s: expected 0 or 1: parts of a weight are not read", key->name);
    if (truth < 0)
        note_key(b, key->name, "of records, which are not read");
    return 0;
}

static int refuse_key(const struct record_key *key)
{
    return error_set("key %s: it changes what is asked or learned, and is not read: leave the key out", key->name);
}

static int read_mark(struct sample_builder *b, const struct record_key *key, enum form_class form)
{
    bool counts = has_word("label correct", key->name) && json_kind(key->value) != JSON_BOOL;
    int truth = counts && record_has_choices(b->object) ? -1 : truth_of(key->value); /* the number of a choice */
    if (form != FORM_OTHERS && is_flags(key->value) && !record_has_choices(b->object) &&
        !source_maps(b->place->columns))
        return refuse_key(key); /* one for each answer, message or token */
    if (truth == (key->use == KEY_BAD))
        return leave_out(b, key->name, "says that they are not to be learned");
    if (truth < 0 && key->use == KEY_BAD)
        note_key(b, key->name, "of records, whose answers are not learned");
    else if (truth < 0)
        note_key(b, key->name, "of records, which are not read");
    return 0;
}

/* ---- Reading ---- */

static bool is_own(const struct json *value, const struct json *const *own, i64 count)
{
    for (i64 i = 0; i < count; i++)
        if (own[i] == value)
            return true;
    return false;
}

static enum key_use use_of(const struct sample_builder *b, const char *name, const struct json *value,
                           enum form_class form)
{
    const struct record_key_row *row = row_of(name);
    if (b->instructs && strcmp(name, "context") == 0)
        return KEY_INPUT;
    bool mark =
        json_kind(value) == JSON_BOOL || (form == FORM_TURNS && is_one_of("true false", json_string(value, "")));
    if (row && row->use[form] == KEY_CHOSEN && mark) /* chosen, is_chosen */
        return KEY_GOOD;
    /* Templates read a list of objects; a list of texts is to be read before the question. */
    if (strcmp(name, "documents") == 0 && form != FORM_OTHERS && json_kind(json_at(value, 0)) == JSON_STRING)
        return KEY_CONTEXT;
    return row ? row->use[form] : listed_names(name) ? KEY_LISTED : KEY_NOTE;
}

static bool is_number(const struct json *value)
{
    enum json_kind kind = json_kind(value);
    return kind == JSON_INTEGER || kind == JSON_REAL || kind == JSON_BOOL;
}

/* enum split; -1: none. */
static int split_of_word(const char *word)
{
    static const char *const words[SPLITS] = {"train training", "validation valid val dev",
                                              "test testing eval evaluation"};
    for (int split = 0; split < SPLITS; split++)
        if (is_one_of(words[split], word))
            return split;
    return -1;
}

/* A key of no row: noted, unless its name says that the record is not learned, or parts of it. */
static int read_other(struct sample_builder *b, const struct record_key *key, enum form_class form)
{
    enum learning learning = form == FORM_PROMPT ? LEARNING_UNSAID : record_key_learning(key->name, key->value);
    if (learning == LEARNING_NO)
        return leave_out(b, key->name, "says that they are not to be learned");
    bool asks = form == FORM_MESSAGES || form == FORM_TURNS;
    if (asks && !source_maps(b->place->columns) && listed_is_there(b, b->object, key->value))
        return error_set("key %s: it names a medium, and nothing says where it stands: call it image, video or audio, "
                         "or leave the key out",
                         key->name);
    if (learning == LEARNING_UNCLEAR && form != FORM_OTHERS && !source_maps(b->place->columns))
        return refuse_key(key);
    if (learning != LEARNING_YES && !source_maps(b->place->columns))
        note_key(b, key->name, "of records, which are not read");
    return 0;
}

static int read_key(struct sample_builder *b, const struct record_key *key, enum form_class form)
{
    bool chosen = source_maps(b->place->columns); /* the user says what is read */
    switch (key->use) {
    case KEY_WEIGHT:
        return read_weight(b, key, form);
    case KEY_GOOD:
    case KEY_BAD:
        return read_mark(b, key, form);
    case KEY_PIECE:
        if (!sample_key(b->object, "audio_filepath") ||
            (json_kind(key->value) == JSON_STRING ? strtod(json_string(key->value, ""), NULL)
                                                  : json_number(key->value, 0)) == 0)
            break;
        return error_set("key %s: the text belongs to a piece of the file, which is not cut: cut it, or leave the key "
                         "out",
                         key->name);
    case KEY_SPLIT:
        b->out->split_said = 1 + split_of_word(json_string(key->value, ""));
        if (!b->out->split_said)
            note_key(b, key->name, "of records, which are not read");
        return 0;
    case KEY_SHOWN:
    case KEY_REFUSE:
        if (chosen || (key->use == KEY_SHOWN && is_number(key->value))) {
            note_key(b, key->name, "of records, which are not read");
            return 0;
        }
        return refuse_key(key);
    case KEY_REJECTED:
        note_key(b, key->name, "of records, whose answers are not learned");
        return 0;
    case KEY_NOTE:
        return read_other(b, key, form);
    default:
        if (b->key_count == RECORD_KEYS_MOST)
            return error_set("key %s: too many keys of its kind in one record", key->name);
        b->keys[b->key_count++] = *key;
        return 0;
    }
    return read_other(b, key, form);
}

int record_keys_read(struct sample_builder *b, enum form_class form, const struct json *const *own, i64 count)
{
    struct json_iterator it;
    for (bool more = json_first(&it, b->object); more; more = json_next(&it, b->object)) {
        struct record_key key = {it.key, it.value, KEY_NOTE};
        if (json_says_nothing(it.value) || is_own(it.value, own, count))
            continue;
        key.use = use_of(b, it.key, it.value, form);
        int status = read_key(b, &key, form);
        if (status)
            return status;
    }
    return 0;
}
