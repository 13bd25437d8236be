/* Methods of texts, as Python's str has them; filters of the same names use them too. Places and counts
 * are characters. */
#define _GNU_SOURCE /* memmem */
#include "tokenizers/template/inside.h"

#include <string.h>

/* A text made of a part or a change of the subject: it stays escaped if the subject was. */
static struct jinja_value like(struct jinja_run *run, const struct jinja_call *call, struct jinja_value text)
{
    return jinja_markup(run, text, call->subject.kind == JINJA_TEXT && call->subject.text->markup);
}

static struct jinja_value part(struct jinja_run *run, const struct jinja_call *call, const char *bytes, i64 length)
{
    return like(run, call, jinja_text(run, bytes, length));
}

static const char *search(struct jinja_run *run, const char *text, i64 length, const struct jinja_text *word)
{
    jinja_charge(run, (length >> 6) + 1);
    return memmem(text, (size_t)length, word->bytes, (size_t)word->length);
}

static const char *search_last(struct jinja_run *run, const char *text, i64 length, const struct jinja_text *word)
{
    jinja_charge(run, (length >> 6) + 1);
    for (i64 at = length - word->length; at >= 0; at--)
        if (memcmp(text + at, word->bytes, (size_t)word->length) == 0)
            return text + at;
    return NULL;
}

static i64 count_points(const char *bytes, i64 length)
{
    return jinja_points(&(struct jinja_text){.bytes = bytes, .length = length, .points = -1});
}

/* ---- Cases ---- */

static void append_point(struct jinja_run *run, struct jinja_builder *out, u32 point, enum jinja_case to)
{
    u32 points[3];
    char bytes[4];
    i64 count = jinja_case(points, point, to);
    for (i64 i = 0; i < count; i++)
        jinja_append(run, out, bytes, jinja_encode(bytes, points[i]));
}

static bool is_cased(u32 point)
{
    return jinja_classes(point) & (JINJA_LOWER | JINJA_UPPER | JINJA_TITLE);
}

/* A sigma at the end of a word has a form of its own. */
static bool is_final_sigma(const struct jinja_text *text, i64 at)
{
    i64 bytes, before = at, behind = at + 2;
    while (before > 0 && ((u8)text->bytes[--before] & 0xc0) == 0x80)
        ;
    if (at == 0 || !is_cased(jinja_point(text->bytes + before, at - before, &bytes)))
        return false;
    return behind >= text->length || !is_cased(jinja_point(text->bytes + behind, text->length - behind, &bytes));
}

static void append_lower(struct jinja_run *run, struct jinja_builder *out, const struct jinja_text *text, i64 at,
                         u32 point)
{
    enum { SIGMA = 0x3a3 };
    if (point == SIGMA && is_final_sigma(text, at))
        jinja_append(run, out, "\xcf\x82", 2);
    else
        append_point(run, out, point, JINJA_TO_LOWER);
}

/* How the case of a character depends on what stands before it. */
enum change { UPPER, LOWER, CAPITALIZE, TITLE, SWAP, FOLD };

static struct jinja_value change_case(struct jinja_run *run, const struct jinja_call *call, enum change change)
{
    const struct jinja_text *text = jinja_subject(run, call);
    struct jinja_builder out = {0};
    bool cased = false;
    jinja_charge(run, text->length >> 2);
    for (i64 at = 0, bytes; at < text->length; at += bytes) {
        u32 point = jinja_point(text->bytes + at, text->length - at, &bytes);
        bool begins = change == CAPITALIZE ? at == 0 : change == TITLE && !cased;
        bool swapped = change == SWAP && (jinja_classes(point) & JINJA_LOWER);
        if (change == UPPER || swapped)
            append_point(run, &out, point, JINJA_TO_UPPER);
        else if (begins)
            append_point(run, &out, point, JINJA_TO_TITLE);
        else if (change == FOLD)
            append_point(run, &out, point, JINJA_TO_FOLD);
        else
            append_lower(run, &out, text, at, point);
        cased = is_cased(point);
    }
    return like(run, call, jinja_built(run, &out));
}

