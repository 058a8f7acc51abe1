/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What lies behind the staging memory of a session, in the same file: a page by which a client that closes its connection
 * says so also to a daemon that is yet to come, and such a daemon that it has come. This file is a protocol.
 *
 * Where the daemon dies while a client hangs up nobody has seen it; the next one would wait for that client as long as
 * its process lives. The client can write all of it, and can do nothing by it but harm its own session.
 */
#ifndef PROTO_STAGING_H
#define PROTO_STAGING_H

#include <assert.h>
#include <stdatomic.h>
#include <stdint.h>

#define STAGING_END_BYTES 4096

/* At `staging_bytes` of the file. */
typedef struct StagingEnd {
        _Atomic uint32_t is_over;    /* not 0: the client does not come back */
        uint32_t reserved_0;
        /*
         * `start` of the beacon of the daemon whose indexes the client looks at, and no others. Stored with the first welcome, and, of a resumed session, when all its indexes have
         * taken the place of those before. 0: no client has had the welcome.
         */
        _Atomic uint64_t start;
        /*
         * `start` of the daemon that has the session. It stores it before it gives away any memory, and counts the pins
         * of the session from then on. Who holds something by the index of a daemon that has ended looks here afterwards:
         * is it not `start`, then the next one may have given away what is held, without having seen that.
         */
        _Atomic uint64_t taken_by;
        uint8_t reserved_1[STAGING_END_BYTES - 24];
} StagingEnd;

static_assert(sizeof(StagingEnd) == STAGING_END_BYTES, "staging end");

#endif
