#include "tensor/inside.h"

#include <string.h>

#define HOST_BYTES ((i64)16 << 30) /* reserved address space */

void tape_open(struct tape *tape, struct device *device, enum dtype activations, i64 reserved_bytes)
{
    memset(tape, 0, sizeof *tape);
    tape->device = device;
    tape->activations = activations;
    device_arena_open(device, &tape->arena, reserved_bytes);
    device_arena_open(device, &tape->kept, reserved_bytes / 8 + 4096);
    arena_open(&tape->host, HOST_BYTES);
    arena_open(&tape->staged, HOST_BYTES);
    tape->recording = true;
    tape->passed = NOTHING_PASSED;
}

void tape_close(struct tape *tape)
{
    segments_close(tape);
    memory_free(tape->block_weights);
    device_arena_close(tape->device, &tape->arena);
    device_arena_close(tape->device, &tape->kept);
    arena_close(&tape->host);
    arena_close(&tape->staged);
}

void tape_clear(struct tape *tape, bool recording)
{
    arena_reset(&tape->arena, 0);
    arena_reset(&tape->kept, 0);
    arena_reset(&tape->host, 0);
    arena_reset(&tape->staged, 0);
    tape->staged_to = NULL;
    memset(tape->free, 0, sizeof tape->free);
    tape->last = NULL;
    tape->recording = recording;
    tape->kept_count = tape->kept_next = 0;
    tape->keeping = tape->replaying = false;
    tape->block_weight_count = 0;
    tape->passed = NOTHING_PASSED;
    segments_clear(tape);
}

i64 tape_peak_bytes(const struct tape *tape)
{
    return tape->arena.peak_bytes + tape->kept.peak_bytes + segments_peak_bytes(tape);
}

i64 arena_rounding_bytes(const struct device *device, const struct arena *arena)
{
    return round_up(arena->peak_bytes, device->memory->grow ? GROW_BYTES : HUGE_BYTES) - arena->peak_bytes;
}

i64 tape_rounding_bytes(const struct tape *tape)
{
    return arena_rounding_bytes(tape->device, &tape->arena) + arena_rounding_bytes(tape->device, &tape->kept) +
           segments_rounding_bytes(tape);
}

static void *host_alloc(struct tape *tape, i64 bytes)
{
    return memset(arena_alloc(&tape->host, bytes), 0, (size_t)bytes);
}

static struct tensor *tensor_at(struct tape *tape, void *data, enum dtype dtype, i64 rows, i64 columns)
{
    struct tensor *t = host_alloc(tape, sizeof *t);
    *t = (struct tensor){.data = data, .dtype = dtype, .grad_dtype = dtype, .rows = rows, .columns = columns};
    return t;
}

struct tensor *tape_tensor(struct tape *tape, enum dtype dtype, i64 rows, i64 columns)
{
    return tensor_at(tape, tape_alloc(tape, rows * columns * dtype_bytes(dtype)), dtype, rows, columns);
}

struct tensor *tape_tensor_over(struct tape *tape, const struct tensor *x)
{
    return tensor_at(tape, x->data, x->dtype, x->rows, x->columns);
}

void *tape_alloc(struct tape *tape, i64 bytes)
{
    return arena_alloc(&tape->arena, bytes);
}

i64 tape_scratch_begin(struct tape *tape)
{
    return arena_mark(&tape->arena);
}

void tape_scratch_end(struct tape *tape, i64 begun)
{
    arena_reset(&tape->arena, begun);
}

/* Both arenas align alike, so staged blocks have the same distances on host and device. */
void *tape_stage(struct tape *tape, void **host, i64 bytes)
{
    char *to = tape_alloc(tape, bytes), *from = arena_alloc(&tape->staged, bytes);
    if (!tape->staged_to) {
        tape->staged_to = to;
        tape->staged_from = from - tape->staged.base;
    }
    require(to - tape->staged_to == from - tape->staged.base - tape->staged_from,
            "device memory was taken between two staged blocks");
    *host = from;
    return to;
}

void *tape_stage_copy(struct tape *tape, const void *values, i64 bytes)
{
    void *host, *to = tape_stage(tape, &host, bytes);
    if (bytes > 0)
        memcpy(host, values, (size_t)bytes);
    return to;
}

