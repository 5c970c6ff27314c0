/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* A program without MPI, built with unusual options: prints whether the shim is loaded. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(void)
{
	char line[4096], *copy;
	FILE *maps = fopen("/proc/self/maps", "r");
	int loaded = 0;

	if (!maps)
		return 1;
	while (fgets(line, sizeof(line), maps)) {
		copy = malloc(strlen(line) + 1); /* a function that AddressSanitizer replaces */
		loaded |= strstr(strcpy(copy, line), "libpaceline-mpi.so") != NULL;
		free(copy);
	}
	fclose(maps);
	puts(loaded ? "with the shim" : "without the shim");
	return 0;
}
