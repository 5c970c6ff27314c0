/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Counts packets and bytes per window of time, for `paceline burst`.
 *
 * The windows are cut here, by the kernel's clock, so that it does not matter
 * when user space looks. Each CPU has a row of its own in one array that user
 * space has mapped: no cache line is shared, and nothing has to be atomic, as
 * the hooks run with bottom halves off and do not interrupt one another.
 *
 * The command's options are constant when the programs are loaded, so the
 * verifier removes the code of unused ones.
 */
#include <linux/bpf.h>
#include <linux/types.h>
#include <stdbool.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>

#include "burst.h"

typedef __u64 u64;
typedef __u32 u32;
typedef __u16 u16;
typedef __u8 u8;

#define NEXT -1 /* TCX_NEXT and TC_ACT_UNSPEC: as if this program were not there */

/* include/uapi/linux/if_ether.h, in.h */
#define ETH_P_IP 0x0800
#define ETH_P_IPV6 0x86dd
#define ETH_P_8021Q 0x8100
#define ETH_P_8021AD 0x88a8
#define VLAN_VID_MASK 0x0fff
enum { HOP_BY_HOP = 0, TCP = 6, UDP = 17, DCCP = 33, ROUTING = 43, FRAGMENT = 44,
       AUTHENTICATION = 51, DESTINATION = 60, SCTP = 132, UDP_LITE = 136 };

#define MOST_TAGS 2 /* in the frame; a third has gone into the packet's metadata */
#define MOST_EXTENSIONS 4 /* of IPv6; a packet with more has no ports here */

const volatile struct pl_burst_config pl_burst_config = {};

/* A row of slots and one more for each CPU; its length is set before it is loaded. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct pl_burst_slot);
} pl_burst_slots SEC(".maps");

struct packet {
	u32 source[4], destination[4]; /* network order; IPv4 in the first */
	u32 header_bytes; /* in front of TCP's or UDP's payload; 0: not known */
	u16 vlan; /* PL_BURST_ANY: no tag */
	u16 source_port, destination_port; /* host order */
	u8 family; /* 4, 6, or 0: not IP */
	u8 protocol;
	bool has_ports;
};

static __always_inline bool asks_for_ports(void)
{
	return pl_burst_config.filter.either_port.asked ||
	       pl_burst_config.filter.source_port.asked ||
	       pl_burst_config.filter.destination_port.asked;
}

/* A packet as a hook shows it: `data` to `end` can be read at once, the rest by a call,
 * which costs as much as everything else here. */
struct view {
	void *ctx;
	void *data, *end;
	bool xdp;
};

static __always_inline bool load(const struct view *view, u32 at, void *to, u32 length)
{
	const u8 *from = view->data + at;

	if (from + length <= (const u8 *)view->end) {
		__builtin_memcpy(to, from, length);
		return true;
	}
	return (view->xdp ? bpf_xdp_load_bytes(view->ctx, at, to, length)
			  : bpf_skb_load_bytes(view->ctx, at, to, length)) == 0;
}

/* Reads the header after IP's, at `at`. */
static __always_inline void parse_ports(const struct view *view, u32 at, bool gso,
					struct packet *packet)
{
	u16 ports[2];
	u8 length;

	switch (packet->protocol) {
	case TCP:
		if (gso && load(view, at + 12, &length, sizeof(length)))
			packet->header_bytes = at + (length >> 4) * 4;
		break;
	case UDP:
		packet->header_bytes = at + 8;
		break;
	case SCTP:
	case DCCP:
	case UDP_LITE:
		break;
	default:
		return;
	}
	if (!asks_for_ports() || !load(view, at, ports, sizeof(ports)))
		return;
	packet->source_port = bpf_ntohs(ports[0]);
	packet->destination_port = bpf_ntohs(ports[1]);
	packet->has_ports = true;
}

static __always_inline void parse_ipv4(const struct view *view, u32 at, bool gso,
				       struct packet *packet)
{
	u32 header[5];

	if (!load(view, at, header, sizeof(header)))
		return;
	packet->family = 4;
	packet->protocol = bpf_ntohl(header[2]) >> 16 & 0xff;
	packet->source[0] = header[3];
	packet->destination[0] = header[4];
	/* A fragment that is not the first has no ports. */
	if ((bpf_ntohl(header[1]) & 0x1fff) == 0)
		parse_ports(view, at + (bpf_ntohl(header[0]) >> 24 & 0xf) * 4, gso, packet);
}

