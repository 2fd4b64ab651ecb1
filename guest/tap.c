/* A network card of the room's, for a machine that wants one: what it sends arrives in the room's network, where every address is
 * local, and so at the gate. It stays when we close it, and belongs to whom we are, so that a tenant of the room can use it. */
#define _GNU_SOURCE
#include "guest.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define DEVICE "/dev/net/tun"

bool make_tap(struct cbor setup)
{
	struct ifreq request = {.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR};
	struct cbor item;
	if (!cbor_get(setup, "tap", &item))
		return false;
	char *name = cbor_cstring(item);
	if (!name || strlen(name) >= sizeof request.ifr_name)
		errno = EINVAL, fail("tap", NULL);
	strcpy(request.ifr_name, name);
	int fd = open(DEVICE, O_RDWR | O_CLOEXEC);
	if (fd < 0 || ioctl(fd, TUNSETIFF, &request) || ioctl(fd, TUNSETOWNER, geteuid()) || ioctl(fd, TUNSETPERSIST, 1))
		fail("tap", DEVICE);
	close(fd);
	unsigned card = if_nametoindex(name);
	link_set(card, IFF_UP);
	link_address(card, AF_INET, ROOM4, 24);
	link_neighbour(card, AF_INET, MACHINE4);
	if (!access("/proc/net/if_inet6", F_OK)) {
		link_address(card, AF_INET6, ROOM6, 64);
		link_neighbour(card, AF_INET6, MACHINE6);
	}
	free(name);
	return true;
}
