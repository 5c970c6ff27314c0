/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#define _GNU_SOURCE
#include "client.h"

#include <dlfcn.h>
#include <limits.h>
#include <string.h>

#define NAME "libpaceline.so"

struct client client;

/* Beside the shim. */
static void *open_beside(void)
{
	char path[PATH_MAX];
	const char *slash;
	size_t length;
	Dl_info info;

	if (!dladdr(&client, &info) || !info.dli_fname)
		return NULL;
	slash = strrchr(info.dli_fname, '/');
	length = slash ? (size_t)(slash - info.dli_fname) + 1 : 0;
	if (length + sizeof(NAME) > sizeof(path))
		return NULL;
	memcpy(path, info.dli_fname, length);
	memcpy(path + length, NAME, sizeof(NAME));
	return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

bool client_load(void)
{
	void *library = RTLD_DEFAULT;

	/*
	 * One library per process, as it assigns the classes: first the program's
	 * own, if it is linked with one or has opened it.
	 */
	if (!dlsym(RTLD_DEFAULT, "paceline_enter")) {
		library = dlopen(NAME, RTLD_NOW | RTLD_NOLOAD);
		if (!library)
			library = open_beside();
		if (!library)
			return false;
	}
	client.enter = (int (*)(unsigned int))dlsym(library, "paceline_enter");
	client.leave = (int (*)(void))dlsym(library, "paceline_leave");
	client.begin = (int (*)(unsigned int))dlsym(library, "paceline_begin");
	client.end = (int (*)(int))dlsym(library, "paceline_end");
	client.class_new = (int (*)(void))dlsym(library, "paceline_class_new");
	client.class_free = (int (*)(unsigned int))dlsym(library, "paceline_class_free");
	client.active = (int (*)(void))dlsym(library, "paceline_active");
	return client.enter && client.leave && client.begin && client.end &&
	       client.class_new && client.class_free && client.active;
}