struct jinja_value jinja_upper(struct jinja_run *run, const struct jinja_call *call)
{
    return change_case(run, call, UPPER);
}

struct jinja_value jinja_lower(struct jinja_run *run, const struct jinja_call *call)
{
    return change_case(run, call, LOWER);
}

struct jinja_value jinja_capitalize(struct jinja_run *run, const struct jinja_call *call)
{
    return change_case(run, call, CAPITALIZE);
}

static struct jinja_value title(struct jinja_run *run, const struct jinja_call *call)
{
    return change_case(run, call, TITLE);
}

static struct jinja_value swapcase(struct jinja_run *run, const struct jinja_call *call)
{
    return change_case(run, call, SWAP);
}

static struct jinja_value casefold(struct jinja_run *run, const struct jinja_call *call)
{
    return change_case(run, call, FOLD);
}

/* ---- Questions ---- */

static struct jinja_value all_are(struct jinja_run *run, const struct jinja_call *call, int classes)
{
    const struct jinja_text *text = jinja_subject(run, call);
    bool all = text->length > 0;
    jinja_charge(run, text->length >> 3);
    for (i64 at = 0, bytes; at < text->length && all; at += bytes)
        all = jinja_classes(jinja_point(text->bytes + at, text->length - at, &bytes)) & classes;
    return jinja_bool(all);
}

static struct jinja_value isalpha_(struct jinja_run *run, const struct jinja_call *call)
{
    return all_are(run, call, JINJA_ALPHA);
}

static struct jinja_value isalnum_(struct jinja_run *run, const struct jinja_call *call)
{
    return all_are(run, call, JINJA_ALPHA | JINJA_DECIMAL | JINJA_DIGIT | JINJA_NUMERIC);
}

static struct jinja_value isdigit_(struct jinja_run *run, const struct jinja_call *call)
{
    return all_are(run, call, JINJA_DIGIT);
}

static struct jinja_value isdecimal(struct jinja_run *run, const struct jinja_call *call)
{
    return all_are(run, call, JINJA_DECIMAL);
}

static struct jinja_value isprintable(struct jinja_run *run, const struct jinja_call *call)
{
    return jinja_bool(jinja_subject(run, call)->length == 0 || all_are(run, call, JINJA_PRINTABLE).truth);
}

static struct jinja_value isspace_(struct jinja_run *run, const struct jinja_call *call)
{
    const struct jinja_text *text = jinja_subject(run, call);
    return jinja_bool(text->length > 0 && jinja_spaces_before(text->bytes, text->length) == text->length);
}

static struct jinja_value isascii_(struct jinja_run *run, const struct jinja_call *call)
{
    struct jinja_text *text = jinja_subject(run, call);
    bool ascii = true;
    for (i64 i = 0; i < text->length && ascii; i++)
        ascii = (u8)text->bytes[i] < 128;
    return jinja_bool(ascii);
}

/* Some characters are of the case, and none of another. */
static bool has_case(const struct jinja_text *text, int wanted, int other)
{
    bool some = false;
    for (i64 at = 0, bytes; at < text->length; at += bytes) {
        int classes = jinja_classes(jinja_point(text->bytes + at, text->length - at, &bytes));
        if (classes & other)
            return false;
        some |= (classes & wanted) != 0;
    }
    return some;
}

struct jinja_value jinja_islower(struct jinja_run *run, const struct jinja_call *call)
{
    return jinja_bool(has_case(jinja_subject(run, call), JINJA_LOWER, JINJA_UPPER | JINJA_TITLE));
}

struct jinja_value jinja_isupper(struct jinja_run *run, const struct jinja_call *call)
{
    return jinja_bool(has_case(jinja_subject(run, call), JINJA_UPPER, JINJA_LOWER | JINJA_TITLE));
}

static struct jinja_value istitle(struct jinja_run *run, const struct jinja_call *call)
{
    const struct jinja_text *text = jinja_subject(run, call);
    bool cased = false, some = false;
    for (i64 at = 0, bytes; at < text->length; at += bytes) {
        int classes = jinja_classes(jinja_point(text->bytes + at, text->length - at, &bytes));
        if ((classes & (JINJA_UPPER | JINJA_TITLE)) ? cased : (classes & JINJA_LOWER) && !cased)
            return jinja_bool(false);
        cased = classes & (JINJA_UPPER | JINJA_TITLE | JINJA_LOWER);
        some |= cased;
    }
    return jinja_bool(some);
}

