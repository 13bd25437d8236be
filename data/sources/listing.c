/* Lists the files of a folder and decides by their names which are read, which belong to another
 * file, which are left out and why, and which split they are in. Only of a done.json the content
 * decides whether it is data. */
#include "core/inventory.h"
#include "data/remote/remote.h"
#include "data/sources/source_readers.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

enum { DEPTH_MOST = 16, DONE_BYTES_MOST = 1 << 20 };
static const struct reader_kind *const readers[] = {&text_reader,  &lines_reader,   &values_reader,
                                                    &tar_reader,   &csv_reader,     &tsv_reader,
                                                    &index_reader, &parquet_reader, &arrow_reader};
const char *const split_names[SPLITS] = {"train", "validation", "test"};

int split_check(const char *key, const char *name)
{
    bool known = !name || !*name;
    for (enum split split = 0; split < SPLITS; split++)
        known = known || strcmp(name, split_names[split]) == 0;
    return known ? 0 : error_usage("%s: expected train, validation or test, found \"%s\"", key, name);
}

/* ---- Names ---- */

static bool is_medium(const char *name)
{
    return medium_kind(name_extension(name)) > MODALITY_TEXT;
}

/* True if the file may be compressed as a whole. Formats with random access have their own
 * compression. */
static bool may_be_packed(const struct reader_kind *reader)
{
    return reader != &index_reader && reader != &parquet_reader && reader != &arrow_reader;
}

static const struct reader_kind *reader_of(const char *name)
{
    i64 unpacked = name_unpacked_length(name);
    for (i64 i = 0; i < COUNT_OF(readers); i++) {
        i64 length = may_be_packed(readers[i]) ? unpacked : (i64)strlen(name), suffix = (i64)strlen(readers[i]->suffix);
        if (length >= suffix && strncasecmp(name + length - suffix, readers[i]->suffix, (size_t)suffix) == 0)
            return readers[i];
    }
    if (is_one_of("tgz tbz tbz2 txz tzst zip", name_extension(name)))
        return &tar_reader;
    return document_suffix(name) ? &text_reader : NULL;
}

bool archive_is_unread(const char *path)
{
    return is_one_of("7z rar", name_extension(path));
}

bool source_reads(const char *path)
{
    return reader_of(path) != NULL || name_ends_with(path, ".bin");
}

/* Split named by a folder's name or by the first word of a file's name; SPLIT_DRAWN: none. */
static int split_of(const char *name, bool folder)
{
    static const char *const words[SPLITS] = {"train training", "validation valid val dev",
                                              "test testing eval evaluation"};
    char word[16];
    size_t length = folder ? strlen(name) : strcspn(name, ".-_");
    /* A document is not named for a split: testing.md is about tests. */
    if (length >= sizeof word || (!folder && (!reader_of(name) || document_suffix(name))))
        return SPLIT_DRAWN;
    snprintf(word, sizeof word, "%.*s", (int)length, name);
    for (int split = 0; split < SPLITS; split++)
        if (is_one_of(words[split], word))
            return split;
    return SPLIT_DRAWN;
}

int split_of_folder(const char *name)
{
    return split_of(name, true);
}

/* ---- Files ---- */

static struct source_file *push_file(struct listing *l, char *path, int split, i64 bytes)
{
    if (l->count == l->capacity) {
        i64 next = max_i64(64, 2 * l->capacity), size = (i64)sizeof *l->files;
        l->files = memory_resize(l->files, l->capacity * size, next * size);
        l->capacity = next;
    }
    struct source_file *file = &l->files[l->count++];
    *file = (struct source_file){.path = path, .split = split, .bytes = bytes};
    return file;
}

static struct source_file *push(struct listing *l, char *path, int split)
{
    struct stat status;
    return push_file(l, path, split, stat(path, &status) == 0 ? (i64)status.st_size : 0);
}

