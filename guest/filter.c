/* The seccomp filter, written as a table and turned into BPF here: no library, no file, 0.1 ms.
 *
 * What is not in the table passes. The table holds the calls that reach parts of the kernel no build, test or script
 * needs and break-outs came from, and those that would undo another wall. */
#define _GNU_SOURCE
#include "guest.h"

#include <asm/unistd.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined __x86_64__
#define ARCH AUDIT_ARCH_X86_64
#elif defined __aarch64__
#define ARCH AUDIT_ARCH_AARCH64
#else
#error "the filter knows x86_64 and aarch64"
#endif

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x80
#endif
#define NAMESPACES (CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET)

#define X32_BIT 0x40000000
#define NETLINK_ROUTE 0
#define NO_RANDOM_ADDRESSES 0x0040000 /* personality(ADDR_NO_RANDOMIZE): debuggers and sanitizers */

/* Calls that are refused whatever their arguments. */
static const struct { int number, error; } refused[] = {
	/* Namespaces and mounts: every one of them is attack surface that only its own root would need. */
	{__NR_setns, EPERM},
	{__NR_clone3, ENOSYS}, /* its flags lie in memory, out of our sight; libraries fall back to clone */
	{__NR_mount, EPERM}, {__NR_umount2, EPERM}, {__NR_pivot_root, EPERM}, {__NR_chroot, EPERM},
	{__NR_open_tree, EPERM}, {__NR_move_mount, EPERM}, {__NR_fsopen, EPERM}, {__NR_fsconfig, EPERM},
	{__NR_fsmount, EPERM}, {__NR_fspick, EPERM}, {__NR_mount_setattr, EPERM},
	{467, EPERM}, /* open_tree_attr */
	/* Keyrings are shared by all processes of a user, namespaces or not. */
	{__NR_keyctl, EPERM}, {__NR_add_key, EPERM}, {__NR_request_key, EPERM},
	/* io_uring does work that no filter sees. */
	{__NR_io_uring_setup, ENOSYS}, {__NR_io_uring_enter, ENOSYS}, {__NR_io_uring_register, ENOSYS},
	/* Code, tracing and paging of the kernel's own. */
	{__NR_bpf, EPERM}, {__NR_perf_event_open, EPERM}, {__NR_userfaultfd, EPERM},
	{__NR_init_module, EPERM}, {__NR_finit_module, EPERM}, {__NR_delete_module, EPERM},
	{__NR_kexec_load, EPERM}, {__NR_kexec_file_load, EPERM},
	/* Another process's descriptors and kernel pointers; pidfd_getfd is no debugging need. */
	{__NR_pidfd_getfd, EPERM}, {__NR_kcmp, EPERM},
	/* Files by handle go round every directory on the way; fanotify watches whole file systems. */
	{__NR_open_by_handle_at, EPERM}, {__NR_name_to_handle_at, EPERM}, {__NR_fanotify_init, EPERM},
	/* The machine's, never a process's. */
	{__NR_reboot, EPERM}, {__NR_swapon, EPERM}, {__NR_swapoff, EPERM}, {__NR_acct, EPERM},
	{__NR_quotactl, EPERM}, {__NR_quotactl_fd, EPERM}, {__NR_syslog, EPERM}, {__NR_settimeofday, EPERM},
	{__NR_clock_settime, EPERM}, {__NR_adjtimex, EPERM}, {__NR_clock_adjtime, EPERM}, {__NR_vhangup, EPERM},
	{__NR_nfsservctl, ENOSYS}, {__NR_lookup_dcookie, EPERM},
	{__NR_move_pages, EPERM}, {__NR_migrate_pages, EPERM}, /* of other processes of the same user */
#ifdef __x86_64__
	{__NR_iopl, EPERM}, {__NR_ioperm, EPERM}, /* the machine's ports */
	{__NR_modify_ldt, EPERM},                 /* 16-bit segments: old bugs, old programs */
	{__NR_uselib, ENOSYS}, {__NR_ustat, ENOSYS}, {__NR_sysfs, ENOSYS}, {__NR__sysctl, ENOSYS},
	{__NR_create_module, ENOSYS}, {__NR_get_kernel_syms, ENOSYS}, {__NR_query_module, ENOSYS},
#endif
};

