#include "kernels/cuda/cuda.h"
#include "kernels/resample.h"

/* Both kinds are separable. For each axis a table lists the neighbouring sources that a destination
 * reads, and their weights. The backward uses transposed tables, so that one thread owns each sum.
 * A small kernel fills the tables in the workspace. */
struct cuda_resize_taps {
    i64 count, most; /* destinations; maximum sources of one */
    i32 *first, *taps;
    float *weight; /* [count, most] */
};
enum { TABLE_ALIGNMENT = 64 };

__device__ static void fill_tap(struct cuda_resize_taps taps, i64 i, i64 n_in, i64 n_out, bool area, bool backward)
{
    i64 begin, end;
    if (area) {
        begin = backward ? area_begin(i, n_out, n_in) : area_begin(i, n_in, n_out);
        end = backward ? area_end(i, n_out, n_in) : area_end(i, n_in, n_out);
    } else if (backward) {
        begin = bilinear_reader_begin(i, n_in, n_out);
        end = bilinear_reader_end(i, n_in, n_out);
    } else {
        struct bilinear_source b = bilinear_source_of(i, n_in, n_out);
        begin = b.low;
        end = b.high + 1;
    }
    taps.first[i] = (i32)begin;
    taps.taps[i] = (i32)(end - begin);
    for (i64 source = begin; source < end; source++) {
        i64 in = backward ? i : source, out = backward ? source : i;
        taps.weight[i * taps.most + source - begin] =
            area ? area_weight(in, out, n_in, n_out) : bilinear_weight(in, out, n_in, n_out);
    }
}

static __global__ void fill_taps(struct cuda_resize_taps taps, i64 n_in, i64 n_out, bool area, bool backward)
{
    grid_wait();
    GRID_STRIDE(i, taps.count) fill_tap(taps, i, n_in, n_out, area, backward);
}

/* A block handles one row of destination pixels of one image, a thread one channel of a pixel; it
 * sums over y, then over x. */
template <typename T>
static __global__ void resize_rows(struct matrix to, struct matrix from, struct cuda_resize_taps y,
                                   struct cuda_resize_taps x, i64 from_h, i64 from_w, i64 rows, bool add)
{
    grid_wait();
    unsigned channels = (unsigned)to.columns, line = (unsigned)x.count * channels;
    for (i64 row = blockIdx.x; row < rows; row += gridDim.x) {
        i64 image = row / y.count, at_y = row % y.count;
        i64 above = (image * from_h + y.first[at_y]) * from_w;
        const float *down = y.weight + at_y * y.most;
        for (unsigned i = threadIdx.x; i < line; i += blockDim.x) {
            unsigned at_x = i / channels, c = i % channels;
            const T *source = row_of<T>(from, above + x.first[at_x]) + c;
            float sum = 0;
            for (int tap = 0; tap < x.taps[at_x]; tap++, source += from.stride) {
                float column = 0;
                for (int t = 0; t < y.taps[at_y]; t++)
                    column = fmaf(down[t], to_f32(source[t * from_w * from.stride]), column);
                sum = fmaf(x.weight[at_x * x.most + tap], column, sum);
            }
            T *out = row_of<T>(to, row * x.count + at_x) + c;
            *out = from_f32<T>(add ? to_f32(*out) + sum : sum);
        }
    }
}

/* Maximum sources of a destination. The bilinear backward of an input reads the outputs within one
 * input of it, on both sides. */
static i64 taps_most(i64 n_in, i64 n_out, enum resize kind, bool backward)
{
    i64 to = backward ? n_in : n_out, from = backward ? n_out : n_in;
    if (kind == RESIZE_AREA)
        return ceil_div(from, to) + 1;
    return backward ? ceil_div(2 * from, to) + 2 : 2;
}

static i64 table_bytes(i64 count, i64 most)
{
    return round_up(count * (2 + most) * 4, TABLE_ALIGNMENT);
}

static struct cuda_resize_taps make_taps(struct device *device, char *memory, i64 n_in, i64 n_out, enum resize kind,
                                         bool backward)
{
    i64 count = backward ? n_in : n_out;
    struct cuda_resize_taps taps = {count, taps_most(n_in, n_out, kind, backward), (i32 *)memory, (i32 *)memory + count,
                                    (float *)memory + 2 * count};
    LAUNCH(device, fill_taps, blocks_for(count), BLOCK_THREADS, 0, taps, n_in, n_out, kind == RESIZE_AREA, backward);
    return taps;
}

static void run(struct device *device, struct matrix to, struct matrix from, i64 n, const i64 in[2], const i64 out[2],
                enum resize kind, bool backward)
{
    const i64 *to_size = backward ? in : out, *from_size = backward ? out : in;
    if (to.rows == 0 || to.columns == 0)
        return;
    i64 line = to_size[1] * to.columns, rows = n * to_size[0];
    require(from.rows > 0 && line < (i64)1 << 31, "resize: rows of %lld pixels", (long long)to_size[1]);
    i64 y_bytes = table_bytes(to_size[0], taps_most(in[0], out[0], kind, backward));
    i64 x_bytes = table_bytes(to_size[1], taps_most(in[1], out[1], kind, backward));
    char *memory = (char *)cuda_workspace_of(device, "resize", y_bytes + x_bytes);
    struct cuda_resize_taps y = make_taps(device, memory, in[0], out[0], kind, backward);
    struct cuda_resize_taps x = make_taps(device, memory + y_bytes, in[1], out[1], kind, backward);
    LAUNCH_BY_DTYPE(device, to.dtype, resize_rows, (unsigned)min_i64(rows, 1 << 20), threads_for(line), 0, to, from, y,
                    x, from_size[0], from_size[1], rows, backward);
}

extern "C" void cuda_resize(struct device *device, struct matrix out, struct matrix x, i64 n, i64 h_in, i64 w_in,
                            i64 h_out, i64 w_out, enum resize kind)
{
    const i64 in_size[2] = {h_in, w_in}, out_size[2] = {h_out, w_out};
    run(device, out, x, n, in_size, out_size, kind, false);
}

extern "C" void cuda_resize_backward(struct device *device, struct matrix dx, struct matrix dout, i64 n, i64 h_in,
                                     i64 w_in, i64 h_out, i64 w_out, enum resize kind)
{
    const i64 in_size[2] = {h_in, w_in}, out_size[2] = {h_out, w_out};
    run(device, dx, dout, n, in_size, out_size, kind, true);
}