void file_leave_out(struct source_file *file, char *why)
{
    file->use = FILE_LEFT_OUT;
    memory_free(file->why);
    file->why = why;
}

/* Reason for an unknown file. Its text is the kind under which such files are counted. */
static char *describe_unknown(const char *name)
{
    const char *extension = name_extension(name);
    if (name_unpacked_length(name) < (i64)strlen(name))
        return string_format(
            "files ending in .%s whose names do not say what is in them: expected NAME.txt.%s, .md.%s, "
            ".jsonl.%s, .json.%s, .csv.%s, .tsv.%s or .tar.%s",
            extension, extension, extension, extension, extension, extension, extension, extension);
    if (!*extension || strlen(extension) > 16)
        return string_copy("files of unknown type");
    if (archive_is_unread(name))
        return string_format("archives ending in .%s, which are not read: expected their files in a folder or a .tar",
                             extension);
    return string_format("files ending in .%s, which are not supported", extension);
}

static void classify(struct source_file *file)
{
    file->reader = reader_of(file->path);
    file->use = file->reader ? FILE_SAMPLES : is_medium(file->path) ? FILE_MEDIUM : FILE_LEFT_OUT;
    if (file->use == FILE_LEFT_OUT)
        file->why = describe_unknown(file->path);
}

/* ---- State of a stage ---- */

/* True for the done.json that `weft run` writes into the folder of a finished stage. */
static bool is_done_file(const struct source_file *file)
{
    struct buffer text = {0};
    const char *member;
    struct archive_file *in = file->bytes <= DONE_BYTES_MOST ? archive_file_open(file->path, false) : NULL;
    bool read = in && archive_file_next(in, &member) == 1 && archive_file_read_all(in, &text) == 0 && text.data;
    struct json *done = read ? json_parse(text.data, text.length, file->path) : NULL;
    bool is = json_kind(json_get(done, "hash")) == JSON_STRING && json_kind(json_get(done, "identity")) == JSON_OBJECT;
    json_free(done);
    archive_file_close(in);
    buffer_release(&text);
    return is;
}

/* Sets the state of the stage that made the folder apart from its output, unless it belongs to a
 * medium. */
static void match_state(struct source_file **list, i64 count)
{
    static const char *const names[] = {"done.json", "identity.json", INVENTORY_FILE};
    struct source_file *state[COUNT_OF(names)] = {NULL};
    for (i64 i = 0; i < count; i++) {
        const char *slash = strrchr(list[i]->path, '/'), *name = slash ? slash + 1 : list[i]->path;
        for (i64 k = 0; k < COUNT_OF(names) && list[i]->use == FILE_SAMPLES && list[i]->reader == &values_reader; k++)
            state[k] = strcmp(name, names[k]) == 0 ? list[i] : state[k];
    }
    if (!state[0] || !is_done_file(state[0]))
        return;
    for (i64 i = 0; i < COUNT_OF(names); i++)
        if (state[i]) {
            state[i]->use = FILE_STATE;
            state[i]->reader = NULL;
            state[i]->why = string_copy("files of state, which the stage that made the folder left");
        }
}

static bool is_lone_text(const struct source_file *file)
{
    return file->use == FILE_SAMPLES && file->reader == &text_reader && !file_is_readme(file->path) &&
           file->bytes <= CAPTION_BYTES_MAX;
}

/* Leaves out the short texts that are named like a medium without a caption. */
static void leave_named_texts(struct listing *l)
{
    struct lone_media media = {0};
    for (i64 i = 0; i < l->count; i++) {
        const char *path = l->files[i].path;
        if (companions_lack_caption(&l->files[i]))
            lone_media_add(&media, path, (size_t)(name_extension(path) - path) - 1);
    }
    lone_media_sort(&media);
    for (i64 i = 0; i < l->count && !lone_texts_are_documents(l->columns); i++) {
        struct source_file *file = &l->files[i];
        size_t length = (size_t)name_unpacked_length(file->path);
        while (length > 0 && file->path[length - 1] != '.')
            length--;
        if (is_lone_text(file) && length > 1 && lone_media_name(&media, file->path, length - 1)) {
            file->reader = NULL;
            file_leave_out(file, string_copy(NAMED_TEXTS));
        }
    }
    hash_list_release(&media.names);
}