/* ---- Stripping ---- */

static bool is_stripped(const char *bytes, i64 length, const struct jinja_text *characters)
{
    i64 size;
    if (!characters)
        return jinja_is_space(jinja_point(bytes, length, &size));
    return memmem(characters->bytes, (size_t)characters->length, bytes, (size_t)length);
}

static struct jinja_value strip(struct jinja_run *run, const struct jinja_call *call, bool left, bool right)
{
    const struct jinja_text *text = jinja_subject(run, call), *characters = NULL;
    if (jinja_given(call, 0) && call->at[0].kind != JINJA_NONE)
        characters = jinja_want_text(run, call, 0);
    i64 begin = 0, end = text->length, bytes;
    while (left && begin < end) {
        jinja_point(text->bytes + begin, end - begin, &bytes);
        if (!is_stripped(text->bytes + begin, bytes, characters))
            break;
        begin += bytes;
        jinja_charge(run, 1 + (characters ? characters->length >> 6 : 0));
    }
    while (right && begin < end) {
        i64 at = end - 1;
        while (at > begin && ((u8)text->bytes[at] & 0xc0) == 0x80)
            at--;
        if (!is_stripped(text->bytes + at, end - at, characters))
            break;
        end = at;
        jinja_charge(run, 1 + (characters ? characters->length >> 6 : 0));
    }
    return part(run, call, text->bytes + begin, end - begin);
}

struct jinja_value jinja_strip(struct jinja_run *run, const struct jinja_call *call)
{
    return strip(run, call, true, true);
}

static struct jinja_value lstrip(struct jinja_run *run, const struct jinja_call *call)
{
    return strip(run, call, true, false);
}

static struct jinja_value rstrip(struct jinja_run *run, const struct jinja_call *call)
{
    return strip(run, call, false, true);
}

static bool begins_with(const struct jinja_text *text, const struct jinja_text *word)
{
    return text->length >= word->length && memcmp(text->bytes, word->bytes, (size_t)word->length) == 0;
}

static bool ends_with(const struct jinja_text *text, const struct jinja_text *word)
{
    return text->length >= word->length &&
           memcmp(text->bytes + text->length - word->length, word->bytes, (size_t)word->length) == 0;
}

static struct jinja_value removeprefix(struct jinja_run *run, const struct jinja_call *call)
{
    const struct jinja_text *text = jinja_subject(run, call), *word = jinja_want_text(run, call, 0);
    i64 cut = begins_with(text, word) ? word->length : 0;
    return part(run, call, text->bytes + cut, text->length - cut);
}

static struct jinja_value removesuffix(struct jinja_run *run, const struct jinja_call *call)
{
    const struct jinja_text *text = jinja_subject(run, call), *word = jinja_want_text(run, call, 0);
    return part(run, call, text->bytes, text->length - (ends_with(text, word) ? word->length : 0));
}

/* ---- Searching, in the part that the arguments from `place` on name ---- */

struct window {
    struct jinja_text text; /* the part */
    i64 before;             /* characters before it */
    bool absent;            /* it begins behind the end */
};

static struct window window_of(struct jinja_run *run, const struct jinja_call *call, int place)
{
    struct jinja_value subject = {JINJA_TEXT, {.text = jinja_subject(run, call)}};
    struct window window = {*subject.text, 0, false};
    if (!jinja_given(call, place))
        return window;
    i64 count = jinja_length(run, subject);
    const struct jinja_value bounds[] = {call->at[place], call->at[place + 1], JINJA_MISSING_VALUE};
    i64 start = call->at[place].kind == JINJA_NONE ? 0 : jinja_want_integer(run, call, place, 0);
    window.text = *jinja_slice(run, subject, bounds).text;
    window.before = start < 0 ? max_i64(start + count, 0) : min_i64(start, count);
    window.absent = start > count;
    return window;
}

