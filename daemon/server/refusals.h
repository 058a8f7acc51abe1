/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections that a limit has refused. Each is kept for a moment, until its first message has come: closed at once with
 * that unread, the kernel would throw our reply away. And the message may say that it is a tool's, which is let in after
 * all; so where tools are asked for nobody is told before. There are few of them at a time: the oldest makes room.
 */
#ifndef DAEMON_SERVER_REFUSALS_H
#define DAEMON_SERVER_REFUSALS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/list.h"

struct event_base;

typedef struct RefusalsConfig {
        struct event_base *base;
        /* Is that the first message of a tool? NULL: there are none. */
        bool (*is_tool)(const void *bytes, size_t n_bytes, void *tool_userdata);
        void *tool_userdata;
        bool (*let_in)(int fd, void *userdata); /* takes @fd over where it returns true */
        void (*on_told)(const char *why, void *userdata); /* one more that will never be let in */
        void *userdata;
} RefusalsConfig;

typedef struct Refusals {
        RefusalsConfig config;
        List list;                   /* oldest first */
        size_t n_kept;
} Refusals;

void refusals_init(Refusals *refusals, const RefusalsConfig *config);
void refusals_deinit(Refusals *refusals); /* tells and closes those that are left */

/* @why is copied. Only with a number below @fds_max it is kept: others will want those behind. */
void refusals_add(Refusals *refusals, int consume_fd, int fds_max, const char *why);

#endif
