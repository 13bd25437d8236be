/* Builds a sample from a record: source_forms.c recognizes its form, source_json.c adds its media and
 * texts, source_messages.c its messages. A record that asks and answers becomes a list of messages
 * first (source_turns.c, source_choices.c), into which its other keys go by one table (record_keys.c),
 * and the media that it lists (source_listed.c). */
#ifndef WEFT_DATA_SOURCE_BUILD_H
#define WEFT_DATA_SOURCE_BUILD_H
#include "data/sources/source_readers.h"

/* What a form does with keys beside its own. */
enum form_class {
    FORM_MESSAGES, /* a conversation as it stands */
    FORM_TURNS,    /* a question and an answer */
    FORM_OTHERS,   /* texts and captions, which ask nothing */
    FORM_PROMPT,   /* a prompt for reinforcement learning */
    FORM_CLASSES
};
/* What a key of a record is for. */
enum key_use {
    KEY_NOTE,      /* nothing: counted and named */
    KEY_SYSTEM,    /* the system message */
    KEY_VARIABLE,  /* read by the chat template */
    KEY_CONTEXT,   /* stands before the first question */
    KEY_INPUT,     /* stands behind the question */
    KEY_HISTORY,   /* turns before the question */
    KEY_CHOICES,   /* what the question lets choose */
    KEY_CHOICE,    /* one of these */
    KEY_REASONING, /* of the answer */
    KEY_CHOSEN,    /* the answer, if the record has no other */
    KEY_WEIGHT,    /* 0: left out; 1: nothing; others are refused */
    KEY_GOOD,      /* false: left out */
    KEY_BAD,       /* true: left out; a text or a list is an answer that is not learned */
    KEY_REJECTED,  /* an answer that is not learned */
    KEY_SPLIT,     /* the split of the record */
    KEY_LISTED,    /* media, see source_listed.c */
    KEY_PIECE,     /* where in a sound the text begins */
    KEY_SHOWN,     /* what is shown with the question and nothing reads: refused, unless it is a number */
    KEY_REFUSE     /* it changes what is asked or learned, and nothing reads it */
};
struct record_key {
    const char *name;
    const struct json *value;
    enum key_use use;
};
enum { RECORD_KEYS_MOST = 64 };

struct sample_builder {
    struct sample *out;
    const struct json *object, *asked; /* the record, and the object that has tools and the like */
    const struct json_place *place;
    struct record_key keys[RECORD_KEYS_MOST]; /* those that say something and are not the form's own */
    i64 key_count;
    struct json *turns;             /* list of messages; owned */
    struct json *media[MODALITIES]; /* lists of media that the record names; owned; NULL: none */
    i64 used[MODALITIES];           /* entries used of them */
    i32 messages;                   /* messages added so far */
    bool instructs;                 /* Dolly: what it calls context is the input of its instruction */
    bool picks;                     /* the answer is the number of a choice */
    bool outside;                   /* a medium was refused because it is outside of the root */
};

/* source_forms.c. source_maps: names of keys are chosen by the setting `columns`. source_column: the
 * value of a key under the name that it has there; NULL: none. */
bool source_maps(const struct source_columns *columns);
const struct json *source_column(const struct source_columns *columns, const struct json *object, const char *key);

/* source_json.c */
bool build_is_text(const struct sample_builder *build, const struct json *value);
int build_text(struct sample_builder *build, const struct json *text);
int build_medium(struct sample_builder *build, enum modality kind, const struct json *value);
int build_content(struct sample_builder *build, const struct json *content); /* a text or a list of parts */
bool build_names_medium(const struct json *part, enum modality kind);        /* a part that names its medium itself */
int build_marked_text(struct sample_builder *build, const char *text, i64 length);
bool json_says_nothing(const struct json *value);   /* null or empty: tables contain every key */
bool has_word(const char *words, const char *word); /* words are separated by spaces; exact */
/* A text, of a string or of bytes, as a string; other values are copied. */
struct json *text_copy(const struct sample_builder *build, const struct json *value);
/* The value of a string that is JSON, or a copy of the value. */
struct json *json_parsed(const struct json *value);
/* A copy. Of a table without members that are null, because all rows share their names. */
struct json *json_copied(const struct sample_builder *build, const struct json *value);

/* record_keys.c. Reads the keys of the record but the form's `own` values [count]. 0; 1: the record
 * is left out, and noted; -1 and a message: a key that it is refused for. */