static const int tracing[] = {__NR_ptrace, __NR_process_vm_readv, __NR_process_vm_writev, __NR_process_madvise};

static struct sock_filter program[512];
static unsigned short length;

static void emit(struct sock_filter instruction) { program[length++] = instruction; }
static void answer(uint32_t verdict) { emit((struct sock_filter)BPF_STMT(BPF_RET | BPF_K, verdict)); }
static void refuse(int error) { answer(SECCOMP_RET_ERRNO | ((uint32_t)error & SECCOMP_RET_DATA)); }
static void load(uint32_t offset) { emit((struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offset)); }

/* The low half of an argument: all the kernel looks at where its type is `int`. Both machines are little-endian. */
static void load_argument(unsigned i)
{
	load((uint32_t)(__builtin_offsetof(struct seccomp_data, args) + 8 * i));
}

/* Skips the next instruction unless the accumulator is `value`, or has one of `bits`. */
static void if_equal(uint32_t value) { emit((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1)); }
static void unless_equal(uint32_t value) { emit((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 1, 0)); }
static void unless_any(uint32_t bits) { emit((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, bits, 1, 0)); }
static void if_any(uint32_t bits) { emit((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, bits, 0, 1)); }
static void mask(uint32_t bits) { emit((struct sock_filter)BPF_STMT(BPF_ALU | BPF_AND | BPF_K, bits)); }

/* The body of a call that is judged by its arguments: skipped over for every other call, and at its end allowed. */
static unsigned short begin(int number)
{
	emit((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)number, 0, 0));
	return length;
}

static void end(unsigned short start)
{
	answer(SECCOMP_RET_ALLOW);
	program[start - 1].jf = (uint8_t)(length - start);
}

static void check_machine(void)
{
	/* int 0x80 and 32-bit programs have other numbers for everything: the table would mean nothing. */
	load(__builtin_offsetof(struct seccomp_data, arch));
	unless_equal(ARCH);
	answer(SECCOMP_RET_KILL_PROCESS);
	load(__builtin_offsetof(struct seccomp_data, nr));
#ifdef __x86_64__
	/* x32: the same kernel functions under numbers of their own. */
	emit((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, X32_BIT, 0, 1));
	refuse(ENOSYS);
#endif
}

/* A setuid program left in the project would run on the host, with the rights of this place's owner, for whoever starts it
 * there. `flags` is the argument that says whether a file is made at all, or -1. */
static void check_mode(int number, int flags, unsigned mode)
{
	unsigned short start = begin(number);
	if (flags >= 0) {
		load_argument((unsigned)flags);
		unless_any(O_CREAT | (O_TMPFILE & ~O_DIRECTORY));
		answer(SECCOMP_RET_ALLOW);
	}
	load_argument(mode);
	if_any(place.set_id);
	refuse(EPERM);
	end(start);
}

static void check_modes(void)
{
	check_mode(__NR_openat, 2, 3); /* first, being the most frequent */
#ifdef __x86_64__
	check_mode(__NR_open, 1, 2);
	check_mode(__NR_creat, -1, 1);
	check_mode(__NR_chmod, -1, 1);
	check_mode(__NR_mknod, -1, 1);
#endif
	check_mode(__NR_fchmod, -1, 1);
	check_mode(__NR_fchmodat, -1, 2);
	check_mode(452 /* fchmodat2 */, -1, 2);
	check_mode(__NR_mknodat, -1, 2);
}

/* With the family in the accumulator and the type in X. What else IP has (SCTP, DCCP, MPTCP, L2TP, UDP-Lite) is much code
 * that nobody in here needs, in modules that a socket would load. */
static void check_ip(void)
{
	static const uint32_t protocols[] = {0, IPPROTO_TCP, IPPROTO_UDP, IPPROTO_ICMP, IPPROTO_ICMPV6};
	emit((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_INET, 1, 0));
	emit((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_INET6, 0, 0));
	unsigned short start = length;
	emit((struct sock_filter)BPF_STMT(BPF_MISC | BPF_TXA, 0));
	emit((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SOCK_STREAM, 2, 0));
	unless_equal(SOCK_DGRAM);
	refuse(EPERM);
	load_argument(2);
	for (unsigned i = 0; i < sizeof protocols / sizeof *protocols; i++) {
		if_equal(protocols[i]);
		answer(SECCOMP_RET_ALLOW);
	}
	refuse(EPROTONOSUPPORT); /* as a kernel without it says: programs go on with TCP */
	program[start - 1].jf = (uint8_t)(length - start);
}

