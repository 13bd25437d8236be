/* GGUF v3 export of the text backbone for llama.cpp, with the keys and tensors that the family names
 * (family.h): dimensions reversed. */
#include "core/gguf.h"
#include "model/family.h"
#include "model/model.h"
#include "tokenizers/text/text.h"

#include <stdio.h>
#include <string.h>

enum { TOKEN_NORMAL = 1, TOKEN_CONTROL = 3, TOKEN_USER_DEFINED = 4, TOKEN_UNUSED = 5 }; /* llama.cpp's types */

struct gguf_tensor {
    char name[64];
    i64 dims[3]; /* GGUF order: innermost first */
    int rank;
    enum dtype dtype;
    const struct weight *weight;
    i64 first_row, rows; /* rows of each part */
};
struct gguf {
    struct buffer keys;
    i64 key_count;
    struct gguf_tensor *tensors;
    i64 tensor_count, capacity;
};

static void put_u32(struct buffer *t, u32 value)
{
    buffer_append(t, &value, 4);
}

static void put_u64(struct buffer *t, u64 value)
{
    buffer_append(t, &value, 8);
}

static void put_string(struct buffer *t, const char *s)
{
    put_u64(t, strlen(s));
    buffer_append(t, s, (i64)strlen(s));
}

static void begin_key(struct gguf *g, const char *name, u32 type)
{
    put_string(&g->keys, name);
    put_u32(&g->keys, type);
    g->key_count++;
}

static void key_u32(struct gguf *g, const char *name, i64 value)
{
    begin_key(g, name, GGUF_U32);
    put_u32(&g->keys, (u32)value);
}

static void key_f32(struct gguf *g, const char *name, double value)
{
    float narrow = (float)value;
    begin_key(g, name, GGUF_F32);
    buffer_append(&g->keys, &narrow, 4);
}

static void key_string(struct gguf *g, const char *name, const char *value)
{
    begin_key(g, name, GGUF_STRING);
    put_string(&g->keys, value);
}

static void key_bool(struct gguf *g, const char *name, bool value)
{
    u8 byte = value;
    begin_key(g, name, GGUF_BOOL);
    buffer_append(&g->keys, &byte, 1);
}

static void begin_array(struct gguf *g, const char *name, u32 type, i64 count)
{
    begin_key(g, name, GGUF_ARRAY);
    put_u32(&g->keys, type);
    put_u64(&g->keys, (u64)count);
}

/* A value of JSON under a key of the architecture. */
static void key_json(struct gguf *g, const char *architecture, const char *key, const struct json *value)
{
    char *name = string_format("%s.%s", architecture, key);
    if (json_kind(value) == JSON_INTEGER)
        key_u32(g, name, json_integer(value, 0));
    else if (json_kind(value) == JSON_REAL)
        key_f32(g, name, json_number(value, 0));
    else if (json_kind(value) == JSON_BOOL)
        key_bool(g, name, json_bool(value, false));
    else
        key_string(g, name, json_string(value, ""));
    memory_free(name);
}

static void model_keys(struct gguf *g, const struct model_config *c, enum dtype dtype)
{
    const struct model_family *family = model_family(c);
    key_string(g, "general.architecture", family->gguf);
    key_string(g, "general.name", "weft");
    key_u32(g, "general.file_type", dtype == DTYPE_BF16 ? 32 : 0);
    for (const struct family_key *row = family->gguf_keys; row->holds; row++) {
        struct json *value = family_value(row, c);
        if (value)
            key_json(g, family->gguf, row->key, value);
        json_free(value);
    }
}

static u32 token_type(const struct text_tokenizer *t, i32 id)
{
    return !text_token_content(t, id)     ? TOKEN_UNUSED
           : text_token_is_special(t, id) ? TOKEN_CONTROL
           : text_token_is_added(t, id)   ? TOKEN_USER_DEFINED
                                          : TOKEN_NORMAL;
}