static struct jinja_value place_of(struct jinja_run *run, const struct jinja_call *call, bool last, bool needed)
{
    const struct jinja_text *word = jinja_want_text(run, call, 0);
    struct window window = window_of(run, call, 1);
    const char *found = NULL;
    if (!window.absent)
        found = (last ? search_last : search)(run, window.text.bytes, window.text.length, word);
    if (!found && needed)
        jinja_fail(run, "substring not found");
    return jinja_integer(found ? window.before + count_points(window.text.bytes, found - window.text.bytes) : -1);
}

static struct jinja_value find(struct jinja_run *run, const struct jinja_call *call)
{
    return place_of(run, call, false, false);
}

static struct jinja_value rfind(struct jinja_run *run, const struct jinja_call *call)
{
    return place_of(run, call, true, false);
}

static struct jinja_value index_(struct jinja_run *run, const struct jinja_call *call)
{
    return place_of(run, call, false, true);
}

static struct jinja_value rindex_(struct jinja_run *run, const struct jinja_call *call)
{
    return place_of(run, call, true, true);
}

static struct jinja_value count(struct jinja_run *run, const struct jinja_call *call)
{
    const struct jinja_text *word = jinja_want_text(run, call, 0);
    struct window window = window_of(run, call, 1);
    const char *at = window.text.bytes, *end = at + window.text.length;
    i64 found = 0;
    if (word->length == 0)
        return jinja_integer(window.absent ? 0 : count_points(at, window.text.length) + 1);
    for (; (at = memmem(at, (size_t)(end - at), word->bytes, (size_t)word->length)); at += word->length)
        found++;
    jinja_charge(run, window.text.length >> 6);
    return jinja_integer(found);
}

/* A text or a tuple of texts. */
static struct jinja_value has_end(struct jinja_run *run, const struct jinja_call *call,
                                  bool (*has)(const struct jinja_text *text, const struct jinja_text *word))
{
    struct window window = window_of(run, call, 1);
    bool found = false;
    if (call->at[0].kind != JINJA_TUPLE)
        return jinja_bool(has(&window.text, jinja_want_text(run, call, 0)) && !window.absent);
    for (i64 i = 0; i < call->at[0].list->count; i++) {
        struct jinja_value word = call->at[0].list->items[i];
        if (word.kind != JINJA_TEXT)
            jinja_fail(run, "%s(): expected texts in the tuple", call->function->name);
        found |= has(&window.text, word.text);
    }
    return jinja_bool(found && !window.absent);
}

static struct jinja_value startswith(struct jinja_run *run, const struct jinja_call *call)
{
    return has_end(run, call, begins_with);
}

static struct jinja_value endswith(struct jinja_run *run, const struct jinja_call *call)
{
    return has_end(run, call, ends_with);
}

/* ---- Parts ---- */

static void split_spaces(struct jinja_run *run, const struct jinja_call *call, struct jinja_list *out, i64 most)
{
    const struct jinja_text *text = jinja_subject(run, call);
    const char *at = text->bytes, *end = at + text->length;
    for (;;) {
        at += jinja_spaces_before(at, end - at);
        if (at == end)
            return;
        const char *stop = at;
        i64 bytes;
        while (stop < end && !jinja_is_space(jinja_point(stop, end - stop, &bytes)))
            stop += bytes;
        if (most-- == 0)
            stop = end;
        jinja_push(run, out, part(run, call, at, stop - at));
        at = most == -1 ? end : stop;
    }
}

static void split_words(struct jinja_run *run, const struct jinja_call *call, struct jinja_list *out,
                        const struct jinja_text *word, i64 most)
{
    const struct jinja_text *text = jinja_subject(run, call);
    const char *at = text->bytes, *end = at + text->length, *found;
    jinja_charge(run, text->length >> 6);
    while (most-- != 0 && (found = memmem(at, (size_t)(end - at), word->bytes, (size_t)word->length))) {
        jinja_push(run, out, part(run, call, at, found - at));
        at = found + word->length;
    }
    jinja_push(run, out, part(run, call, at, end - at));
}

