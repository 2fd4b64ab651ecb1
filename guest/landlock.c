/* Landlock: a second, independent no to writing anywhere but beneath the paths given. */
#define _GNU_SOURCE
#include "guest.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Older headers than the kernel: numbers that are part of its ABI. */
#define REFER (1ull << 13)
#define TRUNCATE (1ull << 14)

#define ON_FILES (LANDLOCK_ACCESS_FS_WRITE_FILE | TRUNCATE)

static uint64_t writing(int abi)
{
	uint64_t rights = LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_REMOVE_DIR | LANDLOCK_ACCESS_FS_REMOVE_FILE |
			  LANDLOCK_ACCESS_FS_MAKE_CHAR | LANDLOCK_ACCESS_FS_MAKE_DIR | LANDLOCK_ACCESS_FS_MAKE_REG |
			  LANDLOCK_ACCESS_FS_MAKE_SOCK | LANDLOCK_ACCESS_FS_MAKE_FIFO | LANDLOCK_ACCESS_FS_MAKE_BLOCK |
			  LANDLOCK_ACCESS_FS_MAKE_SYM;
	if (abi >= 2)
		rights |= REFER;
	if (abi >= 3)
		rights |= TRUNCATE;
	return rights;
}

static int rules = -1;
static int abi;

static bool add_rule(uint64_t rights, int fd)
{
	struct landlock_path_beneath_attr beneath = {.allowed_access = rights, .parent_fd = fd};
	return !syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &beneath, 0);
}

static void allow(uint64_t rights, struct cbor entry)
{
	char *path = cbor_cstring(entry);
	if (!path)
		errno = EINVAL, fail("landlock", NULL);
	/* Rights on the directory below a FUSE mount would not hold for the mount. */
	int served = fuse_pending(path);
	int fd = served >= 0 ? served : open(path, O_PATH | O_CLOEXEC);
	/* Not asked by fstat what it is: a FUSE mount has nobody yet who would answer. The kernel refuses a directory's
	 * rights on a file with EINVAL. */
	if (fd < 0 || (!add_rule(rights, fd) && (errno != EINVAL || !add_rule(rights & ON_FILES, fd))))
		fail("landlock", path);
	if (fd != served)
		close(fd);
	free(path);
}

/* Before anything is mounted that nobody answers for yet: the paths are looked up here. */
void landlock_rules(struct cbor setup)
{
	struct cbor item;
	uint64_t n;
	if (!cbor_get(setup, "writable", &item))
		return;
	if (!cbor_array(item, &n, &item))
		errno = EINVAL, fail("landlock", NULL);
	abi = (int)syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
	if (abi <= 0)
		return; /* the mounts hold without it; `ready` says that it is not there */
	struct landlock_ruleset_attr attr = {.handled_access_fs = writing(abi)};
	rules = (int)syscall(SYS_landlock_create_ruleset, &attr, sizeof attr.handled_access_fs, 0);
	if (rules < 0)
		fail("landlock", NULL);
	for (; n--; cbor_next(&item))
		allow(attr.handled_access_fs, item);
}

void landlock_apply(void)
{
	if (rules < 0)
		return;
	if (syscall(SYS_landlock_restrict_self, rules, 0))
		fail("landlock", NULL);
	close(rules);
	place.landlock = abi;
}