static __always_inline void parse_ipv6(const struct view *view, u32 at, bool gso,
				       struct packet *packet)
{
	u32 header[10];
	u16 extension[2]; /* next header and length; a fragment's offset */
	u32 next, length;

	if (!load(view, at, header, sizeof(header)))
		return;
	packet->family = 6;
	__builtin_memcpy(packet->source, &header[2], 16);
	__builtin_memcpy(packet->destination, &header[6], 16);
	next = bpf_ntohl(header[1]) >> 8 & 0xff;
	at += sizeof(header);
#pragma unroll
	for (int i = 0; i < MOST_EXTENSIONS; i++) {
		if (next != HOP_BY_HOP && next != ROUTING && next != FRAGMENT &&
		    next != AUTHENTICATION && next != DESTINATION)
			break;
		if (!load(view, at, extension, sizeof(extension)))
			return;
		length = bpf_ntohs(extension[0]) & 0xff;
		packet->protocol = next;
		if (next == FRAGMENT) {
			if (bpf_ntohs(extension[1]) & 0xfff8) {
				packet->protocol = bpf_ntohs(extension[0]) >> 8;
				return;
			}
			at += 8;
		} else if (next == AUTHENTICATION) {
			at += (length + 2) * 4;
		} else {
			at += (length + 1) * 8;
		}
		next = bpf_ntohs(extension[0]) >> 8;
	}
	packet->protocol = next;
	parse_ports(view, at, gso, packet);
}

static __always_inline void parse(const struct view *view, bool gso, struct packet *packet)
{
	u16 type, tag;
	u32 at = 0;
	u8 version;

	if (pl_burst_config.ethernet) {
		if (!load(view, 12, &type, sizeof(type)))
			return;
		at = 14;
#pragma unroll
		for (int i = 0; i < MOST_TAGS; i++) {
			if (type != bpf_htons(ETH_P_8021Q) && type != bpf_htons(ETH_P_8021AD))
				break;
			if (!load(view, at, &tag, sizeof(tag)) ||
			    !load(view, at + 2, &type, sizeof(type)))
				return;
			if (packet->vlan == PL_BURST_ANY)
				packet->vlan = bpf_ntohs(tag) & VLAN_VID_MASK;
			at += 4;
		}
	} else {
		if (!load(view, 0, &version, sizeof(version)))
			return;
		type = version >> 4 == 6 ? bpf_htons(ETH_P_IPV6) : bpf_htons(ETH_P_IP);
	}
	if (type == bpf_htons(ETH_P_IP))
		parse_ipv4(view, at, gso, packet);
	else if (type == bpf_htons(ETH_P_IPV6))
		parse_ipv6(view, at, gso, packet);
}

static __always_inline bool has_address(const volatile struct pl_burst_address *wanted,
					const u32 *address)
{
	return (address[0] & wanted->mask[0]) == wanted->bits[0] &&
	       (wanted->family == 4 || ((address[1] & wanted->mask[1]) == wanted->bits[1] &&
					(address[2] & wanted->mask[2]) == wanted->bits[2] &&
					(address[3] & wanted->mask[3]) == wanted->bits[3]));
}

static __always_inline bool has_port(const volatile struct pl_burst_ports *wanted, u16 port)
{
	return wanted->least <= port && port <= wanted->most;
}

