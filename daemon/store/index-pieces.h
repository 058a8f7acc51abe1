/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How far the areas of an index have grown, in pieces of 2 MiB: which of them are in use, or about to be, and have not
 * been handed out yet to be made huge. Each piece is handed out once. Knows numbers of bytes; touches no memory.
 *
 * Areas grow from their beginning, so the piece after one that is nearly full is the next to be used: it is handed out
 * before it is, while there is nothing in it to be copied and nobody who would have to wait. An area that never
 * nearly fills its first piece is left as it is.
 */
#ifndef DAEMON_STORE_INDEX_PIECES_H
#define DAEMON_STORE_INDEX_PIECES_H

#include <stdbool.h>
#include <stdint.h>

#define INDEX_PIECES_LEAD_BYTES (UINT64_C(512) << 10) /* of a piece that is nearly full, at most this is left */

typedef struct IndexPieces {
        uint64_t offset_bytes;       /* of the area; a multiple of HUGE_BYTES */
        uint64_t n_pieces;           /* there are */
        uint64_t n_taken;
} IndexPieces;

void index_pieces_init(IndexPieces *pieces, uint64_t offset_bytes, uint64_t size_bytes);

/* The area is in use up to @used_bytes. At most @n_bytes_max, in whole pieces; false: none. */
bool index_pieces_take(IndexPieces *pieces, uint64_t used_bytes, uint64_t n_bytes_max, uint64_t *ret_offset_bytes,
                       uint64_t *ret_n_bytes);

#endif