void tape_put(struct tape *tape)
{
    if (tape->staged_to)
        device_put(tape->device, tape->staged_to, tape->staged.base + tape->staged_from,
                   tape->staged.used_bytes - tape->staged_from);
    tape->staged_to = NULL;
}

/* ---- Uses of weights ---- */

static bool is_trained_weight(const struct tensor *t)
{
    return t && t->needs_grad && t->matrices_written;
}

static void list_block_weight(struct tape *tape, struct tensor *w)
{
    i64 size = sizeof w, room = tape->block_weight_capacity;
    if (tape->block_weight_count == room) {
        i64 more = max_i64(64, 2 * room);
        tape->block_weights = memory_resize(tape->block_weights, room * size, more * size);
        tape->block_weight_capacity = more;
    }
    tape->block_weights[tape->block_weight_count++] = w;
}

/* Counts the uses in a recomputed block when it first runs, not when it is replayed. */
static void count_uses(struct tape *tape, struct tensor *const *inputs, int input_count)
{
    for (int i = 0; i < input_count; i++) {
        if (!is_trained_weight(inputs[i]) || tape->replaying)
            continue;
        inputs[i]->uses++;
        if (tape->keeping)
            list_block_weight(tape, inputs[i]);
    }
}

static void note_weights(struct tape_record *record, struct tensor *const *inputs, int input_count)
{
    for (int i = 0; i < input_count; i++) {
        if (!is_trained_weight(inputs[i]))
            continue;
        require(record->weight_count < COUNT_OF(record->weights), "an op of more than %d weights",
                (int)COUNT_OF(record->weights));
        record->weights[record->weight_count++] = inputs[i];
    }
}

static void end_uses(struct tensor *const *weights, i64 count)
{
    for (i64 i = 0; i < count; i++)
        weights[i]->uses--;
}

void *tape_record(struct tape *tape, i64 record_bytes,
                  void (*backward)(struct tape_record *, struct device *, struct tape *), struct tensor *const *inputs,
                  int input_count, struct tensor *const *outputs, int output_count)
{
    bool needed = false;
    for (int i = 0; i < input_count; i++)
        needed |= inputs[i] && inputs[i]->needs_grad;
    if (tape->recording || tape->keeping)
        count_uses(tape, inputs, input_count);
    if (!tape->recording || !needed)
        return NULL;
    struct tape_record *record = tape_push(tape, record_bytes, backward);
    require(output_count <= COUNT_OF(record->outputs), "an op of %d outputs", output_count);
    for (int i = 0; i < output_count; i++) {
        outputs[i]->needs_grad = true;
        record->outputs[i] = outputs[i];
    }
    record->output_count = output_count;
    note_weights(record, inputs, input_count);
    return record;
}

void *tape_push(struct tape *tape, i64 record_bytes,
                void (*backward)(struct tape_record *, struct device *, struct tape *))
{
    struct tape_record *record = host_alloc(tape, record_bytes);
    record->backward = backward;
    record->previous = tape->last;
    return tape->last = record;
}

/* NULL for a tensor without rows, or if all FREE_CLASSES sizes are taken. */
static struct free_class *free_class_of(struct tape *tape, i64 bytes)
{
    for (int i = 0; i < FREE_CLASSES && bytes; i++) {
        if (tape->free[i].bytes == bytes)
            return &tape->free[i];
        if (tape->free[i].bytes == 0) {
            tape->free[i].bytes = bytes;
            return &tape->free[i];
        }
    }
    return NULL;
}

static i64 gradient_bytes(const struct tensor *t)
{
    return t->rows * t->columns * dtype_bytes(t->grad_dtype);
}

void tape_ensure_gradient(struct tape *tape, struct tensor *t)
{
    if (t->grad)
        return;
    struct free_class *class = free_class_of(tape, gradient_bytes(t));
    if (class && class->first) {
        t->grad = class->first->data;
        class->first = class->first->next;
    } else {
        t->grad = tape_alloc(tape, gradient_bytes(t));
    }
}

/* Drops this tensor's share of its gradient. False if no other tensor holds it. */
static bool leave_gradient(struct tensor *t)
{
    bool left = t->grad_holders && *t->grad_holders > 1;
    if (left)
        --*t->grad_holders;
    t->grad_holders = NULL;
    return left;
}

