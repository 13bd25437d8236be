/* Chat templates. A chat template is a Jinja program beside a tokenizer that writes a conversation as
 * text. This room runs the part of Jinja that published templates use, with the settings and the
 * added functions of transformers' apply_chat_template (trim_blocks, lstrip_blocks, loop controls,
 * generation marks, raise_exception, strftime_now, tojson), and refuses the rest by name: inheritance
 * and includes, `do`, and filters that templates have no use for (filters_text.c, filters_list.c).
 * Other differences: integers have 64 bits, and what Python would write with an address is refused.
 *
 * Where is what:
 *   lexer.c, parser.c, expressions.c, symbols.c   source to tree
 *   interpreter.c, loop.c, evaluate.c, operators.c, access.c, calls.c   running it
 *   values.c, dictionary.c, iterate.c, show.c, formats.c, json_text.c, characters.c   Python's values
 *   filters_text.c, filters_list.c, filters_number.c, kinds.c (tests), methods.c, text_methods.c,
 *   globals.c, date.c   tables of functions
 *   bounds.c   limits, memory, errors; inside.h   what these files share */
#ifndef WEFT_TEMPLATE_H
#define WEFT_TEMPLATE_H
#include "core/json.h"

struct template;
/* Parses a template. NULL and a message with origin and line if it is not a program that this room
 * runs. The text is not kept. */
struct template *template_open(const char *text, i64 length, const char *origin);
void template_close(struct template *template);

struct template_span {
    i64 begin, end; /* bytes of the rendered text */
};
struct template_output {
    struct buffer text;              /* UTF-8 */
    struct template_span *generated; /* inside of {% generation %}, in ascending order */
    i64 generated_count;
};
/* Renders with `variables`, an object whose members are the template's global variables. Rendering
 * is bounded in steps, depth and output. Returns 0, or -1 and a message that has the template's line,
 * or the text of its raise_exception. */
int template_render(struct template_output *out, const struct template *template, const struct json *variables);
void template_output_release(struct template_output *out);
bool template_marks_generation(const struct template *template); /* it contains {% generation %} */

/* A template that calls strftime_now writes the date of the day. transformers takes the local time of
 * the clock, and so does template_render at first. What prepares training data sets a time that it
 * stores, so that a run that is resumed tomorrow sees the same text. */
bool template_reads_clock(const struct template *template);
void template_set_time(struct template *template, i64 unix_s); /* strftime_now gives this time in UTC */

#endif
