/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A segment: a socketpair whose queue holds descriptors, one message for each, in order. Its receiving end is what a
 * manager stores; one that came from a predecessor has no sending end any more and can only be looked at and emptied.
 * Knows nothing of what is still wanted.
 */
#ifndef DAEMON_SERVICE_KEEPER_SEGMENT_H
#define DAEMON_SERVICE_KEEPER_SEGMENT_H

#include <stdbool.h>

#include "daemon/service/keeper.h"

/* What a queue takes, whatever the limits of socket buffers are set to, and two more while one is moved. */
#define KEEPER_SEGMENT_MESSAGES_MAX 250

typedef struct KeeperSegment {
        int send_fd;                 /* -1: a predecessor's */
        int receive_fd;
} KeeperSegment;

#define KEEPER_SEGMENT_NULL { .send_fd = -1, .receive_fd = -1 }

int keeper_segment_open(KeeperSegment *segment);
void keeper_segment_close(KeeperSegment *segment);

/* 0 or a negative errno: -EAGAIN, it is full; -ETOOMANYREFS, the user has too many in flight. */
int keeper_segment_push(KeeperSegment *segment, const KeptRecord *record, int fd);

/* More than a record of any version has so far. */
#define KEEPER_MESSAGE_BYTES_MAX 1024

/* A message as it was found; @fd is a duplicate and its taker's, -1 where there was none. */
typedef struct KeeperMessage {
        union {
                KeptRecord record;
                char bytes[KEEPER_MESSAGE_BYTES_MAX];
        };
        size_t n_bytes;
        size_t n_fds;
        int fd;
} KeeperMessage;

/* The first; it stays. */
int keeper_segment_peek(KeeperSegment *segment, KeeperMessage *ret);

/* The first goes. */
int keeper_segment_consume(KeeperSegment *segment);

/*
 * Each in order, all of which stay; up to a negative errno of @each, which is passed on. Without @with_fds records
 * only. -EMFILE where there were not enough descriptors.
 */
int keeper_segment_walk(KeeperSegment *segment, bool with_fds,
                        int (*each)(void *userdata, const KeeperMessage *consume_message), void *userdata);

#endif
