/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The checksum of a record in an index: of the record itself, of the slot it stands in, and of what of the heap is its.
 * It is for the next daemon, which finds records whose writer has ended; readers go by the sequence. Part of the layout
 * (proto/PROTOCOL.md), but for nobody else's use.
 *
 * The state stands beside the hash, so that a record can be retracted without being hashed again.
 */
#ifndef DAEMON_STORE_INDEX_CHECKSUM_H
#define DAEMON_STORE_INDEX_CHECKSUM_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/layout.h"

#define INDEX_CHECKSUM_STATE UINT32_C(0x9e3779b1) /* odd: no two states look the same */

/* Whatever sequence and checksum stand in @record. @texts: layout_heap_bytes() of them; NULL where there are none.
 * @extents: what LAYOUT_FLAG_ZEROS says; NULL. */
uint32_t index_checksum(uint32_t slot, const LayoutSlot *record, const void *texts, const LayoutExtents *extents);

/* Of LayoutSettings. */
uint64_t index_checksum_settings(const LayoutSettings *settings);

static inline uint32_t index_checksum_change_state(uint32_t checksum, uint8_t from, uint8_t to)
{
        return checksum + ((uint32_t)to - from) * INDEX_CHECKSUM_STATE;
}

#endif
