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
	for (; good && permissions->path; permissions++)
		good = allow(rules, permissions->path, permissions->what == CHANGE ? attr.handled_access_fs
						       : permissions->what == READ ? READING : LANDLOCK_ACCESS_FS_READ_DIR);
	return good && !syscall(SYS_landlock_restrict_self, rules, 0) && !close(rules);
}

/* Calls by which a file could be changed, removed or moved. What is written at all is stopped by a size limit of 0. */
static const int changing[] = {
	__NR_ftruncate, __NR_truncate, __NR_fallocate, __NR_unlinkat, __NR_renameat2, __NR_linkat, __NR_symlinkat, __NR_mkdirat,
	__NR_mknodat, __NR_fchmod, __NR_fchmodat, __NR_fchown, __NR_fchownat, __NR_utimensat, __NR_copy_file_range,
	__NR_execveat,
#ifdef __NR_unlink
	__NR_unlink, __NR_rmdir, __NR_rename, __NR_link, __NR_symlink, __NR_mkdir, __NR_mknod, __NR_chmod, __NR_chown, __NR_lchown,
	__NR_creat,
#endif
#ifdef __NR_renameat
	__NR_renameat,
#endif
};

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define REFUSE BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM)
#define PASS BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

bool confine_changes(void)
{
	struct sock_filter filter[2 * (sizeof changing / sizeof *changing) + 16];
	unsigned short n = 0;
	/* The room's own filter has looked at the architecture already. */
	filter[n++] = (struct sock_filter)LOAD(nr);
	for (size_t i = 0; i < sizeof changing / sizeof *changing; i++) {
		filter[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)changing[i], 0, 1);
		filter[n++] = (struct sock_filter)REFUSE;
	}
	/* A file mapped to be shared would be written without a call. Memory of nobody's file may be. */
	filter[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_mmap, 0, 6);
	filter[n++] = (struct sock_filter)LOAD(args[3]);
	filter[n++] = (struct sock_filter)BPF_STMT(BPF_ALU | BPF_AND | BPF_K, MAP_SHARED | MAP_ANONYMOUS);
	filter[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, MAP_SHARED, 0, 2);
	filter[n++] = (struct sock_filter)REFUSE;
	filter[n++] = (struct sock_filter)PASS;
	filter[n++] = (struct sock_filter)PASS;
	filter[n++] = (struct sock_filter)PASS;
	struct sock_fprog program = {n, filter};
	return !setrlimit(RLIMIT_FSIZE, &(struct rlimit){0, 0}) && !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) &&
	       !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}
