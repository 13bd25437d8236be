/* A conversation in the layout of its tokenizer. An answer's text is encoded by itself, as it will be when it is
 * generated behind its role; a question's text together with its role, as templates do. */
#include "data/prepare_internal.h"

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

static struct text folded(const struct text *system, const struct text *question)
{
    struct text both = {0};
    text_append(&both, system->data, system->length);
    text_append(&both, "\n\n", 2);
    text_append(&both, question->data, question->length);
    return both;
}

void chat_fold(const struct prepare *p, struct sample *s)
{
    const struct text nothing = {0};
    struct sample_part *system = s->parts, *question = s->parts + 1;
    bool begins = s->layout == SAMPLE_CHAT && s->count > 1 && system->kind == SAMPLE_TEXT && system->role &&
                  strcmp(system->role, "system") == 0 && question->role && strcmp(question->role, "user") == 0;
    if (!begins || !p->chat || !chat_folds_system(p->chat))
        return;
    bool text = question->kind == SAMPLE_TEXT;
    struct text both = folded(&system->bytes, text ? &question->bytes : &nothing);
    text_release(&system->bytes);
    system->bytes = both;
    memory_free(system->role);
    system->role = question->role;
    question->role = NULL;
    if (!text)
        return;
    text_release(&question->bytes);
    memmove(question, question + 1, (size_t)(s->count - 2) * sizeof *question);
    s->count--;
}

int chat_encode(const struct prepare *p, struct item *item, i64 index)
{
    const struct sample *s = &item->sample;
    const struct sample_part *part = &s->parts[index];
    struct made *made = &item->made[index];
    bool answers = chat_answers(s, index), first = part->role != NULL, text = part->kind == SAMPLE_TEXT;
    const char *words = text && part->bytes.data ? part->bytes.data : "";
    i64 length = text ? part->bytes.length : 0;
    if (!p->chat)
        return text_chat_layout(p->text) ? 0 : -1;
    chat_trim(p->chat, first, index + 1 == s->count || s->parts[index + 1].role, &words, &length);
    if (index == 0 && text_chat_begin(&made->head, p->text, p->chat) < 0)
        return -1;
    if (first && text_chat_head(&made->head, p->text, p->chat, part->role, words, answers ? 0 : length) < 0)
        return -1;
    return text && (answers || !first) ? text_chat_text(&made->ids, p->text, words, length) : 0;
}

void chat_end(struct id_list *out, const struct prepare *p, const struct sample *sample, i64 part)
{
    require(text_chat_tail(out, p->text, p->chat, chat_role(sample, part)) == 0, "%s", error_text());
}
