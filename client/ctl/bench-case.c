/* SPDX-License-Identifier: Apache-2.0 */
/* See bench-case.h. */
#include "client/ctl/bench-case.h"

#include <string.h>

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