/* Leaves out the short texts of a folder that belong to no medium, among captioned media. */
static void leave_lone_texts(const struct listing *l, struct source_file **list, i64 count)
{
    i64 captioned = 0, lone = 0;
    for (i64 i = 0; i < count; i++) {
        captioned += list[i]->caption != NULL;
        lone += is_lone_text(list[i]);
    }
    for (i64 i = 0; i < count && lone_texts_are_left(l->columns, lone, captioned); i++)
        if (is_lone_text(list[i])) {
            list[i]->reader = NULL;
            file_leave_out(list[i], string_copy(LONE_TEXTS));
        }
}

static void match_folder(struct listing *l, const char *path, i64 first)
{
    struct source_file **direct = memory_alloc(max_i64(1, l->count - first) * (i64)sizeof *direct);
    i64 count = 0;
    size_t length = strlen(path);
    for (i64 i = first; i < l->count; i++) {
        const char *below = l->files[i].path + length;
        if (!strchr(below + (*below == '/'), '/') && l->files[i].use != FILE_BESIDE)
            direct[count++] = &l->files[i];
    }
    companions_match(direct, count);
    match_state(direct, count);
    leave_lone_texts(l, direct, count);
    memory_free(direct);
}

/* The split of an entry in a folder that is itself in `split`. */
static int split_below(const char *name, bool folder, int split, int depth)
{
    const struct reader_kind *reader = folder ? NULL : reader_of(name);
    /* Tables are published one folder deeper. */
    bool table = reader == &parquet_reader || reader == &arrow_reader;
    return depth == 0 || (split == SPLIT_DRAWN && table) ? split_of(name, folder) : split;
}

/* Leaves out a README.md or LICENSE.txt whose folder holds more than texts: it describes a dataset and
 * is no part of it. In a folder of texts it is one of them. The files below a folder follow one another. */
static void match_readmes(struct listing *l)
{
    for (i64 i = 0; i < l->count; i++) {
        struct source_file *file = &l->files[i];
        const char *slash = strrchr(file->path, '/');
        size_t length = slash ? (size_t)(slash + 1 - file->path) : 0;
        bool card = false;
        if (file->use != FILE_SAMPLES || !file_describes(file->path))
            continue;
        for (int step = -1; step <= 1; step += 2)
            for (i64 k = i; k >= 0 && k < l->count && !card; k += step) {
                if (strncmp(l->files[k].path, file->path, length) != 0)
                    break;
                card = l->files[k].use == FILE_MEDIUM ||
                       (l->files[k].use == FILE_SAMPLES && l->files[k].reader != &text_reader);
            }
        if (!card)
            continue;
        file->use = FILE_APART;
        file->reader = NULL;
        file->why = string_copy("files that describe a dataset");
    }
}

/* ---- Walking ---- */

/* True for pipes, sockets and devices, also behind links. */
static bool is_special(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0 && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode);
}

/* True also for the folder of what archives of macOS add to each file. */
static bool is_hidden(const char *name)
{
    return *name == '.' || strcmp(name, "__MACOSX") == 0;
}

static void walk(struct listing *l, struct folder_visits *visits, const char *path, int split, int depth);

static void add_entry(struct listing *l, struct folder_visits *visits, char *path, const char *name, int split,
                      int depth)
{
    bool folder = file_is_directory(path);
    split = split_below(name, folder, split, depth);
    if (is_hidden(name)) {
        file_leave_out(push(l, path, split), string_copy("hidden files and folders"));
    } else if (leads_to_system(path)) {
        file_leave_out(push(l, path, split), string_copy("links into /proc, /sys and /dev"));
    } else if (is_special(path)) {
        file_leave_out(push(l, path, split), string_copy("pipes, sockets and devices"));
    } else if (folder) {
        walk(l, visits, path, split, depth + 1);
        memory_free(path);
    } else {
        classify(push(l, path, split));
    }
}

