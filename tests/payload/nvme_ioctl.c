#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct command {
	uint8_t opcode, flags; uint16_t rsvd; uint32_t nsid, cdw2, cdw3;
	uint64_t metadata, addr; uint32_t metadata_len, data_len, cdw10;
};

static int answer(int fd, struct command *c)
{
	char link[64], name[4096], path[8192];
	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	ssize_t n = readlink(link, name, sizeof name - 1);
	if (n < 0) return -1;
	name[n] = 0;
	snprintf(path, sizeof path, "%s.log%02x", name, c->opcode == 2 ? c->cdw10 & 0xff : 0x1000 | c->opcode);
	FILE *file = fopen(path, "rb");
	if (!file) { errno = EIO; return -1; }
	memset((void *)(uintptr_t)c->addr, 0, c->data_len);
	size_t got = fread((void *)(uintptr_t)c->addr, 1, c->data_len, file);
	(void)got;
	fclose(file);
	return 0;
}

int ioctl(int fd, unsigned long request, ...)
{
	static int (*real)(int, unsigned long, void *);
	va_list list; va_start(list, request); void *argument = va_arg(list, void *); va_end(list);
	if (!real) real = dlsym(RTLD_NEXT, "ioctl");
	if ((uint32_t)request == 0xC0484E41u || (uint32_t)request == 0xC0504E47u) return answer(fd, argument);
	return real(fd, request, argument);
}
