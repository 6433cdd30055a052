package wireup

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Card is a rank's business card: the addresses at which other ranks can reach it.
type Card struct {
	Host           string // HostID; ranks with equal Host may share memory
	PID            int
	Oversubscribed bool     // the rank's machine has more ranks of the job than cores for them
	Checked        bool     // the rank is in checked mode
	Modules        []Module // in the rank's order of preference
}

// Module is the address of one transport of a rank.
type Module struct {
	BTL     string // name of the transport
	Address []byte // for the same transport at the peer, which must not trust it
}

// cardVersion is the version of the encoding.
const cardVersion = 2

// Flags of a card.
const (
	flagOversubscribed = 1 << iota
	flagChecked
	flagsKnown = flagOversubscribed | flagChecked
)

// Bounds of a card. Every card within them fits in one Put.
const (
	maxHostBytes    = 255
	maxModules      = 64
	maxBTLBytes     = 32
	maxAddressBytes = 512
)

// Encode returns the card's bytes. If the card exceeds a bound (host 255 bytes, 64 modules,
// transport name 1 to 32 bytes, address 512 bytes), the error Is ErrCard.
//
// Numbers are unsigned varints, and the length of a text precedes it:
//
//	version (1 byte), host, PID, flags (oversubscribed 1, checked 2), number of modules; of each:
//	name, address
func (c Card) Encode() ([]byte, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	b := appendText([]byte{cardVersion}, c.Host)
	b = binary.AppendUvarint(b, uint64(c.PID))
	flags := byte(0)
	if c.Oversubscribed {
		flags |= flagOversubscribed
	}
	if c.Checked {
		flags |= flagChecked
	}
	b = append(b, flags)
	b = binary.AppendUvarint(b, uint64(len(c.Modules)))
	for _, r := range c.Modules {
		b = appendText(b, r.BTL)
		b = appendText(b, r.Address)
	}
	return b, nil
}

func (c Card) check() error {
	if len(c.Host) > maxHostBytes {
		return cardError("host has %d bytes", len(c.Host))
	}
	if c.PID < 0 || c.PID > maxPID {
		return cardError("PID %d", c.PID)
	}
	if len(c.Modules) > maxModules {
		return cardError("%d modules", len(c.Modules))
	}
	for i, r := range c.Modules {
		if r.BTL == "" || len(r.BTL) > maxBTLBytes {
			return cardError("module %d: transport name %q", i, clip(r.BTL))
		}
		if len(r.Address) > maxAddressBytes {
			return cardError("module %d: address has %d bytes", i, len(r.Address))
		}
	}
	return nil
}

// maxPID is the largest pid_t.
const maxPID = 1<<31 - 1

func cardError(format string, args ...any) error {
	return fmt.Errorf("wireup: %s: %w", fmt.Sprintf(format, args...), ErrCard)
}

func appendText[T string | []byte](b []byte, text T) []byte {
	b = binary.AppendUvarint(b, uint64(len(text)))
	return append(b, text...)
}

// DecodeCard is the inverse of Encode. For bytes that Encode cannot have written, the error Is
// ErrCard. The card keeps no reference to b.
func DecodeCard(b []byte) (Card, error) {
	if len(b) == 0 {
		return Card{}, cardError("empty")
	}
	if b[0] != cardVersion {
		return Card{}, cardError("version %d, this program knows %d", b[0], cardVersion)
	}
	d := cardReader{rest: b[1:]}
	c := Card{Host: string(d.text(maxHostBytes)), PID: d.number(maxPID)}
	flags := d.number(flagsKnown)
	c.Oversubscribed, c.Checked = flags&flagOversubscribed != 0, flags&flagChecked != 0
	if n := d.number(maxModules); n > 0 && !d.bad {
		c.Modules = make([]Module, 0, n)
		for range n {
			r := Module{BTL: string(d.text(maxBTLBytes))}
			r.Address = append([]byte(nil), d.text(maxAddressBytes)...)
			c.Modules = append(c.Modules, r)
		}
	}
	if d.bad {
		return Card{}, cardError("%d bytes, damaged", len(b))
	}
	if len(d.rest) > 0 {
		return Card{}, cardError("%d bytes too many", len(d.rest))
	}
	if err := c.check(); err != nil {
		return Card{}, err
	}
	return c, nil
}

// cardReader reads the fields of a card. After the first error it is bad and returns zero values.
type cardReader struct {
	rest []byte
	bad  bool
}

func (d *cardReader) number(limit int) int {
	if d.bad {
		return 0
	}
	v, n := binary.Uvarint(d.rest)
	// A final zero byte would be a second encoding of the same value.
	if n <= 0 || v > uint64(limit) || (n > 1 && d.rest[n-1] == 0) {
		d.bad = true
		return 0
	}
	d.rest = d.rest[n:]
	return int(v)
}

func (d *cardReader) text(limitBytes int) []byte {
	n := d.number(limitBytes)
	if d.bad || n > len(d.rest) {
		d.bad = true
		return nil
	}
	text := d.rest[:n]
	d.rest = d.rest[n:]
	return text
}

// CardKey is the key under which rank's card is Put.
func CardKey(rank int) string { return cardPrefix + strconv.Itoa(rank) }

const cardPrefix = "mpigo-card-"

// maxCardPieces bounds the number of pieces of one card under our own manager, which takes pieces
// of almost valLenMax bytes.
const maxCardPieces = (MaxValueBytes/3+1)*4/(valLenMax/2) + 1

// PutCard publishes this rank's card. Errors as Put, and ErrCard.
func (c *Client) PutCard(card Card) error {
	b, err := card.Encode()
	if err != nil {
		return err
	}
	return c.Put(CardKey(c.rank), b)
}

// GetCards returns the cards that the other ranks published before the last Barrier, by rank. The
// element of this rank is empty. Our own manager gets one request for all cards. Errors as Get, and
// ErrCard.
func (c *Client) GetCards() ([]Card, error) {
	piece := c.getPiece
	if c.hasGetAll {
		pieces, err := c.getPieces(cardPrefix, c.size*maxCardPieces)
		if err != nil {
			return nil, err
		}
		piece = func(name string) (string, error) {
			text, found := pieces[name]
			if !found {
				return "", notFound(name)
			}
			return text, nil
		}
	}
	cards := make([]Card, c.size)
	for rank := range cards {
		if rank == c.rank {
			continue
		}
		var err error
		if cards[rank], err = cardOf(rank, piece); err != nil {
			return nil, err
		}
	}
	return cards, nil
}

func cardOf(rank int, piece func(name string) (string, error)) (Card, error) {
	b, err := assemble(CardKey(rank), piece)
	if err != nil {
		return Card{}, err
	}
	card, err := DecodeCard(b)
	if err != nil {
		return Card{}, fmt.Errorf("wireup: card of rank %d: %w", rank, err)
	}
	return card, nil
}

// HostID identifies this boot of this machine, this process's PID namespace and its user. Two
// processes with the same HostID know each other's PIDs, and can open each other's descriptors and
// shared memory.
func HostID() (string, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("wireup: host identity: %w", err)
	}
	pids, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return "", fmt.Errorf("wireup: host identity: %w", err)
	}
	return hostID(strings.TrimSpace(string(boot)), pids, os.Getuid()), nil
}

func hostID(boot, pids string, uid int) string {
	sum := sha256.Sum256([]byte(boot + "\n" + pids + "\n" + strconv.Itoa(uid)))
	return hex.EncodeToString(sum[:16])
}
