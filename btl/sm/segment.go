package sm

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/base"
)

// A segment is the memory in which one rank receives. It is an anonymous file (memfd), so it never
// outlives its rank and the rank's peers. Peers of the same user reach it through /proc/PID/fd. It
// is sealed, so that no peer can truncate it.
//
//	header page | channel of rank 0 | channel of rank 1 | …
//
// The file is sparse: untouched parts take no memory. A sender maps only the header and its own
// channel, so it cannot change what others send.
type segment struct {
	layout
	fd    int
	nonce [16]byte
	header
}

// layout of a segment. Sender and receiver must agree on it.
type layout struct {
	ranks   uint64
	ring    geometry
	longest uint64 // longest fragment, in bytes
	page    uint64
}

// Offsets in the header, in bytes. Words that different ranks write, or that are written at very
// different rates, are two cache lines apart, because processors fetch pairs of lines.
const (
	// The owner writes these before any peer can see them.
	hdrMagic   = 0  // 8
	hdrVersion = 8  // 4
	hdrRank    = 12 // 4
	hdrNonce   = 16 // 16
	hdrRanks   = 32 // 8
	hdrSlots   = 40 // 8
	hdrData    = 48 // 8
	hdrLongest = 56 // 8
	// hdrClosed is set to 1 by the owner in Close.
	hdrClosed = 128 // 4
	// hdrAttention is read by every sender after it has published. Bit 0 says that the owner sleeps
	// (the owner sets it; the owner, or the peer that wakes it, clears it). The other bits count
	// how often the owner has closed a channel.
	hdrAttention = 256 // 4
	// hdrNotices counts the bits that were ever set in the bitmap. Peers add, the owner polls.
	hdrNotices = 384 // 4
	// hdrBitmap has a bit for each rank. A set bit asks the owner to check the control words of
	// that rank's channel. Peers set bits, the owner clears them.
	hdrBitmap = 512

	segmentMagic = 0x6d73_6f67_6970_6d02
)

// Offsets in the control page that a channel begins with.
const (
	// ctlSession is the producer's session word, see session.
	ctlSession = 0 // 8
	// ctlAddress is the producer's address, written before its first session.
	ctlAddress = 64 // addressBytes
	// ctlWant is set to 1 by a producer that sleeps while its ring is full, and cleared by the
	// consumer, which wakes it.
	ctlWant = 256 // 4
	// ctlReader is the consumer's session word.
	ctlReader = 384 // 8
	// ctlReadSlots and ctlReadData count the slots and the bytes that the consumer has read.
	ctlReadSlots = 512 // 8
	ctlReadData  = 520 // 8
	// ctlCopyAnswer says how long the consumer took to read a fragment, see package memcopy.
	ctlCopyAnswer = 640 // 8
)

func (l layout) roundToPage(n uint64) uint64 { return (n + l.page - 1) &^ (l.page - 1) }

func (l layout) headerBytes() uint64 { return l.roundToPage(hdrBitmap + (l.ranks+63)/64*8) }

func (l layout) dataOffset() uint64 { return l.page + l.roundToPage(l.ring.slotArea()) }

func (l layout) channelBytes() uint64 { return l.dataOffset() + l.roundToPage(l.ring.dataBytes) }

func (l layout) channelOffset(rank int) uint64 {
	return l.headerBytes() + uint64(rank)*l.channelBytes()
}

func (l layout) bytes() uint64 { return l.channelOffset(int(l.ranks)) }

// layoutOf rounds the sizes of a configuration, and checks them.
func layoutOf(cfg Config) (layout, error) {
	slots, data, longest := uint64(cfg.RingSlots), uint64(cfg.RingBytes), uint64(cfg.FragBytes)
	switch {
	case cfg.Size < 1 || cfg.Size > base.MaxRanks:
		return layout{}, fmt.Errorf("%d ranks, must be 1 to %d", cfg.Size, base.MaxRanks)
	case cfg.Rank < 0 || cfg.Rank >= cfg.Size:
		return layout{}, fmt.Errorf("rank %d of %d", cfg.Rank, cfg.Size)
	case cfg.RingSlots < 0 || slots > maxSlots:
		return layout{}, fmt.Errorf("ring of %d slots, must be 2 to %d", cfg.RingSlots, maxSlots)
	case cfg.RingBytes < 0 || data > maxRingBytes:
		return layout{}, fmt.Errorf("ring of %d bytes, must be at most %d", cfg.RingBytes, uint64(maxRingBytes))
	case cfg.FragBytes < 0 || longest > maxRingBytes/4:
		return layout{}, fmt.Errorf("fragments of %d bytes, must be at most %d", cfg.FragBytes, uint64(maxRingBytes/4))
	}
	if slots == 0 {
		slots = defaultSlots
	}
	if data == 0 {
		data = defaultRingBytes
	}
	if longest == 0 {
		longest = min(defaultFragBytes, data/4)
	}
	longest = max(longest, slotData)
	l := layout{
		ranks: uint64(cfg.Size),
		// The consumer may withhold a quarter of the data, and less than a fragment is lost at the
		// end of the ring. With room for four of the longest fragments, a producer always makes
		// progress.
		ring:    geometry{slots: max(roundUp(slots), 2), dataBytes: max(roundUp(data), roundUp(4*align(longest)))},
		longest: longest,
		page:    uint64(os.Getpagesize()),
	}
	if l.channelBytes() > math.MaxInt64/l.ranks/2 {
		return layout{}, fmt.Errorf("%d rings of %d bytes need more addresses than there are", l.ranks, l.ring.dataBytes)
	}
	return l, nil
}

