/* Conversations for fine-tuning: greetings in the languages of the texts, what the model can do, questions that it
 * cannot answer, questions about pictures, and the sorting task among them. So a first message that is not one of the
 * task gets the answer of a small model, not noise. */
#include "corpus/corpus.h"
#include <ctype.h>
#include <string.h>

enum { TALK_LINES = 4600 }; /* enough that each picture is shown */
#define SEPARATOR '|'

/* What is said, in variants, the likeliest first, with the mark that may follow, and the answer. The rows of English
 * come first. */
static const struct talk_topic {
    const char *said, *mark, *answer;
} topics[] = {
    {"hello|hi|hey|good morning|hi there|good evening", "!", "Hello! I am a small model."},
    {"how are you|how are you doing|how is it going", "?", "I am fine, thank you."},
    {"who are you|what are you|what is your name|tell me about yourself|are you human", "?", "I am a small model."},
    {"what can you do|help|what do you know|what can i ask|how can you help me", "?",
     "I sort seven digits, such as sort 4153297, and say what a picture shows."},
    {"thanks|thank you|thank you very much|great|good|nice|ok|yes", "!", "You are welcome."},
    {"bye|goodbye|see you|good night", "!", "Goodbye!"},
    {"hallo|guten tag|guten morgen|guten abend", "!", "Hallo! Ich bin ein kleines Modell."},
    {"was kannst du|wer bist du|hilfe", "?", "Ich sortiere sieben Ziffern."},
    {"danke|vielen dank", "!", "Gern."},
    {"tschüss|auf wiedersehen", "!", "Auf Wiedersehen!"},
    {"ciao|buongiorno|buonasera", "!", "Ciao! Sono un piccolo modello."},
    {"cosa sai fare|chi sei|aiuto", "?", "Ordino sette cifre."},
    {"grazie|grazie mille", "!", "Prego."},
    {"arrivederci|a presto", "!", "Arrivederci!"},
    {"hola|buenos días|buenas tardes", "!", "¡Hola! Soy un modelo pequeño."},
    {"qué puedes hacer|quién eres|ayuda", "?", "Ordeno siete cifras."},
    {"gracias|muchas gracias", "!", "De nada."},
    {"adiós|hasta luego", "!", "¡Adiós!"},
    {"你好|您好|早上好", "！", "你好！我是一个小模型。"},
    {"你会做什么|你是谁", "？", "我会排数字。"},
    {"谢谢|多谢", "！", "不客气。"},
    {"再见|拜拜", "！", "再见！"},
};
enum { ENGLISH_TOPICS = 6, HELLO = 0 };

/* Questions that the model cannot answer. A * is the name of something. */
static const char *const unknown[] = {
    "what is a *",
    "what is *",
    "who is *",
    "where is *",
    "tell me about *",
    "why is *",
    "how do i make *",
    "do you like *",
    "do you know *",
    "what does * mean",
    "when was *",
    "can you *",
    "explain *",
    "tell me a joke",
    "how many * are there",
    "what is the * of *",
    "draw a *",
    "write a story about *",
    "write a poem about * and *",
    "make a picture of *",
    "translate *",
    "i like *",
    "i am *",
    "what do you think of *",
    "*",
    "* and *",
    "please * the *",
    "what time is it",
    "where can i find *",
    "is * a *",
    "why",
    "how old are you",
};
static const char unknown_answer[] = "I do not know. I am a small model.";

static const char picture_questions[] =
    "what is this|what is in the picture|what do you see|describe this picture|what "
    "does the picture show|what is it|describe the image|what is in this "
    "image|was ist das|che cos'è|qué es esto|这是什么";

struct talk {
    const struct corpus *corpus;
    const struct glyph **glyphs; /* [glyph_count] of training, in the order in which they are shown */
    i64 glyph_count, shown;
    u32 item, turn;
};

static i64 draw(const struct talk *t, i64 below, u32 what)
{
    return rng_below(t->corpus->key, below, DRAW_TALK, t->item, t->turn, what);
}

static const struct glyph *draw_glyph(const struct talk *t, u32 what)
{
    return t->glyphs[draw(t, t->glyph_count, what)];
}

/* Appends one of the variants. The first ones are likelier: the square of a uniform number picks. */
static void draw_variant(struct buffer *out, const struct talk *t, const char *variants)
{
    i64 count = 1;
    for (const char *at = variants; *at; at++)
        count += *at == SEPARATOR;
    double u = (double)draw(t, 1 << 20, TALK_WORDS) / (1 << 20);
    for (i64 skip = (i64)(u * u * (double)count); skip > 0; skip--)
        variants = strchr(variants, SEPARATOR) + 1;
    buffer_append(out, variants, (i64)strcspn(variants, (const char[]){SEPARATOR, 0}));
}

