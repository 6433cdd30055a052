package tunable

import "time"

// table returns every tunable. It is a function, because a variable could be changed for all ranks
// of the process.
func table() []Tunable {
	return []Tunable{
		{
			Key: "btl", Kind: List, Default: "self,sm,ibverbs,tcp",
			Allowed: []string{"self", "sm", "ibverbs", "tcp"},
			Doc:     "transports that may be used, in order of preference; each rank is reached by the first that leads there",
		},
		{
			Key: "sm.ring.slots", Kind: Int, Default: "256", Min: 2, Max: 1 << 20,
			Doc: "fragments in flight to one peer on the same machine",
		},
		{
			Key: "sm.ring.bytes", Kind: Bytes, Default: "1M", Min: 4 << 10, Max: 1 << 32,
			Doc: "shared memory for the payload in flight to one peer on the same machine",
		},
		{
			Key: "sm.frag.bytes", Kind: Bytes, Default: "32K", Min: 256, Max: 1 << 30,
			Doc: "largest payload of one fragment through shared memory",
		},
		{
			Key: "ibverbs.devices", Kind: List, Default: "all",
			wellFormed: wellFormedPorts, form: "all, or a list such as mlx5_0,mlx5_1:2 or a|b,c|d of devices and their ports, from 1 to 255, none twice for one rank",
			Doc: "RDMA rails: mlx5_0,mlx5_1:2 are two, the second on port 2; a|b is one, for which the ranks of a machine take a and b in turn; all, which stands alone: every port that is up",
		},
		{
			Key: "ibverbs.gid", Kind: Int, Default: "-1", Min: -1, Max: 255,
			Doc: "index in the port's GID table; -1: chosen (RoCE v2, preferably IPv4)",
		},
		{
			Key: "ibverbs.frag.bytes", Kind: Bytes, Default: "8K", Min: 256, Max: 512 << 10,
			Doc: "largest payload of one fragment over verbs",
		},
		{
			Key: "ibverbs.recv.depth", Kind: Int, Default: "64", Min: 8, Max: 4096,
			Doc: "fragments that one peer may send over verbs before this rank polls",
		},
		{
			Key: "ibverbs.send.depth", Kind: Int, Default: "128", Min: 4, Max: 4096,
			Doc: "operations in flight to one peer over verbs",
		},
		{
			Key: "ibverbs.eager.peers", Kind: Int, Default: "8", Min: 0, Max: 4096,
			Doc: "peers that may write small fragments directly into this rank's memory over verbs; 0: none",
		},
		{
			Key: "ibverbs.eager.after", Kind: Int, Default: "16", Min: 1, Max: 1 << 30,
			Doc: "number of small fragments after which a peer, if ibverbs.eager.peers has room, gets memory to write them to",
		},
		{
			Key: "ibverbs.timeout", Kind: Int, Default: "14", Min: 1, Max: 31,
			Doc: "time of a device's ACK timeout over verbs: 4.096 us * 2^this",
		},
		{
			Key: "ibverbs.retry", Kind: Int, Default: "6", Min: 1, Max: 7,
			Doc: "retries after an ACK timeout over verbs before the connection fails",
		},
		{
			Key: "ibverbs.deadline", Kind: Duration, Default: "10s", Min: int64(time.Millisecond), Max: int64(time.Hour),
			Doc: "time after which a peer over verbs fails that does not answer a connection request, or completes none of the operations in flight to it",
		},
		{
			Key: "ibverbs.keepalive", Kind: Duration, Default: "2s", Min: 0, Max: int64(time.Hour),
			Doc: "idle time before a connection over verbs is probed; 0: never",
		},
		{
			Key: "ibverbs.port.grace", Kind: Duration, Default: "20ms", Min: int64(time.Millisecond), Max: int64(time.Hour),
			Doc: "time that a port may be down before its connections fail",
		},
		{
			Key: "tcp.include", Kind: List, Default: "all",
			wellFormed: wellFormedAddresses("all"), form: "all, or a list such as eth0,10.0.0.1,10.0.0.0/8,fd00::/8 of interfaces, addresses and networks",
			Doc: "interfaces (eth0), addresses or networks (10.0.0.0/8) to use as TCP rails, each machine those that it has; all: one address of each interface, without those of containers and virtual machines, and loopback only if there is no other",
		},
		{
			Key: "tcp.exclude", Kind: List, Default: "none",
			wellFormed: wellFormedAddresses("none"), form: "none, or a list such as eth0,10.0.0.1,10.0.0.0/8,fd00::/8 of interfaces, addresses and networks",
			Doc: "interfaces, addresses or networks not to use as TCP rails",
		},
		{
			Key: "tcp.ports", Kind: String, Default: "any",
			wellFormed: wellFormedRange, form: "any, or FIRST-LAST with ports from 1 to 65535, such as 20000-20099",
			Doc: "ports that ranks may listen on, for firewalls: each rank of a machine takes one for each of its TCP rails; any: the system chooses",
		},
		{
			Key: "tcp.frag.bytes", Kind: Bytes, Default: "128K", Min: 256, Max: 2 << 20,
			Doc: "largest payload of one fragment over TCP",
		},
		{
			Key: "tcp.eager.bytes", Kind: Bytes, Default: "64K", Min: 256, Max: 2 << 20,
			Doc: "largest message over TCP that is sent at once, without waiting for its receive",
		},
		{
			Key: "tcp.deadline", Kind: Duration, Default: "10s", Min: int64(time.Millisecond), Max: int64(time.Hour),
			Doc: "time after which a peer's machine fails that does not answer a TCP connection request, or does not acknowledge data in flight",
		},
		{
			Key: "tcp.keepalive", Kind: Duration, Default: "10s", Min: int64(time.Second), Max: int64(time.Hour),
			Doc: "idle time before the system probes a TCP connection",
		},
		{
			Key: "pml.eager.bytes", Kind: Bytes, Default: "0", Min: 0, Max: 1 << 30,
			Doc: "largest message that is sent at once, without waiting for its receive; unless set, each rail's own limit",
		},
		{
			Key: "pml.grace", Kind: Duration, Default: "10s", Min: 0, Max: int64(time.Hour),
			Doc: "time that operations wait for a rail when none to the peer is up, before they fail; 0: they fail at once",
		},
		{
			Key: "pml.notices", Kind: Bool, Default: "true",
			Doc: "print a line on standard error for each rail that fails or recovers",
		},
		{
			Key: "pml.protocol", Kind: String, Default: "auto",
			Allowed: []string{"auto", "copy", "get", "put"},
			Doc:     "how long messages move: get (the receiver reads), put (the sender writes), copy (in fragments); auto: the first of these that is possible",
		},
		{
			Key: "pml.rdma.bytes", Kind: Bytes, Default: "0", Min: 0, Max: 1 << 40,
			Doc: "smallest message that moves by remote reads or writes; unless set, each rail's own limit",
		},
		{
			Key: "pml.unexpected.bytes", Kind: Bytes, Default: "64M", Min: 0, Max: 1 << 40,
			Doc: "memory of a rank for messages that arrive before their receive is posted, in equal shares of at least 64K for each peer; a sender whose share is full waits",
		},
		{
			Key: "progress.spin", Kind: Int, Default: "-1", Min: -1, Max: 1 << 40,
			Doc: "polls without an event before a waiting rank yields its core; -1: many if each rank has a core, else none",
		},
		{
			Key: "progress.yield", Kind: Duration, Default: "100us", Min: 0, Max: int64(time.Hour),
			Doc: "time that a waiting rank yields between polls before it sleeps; unless set, 1ms if each rank has a core",
		},
		{
			Key: "progress.sleep", Kind: Bool, Default: "true",
			Doc: "let a rank sleep in a long wait until a peer wakes it; false: it polls for ever",
		},
		{
			Key: "stats", Kind: Bool, Default: "false",
			Doc: "print each rank's counters at Finalize",
		},
		{
			Key: "verbose", Kind: Bool, Default: "false",
			Doc: "print at Init how each rank reaches the others",
		},
	}
}