const (
	maxSlots     = 1 << 20
	maxRingBytes = 1 << 34

	// Measured: with a quarter of these bytes, a stream of fragments has half the bandwidth. Four
	// times as many bytes do not increase it.
	defaultSlots     = 256
	defaultRingBytes = 1 << 20
	defaultFragBytes = 64<<10 + btl.MaxHeaderBytes
)

// newSegment makes a rank's segment.
func newSegment(l layout, rank int) (*segment, error) {
	s := &segment{layout: l}
	if _, err := rand.Read(s.nonce[:]); err != nil {
		return nil, err
	}
	var err error
	if s.fd, err = newFile("segment", l.bytes()); err != nil {
		return nil, err
	}
	if s.header, err = mapHeader(s.fd, l); err != nil {
		return nil, errors.Join(err, s.close())
	}
	s.describe(rank)
	return s, nil
}

// newFile makes an anonymous file of fixed size. what names the file in messages.
func newFile(what string, size uint64) (fd int, err error) {
	var limit unix.Rlimit
	// A file over this limit would cause a signal, not only an error.
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &limit); err == nil && limit.Cur < size {
		return -1, fmt.Errorf("%s of %d bytes is over the file size limit (ulimit -f) of %d", what, size, limit.Cur)
	}
	fd, err = unix.MemfdCreate("mpigo-sm-"+what, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return -1, fmt.Errorf("make an anonymous file (memfd_create): %w", err)
	}
	if err := unix.Fchmod(fd, 0o600); err != nil {
		return -1, errors.Join(fmt.Errorf("restrict the %s to its user: %w", what, err), unix.Close(fd))
	}
	if err := unix.Ftruncate(fd, int64(size)); err != nil {
		return -1, errors.Join(fmt.Errorf("make a file of %d bytes for the %s: %w", size, what, err), unix.Close(fd))
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		return -1, errors.Join(fmt.Errorf("seal the %s: %w", what, err), unix.Close(fd))
	}
	return fd, nil
}

const seals = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW

func (s *segment) describe(rank int) {
	le := binary.LittleEndian
	le.PutUint32(s.mem[hdrVersion:], uint32(addressForm.Version))
	le.PutUint32(s.mem[hdrRank:], uint32(rank))
	copy(s.mem[hdrNonce:], s.nonce[:])
	le.PutUint64(s.mem[hdrRanks:], s.ranks)
	le.PutUint64(s.mem[hdrSlots:], s.ring.slots)
	le.PutUint64(s.mem[hdrData:], s.ring.dataBytes)
	le.PutUint64(s.mem[hdrLongest:], s.longest)
	atomic.StoreUint64((*uint64)(unsafe.Pointer(&s.mem[hdrMagic])), segmentMagic)
}

func (s *segment) close() error {
	return errors.Join(s.unmap(), unix.Close(s.fd))
}

// checkSegment checks that an anonymous file has the size of a segment, and keeps it.
func checkSegment(fd int, l layout) error {
	if !isSealed(fd) {
		return fmt.Errorf("%w: not sealed", errSegment)
	}
	var st unix.Stat_t // after the check of the seals, because the size is then fixed
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if uint64(st.Size) != l.bytes() {
		return fmt.Errorf("%w: %d bytes, not %d", errSegment, st.Size, l.bytes())
	}
	return nil
}

// isSealed reports whether a file keeps its size. If a file is not sealed, a peer could truncate
// it, and a signal would kill this process.
func isSealed(fd int) bool {
	have, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	return err == nil && have&seals == seals
}

var errSegment = errors.New("not the peer's segment")

