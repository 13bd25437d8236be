/* A conversation in the one chat layout: <|im_start|>ROLE\nCONTENT<|im_end|>\n. An answer's text is encoded by itself,
 * as it will be when it is generated behind its role; a question's text together with its role, as templates do. */
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

static int encode(const struct prepare *p, struct id_list *out, const char *text, i64 length)
{
    return text_encode(p->text, out, text, length, &(struct encode_options){.plain = true});
}

/* <|im_start|>ROLE\n, and behind it the question's first text. */
static int encode_head(const struct prepare *p, const struct sample_part *part, struct made *made, bool answers)
{
    struct text head = {0};
    text_printf(&head, "%s\n", part->role);
    if (!answers && part->kind == SAMPLE_TEXT)
        text_append(&head, part->bytes.data, part->bytes.length);
    id_list_push(&made->head, p->vocabulary.im_start);
    int status = encode(p, &made->head, head.data, head.length);
    text_release(&head);
    return status;
}

int chat_encode(const struct prepare *p, struct item *item, i64 index)
{
    const struct sample_part *part = &item->sample.parts[index];
    struct made *made = &item->made[index];
    bool answers = chat_answers(&item->sample, index), first = part->role != NULL;
    if (p->vocabulary.im_start < 0 || p->vocabulary.im_end < 0)
        return error_set("a conversation, but the text tokenizer has no <|im_start|> and <|im_end|>");
    if (first && encode_head(p, part, made, answers) < 0)
        return -1;
    if (part->kind == SAMPLE_TEXT && (answers || !first))
        return encode(p, &made->ids, part->bytes.data ? part->bytes.data : "", part->bytes.length);
    return 0;
}
