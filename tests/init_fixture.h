/* Fixture for tests of `weft init`: folders of each kind, and the recipe that it writes for one, as the
 * reader of recipes takes it. */
#ifndef WEFT_TESTS_INIT_FIXTURE_H
#define WEFT_TESTS_INIT_FIXTURE_H
#include <stdlib.h>
#include <unistd.h>
#include "core/json.h"
#include "data/media/media.h"
#include "tests/cli_fixture.h"
#include "tests/files.h"

static struct json *recipe; /* of the last folder, as the reader of recipes resolves it */

static inline int make_folder(void **state)
{
    (void)state;
    setenv("WEFT_THREADS", "1", 1);
    shards = string_format("/tmp/weft-init.%d", (int)getpid());
    return directory_make(shards);
}

static inline int clear_folder(void **state)
{
    (void)state;
    json_free(recipe);
    directory_remove(shards);
    memory_free(shards);
    buffer_release(&said);
    buffer_release(&complained);
    return 0;
}

/* ---- Folders ---- */

static inline char *new_folder(const char *name)
{
    char *folder = in_folder(name);
    assert_int_equal(directory_make(folder), 0);
    return folder;
}

static inline void put_numbered(const char *folder, const char *form, i64 number, const char *text)
{
    char name[64];
    snprintf(name, sizeof name, "%03lld%s", (long long)number, form);
    text_in(folder, name, text);
}

static inline void put_picture(const char *folder, i64 number)
{
    char *path = string_format("%s/%03lld.png", folder, (long long)number);
    u8 pixels[4 * 4 * 3];
    memset(pixels, (int)number, sizeof pixels);
    assert_int_equal(image_write_png(path, pixels, 4, 4), 0);
    memory_free(path);
}

static inline void put_pictures(const char *folder, i64 count, bool captions)
{
    for (i64 i = 0; i < count; i++) {
        put_picture(folder, i);
        if (captions)
            put_numbered(folder, ".txt", i, "a grey square");
    }
}

static inline void put_texts(const char *folder, i64 count)
{
    for (i64 i = 0; i < count; i++)
        put_numbered(folder, "-text.txt", i, "It was a dark night, and nobody was out in the rain.\n");
}

static inline void put_chats(const char *folder, i64 count)
{
    struct buffer lines = {0};
    for (i64 i = 0; i < count; i++)
        buffer_printf(&lines,
                      "{\"messages\": [{\"role\": \"user\", \"content\": \"say %lld\"}, {\"role\": \"assistant\", "
                      "\"content\": \"%lld\"}]}\n",
                      (long long)i, (long long)i);
    buffer_append(&lines, "", 1);
    text_in(folder, "chats.jsonl", lines.data);
    buffer_release(&lines);
}

/* Conversations whose answers have `bytes` bytes. */
static inline void put_long_chats(const char *folder, const char *name, i64 count, i64 bytes)
{
    struct buffer lines = {0};
    for (i64 i = 0; i < count; i++) {
        buffer_printf(&lines,
                      "{\"messages\": [{\"role\": \"user\", \"content\": \"say %lld\"}, {\"role\": \"assistant\", "
                      "\"content\": \"",
                      (long long)i);
        for (i64 k = 0; k < bytes / 5; k++)
            buffer_append(&lines, "word ", 5);
        buffer_printf(&lines, "\"}]}\n");
    }
    buffer_append(&lines, "", 1);
    text_in(folder, name, lines.data);
    buffer_release(&lines);
}

static inline void put_sounds(const char *folder, i64 count, double seconds)
{
    struct sound sound;
    sound_init(&sound, (i64)(8000 * seconds), 8000);
    for (i64 i = 0; i < count; i++) {
        char *path = string_format("%s/%03lld.wav", folder, (long long)i);
        assert_int_equal(sound_write_wav(path, &sound), 0);
        put_numbered(folder, ".txt", i, "silence");
        memory_free(path);
    }
    sound_release(&sound);
}

/* Clips of one frame a second. ending: of their texts; NULL: they have none. */
static inline void put_clips(const char *folder, i64 count, i64 seconds, const char *ending, const char *words)
{
    struct clip clip;
    clip_init(&clip, seconds, 16, 16, 1);
    memset(clip.pixels, 90, (size_t)(seconds * 16 * 16 * 3));
    for (i64 i = 0; i < count; i++) {
        char *path = string_format("%s/%03lld.mp4", folder, (long long)i);
        assert_int_equal(clip_write_mp4(path, &clip), 0);
        if (ending)
            put_numbered(folder, ending, i, words);
        memory_free(path);
    }
    clip_release(&clip);
}

static inline void put_class(const char *folder, const char *name, i64 first, i64 count)
{
    char *inside = path_join(folder, name);
    assert_int_equal(directory_make(inside), 0);
    for (i64 i = 0; i < count; i++)
        put_picture(inside, first + i);
    memory_free(inside);
}

/* Captioned pictures of a size, from number `first` on. */
static inline void put_sized(const char *folder, i64 first, i64 count, i64 width, i64 height)
{
    u8 *pixels = memory_alloc(height * width * 3);
    for (i64 i = first; i < first + count; i++) {
        char *path = string_format("%s/%03lld.png", folder, (long long)i);
        assert_int_equal(image_write_png(path, pixels, height, width), 0);
        put_numbered(folder, ".txt", i, "a black field");
        memory_free(path);
    }
    memory_free(pixels);
}

/* Sizes follow from the number of positions. */
static inline void put_lines(const char *folder, i64 count)
{
    struct buffer text = {0};
    for (i64 i = 0; i < count; i++)
        buffer_printf(&text, "Line %lld says that there are many lines, and that no two of them agree.\n",
                      (long long)i);
    buffer_append(&text, "", 1);
    text_in(folder, "all.txt", text.data);
    buffer_release(&text);
}

/* ---- Recipes ---- */

static inline const char *setting_of(const char *stage, const char *key)
{
    static struct buffer text;
    const struct json *at = json_get(json_get(json_get(recipe, "stages"), stage), "settings");
    char *copy = string_copy(key), *rest = copy;
    for (char *word; (word = strsep(&rest, "."));)
        at = json_get(at, word);
    buffer_clear(&text);
    json_print(&text, at, 0);
    buffer_append(&text, "", 1);
    memory_free(copy);
    return text.data;
}

static inline void expect_setting(const char *stage, const char *key, const char *value)
{
    const char *found = setting_of(stage, key);
    if (strcmp(found, value) != 0)
        fail_msg("%s.%s is %s, expected %s", stage, key, found, value);
}

static inline void expect_recipe_from(const char *folder, const char *model, const char *stages)
{
    struct buffer names = {0};
    struct json_iterator it;
    char *file = in_folder("my.yaml");
    unlink(file);
    if ((model ? WEFT("init", folder, "--from", model, "-o", file) : WEFT("init", folder, "-o", file)) ||
        WEFT("inspect", file, "--json"))
        fail_msg("%s: %s", folder, complained.data);
    json_free(recipe);
    recipe = json_parse(said.data, (i64)strlen(said.data), "stdout");
    for (bool more = json_first(&it, json_get(recipe, "stages")); more;
         more = json_next(&it, json_get(recipe, "stages")))
        buffer_printf(&names, "%s%s", names.length ? " " : "", it.key);
    assert_string_equal(names.data, stages);
    buffer_release(&names);
    memory_free(file);
}

static inline void expect_recipe(const char *folder, const char *stages)
{
    expect_recipe_from(folder, NULL, stages);
}
#endif