// check compares a mapped header with the peer's address.
func (h *header) check(c *address) error {
	le := binary.LittleEndian
	m := h.mem
	switch {
	case atomic.LoadUint64((*uint64)(unsafe.Pointer(&m[hdrMagic]))) != segmentMagic:
		return fmt.Errorf("%w: not a segment", errSegment)
	case [16]byte(m[hdrNonce:]) != c.nonce:
		return fmt.Errorf("%w: another one in its place", errSegment)
	case le.Uint32(m[hdrVersion:]) != uint32(addressForm.Version), le.Uint32(m[hdrRank:]) != c.rank,
		le.Uint64(m[hdrRanks:]) != uint64(c.size), le.Uint64(m[hdrSlots:]) != uint64(c.slots),
		le.Uint64(m[hdrData:]) != c.data, le.Uint64(m[hdrLongest:]) != c.longest:
		return fmt.Errorf("%w: the peer's address does not describe it", errSegment)
	}
	return nil
}

// header is a mapped header page.
type header struct {
	mem       []byte
	attention *uint32
	notices   *uint32
	closed    *uint32
}

func mapHeader(fd int, l layout) (header, error) {
	mem, err := mapShared(fd, 0, l.headerBytes())
	if err != nil {
		return header{}, err
	}
	return headerAt(mem), nil
}

func headerAt(mem []byte) header {
	return header{
		mem:       mem,
		attention: (*uint32)(unsafe.Pointer(&mem[hdrAttention])),
		notices:   (*uint32)(unsafe.Pointer(&mem[hdrNotices])),
		closed:    (*uint32)(unsafe.Pointer(&mem[hdrClosed])),
	}
}

func (h *header) bits(word uint64) *uint64 {
	return (*uint64)(unsafe.Pointer(&h.mem[hdrBitmap+8*word]))
}

// notify asks the owner to check the channel of a rank.
func (h *header) notify(rank int) {
	atomic.OrUint64(h.bits(uint64(rank)>>6), 1<<(rank&63))
	atomic.AddUint32(h.notices, 1)
}

func (h *header) unmap() error { return unmap(&h.mem) }

// channel is a mapped channel.
type channel struct {
	mem     []byte
	session *uint64
	want    *uint32
	reader  *uint64
}

func mapChannel(fd int, l layout, rank int) (channel, error) {
	mem, err := mapShared(fd, l.channelOffset(rank), l.channelBytes())
	if err != nil {
		return channel{}, err
	}
	return channelAt(mem), nil
}

func channelAt(mem []byte) channel {
	return channel{
		mem:     mem,
		session: (*uint64)(unsafe.Pointer(&mem[ctlSession])),
		want:    (*uint32)(unsafe.Pointer(&mem[ctlWant])),
		reader:  (*uint64)(unsafe.Pointer(&mem[ctlReader])),
	}
}

// ringOf returns the ring of a channel.
func (c *channel) ringOf(l layout) ring {
	return l.ring.ring(
		unsafe.Pointer(&c.mem[l.page]), unsafe.Pointer(&c.mem[l.dataOffset()]),
		(*uint64)(unsafe.Pointer(&c.mem[ctlReadSlots])), (*uint64)(unsafe.Pointer(&c.mem[ctlReadData])),
		(*uint64)(unsafe.Pointer(&c.mem[ctlCopyAnswer])),
	)
}

func (c *channel) unmap() error { return unmap(&c.mem) }

func mapShared(fd int, offset, size uint64) ([]byte, error) {
	mem, err := unix.Mmap(fd, int64(offset), int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes of shared memory: %w", size, err)
	}
	return mem, nil
}

func unmap(mem *[]byte) error {
	if *mem == nil {
		return nil
	}
	m := *mem
	*mem = nil
	return unix.Munmap(m)
}

// session is the word in which each side of a channel publishes its state and epoch. Each side
// writes its own word and only reads the other's.
//
//	producer   open → failed, or closed; then open again with a higher epoch, once the
//	           consumer is done with the epoch before
//	consumer   reading → closing → done; the epoch is the one that it read from
//
// A closing consumer claims each fragment that it still takes (consumer.claim). A producer that
// sees the consumer close retracts the fragment that it has just published (producer.retract). Thus
// the sender knows whether each fragment was delivered.
type session uint64

type sessionState uint8

const (
	_ sessionState = iota // no session
	// The producer's:
	open   // it sends
	failed // its endpoint has failed
	closed // its module was closed
	// The consumer's:
	reading
	closing
	done
)

func sessionOf(epoch uint32, state sessionState) session {
	return session(epoch)<<8 | session(state)
}

func (s session) epoch() uint32       { return uint32(s >> 8) }
func (s session) state() sessionState { return sessionState(s) }

func loadSession(word *uint64) session     { return session(atomic.LoadUint64(word)) }
func storeSession(word *uint64, s session) { atomic.StoreUint64(word, uint64(s)) }
