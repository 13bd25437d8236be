/* Reads form, colours and motion off pixels, by the rules that the captions are made by, and scores
 * them as a reward program. */
#include "corpus/corpus.h"
#include <stdlib.h>
#include <string.h>

/* ---- The thing on its white ground ---- */

enum { GROUND = 228 }; /* smallest channel of the ground */

static bool is_ground(const u8 *pixel)
{
    return min_i64(pixel[0], min_i64(pixel[1], pixel[2])) >= GROUND;
}

/* mask: 1 on entry; the ground that the border reaches becomes 0. */
static void clear_ground(u8 *mask, const u8 *pixels, i64 height, i64 width)
{
    i64 *list = memory_alloc(height * width * 8), count = 0;
    for (i64 i = 0; i < height * width; i++) {
        i64 y = i / width, x = i % width;
        bool border = y == 0 || x == 0 || y == height - 1 || x == width - 1;
        if (border && is_ground(pixels + 3 * i)) {
            mask[i] = 0;
            list[count++] = i;
        }
    }
    while (count) {
        i64 at = list[--count], y = at / width, x = at % width;
        const i64 beside[4] = {y ? at - width : at, y < height - 1 ? at + width : at, x ? at - 1 : at,
                               x < width - 1 ? at + 1 : at};
        for (int i = 0; i < 4; i++)
            if (mask[beside[i]] && is_ground(pixels + 3 * beside[i])) {
                mask[beside[i]] = 0;
                list[count++] = beside[i];
            }
    }
    memory_free(list);
}

void looks_read(struct looks *out, u8 *mask, const u8 *pixels, i64 height, i64 width)
{
    u8 *own = mask ? mask : memory_alloc(height * width);
    memset(own, 1, (size_t)(height * width));
    clear_ground(own, pixels, height, width);
    *out = (struct looks){0};
    for (i64 i = 0; i < height * width; i++)
        if (own[i])
            looks_add(out, i / width, i % width, colour_of(pixels[3 * i], pixels[3 * i + 1], pixels[3 * i + 2]));
    if (!mask)
        memory_free(own);
}

/* The frame that shows the thing as its caption names it: whole, large and upright. */
static i64 clear_frame(const struct clip *clip, int motion)
{
    if (motion == GROW)
        return clip->frames - 1;
    return motion == SHRINK || motion == TURN_CLOCKWISE || motion == TURN_ANTICLOCKWISE ? 0 : clip->frames / 2;
}

void judge_read(struct buffer *out, const struct clip *clip)
{
    struct looks looks;
    int motion = clip->frames > 1 ? motion_of(clip) : -1;
    i64 frame = clear_frame(clip, motion);
    looks_read(&looks, NULL, clip->pixels + frame * clip->height * clip->width * 3, clip->height, clip->width);
    buffer_append(out, "", 0);
    if (motion >= 0)
        buffer_printf(out, "%s%s", motion_phrases[motion], looks.pixels ? ", " : "");
    if (looks.pixels)
        describe_looks(out, &looks);
}

/* ---- Words ---- */

enum { WORDS = MOTIONS + FORM_WORDS + COLOURS, MOTION_WORDS = (1 << MOTIONS) - 1 };

static const char *word_of(int number)
{
    if (number < MOTIONS)
        return motion_phrases[number];
    number -= MOTIONS;
    return number < FORM_WORDS ? form_words[number] : colour_names[number - FORM_WORDS];
}

/* Takes a rewarded word, or a motion, off the end of the first `length` bytes. False: they end with
 * another word. */
static bool take_word(u32 *words, i64 *length, const char *text)
{
    for (int i = 0; i < WORDS; i++) {
        i64 bytes = (i64)strlen(word_of(i)), before = *length - bytes;
        if (before < 0 || memcmp(text + before, word_of(i), (size_t)bytes) != 0 ||
            (before && !strchr(" ,", text[before - 1])))
            continue;
        *words |= 1u << i;
        *length = before;
        return true;
    }
    return false;
}

/* The words of a caption that follow the name of what it shows: those behind which nothing else
 * comes. "red apple, round, orange and red" has round, orange and red by its last parts. */
