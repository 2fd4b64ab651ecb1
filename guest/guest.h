/* What the parts of the guest know of one another. */
#ifndef GUEST_H
#define GUEST_H

#include "frame.h"

#include <stdnoreturn.h>
#include <sys/types.h>

#define RLIMITS_MOST 16
#define TRIPWIRES_MOST 64 /* each is a FUSE connection in the kernel */

struct limit {
	int resource;
	uint64_t soft, hard;
};

/* What the set-up asked for and found; written before the first tenant, only read afterwards. */
struct place {
	bool walls, framed, container, network, carried, allow_ptrace, count_memory, unix_sockets;
	bool machine; /* we are the first process of a virtual machine */
	bool image; /* an image's files are at `/`, and not to be trusted */
	uint64_t uid, gid;
	uint32_t set_id; /* the mode bits that nobody may set */
	struct cbor setup;
	struct limit limits[RLIMITS_MOST];
	size_t nlimits;
	uint64_t jobs_most; /* how many our own descriptors suffice for */
	int proc;           /* /proc, from before anyone could stand in its way */
	int maps;           /* a /proc that can be written to, until the user namespace is made */
	int owner;          /* pidfd, or -1 */
	/* for `ready` */
	int sockets[FDS_OUT];
	char names[FDS_OUT][12];
	size_t nsockets;
	bool have_nft, have_keyring, have_low_ports;
	int landlock;
	uint64_t missed; /* masks of something that was not there, or not the very thing */
};

extern struct place place;
extern struct channel host;

/* Set-up: a step that does not succeed ends the guest. There is no weaker place. */
noreturn void fail(const char *step, const char *path);

void build_filesystem(struct cbor setup);               /* filesystem.c */
void take_image(struct cbor setup);                     /* image.c */
bool image_parents(char *path);                         /* makes them, following no link */
bool image_make_room(char *path, bool directory);       /* the same, and `path` is free or already such a thing */
bool mount_mask(struct cbor op, int target, const char *path, bool directory); /* mask.c */
void drop_covers(void);
bool mount_overlay(struct cbor op, int target);      /* overlay.c */
void protect_devices(struct cbor setup);                   /* protect.c */
void protect_proc(void);
bool mount_fuse(struct cbor op, int target, const char *at);         /* fuse.c */
int fuse_new(int device, const char *rootmode, bool permissions, unsigned attributes); /* a mount out of sight, or -1 */
bool fuse_attach_later(int mount, int target, const char *path, bool optional);
int fuse_pending(const char *path);            /* the mount that will be attached there, or -1 */
void fuse_attach(void);                        /* from here on, looking up a path may wait for an answer */
void tripwire(struct cbor op, int target, const char *path, bool directory); /* tripwire.c */
size_t tripwires_count(void);
void tripwires_serve(void);
void tripwires_drop(void);
void network(struct cbor setup);               /* network.c */
struct nlmsghdr;
int netlink_ask(struct nlmsghdr *head, size_t size);
#define ROOM4 "10.0.2.2" /* as a machine sees it; those that QEMU's user-mode network has */
#define ROOM6 "fec0::2"
#define MACHINE4 "10.0.2.15"
#define MACHINE6 "fec0::15"
void link_set(unsigned index, unsigned flags); /* link.c */
void link_address(unsigned index, int family, const char *text, unsigned char prefix);
void link_gateway(unsigned index, int family, const char *text);
void link_neighbour(unsigned index, int family, const char *text);
void link_all_local(int family, unsigned char table);
void link_rule(int family, uint32_t priority, uint8_t protocol, uint16_t port, unsigned char table);
bool make_tap(struct cbor setup);              /* tap.c; whether one was asked for */
int nft_tproxy(uint16_t port4, const uint8_t address4[4], uint16_t port6, const uint8_t address6[16]); /* nft.c */
void limits_read(struct cbor setup);           /* limits.c */
void limits_again(struct cbor request);
long limits_apply(void);
void new_keyring(void);                        /* privileges.c */
void drop_privileges(void);
void landlock_rules(struct cbor setup);        /* landlock.c */
void landlock_apply(void);
void install_filter(void);                     /* filter.c */
bool filter_tenant(void);

void gate_serve(void);                         /* gate.c: where the listening sockets cannot cross */
void gate_answer(struct cbor frame);
void serve(void);                              /* loop.c */

#endif