static void reverse(struct jinja_list *list)
{
    for (i64 i = 0, j = list->count - 1; i < j; i++, j--) {
        struct jinja_value first = list->items[i];
        list->items[i] = list->items[j];
        list->items[j] = first;
    }
}

static void rsplit_spaces(struct jinja_run *run, const struct jinja_call *call, struct jinja_list *out, i64 most)
{
    const struct jinja_text *text = jinja_subject(run, call);
    const char *begin = text->bytes, *end = begin + text->length;
    for (;;) {
        end -= jinja_spaces_behind(begin, end - begin);
        if (end == begin)
            break;
        const char *at = end;
        while (at > begin && jinja_spaces_behind(begin, at - begin) == 0)
            do
                at--;
            while (at > begin && ((u8)*at & 0xc0) == 0x80);
        if (most-- == 0)
            at = begin;
        jinja_push(run, out, part(run, call, at, end - at));
        end = most == -1 ? begin : at;
    }
    reverse(out);
}

static void rsplit_words(struct jinja_run *run, const struct jinja_call *call, struct jinja_list *out,
                         const struct jinja_text *word, i64 most)
{
    const struct jinja_text *text = jinja_subject(run, call);
    const char *begin = text->bytes, *end = begin + text->length, *found;
    while (most-- != 0 && (found = search_last(run, begin, end - begin, word))) {
        jinja_push(run, out, part(run, call, found + word->length, end - found - word->length));
        end = found;
    }
    jinja_push(run, out, part(run, call, begin, end - begin));
    reverse(out);
}

static struct jinja_value split_with(struct jinja_run *run, const struct jinja_call *call, bool last)
{
    struct jinja_list *out = jinja_sequence(run, JINJA_LIST, 0).list;
    i64 most = jinja_want_integer(run, call, 1, -1);
    most = most < 0 ? -1 : most;
    if (!jinja_given(call, 0) || call->at[0].kind == JINJA_NONE) {
        (last ? rsplit_spaces : split_spaces)(run, call, out, most < 0 ? INT64_MAX : most);
        return jinja_of_list(out, JINJA_LIST);
    }
    const struct jinja_text *word = jinja_want_text(run, call, 0);
    if (word->length == 0)
        jinja_fail(run, "empty separator");
    (last ? rsplit_words : split_words)(run, call, out, word, most < 0 ? INT64_MAX : most);
    return jinja_of_list(out, JINJA_LIST);
}

static struct jinja_value split(struct jinja_run *run, const struct jinja_call *call)
{
    return split_with(run, call, false);
}

static struct jinja_value rsplit(struct jinja_run *run, const struct jinja_call *call)
{
    return split_with(run, call, true);
}

/* Bytes of the line end at `at`, 0: there is none. Python knows eleven. */
i64 jinja_line_end(const char *at, i64 length)
{
    i64 bytes;
    u32 point = jinja_point(at, length, &bytes);
    if (point == '\r' && length > 1 && at[1] == '\n')
        return 2;
    bool ends = (point >= 0x0a && point <= 0x0d) || (point >= 0x1c && point <= 0x1e) || point == 0x85 ||
                point == 0x2028 || point == 0x2029;
    return ends ? bytes : 0;
}

static struct jinja_value splitlines(struct jinja_run *run, const struct jinja_call *call)
{
    const struct jinja_text *text = jinja_subject(run, call);
    struct jinja_list *out = jinja_sequence(run, JINJA_LIST, 0).list;
    bool keep = jinja_want_bool(run, call, 0, false);
    i64 begin = 0;
    jinja_charge(run, text->length >> 4);
    for (i64 at = 0, end, bytes; at < text->length; at += bytes) {
        jinja_point(text->bytes + at, text->length - at, &bytes);
        if ((end = jinja_line_end(text->bytes + at, text->length - at)) == 0)
            continue;
        jinja_push(run, out, part(run, call, text->bytes + begin, at - begin + (keep ? end : 0)));
        begin = at + end;
        bytes = end;
    }
    if (begin < text->length)
        jinja_push(run, out, part(run, call, text->bytes + begin, text->length - begin));
    return jinja_of_list(out, JINJA_LIST);
}

