/* SPDX-License-Identifier: GPL-2.0 */
/* The job of a socket. The including file has the map pl_jobs. */
#ifndef PACELINE_JOB_H
#define PACELINE_JOB_H

#include "kernel.h"

#define PL_CGROUP_DEPTH 32 /* deeper nesting than systemd or Slurm make */

/* Id of a cgroup's ancestor, or of itself, by its level; 0: there is none. */
static __always_inline u64 ancestor_of(struct cgroup *cgroup, int level)
{
	struct cgroup *at = NULL;

	bpf_probe_read_kernel(&at, sizeof(at),
			      (void *)cgroup + bpf_core_field_offset(struct cgroup, ancestors) + level * sizeof(at));
	return at ? BPF_CORE_READ(at, kn, id) : 0;
}

/* The innermost job that a socket's cgroup belongs to, or 0. */
static __always_inline u64 job_of(const struct tcp_sock *tp)
{
	const struct sock *sk = (const struct sock *)tp;
	struct cgroup *cgroup = BPF_CORE_READ(sk, sk_cgrp_data.cgroup);
	int level = cgroup ? BPF_CORE_READ(cgroup, level) : -1;

	for (int i = 0; i < PL_CGROUP_DEPTH && level >= 0; i++, level--) {
		u64 id = ancestor_of(cgroup, level);

		if (!id)
			break;
		if (bpf_map_lookup_elem(&pl_jobs, &id))
			return id;
	}
	return 0;
}

#endif
