package wireup

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// PublishedModule is the address of a module that its rank has published after the start.
type PublishedModule struct {
	Rank    int
	Number  int // of the module in the rank's card
	Address []byte
}

// modulePrefix begins the key of such an address: the prefix, rank and number.
const modulePrefix = "mpigo-module-"

// PublishModule replaces the address of a module of this rank's card, at any time. Other ranks see
// it at once. Errors: ErrUnsupported unless the manager is ours, ErrTooLarge, ErrRefused, and the
// errors of every exchange.
func (c *Client) PublishModule(number int, address []byte) error {
	if !c.hasPublish {
		return fmt.Errorf("wireup: publish a module: %w", ErrUnsupported)
	}
	if len(address) > maxAddressBytes {
		return fmt.Errorf("wireup: publish a module: address has %d bytes: %w", len(address), ErrTooLarge)
	}
	key := fmt.Sprintf("%s%d-%d", modulePrefix, c.rank, number)
	a, err := c.exchange(publish, publishResult, "kvsname", c.kvsName, "key", key, "value", pieceEncoding.EncodeToString(address))
	if err != nil {
		return err
	}
	return a.refusal(publish)
}

// PublishedModules returns the addresses that the ranks have published since the last call, in that
// order, without entries that are not the address of a module. A module may occur several times.
// Errors as PublishModule, and ErrProtocol.
func (c *Client) PublishedModules() ([]PublishedModule, error) {
	if !c.hasPublish {
		return nil, fmt.Errorf("wireup: modules that were published: %w", ErrUnsupported)
	}
	c.exchanging.Lock()
	defer c.exchanging.Unlock()
	a, err := c.request(published, publishedResult, "kvsname", c.kvsName, "since", strconv.Itoa(c.seen))
	if err != nil {
		return nil, err
	}
	if err := a.refusal(published); err != nil {
		return nil, err
	}
	count, err := a.number("count", 0, maxPublished)
	var list []PublishedModule
	for range count {
		if a, err = c.readAnswer(published, getAllWord); err != nil {
			return nil, err
		}
		key, _ := a.get("key")
		value, _ := a.get("value")
		if r, ok := parsePublished(key, value); ok && r.Rank < c.size {
			list = append(list, r)
		}
	}
	if err != nil {
		c.broken = a.protocolError(published, err)
		return nil, c.broken
	}
	c.seen += count
	return list, nil
}

// parsePublished parses an entry that a rank has published. ok reports whether it is the address of
// a module; the rank may be out of range.
func parsePublished(key, value string) (r PublishedModule, ok bool) {
	place, ok := strings.CutPrefix(key, modulePrefix)
	if !ok {
		return r, false
	}
	rank, number, _ := strings.Cut(place, "-")
	var errs [3]error
	r.Rank, errs[0] = strconv.Atoi(rank)
	r.Number, errs[1] = strconv.Atoi(number)
	r.Address, errs[2] = pieceEncoding.DecodeString(value)
	return r, errors.Join(errs[:]...) == nil && r.Rank >= 0 && r.Number >= 0 && r.Number < maxModules && len(r.Address) <= maxAddressBytes
}

// maxPublished bounds the number of values published in a job's life.
const maxPublished = 1 << 20

// publication is a published value. Both fields are empty once a newer value of the key was
// published.
type publication struct{ key, value string }

// publish appends a value, and removes an earlier value of the same key, because a module may move
// often. It returns false if there is no room.
func (k *kvs) publish(key, value string) bool {
	keys, bytes := k.keys+1, k.bytes+len(key)+len(value)
	last, again := k.latest[key]
	if again {
		keys, bytes = keys-1, bytes-len(key)-len(k.published[last].value)
	}
	if len(k.published) >= maxPublished || keys > k.maxKeys || bytes > k.maxBytes {
		return false
	}
	if again {
		k.published[last] = publication{}
	}
	k.keys, k.bytes = keys, bytes
	k.latest[key] = len(k.published)
	k.published = append(k.published, publication{key, value})
	return true
}

// listPublished returns the answer to published, without the first since values.
func (k *kvs) listPublished(since int) string {
	list := k.published[min(since, len(k.published)):]
	var b strings.Builder
	b.WriteString(formatLine(publishedResult, "rc", "0", "count", strconv.Itoa(len(list))))
	for _, p := range list {
		b.WriteString(formatLine(getAllWord, "key", p.key, "value", p.value))
	}
	return b.String()
}

func (p *peer) publish(m message) error {
	key, value, why := p.keyOf(m)
	if why == "" && !strings.HasPrefix(key, modulePrefix+strconv.Itoa(p.rank)+"-") {
		why = "bad_key" // the key belongs to another rank
	}
	if _, ok := parsePublished(key, value); why == "" && !ok {
		why = "bad_module"
	}
	if why == "" {
		p.s.mu.Lock()
		if !p.s.kvs.publish(strings.Clone(key), strings.Clone(value)) {
			why = "no_room"
		}
		p.s.mu.Unlock()
	}
	if why != "" {
		return p.answer(publishResult, "rc", "-1", "msg", why)
	}
	return p.answer(publishResult, "rc", "0", "msg", "success")
}

func (p *peer) published(m message) error {
	since, err := m.number("since", 0, maxPublished)
	if name, _ := m.get("kvsname"); name != p.s.cfg.JobID || err != nil {
		return p.answer(publishedResult, "rc", "-1", "msg", "bad_request")
	}
	p.s.mu.Lock()
	text := p.s.kvs.listPublished(since)
	p.s.mu.Unlock()
	return p.write(text)
}
