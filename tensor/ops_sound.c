/* Sounds: spectra and back. */
#include "tensor/inside.h"
#include "tensor/ops.h"

struct polar_record {
    struct tape_record record;
    struct tensor *x, *y;
};

BACKWARD(polar)
{
    SELF(polar_record);
    struct matrix dy = tape_output_gradient(self->y);
    struct gradient dx = dy.data ? tape_gradient(tape, self->x) : (struct gradient){0};
    struct matrix y = tensor_matrix(self->y), x = tensor_matrix(self->x);
    if (!dx.matrix.data)
        return;
    if (dx.matrix.dtype == DTYPE_F32) {
        device->ops->polar_backward(device, dx.matrix, dy, y, x, dx.add);
        return;
    }
    i64 scratch = tape_scratch_begin(tape); /* the gradient of a product has the dtype of its input */
    struct matrix wide = tensor_matrix(tape_tensor(tape, DTYPE_F32, x.rows, x.columns));
    device->ops->polar_backward(device, wide, dy, y, x, false);
    device->ops->copy(device, dx.matrix, wide, 1, dx.add);
    tape_scratch_end(tape, scratch);
}

struct tensor *op_polar(struct tape *tape, struct tensor *x)
{
    struct tensor *y = tape_tensor(tape, DTYPE_F32, x->rows, x->columns);
    tape->device->ops->polar(tape->device, tensor_matrix(y), tensor_matrix(x));
    struct polar_record *r = RECORD(polar_record, polar_backward, y, x);
    KEEP(r, .x = x, .y = y);
    return y;
}

struct stft_record {
    struct tape_record record;
    struct tensor *x, *y;
    i64 n_fft, hop;
};

/* The spectra are computed anew. */
BACKWARD(stft_magnitude)
{
    SELF(stft_record);
    struct matrix dy = tape_output_gradient(self->y), x = tensor_matrix(self->x);
    struct gradient dx = dy.data ? tape_gradient(tape, self->x) : (struct gradient){0};
    if (!dx.matrix.data)
        return;
    i64 scratch = tape_scratch_begin(tape);
    struct matrix spectrum = tensor_matrix(tape_tensor(tape, DTYPE_F32, dy.rows, 2 * dy.columns));
    struct matrix slope = tensor_matrix(tape_tensor(tape, DTYPE_F32, dy.rows, 2 * dy.columns));
    struct matrix to = dx.add ? tensor_matrix(tape_tensor(tape, DTYPE_F32, x.rows, x.columns)) : dx.matrix;
    device->ops->stft(device, spectrum, x, self->n_fft, self->hop, false);
    device->ops->phases_push(device, slope, spectrum, spectrum, dy, 0); /* dy along each spectrum */
    device->ops->stft_backward(device, to, slope, self->n_fft, self->hop);
    if (dx.add)
        device->ops->copy(device, dx.matrix, to, 1, true);
    tape_scratch_end(tape, scratch);
}

struct tensor *op_stft_magnitude(struct tape *tape, struct tensor *x, i64 n_fft, i64 hop)
{
    struct tensor *y = tape_tensor(tape, DTYPE_F32, x->rows * (x->columns / hop + 1), n_fft / 2 + 1);
    tape->device->ops->stft(tape->device, tensor_matrix(y), tensor_matrix(x), n_fft, hop, true);
    struct stft_record *r = RECORD(stft_record, stft_magnitude_backward, y, x);
    KEEP(r, .x = x, .y = y, .n_fft = n_fft, .hop = hop);
    return y;
}

struct log1p_record {
    struct tape_record record;
    struct tensor *x, *y;
    float unit;
};

/* dx = dy / (x + unit) */
BACKWARD(log1p)
{
    SELF(log1p_record);
    struct matrix dy = tape_output_gradient(self->y), x = tensor_matrix(self->x);
    struct gradient dx = dy.data ? tape_gradient(tape, self->x) : (struct gradient){0};
    if (!dx.matrix.data)
        return;
    i64 scratch = tape_scratch_begin(tape);
    struct matrix to = dx.add ? tensor_matrix(tape_tensor(tape, DTYPE_F32, x.rows, x.columns)) : dx.matrix;
    device->ops->fill(device, to.data, x.rows * x.columns, 1);
    device->ops->multiply_ratio(device, to, dy, x, self->unit);
    if (dx.add)
        device->ops->copy(device, dx.matrix, to, 1, true);
    tape_scratch_end(tape, scratch);
}

struct tensor *op_log1p(struct tape *tape, struct tensor *x, float unit)
{
    struct tensor *y = tape_tensor(tape, DTYPE_F32, x->rows, x->columns);
    struct matrix out = tensor_matrix(y);
    tape->device->ops->shift_divide(tape->device, out, tensor_matrix(x), unit, unit);
    tape->device->ops->map(tape->device, out, out, MAP_LOG, 1);
    struct log1p_record *r = RECORD(log1p_record, log1p_backward, y, x);
    KEEP(r, .x = x, .y = y, .unit = unit);
    return y;
}

