/* The guest inside a virtual machine. */
#ifndef MACHINE_H
#define MACHINE_H

#include "guest.h"

struct permission {
	const char *path; /* and everything beneath it */
	enum { LIST, READ, CHANGE } what;
};
bool confine_files(const struct permission *permissions); /* confine.c; up to one without a path */
bool confine_changes(void);

bool machine_boot(void);                       /* machine.c */
void machine_build(struct cbor setup);
void machine_network(void);                    /* machine_network.c */
int machine_port(const char *name);            /* machine_files.c */
void machine_files(int target);
noreturn void machine_launch(char **argv);     /* machine_launch.c */

#endif
