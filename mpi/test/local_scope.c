/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Opens a plugin as Python does, so that its MPI library is not in the global scope. */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv)
{
	void *plugin = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
	int (*run)(void) = plugin ? (int (*)(void))dlsym(plugin, "run") : NULL;

	if (!run) {
		fprintf(stderr, "%s\n", dlerror());
		return 2;
	}
	if (dlsym(RTLD_DEFAULT, "PMPI_Init")) {
		fprintf(stderr, "the MPI library is in the global scope: this shows nothing\n");
		return 2;
	}
	return run();
}