/* The kernel centres windows and divides by how much of them covers a sample. With R = n_fft / hop empty spectra
 * before, and one after, each sample that is kept is covered by R windows:
 *
 *     spectra   | R of zeros | T of the signal          | 1 of zeros |
 *     samples   | n_fft / 2 dropped | T hop kept        | n_fft / 2 dropped |                              */
struct overlap {
    i64 n_fft, hop, before, rows, samples, bins; /* of one signal; rows and samples include what is dropped */
};

static struct overlap overlap_of(i64 spectra, i64 n_fft, i64 hop)
{
    require(n_fft % hop == 0 && n_fft / hop >= 3, "windows of %lld samples every %lld", (long long)n_fft,
            (long long)hop);
    i64 before = n_fft / hop;
    return (struct overlap){n_fft, hop, before, spectra + before + 1, (spectra + before) * hop, n_fft / 2 + 1};
}

/* The signals' own part of all spectra, or of all samples, one row a signal. */
static struct matrix own_spectra(struct matrix all, const struct overlap *o, i64 signals)
{
    i64 each = o->rows * 2 * o->bins, own = (o->rows - o->before - 1) * 2 * o->bins;
    struct matrix m = matrix_of((float *)all.data + o->before * 2 * o->bins, DTYPE_F32, signals, own);
    m.stride = each;
    return m;
}

static struct matrix own_samples(struct matrix all, const struct overlap *o)
{
    struct matrix m = all;
    m.data = (float *)all.data + o->n_fft / 2;
    m.columns = o->samples - o->n_fft;
    return m;
}

/* d spectrum = c / n_fft times the spectrum of dx / (3/8 R), the sum of R squared Hann windows; c = 2 of bins that
 * stand for two, 1 at both ends, whose imaginary parts are not read. */
static void scale_bins(struct tape *tape, struct matrix spectra, const struct overlap *o)
{
    struct device *device = tape->device;
    float once = 1 / ((float)o->n_fft * 0.375f * (float)o->before);
    float *by = tape_alloc(tape, 2 * o->bins * 4);
    device->ops->fill(device, by, 2 * o->bins, 2 * once);
    for (i64 part = 0; part < 2; part++)
        for (i64 end = 0; end < 2; end++)
            device->ops->fill(device, by + part * o->bins + end * (o->bins - 1), 1, part ? 0 : once);
    device->ops->multiply_rows(device, spectra, by, spectra.rows);
}

BACKWARD(stft_inverse)
{
    SELF(stft_record);
    struct matrix dy = tape_output_gradient(self->y);
    struct gradient dx = dy.data ? tape_gradient(tape, self->x) : (struct gradient){0};
    if (!dx.matrix.data)
        return;
    i64 signals = dy.rows;
    struct overlap o = overlap_of(self->x->rows / signals, self->n_fft, self->hop);
    i64 scratch = tape_scratch_begin(tape);
    struct matrix samples = tensor_matrix(tape_tensor(tape, DTYPE_F32, signals, o.samples));
    struct matrix spectra = tensor_matrix(tape_tensor(tape, DTYPE_F32, signals * o.rows, 2 * o.bins));
    struct matrix to = dx.matrix;
    require(to.stride == to.columns, "a gradient with gaps");
    to.columns = to.stride = to.rows / signals * to.columns;
    to.rows = signals;
    device->ops->zero(device, samples.data, signals * o.samples * 4);
    device->ops->copy(device, own_samples(samples, &o), dy, 1, false);
    device->ops->stft(device, spectra, samples, o.n_fft, o.hop, false);
    scale_bins(tape, spectra, &o);
    device->ops->copy(device, to, own_spectra(spectra, &o, signals), 1, dx.add);
    tape_scratch_end(tape, scratch);
}

struct tensor *op_stft_inverse(struct tape *tape, struct tensor *spectrum, i64 signals, i64 n_fft, i64 hop)
{
    struct device *device = tape->device;
    i64 each = spectrum->rows / signals;
    struct overlap o = overlap_of(each, n_fft, hop);
    struct tensor *y = tape_tensor(tape, DTYPE_F32, signals, each * hop);
    i64 scratch = tape_scratch_begin(tape);
    struct matrix samples = tensor_matrix(tape_tensor(tape, DTYPE_F32, signals, o.samples));
    struct matrix spectra = tensor_matrix(tape_tensor(tape, DTYPE_F32, signals * o.rows, 2 * o.bins));
    struct matrix from = matrix_of(spectrum->data, DTYPE_F32, signals, each * 2 * o.bins);
    device->ops->zero(device, spectra.data, spectra.rows * spectra.columns * 4);
    device->ops->copy(device, own_spectra(spectra, &o, signals), from, 1, false);
    device->ops->stft_inverse(device, samples, spectra, n_fft, hop);
    device->ops->copy(device, tensor_matrix(y), own_samples(samples, &o), 1, false);
    tape_scratch_end(tape, scratch);
    struct stft_record *r = RECORD(stft_record, stft_inverse_backward, y, spectrum);
    KEEP(r, .x = spectrum, .y = y, .n_fft = n_fft, .hop = hop);
    return y;
}
