/* The two tenants of a room with a machine in it, QEMU and the file server, get less than a tenant: Landlock says which files, and
 * for QEMU a filter says that none of them is changed. Both are for good. Each function gives false with errno. */
#define _GNU_SOURCE
#include "machine.h"

#include <asm/unistd.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Older headers than the kernel: numbers that are part of its ABI. */
#define REFER (1ull << 13)
#define TRUNCATE (1ull << 14)
#define READING (LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR)
#define OPENING (LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE)
#define ON_FILES (LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE | TRUNCATE)

static uint64_t all_rights(long abi)
{
	uint64_t rights = (LANDLOCK_ACCESS_FS_MAKE_SYM << 1) - 1;
	return rights | (abi >= 2 ? REFER : 0) | (abi >= 3 ? TRUNCATE : 0);
}

static bool allow(int rules, const char *path, uint64_t rights)
{
	struct landlock_path_beneath_attr beneath = {.allowed_access = rights};
	beneath.parent_fd = open(path, O_PATH | O_CLOEXEC);
	if (beneath.parent_fd < 0)
		return errno == ENOENT; /* what is not there needs no permission */
	bool good = !syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &beneath, 0);
	if (!good && errno == EINVAL) { /* a directory's rights on a file */
		beneath.allowed_access &= ON_FILES;
		good = !syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &beneath, 0);
	}
	int saved = errno;
	close(beneath.parent_fd);
	errno = saved;
	return good;
}

bool confine_files(const struct permission *permissions)
{
	long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
	if (abi <= 0)
		return false;
	struct landlock_ruleset_attr attr = {.handled_access_fs = all_rights(abi)};
	int rules = (int)syscall(SYS_landlock_create_ruleset, &attr, sizeof attr.handled_access_fs, 0);
	bool good = rules >= 0;
	const uint64_t rights[] = {[LIST] = LANDLOCK_ACCESS_FS_READ_DIR, [READ] = READING, [OPEN] = OPENING,
				   [CHANGE] = attr.handled_access_fs};
	for (; good && permissions->path; permissions++)
		good = allow(rules, permissions->path, rights[permissions->what]);
	return good && !syscall(SYS_landlock_restrict_self, rules, 0) && !close(rules);
}

/* Calls by which a file could be changed, removed or moved: Landlock knows nothing of modes, owners, times and attributes. What is
 * written at all is stopped by a size limit of 0. */
static const int changing[] = {
	__NR_ftruncate, __NR_truncate, __NR_fallocate, __NR_unlinkat, __NR_renameat2, __NR_linkat, __NR_symlinkat, __NR_mkdirat,
	__NR_mknodat, __NR_fchmod, __NR_fchmodat, __NR_fchown, __NR_fchownat, __NR_utimensat, __NR_copy_file_range,
	__NR_setxattr, __NR_lsetxattr, __NR_fsetxattr, __NR_removexattr, __NR_lremovexattr, __NR_fremovexattr, __NR_execveat,
	452 /* fchmodat2 */, 437 /* openat2: a filter does not see its flags */,
#ifdef __NR_unlink
	__NR_unlink, __NR_rmdir, __NR_rename, __NR_link, __NR_symlink, __NR_mkdir, __NR_mknod, __NR_chmod, __NR_chown, __NR_lchown,
	__NR_creat, __NR_utime, __NR_utimes, __NR_futimesat,
#endif
#ifdef __NR_renameat
	__NR_renameat,
#endif
};
#define LAST_KNOWN 462 /* mseal, Linux 6.10: later ones set attributes, too, and what comes after them nobody knows */

/* Requests of these kinds only: terminals and descriptors, sockets, KVM. A file system's own change files as well, by cloning,
 * punching holes, exchanging contents, setting flags. */
static const unsigned char asking[] = {'T', 0x89, 0xae};

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define AND(bits) BPF_STMT(BPF_ALU | BPF_AND | BPF_K, bits)
#define EQUAL(value, yes, no) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)(value), yes, no)
#define REFUSE(error) BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (error))
#define PASS BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
#define COUNT(list) (sizeof(list) / sizeof *(list))

struct program {
	struct sock_filter code[2 * COUNT(changing) + COUNT(asking) + 40];
	unsigned short size;
};

#define ADD(program, ...) ((program)->code[(program)->size++] = (struct sock_filter)__VA_ARGS__)

/* Opening with O_TRUNC empties a file. Before Linux 6.2 Landlock does not see it; since then it does, and tells files from pipes, by
 * which QEMU says its state when a machine is saved. */
static bool emptying_is_seen(void)
{
	return syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION) >= 3;
}

static void refuse_emptying(struct program *p, int call, unsigned flags)
{
	ADD(p, EQUAL(call, 0, 5));
	ADD(p, BPF_STMT(BPF_LD | BPF_W | BPF_ABS, flags));
	ADD(p, AND(O_TRUNC));
	ADD(p, EQUAL(O_TRUNC, 0, 1));
	ADD(p, REFUSE(EPERM));
	ADD(p, PASS);
}

static void refuse_calls(struct program *p)
{
	/* The room's own filter has looked at the architecture already. */
	ADD(p, LOAD(nr));
	ADD(p, BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, LAST_KNOWN, 0, 1));
	ADD(p, REFUSE(ENOSYS));
	for (size_t i = 0; i < COUNT(changing); i++) {
		ADD(p, EQUAL(changing[i], 0, 1));
		ADD(p, REFUSE(EPERM));
	}
	if (emptying_is_seen())
		return;
	refuse_emptying(p, __NR_openat, offsetof(struct seccomp_data, args[2]));
#ifdef __NR_open
	refuse_emptying(p, __NR_open, offsetof(struct seccomp_data, args[1]));
#endif
}

/* A file mapped to be shared would be written without a call. Memory of nobody's file may be. */
static void refuse_shared_maps(struct program *p)
{
	ADD(p, EQUAL(__NR_mmap, 0, 5));
	ADD(p, LOAD(args[3]));
	ADD(p, AND(MAP_SHARED | MAP_ANONYMOUS));
	ADD(p, EQUAL(MAP_SHARED, 0, 1));
	ADD(p, REFUSE(EPERM));
	ADD(p, PASS);
}

static void refuse_requests(struct program *p)
{
	ADD(p, EQUAL(__NR_ioctl, 1, 0));
	ADD(p, PASS);
	ADD(p, LOAD(args[1]));
	ADD(p, BPF_STMT(BPF_ALU | BPF_RSH | BPF_K, 8));
	ADD(p, AND(0xff));
	for (size_t i = 0; i < COUNT(asking); i++)
		ADD(p, EQUAL(asking[i], COUNT(asking) - i, 0));
	ADD(p, REFUSE(ENOTTY)); /* as of a file system that does not know it */
	ADD(p, PASS);
}

bool confine_changes(void)
{
	struct program p = {.size = 0};
	refuse_calls(&p);
	refuse_shared_maps(&p);
	refuse_requests(&p);
	struct sock_fprog program = {p.size, p.code};
	return !setrlimit(RLIMIT_FSIZE, &(struct rlimit){0, 0}) && !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) &&
	       !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}