/* Sockets: Unix, TCP and UDP, and the netlink that getifaddrs() speaks. Raw ones are a capability's matter, and denied again. */
static void check_socket(void)
{
	unsigned short start = begin(__NR_socket);
	load_argument(1);
	mask(0xf); /* the type without SOCK_CLOEXEC and SOCK_NONBLOCK; netlink's own is RAW or DGRAM */
	emit((struct sock_filter)BPF_STMT(BPF_MISC | BPF_TAX, 0));
	load_argument(0);
	if (!place.unix_sockets) {
		if_equal(AF_UNIX);
		refuse(EPERM);
	}
	emit((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_UNIX, 0, 6));
	emit((struct sock_filter)BPF_STMT(BPF_MISC | BPF_TXA, 0));
	if_equal(SOCK_RAW);
	refuse(EPERM);
	if_equal(SOCK_PACKET);
	refuse(EPERM);
	answer(SECCOMP_RET_ALLOW);
	check_ip();
	unless_equal(AF_NETLINK);
	refuse(EAFNOSUPPORT);
	load_argument(2);
	unless_equal(NETLINK_ROUTE);
	refuse(EPROTONOSUPPORT);
	end(start);
}

/* Only one user and one group exist in here. The kernel says EINVAL to every other, and that is not what programs expect
 * of "you may not": they expect EPERM, and treat it as no failure where they can do without. `last` is the last argument
 * that names one, of the kind `own`; `count` of them stand in a row. */
static void check_owner(unsigned last, unsigned count, uint64_t own)
{
	for (unsigned i = 0; i < count; i++) {
		load_argument(last - i);
		emit((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)own, 2, 0));
		emit((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0xffffffff, 1, 0)); /* as it is */
		refuse(EPERM);
	}
}

static void check_owners(void)
{
	static const struct { int number; unsigned last; } changes[] = {
#ifdef __x86_64__
		{__NR_chown, 2}, {__NR_lchown, 2},
#endif
		{__NR_fchown, 2}, {__NR_fchownat, 3},
	};
	for (unsigned i = 0; i < sizeof changes / sizeof *changes; i++) {
		unsigned short start = begin(changes[i].number);
		check_owner(changes[i].last - 1, 1, place.uid);
		check_owner(changes[i].last, 1, place.gid);
		end(start);
	}
	static const struct { int users, groups; unsigned count; } becoming[] = {
		{__NR_setuid, __NR_setgid, 1}, {__NR_setreuid, __NR_setregid, 2}, {__NR_setresuid, __NR_setresgid, 3},
	};
	for (unsigned i = 0; i < sizeof becoming / sizeof *becoming; i++) {
		unsigned short start = begin(becoming[i].users);
		check_owner(becoming[i].count - 1, becoming[i].count, place.uid);
		end(start);
		start = begin(becoming[i].groups);
		check_owner(becoming[i].count - 1, becoming[i].count, place.gid);
		end(start);
	}
}

static void check_namespaces(void)
{
	unsigned short start = begin(__NR_clone);
	load_argument(0);
	if_any(NAMESPACES);
	refuse(EPERM);
	end(start);

	start = begin(__NR_unshare); /* of files, directory or nothing: harmless */
	load_argument(0);
	if_any(NAMESPACES | CLONE_NEWTIME);
	refuse(EPERM);
	end(start);
}

static void check_ioctl(void)
{
	static const uint32_t refused_ioctls[] = {
		TIOCSTI,  /* types into the terminal as if the user had */
		TIOCSETD, /* line disciplines load modules */
		0x541c,   /* TIOCLINUX: pastes a selection on a console */
	};
	unsigned short start = begin(__NR_ioctl);
	load_argument(1);
	for (unsigned i = 0; i < 3; i++) {
		if_equal(refused_ioctls[i]);
		refuse(EPERM);
	}
	end(start);
}

