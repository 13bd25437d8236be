#include "sites/journal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char *journal_path(const char *folder)
{
    return path_join(folder, "sites.jsonl");
}

static bool is_past(const struct json *line, i64 done, const i64 *versions, i64 count)
{
    i64 fragment = json_integer(json_get(line, "fragment"), -1);
    bool merged = fragment >= 0 && fragment < count && json_integer(json_get(line, "round"), 0) <= versions[fragment];
    return json_integer(json_get(line, "step"), 0) <= done && (fragment < 0 || merged);
}

int journal_open(const char *folder, i64 done, const i64 *versions, i64 count)
{
    struct buffer text = {0}, kept = {0};
    char *path = journal_path(folder);
    int status = file_exists(path) ? file_read(&text, path) : 0;
    const char *at = text.data, *end = text.data ? text.data + text.length : NULL, *newline;
    for (i64 number = 1; status == 0 && at && (newline = memchr(at, '\n', (size_t)(end - at))); number++) {
        struct json *line = json_parse_line(at, newline - at, path, number);
        if (line && is_past(line, done, versions, count))
            buffer_append(&kept, at, newline + 1 - at);
        json_free(line);
        at = newline + 1;
    }
    if (status == 0)
        status = file_replace(path, kept.data ? kept.data : "", kept.length);
    buffer_release(&text);
    buffer_release(&kept);
    memory_free(path);
    return status;
}

int journal_add(const char *folder, const struct json *line)
{
    struct buffer text = {0};
    char *path = journal_path(folder);
    int file = file_open_append(path), status = file < 0 ? -1 : 0;
    json_print(&text, line, 0);
    buffer_append(&text, "\n", 1);
    if (status == 0 && write(file, text.data, (size_t)text.length) != text.length)
        status = error_errno("%s", path);
    if (file >= 0)
        close(file);
    buffer_release(&text);
    memory_free(path);
    return status;
}

struct json *journal_merge(i64 step, i64 fragment, i64 round, const struct record *record, bool own)
{
    struct json *line = json_object(), *merged = json_array();
    double share[SITES_MOST];
    record_shares(share, record, -1);
    json_set(line, "step", json_of_integer(step));
    json_set(line, "fragment", json_of_integer(fragment));
    json_set(line, "round", json_of_integer(round));
    for (i64 i = 0; i < record->count; i++) {
        struct json *site = json_object();
        json_set(site, "site", json_of_string(record->parts[i].head.name));
        json_set(site, "weight", json_of_number(share[i]));
        json_set(site, "tokens", json_of_number(record->parts[i].head.tokens));
        json_push(merged, site);
    }
    json_set(line, "merged", merged);
    if (!own)
        json_set(line, "own", json_of_string("later"));
    return line;
}

/* ---- Rounds ---- */

static char *round_path(const char *folder, i64 fragment, i64 round)
{
    return string_format("%s/sites/round-%lld-%06lld", folder, (long long)fragment, (long long)round);
}

int journal_make_rounds(const char *folder)
{
    char *below = path_join(folder, "sites");
    int status = directory_make(below);
    if (status == 0 && access(below, W_OK | X_OK))
        status = error_errno("%s", below);
    memory_free(below);
    return status;
}

/* It depends on the name, too: a file in the place of another one counts as damaged. */
static u64 round_hash(i64 fragment, i64 round, const void *record, i64 bytes)
{
    return hash_bytes(record, bytes, (u64)(round * FRAGMENTS_MOST + fragment));
}

int journal_keep_round(const char *folder, i64 fragment, i64 round, const void *record, i64 bytes)
{
    struct buffer text = {0};
    char *path = round_path(folder, fragment, round);
    u64 hash = round_hash(fragment, round, record, bytes);
    buffer_append(&text, &hash, sizeof hash);
    buffer_append(&text, record, bytes);
    int status = file_exists(path) ? 0 : file_replace(path, text.data, text.length);
    buffer_release(&text);
    memory_free(path);
    return status;
}

static int check_round(struct buffer *text, i64 fragment, i64 round, const struct part_sizes *sizes)
{
    u64 hash;
    i64 bytes = text->length - (i64)sizeof hash;
    if (bytes < 0)
        return error_set("it is cut short");
    memcpy(&hash, text->data, sizeof hash);
    if (hash != round_hash(fragment, round, text->data + sizeof hash, bytes))
        return error_set("the checksum differs");
    memmove(text->data, text->data + sizeof hash, (size_t)bytes);
    text->length = bytes;
    struct record *record = memory_alloc(sizeof *record);
    int status = record_read(record, (const u8 *)text->data, text->length, sizes);
    memory_free(record);
    return status;
}

int journal_find_round(struct buffer *out, const char *folder, i64 fragment, i64 round, const struct part_sizes *sizes)
{
    char *path = round_path(folder, fragment, round);
    int found = file_exists(path);
    if (found && (file_read(out, path) || check_round(out, fragment, round, sizes))) {
        char *why = string_copy(error_text());
        buffer_release(out);
        found = error_set("%s is damaged, so it is removed and asked for again: %s", path, why);
        unlink(path);
        memory_free(why);
    }
    memory_free(path);
    return found;
}

int journal_set_whole(const char *folder)
{
    char *path = path_join(folder, "sites/whole");
    int status = file_replace(path, "", 0);
    memory_free(path);
    return status;
}

bool journal_is_whole(const char *folder)
{
    char *path = path_join(folder, "sites/whole");
    bool is = file_exists(path);
    memory_free(path);
    return is;
}

int journal_drop_rounds(const char *folder, i64 fragment, i64 round)
{
    char **names, *below = path_join(folder, "sites");
    i64 count;
    int status = 0;
    if (!file_exists(below)) {
        memory_free(below);
        return 0;
    }
    if (directory_list(&names, &count, below) == 0) {
        for (i64 i = 0; i < count; i++) {
            long long of, number;
            char *path = path_join(below, names[i]);
            if (sscanf(names[i], "round-%lld-%lld", &of, &number) == 2 && of == fragment && number <= round &&
                unlink(path))
                status = error_errno("%s", path);
            memory_free(path);
        }
        string_list_free(names, count);
    } else {
        status = -1;
    }
    memory_free(below);
    return status;
}