static u32 words_of(const char *text)
{
    u32 words = 0;
    i64 length = (i64)strlen(text);
    while (length) {
        u32 more = 0;
        i64 at = length;
        bool taken = true;
        while (taken && !(more & MOTION_WORDS) && at && text[at - 1] != ',') { /* one part, to its comma */
            if (text[at - 1] == ' ')
                at--;
            else if (at >= 4 && memcmp(text + at - 4, " and", 4) == 0)
                at -= 4;
            else
                taken = take_word(&more, &at, text);
        }
        if (taken)
            words |= more;
        if (!taken || more & MOTION_WORDS) /* the name of the thing stands before its motion */
            break;
        length = at - (at > 0);
    }
    return words;
}

double judge_f1(const char *caption, const char *read)
{
    u32 wanted = words_of(caption), found = words_of(read);
    int both = __builtin_popcount(wanted & found);
    return wanted ? 2.0 * both / (__builtin_popcount(wanted) + __builtin_popcount(found)) : -1;
}

/* ---- The program ---- */

static int read_medium(struct clip *out, const struct json *line, const char *origin)
{
    const char *image = json_string(json_get(line, "image"), NULL), *video = json_string(json_get(line, "video"), NULL);
    const char *path = image ? image : video;
    struct file_view file;
    if (!path)
        return error_set("%s: expected the key image or video with the path of a file", origin);
    if (file_map(&file, path) < 0)
        return error_prefix("%s", origin);
    int status = image ? image_read(out, file.data, file.bytes, path)
                       : clip_read(out, file.data, file.bytes, path, &(struct clip_request){0});
    file_unmap(&file);
    return status ? error_prefix("%s", origin) : 0;
}

/* Answers a line. 1: its caption has no rewarded word; 0: it is scored; -1 and a message. */
static int judge_line(struct buffer *replies, const char *text, i64 length, i64 number)
{
    struct clip clip;
    char *origin = string_format("judge: line %lld", (long long)number);
    struct json *line = json_parse(text, length, origin);
    const char *caption = json_string(json_get(line, "ground_truth"), NULL);
    int status = line ? 0 : -1;
    if (status == 0 && !caption)
        status = error_set("%s: expected the key ground_truth with a caption", origin);
    if (status == 0)
        status = read_medium(&clip, line, origin);
    if (status == 0) {
        struct buffer read = {0};
        judge_read(&read, &clip);
        double score = judge_f1(caption, read.data);
        struct json *said = json_object();
        if (json_get(line, "id"))
            json_set(said, "id", json_copy(json_get(line, "id")));
        json_set(said, "score", json_of_number(score < 0 ? 0 : score));
        json_set(said, "read", json_of_string(read.data));
        append_line(replies, said);
        status = score < 0;
        buffer_release(&read);
        clip_release(&clip);
    }
    json_free(line);
    memory_free(origin);
    return status;
}

/* Replies wait until one caption has words: if none has, there are none. */
int judge(FILE *in, FILE *out)
{
    struct buffer replies = {0};
    char *text = NULL;
    size_t capacity = 0;
    ssize_t length;
    i64 lines = 0, bare = 0;
    int status = 0;
    while (status >= 0 && (length = getline(&text, &capacity, in)) > 0) {
        status = judge_line(&replies, text, length - (text[length - 1] == '\n'), ++lines);
        bare += status == 1;
        if (status < 0 || bare == lines)
            continue;
        if (fwrite(replies.data, 1, (size_t)replies.length, out) != (size_t)replies.length)
            status = error_errno("judge: its output");
        buffer_clear(&replies);
    }
    free(text);
    buffer_release(&replies);
    if (status >= 0 && bare)
        fprintf(stderr, "weft-corpus judge: %lld of %lld captions name no form, colour or motion, and score 0\n",
                (long long)bare, (long long)lines);
    if (status >= 0 && bare && bare == lines)
        status = error_set("judge: no caption names a form, a colour or a motion: expected captions such as \"red "
                           "apple, round, orange and red\"");
    return fflush(out) || status < 0 ? -1 : 0;
}
