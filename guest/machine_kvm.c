/* Does this host run virtual processors? `/dev/kvm` can be there, and even run the few instructions that a boot begins with, where
 * it does not. So a small program is run as a kernel is: in 64 bits, with page tables of its own. Prints "works", or what does not. */
#define _GNU_SOURCE
#include "machine.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <unistd.h>

#if defined __x86_64__
#include <linux/kvm.h>

#define PAGE 4096
#define TABLES 1 /* the page of the first of three page tables, after the program's */
#define PAGES (TABLES + 3)
#define PATIENCE_US 500000 /* where it works, it takes a hundredth of that */
#define PRESENT 3
#define LARGE 0x80
#define PAGING 0x80000001u /* cr0: PG, PE */
#define PAE 0x20           /* cr4 */
#define LONG_MODE 0x500    /* efer: LME, LMA */

/* Counts down in a loop, reads what it is by CPUID, changes its own page tables' base to what it is, and halts. */
static const uint8_t program[] = {
	0xb9, 0x40, 0x42, 0x0f, 0x00, /* mov ecx, 1000000 */
	0xff, 0xc9, 0x75, 0xfc,       /* dec ecx; jnz */
	0x31, 0xc0, 0x0f, 0xa2,       /* xor eax, eax; cpuid */
	0x0f, 0x20, 0xd8, 0x0f, 0x22, 0xd8, /* mov rax, cr3; mov cr3, rax */
	0xf4,                         /* hlt */
};

static noreturn void say(const char *what)
{
	dprintf(1, "%s: %s\n", what, strerror(errno));
	_exit(0);
}

static void too_long(int signal)
{
	static const char said[] = "a virtual processor does not get on\n";
	(void)signal;
	_exit(write(1, said, sizeof said - 1) < 0);
}

static void map_all(char *memory)
{
	uint64_t *tables = (void *)(memory + TABLES * PAGE);
	tables[0] = (TABLES + 1) * PAGE | PRESENT;
	tables[512] = (TABLES + 2) * PAGE | PRESENT;
	tables[1024] = 0 | PRESENT | LARGE; /* the first two megabytes */
}

static bool enter_long_mode(int cpu)
{
	struct kvm_sregs s;
	struct kvm_regs registers = {.rflags = 2};
	if (ioctl(cpu, KVM_GET_SREGS, &s))
		return false;
	s.cr3 = TABLES * PAGE, s.cr4 = PAE, s.cr0 = PAGING, s.efer = LONG_MODE;
	s.cs = (struct kvm_segment){.limit = 0xffffffff, .selector = 8, .type = 11, .present = 1, .s = 1, .l = 1, .g = 1};
	s.ds = s.es = s.fs = s.gs = s.ss =
		(struct kvm_segment){.limit = 0xffffffff, .selector = 16, .type = 3, .present = 1, .db = 1, .s = 1, .g = 1};
	return !ioctl(cpu, KVM_SET_SREGS, &s) && !ioctl(cpu, KVM_SET_REGS, &registers);
}

noreturn void machine_kvm(void)
{
	signal(SIGALRM, too_long);
	setitimer(ITIMER_REAL, &(struct itimerval){.it_value.tv_usec = PATIENCE_US}, NULL);
	int kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC);
	if (kvm < 0)
		say("/dev/kvm");
	int vm = ioctl(kvm, KVM_CREATE_VM, 0), size = ioctl(kvm, KVM_GET_VCPU_MMAP_SIZE, 0);
	char *memory = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (vm < 0 || size < (int)sizeof(struct kvm_run) || memory == MAP_FAILED)
		say("a virtual machine");
	memcpy(memory, program, sizeof program);
	map_all(memory);
	struct kvm_userspace_memory_region region = {.memory_size = PAGES * PAGE, .userspace_addr = (uint64_t)memory};
	int cpu = ioctl(vm, KVM_SET_USER_MEMORY_REGION, &region) ? -1 : ioctl(vm, KVM_CREATE_VCPU, 0);
	struct kvm_run *run = cpu < 0 ? MAP_FAILED : mmap(NULL, (size_t)size, PROT_READ | PROT_WRITE, MAP_SHARED, cpu, 0);
	if (run == MAP_FAILED || !enter_long_mode(cpu) || ioctl(cpu, KVM_RUN, 0))
		say("a virtual processor");
	if (run->exit_reason == KVM_EXIT_HLT)
		dprintf(1, "works\n");
	else
		dprintf(1, "a virtual processor ended with reason %u\n", run->exit_reason);
	_exit(0);
}
#else
noreturn void machine_kvm(void)
{
	dprintf(1, "not on this processor\n");
	_exit(0);
}
#endif
