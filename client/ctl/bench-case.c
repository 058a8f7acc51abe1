/* SPDX-License-Identifier: Apache-2.0 */
/* See bench-case.h. */
#include "client/ctl/bench-case.h"

#include <string.h>

BenchSpace bench_space(const BenchRun *run)
{
        return run->c->is_trusted ? BENCH_SPACE_TRUSTED : (BenchSpace)run->c->pages;
}

bool bench_can_run(const BenchRun *run)
{
        return bench_store_has(&run->bench->store, bench_space(run)) &&
               bench_plain_has(&run->bench->plain, run->c->theirs_pages);
}

int bench_flush(BenchRun *run, int error)
{
        int r = run->c->is_pipelined ? folio_flush(run->client) : 0;

        return error < 0 ? error : r;
}

int bench_check_plain(BenchRun *run, int error)
{
        if (error == 0)
                return CTL_OK;
        return ctl_complain(run->bench->ctl, "cannot measure %s of a plain file: %s", run->c->name, strerror(-error));
}

int bench_check_store(BenchRun *run, int error)
{
        return error == 0 ? CTL_OK : ctl_fail(run->bench->ctl, error, "measure", run->c->name);
}
