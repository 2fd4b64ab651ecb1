/* Starts QEMU in the room. Its descriptors come over standard input, since a command has only three of its own; then it gets less
 * than a tenant has: it may read its own program and the template, change no file, and share no memory that could lead to one. */
#define _GNU_SOURCE
#include "machine.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define FIRST 10 /* where the descriptors are, in the order in which they came */
#define MOST 8

static const struct permission of_qemu[] = {
	{"/usr", READ}, {"/bin", READ}, {"/lib", READ}, {"/lib64", READ}, {"/lib32", READ}, {"/nix/store", READ},
	{"/etc/ld.so.cache", READ}, {"/etc/resolv.conf", READ}, {"/dev/null", OPEN}, {"/dev/kvm", OPEN}, {"/.machine", READ},
	{"/.machine-run", CHANGE}, {"/dev/net/tun", OPEN}, /* Firecracker's: its sockets, its network card */
	{"/.machine-system", READ}, /* where an image has taken the place of the host's system */
	/* Opened for writing and mapped privately: QEMU cannot open it otherwise. The filter sees to it that nothing is written. */
	{"/.machine/ram", OPEN}, {NULL, LIST},
};

noreturn void machine_launch(char **argv)
{
	char byte;
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(int) * MOST)];
	} control;
	struct iovec part = {&byte, 1};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
	if (recvmsg(0, &message, 0) != 1)
		_exit(126);
	struct cmsghdr *head = CMSG_FIRSTHDR(&message); /* none: Firecracker needs none */
	size_t count = head && head->cmsg_type == SCM_RIGHTS ? (head->cmsg_len - CMSG_LEN(0)) / sizeof(int) : 0;
	int fds[MOST];
	if (count)
		memcpy(fds, CMSG_DATA(head), count * sizeof(int));
	for (size_t i = 0; i < count; i++)
		if (dup2(fds[i], FIRST + (int)i) < 0)
			_exit(126);
	int null = open("/dev/null", O_RDWR);
	dup2(null, 0), dup2(null, 1);
	/* A template is made by programs of ours alone, and is written; a clone belongs to a tenant. */
	if (strcmp(argv[0], "--template")) {
		if (!confine_files(of_qemu) || !confine_changes()) {
			dprintf(2, "cannot confine QEMU: %s\n", strerror(errno));
			_exit(126);
		}
	} else {
		argv++;
	}
	execv(argv[0], argv);
	dprintf(2, "%s: %s\n", argv[0], strerror(errno));
	_exit(127);
}

#if defined __x86_64__
static int64_t nanoseconds(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC_RAW, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

#endif

/* Prints how fast this processor counts, which is how fast an emulated one does. No file says it everywhere: the "cpu MHz" of
 * /proc/cpuinfo is how fast it runs just now. */
noreturn void machine_khz(void)
{
#if defined __x86_64__
	int64_t began = nanoseconds(), now;
	uint64_t first = __builtin_ia32_rdtsc();
	while ((now = nanoseconds()) - began < 20000000)
		;
	dprintf(1, "%llu\n", (unsigned long long)((__builtin_ia32_rdtsc() - first) * 1000000 / (uint64_t)(now - began)));
#endif
	_exit(0);
}
