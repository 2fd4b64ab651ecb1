/* The machine's streams over vsock, where there is no serial port: under Firecracker. The host connects to us: what listens is still
 * there when a saved machine goes on, and what was connected is not. */
#define _GNU_SOURCE
#include "machine.h"

#include <errno.h>
#include <linux/vm_sockets.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define ASKED "sandbox_vsock" /* a word of the kernel's command line, which it gives to its first process */
#define FIRST_PORT 1024       /* the others follow it; also engines/firecracker/vsock.py */

static const char *const names[] = {"sandbox.control", "sandbox.system", "sandbox.files"};
#define STREAMS (sizeof names / sizeof *names)
static int listening[STREAMS];

bool machine_has_vsock(void)
{
	return getenv(ASKED) != NULL;
}

void machine_listen(void)
{
	for (unsigned i = 0; i < STREAMS; i++) {
		struct sockaddr_vm at = {.svm_family = AF_VSOCK, .svm_port = FIRST_PORT + i, .svm_cid = VMADDR_CID_ANY};
		listening[i] = socket(AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (listening[i] < 0 || bind(listening[i], (void *)&at, sizeof at) || listen(listening[i], 4))
			machine_give_up(names[i]);
	}
}

/* Who connects and says nothing wanted to know whether we are there, or was reset when the machine was saved. */
int machine_accept(const char *name)
{
	for (unsigned i = 0; i < STREAMS; i++)
		while (!strcmp(names[i], name)) {
			char byte;
			int fd = accept4(listening[i], NULL, NULL, SOCK_CLOEXEC);
			if (fd < 0 && errno != EINTR && errno != ECONNABORTED && errno != ECONNRESET)
				return -1;
			if (fd >= 0 && read(fd, &byte, 1) == 1) {
				close(listening[i]); /* one is all there will ever be */
				return fd;
			}
			if (fd >= 0)
				close(fd);
		}
	errno = ENODEV;
	return -1;
}
