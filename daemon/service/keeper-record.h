/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A record of something kept, as it travels: as it is in the message of one that is parked, and as the name of one that
 * is stored by itself:
 *
 *      folio-KIND-VERSION-SERIAL-OWNER-ID-DETAIL-INODE-SIZE-TEXT
 *      folio-segment-VERSION-SERIAL
 *
 * KIND is a word, the others are hexadecimal, TEXT byte by byte. The version stands where every version finds it.
 * Names are for people, too, who look at them with `systemd-analyze fdstore`.
 */
#ifndef DAEMON_SERVICE_KEEPER_RECORD_H
#define DAEMON_SERVICE_KEEPER_RECORD_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/service/keeper.h"

#define KEEPER_NAME_BYTES_MAX 255 /* FDNAME= takes no more */

typedef char KeeperName[KEEPER_NAME_BYTES_MAX + 1];

/* Is it one that this version would write? */
bool keeper_record_is_valid(const KeptRecord *record);

/* False: it does not fit into a name. */
bool keeper_record_to_name(const KeptRecord *record, uint64_t serial, KeeperName name);
void keeper_record_to_segment_name(uint64_t serial, KeeperName name);

enum {
        KEEPER_RECORD_E_FOREIGN = 1, /* not a name of the keeper's */
        KEEPER_RECORD_E_SEGMENT = 2, /* that of a segment */
        KEEPER_RECORD_E_NEWER = 3,   /* a later version's */
        KEEPER_RECORD_E_BAD = 4,     /* nobody's */
};

/* 0 with both, KEEPER_RECORD_E_SEGMENT with *@ret_serial, or another. */
int keeper_record_from_name(const char *name, KeptRecord *ret, uint64_t *ret_serial);

#endif
