#include "data/sources/source_readers.h"

#include <stdio.h>
#include <string.h>

enum { KINDS_MOST = 100 };

static struct source_note *find(struct skip_notes *notes, const char *what)
{
    for (i64 i = 0; i < notes->count; i++)
        if (strcmp(notes->list[i].what, what) == 0)
            return &notes->list[i];
    return NULL;
}

void notes_add(struct skip_notes *notes, const char *where, const char *format, ...)
{
    char what[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    notes->total++;
    struct source_note *note = find(notes, what);
    if (!note && notes->count >= KINDS_MOST) {
        snprintf(what, sizeof what, "others");
        note = find(notes, what);
    }
    if (!note) {
        i64 size = (i64)sizeof *notes->list;
        notes->list = memory_resize(notes->list, notes->count * size, (notes->count + 1) * size);
        note = &notes->list[notes->count++];
        *note = (struct source_note){string_copy(what), string_copy(where), 0};
    }
    note->count++;
}

void notes_release(struct skip_notes *notes)
{
    for (i64 i = 0; i < notes->count; i++) {
        memory_free(notes->list[i].what);
        memory_free(notes->list[i].first);
    }
    memory_free(notes->list);
    *notes = (struct skip_notes){0};
}
