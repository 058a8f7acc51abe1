/* SPDX-License-Identifier: Apache-2.0 */
/* The verbs of folioctl, for its table. */
#ifndef CTL_VERBS_H
#define CTL_VERBS_H

#include "client/ctl/ctl.h"

extern const CtlVerb verb_put, verb_replace;
extern const CtlVerb verb_get, verb_cat;
extern const CtlVerb verb_ls;
extern const CtlVerb verb_stat, verb_holders;
extern const CtlVerb verb_rm, verb_truncate;
extern const CtlVerb verb_wait, verb_watch;
extern const CtlVerb verb_ns;
extern const CtlVerb verb_status, verb_check;
extern const CtlVerb verb_run;
extern const CtlVerb verb_bench;

#endif
