/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who has how much of what there is. An account has limits and what is used of them, and may have a parent that is
 * charged along with it. A Charge is the token of what was taken: it lives inside what it pays for and dies with it,
 * so that an account at zero proves that nothing is left.
 */
#ifndef DAEMON_STORE_ACCOUNT_H
#define DAEMON_STORE_ACCOUNT_H

#include <stdbool.h>
#include <stdint.h>

typedef struct Account Account;

struct Account {
        Account *parent;             /* NULL: none */
        uint64_t bytes_max;          /* UINT64_MAX: no limit of its own */
        uint64_t count_max;
        uint64_t bytes_used;
        uint64_t count_used;
};

typedef struct Charge {
        Account *account;            /* NULL: nothing is charged */
        uint64_t n_bytes;
        uint64_t n_count;
} Charge;

#define CHARGE_NULL { 0 }

enum {
        ACCOUNT_E_BYTES = 1,         /* not now; *@ret_culprit has no room */
        ACCOUNT_E_COUNT = 2,
        ACCOUNT_E_NEVER = 3,         /* more than *@ret_culprit's limit as such */
};

void account_init(Account *account, Account *parent, uint64_t bytes_max, uint64_t count_max);
void account_deinit(Account *account); /* asserts that nothing is left */

/* All of the chain or none. @ret must be empty. */
int account_charge(Account *account, uint64_t n_bytes, uint64_t n_count, Charge *ret, const Account **ret_culprit);

/* Would it be refused for ever (ACCOUNT_E_NEVER), whatever is freed? Takes nothing. */
bool account_can_ever(const Account *account, uint64_t n_bytes, uint64_t n_count, const Account **ret_culprit);

/* What is left under the account's own limit. */
uint64_t account_free_bytes(const Account *account);

/* Moves @n_bytes of what @from pays for into @to, which is empty or of the same account: nobody's total changes. */
void charge_move(Charge *from, Charge *to, uint64_t n_bytes);

/* Changes the bytes of a charge. Growing can fail like account_charge(); shrinking cannot. */
int charge_resize(Charge *charge, uint64_t n_bytes, const Account **ret_culprit);

/*
 * What is there already and could not be refused: the account may have more than its limit then, and no room. The
 * first takes all of the chain as account_charge() does.
 */
void account_charge_anyway(Account *account, uint64_t n_bytes, uint64_t n_count, Charge *ret);
void charge_set(Charge *charge, uint64_t n_bytes);
void charge_release(Charge *charge); /* an empty one is legal */

#endif
