/* GGUF v3 export of the text backbone for llama.cpp, architecture ernie4_5-moe: dimensions
 * reversed, exactly the tensors that its loader names, u32 for the keys it reads as u32. */
#include "model/model.h"
#include "tokenizers/text/text.h"

#include <stdio.h>
#include <string.h>

enum { GGUF_U32 = 4, GGUF_I32 = 5, GGUF_F32 = 6, GGUF_BOOL = 7, GGUF_STRING = 8, GGUF_ARRAY = 9 };
enum { GGML_F32 = 0, GGML_BF16 = 30, ALIGNMENT = 32 };
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

#define KEY(name) "ernie4_5-moe." name

static void model_keys(struct gguf *g, const struct model_config *c, enum dtype dtype)
{
    key_string(g, "general.architecture", "ernie4_5-moe");
    key_string(g, "general.name", "weft");
    key_u32(g, "general.file_type", dtype == DTYPE_BF16 ? 32 : 0);
    key_u32(g, KEY("context_length"), c->max_positions);
    key_u32(g, KEY("embedding_length"), c->width);
    key_u32(g, KEY("block_count"), c->layers);
    key_u32(g, KEY("feed_forward_length"), max_i64(c->dense_width, 1));
    key_u32(g, KEY("attention.head_count"), c->heads);
    key_u32(g, KEY("attention.head_count_kv"), c->kv_heads);
    key_u32(g, KEY("attention.key_length"), c->head_width);
    key_u32(g, KEY("attention.value_length"), c->head_width);
    key_f32(g, KEY("attention.layer_norm_rms_epsilon"), c->norm_eps);
    key_f32(g, KEY("rope.freq_base"), c->rope_theta);
    key_u32(g, KEY("expert_count"), c->experts);
    key_u32(g, KEY("expert_used_count"), c->topk);
    key_u32(g, KEY("expert_feed_forward_length"), c->expert_width);
    key_u32(g, KEY("interleave_moe_layer_step"), 1);
    key_u32(g, KEY("leading_dense_block_count"), c->first_moe_layer);
    key_u32(g, KEY("vocab_size"), c->vocabulary);
    if (c->shared_experts) {
        key_u32(g, KEY("expert_shared_count"), c->shared_experts);
        key_u32(g, KEY("expert_shared_feed_forward_length"), c->shared_experts * c->expert_width);
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

static void tensor(struct gguf *g, const char *name, const struct weight *w, i64 first_row, i64 rows, enum dtype dtype)
{
    if (g->tensor_count == g->capacity) {
        i64 next = max_i64(256, 2 * g->capacity), size = (i64)sizeof *g->tensors;
        g->tensors = memory_resize(g->tensors, g->capacity * size, next * size);
        g->capacity = next;
    }
    struct gguf_tensor *t = &g->tensors[g->tensor_count++];
    *t = (struct gguf_tensor){.dtype = dtype, .weight = w, .first_row = first_row, .rows = rows};
    snprintf(t->name, sizeof t->name, "%s", name);
    t->dims[0] = w->columns;
    t->dims[1] = rows;
    t->dims[2] = w->matrices;
    t->rank = w->matrices > 1 ? 3 : rows == 1 && w->spec.disk_rank == 1 ? 1 : 2;
}

static void layer_tensor(struct gguf *g, i64 layer, const char *name, const struct weight *w, i64 first, i64 rows,
                         enum dtype dtype)
{
    char full[64];
    snprintf(full, sizeof full, "blk.%lld.%s", (long long)layer, name);
    tensor(g, full, w, first, rows, dtype);
}

static void layer_tensors(struct gguf *g, const struct model *m, i64 i, enum dtype dtype)
{
    const struct model_config *c = &m->config;
    const struct layer_weights *l = &m->layer[i];
    i64 q = c->heads * c->head_width, kv = c->kv_heads * c->head_width, f = c->expert_width, s = c->shared_experts * f;
    layer_tensor(g, i, "attn_norm.weight", l->norm1, 0, 1, DTYPE_F32);
    layer_tensor(g, i, "attn_q.weight", l->qkv, 0, q, dtype);
    layer_tensor(g, i, "attn_k.weight", l->qkv, q, kv, dtype);
    layer_tensor(g, i, "attn_v.weight", l->qkv, q + kv, kv, dtype);
    layer_tensor(g, i, "attn_output.weight", l->out, 0, c->width, dtype);
    layer_tensor(g, i, "ffn_norm.weight", l->norm2, 0, 1, DTYPE_F32);
    if (!l->router) {
        layer_tensor(g, i, "ffn_gate.weight", l->gate_up, 0, c->dense_width, dtype);
        layer_tensor(g, i, "ffn_up.weight", l->gate_up, c->dense_width, c->dense_width, dtype);
        layer_tensor(g, i, "ffn_down.weight", l->down, 0, c->width, dtype);
        return;
    }
    layer_tensor(g, i, "ffn_gate_inp.weight", l->router, 0, c->experts, DTYPE_F32);
    layer_tensor(g, i, "exp_probs_b.bias", l->bias, 0, 1, DTYPE_F32);
    g->tensors[g->tensor_count - 1].rank = 1;
    layer_tensor(g, i, "ffn_gate_exps.weight", l->experts_gate_up, 0, f, dtype);
    layer_tensor(g, i, "ffn_up_exps.weight", l->experts_gate_up, f, f, dtype);
    layer_tensor(g, i, "ffn_down_exps.weight", l->experts_down, 0, c->width, dtype);
    for (i64 t = 1; t <= 3; t++)
        g->tensors[g->tensor_count - t].rank = 3; /* also for a single expert */
    if (!l->shared_gate_up)
        return;
    layer_tensor(g, i, "ffn_gate_shexp.weight", l->shared_gate_up, 0, s, dtype);
    layer_tensor(g, i, "ffn_up_shexp.weight", l->shared_gate_up, s, s, dtype);
    layer_tensor(g, i, "ffn_down_shexp.weight", l->shared_down, 0, c->width, dtype);
}

static i64 tensor_bytes(const struct gguf_tensor *t)
{
    return t->dims[0] * t->dims[1] * t->dims[2] * dtype_bytes(t->dtype);
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
        put_u32(&head, t->dtype == DTYPE_BF16 ? GGML_BF16 : GGML_F32);
        put_u64(&head, offset);
        offset += (u64)round_up(tensor_bytes(t), ALIGNMENT);
    }
    static const char zeros[ALIGNMENT];
    buffer_append(&head, zeros, round_up(head.length, ALIGNMENT) - head.length);
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
    static const char zeros[ALIGNMENT];
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
    file_write(out, zeros, round_up(tensor_bytes(t), ALIGNMENT) - tensor_bytes(t));
    memory_free(rows);
    memory_free(buffer);
}

/* ---- Verification of the written file ---- */

struct gguf_cursor {
    const u8 *data;
    i64 at, bytes;
    bool broken;
};

static u64 take(struct gguf_cursor *c, int width)
{
    u64 value = 0;
    if (c->broken || c->at + width > c->bytes) {
        c->broken = true;
        return 0;
    }
    memcpy(&value, c->data + c->at, (size_t)width);
    c->at += width;
    return value;
}

static void skip(struct gguf_cursor *c, u64 bytes)
{
    if (c->broken || bytes > (u64)(c->bytes - c->at))
        c->broken = true;
    else
        c->at += (i64)bytes;
}

static void skip_value(struct gguf_cursor *c, u32 type)
{
    static const u8 widths[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    if (type == GGUF_STRING) {
        skip(c, take(c, 8));
    } else if (type == GGUF_ARRAY) {
        u32 inner = (u32)take(c, 4);
        u64 n = take(c, 8);
        for (u64 i = 0; i < n && !c->broken; i++)
            skip_value(c, inner);
    } else if (type < sizeof widths) {
        skip(c, widths[type]);
    } else {
        c->broken = true;
    }
}

static bool same_entry(struct gguf_cursor *c, const struct gguf_tensor *t, u64 offset)
{
    u64 length = take(c, 8);
    bool same = length == strlen(t->name) && c->at + (i64)length <= c->bytes &&
                memcmp(c->data + c->at, t->name, (size_t)length) == 0;
    skip(c, length);
    same &= take(c, 4) == (u64)t->rank;
    for (int d = 0; d < t->rank; d++)
        same &= take(c, 8) == (u64)t->dims[d];
    same &= take(c, 4) == (t->dtype == DTYPE_BF16 ? GGML_BF16 : GGML_F32);
    return same && take(c, 8) == offset && !c->broken;
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
    struct file_view view;
    if (file_map(&view, path))
        return -1;
    struct gguf_cursor c = {view.data, 8, view.bytes, false};
    bool same = take(&c, 8) == (u64)g->tensor_count && take(&c, 8) == (u64)g->key_count;
    for (i64 i = 0; i < g->key_count; i++) {
        skip(&c, take(&c, 8));
        skip_value(&c, (u32)take(&c, 4));
    }
    u64 offset = 0;
    for (i64 i = 0; i < g->tensor_count; i++) {
        same &= same_entry(&c, &g->tensors[i], offset);
        offset += (u64)round_up(tensor_bytes(&g->tensors[i]), ALIGNMENT);
    }
    i64 base = round_up(c.at, ALIGNMENT);
    same &= base + (i64)offset == view.bytes;
    for (i64 i = 0; same && i < g->tensor_count; i++) {
        same = same_values(view.data + base, weights, &g->tensors[i]);
        base += round_up(tensor_bytes(&g->tensors[i]), ALIGNMENT);
    }
    file_unmap(&view);
    return same && !c.broken ? 0 : error_set("%s: what was read back differs from what was written", path);
}

int model_save_gguf(const struct model *m, const struct text_tokenizer *tokenizer, const char *path, enum dtype dtype)
{
    struct gguf g = {0};
    struct file_writer out;
    if (m->config.first_moe_layer == m->config.layers)
        return error_set("GGUF: a model without experts is another architecture; export it to hf");
    if (m->config.norm_min > 1e-3)
        return error_set(
            "GGUF: its readers let the weights of the chosen experts add up to 1, this model's moe_norm_min "
            "%g keeps their probabilities: export it to hf",
            m->config.norm_min);
    model_keys(&g, &m->config, dtype);
    tokenizer_keys(&g, tokenizer, &m->config);
    tensor(&g, "token_embd.weight", m->embed, 0, m->config.vocabulary, dtype);
    tensor(&g, "output_norm.weight", m->norm, 0, 1, DTYPE_F32);
    if (!m->config.tied)
        tensor(&g, "output.weight", m->head, 0, m->config.vocabulary, dtype);
    for (i64 i = 0; i < m->config.layers; i++)
        layer_tensors(&g, m, i, dtype);
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
