package tunable

import "time"

// table is every tunable there is. It is a function, so that nobody can change
// it for another rank of the same process.
func table() []Tunable {
	return []Tunable{
		{
			Key: "btl", Kind: List, Default: "self,sm,ibverbs,tcp",
			Allowed: []string{"self", "sm", "ibverbs", "tcp"},
			Doc:     "transports that may be used, in order of preference: a rank is reached by the first that leads there",
		},
		{
			Key: "sm.ring.slots", Kind: Int, Default: "256", Min: 2, Max: 1 << 20,
			Doc: "fragments that may be in flight to one peer of the same machine",
		},
		{
			Key: "sm.ring.bytes", Kind: Bytes, Default: "1M", Min: 4 << 10, Max: 1 << 32,
			Doc: "shared memory for the payload in flight to one peer of the same machine",
		},
		{
			Key: "sm.frag.bytes", Kind: Bytes, Default: "32K", Min: 256, Max: 1 << 30,
			Doc: "largest payload of one fragment through shared memory",
		},
		{
			Key: "ibverbs.devices", Kind: List, Default: "all",
			wellFormed: wellFormedPorts, form: "all, or a list such as mlx5_0,mlx5_1:2 or a|b,c|d of devices and their ports, from 1 to 255, none twice for one rank",
			Doc: "RDMA rails, as mlx5_0,mlx5_1:2 (port 2); a|b is one rail for which the ranks of a machine take a and b in turn; all: every port that is up, and nothing else beside it",
		},
		{
			Key: "ibverbs.gid", Kind: Int, Default: "-1", Min: -1, Max: 255,
			Doc: "entry of the port's table of GIDs; -1 chooses one (RoCE v2, IPv4 if there is one)",
		},
		{
			Key: "ibverbs.frag.bytes", Kind: Bytes, Default: "8K", Min: 256, Max: 512 << 10,
			Doc: "largest payload of one fragment over verbs",
		},
		{
			Key: "ibverbs.recv.depth", Kind: Int, Default: "64", Min: 8, Max: 4096,
			Doc: "fragments that one peer may send over verbs before this rank looks",
		},
		{
			Key: "ibverbs.send.depth", Kind: Int, Default: "128", Min: 4, Max: 4096,
			Doc: "operations that may be under way to one peer over verbs",
		},
		{
			Key: "ibverbs.eager.peers", Kind: Int, Default: "8", Min: 0, Max: 4096,
			Doc: "peers that may write small fragments into this rank's memory over verbs; 0: none may",
		},
		{
			Key: "ibverbs.eager.after", Kind: Int, Default: "16", Min: 1, Max: 1 << 30,
			Doc: "small fragments after which a peer may do that, one of the first",
		},
		{
			Key: "ibverbs.timeout", Kind: Int, Default: "14", Min: 1, Max: 31,
			Doc: "a device waits 4.096 us * 2^this for a peer's answer before it tries again",
		},
		{
			Key: "ibverbs.retry", Kind: Int, Default: "6", Min: 1, Max: 7,
			Doc: "how often it tries again before the connection fails",
		},
		{
			Key: "ibverbs.deadline", Kind: Duration, Default: "10s", Min: int64(time.Millisecond), Max: int64(time.Hour),
			Doc: "how long a peer may be silent over verbs: asked for a connection, or with operations under way of which none completes",
		},
		{
			Key: "ibverbs.keepalive", Kind: Duration, Default: "2s", Min: 0, Max: int64(time.Hour),
			Doc: "how long nothing may be heard of a peer, with nothing under way to it, before it is found out whether a way leads there; 0: for ever",
		},
		{
			Key: "ibverbs.port.grace", Kind: Duration, Default: "20ms", Min: int64(time.Millisecond), Max: int64(time.Hour),
			Doc: "how long a port may be down before its connections are given up",
		},
		{
			Key: "tcp.include", Kind: List, Default: "all",
			wellFormed: wellFormedAddresses("all"), form: "all, or a list such as eth0,10.0.0.1,10.0.0.0/8,fd00::/8 of interfaces, addresses and networks",
			Doc: "interfaces (eth0), addresses or networks (10.0.0.0/8) that are rails over TCP, of each machine those it has; all: one address of each interface, without those of containers and virtual machines, and loopback only where there is nothing else",
		},
		{
			Key: "tcp.exclude", Kind: List, Default: "none",
			wellFormed: wellFormedAddresses("none"), form: "none, or a list such as eth0,10.0.0.1,10.0.0.0/8,fd00::/8 of interfaces, addresses and networks",
			Doc: "interfaces, addresses or networks that are not",
		},
		{
			Key: "tcp.ports", Kind: String, Default: "any",
			wellFormed: wellFormedRange, form: "any, or FIRST-LAST with ports from 1 to 65535, such as 20000-20099",
			Doc: "ports that a rank may listen at, for firewalls: one of them is taken for each rail over TCP, by each rank of a machine; any: what the system gives",
		},
		{
			Key: "tcp.frag.bytes", Kind: Bytes, Default: "128K", Min: 256, Max: 2 << 20,
			Doc: "largest payload of one fragment over TCP",
		},
		{
			Key: "tcp.eager.bytes", Kind: Bytes, Default: "64K", Min: 256, Max: 2 << 20,
			Doc: "largest payload of a message over TCP that the receiver is not asked about first",
		},
		{
			Key: "tcp.deadline", Kind: Duration, Default: "10s", Min: int64(time.Millisecond), Max: int64(time.Hour),
			Doc: "how long a peer's machine may be silent over TCP: asked for a connection, or with data under way",
		},
		{
			Key: "tcp.keepalive", Kind: Duration, Default: "10s", Min: int64(time.Second), Max: int64(time.Hour),
			Doc: "how long a connection may be silent before the system asks whether the peer's machine is there",
		},
		{
			Key: "pml.eager.bytes", Kind: Bytes, Default: "0", Min: 0, Max: 1 << 30,
			Doc: "messages up to this size are sent without asking the receiver first; unless set, each rail's own limit",
		},
		{
			Key: "pml.grace", Kind: Duration, Default: "10s", Min: 0, Max: int64(time.Hour),
			Doc: "how long what is under way to a rank waits for a rail to come back when none leads there any more; 0: not at all",
		},
		{
			Key: "pml.notices", Kind: Bool, Default: "true",
			Doc: "tell on standard error of each rail that fails or comes back",
		},
		{
			Key: "pml.protocol", Kind: String, Default: "auto",
			Allowed: []string{"auto", "copy", "get", "put"},
			Doc:     "how longer messages move: by the receiver's reads, by the sender's writes, or in fragments where neither is possible",
		},
		{
			Key: "pml.rdma.bytes", Kind: Bytes, Default: "0", Min: 0, Max: 1 << 40,
			Doc: "messages from this size on move by remote reads or writes; unless set, each rail's own limit",
		},
		{
			Key: "pml.unexpected.bytes", Kind: Bytes, Default: "64M", Min: 0, Max: 1 << 40,
			Doc: "what a rank keeps of messages before they are received, its peers together, but at least 64K for each; beyond, senders wait",
		},
		{
			Key: "progress.spin", Kind: Int, Default: "-1", Min: -1, Max: 1 << 40,
			Doc: "turns that a waiting rank polls before it gives way to others; -1 adapts to the load",
		},
		{
			Key: "progress.yield", Kind: Duration, Default: "100us", Min: 0, Max: int64(time.Hour),
			Doc: "how long a waiting rank goes on polling while it gives way, before it sleeps",
		},
		{
			Key: "progress.sleep", Kind: Bool, Default: "true",
			Doc: "whether a rank that waits for long sleeps until a peer wakes it",
		},
		{
			Key: "stats", Kind: Bool, Default: "false",
			Doc: "print each rank's counters at Finalize",
		},
		{
			Key: "verbose", Kind: Bool, Default: "false",
			Doc: "print how each rank reaches the others, at Init",
		},
	}
}
