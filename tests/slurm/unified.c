/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Shows slurmd the cgroups of a process as on a host without v1 hierarchies. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static int unified(int from)
{
	int to = memfd_create("cgroup", MFD_CLOEXEC);
	char line[8192];
	FILE *lines = fdopen(from, "r");

	while (lines && fgets(line, sizeof(line), lines))
		if (!strncmp(line, "0::", 3))
			(void)!write(to, line, strlen(line));
	if (lines)
		fclose(lines);
	lseek(to, 0, SEEK_SET);
	return to;
}

static int is_cgroup(const char *path)
{
	return !fnmatch("/proc/*/cgroup", path, FNM_PATHNAME);
}

static int open_file(const char *name, const char *path, int flags, mode_t mode)
{
	int (*next)(const char *, int, ...) = dlsym(RTLD_NEXT, name);
	int file = next(path, flags, mode);

	return file >= 0 && is_cgroup(path) ? unified(file) : file;
}

int open(const char *path, int flags, ...)
{
	va_list more;
	va_start(more, flags);
	mode_t mode = flags & O_CREAT ? va_arg(more, mode_t) : 0;
	va_end(more);
	return open_file("open", path, flags, mode);
}

int open64(const char *path, int flags, ...)
{
	va_list more;
	va_start(more, flags);
	mode_t mode = flags & O_CREAT ? va_arg(more, mode_t) : 0;
	va_end(more);
	return open_file("open64", path, flags, mode);
}

FILE *fopen(const char *path, const char *mode)
{
	FILE *(*next)(const char *, const char *) = dlsym(RTLD_NEXT, "fopen");
	FILE *file = next(path, mode);

	if (!file || !is_cgroup(path))
		return file;
	return fdopen(unified(fileno(file)), "r");
}
