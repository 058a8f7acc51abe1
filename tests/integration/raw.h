/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client without manners: speaks to foliod through the codec and the channel, or in bytes made by hand, with none of
 * the library's checks in between. What it receives stays valid until the next receive; descriptors that came are
 * closed then, unless taken. Usable in the tests' process and in its children.
 */
#ifndef TESTS_INTEGRATION_RAW_H
#define TESTS_INTEGRATION_RAW_H

#include "tests/integration/harness.h"

#include "proto/channel.h"
#include "proto/codec.h"
#include "proto/layout.h"
#include "proto/status.h"

typedef struct Raw {
        int socket;
        uint64_t last_id;
        int staging_fd;
        uint8_t *staging;
        ProtoReply reply; /* of the last receive */
        size_t n_fds; /* that came with it */
        int fds[PROTO_FDS_MAX];
        uint64_t staging_bytes; /* from the welcome */
        uint64_t packed_bytes_max;
        uint64_t budget_bytes;
        ProtoDecoder *decoder;
        uint8_t packet[PROTO_MESSAGE_BYTES_MAX];
} Raw;

/* Connects and says nothing. */
Raw *raw_connect(const Foliod *foliod);

/* Connects, says HELLO and maps the staging region. */
Raw *raw_open(const Foliod *foliod);

/* NULL is legal. */
void raw_close(Raw *raw);

/* Sends one packet as it is. False: the other side is gone. */
bool raw_send_bytes(Raw *raw, const void *bytes, size_t n_bytes, const int *fds, size_t n_fds);

/* Encodes and sends; an id of 0 becomes a fresh one unless @is_quiet. */
bool raw_send(Raw *raw, ProtoRequest *request, bool is_quiet, const int *fds, size_t n_fds);

/* Waits for the next reply. False: the other side has hung up. Fails where nothing comes for 20 s. */
bool raw_receive(Raw *raw);

/* Sends and waits for the reply of this request; others that come before are dropped. */
bool raw_call(Raw *raw, ProtoRequest *request);

/* One item of a verb in namespace @namespace_id; its status, with the rest in raw->reply. Fails on a hang-up. */
Status raw_item(Raw *raw, ProtoVerb verb, uint32_t namespace_id, ProtoItem item);

/* NAMESPACE_OPEN: the id. With the read right raw->fds[0] is the index and raw->fds[1] the pin table. */
uint32_t raw_namespace(Raw *raw, const char *name);

/* A descriptor of the last reply, taken over by the caller. */
int raw_take_fd(Raw *raw, size_t place);

/* Reads until the hang-up that must come; fails where it does not within 20 s. */
void raw_await_hangup(Raw *raw);

static inline Key raw_key(const char *text)
{
        return (Key){ .bytes = text, .n_bytes = strlen(text) };
}

#endif
