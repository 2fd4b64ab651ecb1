/* container.c: the guest as the entry point of a container. */
#ifndef GUEST_CONTAINER_H
#define GUEST_CONTAINER_H

#include "guest.h"

bool container_connect(void);
bool container_pipes(void);
void container_enter(struct cbor setup);

#endif