int record_keys_read(struct sample_builder *build, enum form_class form, const struct json *const *own, i64 count);
bool record_key_is_known(const char *name);
/* True if a key says of the record or the answer that has it that it is not to be learned. */
bool record_key_denies(const char *name, const struct json *value);
/* What the name of a key and a flag under it say of learning, such as train_on_turn or no_loss. Keys of
 * the table say nothing here. unclear: it is for a part of what has the key. */
enum learning { LEARNING_UNSAID, LEARNING_YES, LEARNING_NO, LEARNING_UNCLEAR };
enum learning record_key_learning(const char *name, const struct json *value);
bool record_has_choices(const struct json *object);
bool record_names_media(const struct json *object); /* has a key of media, usable or not */
const struct record_key *record_key_of(const struct sample_builder *build, enum key_use use, i64 nth); /* NULL: none */
/* Notes 'keys "KEY" WHAT' of a record that is a sample nevertheless. */
void note_key(const struct sample_builder *build, const char *key, const char *what);
/* Notes 'records whose key "KEY" WHAT', and returns 1: the record is left out. */
int leave_out(struct sample_builder *build, const char *key, const char *what);

/* source_listed.c. listed_read: the media that the object names into build->media. listed_names: the
 * key is one of such media. */
int listed_read(struct sample_builder *build, const struct json *object, enum form_class form);
bool listed_names(const char *key);
/* True if a key of a message names media that can be read. */
bool listed_is_usable(const struct sample_builder *build, const char *key, const struct json *value);
/* True if a value names a medium that is there, by a name or as bytes, and no listed one of the object. */
bool listed_is_there(const struct sample_builder *build, const struct json *object, const struct json *value);
i64 listed_marks(const struct json *text); /* marks of media in a text */
/* Length of <img>NAME</img>, <audio>NAME</audio> and the like at `at`, which name their medium
 * themselves; 0: there is none, or one that is not there. kind: which, name [length]: the file's. */
i64 listed_inline(const struct sample_builder *build, const char *at, i64 left, enum modality *kind, const char **name,
                  i64 *length);
/* For a form with one medium, or with a list of pictures, of the value: -1 and a message if the
 * record names media of other kinds. */
int listed_check_alone(struct sample_builder *build, enum modality kind, const struct json *own);
/* Puts the media that no mark refers to at the front of the first question of build->turns. */
int listed_place(struct sample_builder *build);
void listed_release(struct sample_builder *build);

/* source_turns.c. Adds a conversation: build->turns with all that the keys say. 1: it is left out. */
int build_conversation(struct sample_builder *build);
struct json *turns_question(struct sample_builder *build); /* the first question; NULL: none */
struct json *turns_message(struct sample_builder *build, const char *role, bool last); /* first or last of a role */
i64 turns_count(const struct sample_builder *build, const char *role);
/* The first text of an answer; NULL: none. several: set if there are others. */
struct json *first_text(const struct sample_builder *build, const struct json *value, bool *several);
const char *message_content_key(const struct json *message); /* "content" or "value" */
bool content_contains(const struct json *content, const char *text);
int message_dress(struct json *message, const char *before, const char *behind); /* adds text to its content */
/* Appends to build->turns. question: a text or a list of messages. answer: also a number, a list of
 * texts, of which the first is learned, or an object with a text. */
int turns_ask(struct sample_builder *build, const char *key, const struct json *question);
int turns_answer(struct sample_builder *build, const char *key, const struct json *answer);
/* The value of a cell that is JSON: a message, a list of messages, or answers with their places. NULL: it is
 * a text, or no cell. Tables of text have strings for all values. Freed by the caller. */
struct json *turns_cell(const struct sample_builder *build, const char *key, const struct json *cell);
void turns_append(const struct sample_builder *build, struct json *turns, const struct json *messages);
void turns_push(struct json *turns, const char *role, struct json *content); /* takes `content` */

/* source_choices.c. Lists the choices of the record in its question, and makes an answer that is a
 * number or a letter the label of its choice. */
int choices_add(struct sample_builder *build);

/* source_messages.c */
const struct json *message_content(const struct json *message);
const char *message_role(const struct json *message);          /* user, assistant, system or tool; NULL: unknown */
int build_messages(struct sample_builder *build);              /* those of build->turns */
struct json *tools_of_functions(const struct json *functions); /* of OpenAI's older ones */
/* Reads what a chat template reads beside the messages (sources.h). */
int build_variables(struct sample_builder *build);

#endif
