#include "tests/amx/tiles.h"
#include "kernels/isa.h"

#include <immintrin.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TILES = 8, ROWS = 16, ROW_BYTES = 64, CONFIG_BYTES = 64 };

struct amx_register {
    _Alignas(64) u8 row[ROWS][ROW_BYTES]; /* zeros outside the configured size */
    int rows, bytes;
};
static __thread struct {
    struct amx_register tile[TILES];
    bool configured;
} state;

/* A program that links this emulation runs AMX kernels, or skips without AVX-512. */
__attribute__((constructor)) static void ask_for_avx512(void)
{
    enum { SKIPPED = 77 };
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vnni") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        return;
    fprintf(stderr, "skipped: kernels on tiles need a CPU with AVX-512, its bf16 and VNNI\n");
    exit(SKIPPED);
}

#undef cpu_v4_scratch
void *cpu_v4_scratch(int worker, int slot, i64 bytes);

void *tiles_scratch(int worker, int slot, i64 bytes)
{
    void *scratch = cpu_v4_scratch(worker, slot, bytes);
    if (bytes > 0)
        memset(scratch, 0xff, (size_t)bytes);
    return scratch;
}

bool cpu_has_tiles(void)
{
    return true;
}

bool cpu_has_tiles_of_bytes(void)
{
    return true;
}

/* ---- Configuration ---- */

void tiles_configure(const void *config)
{
    const u8 *bytes = config;
    require(!state.configured, "tiles are configured before they were released");
    require(bytes[0] == 1 && bytes[1] == 0, "a configuration of palette %d, start row %d", bytes[0], bytes[1]);
    for (int i = 2; i < CONFIG_BYTES; i++)
        require((i >= 16 && i < 16 + 2 * TILES) || (i >= 48 && i < 48 + TILES) || bytes[i] == 0,
                "byte %d of a configuration is reserved", i);
    memset(&state, 0, sizeof state);
    for (int i = 0; i < TILES; i++) {
        int row_bytes = bytes[16 + 2 * i] | bytes[17 + 2 * i] << 8, rows = bytes[48 + i];
        require(row_bytes <= ROW_BYTES && rows <= ROWS && (row_bytes == 0) == (rows == 0),
                "tile %d is configured to %d rows of %d bytes", i, rows, row_bytes);
        state.tile[i].bytes = row_bytes;
        state.tile[i].rows = rows;
    }
    state.configured = true;
}

void tiles_release(void)
{
    memset(&state, 0, sizeof state);
}

static struct amx_register *tile_of(int number)
{
    require(state.configured && number >= 0 && number < TILES && state.tile[number].rows > 0,
            "tile %d is used while it is not configured", number);
    return &state.tile[number];
}

/* ---- To and from memory ---- */

void tiles_zero(int tile)
{
    struct amx_register *t = tile_of(tile);
    memset(t->row, 0, sizeof t->row);
}

void tiles_load(int tile, const void *from, size_t row_bytes)
{
    struct amx_register *t = tile_of(tile);
    for (int row = 0; row < t->rows; row++)
        memcpy(t->row[row], (const char *)from + (size_t)row * row_bytes, (size_t)t->bytes);
}

void tiles_store(int tile, void *to, size_t row_bytes)
{
    struct amx_register *t = tile_of(tile);
    require(row_bytes >= (size_t)t->bytes, "rows of tile %d, %d bytes, are stored over each other", tile, t->bytes);
    for (int row = 0; row < t->rows; row++)
        memcpy((char *)to + (size_t)row * row_bytes, t->row[row], (size_t)t->bytes);
}

/* ---- Products ---- */

static void check_gemm(int sums, int a, int b)
{
    struct amx_register *s = tile_of(sums), *x = tile_of(a), *y = tile_of(b);
    require(sums != a && sums != b && a != b, "a product of tiles %d, %d and %d", sums, a, b);
    require(s->bytes % 4 == 0 && x->bytes % 4 == 0 && s->rows == x->rows && s->bytes == y->bytes &&
                x->bytes / 4 == y->rows,
            "a product of tiles [%d,%d] += [%d,%d] [%d,%d] (rows, bytes)", s->rows, s->bytes, x->rows, x->bytes,
            y->rows, y->bytes);
}

static __mmask16 columns_of(const struct amx_register *tile)
{
    return (__mmask16)((1u << tile->bytes / 4) - 1);
}

/* Sums the first and the second elements of all pairs separately, adds the two sums, then adds the
 * old value. A function of its own, so that the compiler cannot move this code across the changes
 * of MXCSR. */
__attribute__((noinline)) static void multiply_bf16(struct amx_register *sums, const struct amx_register *a,
                                                    const struct amx_register *b)
{
    const __m512i second = _mm512_set1_epi32((int)0xffff0000);
    int pairs = a->bytes / 4;
    __m512 b_first[ROWS], b_second[ROWS];
    for (int k = 0; k < pairs; k++) {
        __m512i row = _mm512_load_si512(b->row[k]);
        b_first[k] = _mm512_castsi512_ps(_mm512_slli_epi32(row, 16));
        b_second[k] = _mm512_castsi512_ps(_mm512_and_si512(row, second));
    }
    for (int m = 0; m < sums->rows; m++) {
        __m512 first = _mm512_setzero_ps(), last = _mm512_setzero_ps();
        for (int k = 0; k < pairs; k++) {
            i32 pair;
            memcpy(&pair, a->row[m] + 4 * k, 4);
            __m512i words = _mm512_set1_epi32(pair);
            first = _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_slli_epi32(words, 16)), b_first[k], first);
            last = _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_and_si512(words, second)), b_second[k], last);
        }
        __m512 sum = _mm512_add_ps(_mm512_load_ps(sums->row[m]), _mm512_add_ps(first, last));
        _mm512_store_ps(sums->row[m], _mm512_maskz_mov_ps(columns_of(sums), sum));
    }
}

void tiles_multiply_bf16(int sums, int a, int b)
{
    enum { TO_NEAREST_MASKED_DAZ_FTZ = 0x9fc0 }; /* denormals are zero on input and output; round to nearest even */
    unsigned before = _mm_getcsr();
    check_gemm(sums, a, b);
    _mm_setcsr(TO_NEAREST_MASKED_DAZ_FTZ);
    multiply_bf16(&state.tile[sums], &state.tile[a], &state.tile[b]);
    _mm_setcsr(before);
}

/* The CPU multiplies unsigned by signed bytes only: a b = (a + 128) b - 128 b. */
void tiles_multiply_bytes(int sums, int a, int b)
{
    const __m512i to_unsigned = _mm512_set1_epi32((int)0x80808080);
    struct amx_register *s = tile_of(sums);
    const struct amx_register *x = tile_of(a), *y = tile_of(b);
    __m512i shifted = _mm512_setzero_si512();
    check_gemm(sums, a, b);
    for (int k = 0; k < y->rows; k++)
        shifted = _mm512_dpbusd_epi32(shifted, to_unsigned, _mm512_load_si512(y->row[k]));
    for (int m = 0; m < s->rows; m++) {
        __m512i sum = _mm512_sub_epi32(_mm512_load_si512(s->row[m]), shifted);
        for (int k = 0; k < y->rows; k++) {
            i32 quad;
            memcpy(&quad, x->row[m] + 4 * k, 4);
            sum = _mm512_dpbusd_epi32(sum, _mm512_xor_si512(_mm512_set1_epi32(quad), to_unsigned),
                                      _mm512_load_si512(y->row[k]));
        }
        _mm512_store_si512(s->row[m], _mm512_maskz_mov_epi32(columns_of(s), sum));
    }
}
