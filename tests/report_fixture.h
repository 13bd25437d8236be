/* Fixture for tests of the page: a run made up, the page of runs, and what it shows. */
#ifndef WEFT_TESTS_REPORT_FIXTURE_H
#define WEFT_TESTS_REPORT_FIXTURE_H
#include "core/json.h"
#include "core/safetensors.h"
#include "report/page.h"
#include "report/report.h"
#include "tests/scratch.h"

#include <math.h>

static inline char *run_folder(const char *name) /* a new folder with a run.json; memory_free */
{
    char *folder = path_join(directory, name), *about = path_join(folder, "run.json");
    succeed(directory_remove(folder));
    succeed(directory_make(folder));
    succeed(file_replace(about, "{\"precision\":\"f32\",\"recipe\":\"r.yaml\"}", 37));
    memory_free(about);
    return folder;
}

static inline void put(const char *run, const char *stage, const char *name, const char *content)
{
    char *folder = path_join(run, stage), *path = path_join(folder, name);
    succeed(directory_make(folder));
    succeed(file_replace(path, content, (i64)strlen(content)));
    memory_free(folder);
    memory_free(path);
}

static inline void put_done(const char *run, const char *stage, const char *kind)
{
    char *done =
        string_format("{\"hash\":\"0\",\"identity\":{\"kind\":\"%s\",\"seed\":7,\"settings\":{\"steps\":3}}}", kind);
    put(run, stage, "done.json", done);
    memory_free(done);
}

static inline bool is_void(const char *tag)
{
    static const char *const names[] = {"meta", "link", "img", "!doctype"};
    for (i64 i = 0; i < COUNT_OF(names); i++)
        if (strcmp(tag, names[i]) == 0)
            return true;
    return false;
}

/* Every element is closed in order. Text contains neither < nor >. */
static inline void assert_well_formed(const char *html)
{
    char open[64][16];
    i64 depth = 0;
    const char *style = strstr(html, "<style>"), *style_end = strstr(html, "</style>");
    const char *script = strstr(html, "<script>"), *script_end = strstr(html, "</script>");
    for (const char *at = style; at; at = strchr(at + 1, '<')) {
        char tag[16] = "";
        if ((at > style && at < style_end) || (at > script && at < script_end))
            continue;
        sscanf(at + 1, *(at + 1) == '/' ? "/%15[a-z0-9!]" : "%15[a-z0-9!]", tag);
        if (!*tag || is_void(tag) || strcmp(tag, "path") == 0 || strcmp(tag, "rect") == 0 || strcmp(tag, "circle") == 0)
            continue;
        if (at[1] != '/') {
            assert_true(depth < 64);
            strcpy(open[depth++], tag);
        } else if (depth > 0) {
            if (strcmp(open[depth - 1], tag) != 0)
                fail_msg("<%s> is closed by </%s>: %.80s", open[depth - 1], tag, at);
            depth--;
        } else
            assert_true(strcmp(tag, "head") == 0 || strcmp(tag, "html") == 0); /* opened before the style element */
    }
    assert_int_equal(depth, 0);
}

static inline bool has_word(const char *text, const char *word)
{
    for (const char *at = text; (at = strstr(at, word)) != NULL; at++) {
        bool begins = at == text || strchr(" >'(,;", at[-1]), ends = strchr(" <'),.;%", at[strlen(word)]);
        if (begins && ends)
            return true;
    }
    return false;
}

static inline struct buffer page_of(const char *const *runs, i64 count)
{
    struct buffer html = {0};
    const char *path = path_of("page.html");
    succeed(report_write(path, runs, count));
    succeed(file_read(&html, path));
    assert_well_formed(html.data);
    const char *body = strstr(html.data, "<body>");
    assert_false(has_word(body, "nan") || has_word(body, "-nan") || has_word(body, "inf") || has_word(body, "(null)"));
    return html;
}

static inline void shows(const struct buffer *page, const char *words)
{
    if (!strstr(page->data, words))
        fail_msg("the page does not show \"%s\"", words);
}

static inline void lacks(const struct buffer *page, const char *words)
{
    const char *at = strstr(page->data, words);
    if (at)
        fail_msg("the page holds \"%s\": %.120s", words, at);
}

#endif
