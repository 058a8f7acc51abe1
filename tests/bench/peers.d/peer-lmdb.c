/* SPDX-License-Identifier: Apache-2.0 */
/* LMDB; the address is a directory on tmpfs, where nothing needs to be synced. A put and a delete are a transaction. */
#include "worker.h"

#include <lmdb.h>
#include <string.h>

/* Of the address space; the file grows as it is needed. */
#define MAP_BYTES ((size_t)8 << 30)

static MDB_env *environment;
static MDB_dbi database;
static MDB_txn *reading; /* reset between two */

static int check(int r)
{
        return r == 0 ? 0 : worker_fail("%s", mdb_strerror(r));
}

static int open_database(void)
{
        MDB_txn *transaction;
        int r = mdb_txn_begin(environment, NULL, 0, &transaction);

        if (r == 0) {
                r = mdb_dbi_open(transaction, NULL, 0, &database);
                r = r ? r : mdb_txn_commit(transaction);
        }
        return r;
}

static int open_lmdb(const char *address, uint32_t number)
{
        int r = mdb_env_create(&environment);

        (void)number;
        r = r ? r : mdb_env_set_mapsize(environment, MAP_BYTES);
        r = r ? r : mdb_env_open(environment, address, MDB_WRITEMAP | MDB_NOSYNC | MDB_NOMETASYNC, 0600);
        r = r ? r : open_database();
        r = r ? r : mdb_txn_begin(environment, NULL, MDB_RDONLY, &reading);
        if (r == 0)
                mdb_txn_reset(reading);
        return check(r);
}

/* @data of NULL: it is removed. */
static int change(const char *key, const void *data, size_t n_bytes)
{
        MDB_val name = { strlen(key), (void *)(uintptr_t)key }, value = { n_bytes, (void *)(uintptr_t)data };
        MDB_txn *transaction;
        int r = mdb_txn_begin(environment, NULL, 0, &transaction);

        if (r)
                return check(r);
        r = data ? mdb_put(transaction, database, &name, &value, 0) : mdb_del(transaction, database, &name, NULL);
        if (r == 0)
                return check(mdb_txn_commit(transaction));
        mdb_txn_abort(transaction);
        return check(r);
}

static int put_lmdb(const char *key, const void *data, size_t n_bytes)
{
        return change(key, data, n_bytes);
}

static int find(const char *key, size_t n_bytes)
{
        MDB_val name = { strlen(key), (void *)(uintptr_t)key }, value;
        int r = mdb_txn_renew(reading);

        if (r)
                return check(r);
        r = check(mdb_get(reading, database, &name, &value));
        if (r == 0 && n_bytes > 0)
                r = value.mv_size == n_bytes ? worker_touch(value.mv_data, n_bytes)
                                             : worker_fail("it has another size");
        mdb_txn_reset(reading);
        return r;
}

static int get_lmdb(const char *key, size_t n_bytes)
{
        return find(key, n_bytes);
}

static int exists_lmdb(const char *key)
{
        return find(key, 0);
}

static int remove_lmdb(const char *key)
{
        return change(key, NULL, 0);
}

const struct worker_peer worker_peer = {
        .open = open_lmdb,
        .put = put_lmdb,
        .get = get_lmdb,
        .exists = exists_lmdb,
        .remove = remove_lmdb,
};