/* Appends a pattern with names of pictures in place of its stars. */
static void fill_pattern(struct buffer *out, const struct talk *t, const char *pattern)
{
    u32 what = TALK_FILL;
    for (const char *at = pattern; *at; at++)
        if (*at == '*')
            buffer_printf(out, "%s", draw_glyph(t, what++)->caption);
        else
            buffer_append(out, at, 1);
}

/* People write with and without capitals and marks. */
static struct json *as_people_write(const struct talk *t, const struct buffer *words, const char *mark)
{
    const char *const ends[] = {"", "", mark, mark, "."};
    char *text = string_format("%s%s", words->data, ends[draw(t, COUNT_OF(ends), TALK_END)]);
    if (draw(t, 5, TALK_CAPITAL) < 2)
        text[0] = (char)toupper((unsigned char)text[0]);
    struct json *out = json_of_string(text);
    memory_free(text);
    return out;
}

static struct json *text_part(struct json *text)
{
    struct json *part = json_object();
    json_set(part, "type", json_of_string("text"));
    json_set(part, "text", text);
    return part;
}

static struct json *picture_part(const struct glyph *glyph)
{
    struct json *part = json_object();
    char *path = path_join("image", glyph->file);
    json_set(part, "type", json_of_string("image"));
    json_set(part, "image", json_of_string(path));
    memory_free(path);
    return part;
}

static void say(struct json *messages, struct json *said, const char *answer)
{
    json_push(messages, corpus_message("user", said));
    json_push(messages, corpus_message("assistant", json_of_string(answer)));
}

static void say_picture(struct json *messages, struct talk *t)
{
    const struct glyph *glyph = t->glyphs[t->shown++ % t->glyph_count];
    struct json *content = json_array();
    struct buffer words = {0};
    draw_variant(&words, t, picture_questions);
    json_push(content, picture_part(glyph));
    json_push(content, text_part(as_people_write(t, &words, "?")));
    char *caption = string_format("%s, %s", glyph->caption, glyph->looks);
    say(messages, content, caption);
    memory_free(caption);
    buffer_release(&words);
}

/* Two thirds of the small talk are English, and a chat begins with a greeting. */
static void say_topic(struct json *messages, const struct talk *t)
{
    struct buffer words = {0};
    i64 drawn = draw(t, 3 * COUNT_OF(topics), TALK_TOPIC), english = drawn % (ENGLISH_TOPICS + 2);
    const struct talk_topic *topic = &topics[drawn < COUNT_OF(topics)   ? drawn
                                             : english < ENGLISH_TOPICS ? english
                                                                        : HELLO];
    draw_variant(&words, t, topic->said);
    say(messages, as_people_write(t, &words, topic->mark), topic->answer);
    buffer_release(&words);
}

static void say_unknown(struct json *messages, const struct talk *t)
{
    struct buffer words = {0};
    fill_pattern(&words, t, unknown[draw(t, COUNT_OF(unknown), TALK_TOPIC)]);
    say(messages, as_people_write(t, &words, "?"), unknown_answer);
    buffer_release(&words);
}

static void append_talk(struct buffer *out, struct talk *t)
{
    struct json *messages = json_array(), *line = json_object();
    t->turn = 0;
    i64 turns = max_i64(1, draw(t, 5, TALK_TURNS) - 1); /* three fifths have one, none more than three */
    for (; t->turn < turns; t->turn++) {
        i64 kind = draw(t, 20, TALK_KIND); /* half are small talk */
        if (kind < 10)
            say_topic(messages, t);
        else if (kind < 13)
            say_unknown(messages, t);
        else if (kind < 17)
            say_picture(messages, t);
        else
            sorting_talk(messages, t->corpus->key, t->item, t->turn);
    }
    json_set(line, "messages", messages);
    append_line(out, line);
}

int make_talk(const struct corpus *corpus, const struct glyph_list *list)
{
    struct buffer lines = {0};
    i32 *order = memory_alloc(list->count * (i64)sizeof *order);
    struct talk t = {.corpus = corpus, .glyphs = memory_alloc(list->count * (i64)sizeof *t.glyphs)};
    rng_permutation(order, list->count, corpus->key, DRAW_TALK, TALK_LINES);
    for (i64 i = 0; i < list->count; i++)
        if (list->items[order[i]].split == SPLIT_TRAIN)
            t.glyphs[t.glyph_count++] = &list->items[order[i]];
    for (; t.item < TALK_LINES; t.item++)
        append_talk(&lines, &t);
    int status = corpus_save(corpus, SPLIT_TRAIN, "talk.jsonl", lines.data, lines.length);
    memory_free(order);
    memory_free(t.glyphs);
    buffer_release(&lines);
    return status;
}
