/* Encodes a conversation in the chat layout of its tokenizer. An answer's text is encoded
 * separately from its role header, as it is when generated; a question's text is encoded together
 * with its header, as chat templates do. */
#include "data/prepare/chat.h"

#include <string.h>

const char *chat_role(const struct sample *sample, i64 part)
{
    while (part > 0 && !sample->parts[part].role)
        part--;
    return sample->count && sample->parts[part].role ? sample->parts[part].role : "";
}

bool chat_answers(const struct sample *sample, i64 part)
{
    return sample->layout == SAMPLE_CHAT && strcmp(chat_role(sample, part), "assistant") == 0;
}

bool chat_learns(const struct sample *sample, i64 part)
{
    return chat_answers(sample, part) && !sample->parts[part].unlearned;
}

/* The part that begins the question to fold the system message into: the user message directly
 * behind it or, with CHAT_FOLD_LAST, the last user message. -1: none. */
static i64 find_question(const struct sample *s, enum chat_fold fold)
{
    i64 last = -1;
    for (i64 i = 1; i < s->count && (fold == CHAT_FOLD_LAST || i == 1); i++)
        if (s->parts[i].role && strcmp(s->parts[i].role, "user") == 0)
            last = i;
    return last;
}

/* Moves the first part directly before part `to`, as the beginning of that message. */
static void move_before(struct sample *s, i64 to)
{
    struct sample_part first = s->parts[0];
    memory_free(first.role);
    first.role = s->parts[to].role;
    s->parts[to].role = NULL;
    memmove(s->parts, s->parts + 1, (size_t)(to - 1) * sizeof *s->parts);
    s->parts[to - 1] = first;
}

void chat_fold(const struct chat_layout *layout, struct sample *s)
{
    enum chat_fold fold = layout ? chat_folds_system(layout) : CHAT_FOLD_NONE;
    bool begins = s->layout == SAMPLE_CHAT && s->count > 1 && s->parts[0].kind == MODALITY_TEXT && s->parts[0].role &&
                  strcmp(s->parts[0].role, "system") == 0;
    i64 to = begins && fold ? find_question(s, fold) : -1;
    if (to < 0)
        return;
    struct sample_part *question = &s->parts[to];
    bool text = question->kind == MODALITY_TEXT;
    buffer_append(&s->parts[0].bytes, "\n\n", 2);
    if (text)
        buffer_append(&s->parts[0].bytes, question->bytes.data, question->bytes.length);
    move_before(s, to);
    if (!text)
        return;
    buffer_release(&question->bytes);
    memmove(question, question + 1, (size_t)(s->count - to - 1) * sizeof *question);
    s->count--;
}

/* Adds the layout's plain text: `before` an answer's first text, `after` a message's last text.
 * Returns `text` itself if both are empty, else the result in `out`. */
static const char *with_affixes(struct buffer *out, const char *before, const char *text, i64 *length,
                                const char *after)
{
    if (!*before && !*after)
        return text;
    buffer_append(out, before, (i64)strlen(before));
    buffer_append(out, text, *length);
    buffer_append(out, after, (i64)strlen(after));
    *length = out->length;
    return out->data;
}

bool chat_ends_message(const struct sample *s, i64 part)
{
    return part + 1 == s->count || s->parts[part + 1].role;
}

int chat_encode(struct id_list *head, struct id_list *ids, const struct chat_writer *w, const struct sample *s,
                i64 index)
{
    const struct sample_part *part = &s->parts[index];
    bool answers = chat_answers(s, index), first = part->role != NULL, text = part->kind == MODALITY_TEXT;
    const char *words = text && part->bytes.data ? part->bytes.data : "";
    i64 length = text ? part->bytes.length : 0;
    struct buffer dressed = {0};
    if (!w->layout)
        return text_chat_layout(w->text) ? 0 : -1;
    chat_trim(w->layout, first, chat_ends_message(s, index), &words, &length);
    if (text)
        words = with_affixes(&dressed, answers && first ? chat_before_answer(w->layout) : "", words, &length,
                             chat_ends_message(s, index) ? chat_ending(w->layout, chat_role(s, index)) : "");
    int status = index == 0 ? text_chat_begin(head, w->text, w->layout) : 0;
    if (status == 0 && first)
        status = text_chat_head(head, w->text, w->layout, part->role, words, answers ? 0 : length);
    if (status == 0 && text && (answers || !first))
        status = text_chat_text(ids, w->text, words, length);
    buffer_release(&dressed);
    return status;
}

void chat_end(struct id_list *out, const struct chat_writer *w, const struct sample *sample, i64 part)
{
    const char *role = chat_role(sample, part), *ending = chat_ending(w->layout, role);
    int status = 0;
    if (sample->parts[part].kind != MODALITY_TEXT)
        status = text_chat_text(out, w->text, ending, (i64)strlen(ending));
    require(status == 0 && text_chat_tail(out, w->text, w->layout, role) == 0, "%s", error_text());
}