/* Adds an unlistable folder as an unreadable file, so that the error is reported and counted in its
 * turn. */
static void add_unlisted(struct listing *l, const char *path, int split)
{
    push(l, string_copy(path), split)->reader = &lines_reader;
}

static void walk(struct listing *l, struct folder_visits *visits, const char *path, int split, int depth)
{
    char **names;
    i64 count, first = l->count;
    if (depth > DEPTH_MOST) {
        file_leave_out(push(l, string_copy(path), split), string_copy("folders more than 16 deep"));
        return;
    }
    if (!folder_visit(visits, path)) {
        file_leave_out(push(l, string_copy(path), split),
                       string_copy("links to folders that are read by another name"));
        return;
    }
    if (directory_list(&names, &count, path) < 0) {
        add_unlisted(l, path, split);
        return;
    }
    for (i64 i = 0; i < count; i++)
        add_entry(l, visits, path_join(path, names[i]), names[i], split, depth);
    string_list_free(names, count);
    match_folder(l, path, first);
}

/* ---- Addresses ---- */

/* Media in files of their own are not fetched; tars, tables and lines hold theirs. */
static void classify_object(struct source_file *file)
{
    classify(file);
    if (file->use == FILE_MEDIUM)
        file_leave_out(file,
                       string_copy("media in files of their own at an address, which are not asked for one by one: "
                                   "expected tars or tables that hold them"));
}

static void walk_objects(struct listing *l, struct remote_object *objects, i64 count, const char *folder, int split,
                         int depth);

/* Adds objects whose next name component is the same: a folder, or a single file. */
static void add_objects(struct listing *l, struct remote_object *objects, i64 count, const char *name, bool folder,
                        int split, int depth)
{
    char *word = string_format("%.*s", (int)strcspn(name, "/"), name);
    i64 below = name - objects[0].address + (i64)strlen(word);
    split = split_below(word, folder, split, depth);
    if (folder && !is_hidden(word)) {
        char *path = string_format("%.*s", (int)below, objects[0].address);
        walk_objects(l, objects, count, path, split, depth + 1);
        memory_free(path);
    }
    for (i64 i = 0; i < count && (!folder || is_hidden(word)); i++) {
        struct source_file *file = push_file(l, string_copy(objects[i].address), split, objects[i].bytes);
        file->version = objects[i].version;
        objects[i].version = NULL;
        classify_object(file);
        if (is_hidden(word))
            file_leave_out(file, string_copy("hidden files and folders"));
    }
    memory_free(word);
}

/* Walks sorted objects like `walk` walks folders. */
static void walk_objects(struct listing *l, struct remote_object *objects, i64 count, const char *folder, int split,
                         int depth)
{
    i64 first = l->count;
    size_t at = strlen(folder) + 1;
    for (i64 i = 0, end; i < count; i = end) {
        const char *name = objects[i].address + at, *slash = strchr(name, '/');
        for (end = i + 1; slash && end < count; end++)
            if (strncmp(objects[end].address + at, name, (size_t)(slash - name) + 1) != 0)
                break;
        add_objects(l, objects + i, end - i, name, slash != NULL, split, depth);
    }
    match_folder(l, folder, first);
}

/* ---- Splits ---- */

static bool names_media(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    size_t length = strcspn(name, ".");
    const struct reader_kind *reader = reader_of(name);
    return (reader == &lines_reader || reader == &csv_reader) &&
           ((length == 8 && strncasecmp(name, "captions", 8) == 0) ||
            (length == 8 && strncasecmp(name, "metadata", 8) == 0));
}