/* Embedding rows beyond the tokenizer's ids are padding, declared as unused tokens. */
static void token_keys(struct gguf *g, const struct text_tokenizer *t, i64 vocabulary)
{
    char unused[32];
    begin_array(g, "tokenizer.ggml.tokens", GGUF_STRING, vocabulary);
    for (i64 id = 0; id < vocabulary; id++) {
        const char *content = text_token_content(t, (i32)id);
        snprintf(unused, sizeof unused, "[PAD%lld]", (long long)id);
        put_string(&g->keys, content ? content : unused);
    }
    begin_array(g, "tokenizer.ggml.token_type", GGUF_I32, vocabulary);
    for (i64 id = 0; id < vocabulary; id++)
        put_u32(&g->keys, token_type(t, (i32)id));
    i64 merges = text_merge(t, -1, NULL, NULL);
    begin_array(g, "tokenizer.ggml.merges", GGUF_STRING, merges);
    for (i64 i = 0; i < merges; i++) {
        i32 left, right;
        text_merge(t, i, &left, &right);
        char *both = string_format("%s %s", text_token_content(t, left), text_token_content(t, right));
        put_string(&g->keys, both);
        memory_free(both);
    }
}

/* The default chat template, and others by name. */
static void template_keys(struct gguf *g, const struct text_tokenizer *t)
{
    const char *name, *text;
    i64 others = 0;
    for (i64 i = 0; (text = text_chat_template(t, i, &name)) != NULL; i++) {
        bool main = strcmp(name, "default") == 0;
        char *key = string_format("tokenizer.chat_template%s%s", main ? "" : ".", main ? "" : name);
        key_string(g, key, text);
        others += !main;
        memory_free(key);
    }
    if (others)
        begin_array(g, "tokenizer.chat_templates", GGUF_STRING, others);
    for (i64 i = 0; others && text_chat_template(t, i, &name); i++)
        if (strcmp(name, "default") != 0)
            put_string(&g->keys, name);
}

static void tokenizer_keys(struct gguf *g, const struct text_tokenizer *t, const struct model_config *c)
{
    const char *family = t ? text_regex_family(t) : NULL;
    i32 begin = -1, end = -1;
    if (!t) {
        key_string(g, "tokenizer.ggml.model", "none");
        return;
    }
    key_string(g, "tokenizer.ggml.model", "gpt2");
    key_string(g, "tokenizer.ggml.pre", strcmp(family, "other") == 0 ? "default" : family);
    token_keys(g, t, c->vocabulary);
    key_u32(g, "tokenizer.ggml.bos_token_id", c->bos_id);
    key_u32(g, "tokenizer.ggml.eos_token_id", c->eos_id);
    text_chat_marks(&begin, &end, t);
    if (end >= 0)
        key_u32(g, "tokenizer.ggml.eot_token_id", end);
    key_u32(g, "tokenizer.ggml.padding_token_id", c->pad_id);
    /* Not even where the post-processor adds one: training puts none before a plain text, and a chat
     * template writes its own. */
    key_bool(g, "tokenizer.ggml.add_bos_token", false);
    template_keys(g, t);
}

static void add_tensor(struct gguf *g, const char *prefix, const char *name, const struct weight *w, i64 first_row,
                       i64 rows, enum dtype dtype)
{
    if (g->tensor_count == g->capacity) {
        i64 next = max_i64(256, 2 * g->capacity), size = (i64)sizeof *g->tensors;
        g->tensors = memory_resize(g->tensors, g->capacity * size, next * size);
        g->capacity = next;
    }
    bool norm = w->spec.disk_rank == 1, bias = !w->spec.trained;
    struct gguf_tensor *t = &g->tensors[g->tensor_count++];
    *t = (struct gguf_tensor){.dims = {w->columns, rows, w->matrices},
                              .rank = w->spec.expert_axis ? 3
                                      : norm || bias      ? 1
                                                          : 2,
                              .dtype = norm || w->spec.type == TYPE_F32 ? DTYPE_F32 : dtype,
                              .weight = w,
                              .first_row = first_row,
                              .rows = rows};
    snprintf(t->name, sizeof t->name, "%s%s", prefix, name);
}

