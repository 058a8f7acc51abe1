#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The checks of this folder on the real sources, and on trees with one seeded violation each, which they must find: a
# check that finds nothing proves nothing. TAP.
set -eu
here=$(cd -- "$(dirname -- "$0")" && pwd)
root=$(cd -- "$here/../.." && pwd)
# shellcheck source=tap.sh
. "$here/tap.sh"
scratch=$(mktemp -d)
trap 'rm -rf -- "$scratch"' EXIT
output=$scratch/output

# --- the real sources ---
for name in includes layout docs; do
        status=0
        "$here/check-$name.sh" "$root" >"$output" 2>&1 || status=$?
        check "$name: the sources" "$status" "$output"
done

# --- seeded violations ---

# A small tree in which nothing is wrong; the folder's name has spaces, as a user's may.
seed="$scratch/a tree"
seed_tree()
{
        rm -rf -- "$seed"
        mkdir -p "$seed/include/folio" "$seed/include/base" "$seed/proto" "$seed/daemon/store" "$seed/daemon/service" \
                "$seed/daemon/memory" "$seed/client/lib" "$seed/client/ctl" "$seed/tests/lint"
        cp "$here/rooms" "$seed/tests/lint/rooms"
        for header in include/folio/types include/base/list proto/codec proto/layout daemon/service/worker \
                daemon/service/config daemon/memory/region daemon/store/store daemon/store/object daemon/store/index \
                client/client client/lib/maps client/ctl/ctl; do
                printf '/* SPDX-License-Identifier: Apache-2.0 */\n' >"$seed/$header.h"
        done
        cat >"$seed/include/folio/object.h" <<'END'
/* SPDX-License-Identifier: Apache-2.0 */
#include <folio/types.h>

/**
 * folio_open() - open it
 * @name: borrowed
 *
 * Lifetime:  -
 * Blocking:  never.
 * Threads:   any.
 * Return:    0.
 * Since:     0.1
 */
int folio_open(const char *name);
int folio_open_async(const char *name);
END
        printf '/* SPDX-License-Identifier: Apache-2.0 */\n#include "daemon/store/index.h"\n#include "daemon/memory/region.h"\n' \
                >"$seed/daemon/store/index.c"
        printf '/* SPDX-License-Identifier: Apache-2.0 */\n#include <stdio.h>\n#include "client/ctl/ctl.h"\n' \
                >"$seed/client/ctl/ctl-put.c"
}

# finds CHECK NAME WHAT: the check fails, and its output names what is wrong.
finds()
{
        status=0
        "$here/check-$1.sh" "$seed" >"$output" 2>&1 || status=$?
        if [ "$status" != 0 ] && grep -q -- "$3" "$output"; then
                check "$1: finds $2" 0
        else
                check "$1: finds $2" 1 "$output"
        fi
}

allows()
{
        status=0
        "$here/check-$1.sh" "$seed" >"$output" 2>&1 || status=$?
        check "$1: allows $2" "$status" "$output"
}

# including FILE LINE CHECK-NAME COMPLAINT: a file that holds one #include too many.
including()
{
        seed_tree
        printf '/* SPDX-License-Identifier: Apache-2.0 */\n#include %s\n' "$2" >"$seed/$1"
        finds includes "$3" "^$1:2: .*$4"
}

seed_tree
for name in includes layout docs; do
        allows $name "a tree in which nothing is wrong"
done

including daemon/store/index.c '"daemon/store/store.h"' "a header of a higher rank" "only lower ranks"
including daemon/store/index.c '"daemon/store/pins.h"' "a header that is not there" "no such header"
including daemon/store/pins.c '"daemon/store/index.h"' "a header of the same rank" "only lower ranks"
including daemon/store/index.c '"client/client.h"' "the library in the daemon" "does not know the library"
including client/client.c '"daemon/store/store.h"' "the daemon in the library" "does not know the daemon"
including client/ctl/ctl.c '"proto/codec.h"' "the protocol in the tool" "public headers and its own only"
including client/ctl/ctl-get.c '"client/client.h"' "the library's own headers in the tool" "public headers and its own only"
including client/lib/maps.c '"client/ctl/ctl.h"' "the tool in the library" "nobody's library"
including client/lib/maps.c '"client/client.h"' "the top of the library in its machinery" "only lower ranks"
including proto/layout.h '"proto/codec.h"' "the codec below its rank" "only lower ranks"
including include/folio/types.h '"base/list.h"' "a private header in a public one" "public headers only"
including include/base/list.h '"folio/types.h"' "Folio in base" "knows nothing of Folio"
including daemon/store/store.c '"folio.pb-c.h"' "generated code outside the codec" "proto/codec.c alone"
including proto/layout.c '<protobuf-c/protobuf-c.h>' "protobuf outside the codec" "proto/codec.c"
including daemon/store/store.c '<event2/event.h>' "libevent in the store" "libevent belongs"
including client/client.c '<event2/event.h>' "libevent in the library" "libevent belongs"
including daemon/memory/region.c '<systemd/sd-daemon.h>' "systemd in the memory" "systemd belongs"
including daemon/store/store.c '<pthread.h>' "threads in the store" "threads belong"
including client/ctl/ctl.c '<pthread.h>' "threads in the tool" "threads belong"
seed_tree
printf '/* SPDX-License-Identifier: Apache-2.0 */\n' >"$seed/daemon/store/orphan.c"
finds includes "a file without a room" "daemon/store/orphan.c:1: has no room"
seed_tree
printf '  #  include   "daemon/store/store.h"\n' >>"$seed/daemon/store/index.c"
finds includes "an include written with spaces" "^daemon/store/index.c:4:"
seed_tree
printf '%s\n#include "daemon/store/store.h"\n' '/* SPDX-License-Identifier: Apache-2.0 */' >"$seed/daemon/store/store.c"
echo '1 daemon/store/store.c' >>"$seed/tests/lint/rooms"
printf '#include "daemon/store/index.h"\n' >>"$seed/daemon/store/store.c"
finds includes "what a source includes that ranks by itself" "^daemon/store/store.c:3: .*(rank 1)"
seed_tree
: >"$seed/tests/lint/rooms"
finds includes "that there are no rooms" "no rooms"

