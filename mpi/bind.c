/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * An object reaches a function of another one through a slot, which the dynamic linker
 * fills, at once or at the first call; a relocation has its place and its symbol.
 * ELF gABI, chapter 5; x86-64 psABI, 4.4.1; AAELF64, 5.7.
 */
#define _GNU_SOURCE
#include "bind.h"

#include <elf.h>
#include <link.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifdef __x86_64__
#define CALL_SLOT R_X86_64_JUMP_SLOT
#define ADDRESS_SLOT R_X86_64_GLOB_DAT
#else
#define CALL_SLOT R_AARCH64_JUMP_SLOT
#define ADDRESS_SLOT R_AARCH64_GLOB_DAT
#endif

/* A loaded object, as far as it matters here. */
struct object {
	const struct dl_phdr_info *info;
	const Elf64_Sym *symbols;
	const char *names;
	const Elf64_Rela *tables[2];
	size_t lengths[2];
};

/* glibc has replaced an offset in the dynamic section by the address, musl has not. */
static const void *address_in(const struct dl_phdr_info *info, Elf64_Addr value)
{
	return (const void *)(value < info->dlpi_addr ? info->dlpi_addr + value : value);
}

static bool read_object(struct object *object, const struct dl_phdr_info *info)
{
	const Elf64_Dyn *dynamic = NULL;
	size_t i;

	*object = (struct object){ .info = info };
	for (i = 0; i < info->dlpi_phnum; i++)
		if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
			dynamic = (const Elf64_Dyn *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
	for (; dynamic && dynamic->d_tag != DT_NULL; dynamic++) {
		switch (dynamic->d_tag) {
		case DT_SYMTAB:
			object->symbols = address_in(info, dynamic->d_un.d_ptr);
			break;
		case DT_STRTAB:
			object->names = address_in(info, dynamic->d_un.d_ptr);
			break;
		case DT_RELA:
			object->tables[0] = address_in(info, dynamic->d_un.d_ptr);
			break;
		case DT_RELASZ:
			object->lengths[0] = dynamic->d_un.d_val / sizeof(Elf64_Rela);
			break;
		case DT_JMPREL:
			object->tables[1] = address_in(info, dynamic->d_un.d_ptr);
			break;
		case DT_PLTRELSZ:
			object->lengths[1] = dynamic->d_un.d_val / sizeof(Elf64_Rela);
			break;
		}
	}
	return object->symbols && object->names;
}

static bool is_in_segment(const struct dl_phdr_info *info, const Elf64_Phdr *segment,
			  const void *address)
{
	uintptr_t start = info->dlpi_addr + segment->p_vaddr;

	return (uintptr_t)address >= start && (uintptr_t)address < start + segment->p_memsz;
}

static bool is_inside(const struct object *object, const void *address)
{
	const struct dl_phdr_info *info = object->info;
	size_t i;

	for (i = 0; i < info->dlpi_phnum; i++)
		if (info->dlpi_phdr[i].p_type == PT_LOAD &&
		    is_in_segment(info, &info->dlpi_phdr[i], address))
			return true;
	return false;
}

/* Slots that were filled when the program started may have been made read-only since. */
static bool is_protected(const struct object *object, const void *address)
{
	const struct dl_phdr_info *info = object->info;
	size_t i;

	for (i = 0; i < info->dlpi_phnum; i++)
		if (info->dlpi_phdr[i].p_type == PT_GNU_RELRO &&
		    is_in_segment(info, &info->dlpi_phdr[i], address))
			return true;
	return false;
}

static void fill(const struct object *object, void **slot, void *function)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	void *start = (void *)((uintptr_t)slot & ~(page - 1));
	bool protected = is_protected(object, slot);

	if (protected && mprotect(start, page, PROT_READ | PROT_WRITE) != 0)
		return; /* the library's own function is kept, without a phase */
	/* Other threads may call through it now: they find the one or the other. */
	__atomic_store_n(slot, function, __ATOMIC_RELEASE);
	if (protected)
		(void)mprotect(start, page, PROT_READ);
}

static struct bound *find(const char *name)
{
	struct { struct bound *bound; unsigned int length; } tables[] = {
		{ c_bound, c_bound_length }, { fortran_bound, fortran_bound_length },
	};
	unsigned int i, j;

	/* This rejects most names. */
	if ((name[0] != 'M' || name[1] != 'P') && (name[0] != 'm' || name[1] != 'p'))
		return NULL;
	for (i = 0; i < 2; i++)
		for (j = 0; j < tables[i].length; j++)
			if (strcmp(tables[i].bound[j].next->name, name) == 0)
				return &tables[i].bound[j];
	return NULL;
}

static void visit_slot(const struct object *object, const Elf64_Rela *rela, bool finding)
{
	const Elf64_Sym *symbol = &object->symbols[ELF64_R_SYM(rela->r_info)];
	Elf64_Word type = ELF64_R_TYPE(rela->r_info);
	void **slot = (void **)(object->info->dlpi_addr + rela->r_offset);
	struct bound *bound;
	void *function, *now;

	if (type != CALL_SLOT && type != ADDRESS_SLOT)
		return;
	if (symbol->st_shndx != SHN_UNDEF) /* its own: the MPI library, or a profiler */
		return;
	bound = find(object->names + symbol->st_name);
	if (!bound)
		return;
	/* Empty: a weak reference that the linker could not resolve. */
	now = __atomic_load_n(slot, __ATOMIC_RELAXED);
	if (!now)
		return;
	if (finding) {
		bound->referred = true;
		return;
	}
	/* Not yet filled, a slot leads to the object's own stub. Else another tool has filled it. */
	function = atomic_load_explicit(&bound->next->function, memory_order_relaxed);
	if (function && (now == function || (type == CALL_SLOT && is_inside(object, now))))
		fill(object, slot, bound->wrapper);
}

static int visit_object(struct dl_phdr_info *info, size_t size, void *data)
{
	const bool *finding = data;
	struct object object;
	size_t table, i;

	(void)size;
	if (!read_object(&object, info))
		return 0;
	for (table = 0; table < 2; table++)
		for (i = 0; object.tables[table] && i < object.lengths[table]; i++)
			visit_slot(&object, &object.tables[table][i], *finding);
	return 0;
}

static void resolve(struct bound *bound, unsigned int length)
{
	unsigned int i;

	for (i = 0; i < length; i++)
		if (bound[i].referred)
			(void)next_function(bound[i].next);
}

void bind_all(void)
{
	bool finding = true;

	dl_iterate_phdr(visit_object, &finding);
	/* Not in the callback, which holds a lock of the loader: see next.c. */
	resolve(c_bound, c_bound_length);
	resolve(fortran_bound, fortran_bound_length);
	finding = false;
	dl_iterate_phdr(visit_object, &finding);
}
