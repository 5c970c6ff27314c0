/* SPDX-License-Identifier: GPL-2.0 */
/* One object with one set of maps: the agent loads this. */
#include "congestion.bpf.c"
#include "connection.bpf.c"
#include "set.bpf.c"
#include "socket_option.bpf.c"
#include "observe.bpf.c"
#include "held.bpf.c"

char LICENSE[] SEC("license") = "GPL";
