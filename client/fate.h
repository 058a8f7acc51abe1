/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What has become of a request that was under way when foliod ended. What can be done twice is done again; of the rest
 * the event log of the next foliod tells, whose records say of whose request they came. Where it cannot tell, that is
 * what the program is told.
 */
#ifndef CLIENT_FATE_H
#define CLIENT_FATE_H

#include "client/greeting.h"
#include "client/lib/reconnect.h"

/* ReconnectConfig.mark and .judge; @userdata is the client. */
uint64_t fate_mark(void *userdata, const ProtoRequest *message);
void fate_judge(void *userdata, const ProtoRequest *message, bool is_sent, uint64_t mark, RequestFate *ret);

#endif