static void settle_splits(struct listing *l)
{
    bool train = false, held_out = false;
    for (i64 i = 0; i < l->count; i++) {
        train |= l->files[i].split == SPLIT_TRAIN;
        held_out |= l->files[i].split > SPLIT_TRAIN;
    }
    for (i64 i = 0; i < l->count; i++) {
        struct source_file *file = &l->files[i];
        if (file->split >= 0)
            continue;
        file->split = train ? SPLIT_NONE : held_out ? SPLIT_TRAIN : SPLIT_DRAWN;
        if (train && file->use == FILE_SAMPLES && !names_media(file->path))
            file_leave_out(file, string_copy("files beside the part train, in no part"));
    }
}

/* Sorts files by split in the order of `enum split`, train first. */
static void order_splits(struct listing *l)
{
    struct source_file *ordered = memory_alloc(max_i64(1, l->capacity) * (i64)sizeof *ordered);
    i64 count = 0;
    for (int split = 0; split < SPLITS; split++)
        for (i64 i = 0; i < l->count; i++)
            if (max_i64(l->files[i].split, 0) == split)
                ordered[count++] = l->files[i];
    memory_free(l->files);
    l->files = ordered;
}

static int add_one(struct listing *l, const char *path)
{
    bool ids = name_ends_with(path, ".bin");
    char *file = ids ? string_format("%.*sidx", (int)strlen(path) - 3, path) : string_copy(path);
    classify(push(l, file, SPLIT_DRAWN));
    if (l->files[0].use == FILE_SAMPLES)
        return 0;
    if (archive_is_unread(path))
        return error_set("%s: an archive of a kind that is not read: expected its files in a folder or a .tar", path);
    return error_set("%s: of a kind that cannot be read: expected .txt, .md, .rst, .jsonl, .json, .csv, .tsv, .tar "
                     "(.gz, .zst, .xz, .bz2, .lz4), .parquet, .arrow, .idx, or a folder",
                     path);
}

/* Lists an address. The name of a single file does not set its split. For .bin the list holds its
 * index, too. */
static int open_addresses(struct listing *l, const char *address)
{
    struct remote_list list;
    if (remote_list(&list, address, source_reads) < 0)
        return -1;
    bool one = source_reads(address) && !strchr(address, '{');
    l->folder = string_copy(list.folder);
    walk_objects(l, list.objects, list.count, list.folder, SPLIT_DRAWN, 0);
    for (i64 i = 0; one && i < l->count; i++)
        l->files[i].split = SPLIT_DRAWN;
    remote_list_release(&list);
    return 0;
}

int listing_open(struct listing *l, const char *path, const struct source_columns *columns)
{
    *l = (struct listing){.columns = columns};
    if (is_address(path)) {
        char *address;
        int status = address_hide(&address, path);
        if (status == 0)
            status = open_addresses(l, address);
        memory_free(address);
        if (status < 0)
            return -1;
    } else if (!file_exists(path)) {
        return error_set("%s: there is no such file or folder", path);
    } else if (!file_is_directory(path)) {
        l->folder = path_folder(path);
        return add_one(l, path);
    } else {
        struct folder_visits visits = {.depth_most = DEPTH_MOST};
        l->folder = string_copy(path);
        walk(l, &visits, path, SPLIT_DRAWN, 0);
        folder_visits_release(&visits);
    }
    if (!is_address(path) && !lone_texts_are_documents(columns))
        transcripts_match(l);
    leave_named_texts(l);
    match_readmes(l);
    settle_splits(l);
    order_splits(l);
    return 0;
}

void listing_close(struct listing *l)
{
    for (i64 i = 0; i < l->count; i++) {
        memory_free(l->files[i].path);
        memory_free(l->files[i].caption);
        memory_free(l->files[i].why);
        memory_free(l->files[i].version);
    }
    memory_free(l->files);
    memory_free(l->folder);
    *l = (struct listing){0};
}
