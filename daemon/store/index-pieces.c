/* SPDX-License-Identifier: Apache-2.0 */
/* See index-pieces.h. */
#include "daemon/store/index-pieces.h"

#include <assert.h>

#include "base/macro.h"

void index_pieces_init(IndexPieces *pieces, uint64_t offset_bytes, uint64_t size_bytes)
{
        assert(IS_ALIGNED(offset_bytes, HUGE_BYTES));
        /* The last piece is the area's alone, also where the area ends within it: the next begins at a new one. */
        *pieces = (IndexPieces){
                .offset_bytes = offset_bytes,
                .n_pieces = ALIGN_UP(size_bytes, HUGE_BYTES) / HUGE_BYTES,
        };
}

bool index_pieces_take(IndexPieces *pieces, uint64_t used_bytes, uint64_t n_bytes_max, uint64_t *ret_offset_bytes,
                       uint64_t *ret_n_bytes)
{
        uint64_t n_full = used_bytes / HUGE_BYTES + (used_bytes % HUGE_BYTES >= HUGE_BYTES - INDEX_PIECES_LEAD_BYTES);
        uint64_t n_wanted, n;

        if (n_full == 0)
                return false;
        n_wanted = MIN(n_full + 1, pieces->n_pieces);
        if (n_wanted <= pieces->n_taken)
                return false;
        n = MIN(n_wanted - pieces->n_taken, MAX(n_bytes_max / HUGE_BYTES, 1));
        *ret_offset_bytes = pieces->offset_bytes + pieces->n_taken * HUGE_BYTES;
        *ret_n_bytes = n * HUGE_BYTES;
        pieces->n_taken += n;
        return true;
}