static void check_personality(void)
{
	/* READ_IMPLIES_EXEC and old layouts weaken; asking does not */
	static const uint32_t personalities[] = {0, 0xffffffff, NO_RANDOM_ADDRESSES};
	unsigned short start = begin(__NR_personality);
	load_argument(0);
	for (unsigned i = 0; i < 3; i++) {
		if_equal(personalities[i]);
		answer(SECCOMP_RET_ALLOW);
	}
	refuse(EPERM);
	end(start);
}

static void check_limits(void)
{
	unsigned short start = begin(__NR_prlimit64); /* of the guest, who is the same user: no CPU time left would be its end */
	load_argument(0);
	if_equal(1);
	refuse(EPERM);
	load_argument(1);
	unless_equal(RLIMIT_CORE); /* see limits.c: lowered to 0 it would start the host's program for crashes */
	answer(SECCOMP_RET_ALLOW);
	for (unsigned half = 0; half < 2; half++) { /* a pointer: none, for those who only ask */
		load((uint32_t)(__builtin_offsetof(struct seccomp_data, args) + 8 * 2 + 4 * half));
		unless_equal(0);
		refuse(0); /* done: no core is what they want, and what they have */
	}
	end(start);

	start = begin(__NR_setrlimit);
	load_argument(0);
	if_equal(RLIMIT_CORE);
	refuse(0);
	end(start);
}

static void check_sockets(void)
{
	unsigned short start = begin(__NR_socketpair);
	load_argument(0);
	unless_equal(AF_UNIX);
	refuse(EAFNOSUPPORT);
	if (!place.unix_sockets) {
		/* Only pairs that cannot be connected to anything else: a datagram socket of a pair sends to any path. */
		load_argument(1);
		mask(0xf);
		if_equal(SOCK_STREAM);
		answer(SECCOMP_RET_ALLOW);
		if_equal(SOCK_SEQPACKET);
		answer(SECCOMP_RET_ALLOW);
		refuse(EPERM);
	}
	end(start);

	check_socket();
}

/* Calls that are judged by their arguments. */
static void check_arguments(void)
{
	check_namespaces();
	check_ioctl();
	check_personality();
	check_limits();
	check_sockets();
}

/* Where no control group counts memory, none may be had that is neither mapped (RLIMIT_AS) nor a file of a bounded tmpfs:
 * a memfd, or a System V segment that nobody is attached to. ENOSYS: libraries then take a file. A page is enough for
 * what databases use a segment for, a lock, and the kernel makes at most 4096 of them. */
static void count_memory(void)
{
	static const int anonymous[] = {__NR_memfd_create, 447 /* memfd_secret */};
	for (unsigned i = 0; i < 2; i++) {
		if_equal((uint32_t)anonymous[i]);
		refuse(ENOSYS);
	}
	unsigned short start = begin(__NR_shmget);
	load((uint32_t)(__builtin_offsetof(struct seccomp_data, args) + 8 + 4));
	unless_equal(0);
	refuse(ENOSYS);
	load_argument(1);
	emit((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, 4096, 0, 1));
	refuse(ENOSYS);
	end(start);
}

void install_filter(void)
{
	check_machine();
	check_modes();
	for (unsigned i = 0; i < sizeof refused / sizeof *refused; i++) {
		if_equal((uint32_t)refused[i].number);
		refuse(refused[i].error);
	}
	for (unsigned i = 0; i < sizeof tracing / sizeof *tracing && !place.allow_ptrace; i++) {
		if_equal((uint32_t)tracing[i]);
		refuse(EPERM);
	}
	if (place.count_memory)
		count_memory();
	check_arguments();
	check_owners();
	answer(SECCOMP_RET_ALLOW);
	struct sock_fprog whole = {length, program};
	if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &whole))
		fail("filter", NULL);
}

/* openat2 makes files, too, with a mode that lies in memory, out of our sight. The guest's own file requests need it;
 * tenants have openat, and libraries fall back to it. */
bool filter_tenant(void)
{
	static struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, __builtin_offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_openat2, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog whole = {sizeof code / sizeof *code, code};
	/* In a machine its file server stands in the way of such modes. */
	return !place.walls || place.machine || !syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &whole);
}