/* The family's weight with a name on disk; NULL: none. */
static const struct family_weight *named_weight(const struct model_family *family, const char *name, i64 layer)
{
    char prefix[96];
    family_layer_name(prefix, sizeof prefix, family->layer, layer);
    for (int role = 0; role < WEIGHT_ROLES; role++) {
        size_t skipped = role < ROLE_NORM1 ? 0 : strlen(prefix);
        const struct family_weight *known = &family->weights[role];
        if (known->disk && strncmp(name, prefix, skipped) == 0 && strcmp(name + skipped, known->disk) == 0)
            return known;
    }
    return NULL;
}

/* The tensors of layers, or those beside them; a tensor for each piece of a weight. */
static void add_tensors(struct gguf *g, const struct model *m, bool of_layers, enum dtype dtype)
{
    const struct model_config *c = &m->config;
    for (i64 i = 0; i < m->weights.count; i++) {
        const struct weight *w = &m->weights.list[i];
        bool in_layer = w->spec.layer >= 0 && w->spec.layer < c->layers;
        char prefix[32] = "";
        if (in_layer)
            snprintf(prefix, sizeof prefix, "blk.%lld.", (long long)w->spec.layer);
        for (i64 p = 0, row = 0; p < 4 && w->spec.pieces[p].name; row += w->spec.pieces[p++].rows) {
            const struct family_weight *known = named_weight(model_family(c), w->spec.pieces[p].name, w->spec.layer);
            if (known && in_layer == of_layers)
                add_tensor(g, prefix, known->gguf, w, row, w->spec.pieces[p].rows, dtype);
        }
    }
}

static i64 tensor_bytes(const struct gguf_tensor *t)
{
    return t->dims[0] * t->dims[1] * t->dims[2] * dtype_bytes(t->dtype);
}

static u32 stored_type(const struct gguf_tensor *t)
{
    return t->dtype == DTYPE_BF16 ? GGML_BF16 : GGML_F32;
}

static void write_header(struct file_writer *out, const struct gguf *g)
{
    struct buffer head = {0};
    buffer_append(&head, "GGUF", 4);
    put_u32(&head, 3);
    put_u64(&head, (u64)g->tensor_count);
    put_u64(&head, (u64)g->key_count);
    buffer_append(&head, g->keys.data, g->keys.length);
    u64 offset = 0;
    for (i64 i = 0; i < g->tensor_count; i++) {
        const struct gguf_tensor *t = &g->tensors[i];
        put_string(&head, t->name);
        put_u32(&head, (u32)t->rank);
        for (int d = 0; d < t->rank; d++)
            put_u64(&head, (u64)t->dims[d]);
        put_u32(&head, stored_type(t));
        put_u64(&head, offset);
        offset += (u64)round_up(tensor_bytes(t), GGUF_ALIGNMENT);
    }
    static const char zeros[GGUF_ALIGNMENT];
    buffer_append(&head, zeros, round_up(head.length, GGUF_ALIGNMENT) - head.length);
    file_write(out, head.data, head.length);
    buffer_release(&head);
}

/* Rows of a matrix that are in memory as f32 at a time. */
static i64 strip_rows(const struct gguf_tensor *t)
{
    enum { STRIP_BYTES = 1 << 20 };
    return max_i64(1, min_i64(t->rows, STRIP_BYTES / (4 * t->weight->columns)));
}

static void write_rows(struct file_writer *out, const struct gguf_tensor *t, const float *rows, i64 n, bf16 *buffer)
{
    if (t->dtype == DTYPE_F32) {
        file_write(out, rows, n * 4);
        return;
    }
    for (i64 i = 0; i < n; i++)
        buffer[i] = bf16_from_f32(rows[i]);
    file_write(out, buffer, n * 2);
}

static void write_tensor(struct file_writer *out, const struct weights *weights, const struct gguf_tensor *t)
{
    static const char zeros[GGUF_ALIGNMENT];
    const struct weight *w = t->weight;
    i64 strip = strip_rows(t);
    bf16 *buffer = memory_alloc(strip * w->columns * 2);
    float *rows = memory_alloc(strip * w->columns * 4);
    for (i64 part = 0; part < w->matrices; part++)
        for (i64 row = 0, n; row < t->rows; row += n) {
            n = min_i64(strip, t->rows - row);
            weight_get(weights, w, part * w->rows + t->first_row + row, n, rows);
            write_rows(out, t, rows, n * w->columns, buffer);
        }
    file_write(out, zeros, round_up(tensor_bytes(t), GGUF_ALIGNMENT) - tensor_bytes(t));
    memory_free(rows);
    memory_free(buffer);
}