# layout FILE NAME COMPLAINT: what is in $text is the file.
text=$scratch/text
layout()
{
        seed_tree
        cp "$text" "$seed/$1"
        finds layout "$2" "^$1:[0-9]*: .*$3"
}

spdx='/* SPDX-License-Identifier: Apache-2.0 */'
lines()
{
        awk -v n="$1" 'BEGIN { for (i = 0; i < n; i++) print "        x++;" }'
}

{ echo "$spdx"; echo '/* Much. */'; lines 600; } >"$text"
layout daemon/store/long.c "a long file without a reason" "600 lines"
{ echo "$spdx"; echo 'int f(void)'; echo '{'; lines 70; echo '}'; } >"$text"
layout daemon/store/f.c "a long function" "a function of 72 lines"
{ echo "$spdx"; echo 'int f(int a,'; echo '      int b)'; echo '{'; lines 70; echo '}'; } >"$text"
layout daemon/store/f.c "a long function with a long head" "a function of 72 lines"
echo '/* Nothing. */' >"$text"
layout daemon/store/f.c "a source without SPDX" "no SPDX"
echo 'x = 1' >"$text"
layout daemon/store/meson.build "a build file without SPDX" "no SPDX"
printf '#!/bin/sh\ntrue\n' >"$text"
layout tests/lint/script "a script without SPDX" "no SPDX"
printf '%s\n\tint x;\n' "$spdx" >"$text"
layout daemon/store/f.c "a tab" "a tab"
printf '%s\nint x = MIN(1 << n++, 16);\n' "$spdx" >"$text"
layout daemon/store/f.c "an argument of MIN that changes something" "evaluated twice"
printf '%s\nint x; \n' "$spdx" >"$text"
layout daemon/store/f.c "white space at the end" "white space"
printf 'x \n' >"$text"
layout README.md "white space at the end in prose" "white space"
printf '%s\n/* %s: later */\n' "$spdx" "TO""DO" >"$text"
layout daemon/store/f.c "a note to self" "note to self"
printf 'see %swork/notes\n' / >"$text"
layout README.md "a path of a machine" "a path of some machine"
printf 'from https://%s.org\n' "py""pi" >"$text"
layout README.md "a host of a registry" "package registry"
printf '%s\nint x;' "$spdx" >"$text"
layout daemon/store/f.c "a file that ends in a line" "no newline"
seed_tree
{ echo "$spdx"; echo '/* More than 600 lines because it is one table. */'; lines 600; } >"$seed/daemon/store/f.c"
allows layout "a long file with a reason"
seed_tree
{ echo "$spdx"; echo 'int f(void)'; echo '{'; lines 68; echo '}'; } >"$seed/daemon/store/f.c"
allows layout "a function of 70 lines"
seed_tree
{ echo "$spdx"; echo 'int main(int argc, char **argv)'; echo '{'; lines 90; echo '}'; } >"$seed/daemon/store/f.c"
allows layout "a long function that parses argv"

# docs SED-EXPRESSION NAME COMPLAINT: the good header, changed.
docs()
{
        seed_tree
        sed -i "$1" "$seed/include/folio/object.h"
        finds docs "$2" "$3"
}

for field in Lifetime Blocking Threads Return Since; do
        docs "/ $field:/d" "a missing field ($field)" "no field $field"
done
docs 's/^ \* Since: .*/ * Since:/' "an empty field" "no field Since"
docs 's/folio_open() - /folio_close() - /' "a block about another function" 'does not begin with "folio_open() - "'
docs '/@name/d' "a parameter left out" "parameter name is not documented"
docs 's,^int folio_open_async,\n&,' "a function without a block" "folio_open_async() has no documentation"
docs '/^int/d' "that there is no function" "no function found"

finish