static struct jinja_value partition_with(struct jinja_run *run, const struct jinja_call *call, bool last)
{
    const struct jinja_text *text = jinja_subject(run, call), *word = jinja_want_text(run, call, 0);
    struct jinja_value parts = jinja_sequence(run, JINJA_TUPLE, 3);
    if (word->length == 0)
        jinja_fail(run, "empty separator");
    const char *found = (last ? search_last : search)(run, text->bytes, text->length, word);
    const char *end = text->bytes + text->length, *begin = found ? found : last ? text->bytes : end;
    const char *behind = found ? found + word->length : begin;
    parts.list->items[0] = part(run, call, text->bytes, begin - text->bytes);
    parts.list->items[1] = part(run, call, begin, behind - begin);
    parts.list->items[2] = part(run, call, behind, end - behind);
    return parts;
}

static struct jinja_value partition(struct jinja_run *run, const struct jinja_call *call)
{
    return partition_with(run, call, false);
}

static struct jinja_value rpartition(struct jinja_run *run, const struct jinja_call *call)
{
    return partition_with(run, call, true);
}

/* ---- Making texts ---- */

/* Replaces at most `most` places; INT64_MAX: all. An empty word stands between all characters. */
struct jinja_value jinja_replace_text(struct jinja_run *run, const struct jinja_text *text,
                                      const struct jinja_text *old, const struct jinja_text *new, i64 most)
{
    struct jinja_builder out = {0};
    const char *at = text->bytes, *end = at + text->length;
    jinja_charge(run, text->length >> 6);
    while (most-- > 0) {
        const char *found = memmem(at, (size_t)(end - at), old->bytes, (size_t)old->length);
        if (!found)
            break;
        jinja_append(run, &out, at, found - at);
        jinja_append(run, &out, new->bytes, new->length);
        at = found + old->length;
        if (old->length)
            continue;
        if (at == end)
            break;
        i64 bytes;
        jinja_charge(run, 1);
        jinja_point(at, end - at, &bytes);
        jinja_append(run, &out, at, bytes);
        at += bytes;
    }
    jinja_append(run, &out, at, end - at);
    return jinja_built(run, &out);
}

static struct jinja_value replace(struct jinja_run *run, const struct jinja_call *call)
{
    const struct jinja_text *text = jinja_subject(run, call), *new = jinja_want_text(run, call, 1);
    i64 most = jinja_want_integer(run, call, 2, -1);
    if (text->markup)
        new = jinja_escape(run, call->at[1]).text;
    return like(run, call,
                jinja_replace_text(run, text, jinja_want_text(run, call, 0), new, most < 0 ? INT64_MAX : most));
}

static struct jinja_value join(struct jinja_run *run, const struct jinja_call *call)
{
    const struct jinja_text *text = jinja_subject(run, call);
    struct jinja_builder out = {0};
    jinja_need_defined(run, call->at[0]);
    struct jinja_list *items = jinja_collect(run, call->at[0]);
    for (i64 i = 0; i < items->count; i++) {
        struct jinja_value item = text->markup ? jinja_escape(run, items->items[i]) : items->items[i];
        if (item.kind != JINJA_TEXT)
            jinja_fail(run, "sequence item %lld: expected str instance, %s found", (long long)i, jinja_type_name(item));
        jinja_append(run, &out, text->bytes, i ? text->length : 0);
        jinja_append(run, &out, item.text->bytes, item.text->length);
    }
    return like(run, call, jinja_built(run, &out));
}

/* Pads to `width` characters; `left` of the padding goes before the text. */
static struct jinja_value pad(struct jinja_run *run, const struct jinja_call *call, i64 width, i64 left)
{
    struct jinja_text *text = jinja_subject(run, call), space = {.bytes = " ", .length = 1, .points = 1};
    struct jinja_text *fill = jinja_given(call, 1) ? jinja_want_text(run, call, 1) : &space;
    struct jinja_builder out = {0};
    if (jinja_points(fill) != 1)
        jinja_fail(run, "The fill character must be exactly one character long");
    i64 missing = max_i64(width - jinja_points(text), 0);
    left = min_i64(left, missing);
    jinja_fill(run, &out, fill->bytes, fill->length, left);
    jinja_append(run, &out, text->bytes, text->length);
    jinja_fill(run, &out, fill->bytes, fill->length, missing - left);
    return like(run, call, jinja_built(run, &out));
}