static void release_gradient(struct tape *tape, struct tensor *t)
{
    void *memory = leave_gradient(t) ? NULL : t->grad;
    struct free_class *class = memory ? free_class_of(tape, gradient_bytes(t)) : NULL;
    if (class) {
        struct free_block *block = host_alloc(tape, sizeof *block);
        *block = (struct free_block){class->first, memory};
        class->first = block;
    }
    t->grad = NULL;
    t->grad_written = false;
}

static struct matrix gradient_matrix(const struct tensor *t)
{
    return matrix_of(t->grad, t->grad_dtype, t->rows, t->columns);
}

/* Copies a shared gradient before accumulating into it. */
static void own_gradient(struct tape *tape, struct tensor *t)
{
    struct matrix shared = gradient_matrix(t);
    if (leave_gradient(t)) {
        t->grad = NULL;
        tape_ensure_gradient(tape, t);
        tape->device->ops->copy(tape->device, gradient_matrix(t), shared, 1, false);
    }
}

struct gradient tape_gradient(struct tape *tape, struct tensor *input)
{
    struct gradient gradient = {0};
    if (!input || !input->needs_grad)
        return gradient;
    own_gradient(tape, input);
    tape_ensure_gradient(tape, input);
    gradient.matrix = gradient_matrix(input);
    gradient.add = input->grad_written;
    input->grad_written = true;
    return gradient;
}

struct matrix tape_output_gradient(const struct tensor *output)
{
    void *grad = output->grad_written ? output->grad : NULL;
    return matrix_of(grad, output->grad_dtype, output->rows, output->columns);
}

void tape_take_gradient(struct tensor *x, struct tensor *y)
{
    x->grad = y->grad;
    x->grad_holders = y->grad_holders;
    x->grad_written = y->grad_written;
    y->grad = NULL;
    y->grad_holders = NULL;
}

static void share_gradient(struct tape *tape, struct tensor *t, struct tensor *sum)
{
    if (!sum->grad_holders) {
        sum->grad_holders = host_alloc(tape, sizeof *sum->grad_holders);
        *sum->grad_holders = 1;
    }
    ++*sum->grad_holders;
    t->grad = sum->grad;
    t->grad_holders = sum->grad_holders;
    t->grad_written = true;
}

void tape_pass_gradient(struct tape *tape, struct tensor *sum, struct tensor *a, struct tensor *b)
{
    struct matrix from = tape_output_gradient(sum);
    struct tensor *inputs[2] = {a, b};
    for (int i = 0; from.data && i < 2; i++) {
        struct tensor *t = inputs[i];
        if (!t || !t->needs_grad)
            continue;
        if (!t->grad && t->grad_dtype == sum->grad_dtype) {
            share_gradient(tape, t, sum);
            continue;
        }
        struct gradient d = tape_gradient(tape, t);
        tape->device->ops->copy(tape->device, d.matrix, from, 1, d.add);
    }
}

bool tape_keep(struct tape *tape, void **data, i64 bytes)
{
    if (tape->replaying) {
        require(tape->kept_next < tape->kept_count, "a recomputed block keeps more than it did");
        struct kept_block *block = &tape->kept_blocks[tape->kept_next++];
        require(block->bytes == bytes, "a recomputed block keeps %lld bytes, not %lld", (long long)bytes,
                (long long)block->bytes);
        *data = block->data;
        return false;
    }
    if (!tape->keeping) {
        *data = tape_alloc(tape, bytes);
        return true;
    }
    require(tape->kept_count < KEPT_MOST, "more than %d kept blocks", KEPT_MOST);
    *data = arena_alloc(&tape->kept, bytes);
    tape->kept_blocks[tape->kept_count++] = (struct kept_block){*data, bytes};
    return true;
}

struct tensor *tape_keep_tensor(struct tape *tape, const struct tensor *x)
{
    void *data = arena_alloc(&tape->kept, x->rows * x->columns * dtype_bytes(x->dtype));
    struct tensor *kept = tensor_at(tape, data, x->dtype, x->rows, x->columns);
    tape->device->ops->copy(tape->device, tensor_matrix(kept), tensor_matrix(x), 1, false);
    return kept;
}

