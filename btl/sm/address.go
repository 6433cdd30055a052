package sm

import "github.com/mpigo/mpigo/btl/base"

// address is the address that a rank publishes: where its segment is, and the segment's layout.
type address struct {
	host       [16]byte // identifies the kernel and the namespace of process numbers
	nonce      [16]byte // identifies the segment
	rank       uint32
	size       uint32
	pid        uint32
	segment    uint32 // descriptor number in that process
	wakeup     uint32 // descriptor number in that process, noWakeup if there is none
	wakeupNode uint64 // inode of the wakeup pipe
	slots      uint32
	data       uint64
	longest    uint64
	// fences: the rank issues the fence for its senders when it falls asleep, see idle.go.
	fences bool
}

// addressFields is an address as it is encoded.
type addressFields struct {
	Host       [16]byte
	Nonce      [16]byte
	PID        uint32
	Segment    uint32
	Wakeup     uint32
	WakeupNode uint64
	Slots      uint32
	Data       uint64
	Longest    uint64
	Fences     uint8 // 0 or 1
}

// addressForm is the form of what modules publish, and its version also that of the ring's layout.
// Never written.
var addressForm = base.AddressForm{Transport: "sm", Version: 4}

const (
	// addressBytes is the length of an address: version, owner, fields, checksum.
	addressBytes = 1 + 8 + 73 + 4
	noWakeup     = 1<<32 - 1
)

func (c *address) owner() base.AddressOwner { return base.AddressOwner{Rank: c.rank, Size: c.size} }

func (c *address) encode() []byte {
	f := addressFields{c.host, c.nonce, c.pid, c.segment, c.wakeup, c.wakeupNode, c.slots, c.data, c.longest, 0}
	if c.fences {
		f.Fences = 1
	}
	return addressForm.Encode(c.owner(), &f)
}

// parseAddress decodes an address. ok is false for what no module publishes.
func parseAddress(b []byte) (c address, ok bool) {
	var f addressFields
	owner, ok := addressForm.Decode(b, &f)
	return address{
		host: f.Host, nonce: f.Nonce, rank: owner.Rank, size: owner.Size, pid: f.PID, segment: f.Segment, wakeup: f.Wakeup,
		wakeupNode: f.WakeupNode, slots: f.Slots, data: f.Data, longest: f.Longest, fences: f.Fences == 1,
	}, ok && f.Fences <= 1
}
