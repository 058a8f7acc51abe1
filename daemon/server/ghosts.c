/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each ghost waits for one event: its client's pidfd, or a timer; and as long as there are any, somebody looks, soon after
 * the start and then once a second, whether one of their clients has hung up, or ended, seen by no daemon. One that ends
 * with something in its ring that does not come to an end at once waits for that, as a hang-up does; nobody can have it
 * back then.
 */
#include "daemon/server/ghosts.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <event2/event.h>

#include "base/cleanup.h"
#include "base/list.h"
#include "base/macro.h"
#include "daemon/service/log.h"

#define LISTS 256u
#define LOOK_MS 50u
#define LOOK_MS_MAX 1000u

typedef struct Ghost {
        List link;
        Ghosts *ghosts;
        Session *session;
        DaemonRing *ring;            /* NULL: none */
        int process_fd;              /* -1: not known */
        struct event *end;
        bool is_ending;
} Ghost;

struct Ghosts {
        GhostsConfig config;
        List lists[LISTS];           /* by token */
        struct event *look;          /* NULL: there is no loop */
        unsigned look_ms;            /* until the next one */
        GhostsFacts facts;
};

/* The session is somebody else's by now. */
static void ghost_free(Ghost *ghost)
{
        list_unlink(&ghost->link);
        if (ghost->end)
                event_free(ghost->end);
        (void)close_fd(ghost->process_fd);
        ghost->ghosts->facts.n_ghosts--;
        free(ghost);
}

static void close_ghost(Ghost *ghost)
{
        Session *session = ghost->session;
        DaemonRing *ring = ghost->ring;

        log_debug("client %s, pid %d, uid %u, has not come back, and what it had is given up", session_comm(session),
                  (int)session_cred(session)->pid, (unsigned)session_cred(session)->uid);
        if (ring)
                daemon_ring_close(ring);
        session_close(session);
        if (ring)
                daemon_ring_release(ring);
        ghost->ghosts->facts.n_ended++;
        ghost_free(ghost);
}

/* From inside the store, perhaps. */
static void on_drained(void *userdata)
{
        Ghost *ghost = userdata;

        event_active(ghost->end, EV_TIMEOUT, 0);
}

static void on_end(evutil_socket_t fd, short what, void *userdata)
{
        Ghost *ghost = userdata;

        ghost->is_ending = true;
        if (!ghost->ring || daemon_ring_drain(ghost->ring, on_drained, ghost))
                close_ghost(ghost);
}

/* Of one whose pidfd is not kept, or not any more. Who has its number by now is waited for instead, no longer than any. */
static bool has_ended(const Ghost *ghost)
{
        pid_t pid = session_cred(ghost->session)->pid;

        return ghost->process_fd < 0 && pid > 0 && kill(pid, 0) < 0 && errno == ESRCH;
}

/* As at a hang-up, in the loop's time. */
static void end_those_that_are_over(Ghosts *ghosts)
{
        for (size_t i = 0; i < LISTS; i++)
                LIST_FOREACH(node, &ghosts->lists[i])
                {
                        Ghost *ghost = LIST_ENTRY(node, Ghost, link);

                        if (!ghost->is_ending && (session_is_over(ghost->session) || has_ended(ghost)))
                                event_active(ghost->end, EV_TIMEOUT, 0);
                }
}

/*
 * Nobody can have such a one back: it was being closed, or made, when foliod ended, or could not be kept whole. Where it
 * protects nothing it need not wait for its process either. Not at once: who is alive may be about to say what it holds.
 */
static void end_those_that_are_empty(Ghosts *ghosts)
{
        for (size_t i = 0; i < LISTS; i++)
                LIST_FOREACH(node, &ghosts->lists[i])
                {
                        Ghost *ghost = LIST_ENTRY(node, Ghost, link);

                        if (!ghost->is_ending && !session_has_arrived(ghost->session) &&
                            !session_has_anything(ghost->session))
                                event_active(ghost->end, EV_TIMEOUT, 0);
                }
}

static void look_again(Ghosts *ghosts)
{
        struct timeval timeout = { ghosts->look_ms / 1000, (suseconds_t)(ghosts->look_ms % 1000) * 1000 };

        ghosts->look_ms = MIN(ghosts->look_ms * 2, LOOK_MS_MAX);
        /* Without it they end with their processes. */
        if (ghosts->look && ghosts->facts.n_ghosts > 0)
                (void)event_add(ghosts->look, &timeout);
}

static void on_look(evutil_socket_t fd, short what, void *userdata)
{
        Ghosts *ghosts = userdata;

        end_those_that_are_over(ghosts);
        end_those_that_are_empty(ghosts);
        look_again(ghosts);
}