/* ---- Verification of the written file ---- */

static bool same_entry(const struct gguf_entry *found, const struct gguf_tensor *t, u64 offset)
{
    return found->name_length == (i64)strlen(t->name) && memcmp(found->name, t->name, strlen(t->name)) == 0 &&
           found->rank == t->rank && memcmp(found->dims, t->dims, (size_t)t->rank * sizeof *t->dims) == 0 &&
           found->type == stored_type(t) && found->offset == offset;
}

static bool same_rows(const u8 *stored, const float *rows, i64 n, enum dtype dtype)
{
    if (dtype == DTYPE_F32)
        return memcmp(stored, rows, (size_t)n * 4) == 0;
    for (i64 i = 0; i < n; i++) {
        bf16 narrow = bf16_from_f32(rows[i]);
        if (memcmp(&narrow, stored + 2 * i, 2) != 0)
            return false;
    }
    return true;
}

static bool same_values(const u8 *stored, const struct weights *weights, const struct gguf_tensor *t)
{
    const struct weight *w = t->weight;
    i64 strip = strip_rows(t), width = w->columns * dtype_bytes(t->dtype);
    float *rows = memory_alloc(strip * w->columns * 4);
    bool same = true;
    for (i64 part = 0; part < w->matrices; part++)
        for (i64 row = 0, n; row < t->rows && same; row += n, stored += n * width) {
            n = min_i64(strip, t->rows - row);
            weight_get(weights, w, part * w->rows + t->first_row + row, n, rows);
            same = same_rows(stored, rows, n * w->columns, t->dtype);
            file_pass(stored, n * width);
        }
    memory_free(rows);
    return same;
}

static int verify(const struct gguf *g, const struct weights *weights, const char *path)
{
    struct gguf_file file;
    if (gguf_open(&file, path))
        return -1;
    bool same = file.tensor_count == g->tensor_count && file.key_count == g->key_count;
    u64 offset = 0;
    for (i64 i = 0; same && i < g->tensor_count; i++) {
        same = same_entry(&file.tensors[i], &g->tensors[i], offset);
        offset += (u64)round_up(tensor_bytes(&g->tensors[i]), GGUF_ALIGNMENT);
    }
    same &= file.data + (i64)offset == file.view.bytes;
    for (i64 i = 0; same && i < g->tensor_count; i++)
        same = same_values(file.view.data + file.data + file.tensors[i].offset, weights, &g->tensors[i]);
    gguf_close(&file);
    return same ? 0 : error_set("%s: what was read back differs from what was written", path);
}

int model_save_gguf(const struct model *m, const struct text_tokenizer *tokenizer, const char *path, enum dtype dtype)
{
    struct gguf g = {0};
    struct file_writer out;
    const struct model_family *family = model_family(&m->config);
    if (!family->gguf)
        return error_set("GGUF has no architecture for models of type %s: export it to hf", family->model_type);
    if (m->config.first_moe_layer == m->config.layers)
        return error_set("GGUF: a model without experts is another architecture; export it to hf");
    if (m->config.norm_min > 1e-3)
        return error_set(
            "GGUF: its readers let the weights of the chosen experts add up to 1, this model's moe_norm_min "
            "%g keeps their probabilities: export it to hf",
            m->config.norm_min);
    model_keys(&g, &m->config, dtype);
    tokenizer_keys(&g, tokenizer, &m->config);
    add_tensors(&g, m, false, dtype);
    add_tensors(&g, m, true, dtype);
    int status = file_writer_open_new(&out, path);
    if (status == 0) {
        write_header(&out, &g);
        for (i64 i = 0; i < g.tensor_count; i++)
            write_tensor(&out, &m->weights, &g.tensors[i]);
        status = file_writer_commit(&out);
        if (status == 0)
            status = verify(&g, &m->weights, path);
    }
    buffer_release(&g.keys);
    memory_free(g.tensors);
    return status;
}
