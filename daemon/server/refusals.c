/* SPDX-License-Identifier: Apache-2.0 */
/* See refusals.h. */
#include "daemon/server/refusals.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <event2/event.h>

#include "base/cleanup.h"
#include "proto/channel.h"
#include "proto/codec.h"
#include "proto/status.h"

#define REFUSALS_MAX 32
#define REFUSALS_MS 500

typedef struct Refusal {
        List link;
        Refusals *refusals;
        int fd;
        bool is_told;
        struct event *event;
        char why[128];
} Refusal;

static void tell(Refusals *refusals, int fd, const char *why)
{
        ProtoReply reply = { .status = STATUS_LIMIT, .detail = { why, strlen(why) } };
        uint8_t bytes[PROTO_MESSAGE_BYTES_MAX];
        size_t n_bytes;

        refusals->config.on_told(why, refusals->config.userdata);
        /* Best effort: whoever does not get it sees the connection end. */
        if (proto_encode_reply(&reply, bytes, &n_bytes))
                (void)channel_send(fd, bytes, n_bytes, NULL, 0);
}

static void refusal_free(Refusal *refusal)
{
        list_unlink(&refusal->link);
        refusal->refusals->n_kept--;
        if (refusal->event)
                event_free(refusal->event);
        (void)close_fd(refusal->fd);
        free(refusal);
}

static void end(Refusal *refusal)
{
        char byte;

        /* What is unread when it is closed would take our reply with it. */
        while (recv(refusal->fd, &byte, 1, MSG_DONTWAIT | MSG_TRUNC) > 0)
                ;
        if (!refusal->is_told)
                tell(refusal->refusals, refusal->fd, refusal->why);
        refusal_free(refusal);
}

/* Its message stays where it is, for the connection that it may become. */
static bool is_tool(const Refusal *refusal)
{
        const RefusalsConfig *config = &refusal->refusals->config;
        uint8_t bytes[PROTO_MESSAGE_BYTES_MAX];
        ssize_t n = recv(refusal->fd, bytes, sizeof(bytes), MSG_PEEK | MSG_DONTWAIT | MSG_TRUNC);

        return n > 0 && (size_t)n <= sizeof(bytes) && config->is_tool(bytes, (size_t)n, config->tool_userdata);
}

/* Its first message has come, or the moment is over. */
static void on_readable(evutil_socket_t fd, short what, void *userdata)
{
        Refusal *refusal = userdata;
        const RefusalsConfig *config = &refusal->refusals->config;

        if (!refusal->is_told && what & EV_READ && is_tool(refusal)) {
                /* One descriptor has one event at a time. */
                event_free(refusal->event);
                refusal->event = NULL;
                if (config->let_in(refusal->fd, config->userdata)) {
                        refusal->fd = -1;
                        refusal_free(refusal);
                        return;
                }
        }
        end(refusal);
}

static Refusal *refusal_new(Refusals *refusals, int fd, int fds_max, const char *why)
{
        struct timeval timeout = { .tv_usec = REFUSALS_MS * 1000 };
        Refusal *refusal = fd < fds_max ? calloc(1, sizeof(*refusal)) : NULL;

        if (!refusal)
                return NULL;
        refusal->event = event_new(refusals->config.base, fd, EV_READ, on_readable, refusal);
        if (!refusal->event || event_add(refusal->event, &timeout) < 0) {
                if (refusal->event)
                        event_free(refusal->event);
                free(refusal);
                return NULL;
        }
        refusal->refusals = refusals;
        refusal->fd = fd;
        (void)snprintf(refusal->why, sizeof(refusal->why), "%s", why);
        list_push_back(&refusals->list, &refusal->link);
        refusals->n_kept++;
        return refusal;
}

void refusals_add(Refusals *refusals, int consume_fd, int fds_max, const char *why)
{
        Refusal *refusal;

        if (refusals->n_kept >= REFUSALS_MAX)
                end(LIST_ENTRY(list_peek_front(&refusals->list), Refusal, link));
        refusal = refusal_new(refusals, consume_fd, fds_max, why);
        if (!refusal || !refusals->config.is_tool)
                tell(refusals, consume_fd, why);
        if (refusal)
                refusal->is_told = !refusals->config.is_tool;
        else
                (void)close_fd(consume_fd);
}

void refusals_init(Refusals *refusals, const RefusalsConfig *config)
{
        *refusals = (Refusals){ .config = *config };
        list_init(&refusals->list);
}

void refusals_deinit(Refusals *refusals)
{
        for (List *link; (link = list_peek_front(&refusals->list));)
                end(LIST_ENTRY(link, Refusal, link));
}