static int watch(Ghost *ghost)
{
        const GhostsConfig *config = &ghost->ghosts->config;
        struct timeval timeout = { config->wait_ms / 1000, (suseconds_t)(config->wait_ms % 1000) * 1000 };

        if (ghost->process_fd >= 0) {
                ghost->end = event_new(config->host.base, ghost->process_fd, EV_READ, on_end, ghost);
                if (ghost->end && event_add(ghost->end, NULL) == 0)
                        return 0;
                /* It is no pidfd, whatever it is. */
                if (ghost->end)
                        event_free(ghost->end);
                ghost->process_fd = close_fd(ghost->process_fd);
        }
        ghost->end = event_new(config->host.base, -1, 0, on_end, ghost);
        return ghost->end && event_add(ghost->end, &timeout) == 0 ? 0 : -ENOMEM;
}

/* A ring that cannot be had again for want of memory ends the start: everything stays kept. */
static int add_ghost(Ghosts *ghosts, Session *session)
{
        Ghost *ghost = calloc(1, sizeof(*ghost));
        int r;

        if (!ghost)
                return -ENOMEM;
        ghost->ghosts = ghosts;
        ghost->session = session;
        ghost->process_fd = session_take_process(session);
        list_push_back(&ghosts->lists[session_token(session) % LISTS], &ghost->link);
        ghosts->facts.n_ghosts++;
        r = watch(ghost);
        if (r == 0 && session_get_restored_ring(session))
                r = daemon_ring_restore(&ghosts->config.host, session, &ghost->ring);
        return r;
}

int ghosts_new(const GhostsConfig *config, Ghosts **ret)
{
        Ghosts *ghosts = calloc(1, sizeof(*ghosts));
        int r = 0;

        if (!ghosts)
                return -ENOMEM;
        ghosts->config = *config;
        ghosts->config.wait_ms = config->wait_ms > 0 ? config->wait_ms : GHOSTS_WAIT_MS;
        for (size_t i = 0; i < LISTS; i++)
                list_init(&ghosts->lists[i]);
        for (Session *session = NULL; r == 0 && (session = session_next_ghost(config->host.store, session));)
                r = add_ghost(ghosts, session);
        if (r < 0) {
                ghosts_free(ghosts);
                return r;
        }
        /* Not before all are there: what is carried out may wake others, or free what they hold. */
        for (size_t i = 0; i < LISTS; i++)
                LIST_FOREACH(node, &ghosts->lists[i])
                {
                        Ghost *ghost = LIST_ENTRY(node, Ghost, link);

                        if (ghost->ring && !session_is_cut(ghost->session))
                                daemon_ring_start(ghost->ring);
                }
        ghosts->look_ms = LOOK_MS;
        ghosts->look = config->host.base ? event_new(config->host.base, -1, 0, on_look, ghosts) : NULL;
        end_those_that_are_over(ghosts);
        look_again(ghosts);
        *ret = ghosts;
        return 0;
}

void ghosts_free(Ghosts *ghosts)
{
        if (!ghosts)
                return;
        if (ghosts->look)
                event_free(ghosts->look);
        for (size_t i = 0; i < LISTS; i++)
                for (List *node; (node = list_peek_front(&ghosts->lists[i]));) {
                        Ghost *ghost = LIST_ENTRY(node, Ghost, link);

                        if (ghost->ring)
                                daemon_ring_leave(ghost->ring);
                        session_leave(ghost->session);
                        if (ghost->ring)
                                daemon_ring_release(ghost->ring);
                        ghost_free(ghost);
                }
        free(ghosts);
}

Session *ghosts_resume(Ghosts *ghosts, uint64_t token, const SessionConfig *config, DaemonRing **ret_ring)
{
        *ret_ring = NULL;
        if (token == 0)
                return NULL;
        LIST_FOREACH(node, &ghosts->lists[token % LISTS])
        {
                Ghost *ghost = LIST_ENTRY(node, Ghost, link);
                Session *session = ghost->session;

                if (session_token(session) != token || session_cred(session)->uid != config->cred.uid)
                        continue;
                if (ghost->is_ending || (ghost->ring && daemon_ring_is_broken(ghost->ring)) ||
                    session_resume(session, config) < 0)
                        return NULL;
                *ret_ring = ghost->ring;
                ghosts->facts.n_resumed++;
                ghost_free(ghost);
                return session;
        }
        return NULL;
}

void ghosts_get_facts(const Ghosts *ghosts, GhostsFacts *ret)
{
        *ret = ghosts->facts;
}
