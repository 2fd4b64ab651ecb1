/* Masks: a blocked path gets a cover mounted over it, or a tripwire if attempts are to be reported. */
#define _GNU_SOURCE
#include "guest.h"
#include "mount.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

/* Covers: an empty file and an empty directory that nobody may open, on a tmpfs of their own. Their owner is the
 * tenant's own user, who could change their mode if they were not mounted read-only.
 *
 * Before Linux 6.15 only an attached mount can be cloned, so the tmpfs is mounted on top of `/` during the set-up. No path
 * leads to it there: our paths start at the root below it. */
static int covers = -1;

static bool make_covers(void)
{
	int tmpfs = new_tmpfs(4096, 0755, MOUNT_ATTR_NOEXEC);
	int root = open("/", O_PATH | O_CLOEXEC);
	covers = tmpfs < 0 ? -1 : openat(tmpfs, ".", O_PATH | O_CLOEXEC);
	bool made = covers >= 0 && root >= 0 && !mknodat(covers, "file", S_IFREG, 0) && !mkdirat(covers, "dir", 0) &&
		    attach(tmpfs, root);
	close(root);
	return made;
}

/* "." because no other name leads to it. */
void drop_covers(void)
{
	if (covers >= 0 && (fchdir(covers) || detach(".") || chdir("/") || close(covers)))
		fail("mounts", "covers");
}

bool mount_mask(struct cbor op, int target, const char *path, bool directory)
{
	struct stat st;
	uint64_t inode;
	if (fstat(target, &st) || !cbor_get_uint(op, "inode", UINT64_MAX, 0, &inode))
		return false;
	/* Something else has this name now. Cover it and tell the host: the file that was meant may be somewhere else. */
	place.missed += inode && inode != st.st_ino;
	if (S_ISLNK(st.st_mode) || directory != S_ISDIR(st.st_mode)) {
		errno = S_ISLNK(st.st_mode) ? ELOOP : directory ? ENOTDIR : EISDIR;
		return false;
	}
	if (covers < 0 && !make_covers())
		return false;
	int copy = open_tree(covers, directory ? "dir" : "file", OPEN_TREE_CLONE);
	if (copy < 0 || set_attributes(copy, 0, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOEXEC, 0) || !attach(copy, target))
		return false;
	/* On top of the cover, not instead of it: it is attached at the end, and what is mounted until then may show this
	 * path in another place. */
	tripwire(op, target, path, directory);
	return true;
}
