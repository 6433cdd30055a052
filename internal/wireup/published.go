package wireup

import (
	"fmt"
	"strconv"
	"strings"
)

// PublishedRail is the address of a rail that its rank has published after the start.
type PublishedRail struct {
	Rank    int
	Number  int // of the rail in the rank's card
	Address []byte
}

// railPrefix begins the key of such an address: the prefix, rank and number.
const railPrefix = "mpigo-rail-"

// PublishRail replaces the address of a rail of this rank's card, at any time. Other ranks see it
// at once. Errors: ErrUnsupported by another manager than ours, ErrTooLarge, ErrRefused, and those
// of every exchange.
func (c *Client) PublishRail(number int, address []byte) error {
	if !c.hasPublish {
		return fmt.Errorf("wireup: publish a rail: %w", ErrUnsupported)
	}
	if len(address) > maxAddressBytes {
		return fmt.Errorf("wireup: publish a rail: address has %d bytes: %w", len(address), ErrTooLarge)
	}
	key := fmt.Sprintf("%s%d-%d", railPrefix, c.rank, number)
	a, err := c.exchange(publish, publishResult, "kvsname", c.kvsName, "key", key, "value", pieceEncoding.EncodeToString(address))
	if err != nil {
		return err
	}
	return a.refusal(publish)
}

// PublishedRails returns what the ranks have published since the last call, in that order. A rail
// may be in it several times. Errors as PublishRail, and ErrProtocol.
func (c *Client) PublishedRails() ([]PublishedRail, error) {
	if !c.hasPublish {
		return nil, fmt.Errorf("wireup: rails that were published: %w", ErrUnsupported)
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
	var list []PublishedRail
	for range count {
		if a, err = c.readAnswer(published, getAllWord); err != nil {
			return nil, err
		}
		var r PublishedRail
		if r, err = a.publishedRail(c.size); err != nil {
			break
		}
		list = append(list, r)
	}
	if err != nil {
		c.broken = a.protocolError(published, err)
		return nil, c.broken
	}
	c.seen += count
	return list, nil
}

// publishedRail parses a line of the answer to published.
func (a answer) publishedRail(size int) (r PublishedRail, err error) {
	key, _ := a.get("key")
	value, _ := a.get("value")
	rank, number, _ := strings.Cut(strings.TrimPrefix(key, railPrefix), "-")
	r.Rank, err = strconv.Atoi(rank)
	if err == nil {
		r.Number, err = strconv.Atoi(number)
	}
	if err != nil || r.Rank < 0 || r.Rank >= size || r.Number < 0 || r.Number >= maxRails || !strings.HasPrefix(key, railPrefix) {
		return r, fmt.Errorf("key %q", clip(key))
	}
	r.Address, err = pieceEncoding.DecodeString(value)
	if err != nil || len(r.Address) > maxAddressBytes {
		return r, fmt.Errorf("value of key %q", clip(key))
	}
	return r, nil
}

// maxPublished bounds how many values are published in a job's life.
const maxPublished = 1 << 20

// publication is a value that was published.
type publication struct{ key, value string }

// publish appends a value to what was published. It returns false if there is no room.
func (k *kvs) publish(key, value string) bool {
	bytes := k.bytes + len(key) + len(value)
	if len(k.published) >= maxPublished || k.keys >= k.maxKeys || bytes > k.maxBytes {
		return false
	}
	k.keys++
	k.bytes = bytes
	k.published = append(k.published, publication{key, value})
	return true
}

// listPublished is the answer to published, without the first values.
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
	if why == "" && !strings.HasPrefix(key, railPrefix+strconv.Itoa(p.rank)+"-") {
		why = "bad_key" // another rank's
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
