/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which fields each verb takes: the table of PROTOCOL.md, and the checks by it. What breaks a rule of the conversation
 * is a breach; an item that asks for something that cannot be is answered INVALID in its place. Looks at one message
 * and nothing else.
 */
#ifndef DAEMON_SERVER_SHAPE_H
#define DAEMON_SERVER_SHAPE_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/codec.h"

/* Items of one CREATE or REGION that are answered with a descriptor. */
#define SHAPE_DESCRIPTORS_MAX PROTO_FDS_MAX

/* NULL: it keeps the rules. Else which it breaks. */
const char *shape_find_breach(const ProtoRequest *request, bool has_session);

/* NULL: it can be carried out, as far as shape goes. Else why not: INVALID. */
const char *shape_find_fault(const ProtoRequest *request, uint64_t packed_bytes_max);
const char *shape_find_item_fault(ProtoVerb verb, const ProtoItem *item);

#endif
