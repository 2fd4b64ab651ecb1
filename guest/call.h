/* System calls that answer -errno and leave `errno` alone, which a child that shares our memory must. */
#ifndef GUEST_CALL_H
#define GUEST_CALL_H

static inline long call(long number, long a, long b, long c, long d)
{
#if defined __x86_64__
	register long fourth __asm__("r10") = d;
	long result;
	__asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(fourth) : "rcx", "r11", "memory");
	return result;
#else
	register long x8 __asm__("x8") = number, x0 __asm__("x0") = a, x1 __asm__("x1") = b, x2 __asm__("x2") = c, x3 __asm__("x3") = d;
	__asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3) : "memory");
	return x0;
#endif
}

#endif
