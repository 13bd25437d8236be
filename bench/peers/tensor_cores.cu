/* Checks tensor core layouts against CUTLASS: the matrix descriptors of hopper.h, and the swizzle
 * and fragment layouts that its comments and tests/emulator state. Exits with 1 if they differ. */
#include <cudaTypedefs.h> /* before CUTLASS includes it in a namespace */

#include <cute/tensor.hpp> /* before its traits */

#include "kernels/cuda/hopper.h"

#include <cstdio>
#include <cute/atom/mma_traits_sm80.hpp>
#include <cute/atom/mma_traits_sm90_gmma.hpp>

using namespace cute;

static int differences;

static void expect(const char *what, unsigned long long theirs, unsigned long long ours)
{
    if (theirs != ours && differences++ < 20)
        printf("%s: CUTLASS 0x%llx, here 0x%llx\n", what, theirs, ours);
}

static u64 swizzle(u64 byte)
{
    return byte ^ (byte >> 7 & 7) << 4;
}

alignas(1024) static char memory[1 << 16]; /* stands for shared memory; address 0 for CUTLASS */

/* MN-major operand: 64 k by N, each box row is one k. */
template <int N> static void by_columns(void)
{
    constexpr int DEPTH = 64, BOX = DEPTH * TILE_ROW_BYTES;
    auto lies =
        tile_to_shape(GMMA::Layout_MN_SW128_Atom<cutlass::bfloat16_t>{}, Shape<Int<N>, Int<DEPTH>>{}, Step<_2, _1>{});
    auto place = as_position_independent_swizzle_layout(lies);
    auto tile = make_tensor(make_smem_ptr((cutlass::bfloat16_t *)memory), lies);
    for (int k = 0; k < DEPTH; k++)
        for (int i = 0; i < N; i++)
            expect("a number by columns", 2 * place(i, k),
                   swizzle(i / TILE_COLUMNS * BOX + k * TILE_ROW_BYTES + i % TILE_COLUMNS * 2));
    for (int k = 0; k < DEPTH; k += 16) {
        auto part = local_tile(tile, Shape<Int<N>, _16>{}, make_coord(0, k / 16));
        GmmaDescriptor theirs = GMMA::make_gmma_desc<GMMA::Major::MN>(part);
        u64 at = (u64)((char *)raw_pointer_cast(part.data()) - memory);
        u64 ours = further<BY_COLUMNS>(descriptor_at(0, N > TILE_COLUMNS ? BOX : 0), k);
        expect("a descriptor by columns", theirs.desc_ | at >> 4, ours);
    }
}

/* K-major operand: N rows of 128 bytes of k. */
template <typename T, int N> static void by_rows(void)
{
    constexpr int BYTES = sizeof(T), DEPTH = TILE_ROW_BYTES / BYTES, STEP = 32 / BYTES;
    auto lies = tile_to_shape(GMMA::Layout_K_SW128_Atom<T>{}, Shape<Int<N>, Int<DEPTH>>{});
    auto place = as_position_independent_swizzle_layout(lies);
    auto tile = make_tensor(make_smem_ptr((T *)memory), lies);
    for (int i = 0; i < N; i++)
        for (int k = 0; k < DEPTH; k++)
            expect("a number by rows", BYTES * place(i, k), swizzle(i * TILE_ROW_BYTES + k * BYTES));
    for (int k = 0; k < DEPTH; k += STEP) {
        auto part = local_tile(tile, Shape<Int<N>, Int<STEP>>{}, make_coord(0, k / STEP));
        GmmaDescriptor theirs = GMMA::make_gmma_desc<GMMA::Major::K>(part);
        u64 at = (u64)((char *)raw_pointer_cast(part.data()) - memory);
        u64 ours = BYTES == 2 ? further<BY_ROWS>(descriptor_at(0, 16), k) : fp8_further(descriptor_at(0, 16), k);
        expect("a descriptor by rows", theirs.desc_ | at >> 4, ours);
    }
}

/* Checks the position in [ROWS, ...] of element i of thread t. CUTLASS counts column-major. */
template <int ROWS, typename Layout, typename Place>
static void held(const char *what, Layout theirs, int threads, int each, Place place)
{
    for (int t = 0; t < threads; t++)
        for (int i = 0; i < each; i++) {
            int row, column;
            place(t, i, &row, &column);
            expect(what, (unsigned long long)theirs(t, i), (unsigned long long)(column * ROWS + row));
        }
}

int main(void)
{
    by_columns<64>(), by_columns<128>(), by_columns<256>();
    by_rows<cutlass::bfloat16_t, 64>(), by_rows<cutlass::bfloat16_t, 128>(), by_rows<cutlass::bfloat16_t, 256>();
    by_rows<cutlass::float_e4m3_t, 64>(), by_rows<cutlass::float_e4m3_t, 128>();

    auto rows = [](int t, int i, int *row, int *column) {
        *row = t / 32 * 16 + t % 32 / 4 + i / 2 % 2 * 8, *column = i / 4 * 8 + t % 4 * 2 + i % 2;
    };
    auto columns = [](int t, int i, int *row, int *column) { *row = t / 4, *column = i / 2 * 8 + t % 4 * 2 + i % 2; };
    typedef MMA_Traits<SM80_16x8x16_F32BF16BF16F32_TN> of_warp;
    held<64>("wgmma's d", GMMA::CLayout_64x256{}, 128, 128, rows);
    held<64>("wgmma's a in registers", GMMA::ALayout_64x16{}, 128, 8, rows);
    held<16>("mma's d", of_warp::CLayout{}, 32, 4, rows);
    held<16>("mma's a", of_warp::ALayout{}, 32, 8, rows);
    held<8>("mma's b", of_warp::BLayout{}, 32, 4, columns);
    printf("%d differences\n", differences);
    return differences != 0;
}
