/* The guest inside a virtual machine. */
#ifndef MACHINE_H
#define MACHINE_H

#include "guest.h"

struct permission {
	const char *path; /* and everything beneath it */
	enum { LIST, READ, OPEN, CHANGE } what; /* OPEN: for writing, too, but nothing is emptied or removed */
};
bool confine_files(const struct permission *permissions); /* confine.c; up to one without a path */
bool confine_changes(void);

/* What a file server tells the machine, that is not of FUSE (share_wire.c). */
#define NOTIFY_TIME 1000 /* the host's, and whether somebody set it */
#define NOTIFY_LIST 1001 /* a directory that will be looked into: its path from the root, without the first slash */

bool machine_boot(void);                       /* machine.c */
noreturn void machine_give_up(const char *what);
void machine_build(struct cbor setup);
extern int machine_system, machine_files_of_room; /* FUSE devices of the system's and the room's files, until the set-up */
void machine_boot_id(void);                    /* machine_clone.c: a file that each clone writes anew */
void machine_devices(bool root);               /* machine_devices.c: in the working directory */
void machine_warm_up(void);                    /* machine_warm.c */
void machine_forget_the_rest(void);
void machine_forget_stale(struct cbor machine);
void machine_enter_room(struct cbor machine, bool root); /* machine_room.c */
void machine_leave_room(void);
void machine_settle(struct cbor machine);
bool machine_identity(struct cbor machine);     /* machine_clone.c; false with errno */
void machine_keeper(void);
bool machine_request(struct cbor request);
void machine_network(void);                    /* machine_network.c */
void machine_network_off(void);
bool machine_has_vsock(void);                  /* machine_vsock.c */
void machine_listen(void);
int machine_accept(const char *name);
int machine_port(const char *name);            /* machine_files.c */
int machine_files(const char *name, const char *target); /* the FUSE device */
bool machine_files_hold(void);                 /* no request is under way until machine_files_go() */
void machine_files_go(void);
bool machine_carries(pid_t pid);                /* whether it is a process that leads to a file server */
noreturn void machine_launch(char **argv);     /* machine_launch.c */
noreturn void machine_khz(void);
noreturn void machine_kvm(void);               /* machine_kvm.c */
void machine_ports(struct cbor setup);         /* machine_ports.c */

#endif
