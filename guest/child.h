/* What a forked child does until it is the command (child.c), and what it reports when it cannot become it. */
#ifndef GUEST_CHILD_H
#define GUEST_CHILD_H

#include "guest.h"

#include <sys/types.h>

/* What a child that could not exec the command writes to the report pipe. */
struct complaint {
	char step[16];
	int error;
};
#define GROUP "group" /* not an error: `error` is the process group of a command on a terminal */

/* What a command is started with. Read before the fork: a child would first have to get memory of its own for it. */
struct wanted {
	char **argv, **env;
	char **direct; /* or NULL: what to run in the place of `argv`, if it is there */
	char *cwd;
	mode_t mask;
	uint64_t lacking; /* how many of the first directories of PATH are known to have no such program */
};

bool wanted_read(struct wanted *wanted, struct cbor request); /* false: errno says why */
void wanted_free(struct wanted *wanted);

/* What a child shares with us until it has become its command. */
struct child {
	struct sharing *sharing; /* or NULL */
};

/* As fork(). Takes what `wanted` holds if the child needs it for longer. */
pid_t child_start(struct child *child, struct wanted *wanted, const int stdio[3], bool terminal, int report);
void child_gone(struct child *child); /* it has called exec, or ended */

#endif