static __always_inline bool matches(const struct packet *packet)
{
	const volatile struct pl_burst_filter *filter = &pl_burst_config.filter;

	if (filter->vlan == PL_BURST_TAGGED && packet->vlan == PL_BURST_ANY)
		return false;
	if (filter->vlan < PL_BURST_TAGGED && packet->vlan != filter->vlan)
		return false;
	if (filter->family && packet->family != filter->family)
		return false;
	if (filter->protocol != PL_BURST_ANY &&
	    (!packet->family || packet->protocol != filter->protocol))
		return false;
	if (filter->either.family &&
	    (packet->family != filter->either.family ||
	     (!has_address(&filter->either, packet->source) &&
	      !has_address(&filter->either, packet->destination))))
		return false;
	if (filter->source.family && (packet->family != filter->source.family ||
				      !has_address(&filter->source, packet->source)))
		return false;
	if (filter->destination.family && (packet->family != filter->destination.family ||
					   !has_address(&filter->destination, packet->destination)))
		return false;
	if (filter->either_port.asked &&
	    (!packet->has_ports || (!has_port(&filter->either_port, packet->source_port) &&
				    !has_port(&filter->either_port, packet->destination_port))))
		return false;
	if (filter->source_port.asked &&
	    (!packet->has_ports || !has_port(&filter->source_port, packet->source_port)))
		return false;
	if (filter->destination_port.asked &&
	    (!packet->has_ports || !has_port(&filter->destination_port, packet->destination_port)))
		return false;
	return true;
}

/* The window of a CPU's last packet, in the slot behind its row: most packets are in the
 * same one, and a division costs more than all the rest of this. */
static __always_inline u64 window_of(u64 now, struct pl_burst_slot *last)
{
	u64 window;

	if (now - last->start_ns < pl_burst_config.window_ns)
		return last->window;
	window = (now - pl_burst_config.origin_ns) / pl_burst_config.window_ns;
	last->window = window;
	last->start_ns = pl_burst_config.origin_ns + window * pl_burst_config.window_ns;
	return window;
}

static __always_inline void count(u64 packets, u64 bytes)
{
	struct pl_burst_slot *last, *slot;
	u64 now = bpf_ktime_get_ns();
	u32 row = bpf_get_smp_processor_id() * (pl_burst_config.slots + 1);
	u32 at = row + pl_burst_config.slots;
	u64 window;

	if (now < pl_burst_config.origin_ns)
		return;
	last = bpf_map_lookup_elem(&pl_burst_slots, &at);
	if (!last)
		return;
	window = window_of(now, last);
	at = row + ((u32)window & (pl_burst_config.slots - 1));
	slot = bpf_map_lookup_elem(&pl_burst_slots, &at);
	if (!slot)
		return;
	if (slot->window != window) {
		slot->packets = 0;
		slot->bytes = 0;
		slot->window = window;
	}
	slot->packets += packets;
	slot->bytes += bytes;
}

static __always_inline int on_skb(struct __sk_buff *skb)
{
	struct packet packet = { .vlan = PL_BURST_ANY };
	u64 segments = 1, bytes = skb->len;
	bool gso = !pl_burst_config.whole_packets && skb->gso_size;
	const struct view view = {
		.ctx = skb,
		.data = (void *)(long)skb->data,
		.end = (void *)(long)skb->data_end,
	};

	if (pl_burst_config.filter.active || gso) {
		if (skb->vlan_present)
			packet.vlan = skb->vlan_tci & VLAN_VID_MASK;
		parse(&view, gso, &packet);
	}
	if (pl_burst_config.filter.active && !matches(&packet))
		return NEXT;
	if (gso) {
		segments = skb->gso_segs;
		/* Guests and taps may leave the number to the segmenting device. */
		if (!segments && skb->len > packet.header_bytes)
			segments = (skb->len - packet.header_bytes + skb->gso_size - 1) /
				   skb->gso_size;
		if (segments > 1)
			bytes += (segments - 1) * packet.header_bytes;
		else
			segments = 1;
	}
	count(segments, bytes);
	return NEXT;
}

SEC("tcx/ingress")
int pl_burst_in(struct __sk_buff *skb)
{
	return on_skb(skb);
}

SEC("tcx/egress")
int pl_burst_out(struct __sk_buff *skb)
{
	return on_skb(skb);
}

/* Before the kernel has allocated an skb: nothing is segmented or merged yet. */
SEC("xdp.frags")
int pl_burst_xdp(struct xdp_md *xdp)
{
	struct packet packet = { .vlan = PL_BURST_ANY };
	const struct view view = {
		.ctx = xdp,
		.data = (void *)(long)xdp->data,
		.end = (void *)(long)xdp->data_end,
		.xdp = true,
	};

	if (pl_burst_config.filter.active) {
		parse(&view, false, &packet);
		if (!matches(&packet))
			return XDP_PASS;
	}
	count(1, bpf_xdp_get_buff_len(xdp));
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "GPL";