static struct jinja_value ljust(struct jinja_run *run, const struct jinja_call *call)
{
    return pad(run, call, jinja_want_integer(run, call, 0, 0), 0);
}

static struct jinja_value rjust(struct jinja_run *run, const struct jinja_call *call)
{
    return pad(run, call, jinja_want_integer(run, call, 0, 0), INT64_MAX);
}

/* Of an odd padding, the larger half goes to the left if the width is odd. */
struct jinja_value jinja_center(struct jinja_run *run, const struct jinja_call *call)
{
    i64 width = jinja_want_integer(run, call, 0, 80),
        missing = max_i64(width - jinja_points(jinja_subject(run, call)), 0);
    return pad(run, call, width, missing / 2 + (missing & width & 1));
}

static struct jinja_value zfill(struct jinja_run *run, const struct jinja_call *call)
{
    struct jinja_text *text = jinja_subject(run, call);
    struct jinja_builder out = {0};
    i64 missing = jinja_want_integer(run, call, 0, 0) - jinja_points(text);
    bool sign = text->length && (*text->bytes == '+' || *text->bytes == '-');
    jinja_append(run, &out, text->bytes, sign);
    jinja_fill(run, &out, "0", 1, missing);
    jinja_append(run, &out, text->bytes + sign, text->length - sign);
    return like(run, call, jinja_built(run, &out));
}

const struct jinja_function JINJA_TEXT_METHODS[] = {
    {"capitalize", "", 0, jinja_capitalize},
    {"casefold", "", 0, casefold},
    {"center", "- -", 1, jinja_center},
    {"count", "- - -", 1, count},
    {"encode", NULL, 0, NULL},
    {"endswith", "- - -", 1, endswith},
    {"expandtabs", NULL, 0, NULL},
    {"find", "- - -", 1, find},
    {"format", NULL, 0, jinja_format_method},
    {"format_map", NULL, 0, NULL},
    {"index", "- - -", 1, index_},
    {"isalnum", "", 0, isalnum_},
    {"isalpha", "", 0, isalpha_},
    {"isascii", "", 0, isascii_},
    {"isdecimal", "", 0, isdecimal},
    {"isdigit", "", 0, isdigit_},
    {"isidentifier", NULL, 0, NULL},
    {"islower", "", 0, jinja_islower},
    {"isnumeric", NULL, 0, NULL},
    {"isprintable", "", 0, isprintable},
    {"isspace", "", 0, isspace_},
    {"istitle", "", 0, istitle},
    {"isupper", "", 0, jinja_isupper},
    {"join", "-", 1, join},
    {"ljust", "- -", 1, ljust},
    {"lower", "", 0, jinja_lower},
    {"lstrip", "-", 0, lstrip},
    {"maketrans", NULL, 0, NULL},
    {"partition", "-", 1, partition},
    {"removeprefix", "-", 1, removeprefix},
    {"removesuffix", "-", 1, removesuffix},
    {"replace", "- - -", 2, replace},
    {"rfind", "- - -", 1, rfind},
    {"rindex", "- - -", 1, rindex_},
    {"rjust", "- -", 1, rjust},
    {"rpartition", "-", 1, rpartition},
    {"rsplit", "sep maxsplit", 0, rsplit},
    {"rstrip", "-", 0, rstrip},
    {"split", "sep maxsplit", 0, split},
    {"splitlines", "keepends", 0, splitlines},
    {"startswith", "- - -", 1, startswith},
    {"strip", "-", 0, jinja_strip},
    {"swapcase", "", 0, swapcase},
    {"title", "", 0, title},
    {"translate", NULL, 0, NULL},
    {"upper", "", 0, jinja_upper},
    {"zfill", "-", 1, zfill},
    {0},
};