static void run_records(struct tape *tape)
{
    while (tape->last) {
        struct tape_record *record = tape->last;
        tape->last = record->previous;
        record->backward(record, tape->device, tape);
        for (int i = 0; i < record->output_count; i++)
            release_gradient(tape, record->outputs[i]);
        end_uses(record->weights, record->weight_count);
        if (tape->after && !segments_deferring(tape))
            tape->after(tape->after_context, tape);
    }
}

struct mark_record {
    struct tape_record record;
    i64 place;
};

static void mark_backward(struct tape_record *record, struct device *device, struct tape *tape)
{
    (void)device;
    tape->passed = ((struct mark_record *)record)->place;
}

void tape_mark(struct tape *tape, i64 place)
{
    if (tape->recording)
        ((struct mark_record *)tape_push(tape, sizeof(struct mark_record), mark_backward))->place = place;
}

void tape_backward(struct tape *tape)
{
    require(tape->recording, "tape_backward on a tape that does not record");
    run_records(tape);
}

struct recompute_record {
    struct tape_record record;
    tape_block *block;
    void *context;
    struct tensor *input, *output;
    i64 kept_first, weights_first, weights_end; /* ranges in kept_blocks and block_weights */
};

/* Runs the block again, recording it, then runs its records. Frees everything the block
 * allocated. */
static void recompute_backward(struct tape_record *record, struct device *device, struct tape *tape)
{
    struct recompute_record *r = (struct recompute_record *)record;
    (void)device;
    if (!r->output->grad_written) {
        end_uses(tape->block_weights + r->weights_first, r->weights_end - r->weights_first);
        return;
    }
    own_gradient(tape, r->input); /* what the block allocates, a copy of it too, is freed behind the block */
    tape_ensure_gradient(tape, r->input);
    struct tape_record *outer = tape->last;
    struct free_class free_classes[FREE_CLASSES];
    i64 mark = arena_mark(&tape->arena), host_mark = arena_mark(&tape->host);
    memcpy(free_classes, tape->free, sizeof free_classes);
    memset(tape->free, 0, sizeof tape->free);
    tape->last = NULL;
    tape->replaying = true;
    tape->kept_next = r->kept_first;
    struct tensor *again = r->block(tape, r->context, r->input);
    tape->replaying = false;
    void *alone = r->output->grad_holders && *r->output->grad_holders > 1 ? NULL : r->output->grad;
    tape_take_gradient(again, r->output);
    run_records(tape);
    memcpy(tape->free, free_classes, sizeof free_classes);
    r->output->grad = alone; /* the block put it on its own free list, which is gone */
    tape->last = outer;
    arena_reset(&tape->arena, mark);
    arena_reset(&tape->host, host_mark);
}

struct tensor *tape_recompute(struct tape *tape, tape_block *block, void *context, struct tensor *input)
{
    if (!tape->recording)
        return block(tape, context, input);
    require(!tape->keeping && !tape->replaying, "recomputed blocks do not nest");
    struct tensor *output = tape_tensor(tape, input->dtype, input->rows, input->columns);
    i64 mark = arena_mark(&tape->arena), host_mark = arena_mark(&tape->host), kept_first = tape->kept_count;
    i64 weights_first = tape->block_weight_count;
    tape->recording = false;
    tape->keeping = true;
    struct tensor *inside = block(tape, context, input);
    require(inside->rows == output->rows && inside->columns == output->columns && inside->dtype == output->dtype,
            "a recomputed block must keep the shape of its input");
    tape->device->ops->copy(tape->device, tensor_matrix(output), tensor_matrix(inside), 1, false);
    tape->recording = true;
    tape->keeping = false;
    arena_reset(&tape->arena, mark);
    arena_reset(&tape->host, host_mark);
    output->needs_grad = true; /* weights inside may need one even if the input does not */
    input->needs_grad = true;
    struct recompute_record *r = tape_record(tape, sizeof *r, recompute_backward, &input, 1, &output, 1);
    r->block = block;
    r->context = context;
    r->input = input;
    r->output = output;
    r->kept_first = kept_first;
    r->weights_first = weights_first;
    r->weights_end = tape->block_weight_count;
    return output;
}
