/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arithmetic of limits. An account may hold more than its limit (the limit can be lowered under it); then it has
 * no room until enough has come back. Knows nothing of what is paid for.
 */
#include "daemon/store/account.h"

#include <assert.h>
#include <stddef.h>

static uint64_t room(uint64_t max, uint64_t used)
{
        return used < max ? max - used : 0;
}

void account_init(Account *account, Account *parent, uint64_t bytes_max, uint64_t count_max)
{
        *account = (Account){ .parent = parent, .bytes_max = bytes_max, .count_max = count_max };
}

void account_deinit(Account *account)
{
        assert(account->bytes_used == 0);
        assert(account->count_used == 0);
        account->parent = NULL;
}

uint64_t account_free_bytes(const Account *account)
{
        return room(account->bytes_max, account->bytes_used);
}

bool account_can_ever(const Account *account, uint64_t n_bytes, uint64_t n_count, const Account **ret_culprit)
{
        for (const Account *a = account; a; a = a->parent)
                if (n_bytes > a->bytes_max || n_count > a->count_max) {
                        *ret_culprit = a;
                        return false;
                }
        return true;
}

/* Looks at the whole chain before anything is taken, so that a refusal leaves no trace. */
static int check(const Account *account, uint64_t n_bytes, uint64_t n_count, const Account **ret_culprit)
{
        if (!account_can_ever(account, n_bytes, n_count, ret_culprit))
                return ACCOUNT_E_NEVER;
        for (const Account *a = account; a; a = a->parent) {
                if (n_bytes > room(a->bytes_max, a->bytes_used)) {
                        *ret_culprit = a;
                        return ACCOUNT_E_BYTES;
                }
                if (n_count > room(a->count_max, a->count_used)) {
                        *ret_culprit = a;
                        return ACCOUNT_E_COUNT;
                }
        }
        return 0;
}

int account_charge(Account *account, uint64_t n_bytes, uint64_t n_count, Charge *ret, const Account **ret_culprit)
{
        int r;

        assert(!ret->account);
        r = check(account, n_bytes, n_count, ret_culprit);
        if (r)
                return r;
        for (Account *a = account; a; a = a->parent) {
                a->bytes_used += n_bytes;
                a->count_used += n_count;
        }
        *ret = (Charge){ .account = account, .n_bytes = n_bytes, .n_count = n_count };
        return 0;
}

void account_charge_anyway(Account *account, uint64_t n_bytes, uint64_t n_count, Charge *ret)
{
        assert(!ret->account);
        for (Account *a = account; a; a = a->parent) {
                a->bytes_used += n_bytes;
                a->count_used += n_count;
        }
        *ret = (Charge){ .account = account, .n_bytes = n_bytes, .n_count = n_count };
}

int charge_resize(Charge *charge, uint64_t n_bytes, const Account **ret_culprit)
{
        assert(charge->account);
        if (n_bytes > charge->n_bytes) {
                uint64_t more = n_bytes - charge->n_bytes;

                /* The whole must fit as such, not only what is added. */
                if (!account_can_ever(charge->account, n_bytes, charge->n_count, ret_culprit))
                        return ACCOUNT_E_NEVER;

                int r = check(charge->account, more, 0, ret_culprit);

                if (r)
                        return r;
                for (Account *a = charge->account; a; a = a->parent)
                        a->bytes_used += more;
        } else {
                for (Account *a = charge->account; a; a = a->parent)
                        a->bytes_used -= charge->n_bytes - n_bytes;
        }
        charge->n_bytes = n_bytes;
        return 0;
}

void charge_move(Charge *from, Charge *to, uint64_t n_bytes)
{
        assert(from->account && n_bytes <= from->n_bytes);
        assert(!to->account || to->account == from->account);
        to->account = from->account;
        to->n_bytes += n_bytes;
        from->n_bytes -= n_bytes;
}

void charge_set(Charge *charge, uint64_t n_bytes)
{
        assert(charge->account);
        for (Account *a = charge->account; a; a = a->parent)
                a->bytes_used += n_bytes - charge->n_bytes;
        charge->n_bytes = n_bytes;
}

void charge_release(Charge *charge)
{
        for (Account *a = charge->account; a; a = a->parent) {
                assert(a->bytes_used >= charge->n_bytes && a->count_used >= charge->n_count);
                a->bytes_used -= charge->n_bytes;
                a->count_used -= charge->n_count;
        }
        *charge = (Charge)CHARGE_NULL;
}
