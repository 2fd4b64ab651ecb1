/* The threads that carry the FUSE messages of one file server between its kernel and its port. */
#ifndef MACHINE_CARRY_H
#define MACHINE_CARRY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdnoreturn.h>

#define MESSAGE_MOST (1u << 20)
#define CARRY_PAGE 4096u

/* What the carriers of one server and the guest know of one another. A machine is saved when nothing is under way: the server of
 * a clone could not know of it. */
struct traffic {
	atomic_int hold, writing;
	atomic_uint asked, answered;
};

struct carrier {
	struct traffic *traffic;
	int device, port;
	int disk;                        /* or -1: everything goes over the port */
	int notices, notices_end;        /* a pipe to whoever delivers them */
	int directories, directories_end; /* a pipe to whoever lists them */
	int root;                        /* of the files, without anything that is mounted on them later */
};

/* machine_carry.c. Each is a thread's whole life. */
noreturn void carry_out(const struct carrier *carrier);
noreturn void carry_in(const struct carrier *carrier);

/* machine_notices.c */
noreturn void deliver_notices(const struct carrier *carrier);
noreturn void list_directories(const struct carrier *carrier);

char *carry_buffer(void);
void carry_write(int fd, const char *data, size_t size);
void carry_to_kernel(int device, const char *message, size_t size);

#endif
