/* SPDX-License-Identifier: Apache-2.0 */
/* Redis, by hiredis; the address is that of its Unix socket. */
#include "worker.h"

#include <hiredis/hiredis.h>
#include <string.h>

static redisContext *context;

static int open_redis(const char *address, uint32_t number)
{
        (void)number;
        context = redisConnectUnix(address);
        return !context || context->err ? worker_fail("%s", context ? context->errstr : "no memory") : 0;
}

/* Its answer, or NULL: told. */
static redisReply *ask(const char *verb, const char *key, const void *data, size_t n_bytes)
{
        const char *words[] = { verb, key, data };
        const size_t lengths[] = { strlen(verb), strlen(key), n_bytes };
        redisReply *reply = redisCommandArgv(context, data ? 3 : 2, words, lengths);

        if (!reply) {
                (void)worker_fail("%s", context->errstr);
                return NULL;
        }
        if (reply->type != REDIS_REPLY_ERROR)
                return reply;
        (void)worker_fail("%s", reply->str);
        freeReplyObject(reply);
        return NULL;
}

static int put_redis(const char *key, const void *data, size_t n_bytes)
{
        redisReply *reply = ask("SET", key, data, n_bytes);

        if (!reply)
                return 1;
        freeReplyObject(reply);
        return 0;
}

static int get_redis(const char *key, size_t n_bytes)
{
        redisReply *reply = ask("GET", key, NULL, 0);
        int r;

        if (!reply)
                return 1;
        if (reply->type != REDIS_REPLY_STRING || reply->len != n_bytes)
                r = worker_fail("it has another size");
        else
                r = worker_touch(reply->str, n_bytes);
        freeReplyObject(reply);
        return r;
}

static int ask_for_one(const char *verb, const char *key)
{
        redisReply *reply = ask(verb, key, NULL, 0);
        int r;

        if (!reply)
                return 1;
        r = reply->integer == 1 ? 0 : worker_fail("it is not there");
        freeReplyObject(reply);
        return r;
}

static int exists_redis(const char *key)
{
        return ask_for_one("EXISTS", key);
}

static int remove_redis(const char *key)
{
        return ask_for_one("UNLINK", key);
}

const struct worker_peer worker_peer = {
        .open = open_redis,
        .put = put_redis,
        .get = get_redis,
        .exists = exists_redis,
        .remove = remove_redis,
};
