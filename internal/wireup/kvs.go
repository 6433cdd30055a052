package wireup

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// How a value of any bytes fits in a key-value space of short words: it is
// written in base64url, "LENGTH.TEXT", and cut into pieces that stand under
// key, key/1, key/2 and so on. LENGTH counts the bytes of the value, so the
// reader knows how many pieces there are and notices if one was cut short.

// Bounds of Put.
const (
	MaxKeyBytes   = 48
	MaxValueBytes = 64 << 10
)

// minPieceBytes is what a manager has to take at least, so that the number of
// pieces and with it the length of "/N" stays small.
const minPieceBytes = 64

var wordEncoding = base64.RawURLEncoding.Strict()

// Put publishes value (any bytes, up to MaxValueBytes) under key (letters,
// digits, '-' and '_', up to MaxKeyBytes). Other ranks see it after the next
// Barrier. Put a key once in a job's life: what a second Put of it does differs
// from manager to manager. Put keeps no reference to value.
//
// Errors: ErrKey, ErrTooLarge, ErrRefused (the manager said no), and what each
// exchange can end with: ErrTimeout, ErrProtocol, ErrLost, ErrClosed.
func (c *Client) Put(key string, value []byte) error {
	if err := checkKey(key); err != nil {
		return err
	}
	if len(value) > MaxValueBytes {
		return fmt.Errorf("wireup: put %s: %d bytes, at most %d: %w", key, len(value), MaxValueBytes, ErrTooLarge)
	}
	text := strconv.Itoa(len(value)) + "." + wordEncoding.EncodeToString(value)
	for i := 0; text != ""; i++ {
		name := pieceKey(key, i)
		room, err := c.pieceBytes(name)
		if err != nil {
			return err
		}
		n := min(room, len(text))
		if err := c.putWord(name, text[:n]); err != nil {
			return err
		}
		text = text[n:]
	}
	return nil
}

// Get returns what was Put under key before the last Barrier, or an error that
// Is ErrNotFound. The slice is the caller's.
func (c *Client) Get(key string) ([]byte, error) {
	if err := checkKey(key); err != nil {
		return nil, err
	}
	return assemble(key, c.getWord)
}

// assemble puts together the value of a key from its pieces, which word gets by their names.
func assemble(key string, word func(name string) (string, error)) ([]byte, error) {
	first, err := word(pieceKey(key, 0))
	if err != nil {
		return nil, err
	}
	length, text, ok := strings.Cut(first, ".")
	size, err := strconv.Atoi(length)
	if !ok || err != nil || size < 0 || size > MaxValueBytes {
		return nil, fmt.Errorf("wireup: get %s: %q is not a value of ours: %w", key, clip(first), ErrProtocol)
	}
	want := wordEncoding.EncodedLen(size)
	for i := 1; len(text) < want; i++ {
		piece, err := word(pieceKey(key, i))
		if err != nil {
			return nil, err
		}
		if piece == "" {
			return nil, fmt.Errorf("wireup: get %s: empty piece: %w", key, ErrProtocol)
		}
		text += piece
	}
	value, err := wordEncoding.DecodeString(text)
	if err != nil || len(value) != size {
		return nil, fmt.Errorf("wireup: get %s: value is damaged: %w", key, ErrProtocol)
	}
	return value, nil
}

// nodesState is what the manager has said of nodes, once it was asked. Who holds mu may
// wait for the client's turn, never the other way round.
type nodesState struct {
	mu    sync.Mutex
	known bool
	of    []int
}

// NodeOf returns the node of each rank as an index, nil if the manager does not
// say. The indices are the manager's; equal means the same node. The manager is asked once. The slice is the caller's.
func (c *Client) NodeOf() ([]int, error) {
	c.nodes.mu.Lock()
	defer c.nodes.mu.Unlock()
	if !c.nodes.known {
		nodeOf, err := c.askNodes()
		if err != nil {
			return nil, err
		}
		c.nodes.of, c.nodes.known = nodeOf, true
	}
	return slices.Clone(c.nodes.of), nil
}

func (c *Client) askNodes() ([]int, error) {
	a, found, err := c.lookUp(mappingKey)
	if err != nil || !found {
		return nil, err
	}
	value, _ := a.get("value")
	nodeOf, err := parseMapping(value, c.size)
	if err != nil {
		return nil, a.nonsense("get "+mappingKey, err)
	}
	return nodeOf, nil
}

func checkKey(key string) error {
	if key == "" || len(key) > MaxKeyBytes || !isWord(key, "-_") {
		return fmt.Errorf("wireup: key %q: %w", clip(key), ErrKey)
	}
	return nil
}

// pieceKey uses '/', which Put does not allow in a key.
func pieceKey(key string, i int) string {
	if i == 0 {
		return key
	}
	return key + "/" + strconv.Itoa(i)
}

// pieceBytes is how long a value may be under name, by the manager's limits and
// by the line that carries it. One less than the manager says: Hydra cuts off
// the last byte of a value as long as its limit.
func (c *Client) pieceBytes(name string) (int, error) {
	if len(name) > c.limits.keyBytes-1 {
		return 0, fmt.Errorf("wireup: key %q: process manager takes at most %d bytes: %w", name, c.limits.keyBytes-1, ErrKey)
	}
	return min(c.limits.valueBytes-1, maxRequestBytes-len(c.putLine(name, ""))), nil
}

func (c *Client) putLine(name, word string) string {
	return formatLine("put", "kvsname", c.kvsName, "key", name, "value", word)
}

func (c *Client) putWord(name, word string) error {
	a, err := c.exchange("put", "put_result", "kvsname", c.kvsName, "key", name, "value", word)
	if err != nil {
		return err
	}
	return a.refusal("put " + name)
}

func (c *Client) getWord(name string) (string, error) {
	a, found, err := c.lookUp(name)
	if err != nil {
		return "", err
	}
	if !found {
		return "", notFound(name)
	}
	value, _ := a.get("value")
	return value, nil
}

func notFound(name string) error { return fmt.Errorf("wireup: get %s: %w", name, ErrNotFound) }

// getWords asks for all that is visible under keys that begin with prefix, at most that many.
func (c *Client) getWords(prefix string, most int) (map[string]string, error) {
	c.turn.Lock()
	defer c.turn.Unlock()
	a, err := c.ask(c.timeout, getAll, getAllResult, "kvsname", c.kvsName, "prefix", prefix)
	if err != nil {
		return nil, err
	}
	if err := a.refusal(getAll); err != nil {
		return nil, err
	}
	count, err := a.number("count", 0, most)
	words := make(map[string]string)
	for range count {
		if a, err = c.hear(c.timeout, getAll, getAllWord); err != nil {
			return nil, err
		}
		key, _ := a.get("key")
		value, _ := a.get("value")
		if _, again := words[key]; again || !strings.HasPrefix(key, prefix) {
			err = fmt.Errorf("key %q", clip(key))
			break
		}
		words[key] = value
	}
	if err != nil {
		c.broken = a.nonsense(getAll, err)
		return nil, c.broken
	}
	return words, nil
}

// lookUp asks for one key. Managers say no in their own ways: rc=-1, rc=1, with
// or without a value. The only reason is that the key is not there.
func (c *Client) lookUp(name string) (answer, bool, error) {
	a, err := c.exchange("get", "get_result", "kvsname", c.kvsName, "key", name)
	if err != nil {
		return answer{}, false, err
	}
	rc, err := a.number("rc", -1<<31, 1<<31-1)
	if err != nil {
		return answer{}, false, a.nonsense("get "+name, err)
	}
	return a, rc == 0, nil
}
